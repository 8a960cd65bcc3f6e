"""Worker processes: the same bytes as threads, also when one is killed, or the driver is."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from drivers import GONE_SECONDS, HERE, PATIENCE_SECONDS, Driver, wait_for, workers_of
from reference import same_bytes

import rankfold as rf
from rankfold.cluster.local import processes
from rankfold.cluster.local.processes import WorkerProcess
from rankfold.pipeline.storage.run_directory import RunDirectory


@pytest.mark.process
@pytest.mark.parametrize("workers", [2, 4])
def test_processes_give_the_same_bytes_as_threads(
    tmp_path: Path, demo_store: Path, demo_bytes: str, workers: int
) -> None:
    result = rf.pca(demo_store, rank=8, memory="256MiB", workers=workers, out=tmp_path / "r.zarr")
    assert same_bytes(result) == demo_bytes
    attempt = result.run["attempts"][-1]
    assert attempt["place"]["kind"] == "processes" and attempt["place"]["workers"] == workers
    assert 0 < attempt["measured_bytes"] <= attempt["planned_bytes"]


@pytest.mark.process
def test_a_worker_killed_in_a_sweep_is_replaced(tmp_path: Path, demo_store: Path, demo_bytes: str) -> None:
    driver = Driver(demo_store, tmp_path / "r.zarr", 0.1, workers=2, threads=1)
    driver.until_within("gram", 0, 400_000)
    workers_of(driver.process.pid)[0].kill()
    assert driver.end() == 0, driver.said
    assert "is gone (killed by SIGKILL)" in driver.said
    assert same_bytes(rf.open_result(tmp_path / "r.zarr")) == demo_bytes


@pytest.mark.process
def test_a_worker_stopped_before_it_registers_is_replaced(
    tmp_path: Path, demo_store: Path, demo_bytes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "REGISTER_SECONDS", 20.0)
    stopped: list[psutil.Process] = []
    start = WorkerProcess.start

    async def start_and_stop_the_first(worker: WorkerProcess) -> None:
        await start(worker)
        if not stopped:
            stopped.append(psutil.Process(worker._process.pid))  # type: ignore[union-attr]
            stopped[0].suspend()

    monkeypatch.setattr(WorkerProcess, "start", start_and_stop_the_first)
    result = rf.pca(demo_store, rank=8, memory="256MiB", workers=2, threads=1, out=tmp_path / "r.zarr")
    assert same_bytes(result) == demo_bytes
    assert not stopped[0].is_running()


@pytest.mark.process
def test_workers_end_with_a_driver_that_is_killed(tmp_path: Path, demo_store: Path, demo_bytes: str) -> None:
    driver = Driver(demo_store, tmp_path / "r.zarr", 0.1, workers=2, threads=1)
    driver.until_within("gram", 0, 400_000)
    workers = workers_of(driver.process.pid)
    assert len(workers) == 2
    driver.process.kill()
    driver.process.wait()
    # Also while they still run: a new driver may start at once.
    again = Driver(demo_store, tmp_path / "r.zarr", 0.0, workers=2, threads=1)
    assert again.end() == 0, again.said
    assert same_bytes(rf.open_result(tmp_path / "r.zarr")) == demo_bytes
    assert not psutil.wait_procs(workers, timeout=GONE_SECONDS)[1]


@pytest.mark.process
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_stopped_driver_leaves_checkpoints_and_no_worker(
    tmp_path: Path, demo_store: Path, demo_bytes: str, number: signal.Signals, code: int
) -> None:
    out = tmp_path / "r.zarr"
    where = ["--workers", "2", "--threads", "1", "--memory", "256MiB", "--rank", "8"]
    held = [sys.executable, str(HERE / "held_command.py"), "gram"]
    command = [*held, "pca", str(demo_store), "--out", str(out), *where]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(workers_of(child.pid)) == 2)
    workers = workers_of(child.pid)
    wait_for(lambda: any((tmp_path / "r.zarr.run").glob("state-*/gram")))
    os.kill(child.pid, number)
    _, said = child.communicate(timeout=PATIENCE_SECONDS)
    assert child.returncode == code, said
    assert "the same command goes on from there" in said
    assert not psutil.wait_procs(workers, timeout=GONE_SECONDS)[1]
    assert same_bytes(rf.pca(demo_store, rank=8, memory="256MiB", out=out)) == demo_bytes


NEIGHBORS = {"script": "neighbor_driver.py", "workers": 2, "threads": 1}


@pytest.mark.process
def test_a_worker_killed_among_neighbors_is_replaced(
    tmp_path: Path, rows_store: Path, neighbor_bytes: str
) -> None:
    driver = Driver(rows_store, tmp_path / "r.zarr", 0.02, **NEIGHBORS)
    driver.until_within("pairs", 0, 5000)
    workers_of(driver.process.pid)[0].kill()
    assert driver.end() == 0, driver.said
    assert "is gone (killed by SIGKILL)" in driver.said
    assert same_bytes(rf.open_result(tmp_path / "r.zarr")) == neighbor_bytes
    done = [int(line.split()[1]) for line in driver.said.splitlines() if line.startswith("pairs ")]
    assert done == sorted(done) and done[-1] == 6000


@pytest.mark.process
def test_neighbors_of_a_killed_driver_are_gone_on_with(
    tmp_path: Path, rows_store: Path, neighbor_bytes: str
) -> None:
    """By other workers, while those of the first may still run."""
    driver = Driver(rows_store, tmp_path / "r.zarr", 0.02, **NEIGHBORS)
    driver.until_within("pairs", 1000, 5000)
    driver.process.kill()
    driver.process.wait()
    again = Driver(rows_store, tmp_path / "r.zarr", 0.0, **{**NEIGHBORS, "workers": 3})
    assert again.end() == 0, again.said
    assert same_bytes(rf.open_result(tmp_path / "r.zarr")) == neighbor_bytes


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_neighbors_that_are_stopped_are_gone_on_with(
    tmp_path: Path, rows_store: Path, neighbor_bytes: str, number: signal.Signals
) -> None:
    driver = Driver(rows_store, tmp_path / "r.zarr", 0.02, **NEIGHBORS)
    driver.until_within("pairs", 1000, 5000)
    workers = workers_of(driver.process.pid)
    os.kill(driver.process.pid, number)
    assert driver.end() != 0
    assert not psutil.wait_procs(workers, timeout=GONE_SECONDS)[1]
    assert list((tmp_path / "r.zarr.run").glob("scratch-*/lists/block-*.part"))
    again = Driver(rows_store, tmp_path / "r.zarr", 0.0, script="neighbor_driver.py", threads=2)
    assert again.end() == 0, again.said
    assert again.rows("pairs") == 6000
    assert same_bytes(rf.open_result(tmp_path / "r.zarr")) == neighbor_bytes


@pytest.mark.process
def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np, rankfold as rf\n"
        "x = np.random.default_rng(0).standard_normal((500, 20))\n"
        "np.save('x.npy', x)\n"
        "print(rf.svd('x.npy', 3, workers=2, threads=1, memory='256MiB').s.shape)\n"
    )
    ran = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True)
    assert ran.stdout.strip() == "(3,)", ran.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers must be at least 1, not 0"),
        ({"workers": 1.5}, "workers must be an integer"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"cluster": "slurmm"}, "there is no profile 'slurmm'. Did you mean slurm"),
        ({"cluster": 3}, "cluster= takes"),
        ({"cluster": "slurm"}, "say how much memory a worker may use"),
        ({"client": object(), "workers": 2}, "client= brings its own"),
    ],
)
def test_a_place_that_cannot_be_is_refused(options: dict[str, object], message: str) -> None:
    import numpy as np

    with pytest.raises(rf.RankfoldError, match=message):
        rf.svd(np.eye(9), 2, **options)  # type: ignore[arg-type]


def test_no_more_workers_are_started_than_there_is_work_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import numpy as np

    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((500, 20)))
    with caplog.at_level("INFO", logger="rankfold"):
        result = rf.svd(tmp_path / "x.npy", 3, workers=9, threads=1, memory="256MiB", out=tmp_path / "r.zarr")
    assert result.run["attempts"][-1]["place"]["workers"] == 1
    assert "1 of 9 workers are started: the matrix has no work for more" in caplog.text


@pytest.mark.process
def test_an_array_in_memory_is_not_held_again_by_workers(tmp_path: Path) -> None:
    import numpy as np

    x = np.random.default_rng(0).standard_normal((400_000, 40))  # 128 MB
    result = rf.svd(x, 3, workers=2, threads=1, memory="256MiB", out=tmp_path / "r.zarr")
    attempt = result.run["attempts"][-1]
    assert attempt["measured_bytes"] <= attempt["planned_bytes"] < x.nbytes
    assert same_bytes(result) == same_bytes(rf.svd(x, 3, memory="256MiB"))


def test_workers_that_see_other_files_are_refused(tmp_path: Path) -> None:
    from rankfold.cluster.local.worker import unseen_folder
    from rankfold.pipeline.storage.checkpoint import save_json

    marks = {}
    for name in ("state", "scratch"):
        (tmp_path / name).mkdir()
        save_json(tmp_path / name / "mark.json", "one")
        marks[str(tmp_path / name)] = "one"
    assert unseen_folder(marks) is None
    save_json(tmp_path / "scratch" / "mark.json", "other")
    assert unseen_folder(marks) == str(tmp_path / "scratch")
    (tmp_path / "state" / "mark.json").unlink()
    assert unseen_folder(marks) == str(tmp_path / "state")


def test_workers_of_others_that_would_be_paused_are_refused() -> None:
    import numpy as np
    from distributed import Client, LocalCluster

    options = {"n_workers": 1, "processes": False, "memory_limit": "1GiB", "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        with pytest.raises(rf.RankfoldError, match=r"Dask pauses them near .* Give at most 512MiB"):
            rf.svd(np.eye(99), 2, client=client, memory="1GiB")
        assert rf.plan("svd", np.eye(99), 2, client=client).budget_bytes == 2**29


@pytest.mark.process
def test_nothing_stays_where_a_command_was_given(tmp_path: Path, demo_store: Path) -> None:
    """Workers of Dask keep their own folder where they start, unless they are given one."""
    here = tmp_path / "here"
    here.mkdir()
    command = [sys.executable, "-m", "rankfold", "svd", str(demo_store), "--rank", "3", "--memory", "256MiB"]
    command += ["--workers", "2", "--threads", "1", "--out", str(tmp_path / "r.zarr")]
    subprocess.run(command, cwd=here, check=True, capture_output=True)
    assert not list(here.iterdir())
    assert {path.name for path in tmp_path.iterdir()} == {"here", "r.zarr", "r.zarr.run"}


@pytest.mark.parametrize("before", [(700, 10, 10), (0, 10, 10), (90_000, 5, 5)])
def test_python_seldom_looks_for_cycles_beside_a_scheduler(
    tmp_path: Path, before: tuple[int, int, int]
) -> None:
    """Some 80 objects are made and kept for each task; what a user set for a reason stays."""
    of_session, run = gc.get_threshold(), RunDirectory.beside(tmp_path / "r", None, "0" * 32)
    run.state.mkdir(parents=True)
    gc.set_threshold(*before)
    try:
        with pytest.raises(InterruptedError), processes.scheduler_settings(run):
            during = gc.get_threshold()
            raise InterruptedError
        assert gc.get_threshold() == before
        assert during == ((50_000, 10, 10) if before[0] == 700 else before)
    finally:
        gc.set_threshold(*of_session)
