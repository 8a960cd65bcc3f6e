"""Reports of progress reach the driver, and cost its scheduler little."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster, Scheduler
from distributed.core import Status
from drivers import wait_for

from rankfold.cluster.local import reports
from rankfold.cluster.local.reports import REPORTS_PER_SECOND, TOPIC, Reports, take_reports
from rankfold.cluster.local.worker import RankfoldWorker
from rankfold.methods.warm import MethodWarmup
from rankfold.pipeline.engine.memory import bytes_above_baseline
from rankfold.pipeline.storage.journal import Journal


@pytest.mark.parametrize("workers", [1, 25, 512, 4096])
def test_reports_of_all_workers_are_so_many_a_second(workers: int) -> None:
    seconds = plugin(workers).report_seconds
    assert seconds >= 0.5
    assert workers / seconds <= max(REPORTS_PER_SECOND, 2)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_reports_end_at_a_scheduler_of_this_process(
    monkeypatch: pytest.MonkeyPatch, *, elsewhere: bool
) -> None:
    """Sent on, each would take two messages more in the same thread."""
    taken: list[tuple[str, dict[int, int]]] = []
    sent: list[dict[str, Any]] = []
    send_all = Scheduler.send_all

    def watch(self: Scheduler, to_clients: dict[str, Any], worker_msgs: dict[str, Any]) -> None:
        sent.extend(each for messages in to_clients.values() for each in messages if each["op"] == "event")
        send_all(self, to_clients, worker_msgs)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(Scheduler, "send_all", watch)
    monkeypatch.setattr(reports, "note_progress", lambda lease, rows: taken.append((lease, rows)))
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,  # type: ignore[no-untyped-call]
        Client(cluster.scheduler_address if elsewhere else cluster) as client,  # type: ignore[no-untyped-call]
    ):

        def tell() -> bool:
            client.run(lambda dask_worker: dask_worker.log_event("of another", {}))
            client.run(lambda dask_worker: dask_worker.log_event(TOPIC, report))
            return bool(taken)

        report = {"ticket": "lease", "reached": [(3, 17)]}
        with take_reports(client, "a run"):
            wait_for(tell)  # a scheduler elsewhere takes a moment to know who wants to be told
        assert "a run" not in cluster.scheduler.plugins
    assert taken[0] == ("lease", {3: 17})
    assert {each["topic"] for each in sent} == ({TOPIC} if elsewhere else set())


def test_a_run_is_told_of_reports_while_another_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[dict[int, int]] = []
    monkeypatch.setattr(reports, "note_progress", lambda _, rows: taken.append(rows))
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,  # type: ignore[no-untyped-call]
        Client(cluster) as client,  # type: ignore[no-untyped-call]
        take_reports(client, "one"),
    ):
        with take_reports(client, "another"):
            pass
        client.run(lambda dask_worker: dask_worker.log_event(TOPIC, {"ticket": "", "reached": [(0, 1)]}))
        wait_for(lambda: bool(taken))
    assert taken == [{0: 1}]


def test_a_task_that_ends_after_its_worker_sends_no_report(
    monkeypatch: pytest.MonkeyPatch, worker: Any
) -> None:
    """Dask tells plugins of tasks that end while their worker is closed."""
    made, calls = plugin(1), list[str]()
    for name in ("start", "stop", "send_along"):
        monkeypatch.setattr(Reports, name, lambda _, name=name: calls.append(name))
    made.setup(worker)
    made.transition("task", "executing", "memory")
    made.teardown(worker)
    made.transition("task", "executing", "memory")
    assert calls == ["start", "send_along", "stop"]


def test_a_baseline_is_that_of_a_run(monkeypatch: pytest.MonkeyPatch, worker: Any) -> None:
    """Workers may share the process of the driver, which takes more memory when they are gone."""
    monkeypatch.setattr(Reports, "start", lambda _: None)
    (made := plugin(1)).setup(worker)
    more = np.ones(4 * 2**20)
    assert bytes_above_baseline() > more.nbytes // 2
    worker.plugins["of another run"] = plugin(1)
    made.teardown(worker)
    assert bytes_above_baseline() > more.nbytes // 2
    worker.plugins.clear()
    made.teardown(worker)
    assert bytes_above_baseline() == 0


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a plugin sees of a worker, whose kernels are compiled."""
    monkeypatch.setattr(MethodWarmup, "warm", lambda _: None)
    state = types.SimpleNamespace(nthreads=1)
    return types.SimpleNamespace(name="w", status=Status.running, state=state, gather_dep=None, plugins={})


def plugin(workers: int) -> RankfoldWorker:
    """Of a run."""
    kernels = MethodWarmup(np.dtype(np.float64), {"kind": "svd"}, (1, 1))
    return RankfoldWorker("x", kernels, {}, Journal(), workers=workers)
