"""Layouts by worker jobs on a real SLURM: the same bytes as of threads, also when a job is cancelled."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivers import GONE_SECONDS, Driver, wait_for
from layout_driver import DESCENT
from reference import same_bytes
from slurm_cluster import SlurmCluster

import rankfold as rf

pytestmark = pytest.mark.slurm

PROFILE = 'partition: main\ninterface: lo\nwalltime: "0:10:00"\nmemory: 1GiB\n'


@pytest.fixture
def where(tmp_path: Path) -> dict[str, object]:
    path = tmp_path / "test.yaml"
    path.write_text(PROFILE)
    return {"script": "layout_driver.py", "cluster": str(path), "workers": 2}


def test_jobs_lay_out_the_same_bytes(
    tmp_path: Path, graph_store: Path, layout_bytes: str, slurm: SlurmCluster, where: dict[str, object]
) -> None:
    driver = Driver(graph_store, tmp_path / "r.zarr", **where)
    assert driver.end() == 0, driver.said
    result = rf.open_result(tmp_path / "r.zarr")
    assert same_bytes(result) == layout_bytes
    attempt = result.run["attempts"][-1]
    assert attempt["place"]["kind"] == "slurm" and attempt["place"]["workers"] == 2
    assert 0 < attempt["measured_bytes"] <= attempt["planned_bytes"]
    wait_for(lambda: not slurm.jobs(), GONE_SECONDS)


def test_a_job_cancelled_in_a_layout_is_replaced(
    tmp_path: Path, graph_store: Path, layout_bytes: str, slurm: SlurmCluster, where: dict[str, object]
) -> None:
    driver = Driver(graph_store, tmp_path / "r.zarr", **where)
    driver.until_within("layout", 400, 4000)
    slurm.cancel(slurm.jobs("RUNNING")[0])
    assert driver.end() == 0, driver.said
    assert same_bytes(rf.open_result(tmp_path / "r.zarr")) == layout_bytes
    wait_for(lambda: not slurm.jobs(), GONE_SECONDS)


def test_jobs_bring_a_tsne_down_to_the_same_bytes(
    tmp_path: Path, graph_store: Path, slurm: SlurmCluster, where: dict[str, object]
) -> None:
    lists = graph_store.with_name("lists.zarr")
    driver = Driver(lists, tmp_path / "r.zarr", **{**where, "method": "tsne"})
    driver.until_within("descent", 400, 4000)
    slurm.cancel(slurm.jobs("RUNNING")[0])
    assert driver.end() == 0, driver.said
    one = rf.tsne(lists, **DESCENT, threads=1)
    assert same_bytes(rf.open_result(tmp_path / "r.zarr")) == same_bytes(one)
    wait_for(lambda: not slurm.jobs(), GONE_SECONDS)
