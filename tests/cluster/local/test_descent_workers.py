"""t-SNE by worker processes: the same bytes as of threads, also when one is killed, or the driver is."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from drivers import Driver, workers_of
from layout_driver import DESCENT
from reference import same_bytes

import rankfold as rf

ROWS = 4000
WHERE = {"script": "layout_driver.py", "method": "tsne", "workers": 2, "threads": 1}


@pytest.fixture(scope="module")
def descent_bytes(graph_store: Path) -> str:
    return same_bytes(rf.tsne(graph_store.with_name("lists.zarr"), **DESCENT, threads=1))


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("killed", ["worker", "driver"])
def test_who_is_killed_changes_no_byte(
    tmp_path: Path, graph_store: Path, descent_bytes: str, killed: str
) -> None:
    lists, out = graph_store.with_name("lists.zarr"), tmp_path / "r.zarr"
    driver = Driver(lists, out, **WHERE)
    driver.until_within("descent", ROWS // 4, ROWS)
    if killed == "worker":
        workers_of(driver.process.pid)[0].kill()
    else:
        os.kill(driver.process.pid, signal.SIGKILL)
        driver.end()
        driver = Driver(lists, out, **{**WHERE, "workers": 3})
    assert driver.end() == 0, driver.said
    assert same_bytes(rf.open_result(out)) == descent_bytes
    attempt = rf.open_result(out).run["attempts"][-1]
    assert 0 < attempt["measured_bytes"] <= attempt["planned_bytes"]
