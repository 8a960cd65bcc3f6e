"""Rounds by one process or several: the same bytes, and checkpoints of whole rounds, whatever ends them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rankfold.pipeline.engine.rounds import Share, SharedRounds
from rankfold.pipeline.engine.team import Exchange
from rankfold.pipeline.errors import ClusterError
from rankfold.pipeline.storage.checkpoint import State, load_arrays, save_arrays

Array = npt.NDArray[Any]

ROWS, ROUNDS, WHOLE_EVERY = 20, 12, 3


@dataclass(frozen=True)
class Means:
    """Rows that move by what all are together, with velocities that others learn every third round."""

    folder: Path
    fails_in: int = -1
    """Round in which part 0 fails before it has exchanged anything; -1 for none."""

    name = "means"
    checkpoint = "state.part"
    counter = "made"
    rows = ROWS
    rounds = ROUNDS

    def made(self, counter: Array) -> int:
        return int(counter[0])

    def part(self, state: State, share: Share) -> MeansPart:
        return MeansPart(self, state["rows"], state["velocities"], int(state["made"][0]), share)

    def work_before(self) -> Array:
        return np.arange(ROWS + 1)

    def message_bytes(self, rows: int) -> int:
        return 8 * rows

    def require_files(self) -> None:
        if not self.folder.is_dir():
            raise ClusterError(f"a worker does not see {self.folder}")


@dataclass
class MeansPart:
    means: Means
    values: Array
    velocities: Array
    made: int
    share: Share
    is_whole: bool = True

    def arrays(self) -> State:
        return {"rows": self.values, "velocities": self.velocities, "made": np.array([self.made])}

    def run(self, on_round: Callable[[], None]) -> None:
        own, bounds = self.share.own, self.share.bounds
        while self.made < ROUNDS:
            self.is_whole = False
            self.velocities[own] += np.sin(self.values[own] * (self.made + 1) + self.values.sum())
            if self.made == self.means.fails_in and self.share.part == 0:
                raise ZeroDivisionError
            after = np.empty_like(self.values)
            after[own] = self.values[own] + self.velocities[own]
            self.share.swap(after, bounds)
            self.values, self.made = after, self.made + 1
            if self.share.is_all or self.made % WHOLE_EVERY == 0 or self.made == ROUNDS:
                self.share.swap(self.velocities, bounds)
                self.is_whole = True
            on_round()


def begin(folder: Path) -> Path:
    path = folder / "state.part"
    save_arrays(path, {"rows": np.arange(float(ROWS)), "velocities": np.zeros(ROWS), "made": np.array([0])})
    return path


def run(rounds: Means, path: Path, bounds: tuple[int, ...], stop_after: int = ROUNDS) -> list[int]:
    """Make the rounds of each share in a thread; returns the rounds that part 0 saved.

    After round ``stop_after``, all are asked to stop.
    """
    parts, saved = len(bounds) - 1, list[int]()
    folder = path.parent / f"exchange-{len(list(path.parent.iterdir()))}"
    exchanges = Exchange.create(folder, [8 * ROWS] * parts)
    reached = threading.Event()

    def save(where: Path, arrays: State) -> None:
        assert where == path
        saved.append(int(arrays["made"][0]))
        save_arrays(where, arrays)

    def do_part(exchange: Exchange) -> None:
        numbers, looks = itertools.count(1), itertools.count(int(load_arrays(path)["made"][0]) + 1)

        def look() -> None:
            if next(looks) == stop_after:
                raise InterruptedError

        def swap(array: Array, ends: Any) -> None:
            def watch() -> None:
                if reached.is_set():
                    raise InterruptedError

            exchange.swap(next(numbers), array, ends, watch)

        attempt = SimpleNamespace(reach=lambda *_: None)
        member: Any = SimpleNamespace(
            part=exchange.part, threads=1, swap=swap, look=look, save=save, attempt=attempt
        )
        try:
            SharedRounds(rounds, path, bounds, 0.0).do_part(member)
        except (InterruptedError, ZeroDivisionError):
            reached.set()

    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(do_part, exchanges))
    return saved


def test_any_number_of_processes_goes_on_from_any_checkpoint(tmp_path: Path) -> None:
    whole = begin(tmp_path)
    assert run(Means(tmp_path), whole, (0, ROWS))[-1] == ROUNDS
    (tmp_path / "shared").mkdir()
    shared = begin(tmp_path / "shared")
    run(Means(tmp_path), shared, (0, 7, ROWS), stop_after=8)
    assert load_arrays(shared)["made"][0] == 6, "the last whole round before it"
    run(Means(tmp_path), shared, (0, 3, 3, ROWS), stop_after=10)
    assert load_arrays(shared)["made"][0] == 9
    run(Means(tmp_path), shared, (0, ROWS))
    expected, found = load_arrays(whole), load_arrays(shared)
    assert all(expected[name].tobytes() == found[name].tobytes() for name in expected)


@pytest.mark.parametrize("fails_in", range(ROUNDS))
@pytest.mark.parametrize("bounds", [(0, ROWS), (0, 7, ROWS)])
def test_a_failed_round_is_in_no_checkpoint(tmp_path: Path, bounds: tuple[int, ...], fails_in: int) -> None:
    path = begin(tmp_path)
    run(Means(tmp_path, fails_in), path, bounds)
    found = load_arrays(path)
    every = 1 if len(bounds) == 2 else WHOLE_EVERY
    assert found["made"][0] == fails_in // every * every
    run(Means(tmp_path), path, bounds)
    (tmp_path / "again").mkdir()
    again = begin(tmp_path / "again")
    run(Means(tmp_path), again, (0, ROWS))
    expected, found = load_arrays(again), load_arrays(path)
    assert all(expected[name].tobytes() == found[name].tobytes() for name in expected)


def test_a_process_that_does_not_see_the_files_says_so(tmp_path: Path) -> None:
    member: Any = SimpleNamespace()
    with pytest.raises(ClusterError, match="does not see"):
        SharedRounds(Means(tmp_path / "none"), begin(tmp_path), (0, ROWS), 0.0).do_part(member)
