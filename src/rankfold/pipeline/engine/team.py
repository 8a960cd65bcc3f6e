"""Tasks that run at the same time, one in each process, and wait for each other. They are Dask tasks too.

Any other task of ours runs whenever a thread is free. Those of a team need each other. So each is bound to a
process that is present, and all of them end as soon as one process is gone: the driver checks every second.
Whatever ends a turn, the next one goes on from the last checkpoint, in the processes that are present then:
as many as are wanted, or after a while as few as the memory allows. Results must not depend on how many these
are.

The trap: a task of Dask that waits for another may wait forever. None of these does: while it waits, each
checks whether it was asked to stop, whether the folder still belongs to its attempt, and whether the other
has left.

Exchange of arrays between processes, each to all others, message by message, through files that all see.

Each process has a file with two slots. Message n goes into slot ``n mod 2``, and begins with its number and a
checksum: others poll until both are right. A process writes message n + 2 only when it has message n + 1 of
all others, which they have written after they had read its message n: nothing is overwritten that anybody
still needs.

Files have their full length before anybody begins, and are written in place. A network file system checks a
file again whenever it is opened. But it may cache for a minute that a name did not exist, or which file a
name stood for before it was replaced: files that are created, removed or renamed would be seen late.
"""

from __future__ import annotations

import contextlib
import functools
import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from dask import annotate  # type: ignore[attr-defined]  # as its documentation has it
from dask.delayed import Delayed, delayed

from rankfold.pipeline.engine.attempt import Attempt, attempt, end_attempt, new_lease, stop_attempt
from rankfold.pipeline.engine.durability import FilePolicy
from rankfold.pipeline.engine.memory import bytes_above_baseline
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Scheduler
from rankfold.pipeline.engine.sweep import LEASE, MOST_TURNS, require_ours, short
from rankfold.pipeline.errors import ClusterError, DamagedStateError, Interrupted
from rankfold.pipeline.machine import one_blas_thread
from rankfold.pipeline.regular import open_descriptor, open_regular
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.checkpoint import (
    State,
    checksum,
    disk_errors,
    flat_bytes,
    make_folder,
    save_arrays,
    save_json,
)
from rankfold.pipeline.storage.journal import Journal

Array = npt.NDArray[Any]

LOOK_SECONDS = 1.0
"""Seconds between two checks of which processes are present, and whether the attempt is still ours."""

GRACE_SECONDS = 20.0
"""Seconds to wait for all processes that are wanted, once there are enough of them."""

REGROUP_SECONDS = 60.0
"""Seconds after which a team that is too small begins again with processes that have joined."""

PATIENCE_SECONDS = 1800.0
"""Largest number of seconds that a task waits for one message, if nobody is left to stop it."""


class Work(Protocol):
    """Work that the processes of a team share. Picklable; holds paths and small arrays."""

    def do_part(self, member: Member) -> None:
        """Do the part of the process ``member`` to the end, unless ``member.look`` or ``swap`` raises."""


@dataclass(slots=True)
class Member:
    """One process of a team at work: its exchange with others, threads, and checkpoints."""

    exchange: Exchange
    threads: int
    folder: Path
    lease: str
    file_policy: FilePolicy
    attempt: Attempt
    next_look: float = 0.0
    messages: int = 0
    last_message: float = 0.0

    @property
    def part(self) -> int:
        """Number of this process in the team, from 0 on."""
        return self.exchange.part

    def swap(self, array: Array, ends: Sequence[int]) -> None:
        """Send own rows of an array to all other processes, and fill in theirs: see ``Exchange.swap``.

        While it waits, ``look`` may raise.
        """
        self.last_message = time.monotonic()
        self.messages += 1
        self.exchange.swap(self.messages, array, ends, self.look)

    def look(self) -> None:
        """Raise if this process is to stop, has waited too long, or its folder is another attempt's."""
        self.attempt.end_if_stopped()
        now = time.monotonic()
        if now > self.next_look:
            self.next_look = now + LOOK_SECONDS
            require_ours(self.folder, self.lease)
            if self.last_message and now - self.last_message > PATIENCE_SECONDS:
                raise PeerLeft(f"no message came for {PATIENCE_SECONDS:.0f} s")

    def save(self, path: Path, arrays: State) -> None:
        """Save arrays by name as a checkpoint; ``Interrupted`` if the folder belongs to another attempt."""
        require_ours(self.folder, self.lease)
        save_arrays(path, arrays, durable=self.file_policy.is_remote)


@dataclass(frozen=True, slots=True)
class TeamReport:
    """Peak memory of a process of the team above its baseline, in bytes, and the first error of one."""

    peak_bytes: int = 0
    error: Exception | None = None

    def __or__(self, other: TeamReport) -> TeamReport:
        return TeamReport(max(self.peak_bytes, other.peak_bytes), self.error or other.error)


class Disbanded(Exception):
    """Raised when a process of the team has gone, or more have joined."""


def equal_shares(pointers: npt.NDArray[np.int64], parts: int) -> tuple[int, ...]:
    """First row of each part, and the number of rows: parts have about equally many stored entries.

    ``pointers`` (rows + 1,) are the numbers of entries stored before each row, and in all.
    """
    shares = pointers[-1] * np.arange(1, parts) // parts
    return (0, *np.searchsorted(pointers, shares).tolist(), len(pointers) - 1)


@dataclass(frozen=True, slots=True)
class Team:
    """Processes that work together at one task: how many, on what, and how far its last checkpoint is."""

    name: str
    folder: Path
    """Folder of the checkpoint."""

    scratch: Path
    most: int
    """Number of processes that are wanted."""

    least: int
    """Fewest processes that have enough memory for the work."""

    threads: int
    """Number of threads of each process."""

    file_policy: FilePolicy
    journal: Journal
    work: Callable[[int], tuple[Work, Sequence[int]]]
    """Function of the number of processes; returns their work, and the most bytes of a message of each."""

    standing: Callable[[], int]
    """Function that returns how far the last checkpoint is, such as in rounds; ``run`` takes it to an end."""

    @classmethod
    def of(
        cls,
        run: Run,
        state: Path,
        parts: range,
        work: Callable[[int], tuple[Work, Sequence[int]]],
        standing: Callable[[], int],
    ) -> Team:
        """Make the team of a run, with the name of the folder of its checkpoint.

        Parameters
        ----------
        state : Path
            Path of the checkpoint.
        parts : range
            Numbers of processes that the team may have.
        work, standing : function
            As the fields of ``Team``.
        """
        name, most, least = state.parent.name, parts.stop - 1, parts.start
        how = run.concurrency, run.file_policy, run.journal(name)
        return cls(name, state.parent, run.scratch, most, least, *how, work, standing)

    def run(self, end: int, scheduler: Scheduler, watch: Callable[[int], None]) -> int:
        """Work until ``standing()`` is ``end``; returns the peak bytes of a process above its baseline.

        ``watch`` is called, about once a second, with the number of rows done.
        """
        make_folder(self.folder)
        peak, idle, before = 0, 0, self.standing()
        while before < end:
            members = self._gather(scheduler)
            report = self._turn(members, scheduler, watch)
            peak = max(peak, report.peak_bytes)
            if report.error is not None:
                raise report.error
            now = self.standing()
            idle, before = 0 if now > before else idle + 1, now
            if idle == MOST_TURNS * 4:
                raise ClusterError(
                    f"{idle} times in a row workers were lost before they came to a checkpoint. What was "
                    "finished is kept; see the logs of the workers, and give the same command again to go on"
                )
        return peak

    def _gather(self, scheduler: Scheduler) -> tuple[str, ...]:
        """Wait for enough processes for a turn, and return their addresses, at most ``most``.

        After ``GRACE_SECONDS``, ``least`` are enough.
        """
        began = time.monotonic()
        while True:
            here = scheduler.members()
            waited = time.monotonic() - began
            if len(here) >= self.most or (len(here) >= self.least and waited > GRACE_SECONDS):
                return here[: self.most]
            time.sleep(0.1)

    def _turn(
        self, members: tuple[str, ...], scheduler: Scheduler, watch: Callable[[int], None]
    ) -> TeamReport:
        """Make one attempt with the given members, until one of them is gone or another process has joined.

        ``watch`` is called with the number of rows done.
        """
        lease = new_lease(self.folder)
        save_json(self.folder / LEASE, lease, durable=False)
        exchange = self.scratch / f"exchange-{short(lease)}"
        own = attempt(lease, self.threads)
        began = next_look = time.monotonic()

        def look() -> None:
            nonlocal next_look
            watch(own.rows_done)
            now = time.monotonic()
            if now < next_look:
                return
            next_look = now + LOOK_SECONDS
            here = scheduler.members()
            if set(members) - set(here):
                raise Disbanded("a worker has gone")
            if len(members) < min(self.most, len(here)) and now - began > REGROUP_SECONDS:
                raise Disbanded("another worker has come")

        try:
            report: TeamReport = scheduler.compute(
                self._graph(members, exchange, lease),
                concurrency=self.threads,
                watch=look,
                stop=functools.partial(stop_attempt, lease),
            )
            return report
        except Disbanded:
            return TeamReport()
        finally:
            end_attempt(lease)
            remove(exchange)

    def _graph(self, members: Sequence[str], folder: Path, lease: str) -> Delayed:
        """Dask graph with a task in each process, and one that joins reports; messages go to ``folder``."""
        work, capacities = self.work(len(members))
        reports = []
        for address, exchange in zip(members, Exchange.create(folder, capacities), strict=True):
            with annotate(workers=[address], allow_other_workers=False):
                reports.append(
                    delayed(_take_part, pure=True)(
                        work,
                        exchange,
                        self.folder,
                        lease=lease,
                        threads=self.threads,
                        file_policy=self.file_policy,
                        journal=self.journal,
                        dask_key_name=(f"{self.name}-part-{short(lease)}", exchange.part),
                    )
                )
        return delayed(_join, pure=True)(reports, dask_key_name=f"{self.name}-all-{short(lease)}")  # type: ignore[no-any-return]


def _take_part(
    work: Work,
    exchange: Exchange,
    folder: Path,
    *,
    lease: str,
    threads: int,
    file_policy: FilePolicy,
    journal: Journal,
) -> TeamReport:
    """Do the part of one process, and report errors.

    It never fails, since Dask would run a failed task again while others are far ahead.
    """
    own = attempt(lease, threads)
    error: Exception | None = None
    with own.working(), one_blas_thread(), journal.segment(exchange.part):
        try:
            work.do_part(Member(exchange, threads, folder, lease, file_policy, own))
        except (PeerLeft, Interrupted) as ending:
            error = ending if isinstance(ending, DamagedStateError) else None
        except Exception as problem:  # noqa: BLE001 - raised by the driver
            error = None if own.stopped else problem
        finally:
            with contextlib.suppress(PeerLeft, OSError):  # the folder may have gone with the attempt
                exchange.leave()
        peak = bytes_above_baseline()
    return TeamReport(peak, error)


def _join(reports: list[TeamReport]) -> TeamReport:
    return functools.reduce(TeamReport.__or__, reports, TeamReport())


HEAD = struct.Struct("<QII")
"""Header of a message: its number, its checksum, and 0."""

FIRST_SLOT = 64
"""Bytes before the first slot; the first byte says whether the process has left."""

SHORTEST_SECONDS, LONGEST_SECONDS = 1e-4, 5e-3
"""Shortest and longest pause between two looks at a message that has not arrived."""


class PeerLeft(Exception):
    """Raised when another process has ended before it sent a message that was waited for."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """End of one process in an exchange of arrays among several; picklable."""

    folder: Path
    """Folder of the files for messages."""

    part: int
    """Number of this process, from 0 on."""

    capacities: tuple[int, ...]
    """(processes,) most bytes of a message of each process."""

    @classmethod
    def create(cls, folder: Path, capacities: Sequence[int]) -> tuple[Exchange, ...]:
        """Create the files of an exchange in ``folder``; returns the end of each process.

        ``capacities`` (processes,) are the most bytes of a message of each.
        """
        make_folder(folder)
        parts = tuple(cls(folder, part, tuple(capacities)) for part in range(len(capacities)))
        for each in parts:
            path = each.path(each.part)
            with disk_errors(path), open_regular(path, "wb") as file:
                file.truncate(each._start(each.part, 2))
                os.fsync(file.fileno())
        return parts

    def path(self, part: int) -> Path:
        """Path of the file that a process writes."""
        return self.folder / f"part-{part:05d}"

    def swap(
        self, number: int, array: Array, ends: Sequence[int], watch: Callable[[], None] = lambda: None
    ) -> None:
        """Send own rows of an array to all other processes, and fill in their rows, in place.

        Parameters
        ----------
        number : int, from 1 on
            Number of the message: the same in all processes, one more in each call.
        array : (n, ...)
            Rows of all processes.
        ends : (processes + 1,)
            Rows ``ends[p]:ends[p + 1]`` of ``array`` are those of process p.
        watch : function
            Called while others are waited for; may raise.
        """
        own = array[ends[self.part] : ends[self.part + 1]]
        self._send(number, own)
        for part in range(len(self.capacities)):
            if part != self.part:  # also of those without rows: nobody may be two messages ahead
                self._receive(number, part, array[ends[part] : ends[part + 1]], watch)

    def leave(self) -> None:
        """Announce that this process will send no more messages."""
        with self._opened(self.part, os.O_WRONLY) as file:
            os.pwrite(file, b"\1", 0)

    def _send(self, number: int, values: Array) -> None:
        start, data = self._start(self.part, number % 2), flat_bytes(np.ascontiguousarray(values))
        head = HEAD.pack(number, checksum(data), 0)
        with disk_errors(self.path(self.part)), self._opened(self.part, os.O_WRONLY) as file:
            os.pwrite(file, data.data, start + HEAD.size)
            os.pwrite(file, head, start)

    def _receive(self, number: int, part: int, out: Array, watch: Callable[[], None]) -> None:
        pause, data, start = SHORTEST_SECONDS, flat_bytes(out), self._start(part, number % 2)
        while True:
            # Opened again for each look: only then does a network file system check whether it has changed.
            with self._opened(part, os.O_RDONLY) as file:
                sent, own_sum, _ = HEAD.unpack(os.pread(file, HEAD.size, start))
                if sent == number:
                    read = os.preadv(file, [data.data], start + HEAD.size)
                    if read == len(data) and checksum(data) == own_sum:
                        return
                elif os.pread(file, 1, 0) == b"\1":
                    raise PeerLeft(f"process {part} left before message {number}")
            watch()
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_SECONDS)

    @contextlib.contextmanager
    def _opened(self, part: int, flags: int) -> Iterator[int]:
        try:
            file = open_descriptor(self.path(part), flags)
        except FileNotFoundError:
            raise PeerLeft(f"{self.folder} has gone with its attempt") from None
        try:
            yield file
        finally:
            os.close(file)

    def _start(self, part: int, slot: int) -> int:
        room = -(-(HEAD.size + self.capacities[part]) // FIRST_SLOT) * FIRST_SLOT
        return FIRST_SLOT + slot * room
