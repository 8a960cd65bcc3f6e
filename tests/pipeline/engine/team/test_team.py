"""Teams: however many are there, and whoever comes and goes, the work comes to the same end."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from dask.delayed import Delayed
from dask.threaded import get

from rankfold.pipeline.engine import team as module
from rankfold.pipeline.engine.durability import FilePolicy
from rankfold.pipeline.engine.sweep import LEASE
from rankfold.pipeline.engine.team import Member, Team
from rankfold.pipeline.errors import ClusterError, DamagedStateError
from rankfold.pipeline.storage.checkpoint import load_arrays, load_if_whole, save_arrays, save_json
from rankfold.pipeline.storage.journal import Journal

STEPS, ROWS = 60, 24


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("LOOK", 0.01), ("GRACE", 0.05), ("REGROUP", 0.05)):
        monkeypatch.setattr(module, f"{name}_SECONDS", seconds)


@dataclasses.dataclass
class Place:
    """Threads that stand for processes, of which some come and others go."""

    addresses: Iterator[tuple[str, ...]]
    here: tuple[str, ...] = ()
    has_workers: ClassVar[bool] = True
    bound: list[Any] = dataclasses.field(default_factory=list)

    def members(self) -> tuple[str, ...]:
        self.here = next(self.addresses, self.here)
        return self.here

    def compute(
        self, root: Delayed, *, concurrency: int, watch: Callable[[], None], stop: Callable[[], bool]
    ) -> Any:
        layers = [each for each in root.__dask_graph__().layers.values() if each.annotations]
        found = [(each.annotations["workers"], key) for each in layers for key in each]
        self.bound.append([of(key) if callable(of) else of for of, key in found])
        with ThreadPoolExecutor(8) as pool, ThreadPoolExecutor(1) as runner:
            future = runner.submit(get, dict(root.__dask_graph__()), root.key, pool=pool)
            try:
                while not wait([future], timeout=0.005).done:
                    watch()
                return future.result()
            except BaseException:
                while not stop():
                    time.sleep(0.005)
                raise


@dataclasses.dataclass(frozen=True)
class Averages:
    """Rows that become what all of them were together, again and again."""

    state: Path
    ends: tuple[int, ...]
    pause: float = 0.0
    fails_at: int = -1

    def do_part(self, member: Member) -> None:
        state = load_arrays(self.state)
        rows, step = state["rows"], int(state["step"][0])
        own = slice(*self.ends[member.part : member.part + 2])
        try:
            while step < STEPS:
                time.sleep(self.pause)
                if step == self.fails_at and member.part == 1:
                    raise DamagedStateError(self.state, "was made up")
                after = np.empty_like(rows)
                after[own] = np.sin(rows[own] * (step + 1) + rows.sum())
                member.swap(after, self.ends)
                rows, step = after, step + 1
                member.look()
        finally:
            if member.part == 0:
                member.save(self.state, {"rows": rows, "step": np.array([step])})


def team(folder: Path, *, most: int, least: int = 1, **how: Any) -> Team:
    state = folder / "state.part"
    save_arrays(state, {"rows": np.arange(float(ROWS)), "step": np.array([0])})

    def work(count: int) -> tuple[Averages, Sequence[int]]:
        ends = tuple(ROWS * part // count for part in range(count + 1))
        return Averages(state, ends, **how), [8 * ROWS] * count

    def standing() -> int:
        saved = load_if_whole(state)
        return 0 if saved is None else int(saved["step"][0])

    return Team("test", folder, folder, most, least, 2, FilePolicy(), Journal(), work, standing)


def expected() -> np.ndarray[Any, Any]:
    rows = np.arange(float(ROWS))
    for step in range(STEPS):
        rows = np.sin(rows * (step + 1) + rows.sum())
    return rows


@pytest.mark.parametrize("count", [1, 2, 5])
def test_any_number_of_processes_comes_to_the_same_end(tmp_path: Path, count: int) -> None:
    place = Place(iter([tuple("abcdefgh"[:count])]))
    told: list[int] = []
    team(tmp_path, most=count).run(STEPS, place, told.append)
    np.testing.assert_array_equal(load_arrays(tmp_path / "state.part")["rows"], expected())
    assert place.bound == [[[address] for address in "abcdefgh"[:count]]]
    assert not list(tmp_path.glob("exchange-*"))


def test_whoever_comes_and_goes_changes_nothing(tmp_path: Path) -> None:
    """Three are wanted: two are there at first, then three, then one of them goes and another comes."""

    def addresses() -> Iterator[tuple[str, ...]]:
        yield from [(), ("a",), ("a",)]
        yield from [("a", "b")] * 25
        yield from [("a", "b", "c")] * 8
        yield from [("a", "c")] * 12
        yield ("a", "c", "d")

    place = Place(addresses())
    team(tmp_path, most=3, least=2, pause=0.01).run(STEPS, place, lambda _: None)
    np.testing.assert_array_equal(load_arrays(tmp_path / "state.part")["rows"], expected())
    assert len(place.bound) > 2 and {len(bound) for bound in place.bound} == {2, 3}
    assert ["b"] in place.bound[0] and ["b"] not in place.bound[-1]


def test_an_error_in_one_part_ends_all_of_them_with_it(tmp_path: Path) -> None:
    place = Place(iter([("a", "b", "c")]))
    with pytest.raises(DamagedStateError, match="was made up"):
        team(tmp_path, most=3, fails_at=20).run(STEPS, place, lambda _: None)
    assert int(load_arrays(tmp_path / "state.part")["step"][0]) == 20


def test_a_stop_leaves_a_checkpoint(tmp_path: Path) -> None:
    looks = 0

    def interrupt(_: int) -> None:
        nonlocal looks
        looks += 1
        if looks == 20:
            raise KeyboardInterrupt

    one = team(tmp_path, most=2, pause=0.01)
    with pytest.raises(KeyboardInterrupt):
        one.run(STEPS, Place(iter([("a", "b")])), interrupt)
    step = int(load_arrays(tmp_path / "state.part")["step"][0])
    assert 0 < step < STEPS
    one.run(STEPS, Place(iter([("c",)] * 100)), lambda _: None)
    np.testing.assert_array_equal(load_arrays(tmp_path / "state.part")["rows"], expected())


def test_a_team_whose_folder_another_attempt_has_taken_ends_and_writes_nothing(tmp_path: Path) -> None:
    """As tasks of a driver that is gone, while the next one has begun."""

    def take_over(_: int) -> None:
        save_json(tmp_path / LEASE, "another")

    one = team(tmp_path, most=2, pause=0.02)
    place = Place(iter([("a", "b")]))
    with pytest.raises(ClusterError, match="times in a row workers were lost before they came to a check"):
        one.run(STEPS, place, take_over)
    assert int(load_arrays(tmp_path / "state.part")["step"][0]) == 0
