"""A method of another package: sums of powers of each column, in one pass. This file is all there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.methods.argument import Argument, request_values
from rankfold.methods.parts.panels import BAD, OverPanels, Panels, numbers, refuse_bad
from rankfold.methods.registry import Method
from rankfold.methods.task import Output
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.blocks import cut
from rankfold.pipeline.engine.fold import Sum, Workspace
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import TaskFacts, one_sweep, plan_task
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.result import write_small

WIDE = np.dtype(np.float64)


@kernel
def add_powers(x: npt.NDArray[Any], *, sums: npt.NDArray[np.float64]) -> None:
    """Add sums of ``x**1 .. x**p`` over the rows of ``x`` (m, n) to ``sums`` (p, n): 2 m n p flops."""
    power = np.ones(x.shape)
    for each in sums:
        power *= x
        each += power.sum(axis=0)


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of the method."""

    powers: Annotated[int, Argument("powers of each number", least=1, below=9)] = 1
    absolute: Annotated[bool, Argument("sum absolute values")] = False


@dataclass(frozen=True, slots=True)
class Powers(OverPanels):
    """Fold of panels into sums."""

    panels: Panels
    arguments: Arguments
    row_seconds: float

    kernels = (add_powers,)

    def sums(self) -> Mapping[str, Sum]:
        """Sums of each column, by power."""
        return {"sums": Sum((self.arguments.powers, self.panels.view.short)), "bad": BAD}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of the powers of a grain."""
        return 3 * 8 * self.panels.view.short * self.cut.grain_rows

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Add a panel."""
        for grain in self.panels.grains(work.panels, start, stop, slot):
            x = numbers(grain.raw).astype(WIDE)
            if self.is_finite(state, work, grain, x):
                add_powers(np.abs(x) if self.arguments.absolute else x, sums=state["sums"])


@dataclass(frozen=True, slots=True)
class ColumnSums:
    """Task of a matrix whose columns are summed."""

    source: Source
    arguments: Arguments

    def request(self) -> dict[str, Any]:
        """Everything besides the matrix that decides the sums."""
        return {"kind": "column_sums", **request_values(self.arguments)}

    def outputs(self) -> tuple[Output, ...]:
        """The array of the result."""
        return (Output("sums", (self.arguments.powers, self.source.shape[1]), WIDE),)

    def fold(self, slots: int) -> Powers:
        """The fold of the one pass."""
        view = View(self.source, Orientation.ROWS)
        pieces = cut(view.grid, 8 * view.short, 8 * view.short * self.arguments.powers)
        return Powers(Panels(view, pieces, slots, view.dtype), self.arguments, 1e-9 * view.short)

    def plan(self, budget: Budget) -> Plan:
        """Plan of the one pass."""
        (rows, columns), powers = self.source.shape, self.arguments.powers
        task_facts = TaskFacts(
            kind="column_sums",
            method="exact",
            source=self.source,
            dtype=WIDE,
            orientation=Orientation.ROWS,
            rank=powers,
            result_bytes=8 * columns * powers,
        )
        sweep = one_sweep(
            task_facts,
            self.fold,
            flops=2.0 * rows * columns * powers,
            driver_bytes=16 * columns * powers,
            accumulator_bytes=8 * columns * powers,
        )
        return plan_task(task_facts, sweep, budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Make the pass, and write the sums; returns the facts of the result."""
        state = run.pass_over_data("column_sums", self.fold(run.slots))
        refuse_bad(state, self.source)
        write_small(run.result, {"sums": state["sums"]}, "power", "column")
        facts = run.facts(self.request(), "exact", self.source, fingerprint)
        run.describe(facts)
        return facts


def column_sums_task(x: object, arguments: Arguments) -> ColumnSums:
    """Make the task of a matrix; its arguments are checked."""
    return ColumnSums(open_source(x), arguments)


def warm_powers(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run its kernel once before the baseline of memory is taken."""
    add_powers(np.zeros((1, 1)), sums=np.zeros((request["powers"], 1)))


COLUMN_SUMS = Method(
    "column_sums",
    "Sums of powers of each column: sums.",
    Arguments,
    "column_sums:column_sums_task",
    matrices=("sums",),
    loops="column_sums:warm_powers",
)
