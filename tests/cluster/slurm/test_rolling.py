"""Workers that are replaced before their jobs end: in time, one at a time, and nothing done twice."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from drivers import GONE_SECONDS, Driver, folded_again, wait_for
from reference import same_bytes
from slurm_cluster import SlurmCluster

import rankfold as rf
from rankfold.cluster.slurm.jobs import Rolling
from rankfold.cluster.slurm.profile import Profile
from rankfold.cluster.slurm.queue import Jobs, slurm_states, time_left


class PlayedClient:
    """Notes what it is asked for; segments end when it says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.busy: set[str] = set()

    def retire_workers(self, workers: list[str], *, close_workers: bool, remove: bool) -> None:
        self.asked.append(("close" if close_workers else "drain", *workers))

    def run(self, what: object, *, workers: list[str], on_error: str) -> dict[str, bool]:
        return {worker: worker not in self.busy for worker in workers}


class Played:
    """Three workers and the time they have left."""

    def __init__(self, **left: float) -> None:
        self.left, self.client = left, PlayedClient()
        self.successors: list[str] = []
        self.gone: list[str] = []
        self.cluster = SimpleNamespace(scheduler_info={"workers": {}})
        for name in left:
            self.come(name, left[name])
        watchdog = SimpleNamespace(add_successor=self.successors.append, let_go=self.leave)
        self.rolling = Rolling(
            self.cluster,
            self.client,
            watchdog,
            remaining_seconds=self.left.__getitem__,
            margin_seconds=60,  # type: ignore[arg-type]
            every_seconds=0.01,
        )
        self.rolling._earlier_workers |= self.left.keys()

    def come(self, name: str, left: float = 3600) -> None:
        self.left[name] = left
        self.cluster.scheduler_info["workers"][f"tcp://{name}"] = {"name": name}

    def leave(self, name: str) -> None:
        self.gone.append(name)
        del self.cluster.scheduler_info["workers"][f"tcp://{name}"]

    def look(self) -> None:
        self.rolling._look()


def test_a_worker_goes_when_its_successor_has_come() -> None:
    played = Played(a=50, b=1000)
    played.look()
    played.look()
    assert played.successors == ["a"] and not played.client.asked
    played.come("c")
    played.look()
    assert played.client.asked == [("drain", "tcp://a"), ("close", "tcp://a")]
    assert played.gone == ["a"]
    played.look()
    assert played.successors == ["a"]


def test_of_several_that_are_due_one_goes_for_each_that_comes() -> None:
    played = Played(a=55, b=50, c=58)
    played.look()
    assert sorted(played.successors) == ["a", "b", "c"]
    played.come("d")
    played.look()
    played.look()
    assert played.gone == ["b"]
    played.come("e")
    played.come("f")
    played.look()
    assert played.gone == ["b", "a"]
    played.look()
    assert played.gone == ["b", "a", "c"]


def test_all_whose_end_is_near_hand_over_at_once_though_nobody_has_come() -> None:
    played = Played(a=20, b=25, c=1000)
    played.look()
    assert played.client.asked[0] == ("drain", "tcp://a", "tcp://b")
    assert played.gone == ["a", "b"]


def test_no_worker_is_closed_before_its_segments_have_ended() -> None:
    played = Played(a=50, b=1000)
    played.client.busy = {"tcp://a"}
    played.look()
    with played.rolling:
        played.come("c")
        wait_for(lambda: ("drain", "tcp://a") in played.client.asked)
        assert not played.gone
        played.client.busy.clear()
        wait_for(lambda: played.gone == ["a"])


def test_nobody_waits_for_the_segments_of_another() -> None:
    """Whoever becomes urgent meanwhile is drained, and whoever is empty is closed; but no other goes."""
    played = Played(a=50, b=55, c=59, d=1000)
    played.look()
    played.client.busy = {"tcp://a"}
    played.come("e")
    played.come("f")
    played.look()
    assert played.client.asked == [("drain", "tcp://a")]
    played.look()
    played.left["b"] = 20
    played.look()
    assert played.client.asked == [("drain", "tcp://a"), ("drain", "tcp://b"), ("close", "tcp://b")]
    assert played.gone == ["b"]
    played.client.busy.clear()
    played.look()
    assert played.gone == ["b", "a"]
    played.come("g")
    played.look()
    assert played.gone == ["b", "a", "c"] and sorted(played.successors) == ["a", "b", "c"]


def test_a_worker_whose_time_is_up_is_closed_with_its_segments() -> None:
    played = Played(a=20, b=1000)
    played.client.busy = {"tcp://a"}
    played.look()
    played.left["a"] = 0
    played.look()
    assert played.client.asked == [("drain", "tcp://a"), ("close", "tcp://a")]
    assert played.gone == ["a"]


def test_a_worker_that_is_lost_meanwhile_is_not_waited_for() -> None:
    played = Played(a=50, b=1000)
    played.look()
    played.leave("a")
    played.come("c")
    played.look()
    assert not played.client.asked


def test_the_margin_is_a_tenth_of_the_walltime_unless_it_is_given() -> None:
    assert Profile(walltime="2:00:00").drain_seconds == 720
    assert Profile(walltime="0:01:00").drain_seconds == 20
    assert Profile(walltime="0:01:00", drain="0:10").drain_seconds == 10
    with pytest.raises(ValueError, match="a time before the end of a walltime, here of 1:00"):
        Profile(walltime="1:00", drain="0:05:00")


def test_jobs_have_the_time_left_that_slurm_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = SimpleNamespace(returncode=0, stdout="1 RUNNING 0:45\n2 PENDING 1:00:00\n3 RUNNING UNLIMITED\n")
    monkeypatch.setattr("rankfold.cluster.slurm.queue.ask", lambda *command: answer)
    monkeypatch.setattr("rankfold.cluster.slurm.queue.time", SimpleNamespace(monotonic=lambda: 1000.0))
    jobs = Jobs(tmp_path, "1:00:00", slurm_states)
    held: dict[Any, Any] = {n: SimpleNamespace(job_id=n, refusal="") for n in ("1", "2", "3", "4")}
    assert jobs(held, {"1", "3", "4"}) == {}
    assert jobs.seconds_left("1") == 45
    assert jobs.seconds_left("2") == jobs.seconds_left("3") == float("inf")
    assert jobs.seconds_left("4") == 3600  # by its age
    assert time_left("1-00:00:00") == 86400


@contextlib.contextmanager
def driver_on_jobs(folder: Path, store: Path, seconds: float, times: str, **where: str) -> Iterator[Driver]:
    """A driver whose two workers are jobs with a time limit; it came to its end, and left no job."""
    profile = folder / "times.yaml"
    profile.write_text(f"partition: main\ninterface: lo\nmemory: 1GiB\n{times}\n")
    driver = Driver(store, folder / "r.zarr", seconds, cluster=str(profile), workers=2, **where)
    try:
        yield driver
        assert driver.end() == 0, driver.said
    finally:
        driver.process.kill()


@pytest.mark.slow
@pytest.mark.slurm
def test_three_minutes_of_work_on_jobs_of_one_minute(
    tmp_path: Path, demo_store: Path, demo_bytes: str, slurm: SlurmCluster
) -> None:
    times = 'walltime: "0:01:00"\ndrain: "0:25"'
    with driver_on_jobs(tmp_path, demo_store, 2.6, times, script="counting_driver.py") as driver:
        pass
    assert same_bytes(rf.open_result(tmp_path / "r.zarr")) == demo_bytes
    assert driver.said.count("has handed over and is closed") >= 4
    assert folded_again(tmp_path / "r.zarr.reads") <= 0.1
    wait_for(lambda: not slurm.jobs(), GONE_SECONDS)


@pytest.mark.slow
@pytest.mark.slurm
def test_neighbors_are_handed_over(
    tmp_path: Path, rows_store: Path, neighbor_bytes: str, slurm: SlurmCluster
) -> None:
    """Meetings end between two blocks, and go on elsewhere from the lists that they leave."""
    times = 'walltime: "1:00:00"\ndrain: "0:30:00"'
    with driver_on_jobs(tmp_path, rows_store, 3.0, times, script="neighbor_driver.py") as driver:
        limited = set[str]()
        for handed_over in range(2):
            reached = driver.rows("pairs")
            driver.until_within("pairs", reached, 6000)
            # The end of the oldest comes near, but not so near that nobody could wait for a successor.
            oldest = min({*slurm.jobs("RUNNING")} - limited, key=int)
            slurm.limit(oldest, minutes=20)
            limited.add(oldest)
            wait_for(
                lambda count=handed_over: driver.said.count("has handed over and is closed") > count,
                otherwise=lambda: driver.said,
            )
        (tmp_path / "r.zarr.hurry").touch()
    assert same_bytes(rf.open_result(tmp_path / "r.zarr")) == neighbor_bytes
    done = [int(line.split()[1]) for line in driver.said.splitlines() if line.startswith("pairs ")]
    assert done == sorted(done) and done[-1] == 6000
    wait_for(lambda: not slurm.jobs(), GONE_SECONDS)
