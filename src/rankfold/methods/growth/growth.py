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
"""Values of the argument ``grows``: read only the new rows, or fit all rows, starting from the earlier
result."""

ORIGIN = "grown_from"
"""Key in the request of a grown result, whose value is the digest of the result that it continued."""


@dataclass(frozen=True, slots=True)
class Step:
    """Task by which a method makes a result of all rows, usually from an earlier result and the new rows."""

    task: Task
    """Task that, when carried out, writes the result of all rows."""

    rows_read: int
    """Number of rows of the matrix that the task reads at least once."""


@dataclass(frozen=True, slots=True)
class ContinuedTask:
    """Task that wraps the task of ``step`` and records in the result which rows it was made from."""

    asked: Task
    """Task on all rows, as it was asked for."""

    step: Step
    """Task that is carried out in place of ``asked``, and the number of rows that it reads."""

    additions: tuple[tuple[int, int], ...]
    """Rows that the result was made from, (first, one past the last): of the first fit, then of each
    addition."""

    origin: str = ""
    """Digest of the earlier result that is continued; empty if the result begins anew."""

    replaces: bool = False
    """True if an earlier state of the result exists at its path and is to be replaced."""

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
        """The request of ``asked``, with ``origin`` under the key ``ORIGIN`` unless that is empty."""
        return {**self.asked.request(), **({ORIGIN: self.origin} if self.origin else {})}

    def outputs(self) -> tuple[Output, ...]:
        """Arrays that the result will have."""
        return self.step.task.outputs()

    def loops(self) -> dict[str, Any]:
        """Facts that compiled loops depend on besides the request; empty if the task of ``step`` has none."""
        return self.step.task.loops() if hasattr(self.step.task, "loops") else {}

    def plan(self, budget: Budget) -> Plan:
        """Plan of the task of ``step``."""
        return self.step.task.plan(budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Record rows and their marks, and carry out the task of ``step``; return the facts of the result.

        Marks are digests of the rows, by which a later call finds out if they have changed. ``fingerprint``
        is that of the matrix of all rows.
        """
        marks = row_marks(self.source, self.source.shape[0]).as_dict()
        run.request = self.request()
        run.growth = {
            "rows": [list(each) for each in self.additions],
            "rows_read": self.step.rows_read,
            "row_marks": marks,
        }
        return self.step.task.work(run, fingerprint)


def grow(task: Task, grows: str, out: Path, device: str, *, redo: bool) -> ContinuedTask | None:
    """Decide how to make a result that grows: continue, or begin anew; None if it includes all rows already.

    Parameters
    ----------
    task
        Task on all rows.
    grows
        One of ``GROWS``.
    out
        Path of the result, whether it exists or not.
    device
        Device that the result is to be computed on; one from another device is not continued.
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
    """Task that makes the result from all rows; ``InputError`` if the method or its matrix cannot grow."""
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
    """The result at ``out`` if it answers the request of ``task``, perhaps for fewer rows, else None.

    It must be of the same ``device`` and of the current edition of the method.
    """
    try:
        result = Result(out)
    except InputError:
        return None
    request, attrs = task.request(), result.attrs
    mine, other = _asked(request, task.source.shape), _asked(attrs["request"], attrs["input"]["shape"])
    same = mine == other and attrs.get("device", "cpu") == device
    return result if same and attrs.get("edition", 1) == edition_of(request["kind"]) else None


def _asked(request: Mapping[str, Any], shape: Sequence[int]) -> dict[str, Any]:
    """The request without the entries that its matrix's ``shape`` or an earlier result determines."""
    kind = str(request["kind"])
    by_shape = METHODS[kind].by_shape if kind in METHODS else ()
    parts = (ORIGIN, *by_shape, *["rank"] * (bool(by_shape) and request["rank"] == min(shape)))
    return {name: value for name, value in request.items() if name not in parts}


def _change(source: Source, attrs: Mapping[str, Any], first: int) -> str:
    """Text on how the ``first`` rows differ from those that a result was made from; empty if they do not.

    ``attrs`` are the attributes of that result.
    """
    if "row_marks" not in attrs:
        return "it was made without grows, so that nothing tells whether they are the same"
    if source.shape[0] < first:
        return f"there are {source.shape[0]} rows now"
    if source.shape[1] != attrs["input"]["shape"][1]:
        return f"there are {source.shape[1]} columns now, and were {attrs['input']['shape'][1]}"
    return row_marks(source, first).change_since(attrs["row_marks"])


def _origin(earlier: Result) -> str:
    """Digest of the request of ``earlier``, which includes the results before it, and of its matrix."""
    return digest([earlier.attrs["request"], earlier.attrs["input"]["fingerprint"]])
