"""Rounds over a state in memory, made by this process, or by a team of processes that share the rows.

Each process holds the state of all rows, changes that of its own, and gets that of the others by exchanges.
A checkpoint does not depend on the number of processes: a run goes on from it with any other number.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.engine import sweep
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.team import Member, Team, equal_shares
from rankfold.pipeline.storage.checkpoint import State, load_arrays, load_if_whole, save_arrays

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]


def _keep(array: Array, ends: Sequence[int]) -> None:
    """Leave the array as it is: the ``swap`` of a process that has all rows."""


@dataclass(frozen=True, slots=True)
class Share:
    """Rows whose state one process changes, and how it exchanges rows with the other processes."""

    bounds: tuple[int, ...]
    """First row of each process, and the number of rows, (processes + 1,)."""

    part: int = 0
    """Number of this process, from 0 on: its rows are ``bounds[part]:bounds[part + 1]``."""

    threads: int = 1
    """Number of threads of this process."""

    swap: Callable[[Array, Sequence[int]], None] = _keep
    """Function that sends rows of this process to all others, and fills in the rows of the others, in place.

    It is called with the array, and with the first row of each process in this array and the end,
    (processes + 1,). All processes call it equally often.
    """

    @property
    def is_all(self) -> bool:
        """True if one process has all rows."""
        return len(self.bounds) == 2

    @property
    def own(self) -> slice:
        """Rows of this process, as a slice of all rows."""
        return slice(*self.bounds[self.part : self.part + 2])


class Part(Protocol):
    """State of all rows in one process, and the rounds that this process makes with the others."""

    @property
    def made(self) -> int:
        """Number of rounds made so far, those before the last checkpoint included."""

    @property
    def is_whole(self) -> bool:
        """True if the state of all rows is that after ``made`` rounds: it can be saved.

        False within a round, or while rows of other processes are not up to date. The last round leaves it
        True.
        """

    def run(self, on_round: Callable[[], None]) -> None:
        """Make all rounds that are left, and call ``on_round`` after each."""

    def arrays(self) -> State:
        """Arrays of the state of all rows by name, as a checkpoint stores them."""


class Rounds(Protocol):
    """Rounds that processes make together. Picklable: holds paths and small arrays."""

    name: str
    """Name of the phase, and of its folder."""

    checkpoint: str
    """Name of the file of checkpoints."""

    counter: str
    """Name of the array of a state from which ``made`` finds the number of rounds."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    @property
    def rounds(self) -> int:
        """Number of rounds in all."""

    def made(self, counter: Array) -> int:
        """Return the number of rounds that led to a state, from ``counter``, its array of that name."""

    def part(self, state: State, share: Share) -> Part:
        """Make the part of the process with ``share``: it goes on from ``state``, and owns its arrays."""

    def work_before(self) -> Int64:
        """Return the work of all rows before row i, (rows + 1,), in any unit; processes share it equally."""

    def message_bytes(self, rows: int) -> int:
        """Return the most bytes of one exchange of a process with this number of rows."""

    def require_files(self) -> None:
        """Raise ClusterError if this process does not see the files that rounds read."""


def make_rounds(run: Run, rounds: Rounds, start: Callable[[], State], parts: range) -> State:
    """Make all rounds that are left, and return the last state: arrays by name.

    They go on from a checkpoint of an earlier attempt, or begin with the state that ``start()`` returns.
    ``parts`` is the range of the number of processes that may share the rows, if there are workers.
    """
    path, began = run.part(rounds.name, rounds.checkpoint), time.perf_counter()
    found = load_if_whole(path)
    state = start() if found is None or rounds.counter not in found else found
    run.seconds["start"] = time.perf_counter() - began
    began = time.perf_counter()
    if run.scheduler.has_workers:
        if state is not found:
            save_arrays(path, state, durable=run.file_policy.is_remote)
        del state, found
        run.worker_bytes = max(run.worker_bytes, _by_team(run, rounds, path, parts))
        state = load_arrays(path)
    else:
        state = _in_process(run, rounds, path, state)
    run.seconds[rounds.name] = time.perf_counter() - began
    return state


def _in_process(run: Run, rounds: Rounds, path: Path, state: State) -> State:
    """Make all rounds in this process; returns the last state."""
    part, last_save = rounds.part(state, Share((0, rounds.rows), threads=run.concurrency)), time.monotonic()
    state.clear()  # what a round replaces is not to stay in memory
    rows, total = rounds.rows, rounds.rounds

    def on_round() -> None:
        nonlocal last_save
        if run.file_policy.resumable and time.monotonic() - last_save > sweep.SEGMENT_SECONDS:
            save_arrays(path, part.arrays())
            last_save = time.monotonic()
        if run.progress:
            run.progress(rounds.name, rows * part.made // total, rows)

    part.run(on_round)
    return part.arrays()


def _by_team(run: Run, rounds: Rounds, path: Path, parts: range) -> int:
    """Make all rounds on workers, which save the last state at ``path``; returns peak bytes of a worker."""
    before = rounds.work_before()

    def work(count: int) -> tuple[SharedRounds, list[int]]:
        bounds = equal_shares(before, count)
        capacities = [rounds.message_bytes(last - first) for first, last in itertools.pairwise(bounds)]
        return SharedRounds(rounds, path, bounds, sweep.SEGMENT_SECONDS), capacities

    def standing() -> int:
        state = load_if_whole(path, rounds.counter)
        return 0 if state is None else rounds.made(state[rounds.counter])

    def watch(done: int) -> None:
        if run.progress:
            run.progress(rounds.name, done, rounds.rows)

    return Team.of(run, path, parts, work, standing).run(rounds.rounds, run.scheduler, watch)


@dataclass(frozen=True, slots=True)
class SharedRounds:
    """Work of a team: each process makes the rounds of its share, the first one saves checkpoints."""

    rounds: Rounds
    path: Path
    """Path of the checkpoint."""

    bounds: tuple[int, ...]
    """First row of each process, and the number of rows, (processes + 1,)."""

    checkpoint_seconds: float
    """Seconds between two checkpoints."""

    def do_part(self, member: Member) -> None:
        """Make rounds from the last checkpoint to the end, or until this process is to stop."""
        self.rounds.require_files()
        share = Share(self.bounds, member.part, member.threads, member.swap)
        part = self.rounds.part(load_arrays(self.path), share)
        rows, total, leads = self.rounds.rows, self.rounds.rounds, share.part == 0
        saved, last_save = part.made, time.monotonic()

        def save() -> None:
            nonlocal saved, last_save
            member.save(self.path, part.arrays())
            saved, last_save = part.made, time.monotonic()

        def on_round() -> None:
            member.look()
            if leads:
                member.attempt.reach(0, rows * part.made // total)
                if part.is_whole and time.monotonic() - last_save > self.checkpoint_seconds:
                    save()

        try:
            part.run(on_round)
        finally:
            if leads and part.is_whole and part.made > saved:
                save()
