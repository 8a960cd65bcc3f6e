"""What every method gives: a task that can be planned and carried out, wherever it runs."""

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
    """An array of a result."""

    name: str
    """Empty where the result is the array itself."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: int = 1
    sparse: bool = False
    """Whether it is a group of vectors in compressed rows; ``chunks`` counts those of all three."""

    stored: int = 0
    """Numbers that such a group stores, at most."""

    @property
    def files(self) -> int:
        """Chunks and metadata, at most."""
        return self.chunks + (4 if self.sparse else 1)


def vectors(length: int, *names: str) -> tuple[Output, ...]:
    """Small arrays of float64 numbers, one for each component or column."""
    import numpy as np

    return tuple(Output(name, (length,), np.dtype(np.float64)) for name in names)


def count(length: int, chunk: int) -> int:
    """Chunks along an axis."""
    return -(-length // max(1, chunk))


class Task(Protocol):
    """A matrix and the work that a call does with it."""

    @property
    def source(self) -> Source:
        """The matrix that is swept."""

    def request(self) -> dict[str, Any]:
        """Everything that decides the numbers besides the matrix, for JSON."""

    def outputs(self) -> tuple[Output, ...]:
        """Arrays that the result will have; where a rank is to be found, of the most there may be."""

    def plan(self, budget: Budget) -> Plan:
        """Its numbers; raises ``PlanError`` for what does not fit."""

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Write the result into ``run.result``; its facts, ``warnings`` among them."""


FILES_OF_A_PLAN = 1024
"""Files of a store that a plan looks at, to say how many chunks are not in it."""


def absences_of(task: object, most: int) -> dict[str, Absence]:
    """Chunks that stores of the matrices of a task lack, by the name of the matrix, where some lack any."""
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
    """The plan of a task.

    Raises
    ------
    InputError
        GPUs would be reserved that nothing of it runs on.
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
