"""The protocol of a task, which every method makes: it can be planned and run, on any scheduler."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rankfold.pipeline.chunks.absence import Absence
from rankfold.pipeline.data.source import Chunked

if TYPE_CHECKING:
    import numpy as np

    from rankfold.pipeline.data.source import Source
    from rankfold.pipeline.engine.run import Run
    from rankfold.pipeline.engine.scheduler import Budget
    from rankfold.pipeline.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class Output:
    """Declaration of an array of a result, without its values."""

    name: str
    """Name of the array; empty if the result is the array itself."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: int = 1
    sparse: bool = False
    """True for a sparse matrix, stored as three vectors (CSR); ``chunks`` counts those of all three."""

    stored: int = 0
    """Upper bound on the number of stored entries of a sparse matrix."""

    compressed: bool = False
    """True if the column indices of a sparse matrix are compressed, as ``CsrWriter`` writes them."""

    @property
    def files(self) -> int:
        """Upper bound on the number of files that store the array: chunks and metadata."""
        return self.chunks + (4 if self.sparse else 1)


def vectors(length: int, *names: str) -> tuple[Output, ...]:
    """Declare arrays of shape (length,) in float64, one for each name."""
    import numpy as np

    return tuple(Output(name, (length,), np.dtype(np.float64)) for name in names)


def count(length: int, chunk: int) -> int:
    """Number of chunks of ``chunk`` elements along an axis of ``length``; the last may be shorter."""
    return -(-length // max(1, chunk))


class Task(Protocol):
    """Protocol of a task: a matrix, and a computation on it that can be planned and run."""

    @property
    def source(self) -> Source:
        """The matrix that the task reads."""

    def request(self) -> dict[str, Any]:
        """Everything besides the numbers in ``source`` that determines the result, as JSON types."""

    def outputs(self) -> tuple[Output, ...]:
        """Declare the arrays of the result; if the run finds the rank, for the largest rank."""

    def plan(self, budget: Budget) -> Plan:
        """Plan passes, memory and disk space; raises ``PlanError`` if something does not fit ``budget``."""

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Write the result into ``run.result``; returns its facts (metadata), including ``warnings``.

        ``fingerprint`` is that of ``source``, for the facts.
        """


FILES_OF_A_PLAN = 1024
"""Largest number of files of a matrix that are looked for when a plan is made, to report missing chunks."""


def absences_of(task: object, most: int) -> dict[str, Absence]:
    """Missing chunks in the stores of the matrices of a task, by name of the matrix; {} if all are complete.

    ``most`` is the largest number of files that are looked for in each store.
    """
    from rankfold.pipeline.engine.run import values_in

    kind: Any = Chunked  # a protocol, which type checkers let no function take
    source = getattr(task, "source", None)
    found = {}
    for each in [*([] if source is None else [source]), *values_in(task, kind)]:
        absence = each.absent_chunks(most) if isinstance(each, Chunked) and each.name not in found else None
        if absence is not None and absence.count:
            found[each.name] = absence
    return found


def make_plan(task: Task, budget: Budget) -> Plan:
    """Plan a task, with notes on chunks that its matrices lack.

    Raises
    ------
    InputError
        GPUs would be reserved, but no pass runs on them.
    """
    from rankfold.pipeline.errors import InputError

    plan = task.plan(budget)
    absences = absences_of(task, FILES_OF_A_PLAN)
    notes = tuple(f"{name}: {absence}" for name, absence in absences.items())
    plan = dataclasses.replace(plan, notes=notes) if notes else plan
    if plan.device != "cpu" and not any(each.on_device for each in plan.passes):
        raise InputError(
            f"this {plan.kind} by {plan.method} has no code for a GPU, which would stand idle: leave out "
            "device='gpu' (--device gpu), and gpus: in the profile. Searches for neighbors run there by "
            "metrics that products bound, of 16 columns or more"
        )
    return plan
