"""A watchdog that nothing stops from looking, and that knows when there is no hope."""

from __future__ import annotations

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


def test_workers_that_do_not_come_in_time_are_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "START_SECONDS", 0.0)
    nobody = SimpleNamespace(count_registered=lambda: 0, check=lambda: None)
    with pytest.raises(
        NoWorkersError, match=r"0 of 2 worker processes.*The same command tries again"
    ) as error:
        processes._wait(nobody, 2)  # type: ignore[arg-type]
    assert error.value.exit_code == 75
