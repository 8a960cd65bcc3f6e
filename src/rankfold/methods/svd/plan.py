"""The plan of a request: the sweeps of its solver in numbers, what fits, and ways out of what does not."""

from __future__ import annotations

import dataclasses

from rankfold.methods.svd.request import Request
from rankfold.methods.svd.solvers.solver import SOLVERS
from rankfold.methods.svd.strategy import Strategy, choose_strategy
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import MemoryBudgetError
from rankfold.pipeline.planning.fit import fit
from rankfold.pipeline.planning.passes import Pass
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.shape_only import ShapeOnly
from rankfold.pipeline.units import format_bytes


def sweeps_of(request: Request, strategy: Strategy, slots: int) -> list[Pass]:
    """Every sweep that the request may make, in order, with ``slots`` buffers for panels."""
    solver = strategy.solver
    held = {over: solver.held_bytes(request, strategy, over) for over in ("matrix", "scratch")}
    sweeps = solver.sweeps(request, strategy, slots)
    return [dataclasses.replace(sweep, held_bytes=held[sweep.over]) for sweep in sweeps]


def make_plan(request: Request, source: Source, budget: Budget) -> Plan:
    """Plan a request within a budget.

    Raises
    ------
    MemoryBudgetError
        One segment, or the algebra between passes, takes more than the budget.
    """
    strategy = choose_strategy(request, source)
    solver, view = strategy.solver, strategy.view
    driver = solver.driver_bytes(request, strategy)
    concurrency, slots, peak = _fit(request, strategy, budget, driver)
    sweeps = sweeps_of(request, strategy, slots)
    most = sum(sweep.over == "matrix" for sweep in sweeps)
    streams = max(sweep.streams for sweep in sweeps)
    item = view.dtype.itemsize
    return Plan(
        kind=request.kind,
        method=solver.name,
        shape=source.shape,
        dtype=source.dtype.name,
        working_dtype=view.dtype.name,
        orientation=view.orientation.value,
        rank=request.rank,
        adaptive=request.adaptive,
        decided_by="the spectrum" if solver.stops_early else "",
        width=strategy.width,
        grain_rows=strategy.cut.grain_rows,
        panel_rows=strategy.cut.panel_rows,
        passes=tuple(sweeps),
        most_passes=most,
        likely_passes=solver.likely_passes(request, strategy, most),
        concurrency=concurrency,
        slots=slots,
        driver_bytes=driver,
        peak_bytes=peak,
        budget_bytes=budget.memory_bytes,
        scratch_bytes=view.long * (solver.basis_columns(strategy) * item + 16),
        result_bytes=sum(source.shape) * request.rank * item,
        checkpoint_bytes=solver.accumulator_bytes(request, strategy) * streams,
        useful_workers=-(-streams // concurrency),
        seconds=None,
    )


def _fit(request: Request, strategy: Strategy, budget: Budget, driver: int) -> tuple[int, int, int]:
    """Segments at once, buffers each, and the peak they come to."""
    concurrency, slots, peak = fit(lambda slots: sweeps_of(request, strategy, slots), driver, budget)
    if concurrency < 1 or peak > budget.memory_bytes:
        _refuse(request, strategy, budget, peak)
    return concurrency, slots, peak


def _fits(request: Request, source: Source, budget: Budget) -> bool:
    strategy = choose_strategy(request, source)
    driver = strategy.solver.driver_bytes(request, strategy)
    concurrency, _, peak = fit(lambda slots: sweeps_of(request, strategy, slots), driver, budget)
    return concurrency >= 1 and peak <= budget.memory_bytes


def _import_would_fit(request: Request, source: Source, budget: Budget) -> bool:
    return _fits(request, ShapeOnly.plain(source.shape, source.dtype), budget)


def _rank_that_fits(request: Request, source: Source, budget: Budget) -> int:
    """The largest rank below the one asked for that fits, or 0."""
    fits, fails = 0, request.rank
    while fails - fits > 1:
        rank = (fits + fails) // 2
        good = _fits(dataclasses.replace(request, rank=rank), source, budget)
        fits, fails = (rank, fails) if good else (fits, rank)
    return fits


def _refuse(request: Request, strategy: Strategy, budget: Budget, need: int) -> None:
    source, have, solver = strategy.view.source, format_bytes(budget.memory_bytes), strategy.solver
    way_out, panels = f"Give --memory {-(-need // 2**20)}MiB", solver.panels(strategy)
    if panels.cut.panel_rows > panels.cut.grain_rows and _import_would_fit(request, source, budget):
        way_out += (
            f", or cut the store: its chunks make panels of {panels.cut.panel_rows} rows, which take "
            f"{format_bytes(panels.memory_bytes)} to read, and `rankfold import STORE NEW.zarr` writes one "
            "with small chunks"
        )
    elif known := solver.way_out(request, strategy):
        way_out += known
    elif request.kind != "qr":
        for method, reason in solver.narrower.items():
            if method in SOLVERS and _fits(dataclasses.replace(request, method=method), source, budget):
                way_out += f", or --method {method}, which {reason}"
                break
        if rank := _rank_that_fits(request, source, budget):
            way_out += f", or --rank {rank}"
    raise MemoryBudgetError(
        f"{request.kind} of this {source.shape[0]} x {source.shape[1]} matrix by "
        f"{strategy.method} needs {format_bytes(need)} in one worker, but --memory gives {have}. {way_out}."
    )
