"""One worker for each GPU, and work on none but those; the GPUs are files that SLURM takes for some."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from conftest import missing_device
from distributed import Scheduler, SpecCluster, Worker
from drivers import HERE, wait_for
from gpu_source import GpuSource, readers
from slurm_cluster import SlurmCluster
from stand_in import ON_PATH

import rankfold as rf
from rankfold.cluster.local.client import STEALING, Client
from rankfold.cluster.local.processes import SCHEDULER_SETTINGS
from rankfold.cluster.slurm.profile import Profile, read_profile
from rankfold.cluster.slurm.submission import job_script, submit

STAND_IN = [ON_PATH] if missing_device() else []

PROFILE = """\
partition: main
interface: lo
walltime: "0:05:00"
memory: 2GiB
cores: 1
gpus: 1
nodes: 2
workers_per_node: 2
"""

DRIVER = """\
import sys
import rankfold as rf
from gpu_source import GpuSource
store, folder = sys.argv[1:]
source = GpuSource(rf.open(store), 0.05, f"{folder}/readers")
rf.pca(source, rank=8, with_rows=False, memory="1GiB", out=f"{folder}/r.zarr", cluster="allocation")
"""

SCHEDULER = {"cls": Scheduler, "options": {"host": "127.0.0.1", "port": 0, "dashboard": False}}
HOW: dict[str, Any] = {"concurrency": 2, "watch": lambda: None, "stop": lambda: True}


def add_worker(cluster: SpecCluster, name: str, resources: dict[str, float]) -> None:
    """One more worker in this process, once it is there."""
    cluster.worker_spec[name] = {"cls": Worker, "options": {"nthreads": 1, "resources": resources}}
    cluster.sync(cluster._correct_state)
    cluster.wait_for_workers(len(cluster.worker_spec))


def test_a_worker_runs_one_segment_on_each_gpu() -> None:
    assert Profile(cores=8).threads_for(None, 8) == 8
    assert Profile(cores=8, gpus=1).threads_for(None, 8) == 1
    with pytest.raises(rf.RankfoldError, match=r"has gpus: 1 and runs one segment on each, not 4: leave out"):
        Profile(cores=8, gpus=1).threads_for(4, 8)


@pytest.mark.parametrize("some", [True, False])
def test_tasks_go_to_workers_with_a_gpu_or_nowhere(some: bool) -> None:
    from dask.delayed import delayed
    from distributed import Client as DaskClient
    from distributed import get_worker

    def where(number: int) -> set[str]:
        return {str(get_worker().name)}

    offers: list[dict[str, Any]] = [{}, {"GPU": 1.0} if some else {}]
    root = delayed(set.union)(*[delayed(where)(number) for number in range(8)])
    with SpecCluster(scheduler=SCHEDULER) as cluster, DaskClient(cluster) as dask:
        for name, resources in zip(("cores", "gpu"), offers, strict=True):
            add_worker(cluster, name, resources)
        client = Client(dask, lambda: None, {"GPU": 1})
        if some:
            assert client.compute(root, **HOW) == {"gpu"}
        else:
            with pytest.raises(rf.RankfoldError, match=r"wants 1 GPU and none of 2 workers offers that"):
                client.compute(root, **HOW)


def test_a_worker_that_comes_late_takes_its_share(tmp_path: Path) -> None:
    import threading

    import dask.config
    from dask.delayed import delayed
    from distributed import Client as DaskClient
    from distributed import get_worker

    def begun(name: str) -> int:
        return len([*tmp_path.glob(f"{name}-*")])

    def where(number: int) -> set[str]:
        """The first worker waits in its third task for the other: by then it is known how long tasks take."""
        name = str(get_worker().name)
        (tmp_path / f"{name}-{number}").touch()
        time.sleep(0.2)
        if name == "first" and begun("first") > 2:
            wait_for(lambda: begun("late") > 0)
        return {name}

    def come_late() -> None:
        wait_for(lambda: begun("first") > 2)
        add_worker(cluster, "late", {"GPU": 1.0})

    root = delayed(set.union)(*[delayed(where)(number) for number in range(20)])
    with (
        dask.config.set({**SCHEDULER_SETTINGS, **STEALING}),
        SpecCluster(scheduler=SCHEDULER) as cluster,
        DaskClient(cluster) as client,
    ):
        add_worker(cluster, "first", {"GPU": 1.0})
        late = threading.Thread(target=come_late)
        late.start()
        assert Client(client, lambda: None, {"GPU": 1}).compute(root, **HOW) == {"first", "late"}
        late.join()


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of GPU workers, which find the modules of the tests, and a CuPy that the driver need not have."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), *sys.path[1:], *STAND_IN]))
    path = tmp_path / "site.yaml"
    path.write_text(PROFILE)
    return path


@pytest.fixture(scope="module")
def long_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough grains of a GPU for two streams: 1.2 GB."""
    path, rows = tmp_path_factory.mktemp("long") / "x.zarr", 100_000
    array = zarr.create_array(path, shape=(16 * rows, 192), chunks=(rows, 192), dtype="f4", compressors=None)
    block = np.random.default_rng(0).standard_normal((rows, 192), dtype=np.float32)
    for start in range(0, array.shape[0], rows):
        array[start : start + rows] = block
    return path


@pytest.mark.slurm
def test_each_job_has_a_gpu_of_its_own(
    tmp_path: Path, long_store: Path, slurm: SlurmCluster, profile: Path
) -> None:
    source = GpuSource(rf.open(long_store), 0.05, str(tmp_path / "readers"))
    asked: dict[str, Any] = {
        "rank": 8,
        "with_rows": False,
        "memory": "1GiB",
        "cluster": profile,
        "workers": 3,
    }
    with pytest.raises(rf.RankfoldError, match=r"device='cpu', but the profile .* reserves GPUs"):
        rf.pca(source, out=tmp_path / "r.zarr", device="cpu", **asked)
    result = rf.pca(source, out=tmp_path / "r.zarr", **asked)
    assert result.attrs["device"] == "gpu"
    read = readers(tmp_path / "readers")
    assert len(set(read.values())) == len(read) >= 2, read
    wait_for(lambda: not slurm.jobs())


@pytest.mark.slurm
def test_each_task_of_a_step_has_a_gpu_of_its_own(
    tmp_path: Path, long_store: Path, slurm: SlurmCluster, profile: Path
) -> None:
    (tmp_path / "driver.py").write_text(DRIVER)
    command = [sys.executable, "driver.py", str(long_store), str(tmp_path)]
    job = submit(
        job_script(command, read_profile(profile), name="gpu", known_as=str(profile)),
        read_profile(profile),
        "rankfold-gpu",
    )
    wait_for(lambda: not slurm.jobs(), otherwise=job)
    log = tmp_path / f"rankfold-gpu-{job}.log"
    assert (tmp_path / "r.zarr").exists(), log.read_text()
    read = readers(tmp_path / "readers")
    assert len(set(read.values())) == len(read) >= 2, read
    assert {*read.values()} <= {"n1 0", "n1 1", "n2 0", "n2 1"}
