"""One sweep over the long axis: the only maker of Dask tasks.

A *stream* folds its panels (rows read at once) in order into one accumulator; streams merge in a fixed tree.
A stream is cut into *segments*, one Dask task each: the task finds the stream's last checkpoint, continues
from there and saves a new one. A segment therefore never passes arrays to the next through Dask, may be run
again or cut elsewhere without changing a bit, and a killed run goes on where its files end. What a segment
writes besides, to scratch or into the result, is recorded in the same checkpoint (see ``ledger``).

The trap: nothing here may depend on how many tasks run at once, or on which ended first.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from rankfold.pipeline.durable import flush, flush_all, rename
from rankfold.pipeline.engine.attempt import attempt, end_attempt, new_lease, stop_attempt
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.device import HOST, Device, Report, device_of, refuse_mixed, runs_on_device
from rankfold.pipeline.engine.durability import FilePolicy
from rankfold.pipeline.engine.fold import Fold, panels_of
from rankfold.pipeline.engine.memory import bytes_above_baseline, return_freed_memory
from rankfold.pipeline.engine.scheduler import ByReference, Scheduler
from rankfold.pipeline.errors import DamagedStateError, Interrupted
from rankfold.pipeline.machine import one_blas_thread
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.checkpoint import (
    Ledger,
    State,
    load_if_whole,
    load_json,
    make_folder,
    record_writes,
    save_arrays,
    save_json,
    set_aside,
)
from rankfold.pipeline.storage.journal import Journal

SEGMENT_SECONDS = 20.0
"""Seconds that a segment takes on a nominal core; also the longest time between two checkpoints."""

FAN_IN = 8
"""Largest number of streams that one task merges, one after the other.

Two accumulators are in memory, however many streams there are.
"""

MOST_TURNS = 5
"""Number of turns after which a sweep is given up; a new turn begins whenever a stream was set back."""

TOTAL = "total.part"
_NEXT = "next_panel"
_CORE = "core_type"
LEASE = "attempt.json"

_STREAM = re.compile(r"stream-(\d{5,})\.part")
"""Pattern of the names of checkpoints of streams."""

_LED_TO_TOTAL = re.compile(r".*-.*\.part|fold-.*\.pickle", re.DOTALL)
"""Pattern of the names of files that are removed once the sums over all rows are saved."""


@dataclass(frozen=True, slots=True)
class Total:
    """Sums of a sweep over all rows, and the files that it wrote."""

    state: State
    ledger: Ledger
    """Record of all files that the sweep wrote to scratch or into the result, with checksums."""

    earlier: bool
    """True if an earlier attempt computed these sums."""

    peak_bytes: int = 0
    """Peak bytes that a worker process held above its baseline."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep over rows: its fold, and where and how its segments run."""

    name: str
    fold: Fold
    folder: Path
    """Folder of the checkpoints."""

    concurrency: int
    """Number of segments that one process runs at once."""

    journal: Journal = field(default_factory=Journal)
    file_policy: FilePolicy = field(default_factory=FilePolicy)
    device: str = "cpu"
    """Device of the fold, if it has code for it: ``"cpu"`` or ``"gpu"``."""

    def run(self, scheduler: Scheduler, progress: Callable[[str, int, int], None] | None = None) -> Total:
        """Compute the sums over all rows, or load them from disk if an earlier attempt got that far.

        ``progress`` is called with the name of the sweep, the rows done, and the rows in all.
        """
        return self.load_total(progress) or self.make_total(scheduler, progress)

    def make_total(
        self, scheduler: Scheduler, progress: Callable[[str, int, int], None] | None = None
    ) -> Total:
        """Compute the sums over all rows, going on from the checkpoints that there are."""
        state, peak = self._all_turns(scheduler, progress)
        total = Total(state, Ledger.taken_from(state), earlier=False, peak_bytes=peak)
        self._settle(total)
        self._tell_end(progress)
        return total

    def load_total(self, progress: Callable[[str, int, int], None] | None = None) -> Total | None:
        """Sums over all rows that an earlier attempt saved; None if it did not get to the end."""
        state = load_if_whole(self.folder / TOTAL)
        if state is None:
            return None
        self._tell_end(progress)
        return Total(state, Ledger.taken_from(state), earlier=True)

    def _tell_end(self, progress: Callable[[str, int, int], None] | None) -> None:
        if progress:
            progress(self.name, self.fold.cut.length, self.fold.cut.length)

    def _all_turns(
        self, scheduler: Scheduler, progress: Callable[[str, int, int], None] | None
    ) -> tuple[State, int]:
        """Fold and merge until all streams are done; returns the sums, and the peak memory in bytes.

        If a checkpoint was damaged or set back, another turn begins, up to ``MOST_TURNS`` in all.
        """
        make_folder(self.folder)
        self._set_aside_damage()
        peak = 0
        for turn in range(MOST_TURNS):
            try:
                peak = max(peak, self._carry_out(scheduler, progress))
                return self._root_state(), peak
            except (StreamRolledBack, DamagedStateError) as error:
                # Files of another sweep are not made again here.
                own = isinstance(error, StreamRolledBack) or self.folder in error.path.parents
                if turn + 1 == MOST_TURNS or not own:
                    raise
        raise AssertionError("the last turn returns or raises")

    def _settle(self, total: Total) -> None:
        """Save the sums over all rows, then remove the files that led to them."""
        if not self.file_policy.resumable:
            self._drop_parts()
            return
        # Saved at once: the caller may change the state while the rest is under way.
        path, draft = self.folder / TOTAL, self.folder / f".{TOTAL}"
        save_arrays(draft, {**total.state, **total.ledger.as_arrays()}, name=path)
        paths = self.file_policy.paths(total.ledger)

        def trust() -> None:
            if self.file_policy.durable:
                flush_all(paths)
                flush(draft)
            rename(draft, path)
            if self.file_policy.durable:
                flush(path.parent)
            self._drop_parts()

        self.file_policy.after_settling(trust)

    def _drop_parts(self) -> None:
        for name in os.listdir(self.folder):
            if _LED_TO_TOTAL.fullmatch(name):
                remove(self.folder / name)

    def _set_aside_damage(self) -> None:
        """Set aside checkpoints of streams whose files are damaged, so that these streams start over."""
        for stream in self._begun():
            part = self.part(0, stream)
            state = load_if_whole(part)
            if state is not None:
                damage = self.file_policy.damage(Ledger.taken_from(state))
                if damage is not None:
                    set_aside(part, f"led to {damage.path}, which {damage.reason}")

    def _carry_out(self, scheduler: Scheduler, progress: Callable[[str, int, int], None] | None) -> int:
        """Fold streams from their checkpoints to their ends, and merge them; returns the peak bytes."""
        lease = new_lease(self.folder)
        # Segments of an attempt whose driver is gone see that the folder is not theirs any more, and end.
        save_json(self.folder / LEASE, lease, durable=False)
        own = attempt(lease, self.concurrency)
        for stream, panel in enumerate(self._next_panels()):
            own.reach(stream, _stream_rows(self.fold.cut, stream, panel))
        compute = functools.partial(
            scheduler.compute,
            concurrency=self.concurrency,
            watch=self._watch(lease, progress),
            stop=functools.partial(stop_attempt, lease),
        )
        try:
            report = Report(frozenset(), 0)
            for graph in self.graphs(lease, scheduler.members()):
                report |= compute(graph)
                refuse_mixed(report)
        finally:
            end_attempt(lease)
            del own  # and the buffers that lie idle in it
            return_freed_memory()
        return report.peak_bytes

    def _root_state(self) -> State:
        """Sums over all rows, from the file of the last merge, or of the only stream."""
        level = len(part_counts(self.fold.cut.stream_count)) - 1
        return _load_part(self.part(level, 0), None if level else int(self.fold.cut.streams[1]))

    def graphs(self, lease: str = "", members: tuple[str, ...] = ()) -> list[Delayed]:
        """Dask graphs to run one after the other: the segments of all streams, then each level of merges.

        ``lease`` is the name of the attempt, ``members`` are the addresses of processes that take tasks.

        A merge that depended on other tasks would fetch their reports, one by one, which takes a scheduler
        more time than the merge. All that a merge needs is in files.
        """
        reference = ByReference(self, self.folder / f"fold-{short(lease)}.pickle")
        advance, merge = (functools.partial(each, reference, lease=lease) for each in (_advance, _merge))
        # Dictionaries: with ``delayed`` calls, each task would hold a table of all earlier tasks.
        tasks, ends = self._chains(advance, lease)
        graphs = [self._graph(0, tasks, ends, lease, members)]
        for level, count in enumerate(part_counts(self.fold.cut.stream_count)[1:], 1):
            key = self._key("merge", level, lease)
            tasks = {(key, index): (merge, level, index) for index in range(count)}
            graphs.append(self._graph(level, tasks, list(tasks), lease, members))
        return graphs

    def _graph(
        self, level: int, tasks: dict[Any, Any], ends: list[Any], lease: str, members: tuple[str, ...]
    ) -> Delayed:
        """Dask graph of tasks, and of one that joins the reports of tasks ``ends``.

        The last one runs on the first of ``members`` if it is still there.
        Otherwise Dask would compare all workers by what each had to fetch, to choose one.
        """
        if len(ends) == 1:
            return Delayed(ends[0], tasks)  # type: ignore[no-untyped-call]  # as Dask has it
        root = self._key("all", level, lease)
        place = {"workers": members[:1], "allow_other_workers": True} if members else None
        last = MaterializedLayer({root: (Report.of, ends)}, annotations=place)
        graph = HighLevelGraph({"each": tasks, root: last}, {"each": set(), root: {"each"}})
        return Delayed(root, graph)  # type: ignore[no-untyped-call]

    def _chains(self, advance: Callable[..., Report], lease: str) -> tuple[dict[Any, Any], list[Any]]:
        """Tasks of the segments of all streams, and the key of the last segment of each stream."""
        cut, tasks, ends = self.fold.cut, dict[Any, Any](), list[Any]()
        step = max(1, int(max(1.0, SEGMENT_SECONDS / self.fold.row_seconds) // cut.panel_rows))
        for stream, panel in enumerate(self._next_panels()):
            last, before = int(cut.streams[stream + 1]), None
            for link, until in enumerate([*range(panel + step, last, step), last]):
                key = (self._key("segment", link, lease), stream, until)
                tasks[key], before = (advance, stream, until, before), key
            ends.append(key)
        return tasks, ends

    def _next_panels(self) -> list[int]:
        """Index of the first panel of each stream that is not folded yet."""
        panels: list[int] = self.fold.cut.streams[:-1].tolist()
        for stream in self._begun():
            panels[stream] = _next_panel(self.part(0, stream)) or panels[stream]
        return panels

    def _begun(self) -> list[int]:
        """Numbers of streams that have a checkpoint; lists the folder once, rather than look up each file."""
        try:
            parts = [match for name in os.listdir(self.folder) if (match := _STREAM.fullmatch(name))]
        except FileNotFoundError:
            return []
        streams = sorted({int(match[1]) for match in parts} & set(range(self.fold.cut.stream_count)))
        return [stream for stream in streams if os.path.lexists(self.part(0, stream))]

    @property
    def place(self) -> str:
        """Device on which segments run: the host, unless the fold has code for ``device``."""
        there = self.device != "cpu" and runs_on_device(getattr(self.fold, "kernels", ()))
        return self.device if there else "cpu"

    def _key(self, kind: str, level: int, lease: str) -> str:
        # Keys of different attempts must differ, or a scheduler that still remembers one of them answers the
        # other with its result. Every link of the chains has a name of its own: Dask holds tasks back until a
        # worker is free only where tasks of that name depend on few.
        return f"{self.name}-{kind}-{level}-{short(lease)}"

    def part(self, level: int, index: int) -> Path:
        """Path of the checkpoint of stream ``index`` (level 0), or of the sums of a merge, by its index."""
        return self.folder / (f"stream-{index:05d}.part" if level == 0 else f"merge-{level}-{index:05d}.part")

    def parts_below(self, level: int, index: int) -> list[tuple[Path, int | None]]:
        """Paths of the files that a merge joins; each with the end panel of its stream, None for a merge."""
        count = part_counts(self.fold.cut.stream_count)[level - 1]
        ends = self.fold.cut.streams[1:].tolist() if level == 1 else [None] * count
        group = range(index * FAN_IN, min(count, (index + 1) * FAN_IN))
        return [(self.part(level - 1, i), ends[i]) for i in group]

    def _watch(self, lease: str, progress: Callable[[str, int, int], None] | None) -> Callable[[], None]:
        own, rows = attempt(lease, self.concurrency), self.fold.cut.length
        # The end is reported once, by ``_tell_end``, and not while streams are merged.
        return lambda: progress(self.name, at, rows) if progress and (at := own.rows_done) < rows else None


class StreamRolledBack(Interrupted):
    """A stream is short of its end: a writer thought dead has replaced its checkpoint by an older one."""


def _advance(
    reference: ByReference[Sweep], stream: int, until: int, before: Report | None, *, lease: str
) -> Report:
    """Fold a stream from its last checkpoint, wherever that is, up to panel ``until``: the task of a segment.

    Returns its report, joined with ``before``, that of the segment before it in the stream.
    """
    sweep, last_save = reference.value, time.monotonic()
    fold, file_policy, path = sweep.fold, sweep.file_policy, sweep.part(0, stream)
    own, place = attempt(lease, sweep.concurrency), device_of(sweep.place)
    at, first = _next_panel(path), int(fold.cut.streams[stream])
    if at is not None and at >= until and (core := load_if_whole(path, _CORE)):
        # The worker that had reported this is gone.
        cores = frozenset({(place.name, str(core[_CORE])), (place.name, place.core_type())})
        return Report.of([Report(cores, 0), *filter(None, [before])])
    place.limit(fold.device_bytes, path.parent.parent)
    make = functools.partial(fold.workspace, place)
    with own.workspace(make) as work, one_blas_thread(), sweep.journal.segment(stream) as note:
        state, panel = (fold.start(), first) if at is None else _resume(fold, path, first, place)
        ledger, writes = Ledger.taken_from(state), Ledger()
        state = place.load(state, fold.resident)
        with (
            record_writes(writes if file_policy.resumable else None),
            contextlib.closing(panels_of(fold, work, panel, until)) as panels,
        ):
            for panel, start, stop, slot in panels:
                fold.step(state, work, start, stop, slot)
                place.settle()
                own.reach(stream, _stream_rows(fold.cut, stream, panel + 1))
                note["rows"] = note.get("rows", 0) + stop - start
                if panel + 1 == until or own.stopped or time.monotonic() - last_save > SEGMENT_SECONDS:
                    require_ours(path.parent, lease)
                    if file_policy.is_remote:
                        flush_all(file_policy.paths(writes))
                    ledger.add(writes)
                    writes.blocks.clear()
                    sums: dict[str, Any] = {**place.unload(state), **ledger.as_arrays()}
                    where: dict[str, Any] = {_NEXT: panel + 1, _CORE: place.core_type()}
                    save_arrays(path, {**sums, **where}, durable=file_policy.is_remote)
                    last_save = time.monotonic()
                own.end_if_stopped()
        # Workspace and accumulator are still held: the segment never had more memory than now.
        peak = bytes_above_baseline()
    report = Report(frozenset({(place.name, place.core_type())}), peak)
    return report if before is None else before | report


def part_counts(streams: int) -> list[int]:
    """Number of files at each level of the tree of merges, from the streams down to one: 500, 63, 8, 1."""
    counts = [streams]
    while counts[-1] > 1:
        counts.append(-(-counts[-1] // FAN_IN))
    return counts


def short(lease: str) -> str:
    """Digest of a lease, 12 hexadecimal digits, for the names of tasks and files of its attempt."""
    return hashlib.blake2b(lease.encode(), digest_size=6).hexdigest()


def require_ours(folder: Path, lease: str) -> None:
    """Raise ``Interrupted`` unless the folder still belongs to the attempt with this lease (its name)."""
    if lease and load_json(folder / LEASE, str) != lease:
        raise Interrupted(f"another run has taken over {folder}, or its result is complete")


def _next_panel(path: Path) -> int | None:
    """Index of the first panel of a stream that is not folded yet, by its checkpoint; None if it has none."""
    state = load_if_whole(path, _NEXT)
    return int(state[_NEXT]) if state else None


def _stream_rows(cut: Cut, stream: int, panel: int) -> int:
    return int(cut.panels[panel] - cut.panels[cut.streams[stream]])


def _resume(fold: Fold, path: Path, first: int, place: Device) -> tuple[State, int]:
    state = load_if_whole(path)
    if state is None or _NEXT not in state:
        return fold.start(), first
    cores = (place.core_type(), str(state.pop(_CORE)))
    refuse_mixed(Report(frozenset((place.name, core) for core in cores), 0))
    return state, int(state.pop(_NEXT))


def _load_part(path: Path, end: int | None) -> State:
    """Sums and ledger of a stream or of a merge, from its file.

    ``end`` is the panel at which a stream ends, None for a merge. Raises ``StreamRolledBack`` if the file is
    not complete.
    """
    state = load_if_whole(path)
    if state is None:
        raise StreamRolledBack(f"{path} is not whole any more; the same command makes it again")
    if end is None:
        return state
    state.pop(_CORE)
    if int(state.pop(_NEXT)) != end:
        raise StreamRolledBack(
            f"{path} was set back to a panel before {end}; the same command goes on from there"
        )
    return state


def _merge(reference: ByReference[Sweep], level: int, index: int, *, lease: str) -> Report:
    """Merge the sums of streams, or of merges of the level below, in order: the task of merge ``index``.

    One of them at a time is in memory besides the total.
    """
    sweep = reference.value
    parts, into = sweep.parts_below(level, index), sweep.part(level, index)
    own = attempt(lease, sweep.concurrency)
    with own.merging(), one_blas_thread():
        if load_if_whole(into) is None:
            total = _load_part(*parts[0])
            ledger = Ledger.taken_from(total)
            for part in parts[1:]:
                own.end_if_stopped()
                other = _load_part(*part)
                ledger.add(Ledger.taken_from(other))
                sweep.fold.merge(total, other)
            require_ours(into.parent, lease)
            save_arrays(into, {**total, **ledger.as_arrays()})
    return Report(frozenset({(HOST.name, HOST.core_type())}), bytes_above_baseline())
