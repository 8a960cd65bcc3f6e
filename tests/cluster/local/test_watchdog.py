"""A watchdog that nothing stops from looking, and that knows when there is no hope."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from drivers import wait_for

from rankfold.cluster.local import processes
from rankfold.cluster.local.watchdog import Watchdog
from rankfold.pipeline.errors import ClusterError, NoWorkersError


class Played:
    """A cluster that only notes what it is told."""

    scheduler_address = "tcp://here:1"
    new_spec = "new"

    def __init__(self, *names: str) -> None:
        self.workers = dict.fromkeys(names, object())
        self.worker_spec: dict[Any, Any] = dict.fromkeys(names, "old")
        self.scheduler_info: dict[str, Any] = {"workers": {}}
        self.loop = SimpleNamespace(add_callback=lambda what, *given: what(*given))

    def register(self, *names: str) -> None:
        self.scheduler_info["workers"] = {name: {"name": name} for name in names}

    def scale(self, n: int) -> None:
        self.workers = dict.fromkeys(self.worker_spec, object())


class SlowToClose(Played):
    """Its workers are there long after it was told to close them."""

    def scale(self, n: int) -> None:
        self.workers = {**self.workers, **dict.fromkeys(self.worker_spec, object())}


class Looks:
    """Counts how often the watchdog has looked; nobody has ended."""

    count = 0

    def __call__(self, workers: dict[Any, Any], here: set[Any]) -> dict[Any, str]:
        self.count += 1
        return {}


def test_who_has_ended_gets_a_successor_of_another_name() -> None:
    cluster = Played("a", "b")
    cluster.register("a", "b")
    gone = {"a": "killed"}
    with Watchdog(
        cluster,
        2,
        find_ended=lambda workers, here: {n: gone[n] for n in gone if n in workers},
        every_seconds=0.01,
    ):
        wait_for(lambda: "a" not in cluster.workers)
    assert set(cluster.worker_spec) == {"b", "a+0"}


def test_an_error_while_looking_does_not_end_the_watch() -> None:
    cluster, calls = Played("a"), []

    def ended(workers: dict[Any, Any], here: set[Any]) -> dict[Any, str]:
        calls.append(1)
        if len(calls) < 3:
            raise OSError("no more processes")
        return {"a": "lost"} if "a" in workers else {}

    with Watchdog(cluster, 1, find_ended=ended, every_seconds=0.01):
        wait_for(lambda: "a" not in cluster.workers)


def test_workers_that_never_begin_are_not_started_for_ever() -> None:
    cluster = Played("a")
    with Watchdog(
        cluster, 1, find_ended=lambda workers, here: dict.fromkeys(workers, "no python"), every_seconds=0.01
    ) as watchdog:

        def hopeless() -> bool:
            try:
                watchdog.check()
            except ClusterError:
                return True
            return False

        wait_for(hopeless)
        with pytest.raises(ClusterError, match=r"the last said: no python\. If .* interface:"):
            watchdog.check()


def test_refusals_do_not_end_a_run_that_has_workers() -> None:
    cluster = Played("a", "b", "c")
    cluster.register("a")
    asked: list[int] = []

    def ended(workers: dict[Any, Any], here: set[Any]) -> dict[Any, str]:
        asked.append(len(workers))
        return {name: "limit of jobs" for name in workers if name not in here}

    with Watchdog(cluster, 3, find_ended=ended, every_seconds=0.01) as watchdog:
        wait_for(lambda: len(asked) > 60)
        watchdog.check()
    started = int(max(name.rpartition("+")[2] for name in cluster.worker_spec if "+" in name))
    assert started < 30  # less and less often


def test_who_does_not_register_gets_a_successor() -> None:
    cluster = Played("a", "b")
    cluster.register("a")
    with Watchdog(cluster, 2, find_ended=lambda *_: {}, every_seconds=0.01, register_seconds=0.1):
        wait_for(lambda: "b" not in cluster.workers)
        cluster.register("a", "b+0")
        time.sleep(0.3)
    assert set(cluster.worker_spec) == {"a", "b+0"}


def test_who_takes_long_to_close_is_lost_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster, nobody_ended = SlowToClose("a", "b"), Looks()
    with Watchdog(cluster, 2, find_ended=nobody_ended, every_seconds=0.01, register_seconds=0.1) as watchdog:
        wait_for(lambda: "a" not in cluster.worker_spec)
        cluster.register(*cluster.worker_spec)
        before = nobody_ended.count
        wait_for(lambda: nobody_ended.count > before + 30)
        watchdog.check()
    assert "a" in cluster.workers
    assert sum("worker a is gone" in record.getMessage() for record in caplog.records) == 1


def test_jobs_wait_in_a_queue_as_long_as_it_takes() -> None:
    cluster, nobody_ended = Played("a"), Looks()
    with Watchdog(cluster, 1, find_ended=nobody_ended, every_seconds=0.01):
        wait_for(lambda: nobody_ended.count > 20)
    assert set(cluster.worker_spec) == {"a"}


def test_workers_that_do_not_come_in_time_are_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "START_SECONDS", 0.0)
    nobody = SimpleNamespace(count_registered=lambda: 0, check=lambda: None)
    with pytest.raises(
        NoWorkersError, match=r"0 of 2 worker processes.*The same command tries again"
    ) as error:
        processes._wait(nobody, 2)  # type: ignore[arg-type]
    assert error.value.exit_code == 75
