"""An earlier result and a matrix that has gained rows since: whether to go on, to begin anew, or to refuse.

A result that is to grow keeps marks of the rows that it stands on: see ``pipeline.chunks.row_marks``. As long
as the first rows of the matrix have the same marks, rows behind them are new, and the method goes on from
what it has. Marks are taken before anything else is read, so that a change meanwhile is a change the next
time.
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
"""What is read when rows have come: these alone, or then all rows, from what there is as a start."""

ORIGIN = "grown_from"
"""Part of the request of a result that stands for the one before it."""

BY_SHAPE = {"svd": ("method", "passes", "oversampling"), "pca": ("method", "passes", "oversampling")}
"""Parts of a request, by its kind, that follow from the shape of the matrix where nobody asks for them."""


@dataclass(frozen=True, slots=True)
class Step:
    """How a method takes in rows."""

    task: Task
    """What does it."""

    rows_read: int
    """Rows of the matrix that it reads at least once."""


@dataclass(frozen=True, slots=True)
class Growing:
    """A task whose result keeps which rows it stands on."""

    asked: Task
    """Of all rows, as it was asked for."""

    step: Step
    additions: tuple[tuple[int, int], ...]
    """Rows that the result stands on, (first, one past the last) of each addition."""

    origin: str = ""
    """Digest of the result that it goes on from; nothing where it begins anew."""

    replaces: bool = False
    """Whether what is there is an earlier state of it."""

    @property
    def source(self) -> Source:
        """See the protocol."""
        return self.asked.source

    @property
    def new_rows(self) -> int:
        """Rows of the last addition."""
        first, last = self.additions[-1]
        return last - first

    def request(self) -> dict[str, Any]:
        """See the protocol."""
        return {**self.asked.request(), **({ORIGIN: self.origin} if self.origin else {})}

    def outputs(self) -> tuple[Output, ...]:
        """See the protocol."""
        return self.step.task.outputs()

    def loops(self) -> dict[str, Any]:
        """What compiled loops depend on besides the request."""
        return self.step.task.loops() if hasattr(self.step.task, "loops") else {}

    def plan(self, budget: Budget) -> Plan:
        """See the protocol."""
        return self.step.task.plan(budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """See the protocol."""
        marks = row_marks(self.source, self.source.shape[0]).as_dict()
        run.request = self.request()
        run.growth = {
            "rows": [list(each) for each in self.additions],
            "rows_read": self.step.rows_read,
            "row_marks": marks,
        }
        return self.step.task.work(run, fingerprint)


def grow(task: Task, grows: str, out: Path, device: str, *, redo: bool) -> Growing | None:
    """What is to be done for a task whose result grows; None where that stands on all rows already.

    Parameters
    ----------
    task
        Of all rows.
    grows
        One of ``GROWS``.
    out
        Where the result is, or will be.
    redo
        Whether to begin anew where rows have changed that the result stands on.

    Raises
    ------
    InputError
        The method does not grow, or nothing tells first rows of its matrix from others.
    OutputError
        Rows have changed.
    """
    anew = _anew(task, grows)
    earlier = _earlier(out, task, device)
    if earlier is None:
        return anew
    damage = damage_of(out)
    replacement = Growing(anew.asked, anew.step, anew.additions, replaces=True)
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
    return Growing(task, step, (*additions, (first, last)), _origin(earlier), replaces=True)


def _anew(task: Task, grows: str) -> Growing:
    """The task itself, of a method that will go on from its result."""
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
    return Growing(task, Step(task, rows), ((0, rows),))


def _kind(task: Task) -> str:
    return str(task.request()["kind"])


def _earlier(out: Path, task: Task, device: str) -> Result | None:
    """The result that is there, if it answers the same request of an earlier state of the matrix."""
    try:
        result = Result(out)
    except InputError:
        return None
    request, attrs = task.request(), result.attrs
    mine, other = _asked(request, task.source.shape), _asked(attrs["request"], attrs["input"]["shape"])
    same = mine == other and attrs.get("device", "cpu") == device
    return result if same and attrs.get("edition", 1) == edition_of(request["kind"]) else None


def _asked(request: Mapping[str, Any], shape: Sequence[int]) -> dict[str, Any]:
    """A request without what follows from the shape of its matrix, or from an earlier result."""
    kind = str(request["kind"])
    parts = (
        ORIGIN,
        *BY_SHAPE.get(kind, ()),
        *["rank"] * (kind in BY_SHAPE and request["rank"] == min(shape)),
    )
    return {name: value for name, value in request.items() if name not in parts}


def _change(source: Source, attrs: Mapping[str, Any], first: int) -> str:
    """What has changed in the rows that a result stands on, in words; nothing if nothing has."""
    if "row_marks" not in attrs:
        return "it was made without grows, so that nothing tells whether they are the same"
    if source.shape[0] < first:
        return f"there are {source.shape[0]} rows now"
    if source.shape[1] != attrs["input"]["shape"][1]:
        return f"there are {source.shape[1]} columns now, and were {attrs['input']['shape'][1]}"
    return row_marks(source, first).change_since(attrs["row_marks"])


def _origin(earlier: Result) -> str:
    """Digest of the request of a result, those before it included, and of its matrix."""
    return digest([earlier.attrs["request"], earlier.attrs["input"]["fingerprint"]])
