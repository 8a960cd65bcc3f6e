"""Workers that are lost before they have begun, and workers whose driver is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from dask.delayed import delayed
from deadly_kernels import DeadlyKernels
from drivers import GONE_SECONDS, HERE, wait_for, workers_of

from rankfold.cluster.local.client import _make_ready
from rankfold.cluster.local.processes import Processes
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import ClusterError
from rankfold.pipeline.storage.run_directory import RunDirectory

HOW: dict[str, Any] = {"concurrency": 1, "watch": lambda: None, "stop": lambda: True}


def open_run(folder: Path) -> RunDirectory:
    """A run that a driver has claimed."""
    run = RunDirectory.beside(folder / "r.zarr", None, "request")
    (run.state / "journal").mkdir(parents=True)
    run.scratch.mkdir()
    for part in (run.state, run.scratch):
        (part / "mark.json").write_text('"mark"')
    return run


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers find those of tests."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), *sys.path]))


@pytest.fixture
def is_remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, into which temporary files go where there is no other place for them."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def test_workers_killed_while_they_get_ready_are_replaced(
    tmp_path: Path, is_remote: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place, kernels = Processes(Budget(2**28, 1, 2)), DeadlyKernels(tmp_path, 2)
    with place.open_scheduler(open_run(tmp_path), kernels) as scheduler:  # type: ignore[arg-type]
        assert scheduler.compute(delayed(sum)([1, 2]), **HOW) == 3
        wait_for(lambda: caplog.text.count("is gone (killed by SIGKILL)") == 2, otherwise=lambda: caplog.text)
        assert not [*is_remote.iterdir()]
    assert len([*tmp_path.glob("death-*")]) == 2
    assert not [*is_remote.iterdir(), *tmp_path.glob("r.zarr.run/state-*/dask-*")]


def test_workers_that_always_end_while_they_get_ready_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankfold.cluster.local.client.READY_ATTEMPTS", 1)
    place, kernels = Processes(Budget(2**28, 1, 1)), DeadlyKernels(tmp_path, 99)
    message = r"1 times in a row workers were lost while they got ready .* too little memory"
    with (
        pytest.raises(ClusterError, match=message),
        place.open_scheduler(open_run(tmp_path), kernels),  # type: ignore[arg-type]
    ):
        pass


def test_a_worker_that_is_cut_off_while_it_gets_ready_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, attempts = [0.0], []

    class CutOff:
        def register_plugin(self, plugin: object) -> None:
            attempts.append(plugin)
            if seconds[0] < 20:
                raise OSError("Stream is closed") from None

    monkeypatch.setattr("rankfold.cluster.local.client.LOSS_ERRORS", ("OSError",))
    monkeypatch.setattr("time.sleep", lambda pause: seconds.__setitem__(0, seconds[0] + pause))
    _make_ready(CutOff(), object(), lambda: None)
    assert len(attempts) > 1


DRIVER = """\
import sys
from pathlib import Path
from deadly_kernels import EndlessKernels
from test_ready import Budget, Processes, open_run
folder = Path(sys.argv[1])
with Processes(Budget(2**28, 1, 2)).open_scheduler(open_run(folder), EndlessKernels(folder)):
    pass
"""


@pytest.mark.parametrize("moment", ["starting", "compiling"])
def test_workers_end_soon_after_a_killed_driver(tmp_path: Path, moment: str) -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)])
    wait_for(lambda: len(workers_of(driver.pid)) == 2)
    if moment == "compiling":
        wait_for(lambda: len([*tmp_path.glob("begun-*")]) == 2)
    workers = workers_of(driver.pid)
    driver.kill()
    driver.wait()
    began = time.monotonic()
    assert not psutil.wait_procs(workers, timeout=GONE_SECONDS)[1]
    print(f"gone after {time.monotonic() - began:.1f} s")
    assert not [*tmp_path.glob("r.zarr.run/state-*/dask-*")]
