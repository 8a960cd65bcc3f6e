"""Data that are written to while they are read lead to no result, and leave no part of one behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import same_bytes, to_zarr

import rankfold as rf
from rankfold.methods.knn.extend import EarlierLists
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.importing import import_array

X = np.random.default_rng(0).standard_normal((3000, 12))


def store(folder: Path, name: str, x: Any = X) -> Path:
    return Path(to_zarr(folder / f"{name}.zarr", np.asarray(x), (100, x.shape[1])))


def touch(path: Path) -> None:
    """Write another number into a chunk: of the same length, and later."""
    chunk = next(p for p in sorted(path.rglob("*")) if p.is_file() and p.name != "zarr.json")
    data = bytearray(chunk.read_bytes())
    data[:8] = np.float64(7).tobytes()
    chunk.write_bytes(data)


def touching(path: Path) -> Callable[..., None]:
    """Progress that writes to a store when it is told of for the first time."""
    stores = [path]

    def told(*_: object) -> None:
        if stores:
            touch(stores.pop())

    return told


def svd(x: object, **how: Any) -> rf.Result:
    return rf.svd(x, 3, solver="subspace", passes=3, **how)


@pytest.mark.parametrize("out", [True, False], ids=["to disk", "in memory"])
def test_a_matrix_that_changes_leads_to_no_result(tmp_path: Path, out: bool) -> None:
    x = store(tmp_path, "x")
    where = {"out": tmp_path / "r.zarr"} if out else {}
    with pytest.raises(DataError, match="has changed since this run began"):
        svd(x, progress=touching(x), **where)
    assert os.listdir(tmp_path) == ["x.zarr"]
    assert same_bytes(svd(x, **where)) == same_bytes(svd(x))


def test_an_array_in_memory_that_changes_leads_to_no_result() -> None:
    x = X.copy()
    with pytest.raises(DataError, match="has changed since this run began"):
        svd(x, progress=lambda *_: x.fill(1.0))


def test_other_inputs_count_too(tmp_path: Path) -> None:
    x, queries = store(tmp_path, "x"), store(tmp_path, "queries", X[:500] + 1)
    with pytest.raises(DataError, match="or another of its inputs has"):
        rf.knn(x, 3, queries=queries, out=tmp_path / "r.zarr", progress=touching(queries))
    assert not (tmp_path / "r.zarr").exists()


def test_an_earlier_result_that_is_damaged_meanwhile_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zarr reads chunks that are not there as zeros."""
    lists = rf.knn(store(tmp_path, "x", X[:1000]), 3, out=tmp_path / "lists.zarr")
    more, plant = store(tmp_path, "more"), EarlierLists.plant

    def lose(self: EarlierLists, fold: Any, folder: Path) -> None:
        plant(self, fold, folder)
        next(self.result.path.glob("distances/c/*/*")).unlink()

    monkeypatch.setattr(EarlierLists, "plant", lose)
    with pytest.raises(DataError, match="distances/c/0/0 is missing"):
        rf.knn(more, 3, base=lists, out=tmp_path / "r.zarr")
    assert not (tmp_path / "r.zarr").exists()


def test_a_chain_of_tasks_refuses_what_changes_between_them(tmp_path: Path) -> None:
    x, embedding = store(tmp_path, "x"), store(tmp_path, "embedding", X[:, :2].copy())
    with pytest.raises(DataError, match="has changed since this run began"):
        rf.trustworthiness(x, embedding, progress=touching(x))


def test_a_store_is_removed_meanwhile(tmp_path: Path) -> None:
    """Its last sweep had read it, so only a look at the end can tell."""
    x, told = store(tmp_path, "x"), list[int]()

    def remove(_: str, done: int, total: int) -> None:
        told.append(done)
        if done == total and x.exists():
            x.rename(tmp_path / "away.zarr")

    with pytest.raises(DataError, match="has changed since this run began"):
        rf.svd(x, 3, solver="gram", with_rows=False, progress=remove, out=tmp_path / "r.zarr")


def test_an_import_refuses_what_changes_while_it_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)

    def rewrite(*_: object) -> None:
        with open(tmp_path / "x.npy", "r+b") as file:
            file.seek(-8, os.SEEK_END)
            file.write(np.float64(7).tobytes())

    with pytest.raises(DataError, match="has changed since this import began"):
        import_array(tmp_path / "x.npy", tmp_path / "r.zarr", chunk_bytes=4096, progress=rewrite)
    assert os.listdir(tmp_path) == ["x.npy"]
