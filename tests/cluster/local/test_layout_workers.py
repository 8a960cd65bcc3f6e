"""Layouts by worker processes: the same bytes as of threads, also when some are killed, or the driver is."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import psutil
import pytest
from drivers import GONE_SECONDS, Driver, workers_of
from layout_driver import EPOCHS
from reference import same_bytes

import rankfold as rf

ROWS = 4000
WHERE = {"script": "layout_driver.py", "workers": 2, "threads": 1}


@pytest.mark.process
@pytest.mark.parametrize(("workers", "threads"), [(1, 2), (2, 1), (3, 2), (4, 1)])
def test_workers_lay_out_the_same_bytes_in_a_share_of_the_memory(
    tmp_path: Path, graph_store: Path, layout_bytes: str, workers: int, threads: int
) -> None:
    out = tmp_path / "r.zarr"
    result = rf.umap(graph_store, n_epochs=EPOCHS, out=out, workers=workers, threads=threads, memory="256MiB")
    assert same_bytes(result) == layout_bytes
    attempt = result.run["attempts"][-1]
    assert attempt["place"]["kind"] == "processes" and attempt["place"]["workers"] == workers
    assert 0 < attempt["measured_bytes"] <= attempt["planned_bytes"]
    assert not list(tmp_path.glob("r.zarr.run/scratch-*"))


@pytest.mark.process
def test_lists_are_laid_out_by_workers_of_a_client(tmp_path: Path, graph_store: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask's scheduler is not installed")
    lists = graph_store.with_name("lists.zarr")
    one = rf.umap(lists, n_epochs=20, out=tmp_path / "one.zarr", threads=1)
    with (
        distributed.LocalCluster(2, threads_per_worker=2, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        two = rf.umap(lists, n_epochs=20, out=tmp_path / "two.zarr", client=client)
        # A result that is not kept comes from them as well.
        three = rf.umap(graph_store, n_epochs=20, client=client)
    assert same_bytes(one) == same_bytes(two)
    assert three.embedding.tobytes() == one.embedding[...].tobytes()


@pytest.mark.process
def test_a_worker_killed_in_a_layout_is_replaced(
    tmp_path: Path, graph_store: Path, layout_bytes: str
) -> None:
    driver = Driver(graph_store, tmp_path / "r.zarr", **WHERE)
    driver.until_within("layout", ROWS // 10, ROWS)
    workers_of(driver.process.pid)[0].kill()
    assert driver.end() == 0, driver.said
    assert "is gone (killed by SIGKILL)" in driver.said
    assert same_bytes(rf.open_result(tmp_path / "r.zarr")) == layout_bytes


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_layout_goes_on_after_its_driver_in_other_processes(
    tmp_path: Path, graph_store: Path, layout_bytes: str, number: signal.Signals
) -> None:
    driver = Driver(graph_store, tmp_path / "r.zarr", **WHERE)
    driver.until_within("layout", ROWS // 4, ROWS)
    workers = workers_of(driver.process.pid)
    os.kill(driver.process.pid, number)
    assert driver.end() != 0
    # While workers of the first may still run; by three of them, and then by one process without any.
    again = Driver(graph_store, tmp_path / "r.zarr", **{**WHERE, "workers": 3})
    again.until_within("layout", ROWS // 3, ROWS)
    first = next(line for line in again.said.splitlines() if line.startswith("layout "))
    assert int(first.split()[1]) == 0 or int(first.split()[1]) > ROWS // 10, "it began at the beginning"
    os.kill(again.process.pid, signal.SIGTERM)
    again.end()
    last = Driver(graph_store, tmp_path / "r.zarr", script="layout_driver.py", threads=2)
    assert last.end() == 0, last.said
    assert same_bytes(rf.open_result(tmp_path / "r.zarr")) == layout_bytes
    assert not psutil.wait_procs(workers, timeout=GONE_SECONDS)[1]


@pytest.mark.process
@pytest.mark.slow
def test_ten_kills_at_any_moment_change_no_byte(tmp_path: Path, graph_store: Path) -> None:
    """Of the driver or of a worker, at random; the same command goes on whenever the driver has gone."""
    draw, where = random.Random(7), {**WHERE, "n_epochs": 2500}
    driver = Driver(graph_store, tmp_path / "r.zarr", **where)
    for _ in range(10):
        time.sleep(draw.uniform(0.5, 7.0))
        assert driver.process.poll() is None, f"it ended before it was killed: {driver.said}"
        workers = workers_of(driver.process.pid)
        if workers and draw.random() < 0.6:
            draw.choice(workers).kill()
        else:
            driver.process.kill()
            driver.process.wait()
            driver = Driver(graph_store, tmp_path / "r.zarr", **{**where, "workers": draw.choice([2, 3])})
    assert driver.end() == 0, driver.said
    whole = rf.umap(graph_store, n_epochs=2500, threads=1)
    assert same_bytes(rf.open_result(tmp_path / "r.zarr")) == same_bytes(whole)
