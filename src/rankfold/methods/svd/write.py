"""Write what a solver found as the arrays and facts of a result."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.dense import adjoint
from rankfold.methods.claims import has_converged, in_words
from rankfold.methods.parts.conditioned import divisors
from rankfold.methods.parts.outputs import write_outputs
from rankfold.methods.parts.square_range import refuse_faint_columns
from rankfold.methods.svd.error_estimates import rounding
from rankfold.methods.svd.long_factor import create_long_array
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.solvers.solver import Decomposition
from rankfold.methods.svd.strategy import Strategy
from rankfold.pipeline.data.real_parts import matrix_of_parts
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.errors import NoVarianceError
from rankfold.pipeline.prepare.prepared import shift_of

Float64 = npt.NDArray[np.float64]

LOST = 0.1
"""Relative rounding error from which on a singular value is not known to a digit."""

UNKNOWN = 1.0
"""Estimated relative error of a singular value from which on its size is not known."""


def refuse_constant(request: Request, decomposition: Decomposition, layout: Strategy) -> None:
    """Raise ``NoVarianceError`` if columns are centered and all of them are constant."""
    if request.center and not decomposition.total > 0:
        raise NoVarianceError(
            f"every column of {layout.view.source.name} is constant: there is no variance to explain. "
            "Use svd, or pca with center=False, if that is what you meant."
        )


def warn_of_rounding(run: Run, layout: Strategy, request: Request, decomposition: Decomposition) -> None:
    """Add a warning to ``run`` if rounding of float32 hides singular values much smaller than the largest."""
    dtype = layout.view.dtype
    if dtype != np.float32:
        return
    lost = (rounding(decomposition.s, dtype) >= LOST) & (decomposition.errors >= LOST)
    if lost.any():
        center = (
            "" if request.center else "center the columns, where it is their mean that is large (pca), or "
        )
        run.warnings.append(
            f"{int(lost.sum())} of {len(lost)} singular values are below {np.finfo(dtype).eps / LOST:.0e} of "
            f"the largest, and rounding of {dtype.name} hides them: {center}say precision='float64' "
            "(--precision float64)"
        )


def write_decomposition(
    run: Run, layout: Strategy, request: Request, decomposition: Decomposition, fingerprint: str
) -> dict[str, Any]:
    """Write the arrays of a result into ``run.result``; return its facts (metadata).

    ``fingerprint`` is that of the matrix.
    """
    rows, _ = matrix_of_parts(layout.view.source).shape
    variance = decomposition.s**2 / max(rows - 1, 1)
    weights = _score_weights(run, request, decomposition, rows, layout)
    orthogonality = _write_factors(run, layout, request, decomposition, weights)
    small = {"residuals": decomposition.residuals, "error_estimates": decomposition.errors}
    if request.kind == "svd":
        small["s"] = decomposition.s
    else:
        total = decomposition.total / max(rows - 1, 1)
        small |= {
            "singular_values": decomposition.s,
            "explained_variance": variance,
            "explained_variance_ratio": variance / total if total > 0 else np.zeros_like(variance),
        }
        small |= _columns(run, layout, request, decomposition)
    write_outputs(run.result, small)
    return _facts(run, layout, request, decomposition, fingerprint, orthogonality)


def _score_weights(
    run: Run, request: Request, decomposition: Decomposition, rows: int, layout: Strategy
) -> Float64:
    """Factors (k,) of the left singular vectors that give scores: 1, s, or for whitening sqrt(m - 1).

    ``rows`` is m; when whitening, factors of components without variance beyond rounding are 0.
    """
    if request.kind == "svd":
        return np.ones(len(decomposition.s))
    if not request.whiten:
        return decomposition.s
    noise = (
        float(np.finfo(layout.view.dtype).eps) * np.sqrt(max(layout.view.source.shape)) * decomposition.s[0]
    )
    below_noise = decomposition.s <= noise
    if below_noise.any():
        run.warnings.append(
            f"{int(below_noise.sum())} components have no variance beyond rounding; their scores are zero, "
            "not whitened"
        )
    return np.where(below_noise, 0.0, np.sqrt(max(rows - 1, 1)))


def _write_factors(
    run: Run, layout: Strategy, request: Request, decomposition: Decomposition, weights: Float64
) -> float | None:
    """Write left and right factors; return the loss of orthogonality of the long one, None if not written.

    ``weights`` (k,) are factors of the left singular vectors. The loss is the largest absolute element of the
    difference of their Gram matrix from the identity.
    """
    view, dtype = layout.view, layout.dtype
    left, right = ("U", "Vt") if request.kind == "svd" else ("scores", "components")
    if view.orientation is Orientation.ROWS:
        write_outputs(run.result, {right: np.ascontiguousarray(adjoint(decomposition.short), dtype=dtype)})
        return _sweep_rows(run, layout, request, decomposition, left, weights) if request.rows else None
    if request.rows:
        # The transpose is decomposed, whose right vectors are the conjugates of these.
        factor = decomposition.short.conj() * weights
        write_outputs(run.result, {left: np.ascontiguousarray(factor, dtype=dtype)})
    return _sweep_rows(run, layout, request, decomposition, right, np.ones(len(decomposition.s)))


def _sweep_rows(
    run: Run, layout: Strategy, request: Request, decomposition: Decomposition, name: str, weights: Float64
) -> float:
    if decomposition.long is None:
        raise TypeError("the long factor was not prepared")
    rank = len(decomposition.s)
    array = create_long_array(run, layout, name, rank)
    product = decomposition.long.write(run, layout, array, weights)
    return float(np.abs(product - np.eye(rank)).max())


def _columns(
    run: Run, layout: Strategy, request: Request, decomposition: Decomposition
) -> dict[str, npt.NDArray[Any]]:
    """The arrays ``mean`` (n,), and ``scale`` (n,) if asked for; warns of columns that cannot be scaled."""
    columns = layout.view.source.shape[1]
    mean, deviation = np.zeros(columns), np.ones(columns)
    if layout.view.orientation is Orientation.ROWS or layout.solver.holds_matrix:
        mean, deviation = decomposition.statistics.mean, decomposition.statistics.deviation
    elif request.center or request.scale:
        local_statistics = run.load(layout.columns(run.scratch))
        mean, deviation = local_statistics[:, 0], local_statistics[:, 1]
    shift = shift_of(layout.view.source)
    mean = mean if shift is None else mean + shift
    mean = layout.numbers_of(mean)
    if not request.scale:
        return {"mean": mean}
    deviation = deviation[:: 1 + layout.paired]
    refuse_faint_columns(layout.view.source, mean, deviation)
    decomposition.facts["unscaled"] = warn_of_constant(run, deviation)
    return {"mean": mean, "scale": divisors(deviation)}


def warn_of_constant(run: Run, deviation: Float64) -> list[int]:
    """Add a warning to ``run`` if columns are constant, ``deviation`` (n,) being 0; return their indices."""
    constant_columns = np.flatnonzero(deviation == 0)
    if len(constant_columns):
        run.warnings.append(
            f"{len(constant_columns)} columns are constant (first: {constant_columns[0]}) and were left "
            "unscaled"
        )
    return [int(column) for column in constant_columns]


def _facts(
    run: Run,
    layout: Strategy,
    request: Request,
    decomposition: Decomposition,
    fingerprint: str,
    orthogonality: float | None,
) -> dict[str, Any]:
    """Facts of a result, all reproducible: the same request on the same data gives the same bytes.

    Adds warnings to ``run`` where the tolerance is not met. ``orthogonality`` is the loss that
    ``_write_factors`` returns.
    """
    worst, advice = float(decomposition.errors.max()), layout.solver.advice(request, layout, run.passes)
    rank = len(decomposition.s)
    final_error = float(decomposition.facts["approximation_error"]) if request.adaptive else worst
    if request.adaptive and not has_converged(final_error, request.tol):
        run.warnings.append(
            f"the approximation of rank {rank} may leave out {final_error:.1e} of the norm, above "
            f"tol = {request.tol:.1e}: " + advice
        )
    elif not has_converged(final_error, request.tol):
        error, allowed = in_words(worst, request.tol)
        run.warnings.append(
            f"the largest estimated error of a singular value is {error}, above tol = {allowed}, "
            f"after {run.passes} passes: {advice}"
        )
    if request.adaptive and (unknown := int((decomposition.errors >= UNKNOWN).sum())):
        run.warnings.append(
            f"tol = {request.tol:g} bounds what is left out of the norm, not the error of single values: the "
            f"last {unknown} of {rank} have estimated errors of 1 or more (largest {worst:.1f}), "
            "so that their sizes are not known. Where they matter ask for a rank= (--rank)"
        )
    norm_share = float((decomposition.s**2).sum() / decomposition.total) if decomposition.total > 0 else 1.0
    return {
        **run.facts(
            layout.as_asked(request).as_dict(),
            layout.method,
            matrix_of_parts(layout.view.source),
            fingerprint,
        ),
        "block_width": layout.vectors(layout.width),
        "largest_error_estimate": worst,
        "converged": has_converged(final_error, request.tol),
        "rank": rank,
        "convergence": [e if np.isfinite(e) else None for e in decomposition.convergence],
        "squared_norm": decomposition.total,
        "captured": min(norm_share, 1.0),
        "orthogonality": orthogonality,
        **decomposition.facts,
    }
