"""From a request to what its solver finds: the order of sweeps. ``write.py`` makes a result of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.svd.arguments import PCA, QR, SVD
from rankfold.methods.svd.operator import begin
from rankfold.methods.svd.plan import make_plan
from rankfold.methods.svd.request import (
    DEFAULT_PASSES,
    DEFAULT_TOL,
    Request,
    check_request,
    component_count,
    integer,
    number,
)
from rankfold.methods.svd.solvers.qr import qr
from rankfold.methods.svd.solvers.solver import SOLVERS
from rankfold.methods.svd.strategy import LARGEST_SQUARE, Strategy, choose_strategy, resolved
from rankfold.methods.svd.write import refuse_constant, write_found
from rankfold.methods.task import Output, count, vectors
from rankfold.methods.warm import warm_columns
from rankfold.pipeline.blas import one_blas_thread
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.planning.plan import Plan

Float64 = npt.NDArray[np.float64]


def reduce(run: Run, layout: Strategy, request: Request, fingerprint: str) -> dict[str, Any]:
    """Carry out a request; the result is complete in ``run.result`` when this returns its facts."""
    with one_blas_thread():
        centering, start = begin(run, layout, request)
        found = layout.solver.solve(run, layout, request, centering, start)
        refuse_constant(request, found, layout)
        layout = layout.for_rank(len(found.s))
        facts = write_found(run, layout, request, found, fingerprint)
        run.describe(facts)
    return facts


# The task -----------------------------------------------------------------------------------------


VARIANCES = ("singular_values", "explained_variance", "explained_variance_ratio")
"""What a result of pca has for each component."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """A request and its matrix, as ``execution`` takes them."""

    asked: Request
    source: Source

    def request(self) -> dict[str, Any]:
        """See the protocol."""
        return self.asked.as_dict()

    def outputs(self) -> tuple[Output, ...]:
        """See the protocol."""
        asked, layout, (rows, columns) = (
            self.asked,
            choose_strategy(self.asked, self.source),
            self.source.shape,
        )
        left, right = {"svd": SVD, "pca": PCA, "qr": QR}[asked.kind].matrices
        by_rows, long = layout.view.orientation is Orientation.ROWS, layout.view.long
        chunks = count(long, min(layout.out_chunk, long))
        factors = [Output(right, (asked.rank, columns), layout.view.dtype, 1 if by_rows else chunks)]
        if asked.rows:
            factors += [Output(left, (rows, asked.rank), layout.view.dtype, chunks if by_rows else 1)]
        if asked.kind == "qr":
            return tuple(factors)
        names = ["s"] if asked.kind == "svd" else [*VARIANCES]
        small = vectors(asked.rank, "residuals", "error_estimates", *names)
        each = ["mean"] * (asked.kind == "pca") + ["scale"] * asked.scale
        return (*factors, *small, *vectors(columns, *each))

    def plan(self, budget: Budget) -> Plan:
        """See the protocol."""
        return make_plan(self.asked, self.source, budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """See the protocol."""
        carry_out = qr if self.asked.kind == "qr" else reduce
        return carry_out(run, choose_strategy(self.asked, self.source), self.asked, fingerprint)


# Arguments ----------------------------------------------------------------------------------------


def svd_task(x: object, *asked: Any, **flags: Any) -> Reduction:
    """What is to be decomposed, checked; arguments of ``rankfold.svd``."""
    return _reduction(open_source(x), "svd", *asked, **flags)


def pca_task(x: object, *asked: Any, center: bool = True, **flags: Any) -> Reduction:
    """Whose components are to be found, checked; arguments of ``rankfold.pca``."""
    return _reduction(open_source(x), "pca", *asked, center=center, **flags)


def qr_task(x: object, *, passes: object = None, seed: object = 0, with_rows: bool = True) -> Reduction:
    """What is to be factorized, checked; arguments of ``rankfold.qr``."""
    source = open_source(x)
    return _reduction(
        source, "qr", min(source.shape), solver="tsqr", passes=passes, seed=seed, with_rows=with_rows
    )


def _reduction(
    source: Source,
    kind: str,
    rank: Any = None,
    tol: object = None,
    solver: str = "auto",
    passes: object = None,
    oversampling: object = None,
    seed: object = 0,
    with_rows: bool = True,
    **flags: bool,
) -> Reduction:
    if rank is None and tol is None:
        rank, solver = _all_of(source, solver), "tsqr"
    adaptive = rank is None
    request = Request(
        kind,
        min(source.shape) if rank is None else component_count(rank),
        DEFAULT_TOL if tol is None else number("tol", tol),
        solver,
        DEFAULT_PASSES if passes is None else integer("passes", passes),
        integer("seed", seed),
        rows=with_rows,
        adaptive=adaptive,
        oversampling=None if oversampling is None else integer("oversampling", oversampling),
        **flags,
    )
    check_request(request, source.shape, source.name)
    return Reduction(resolved(request, source), source)


def _all_of(source: Source, solver: str) -> int:
    """The number of all components, where those are to be found: neither a rank nor a tolerance is given."""
    count = min(source.shape)
    advice = "say how many components, rank= (--rank), or what share of the norm to leave out, tol= (--tol)"
    if solver not in ("auto", "tsqr"):
        raise InputError(f"{advice}: without either all are found, by solver tsqr and not by {solver}")
    if solver == "auto" and count > LARGEST_SQUARE:
        raise InputError(
            f"{advice}: without either all are found, and {source.name} has {count}, more than the "
            f"{LARGEST_SQUARE} up to which that is done unasked. Say solver='tsqr' (--solver tsqr) if all "
            "are wanted"
        )
    return count


def warm_solver(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run each compiled loop of a solver once; of those that ``auto`` may take."""
    method = request.get("method", "auto")
    solvers = ("gram", "krylov") if method == "auto" else (method,)
    loops = dict.fromkeys(name for solver in solvers for name in SOLVERS[solver].loops)
    warm_columns(dtype, request, shape, loops=tuple(loops))
