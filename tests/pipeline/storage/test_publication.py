"""A result that takes the place of another: no moment without either, and nothing lost where there is one."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import rankfold as rf
from rankfold.pipeline import durable, outputs
from rankfold.pipeline.importing import tiles
from rankfold.pipeline.storage import run_directory

X = np.random.default_rng(0).standard_normal((60, 8))


def test_two_names_are_exchanged_or_nothing_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "chunk").write_bytes(b"1")
    exchanged = durable.exchange(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old" / "chunk").exists() is exchanged
    assert not durable.exchange(tmp_path / "new", tmp_path / "none")
    monkeypatch.setattr(durable, "_renameat2", lambda: None)
    assert not durable.exchange(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old" / "chunk").exists() is exchanged


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="only Linux exchanges two names in one step")
def test_a_reader_never_finds_a_result_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, seen = tmp_path / "r.zarr", list[bool]()
    rf.svd(X, 2, out=out)
    for name in ("rename", "rename_new", "exchange"):
        real = getattr(outputs, name)

        def step(source: Path, target: Path, real: Callable[..., object] = real) -> object:
            done = real(source, target)
            seen.append(out.exists())
            return done

        monkeypatch.setattr(outputs, name, step)
    rf.svd(X, 3, out=out, overwrite=True)
    assert len(seen) == 2 and all(seen) and rf.open_result(out).s.shape == (3,)
    assert not list((tmp_path / "r.zarr.run").glob("re[ps]*"))


def test_a_result_comes_back_whose_successor_was_never_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between two renames, and then asked for something else: the first result was all there was."""
    out, previous = tmp_path / "r.zarr", tmp_path / "r.zarr.run" / run_directory.PREVIOUS
    rf.svd(X, 2, out=out)
    first = [*rf.open_result(out).s]
    monkeypatch.setattr(outputs, "exchange", lambda one, other: False)
    real = outputs.rename_new

    def killed(source: Path, target: Path) -> None:
        if target == out:
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(outputs, "rename_new", killed)
        rf.svd(X, 3, out=out, overwrite=True)
    assert previous.is_dir() and not out.exists()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("rankfold.api.execute._work", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        rf.svd(X, 4, out=out, overwrite=True)
    assert [*rf.open_result(out).s] == first
    rf.svd(X, 4, out=out, overwrite=True)
    assert rf.open_result(out).s.shape == (4,) and not previous.exists()


@pytest.mark.parametrize("at_once", [True, False])
def test_a_store_is_replaced_by_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    if not at_once:
        monkeypatch.setattr(outputs, "exchange", lambda one, other: False)
    for rows in (60, 30):
        rf.import_array(X[:rows], tmp_path / "x.zarr", overwrite=True)
    assert rf.open(tmp_path / "x.zarr").shape == (30, 8) and len(list(tmp_path.iterdir())) == 1


def test_a_store_comes_back_whose_successor_was_never_finished(tmp_path: Path) -> None:
    rf.import_array(X, tmp_path / "x.zarr")
    left = tmp_path / f"x.zarr.partial-{socket.gethostname()}-99999999"
    left.mkdir()
    (tmp_path / "x.zarr").rename(left / tiles.PREVIOUS)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rf.import_array(X[:30], tmp_path / "x.zarr", overwrite=True, progress=interrupt)
    assert rf.open(tmp_path / "x.zarr").shape == (60, 8)
