"""One process for each GPU of this machine; where there is none, the processes find a stand-in for CuPy."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from conftest import missing_device
from drivers import HERE
from gpu_source import GpuSource, readers
from reference import same_bytes
from stand_in import ON_PATH

import rankfold as rf
from rankfold.cluster.executor import choose_executor
from rankfold.cluster.local import processes
from rankfold.cluster.local.processes import visible_devices
from rankfold.cluster.local.threads import Threads


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs, of which each process sees one."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    monkeypatch.setattr(processes, "count_devices", lambda: 2)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), *sys.path[1:], ON_PATH]))


@pytest.mark.gpu
@pytest.mark.process
def test_each_device_has_a_process_and_bytes_are_those_of_one(
    tmp_path: Path, two_devices: None, demo_store: Path
) -> None:
    if not missing_device():
        pytest.skip("two devices are a matter of the machine")
    source = GpuSource(rf.open(demo_store), 0.05, str(tmp_path / "readers"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "count_devices", lambda: 1)
        one = rf.pca(source, 8, device="gpu", memory="512MiB")
        assert one.run["attempts"][-1]["place"]["kind"] == "threads"
    two = rf.pca(source, 8, device="gpu", memory="512MiB", out=tmp_path / "two.zarr")
    assert two.run["attempts"][-1]["place"] == {"kind": "processes", "workers": 2, "threads": 1}
    assert same_bytes(two) == same_bytes(one)
    places = {place.split()[-1] for place in readers(tmp_path / "readers").values()}
    assert places == {"4", "7"}


@pytest.mark.gpu
def test_no_more_workers_than_devices(tmp_path: Path, two_devices: None, demo_store: Path) -> None:
    with pytest.raises(rf.RankfoldError, match="3 workers take a GPU each, and CuPy finds 2 here: lower"):
        rf.pca(demo_store, 8, device="gpu", workers=3, memory="512MiB", out=tmp_path / "r.zarr")


def test_devices_are_those_that_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "count_devices", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_devices() == ("0", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c")
    assert visible_devices() == ("GPU-a", "GPU-b")
    monkeypatch.setattr(processes, "count_devices", lambda: 1)
    assert isinstance(choose_executor(device="gpu", threads=8), Threads)
    assert choose_executor(device="gpu", threads=8).budget.readers == 7
