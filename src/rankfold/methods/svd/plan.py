"""The plan of a request: sizes of its solver's sweeps, whether they fit, and advice where they do not."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from rankfold.methods.svd.completion.completion import completed_blank, decided_by, with_completion
from rankfold.methods.svd.orientation import default_passes
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.solvers.solver import SOLVERS
from rankfold.methods.svd.strategy import Strategy, choose_strategy
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError, MemoryBudgetError, argument
from rankfold.pipeline.planning.passes import Pass
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import (
    FittedSweeps,
    PanelSweeps,
    TaskFacts,
    largest_that_fits,
    plan_task,
)
from rankfold.pipeline.planning.shape_only import ShapeOnly
from rankfold.pipeline.units import format_bytes


def make_plan(request: Request, source: Source, budget: Budget) -> Plan:
    """Plan a request on the matrix ``source`` within a budget.

    Raises
    ------
    MemoryBudgetError
        One segment, or the algebra between passes, takes more than the budget.
    InputError
        The device, or the type of the data, does not support the precision.
    """
    strategy = choose_strategy(request, source, budget.device)
    solver, view = strategy.solver, strategy.view
    _refuse_precision(request, strategy)
    item = view.dtype.itemsize
    task_facts = TaskFacts(
        kind=request.kind,
        method=solver.name,
        source=source,
        dtype=view.dtype,
        orientation=view.orientation,
        rank=request.rank,
        result_bytes=sum(source.shape) * request.rank * item,
        scratch_bytes=view.long * (solver.basis_columns(strategy) * item + 16),
        width=strategy.width,
        adaptive=request.adaptive,
        decided_by=decided_by(request, _decided_by(strategy)),
        subject=f"{request.kind} of this {source.shape[0]} x {source.shape[1]} matrix by {solver.name}",
    )
    sweeps = sweeps_of(request, strategy)
    if _takes_half(request, strategy):
        fitted = sweeps.arrange(budget)
        if not _has_room(fitted, budget, half=True):
            _refuse_resident(task_facts, fitted.peak_bytes, budget, _way_out(request, strategy, budget))
    return plan_task(task_facts, sweeps, budget, lambda: _way_out(request, strategy, budget))


def _decided_by(strategy: Strategy) -> str:
    if strategy.otherwise is not None:
        return f"the spectrum ({strategy.otherwise.method} where it is flat)"
    return "the spectrum" if strategy.solver.stops_early else ""


def sweeps_of(request: Request, strategy: Strategy) -> PanelSweeps:
    """Every sweep that the request may make, for a plan, with those that complete the matrix if any."""
    own = _sweeps_of_solver(request, strategy)
    if strategy.otherwise is not None:
        own = _followed(own, _sweeps_of_solver(request, strategy.otherwise))
    return with_completion(own, request, strategy)


def _sweeps_of_solver(request: Request, strategy: Strategy) -> PanelSweeps:
    solver = strategy.solver
    resident_bytes = {over: solver.resident_bytes(request, strategy, over) for over in ("matrix", "scratch")}

    def sweeps(slots: int) -> list[Pass]:
        passes = solver.sweeps(request, strategy, slots)
        return [dataclasses.replace(sweep, resident_bytes=resident_bytes[sweep.over]) for sweep in passes]

    return PanelSweeps(
        sweeps,
        strategy.cut,
        solver.driver_bytes(request, strategy),
        solver.accumulator_bytes(request, strategy),
        lambda most: solver.likely_passes(request, strategy, most),
    )


def _followed(first: PanelSweeps, then: PanelSweeps) -> PanelSweeps:
    """Sweeps of two solvers, the second of which follows where the first ends above the tolerance.

    Pass numbers continue. Sweeps over scratch with the same name are made once: those of the first solver,
    which are wider.
    """

    def sweeps(slots: int) -> list[Pass]:
        tried = first.sweeps_of(slots)
        later = [
            dataclasses.replace(sweep, name=f"pass-{number:02d}") if sweep.name.startswith("pass") else sweep
            for number, sweep in enumerate(then.sweeps_of(slots), _reads(tried) + 1)
        ]
        taken = {sweep.name for sweep in tried}
        every = [*tried, *(sweep for sweep in later if sweep.name not in taken)]
        return sorted(every, key=lambda sweep: sweep.over != "matrix")

    return PanelSweeps(
        sweeps,
        first.cut,
        max(first.driver_bytes, then.driver_bytes),
        max(first.accumulator_bytes, then.accumulator_bytes),
        lambda most: min(first.likely(_reads(first.sweeps_of(1))), most),
    )


def _reads(sweeps: Sequence[Pass]) -> int:
    """Number of passes over the matrix among ``sweeps``."""
    return sum(sweep.over == "matrix" for sweep in sweeps)


def _refuse_precision(request: Request, strategy: Strategy) -> None:
    if request.precision != "tf32":
        return
    if strategy.view.device == "cpu":
        raise InputError(
            "precision tf32 is one of tensor cores, which a CPU has not: say device='gpu' "
            "(--device gpu), or leave out precision= (--precision)"
        )
    if strategy.view.dtype != np.float32:
        raise InputError(
            f"precision tf32 rounds float32, but {strategy.view.source.name} is computed with in "
            f"{strategy.view.dtype}: leave out precision= (--precision), or store the matrix as float32"
        )


# Ways out -----------------------------------------------------------------------------------------


def _fits(request: Request, source: Source, budget: Budget) -> bool:
    strategy = choose_strategy(request, source, budget.device)
    half = _takes_half(request, strategy)
    return _has_room(sweeps_of(request, strategy).arrange(budget), budget, half=half)


def _could(request: Request, method: str, source: Source, budget: Budget) -> bool:
    """True if the solver named ``method`` can carry out the request within the budget."""
    if request.adaptive and not SOLVERS[method].finds_rank:
        return False
    return _fits(_otherwise(request, source, method=method), source, budget)


def _otherwise(request: Request, source: Source, **changes: Any) -> Request:
    """A request with some fields changed; a number of passes that was the default becomes the new default."""
    other = dataclasses.replace(request, **changes)
    if request.passes != default_passes(request, source):
        return other
    return dataclasses.replace(other, passes=default_passes(other, source))


def _takes_half(request: Request, strategy: Strategy) -> bool:
    """True if at most half of the memory may be used: the solver was asked for, and holds the matrix."""
    return strategy.solver.holds_matrix and request.method != "auto"


def _has_room(fitted: FittedSweeps, budget: Budget, *, half: bool) -> bool:
    most = budget.memory_bytes // (2 if half else 1)
    return fitted.concurrency >= 1 and fitted.peak_bytes <= most


def _refuse_resident(task_facts: TaskFacts, need: int, budget: Budget, way_out: str) -> None:
    """Raise ``MemoryBudgetError`` for a matrix held in memory that would take more than half of the budget.

    ``need`` is the peak of memory in bytes, ``way_out`` advice for the message.
    """
    raise MemoryBudgetError.of(
        f"{task_facts.subject} keeps all of it in memory, {format_bytes(need)} with what it works on, and "
        f"takes half of memory= (--memory) at most, which is {format_bytes(budget.memory_bytes // 2)}. Give "
        f"{argument('memory', f'{-(-2 * need // 2**20)}MiB')}",
        2 * need,
        way_out,
    )


def _import_would_fit(request: Request, source: Source, budget: Budget) -> bool:
    plain = ShapeOnly.plain(source.shape, source.dtype)
    return _fits(request, completed_blank(request, plain), budget)


def _rank_that_fits(request: Request, source: Source, budget: Budget) -> int:
    """The largest rank below the one asked for that fits, or 0."""
    return largest_that_fits(
        request.rank, lambda rank: _fits(_otherwise(request, source, rank=rank), source, budget)
    )


def _way_out(request: Request, strategy: Strategy, budget: Budget) -> str:
    source, solver = strategy.view.source, strategy.solver
    panels = solver.panels(strategy)
    tall = panels.cut.panel_rows > panels.cut.grain_rows and not solver.holds_matrix
    if tall and _import_would_fit(request, source, budget):
        return (
            f", or cut the store: its chunks make panels of {panels.cut.panel_rows} rows, which take "
            f"{format_bytes(panels.memory_bytes)} to read, and `rankfold import STORE NEW.zarr` writes one "
            "with small chunks"
        )
    if advice := solver.way_out(request, strategy):
        return advice
    way_out = ""
    if request.kind != "qr":
        otherwise = {} if strategy.otherwise is None else strategy.otherwise.solver.narrower
        for method, reason in {**otherwise, **solver.narrower}.items():
            if method in SOLVERS and _could(request, method, source, budget):
                way_out += f", or {argument('solver', method)}, which {reason}"
                break
        if rank := _rank_that_fits(request, source, budget):
            way_out += f", or {argument('rank', rank)}"
    return way_out
