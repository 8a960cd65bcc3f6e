"""From a request to a written result: the order of sweeps, and what the arrays of a result are."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.small import fix_signs, leading_singular_triplets
from rankfold.pipeline.blas import one_blas_thread
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.folds.local_columns import Centring
from rankfold.pipeline.layout import Layout
from rankfold.pipeline.methods.basis import Basis
from rankfold.pipeline.methods.capture import capture
from rankfold.pipeline.methods.fused import Statistics, multiply
from rankfold.pipeline.methods.gram import divisors, gram
from rankfold.pipeline.methods.krylov import krylov
from rankfold.pipeline.methods.long_factor import FromMatrix, LongFactor, Triplets
from rankfold.pipeline.methods.rayleigh_ritz import rayleigh_ritz
from rankfold.pipeline.methods.sketch import sketch
from rankfold.pipeline.methods.start import Start, sample_start
from rankfold.pipeline.methods.start_block import leading_block
from rankfold.pipeline.methods.subspace import subspace
from rankfold.pipeline.methods.tsqr import sampled_basis, tsqr, warn_of_rank, zero
from rankfold.pipeline.quality import Truncation, rounding
from rankfold.pipeline.request import Request
from rankfold.pipeline.result import create_array, write_group, write_small
from rankfold.pipeline.run import Run
from rankfold.pipeline.view import Orientation

Float64 = npt.NDArray[np.float64]

FEW_PASSES = 4
"""Residuals alone, without the history of passes that a given rank has, are trusted by so much less."""

STORED = 4
"""Units of the working type by which an approximation differs from its factors as they are stored."""

CONSTANT = 1e-12
"""A column whose standard deviation is below this share of its mean is constant but for rounding."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a method found, in the units of the data."""

    s: Float64
    short: Float64
    """(short, k) vectors of the short side."""

    long: LongFactor | None
    """The long factor as a recipe, where one was asked for."""

    statistics: Statistics
    residuals: Float64
    errors: Float64
    convergence: list[float]
    total: float
    """Sum of squares of the centred, scaled matrix."""

    facts: dict[str, Any] = field(default_factory=dict)
    """What this method alone knows."""


def reduce(run: Run, layout: Layout, request: Request, fingerprint: str) -> dict[str, Any]:
    """Carry out a request; the result is complete in ``run.result`` when this returns its facts."""
    with one_blas_thread():
        centring, start = begin(run, layout, request)
        find = {"gram": _gram, "sketch": _sketch, "tsqr": _tsqr}.get(layout.method, _iterative)
        found = find(run, layout, request, centring, start)
        _refuse_constant(request, found, layout)
        layout = layout.for_rank(len(found.s))
        facts = _write(run, layout, request, found, fingerprint)
        write_group(run.result, facts)
    return facts


def begin(run: Run, layout: Layout, request: Request) -> tuple[Centring, Start]:
    """How columns are centred, and what a sample tells before the first pass."""
    exact = layout.method == "tsqr"
    block = sampled_basis if exact else partial(leading_block, width=layout.width, seed=request.seed)
    # The R factor of a tall matrix is scaled when it is known.
    scale = request.scale and not (exact and layout.view.orientation is Orientation.ROWS)
    start = sample_start(layout.sample, block, centre=request.center, scale=scale, folder=run.folder)
    return Centring(request.center, request.scale, start.unit, CONSTANT), start


def _iterative(run: Run, layout: Layout, request: Request, centring: Centring, start: Start) -> Found:
    if request.adaptive:
        held = capture(run, layout, centring, start, tol=request.tol, seed=request.seed)
        triplets = rayleigh_ritz(run, layout, held.basis, held.cut.rank, request.seed)
        bound = held.bound(triplets.s) + rounding(triplets.s, layout.view.dtype)
        errors = np.maximum.accumulate(np.minimum(FEW_PASSES * triplets.errors, bound))
        triplets = dataclasses.replace(triplets, errors=errors)
        found = _found(layout, centring, triplets, held.known, held.errors)
        return dataclasses.replace(found, facts=_told(held.cut, layout))
    method = krylov if layout.method == "krylov" else subspace
    basis, known, seen = method(
        run, layout, centring, start, rank=request.rank, tol=request.tol, seed=request.seed
    )
    triplets = rayleigh_ritz(run, layout, basis, request.rank, request.seed, estimate=seen.estimate)
    return _found(layout, centring, triplets, known, seen.errors)


def _gram(run: Run, layout: Layout, request: Request, centring: Centring, start: Start) -> Found:
    scatter = gram(run, layout, centring, start)
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
        s = np.sqrt(values) / centring.unit
        short = scatter.vectors[:, :rank]
        short = short * fix_signs(short)
        residuals = eps / np.maximum(relative, eps)
        total = _squared_norm(layout, scatter.total, centring.unit)
        return Found(s, short, None, known, residuals, squared, [], total, facts)
    vectors = scatter.vectors[:, : rank + 1]
    block, _ = multiply(run, layout, centring, start, vectors, index=2, known=known)
    basis = Basis()
    basis.add(block)
    triplets = rayleigh_ritz(run, layout, basis, rank, request.seed)
    return dataclasses.replace(_found(layout, centring, triplets, known, []), facts=facts)


def _sketch(run: Run, layout: Layout, request: Request, centring: Centring, start: Start) -> Found:
    made, known = sketch(run, layout, centring, start, rank=request.rank, seed=request.seed)
    found = _found(layout, centring, made.triplets, known, [float(made.triplets.errors.max())])
    return dataclasses.replace(found, facts={"approximation_error": made.approximation_error})


def _tsqr(run: Run, layout: Layout, request: Request, centring: Centring, start: Start) -> Found:
    form = request.rows or layout.view.orientation is Orientation.COLUMNS
    found = tsqr(run, layout, centring, start, form=form, passes=request.passes, seed=request.seed)
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
    if found.whitening is not None:
        long = FromMatrix(found.whitening, found.inverse @ (left * signs), centring)
    errors = np.minimum(layout.view.short * rounding(s, np.dtype(np.float64)), 1.0)
    residuals = np.full(len(s), layout.view.short * np.finfo(np.float64).eps)
    total = _squared_norm(layout, found.known.total, centring.unit)
    return Found(s / centring.unit, short * signs, long, found.known, residuals, errors, [], total, facts)


def _told(cut: Truncation, layout: Layout) -> dict[str, Any]:
    """What an approximation leaves out, and what rounding of its factors as they are stored does."""
    stored = STORED * float(np.finfo(layout.view.dtype).eps)
    return {"approximation_error": float(np.hypot(cut.error, stored))}


def _found(
    layout: Layout, centring: Centring, triplets: Triplets, known: Statistics, convergence: list[float]
) -> Found:
    return Found(
        triplets.s / centring.unit,
        triplets.short,
        triplets,
        known,
        triplets.residuals,
        triplets.errors,
        convergence,
        _squared_norm(layout, known.total, centring.unit),
    )


def _squared_norm(layout: Layout, total: float, unit: float) -> float:
    """A sum of squares in the units of the data, where float64 holds it."""
    value = float(total) / unit / unit
    if not np.isfinite(value) or (value < np.finfo(np.float64).tiny and total > 0):
        raise DataError(
            f"the sum of squares of {layout.view.source.name}, with elements near {1 / unit:.0e}, leaves the "
            "range of float64. Rescale it"
        )
    return value


def _refuse_constant(request: Request, found: Found, layout: Layout) -> None:
    if request.center and not found.total > 0:
        raise DataError(
            f"every column of {layout.view.source.name} is constant: there is no variance to explain. "
            "Use svd, or pca with center=False, if that is what you meant."
        )


def _write(run: Run, layout: Layout, request: Request, found: Found, fingerprint: str) -> dict[str, Any]:
    """Write arrays, then say what they are."""
    rows, _ = layout.view.source.shape
    variance = found.s**2 / max(rows - 1, 1)
    weights = _score_weights(run, request, found, rows, layout)
    orthogonality = _write_factors(run, layout, request, found, weights)
    small = {"residuals": found.residuals, "error_estimates": found.errors}
    if request.kind == "svd":
        small["s"] = found.s
    else:
        total = found.total / max(rows - 1, 1)
        small |= {
            "singular_values": found.s,
            "explained_variance": variance,
            "explained_variance_ratio": variance / total if total > 0 else np.zeros_like(variance),
        }
        small |= _columns(run, layout, request, found)
    write_small(run.result, small)
    return _facts(run, layout, request, found, fingerprint, orthogonality)


def _score_weights(run: Run, request: Request, found: Found, rows: int, layout: Layout) -> Float64:
    """What the left singular vectors are multiplied by: 1, s, or for whitening sqrt(m - 1)."""
    if request.kind == "svd":
        return np.ones(len(found.s))
    if not request.whiten:
        return found.s
    noise = float(np.finfo(layout.view.dtype).eps) * np.sqrt(max(layout.view.source.shape)) * found.s[0]
    drowned = found.s <= noise
    if drowned.any():
        run.warnings.append(
            f"{int(drowned.sum())} components have no variance beyond rounding; their scores are zero, "
            "not whitened"
        )
    return np.where(drowned, 0.0, np.sqrt(max(rows - 1, 1)))


def _write_factors(
    run: Run, layout: Layout, request: Request, found: Found, weights: Float64
) -> float | None:
    """Write left and right factors; the loss of orthogonality of the one that was formed by a sweep."""
    view, dtype = layout.view, layout.view.dtype
    left, right = ("U", "Vt") if request.kind == "svd" else ("scores", "components")
    if view.orientation is Orientation.ROWS:
        write_small(run.result, {right: np.ascontiguousarray(found.short.T, dtype=dtype)})
        return _sweep_rows(run, layout, request, found, left, weights) if request.rows else None
    if request.rows:
        write_small(run.result, {left: np.ascontiguousarray(found.short * weights, dtype=dtype)})
    return _sweep_rows(run, layout, request, found, right, np.ones(len(found.s)))


def _sweep_rows(
    run: Run, layout: Layout, request: Request, found: Found, name: str, weights: Float64
) -> float:
    view = layout.view
    if found.long is None:
        raise TypeError("the long factor was not prepared")
    transposed = view.orientation is Orientation.COLUMNS
    chunk = min(layout.out_chunk, view.long)
    rank = len(found.s)
    shape, chunks = (view.long, rank), (chunk, rank)
    array = create_array(
        run.result,
        name,
        shape[::-1] if transposed else shape,
        view.dtype,
        chunks[::-1] if transposed else chunks,
    )
    product = found.long.write(run, layout, array, weights)
    return float(np.abs(product - np.eye(rank)).max())


def _columns(run: Run, layout: Layout, request: Request, found: Found) -> dict[str, npt.NDArray[Any]]:
    """Mean and scale of the columns, and a warning about those that could not be scaled."""
    columns = layout.view.source.shape[1]
    mean, deviation = np.zeros(columns), np.ones(columns)
    if layout.view.orientation is Orientation.ROWS:
        mean, deviation = found.statistics.mean, found.statistics.deviation
    elif request.center or request.scale:
        stored = layout.columns(run.scratch).load()
        mean, deviation = stored[:, 0], stored[:, 1]
    if not request.scale:
        return {"mean": mean}
    found.facts["unscaled"] = warn_of_unscaled(run, deviation)
    return {"mean": mean, "scale": divisors(deviation)}


def warn_of_unscaled(run: Run, deviation: Float64) -> list[int]:
    """Which columns are constant, and are said to be."""
    unscaled = np.flatnonzero(deviation == 0)
    if len(unscaled):
        run.warnings.append(
            f"{len(unscaled)} columns are constant (first: {unscaled[0]}) and were left unscaled"
        )
    return [int(column) for column in unscaled]


def _facts(
    run: Run, layout: Layout, request: Request, found: Found, fingerprint: str, orthogonality: float | None
) -> dict[str, Any]:
    """Reproducible facts only: the same request on the same data gives the same bytes."""
    worst = float(found.errors.max())
    reached = float(found.facts["approximation_error"]) if request.adaptive else worst
    if request.adaptive and reached > request.tol:
        run.warnings.append(
            f"the approximation of rank {len(found.s)} may leave out {reached:.1e} of the norm, above tol = "
            f"{request.tol:.1e}: " + _remedy(layout, request, run)
        )
    elif reached > request.tol:
        run.warnings.append(
            f"the largest estimated error of a singular value is {worst:.1e}, above tol = {request.tol:.1e}, "
            f"after {run.passes} passes: " + _remedy(layout, request, run)
        )
    captured = float((found.s**2).sum() / found.total) if found.total > 0 else 1.0
    return {
        **run.facts(request.as_dict(), layout.method, layout.view.source, fingerprint),
        "block_width": layout.width,
        "largest_error_estimate": worst,
        "converged": reached <= request.tol,
        "rank": len(found.s),
        "convergence": [e if np.isfinite(e) else None for e in found.convergence],
        "squared_norm": found.total,
        "captured": min(captured, 1.0),
        "orthogonality": orthogonality,
        **found.facts,
    }


def _remedy(layout: Layout, request: Request, run: Run) -> str:
    if layout.method in ("krylov", "subspace") and run.passes >= request.passes:
        method = ", take --method gram or tsqr" * request.adaptive
        return f"allow more with passes= (--passes){method}, or raise tol"
    if request.adaptive and layout.method != "tsqr":
        return "squares in this precision tell no more; take --method tsqr, or raise tol"
    if layout.method == "tsqr":
        return f"{layout.view.dtype.name} does not hold so small a value beside the largest"
    if layout.method == "sketch":
        return "a single pass does no better; --method krylov takes several, or raise tol"
    return f"rounding errors of {layout.view.dtype.name} products, as measured, hide whether they are smaller"
