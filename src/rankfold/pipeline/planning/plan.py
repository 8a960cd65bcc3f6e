"""The plan of a task: passes, bytes, flops, memory, scratch, tasks, and whether they fit.

A plan is computed from shapes alone, by the same formulas that the folds allocate by. What does not fit is
refused, with the number that is missing and a change that would do.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import DiskSpaceError, argument
from rankfold.pipeline.machine import bytes_under, device_of, free_bytes, nearest_folder
from rankfold.pipeline.planning.passes import Pass
from rankfold.pipeline.planning.scaling import Scaling, scaling_of
from rankfold.pipeline.planning.seconds import Rates, Seconds, predicted_seconds
from rankfold.pipeline.planning.table import passes_note, table
from rankfold.pipeline.planning.traffic import Traffic
from rankfold.pipeline.units import format_bytes


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """All that is known of a task before the first byte is read: passes, bytes, memory, tasks, time."""

    kind: str
    method: str
    shape: tuple[int, int]
    dtype: str
    working_dtype: str
    orientation: str
    rank: int
    adaptive: bool
    """True if the tolerance decides the number of components, which is at most ``rank``."""

    width: int
    """Number of columns of a block of vectors, or another number that the table shows in its place."""

    grain_rows: int
    panel_rows: int
    passes: tuple[Pass, ...]
    most_passes: int
    """Largest number of sweeps over the matrix; a method that stops on its tolerance may make fewer."""

    likely_passes: int
    """Number of sweeps over the matrix that is expected."""

    concurrency: int
    """Segments (parts of a sweep) that one worker runs at once within its memory."""

    slots: int
    """Number of panels (rows read at once) that a segment holds in memory at a time.

    2 if the next one is read ahead, 1 if memory does not allow that or the matrix is in memory; on a GPU 2
    more than there are threads that read.
    """

    driver_bytes: int
    """Bytes that the algebra between sweeps takes in the driver."""

    peak_bytes: int
    """Largest bytes of one worker process above its baseline."""

    budget_bytes: int
    """Bytes above its baseline that one worker process may use."""

    scratch_bytes: int
    result_bytes: int
    checkpoint_bytes: int
    """Bytes on disk of checkpoints, and of results of the steps of a chain, until the result is complete."""

    useful_workers: int
    """Largest number of worker processes that have something to do; see also ``scaling``."""

    seconds: float | None
    """Predicted time in seconds; None without a prediction."""

    decided_by: str = ""
    """Property of the data that decides the number of passes; empty where the request does."""

    groups: int = 0
    """Number of groups (blocks of rows that a task holds in memory) in a sweep over pairs of rows; else 0."""

    device: str = "cpu"
    """Device of the sweeps that have code for it, ``"cpu"`` or ``"gpu"``."""

    comparison: str = ""
    """Text on the operations of two methods, if the plan chose between these; else empty."""

    traffic: Traffic | None = None
    """Traffic between workers, if a matrix product decides it; else None."""

    shares: Seconds | None = None
    """Parts of ``seconds``: start, reading, decoding and computing; None without a prediction."""

    details: tuple[tuple[str, str], ...] = ()
    """Lines that the table shows, as (name, text), in place of the line on the width of blocks."""

    notes: tuple[str, ...] = ()
    """Texts on the matrix that are worth knowing before it is read."""

    bandwidth: float = 0.0
    """Bytes per second that the file system gives all workers together; 0 if that is not known."""

    @property
    def tasks(self) -> int:
        """Number of Dask tasks in all."""
        return sum(p.tasks for p in self.passes)

    @property
    def reads_bytes(self) -> int:
        """Bytes of the matrix read in all passes together."""
        return sum(p.reads_bytes for p in self.passes if p.over == "matrix")

    @property
    def device_bytes(self) -> int:
        """Upper bound on the memory of a GPU, without what its libraries take."""
        return max((p.device_bytes for p in self.passes), default=0) if self.device != "cpu" else 0

    @property
    def upload_bytes(self) -> int:
        """Upper bound on the bytes copied to a GPU in all sweeps that run there, if no panel stays there."""
        return sum(p.reads_bytes for p in self.passes if p.on_device) if self.device != "cpu" else 0

    @property
    def likely_sweeps(self) -> list[Pass]:
        """Sweeps of the plan except those over the matrix that the method will probably not make."""
        matrix = [p for p in self.passes if p.over == "matrix"]
        if self.likely_passes < self.most_passes:
            matrix = sorted(matrix, key=lambda p: not p.is_likely)[: self.likely_passes]
        return [*matrix, *(p for p in self.passes if p.over == "scratch")]

    @property
    def scaling(self) -> Scaling:
        """Number of workers beyond which more do not help, and why."""
        return scaling_of(self)

    def with_seconds(self, rates: Rates, source: Source, workers: int) -> Plan:
        """Copy of this plan with predicted seconds, for ``workers`` processes of cores with these rates.

        One panel of ``source``, the matrix, is read to measure how fast that is.

        A plan for a GPU stays as it is: rates are those of a core.
        """
        if self.device != "cpu":
            return self
        shares = predicted_seconds(self, rates, source, workers)
        return dataclasses.replace(self, seconds=shares.total, shares=shares)

    def as_dict(self) -> dict[str, Any]:
        """The plan as a dict, for JSON."""
        sums: dict[str, Any] = {"tasks": self.tasks, "reads_bytes": self.reads_bytes}
        if self.device != "cpu":
            sums |= {"device_bytes": self.device_bytes, "upload_bytes": self.upload_bytes}
        sums |= {"scaling": dataclasses.asdict(self.scaling), "passes_note": passes_note(self)}
        return {**dataclasses.asdict(self), **sums}

    def __str__(self) -> str:
        return table(self)

    def __repr__(self) -> str:
        return table(self)


def check_disk(plan: Plan, scratch: Path, run: Path) -> None:
    """Raise ``DiskSpaceError`` where a file system has too little room for the files of a plan.

    Parameters
    ----------
    plan
        Plan with the bytes to be written: scratch, checkpoints and the result.
    scratch
        Folder of scratch, which need not exist.
    run
        Folder next to the output, in which checkpoints and the result grow. It need not exist.

    Notes
    -----
    Scratch on the file system of that folder takes from the same room. What an earlier attempt has left in
    these folders counts as room.
    """
    kept, lines = plan.result_bytes + plan.checkpoint_bytes, []
    if device_of(scratch) == device_of(run):
        folders = (run,) if run in scratch.parents else (run, scratch)
        if missing := _missing_bytes(plan.scratch_bytes + kept, *folders):
            lines.append(
                f"scratch and result take {format_bytes(plan.scratch_bytes + kept)}, but {_room(run)}. Free "
                f"some space, or move scratch, {argument('scratch')}, or the result, {argument('out')}"
                f"{_narrower(plan, missing)}."
            )
    else:
        if missing := _missing_bytes(plan.scratch_bytes, scratch):
            lines.append(
                f"scratch takes {format_bytes(plan.scratch_bytes)}, but {_room(scratch)}. Free some "
                f"space, or move scratch, {argument('scratch')}{_narrower(plan, missing)}."
            )
        if _missing_bytes(kept, run):
            lines.append(
                f"the result and its checkpoints take {format_bytes(kept)}, but {_room(run)}. Free some "
                f"space, or move the result, {argument('out')}."
            )
    if lines:
        raise DiskSpaceError(" ".join(lines))


def _missing_bytes(need: int, *folders: Path) -> int:
    """Bytes by which ``need`` bytes exceed the room for folders on one file system; 0 if there is room.

    What is in the folders already counts as room.
    """
    missing = need - free_bytes(folders[0])
    if missing > 0:  # counts every file, so only where it matters
        missing -= sum(map(bytes_under, folders))
    return max(0, missing)


def _room(folder: Path) -> str:
    return f"{nearest_folder(folder)} has {format_bytes(free_bytes(folder))} free"


def _narrower(plan: Plan, missing: int) -> str:
    """Text that proposes a solver with less scratch, if that saves the ``missing`` bytes; else empty."""
    long = plan.shape[0 if plan.orientation == "rows" else 1]
    scratch = long * (plan.width * np.dtype(plan.working_dtype).itemsize + 16)
    if plan.method != "krylov" or plan.scratch_bytes - scratch < missing:
        return ""
    return (
        f", or take solver='subspace' (--solver subspace), whose scratch is {format_bytes(scratch)} however "
        "many its passes"
    )
