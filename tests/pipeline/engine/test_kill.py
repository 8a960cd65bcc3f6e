"""Nothing is lost to any kill: the same command again ends with the same bytes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import decaying, same_bytes, to_zarr

import rankfold as rf
from rankfold.pipeline.storage.run_directory import RunDirectory

COMMAND = """
import sys
import rankfold as rf
told = lambda name, done, total: print(name, done, flush=True)
rf.pca(sys.argv[1], rank=12, solver=sys.argv[3], tol=1e-9, passes=6, out=sys.argv[2], threads=2,
       memory="1GiB", progress=told)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    x = decaying(300_000, 150, np.float32, power=0.4)
    return to_zarr(tmp_path_factory.mktemp("kill") / "x.zarr", x, (5000, 150))


def start(store: str, out: Path, method: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", COMMAND, store, str(out), method],
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("method", ["krylov", "gram", "subspace", "sketch", "tsqr"])
def test_ten_kills_at_random_moments_change_no_byte(tmp_path: Path, store: str, method: str) -> None:
    began = time.monotonic()
    with start(store, tmp_path / "whole.zarr", method) as child:
        assert child.stdout is not None
        child.stdout.readline()
        working = time.monotonic()
        assert child.wait() == 0
    started, took = working - began, time.monotonic() - working
    chance = random.Random(20)
    kills, out = 0, tmp_path
    while kills < 10:
        if kills % 3 == 0:  # three kills to an output, then another
            out = tmp_path / f"killed-{kills}.zarr"
        with start(store, out, method) as child:
            time.sleep(started * 0.8 + chance.random() * took)
            child.send_signal(signal.SIGKILL)
            kills += 1
            finished = child.wait() == 0
        if finished or kills % 3 == 0 or kills == 10:
            with start(store, out, method) as child:
                child.communicate()
                assert child.returncode == 0
            assert same_bytes(rf.open_result(out)) == same_bytes(rf.open_result(tmp_path / "whole.zarr"))


@pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")
def test_a_killed_process_is_gone_on_with(tmp_path: Path) -> None:
    x = decaying(10_000, 60, np.float32, power=0.4)
    store, out = to_zarr(tmp_path / "x.zarr", x, (1000, 60)), tmp_path / "r.zarr"
    asked = {"rank": 12, "solver": "krylov", "tol": 1e-9, "passes": 6, "threads": 2, "memory": "1GiB"}
    whole = same_bytes(rf.pca(store, **asked))
    with start(store, out, "krylov") as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("pass-02"):
                child.send_signal(signal.SIGKILL)
                break
        assert child.wait() == -signal.SIGKILL
    assert not out.exists()
    again = rf.pca(store, out=out, **asked)
    assert same_bytes(again) == whole and len(again.run["attempts"]) == 2


@pytest.mark.process
def test_a_second_driver_on_the_same_output_refuses(tmp_path: Path, store: str) -> None:
    out = tmp_path / "r.zarr"
    with start(store, out, "krylov") as child:
        assert child.stdout is not None
        child.stdout.readline()
        os.kill(child.pid, signal.SIGSTOP)  # holds the lock for as long as the question takes
        with pytest.raises(rf.RankfoldError, match=rf"another run is writing .*process {child.pid} on"):
            rf.pca(store, rank=12, solver="krylov", tol=1e-9, passes=6, out=out)
        os.kill(child.pid, signal.SIGCONT)
        child.communicate()
        assert child.returncode == 0
    assert rf.pca(store, rank=12, solver="krylov", tol=1e-9, passes=6, out=out).attrs["passes"] <= 6


def test_an_interrupt_leaves_checkpoints_and_no_output(tmp_path: Path, store: str) -> None:
    def interrupt(name: str, done: int, total: int) -> None:
        if name == "pass-02":
            raise KeyboardInterrupt

    out = tmp_path / "r.zarr"
    with pytest.raises(KeyboardInterrupt):
        rf.pca(store, rank=12, solver="krylov", out=out, threads=2, progress=interrupt)
    assert not out.exists()
    assert list((tmp_path / "r.zarr.run").glob("state-*/pass-01/total.part"))
    seen: list[str] = []
    again = rf.pca(
        store, rank=12, solver="krylov", out=out, progress=lambda name, done, total: seen.append(name)
    )
    assert same_bytes(again) == same_bytes(rf.pca(store, rank=12, solver="krylov"))
    left = sorted(path.name for path in (tmp_path / "r.zarr.run").iterdir())
    assert left == ["journal.jsonl", "lock", "run.json"]


def test_subspace_keeps_one_y_and_the_one_of_its_last_pass(tmp_path: Path, store: str) -> None:
    """A kill in the middle of a pass, and a task of an earlier pass that some worker still runs."""
    seen: set[str] = set()
    options = {"rank": 12, "solver": "subspace", "tol": 1e-9, "passes": 5, "threads": 2}
    out = tmp_path / "r.zarr"

    def interrupt(name: str, done: int, total: int) -> None:
        files = [path.name for path in (tmp_path / "r.zarr.run").glob("scratch-*/Y-*")]
        assert len(files) <= 1
        seen.update(files)
        if name == "pass-03" and done > total // 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rf.pca(store, out=out, progress=interrupt, **options)
    assert seen == {"Y-01.bin", "Y-02.bin", "Y-03.bin"}
    (scratch,) = (tmp_path / "r.zarr.run").glob("scratch-*")
    (scratch / "Y-02.bin").write_bytes(b"late" * 1000)
    again = rf.pca(store, out=out, **options)
    assert same_bytes(again) == same_bytes(rf.pca(store, **options))


def test_a_kill_while_the_result_is_published_leads_to_no_empty_one(tmp_path: Path, store: str) -> None:
    options: dict[str, Any] = {"rank": 5, "solver": "gram", "out": tmp_path / "r.zarr"}

    def kill(self: RunDirectory) -> None:
        raise SystemExit  # after the rename, before state and scratch are cleared

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunDirectory, "clear", kill)
        with pytest.raises(SystemExit):
            rf.pca(store, **options)
    whole = same_bytes(rf.open_result(tmp_path / "r.zarr"))
    shutil.rmtree(tmp_path / "r.zarr")
    assert same_bytes(rf.pca(store, **options)) == whole
