"""An earlier result and a matrix that has gained rows since: continue, begin anew, or refuse.

A result that is to grow keeps marks (digests) of the rows that it was made from: see
``pipeline.chunks.row_marks``. As long as the first rows of the matrix have the same marks, rows after them
are new, and the method continues from the earlier result. Marks are taken before anything else is read, so a
change during the run is detected the next time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankfold.methods.registry import METHODS, edition_of, methods
from rankfold.methods.task import Output, Task
from rankfold.pipeline.data.source import Source, row_marks
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError, OutputError
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.storage.manifest import damage_in_words, damage_of
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.storage.run_directory import digest
from rankfold.pipeline.text import suggest_name

LOG = logging.getLogger("rankfold")

GROWS = ("rows", "polish")
"""Ways to grow: read only the new rows, or fit all rows, starting from the earlier result."""

ORIGIN = "grown_from"
"""Key in the request of a grown result for the digest of the result before it."""


@dataclass(frozen=True, slots=True)
class Step:
    """Way of a method to make a result of all rows, usually from an earlier result and the new rows."""

    task: Task
    """Task that, when carried out, writes the result of all rows."""

    rows_read: int
    """Rows of the matrix that it reads at least once."""


@dataclass(frozen=True, slots=True)
class ContinuedTask:
    """Task whose result records the rows that it was made from."""

    asked: Task
    """Task on all rows, as it was asked for."""

    step: Step
    """Task that is carried out instead, and the number of rows that it reads."""

    additions: tuple[tuple[int, int], ...]
    """Rows that the result was made from: (first, one past the last) of the first fit and each addition."""

    origin: str = ""
    """Digest of the result that it continues; empty if it begins anew."""

    replaces: bool = False
    """True if an earlier state of the result exists at its path."""

    @property
    def source(self) -> Source:
        """The matrix of all rows."""
        return self.asked.source

    @property
    def new_rows(self) -> int:
        """Number of rows of the last addition."""
        first, last = self.additions[-1]
        return last - first

    def request(self) -> dict[str, Any]:
        """The request for all rows, with the digest of the result that it continues."""
        return {**self.asked.request(), **({ORIGIN: self.origin} if self.origin else {})}

    def outputs(self) -> tuple[Output, ...]:
        """Arrays that the result will have."""
        return self.step.task.outputs()

    def loops(self) -> dict[str, Any]:
        """Facts that compiled loops depend on in addition to the request."""
        return self.step.task.loops() if hasattr(self.step.task, "loops") else {}

    def plan(self, budget: Budget) -> Plan:
        """Plan of the task that is carried out."""
        return self.step.task.plan(budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Record rows and their marks, and carry out the task of ``step``; return the facts of the result."""
        marks = row_marks(self.source, self.source.shape[0]).as_dict()
        run.request = self.request()
        run.growth = {
            "rows": [list(each) for each in self.additions],
            "rows_read": self.step.rows_read,
            "row_marks": marks,
        }
        return self.step.task.work(run, fingerprint)


def grow(task: Task, grows: str, out: Path, device: str, *, redo: bool) -> ContinuedTask | None:
    """Decide what to do for a task whose result grows; None if the result includes all rows already.

    Parameters
    ----------
    task
        Task on all rows.
    grows
        One of ``GROWS``.
    out
        Path of the result, whether it exists or not.
    redo
        True to begin anew if rows have changed that the result was made from.

    Raises
    ------
    InputError
        The method does not grow, or its matrix gives no marks (digests) of its first rows.
    OutputError
        Rows of the result have changed, and ``redo`` is False.
    """
    anew = _anew(task, grows)
    earlier = _earlier(out, task, device)
    if earlier is None:
        return anew
    damage = damage_of(out)
    replacement = ContinuedTask(anew.asked, anew.step, anew.additions, replaces=True)
    if damage:
        LOG.warning("%s. It is made again", damage_in_words(out, damage))
        return replacement
    earlier.require_lawful(*earlier)
    if earlier.attrs["input"]["fingerprint"] == task.source.fingerprint():
        return None
    first, last = int(earlier.attrs["input"]["shape"][0]), task.source.shape[0]
    change = _change(task.source, earlier.attrs, first)
    if change and not redo:
        raise OutputError(
            f"{out} stands on {first} rows of {task.source.name}, which it cannot go on from: {change}. "
            "Restore them, or begin anew from all rows with overwrite=True (--overwrite) (in a workflow "
            "changed: redo)."
        )
    if change:
        return replacement
    if first == last:
        return None
    step = METHODS[_kind(task)].grow(task, earlier, first, grows)
    additions = tuple((int(a), int(b)) for a, b in earlier.attrs["rows"])
    return ContinuedTask(task, step, (*additions, (first, last)), _origin(earlier), replaces=True)


def _anew(task: Task, grows: str) -> ContinuedTask:
    """The task on all rows, begun anew, after checks that the method and its matrix can grow."""
    if grows not in GROWS:
        raise InputError(
            f"grows must be one of {', '.join(GROWS)}, not {grows!r}{suggest_name(grows, GROWS)}"
        )
    kind, rows = _kind(task), task.source.shape[0]
    if not METHODS[kind].growth:
        able = ", ".join(each.name for each in methods() if each.growth)
        raise InputError(f"{kind} does not go on from an earlier result: leave out grows, which is of {able}")
    METHODS[kind].grow(task, None, 0, grows)
    row_marks(task.source, 0)
    return ContinuedTask(task, Step(task, rows), ((0, rows),))


def _kind(task: Task) -> str:
    return str(task.request()["kind"])


def _earlier(out: Path, task: Task, device: str) -> Result | None:
    """The result at ``out`` if it answers the same request for an earlier state of the matrix, else None."""
    try:
        result = Result(out)
    except InputError:
        return None
    request, attrs = task.request(), result.attrs
    mine, other = _asked(request, task.source.shape), _asked(attrs["request"], attrs["input"]["shape"])
    same = mine == other and attrs.get("device", "cpu") == device
    return result if same and attrs.get("edition", 1) == edition_of(request["kind"]) else None


def _asked(request: Mapping[str, Any], shape: Sequence[int]) -> dict[str, Any]:
    """The fields of a request that follow neither from the shape of its matrix nor from an earlier result."""
    kind = str(request["kind"])
    by_shape = METHODS[kind].by_shape if kind in METHODS else ()
    parts = (ORIGIN, *by_shape, *["rank"] * (bool(by_shape) and request["rank"] == min(shape)))
    return {name: value for name, value in request.items() if name not in parts}


def _change(source: Source, attrs: Mapping[str, Any], first: int) -> str:
    """Text of the change in the rows that a result was made from; empty if there is none."""
    if "row_marks" not in attrs:
        return "it was made without grows, so that nothing tells whether they are the same"
    if source.shape[0] < first:
        return f"there are {source.shape[0]} rows now"
    if source.shape[1] != attrs["input"]["shape"][1]:
        return f"there are {source.shape[1]} columns now, and were {attrs['input']['shape'][1]}"
    return row_marks(source, first).change_since(attrs["row_marks"])


def _origin(earlier: Result) -> str:
    """Digest of a result's request, which includes the results before it, and of its matrix."""
    return digest([earlier.attrs["request"], earlier.attrs["input"]["fingerprint"]])
