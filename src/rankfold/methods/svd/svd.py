"""From a request to what its solver finds: the order of sweeps. ``write.py`` makes a result of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.dense import fix_signs, leading_singular_triplets
from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.start import Start
from rankfold.methods.svd.arguments import PCA, QR, SVD
from rankfold.methods.svd.error_estimates import Truncation, errors_of_missed, rounding
from rankfold.methods.svd.fused import Statistics, multiply
from rankfold.methods.svd.long_factor import FromMatrix, Triplets
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
from rankfold.methods.svd.ritz import Basis, rayleigh_ritz
from rankfold.methods.svd.solvers.gram import gram
from rankfold.methods.svd.solvers.krylov import capture, krylov
from rankfold.methods.svd.solvers.qr import qr
from rankfold.methods.svd.solvers.sketch import sketch
from rankfold.methods.svd.solvers.subspace import subspace
from rankfold.methods.svd.solvers.tsqr import tsqr, warn_of_rank, zero
from rankfold.methods.svd.start import begin
from rankfold.methods.svd.strategy import LARGEST_SQUARE, Strategy, choose_strategy, resolved
from rankfold.methods.svd.write import Decomposition, refuse_constant, write_found
from rankfold.methods.task import Output, count, vectors
from rankfold.pipeline.blas import one_blas_thread
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.planning.plan import Plan

Float64 = npt.NDArray[np.float64]

FEW_PASSES = 4
"""Residuals alone, without the history of passes that a given rank has, are trusted by so much less."""

STORED = 4
"""Units of the working type by which an approximation differs from its factors as they are stored."""


def reduce(run: Run, layout: Strategy, request: Request, fingerprint: str) -> dict[str, Any]:
    """Carry out a request; the result is complete in ``run.result`` when this returns its facts."""
    with one_blas_thread():
        centering, start = begin(run, layout, request)
        find = {"gram": _gram, "sketch": _sketch, "tsqr": _tsqr}.get(layout.method, _iterative)
        found = find(run, layout, request, centering, start)
        refuse_constant(request, found, layout)
        layout = layout.for_rank(len(found.s))
        facts = write_found(run, layout, request, found, fingerprint)
        run.describe(facts)
    return facts


def _iterative(
    run: Run, layout: Strategy, request: Request, centering: Centering, start: Start
) -> Decomposition:
    if request.adaptive:
        held = capture(run, layout, centering, start, tol=request.tol, seed=request.seed)
        triplets = rayleigh_ritz(run, layout, held.basis, held.cut.rank, request.seed)
        bound = errors_of_missed(triplets.s, held.missed) + rounding(triplets.s, layout.view.dtype)
        errors = np.maximum.accumulate(np.minimum(FEW_PASSES * triplets.errors, bound))
        triplets = dataclasses.replace(triplets, errors=errors)
        found = _found(layout, centering, triplets, held.known, held.errors)
        return dataclasses.replace(found, facts=_told(held.cut, layout))
    method = krylov if layout.method == "krylov" else subspace
    basis, known, seen = method(
        run, layout, centering, start, rank=request.rank, tol=request.tol, seed=request.seed
    )
    triplets = rayleigh_ritz(run, layout, basis, request.rank, request.seed, estimate=seen.estimate)
    return _found(layout, centering, triplets, known, seen.errors)


def _gram(run: Run, layout: Strategy, request: Request, centering: Centering, start: Start) -> Decomposition:
    scatter = gram(run, layout, centering, start)
    known = Statistics(scatter.mean, scatter.deviation, scatter.total)
    rank, facts = request.rank, {}
    if request.adaptive:
        cut = Truncation.of(scatter.values, scatter.total, request.tol)
        rank, facts = cut.rank, _told(cut, layout)
    values = np.maximum(scatter.values[:rank], 0.0)
    relative = np.sqrt(values / max(values[0], np.finfo(float).tiny))
    eps = float(np.finfo(np.float64).eps)
    squared = eps / np.maximum(relative, eps) ** 2 / 2
    by_rows = layout.view.orientation is Orientation.ROWS
    enough = request.adaptive or squared.max() <= request.tol or run.passes >= request.passes
    if by_rows and not request.rows and enough:
        s = np.sqrt(values) / centering.unit
        short = scatter.vectors[:, :rank]
        short = short * fix_signs(short)
        residuals = eps / np.maximum(relative, eps)
        total = _squared_norm(layout, scatter.total, centering.unit)
        return Decomposition(s, short, None, known, residuals, squared, [], total, facts)
    vectors = scatter.vectors[:, : rank + 1]
    block, _ = multiply(run, layout, centering, start, vectors, index=2, known=known)
    basis = Basis()
    basis.add(block)
    triplets = rayleigh_ritz(run, layout, basis, rank, request.seed)
    return dataclasses.replace(_found(layout, centering, triplets, known, []), facts=facts)


def _sketch(
    run: Run, layout: Strategy, request: Request, centering: Centering, start: Start
) -> Decomposition:
    made, known = sketch(run, layout, centering, start, rank=request.rank, seed=request.seed)
    found = _found(layout, centering, made.triplets, known, [float(made.triplets.errors.max())])
    return dataclasses.replace(found, facts={"approximation_error": made.approximation_error})


def _tsqr(run: Run, layout: Strategy, request: Request, centering: Centering, start: Start) -> Decomposition:
    form = request.rows or layout.view.orientation is Orientation.COLUMNS
    found = tsqr(run, layout, centering, start, form=form, passes=request.passes, seed=request.seed)
    left, s, short = leading_singular_triplets(found.r, request.rank)
    facts = {}
    if request.adaptive:
        cut = Truncation.of_all(s, request.tol)
        left, s, short = left[:, : cut.rank], s[: cut.rank], short[:, : cut.rank]
        facts = _told(cut, layout)
    warn_of_rank(run, layout, found, len(s))
    s[s <= zero(layout.view.short) * s[0]] = 0.0
    signs = fix_signs(short)
    long = None
    if found.preconditioner is not None:
        long = FromMatrix(found.preconditioner, found.inverse @ (left * signs), centering)
    errors = np.minimum(layout.view.short * rounding(s, np.dtype(np.float64)), 1.0)
    residuals = np.full(len(s), layout.view.short * np.finfo(np.float64).eps)
    total = _squared_norm(layout, found.known.total, centering.unit)
    return Decomposition(
        s / centering.unit, short * signs, long, found.known, residuals, errors, [], total, facts
    )


def _told(cut: Truncation, layout: Strategy) -> dict[str, Any]:
    """What an approximation leaves out, and what rounding of its factors as they are stored does."""
    stored = STORED * float(np.finfo(layout.view.dtype).eps)
    return {"approximation_error": float(np.hypot(cut.error, stored))}


def _found(
    layout: Strategy, centering: Centering, triplets: Triplets, known: Statistics, convergence: list[float]
) -> Decomposition:
    return Decomposition(
        triplets.s / centering.unit,
        triplets.short,
        triplets,
        known,
        triplets.residuals,
        triplets.errors,
        convergence,
        _squared_norm(layout, known.total, centering.unit),
    )


def _squared_norm(layout: Strategy, total: float, unit: float) -> float:
    """A sum of squares in the units of the data, where float64 holds it."""
    value = float(total) / unit / unit
    if not np.isfinite(value) or (value < np.finfo(np.float64).tiny and total > 0):
        raise DataError(
            f"the sum of squares of {layout.view.source.name}, with elements near {1 / unit:.0e}, leaves the "
            "range of float64. Rescale it"
        )
    return value


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


def qr_task(x: object, *, passes: object = None, seed: object = 0, rows: bool = True) -> Reduction:
    """What is to be factorized, checked; arguments of ``rankfold.qr``."""
    source = open_source(x)
    return _reduction(source, "qr", min(source.shape), method="tsqr", passes=passes, seed=seed, rows=rows)


def _reduction(
    source: Source,
    kind: str,
    rank: Any = None,
    tol: object = None,
    method: str = "auto",
    passes: object = None,
    oversampling: object = None,
    seed: object = 0,
    **flags: bool,
) -> Reduction:
    if rank is None and tol is None:
        rank, method = _all_of(source, method), "tsqr"
    adaptive = rank is None
    request = Request(
        kind,
        min(source.shape) if rank is None else component_count(rank),
        DEFAULT_TOL if tol is None else number("tol", tol),
        method,
        DEFAULT_PASSES if passes is None else integer("passes", passes),
        integer("seed", seed),
        adaptive=adaptive,
        oversampling=None if oversampling is None else integer("oversampling", oversampling),
        **flags,
    )
    check_request(request, source.shape, source.name)
    return Reduction(resolved(request, source), source)


def _all_of(source: Source, method: str) -> int:
    """The number of all components, where those are to be found: neither a rank nor a tolerance is given."""
    count = min(source.shape)
    advice = "say how many components, rank= (--rank), or what share of the norm to leave out, tol= (--tol)"
    if method not in ("auto", "tsqr"):
        raise InputError(f"{advice}: without either all are found, by method tsqr and not by {method}")
    if method == "auto" and count > LARGEST_SQUARE:
        raise InputError(
            f"{advice}: without either all are found, and {source.name} has {count}, more than the "
            f"{LARGEST_SQUARE} up to which that is done unasked. Say method='tsqr' (--method tsqr) if all "
            "are wanted"
        )
    return count
