"""One sweep over pairs of rows: the only maker of Dask tasks besides ``sweep``.

A task is a ``Meeting`` of ``pairs``: it holds one group of blocks in memory while others pass, one pair of
blocks at a time. Accumulators are files, one for each block, in which a bit for every other block says
whether the two have met, that is, were compared. A task reads those it needs, goes on with the pairs that are
missing, and saves the files; nothing passes through Dask but the order of tasks. The work of a fold on a pair
must be idempotent: after a kill, one of the two files of a pair may have it and the other not, and then it is
done again.

The trap: a bit is only true of the file that contains it. A pair is done when both files have the bit.
"""

from __future__ import annotations

import functools
import itertools
import operator
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from dask.delayed import Delayed

from rankfold.pipeline.engine.attempt import Attempt, attempt, end_attempt, new_lease, stop_attempt
from rankfold.pipeline.engine.device import HOST, Device, Kernel, device_of, runs_on_device
from rankfold.pipeline.engine.memory import bytes_above_baseline, return_freed_memory
from rankfold.pipeline.engine.pairs import Meeting, Pairs, in_order, schedule
from rankfold.pipeline.engine.scheduler import ByReference, Scheduler
from rankfold.pipeline.engine.sweep import (
    LEASE,
    MOST_TURNS,
    SEGMENT_SECONDS,
    StreamRolledBack,
    require_ours,
    short,
)
from rankfold.pipeline.errors import DamagedStateError
from rankfold.pipeline.machine import one_blas_thread
from rankfold.pipeline.storage.checkpoint import State, load_if_whole, make_folder, save_arrays, save_json
from rankfold.pipeline.storage.journal import Journal

Bools = npt.NDArray[np.bool_]
Tell = Callable[[str, int, int], None]
Meetings = Sequence[tuple[Meeting, tuple[Any, ...]]]

GRAPH_TASKS, GRAPH_ROUNDS = 4096, 16
"""Largest number of tasks of one Dask graph: the first, or the second times the tasks at a time if more.

So the memory of a driver does not grow with the rows.
"""

_MEETINGS = "done"


class PairFold(Protocol):
    """What a sweep over pairs does with two blocks of rows. Picklable: holds paths and small arrays."""

    @property
    def pairs(self) -> Pairs:
        """Blocks of rows that are to be compared."""

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels that the fold calls; ``runs_on_device`` decides by them where it runs."""

    @property
    def resident(self) -> frozenset[str]:
        """Names of sums that stay on the device they are computed on."""

    def device_bytes(self, rows: int) -> int:
        """Upper bound on the memory of a device in a task that holds ``rows`` rows."""

    def start(self, block: int) -> State:
        """Accumulator (results so far) of a block that has not been compared with any."""

    def workspace(self, rows: int, device: Device = HOST) -> Any:
        """Allocate everything for a task that holds up to ``rows`` rows in memory."""

    def load_resident(self, work: Any, group: tuple[int, int]) -> int:
        """Load blocks ``range(*group)`` into workspace ``work`` unless they are there; returns bytes read."""

    def holds(self, work: Any, group: tuple[int, int]) -> bool:
        """True if blocks ``range(*group)`` are in workspace ``work``, so that loading them reads nothing."""

    def load_passing(self, work: Any, block: int, group: tuple[int, int]) -> int:
        """Load one block into ``work``, unless it is one of ``range(*group)``; returns bytes read."""

    def accumulate(self, work: Any, block: int, state: State, other: int, other_state: State | None) -> None:
        """Compare a held block with the passing block ``other``, and update their accumulators in place.

        These are ``state`` and ``other_state``; both blocks have been loaded into ``work``. ``other_state``
        is None if passing blocks have no accumulators, or if both are the same block.
        """


@dataclass(slots=True)
class PairReport:
    """Peak bytes of a process above its baseline, and bytes read in all, as tasks report them."""

    peak_bytes: int = 0
    read_bytes: int = 0

    def __or__(self, other: PairReport) -> PairReport:
        return PairReport(max(self.peak_bytes, other.peak_bytes), self.read_bytes + other.read_bytes)


@dataclass(frozen=True, slots=True)
class PairSweep:
    """A sweep over pairs of rows: its fold, and how its tasks are cut and run."""

    name: str
    fold: PairFold
    folder: Path
    """Folder of the accumulators."""

    groups: npt.NDArray[np.int64]
    """Edges of the groups as indices of blocks, (groups + 1,)."""

    concurrency: int
    """Number of tasks that one process runs at once."""

    at_once: int = 1
    """Number of tasks at once in all processes."""

    journal: Journal = field(default_factory=Journal)
    device: str = "cpu"
    """Device of the fold, if it has code for it: ``"cpu"`` or ``"gpu"``."""

    def run(self, scheduler: Scheduler, progress: Tell | None = None) -> PairReport:
        """Compare all pairs of rows that were not compared yet, in this or in an earlier attempt.

        ``progress`` is called with the name of the sweep, the rows done, and the rows in all. Results are
        left in accumulators: see ``finished_lists``.
        """
        make_folder(self.folder)
        report, rows = PairReport(), int(self.fold.pairs.rows[-1])
        tell = _Progress(self.name, self.fold.pairs.row_pairs, rows, progress)
        for turn in range(MOST_TURNS):
            # No task runs now: without a lease, a worker that was thought dead cannot set back what is
            # complete.
            save_json(self.folder / LEASE, None, durable=False)
            met, begun = self._met(), False
            left = sum(map(self._row_pairs, self._graphs(met)))
            for part in self._graphs(met):
                if turn == MOST_TURNS - 1:
                    raise StreamRolledBack(
                        f"accumulators in {self.folder} were set back; the same command goes on"
                    )
                report |= self._carry_out(part, scheduler, functools.partial(tell, left))
                left, begun = left - self._row_pairs(part), True
            if not begun:
                break
        if progress:
            progress(self.name, rows, rows)
        return report

    def _met(self) -> Bools:
        """(groups, groups) True for two groups all of whose blocks have been compared.

        Or, if blocks are compared with those of another set, (groups, accumulators): True for groups that
        have been compared with all blocks of an accumulator.
        """
        pairs, starts = self.fold.pairs, self.groups[:-1]
        own = pairs.others is None
        met = np.ones((len(starts), len(starts) if own else pairs.accumulators), np.bool_)
        for group, (first, last) in enumerate(itertools.pairwise(self.groups.tolist())):
            for block, accumulator in itertools.product(range(first, last), range(pairs.accumulators)):
                part = load_if_whole(_part(self.folder, block, accumulator), _MEETINGS)
                bits = _bits(None if part is None else part[_MEETINGS], pairs)
                if own:
                    met[group] &= np.logical_and.reduceat(bits, starts)
                else:
                    met[group, accumulator] &= bits[slice(*pairs.accumulator(accumulator))].all()
        return met & met.T if own else met

    def _graphs(self, met: Bools) -> Iterator[Meetings]:
        """Yield the tasks (meetings of two groups) that are not done, those of one Dask graph at a time.

        There may be millions. ``met`` is what ``_met`` returned.
        """
        missing = (
            (meeting, alone)
            for meeting, alone in schedule(self.fold.pairs, self.groups, self.at_once)
            if not met[alone if len(alone) > 1 else alone[0]]
        )
        while part := list(itertools.islice(missing, max(GRAPH_TASKS, GRAPH_ROUNDS * self.at_once))):
            yield part

    def _carry_out(self, missing: Meetings, scheduler: Scheduler, tell: Callable[[int], None]) -> PairReport:
        lease = new_lease(self.folder)
        save_json(self.folder / LEASE, lease, durable=False)
        here = attempt(lease, self.concurrency)
        try:
            report: PairReport = scheduler.compute(
                self.graph(missing, lease),
                concurrency=self.concurrency,
                watch=lambda: tell(here.rows_done),
                stop=functools.partial(stop_attempt, lease),
            )
        finally:
            end_attempt(lease)
            return_freed_memory()
        return report

    def _row_pairs(self, missing: Meetings) -> int:
        rows, met = self.fold.pairs.rows, self.fold.pairs.met
        total = 0
        for meeting, _ in missing:
            group, passing = (
                int(edges[last] - edges[first])
                for edges, (first, last) in ((rows, meeting.group), (met, meeting.passing))
            )
            own = meeting.group == meeting.passing and self.fold.pairs.others is None
            total += group * (group - 1) // 2 if own else group * passing
        return total

    def graph(self, missing: Meetings, lease: str) -> Delayed:
        """Dask graph of the ``missing`` meetings, each after earlier ones with the same groups.

        One dictionary: with ``delayed`` calls, each task would hold a table of all earlier tasks.
        """
        fold = ByReference[PairFold](self.fold, self.folder / f"fold-{short(lease)}.pickle")
        group_rows = int(np.diff(self.fold.pairs.rows[self.groups]).max())
        last: dict[object, tuple[str, int]] = {}
        name, behind = f"{self.name}-meeting-{short(lease)}", in_order(len(self.groups) - 1, self.at_once)
        tasks: dict[Any, Any] = {}
        for index, (meeting, alone) in enumerate(missing):
            before = [last[group] for group in alone if group in last]
            if behind and index >= behind:
                before.append((name, index - behind))
            work = functools.partial(
                _meet,
                fold,
                self.folder,
                meeting,
                group_rows,
                lease=lease,
                limit=self.concurrency,
                journal=self.journal,
                device=self.device if runs_on_device(self.fold.kernels) else "cpu",
            )
            key = (name, index)
            tasks[key] = (work, before)
            last |= dict.fromkeys(alone, key)
        everything = f"{self.name}-all-{short(lease)}"
        tasks[everything] = (_gather, list(tasks))
        return Delayed(everything, tasks)  # type: ignore[no-untyped-call]  # as Dask has it


class _Progress:
    """Progress in rows, which never decreases."""

    def __init__(self, name: str, row_pairs: int, rows: int, progress: Tell | None) -> None:
        self.name, self.row_pairs, self.rows, self.progress = name, max(1, row_pairs), rows, progress
        self.most = 0

    def __call__(self, left: int, done: int) -> None:
        """Report that ``done`` of the ``left`` pairs of rows that were missing are done."""
        if self.progress:
            rows = int((self.row_pairs - max(0, left - done)) * self.rows // self.row_pairs)
            self.most = max(self.most, rows)
            self.progress(self.name, self.most, self.rows)


def load_lists(folder: Path, block: int, accumulator: int = 0) -> State | None:
    """Read accumulator number ``accumulator`` of a block from disk; None if there is no undamaged one."""
    return load_if_whole(_part(folder, block, accumulator))


def finished_lists(folder: Path, pairs: Pairs, block: int, accumulator: int = 0) -> State:
    """Read an accumulator of a block of ``pairs`` that has been compared with all blocks that belong to it.

    Raises ``DamagedStateError`` if some are missing, as it was set back, or if it is damaged; then it is set
    aside, to be made again.
    """
    state, path = load_lists(folder, block, accumulator), _part(folder, block, accumulator)
    first, last = (0, pairs.count) if pairs.others is None else pairs.accumulator(accumulator)
    if state is None or not _bits(state.pop(_MEETINGS), pairs)[first:last].all():
        raise DamagedStateError(path, "was damaged or set back")
    return state


def has_lists(folder: Path, block: int, accumulator: int = 0) -> bool:
    """True if a block has an undamaged accumulator on disk."""
    return load_if_whole(_part(folder, block, accumulator), _MEETINGS) is not None


def save_lists(folder: Path, block: int, state: State, met: Bools, accumulator: int = 0) -> None:
    """Save an accumulator of a block; ``met`` (blocks,) is True for blocks that it has been compared with."""
    save_arrays(_part(folder, block, accumulator), {**state, _MEETINGS: np.packbits(met)})


def _part(folder: Path, block: int, accumulator: int) -> Path:
    return folder / f"block-{block:05d}-{accumulator:03d}.part"


def _bits(bytes_of: npt.NDArray[np.uint8] | None, pairs: Pairs) -> Bools:
    """(blocks,) True for blocks that a block has been compared with, from packed bits; all False for None."""
    count = len(pairs.met) - 1
    return np.zeros(count, np.bool_) if bytes_of is None else np.unpackbits(bytes_of, count=count) > 0


@dataclass(slots=True)
class _Accumulators:
    """Accumulators of the blocks in a task: loaded when first needed, saved when they have changed."""

    fold: PairFold
    folder: Path
    lease: str
    accumulator: int
    place: Device
    states: dict[int, State] = field(default_factory=dict)
    met: dict[int, Bools] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)

    def of(self, block: int) -> State:
        """The accumulator of a block; it is loaded, or begun, if it is not in memory."""
        if block not in self.states:
            state = load_lists(self.folder, block, self.accumulator)
            packed = None if state is None else state.pop(_MEETINGS, None)
            if state is None or packed is None:
                state = self.fold.start(block)
            self.states[block] = self.place.load(state, self.fold.resident)
            self.met[block] = _bits(packed, self.fold.pairs)
        return self.states[block]

    def have_met(self, block: int, other: int, *, both: bool) -> bool:
        """True if the accumulator of ``block`` says that it has been compared with ``other``.

        With ``both``, the accumulator of ``other`` must say so too.
        """
        return bool(self.met[block][other] and (not both or self.met[other][block]))

    def note(self, block: int, other: int) -> None:
        """Mark a block as compared with ``other``, in the accumulator of the block."""
        self.met[block][other] = True
        self.changed.add(block)

    def save(self, *blocks: int) -> None:
        """Write the accumulators of these blocks to disk, if they have changed."""
        for block in set(blocks) & self.changed:
            require_ours(self.folder, self.lease)
            lists = self.place.unload(self.states[block])
            save_lists(self.folder, block, lists, self.met[block], self.accumulator)
            self.changed.discard(block)

    def drop(self, block: int) -> None:
        """Save the accumulator of a block, and free it."""
        self.save(block)
        del self.states[block], self.met[block]


def _meet(
    reference: ByReference[PairFold],
    folder: Path,
    meeting: Meeting,
    rows: int,
    before: list[PairReport],
    *,
    lease: str,
    limit: int,
    journal: Journal,
    device: str,
) -> PairReport:
    """Compare the blocks of a meeting that were not compared yet: one task.

    ``rows`` is the largest number of rows of a group, ``limit`` that of tasks at once in a process.
    ``before`` only orders the tasks.
    """
    this, fold = attempt(lease, limit), reference.value
    own, place = fold.pairs.others is None, device_of(device)
    place.limit(fold.device_bytes(rows), folder.parent)
    either = [meeting]
    if own and meeting.group != meeting.passing:
        either.append(Meeting(meeting.passing, meeting.group))
    with (
        this.workspace(
            functools.partial(fold.workspace, rows, place),
            lambda work: any(fold.holds(work, m.group) for m in either),
        ) as work,
        one_blas_thread(),
        journal.segment(meeting.group) as note,
    ):
        meeting = next((m for m in either if fold.holds(work, m.group)), meeting)
        accumulators = _Accumulators(fold, folder, lease, meeting.accumulator, place)
        try:
            read = fold.load_resident(work, meeting.group)
            for each in _passing(fold, work, accumulators, meeting, this, lease):
                read += each
                note["read_bytes"] = read
        finally:
            accumulators.save(*accumulators.states)
        return PairReport(bytes_above_baseline(), read)


def _passing(
    fold: PairFold, work: Any, accumulators: _Accumulators, meeting: Meeting, this: Attempt, lease: str
) -> Iterator[int]:
    """Load the passing blocks of a meeting one by one, compare each with the held group, yield bytes read."""
    own, last_save = fold.pairs.others is None, time.monotonic()
    together = own and meeting.group == meeting.passing
    blocks = range(*meeting.group)
    pairs_done, place = 0, (meeting.group[0], meeting.passing[0])
    first, second = sorted(place) if own else place
    for block in blocks:
        accumulators.of(block)
    for other in range(*meeting.passing):
        if own:
            accumulators.of(other)
        due = [block for block in blocks if block <= other or not together]
        missing = [block for block in due if not accumulators.have_met(block, other, both=own)]
        pairs_done += sum(_pairs_between(fold.pairs, block, other) for block in {*due} - {*missing})
        yield fold.load_passing(work, other, meeting.group) if missing else 0
        for block in missing:
            other_state = accumulators.of(other) if own and block != other else None
            fold.accumulate(work, block, accumulators.of(block), other, other_state)
            accumulators.note(block, other)
            if own:
                accumulators.note(other, block)
            pairs_done += _pairs_between(fold.pairs, block, other)
            this.reach(int(first * fold.pairs.met[-1] + second), pairs_done)
            this.end_if_stopped()
            if time.monotonic() - last_save > SEGMENT_SECONDS:
                accumulators.save(*accumulators.states)
                last_save = time.monotonic()
        if own and not together:
            accumulators.drop(other)


def _pairs_between(pairs: Pairs, block: int, other: int) -> int:
    rows, met = (int(edges[i + 1] - edges[i]) for edges, i in ((pairs.rows, block), (pairs.met, other)))
    return rows * (rows - 1) // 2 if pairs.others is None and block == other else rows * met


def _gather(reports: list[PairReport]) -> PairReport:
    return functools.reduce(operator.or_, reports, PairReport())
