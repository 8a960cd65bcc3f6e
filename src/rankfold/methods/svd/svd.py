"""Tasks of svd, pca and qr: check arguments, plan, and run the solver. ``write.py`` writes the result."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.svd.arguments import PCA, QR, SVD, PcaArguments, QrArguments, SvdArguments
from rankfold.methods.svd.completion.completion import (
    complete,
    completed_blank,
    kept_outputs,
    warm_completion,
)
from rankfold.methods.svd.operator import begin
from rankfold.methods.svd.orientation import default_passes
from rankfold.methods.svd.plan import make_plan
from rankfold.methods.svd.request import (
    COMPLETION_PASSES,
    DEFAULT_PASSES,
    DEFAULT_TOL,
    Request,
    check_request,
    working_dtype_of,
)
from rankfold.methods.svd.solvers.qr import qr
from rankfold.methods.svd.solvers.solver import SOLVERS
from rankfold.methods.svd.strategy import LARGEST_SQUARE, Strategy, choose_strategy, resolve_request
from rankfold.methods.svd.write import refuse_constant, warn_of_rounding, write_decomposition
from rankfold.methods.task import Output, count, vectors
from rankfold.methods.warm import warm_columns
from rankfold.pipeline.data.real_parts import RealParts
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.machine import one_blas_thread
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.prepare.measured_columns import ImputeMean
from rankfold.pipeline.prepare.prepared import prepare_source, without_shift

Float64 = npt.NDArray[np.float64]


def reduce(
    run: Run, layout: Strategy, request: Request, fingerprint: str, more: dict[str, Any]
) -> dict[str, Any]:
    """Decompose a matrix and write the result into ``run.result``; return its facts, with ``more`` added.

    ``fingerprint`` is that of the matrix. If the solver of ``layout`` does not meet the tolerance, that of
    ``layout.otherwise`` follows, where there is one.
    """
    with one_blas_thread():
        centering, start = begin(run, layout, request)
        decomposition = layout.solver.solve(run, layout, request, centering, start)
        if decomposition is None and layout.otherwise is not None:
            layout = layout.otherwise
            decomposition = layout.solver.solve(run, layout, request, centering, start)
        if decomposition is None:
            raise TypeError(f"{layout.method} found nothing")
        refuse_constant(request, decomposition, layout)
        warn_of_rounding(run, layout, request, decomposition)
        layout = layout.for_rank(len(decomposition.s) * (1 + layout.paired))
        facts = write_decomposition(run, layout, request, decomposition, fingerprint) | more
        run.describe(facts)
    return facts


# The task -----------------------------------------------------------------------------------------


VARIANCES = ("singular_values", "explained_variance", "explained_variance_ratio")
"""Names of arrays (k,) of a result of pca: singular values, variances of components, shares of the total."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """Task of svd, pca or qr: a checked request and its matrix, which can be planned and carried out."""

    parameters: Request
    """The request, with the rank and solver resolved."""

    source: Source

    def request(self) -> dict[str, Any]:
        """The request by name of its fields, as JSON types."""
        return self.parameters.as_dict()

    @property
    def swept(self) -> tuple[Request, Source]:
        """Request and matrix for sweeps, in real numbers: a complex one in its parts, at twice the rank.

        A matrix to be completed is replaced by a stand-in for plans.
        """
        return in_parts(self.parameters, completed_blank(self.parameters, self.source))

    def outputs(self) -> tuple[Output, ...]:
        """Arrays that the result will have."""
        parameters, (rows, columns) = self.parameters, self.source.shape
        layout = choose_strategy(*self.swept)
        left, right = {"svd": SVD, "pca": PCA, "qr": QR}[parameters.kind].matrices
        by_rows, long = layout.view.orientation is Orientation.ROWS, layout.view.long
        chunks = count(long, min(layout.out_chunk, long))
        factors = [Output(right, (parameters.rank, columns), layout.dtype, 1 if by_rows else chunks)]
        if parameters.rows:
            factors += [Output(left, (rows, parameters.rank), layout.dtype, chunks if by_rows else 1)]
        if parameters.kind == "qr":
            return tuple(factors)
        names = ["s"] if parameters.kind == "svd" else [*VARIANCES]
        small = vectors(parameters.rank, "residuals", "error_estimates", *names)
        mean = [Output("mean", (columns,), layout.wide_dtype)] * (parameters.kind == "pca")
        scale = vectors(columns, *["scale"] * parameters.scale)
        return (*factors, *small, *mean, *scale, *kept_outputs(parameters, self.source))

    def plan(self, budget: Budget) -> Plan:
        """Plan of the request within a budget."""
        return make_plan(*self.swept, budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Carry out the request and write its result; return the facts (metadata) of that."""
        completed, facts = complete(run, self.parameters, self.source)
        request, source = in_parts(self.parameters, completed)
        strategy = choose_strategy(request, source, run.device)
        if request.kind == "qr":
            return qr(run, strategy, request, fingerprint)
        return reduce(run, strategy, request, fingerprint, facts)


def in_parts(request: Request, source: Source) -> tuple[Request, Source]:
    """A request and complex matrix as a request for the real parts, with twice the rank; real ones unchanged.

    For principal components sweeps run along the rows, as sums over rows give the means of columns.
    """
    if source.dtype.kind != "c":
        return request, source
    tall = source.shape[0] >= source.shape[1] or request.kind == "pca"
    parts = RealParts(source, Orientation.ROWS if tall else Orientation.COLUMNS)
    return dataclasses.replace(request, rank=2 * request.rank), parts


# Arguments ----------------------------------------------------------------------------------------


def svd_task(x: object, arguments: SvdArguments) -> Reduction:
    """Make the task of the leading singular triplets of a matrix ``x``."""
    return _reduction(_open(x, arguments.missing), "svd", arguments)


def pca_task(x: object, arguments: PcaArguments) -> Reduction:
    """Make the task of the principal components of a matrix ``x``."""
    source = _open(x, arguments.missing)
    # What is completed is dense, and takes what steps make of zeros as it is.
    source = without_shift(source) if arguments.center and arguments.missing != "em" else source
    flags = {"center": arguments.center, "scale": arguments.scale, "whiten": arguments.whiten}
    return _reduction(source, "pca", arguments, **flags)


def _open(x: object, missing: str) -> Source:
    """Open a matrix; with ``missing="mean"`` missing numbers become the mean of their column."""
    source = open_source(x)
    if missing != "raise" and source.dtype.kind == "c":
        raise InputError(f"missing={missing!r} is of real numbers, and {source.name} is {source.dtype}")
    return prepare_source(source, (ImputeMean(),)) if missing == "mean" else source


def qr_task(x: object, arguments: QrArguments) -> Reduction:
    """Make the task of an orthonormal basis of the columns of a matrix ``x``, and of its R factor."""
    source = open_source(x)
    decomposition = SvdArguments(
        min(source.shape),
        solver="tsqr",
        passes=arguments.passes,
        seed=arguments.seed,
        with_rows=arguments.with_rows,
    )
    return _reduction(source, "qr", decomposition)


def _reduction(source: Source, kind: str, arguments: SvdArguments | PcaArguments, **flags: bool) -> Reduction:
    """Make the task of a decomposition of that kind; ``flags`` are fields of ``Request`` for pca alone."""
    rank, tol, passes, solver = arguments.rank, arguments.tol, arguments.passes, arguments.solver
    completes = arguments.missing == "em"
    if rank is None and tol is None and not completes:
        rank, solver = _all_of(source, solver), "tsqr"
    request = Request(
        kind,
        min(source.shape) if rank is None else rank,
        DEFAULT_TOL if tol is None else tol,
        solver,
        DEFAULT_PASSES if passes is None else passes,
        arguments.seed,
        rows=arguments.with_rows,
        adaptive=rank is None,
        oversampling=arguments.oversampling,
        precision=arguments.precision,
        missing=arguments.missing if completes else "raise",
        completion_passes=(passes or COMPLETION_PASSES) if completes else None,
        **flags,
    )
    check_request(request, source.shape, source.name)
    if passes is None:
        passes = default_passes(request, completed_blank(request, source))
        request = dataclasses.replace(request, passes=passes)
    resolved = resolve_request(*in_parts(request, source))
    if source.dtype.kind == "c":
        resolved = dataclasses.replace(resolved, rank=resolved.rank // 2)
    return Reduction(resolved, source)


def _all_of(source: Source, solver: str) -> int:
    """Number of all components, for a request that gives neither a rank nor a tolerance."""
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
    """Run each compiled loop of the solver of a request once, to compile or load it.

    ``dtype`` and ``shape`` are those of the matrix. For ``auto``, loops of gram and krylov are run.
    """
    method = request.get("method", "auto")
    solvers = ("gram", "krylov") if method == "auto" else (method,)
    loops = dict.fromkeys(name for solver in solvers for name in SOLVERS[solver].loops)
    working = working_dtype_of(request.get("precision"))
    if request.get("missing") == "em":
        warm_completion(dtype, working)
    warm_columns(dtype, request, shape, loops=tuple(loops), working=working)
