"""R factor of a tall matrix, all of its singular values, and Q without storing anything beside it.

Householder reflections of panels, as in TSQR, are right whatever the matrix, but run at a third of the
speed of matrix products, and Q would take a tree of small factors. If instead the columns are first made
nearly orthonormal by a basis from a sample of rows, their Gram matrix is near the identity: its Cholesky
factor loses nothing, and the product with its inverse is Q to rounding. Where the sample misleads,
reflections find R, and what R tells makes the basis.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import scipy.linalg

from rankfold.kernels.linear.qr import panel_r, r_of_gram
from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.finite import refuse_bad
from rankfold.methods.parts.start import Start
from rankfold.methods.svd.fused import Statistics, mean_about_shift, scaled_statistics, statistics
from rankfold.methods.svd.solvers.gram import divisors
from rankfold.methods.svd.solvers.preconditioned import (
    PanelFactor,
    PreconditionedFactor,
    PreconditionedGram,
    Preconditioner,
)
from rankfold.methods.svd.strategy import Strategy
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.storage.checkpoint import State, load_arrays, save_once

Array = npt.NDArray[np.generic]
Float64 = npt.NDArray[np.float64]

LEAST_SAMPLED = 1e-10
"""Smallest singular value of a sample, relative to its largest, that a basis is made from."""

SAMPLED_ROWS = 1024
"""Of a sample that are factorized at a time."""

FAR_FROM_MEAN = 1e2
"""Ratio of the shift's error to a variance past which their difference is left to reflections."""

CONSTANT = 8 * float(np.finfo(np.float64).eps)
"""A column whose root mean square about its mean is below this share of the mean is rounding."""

MILD = 30.0
"""Condition up to which what is divided by the singular values, or by R, is orthonormal to 1e-14."""

MOST_ATTEMPTS = 8
"""At Gaussian columns for a matrix of lower rank and few rows."""


@dataclass(frozen=True, slots=True)
class Factored:
    """A = Q R, where A is centered, scaled, and times the unit."""

    r: Float64
    """(short, short) upper triangular, diagonal not negative."""

    known: Statistics
    preconditioner: Preconditioner | None
    """``Q = Y @ inverse`` with the Y of this; None where Q was not asked for and is not known."""

    inverse: Float64


def zero(short: int) -> float:
    """Singular values below this, relative to the largest, are rounding."""
    return max(short, 32) * float(np.finfo(np.float64).eps)


def warn_of_rank(run: Run, layout: Strategy, found: Factored, rank: int) -> None:
    """Say which columns of a long factor the matrix does not determine."""
    if found.preconditioner is not None and found.preconditioner.directions < rank:
        run.warnings.append(
            f"{layout.view.source.name} has rank {found.preconditioner.directions}, to rounding: the other "
            f"{rank - found.preconditioner.directions} columns of its long factor are arbitrary"
        )


@dataclass(frozen=True, slots=True)
class Basis:
    """``W = V / s`` for a matrix whose columns were first divided by powers of two."""

    whitened: Float64
    """(short, p) V / s: columns are orthogonal."""

    scale: Float64
    """(short,) the powers of two."""

    @classmethod
    def of(cls, r: Float64, smallest: float) -> Basis:
        """From an R factor, and only singular values above a share of the largest."""
        lengths = np.linalg.norm(r, axis=0)
        scale = np.where(lengths > 0, np.exp2(np.frexp(lengths)[1]), 1.0)
        _, s, vt = np.linalg.svd(r / scale)
        kept = int((s > smallest * s[0]).sum())
        return cls(vt[:kept].T / s[:kept], scale)

    @property
    def weights(self) -> Float64:
        """W, by which columns as they are become orthonormal."""
        return self.whitened / self.scale[:, None]

    def back(self) -> Float64:
        """(p, short): ``A = A W back``, to rounding of each column."""
        return np.asarray((self.whitened / (self.whitened**2).sum(axis=0)).T * self.scale)


def sampled_basis(d: Array) -> State:
    """The basis that makes the columns of some rows orthonormal; nothing in ``q`` if they depend."""
    r = np.zeros((d.shape[1], d.shape[1]))
    for start in range(0, len(d), SAMPLED_ROWS):
        r = panel_r(np.vstack([r, d[start : start + SAMPLED_ROWS]]))
    basis = Basis.of(r, max(LEAST_SAMPLED, 1e3 * float(np.finfo(d.dtype.name).eps)))
    full = basis.whitened.shape == r.shape
    return {"q": basis.whitened if full else np.zeros((0, 0)), "scale": basis.scale}


def tsqr(
    run: Run, layout: Strategy, centering: Centering, start: Start, *, form: bool, passes: int, seed: int
) -> Factored:
    """R, and if ``form`` the recipe of Q.

    Raises
    ------
    DataError
        More than ``passes`` would be needed.

    Notes
    -----
    One pass of 3 m n^2 flops, if a sample gives a basis whose columns turn out independent; else one of
    2 m n^2 by reflections, and if Q is wanted of a matrix whose condition exceeds ``MILD``, another.

    References
    ----------
    Demmel, Grigori, Hoemmen, Langou, SIAM J. Sci. Comput. 34(1), 2012, for the tree of reflections. Fukaya,
    Kannan, Nakatsukasa, Yamamoto, Yanagisawa, Shifted Cholesky QR, SIAM J. Sci. Comput. 42(1), 2020, for the
    stability of Cholesky QR after preconditioning; our preconditioner comes from sampled rows.
    """
    sampled = load_arrays(start.sampled)
    if sampled["q"].size:
        found = _by_gram(run, layout, centering, start, Basis(sampled["q"], sampled["scale"]), seed)
        if found is not None:
            return _scaled(layout, centering, found)
        _require_passes(run, layout, run.passes + 1 + form, passes, form)
    r, moved, known = _by_reflections(run, layout, centering, start)
    if not form:
        return _scaled(layout, centering, Factored(r, known, None, np.zeros((0, 0))))
    constant = (
        np.linalg.norm(r, axis=0) <= CONSTANT * np.abs(known.mean) * centering.unit * layout.view.long**0.5
    )
    r[:, constant] = 0
    basis = Basis.of(r, zero(layout.view.short))
    mild = basis.whitened.shape == r.shape and _condition(r / basis.scale) <= MILD
    _require_passes(run, layout, run.passes + 1 + (not mild), passes, form)
    w = basis.weights * centering.unit
    random, inner = layout.view.short - w.shape[1], np.eye(layout.view.short)
    for attempt in range(1 if mild else min(MOST_ATTEMPTS, passes - run.passes - 1)):
        key = (seed + attempt) % 2**64
        preconditioner = _kept(run, f"whitening-{attempt}", w, w.T @ moved, start.shift, key, random=random)
        if not mild:
            inner = _reflected(run, layout, centering, preconditioner, f"reflections-{attempt}")
        if not random or _condition(inner) <= MILD:  # few rows may draw columns that nearly depend
            break
    return _scaled(layout, centering, _factored(inner, basis, known, preconditioner))


def _require_passes(run: Run, layout: Strategy, need: int, passes: int, form: bool) -> None:
    if need > passes:
        way_out = ", or leave rows out (--no-rows)" * (form and layout.view.orientation is Orientation.ROWS)
        raise DataError(
            f"columns of {layout.view.source.name} are so nearly dependent, or its rows so unlike one "
            f"another, that it takes {need} passes, but passes={passes}. Allow --passes {need}{way_out}."
        )


def _by_gram(
    run: Run, layout: Strategy, centering: Centering, start: Start, basis: Basis, seed: int
) -> Factored | None:
    """By one pass into the Gram matrix of whitened columns, or None where that loses digits."""
    view = layout.view
    w = basis.weights * centering.unit
    fold = PreconditionedGram(
        layout.wide_panels(run.slots),
        centering,
        _kept(run, "first", w, np.zeros(view.short), start.shift, seed),
        layout.column_file(run.scratch, centering),
        layout.row_seconds(3 * view.short),
    )
    state = run.pass_over_data("gram", fold)
    refuse_bad(state, view.source)
    offset = w.T @ mean_about_shift(state, layout, centering)
    product = state["gram"] - view.long * np.outer(offset, offset)
    variance = np.diag(product)
    if not (view.long * offset**2 <= FAR_FROM_MEAN * variance).all():
        return None
    inner = r_of_gram(product)
    if inner is None:
        return None
    preconditioner = _kept(run, "whitening", w, offset, start.shift, seed)
    return _factored(inner, basis, _known(state, layout, start, centering), preconditioner)


def _by_reflections(
    run: Run, layout: Strategy, centering: Centering, start: Start
) -> tuple[Float64, Float64, Statistics]:
    """R, what the mean differs from the shift, and the columns."""
    fold = PanelFactor(
        layout.wide_panels(run.slots),
        centering,
        start.shift,
        layout.column_file(run.scratch, centering),
        layout.row_seconds(8 * layout.view.short),
    )
    state = run.pass_over_data("reflections", fold)
    refuse_bad(state, layout.view.source)
    r, ones = state["r"], int(fold.ones)
    known = _known(state, layout, start, centering)
    return r[ones:, ones:], mean_about_shift(state, layout, centering), known


def _reflected(
    run: Run, layout: Strategy, centering: Centering, preconditioner: Preconditioner, name: str
) -> Float64:
    """The R factor of whitened columns."""
    fold = PreconditionedFactor(
        layout.wide_panels(run.slots),
        centering,
        preconditioner,
        layout.column_file(run.scratch, centering),
        layout.row_seconds(10 * preconditioner.width),
    )
    state = run.pass_over_data(name, fold)
    refuse_bad(state, layout.view.source)
    return state["r"]


def _factored(inner: Float64, basis: Basis, known: Statistics, preconditioner: Preconditioner) -> Factored:
    """R and Q from ``Y = Q_Y inner`` and ``A = Y[:, :p] back``: a small QR of their product."""
    short, positive = basis.whitened.shape
    back = np.zeros((short, short))
    back[:positive] = inner[:positive, :positive] @ basis.back()
    q, r = np.linalg.qr(back)
    signs = np.where(np.diag(r) < 0, -1.0, 1.0)
    inverse = scipy.linalg.solve_triangular(inner, q * signs, check_finite=False)
    return Factored(r * signs[:, None], known, preconditioner, inverse)


def _scaled(layout: Strategy, centering: Centering, found: Factored) -> Factored:
    """With the columns of a tall matrix divided by their standard deviations."""
    if not (centering.scale and layout.view.orientation is Orientation.ROWS):
        return found
    return replace(found, r=found.r / divisors(found.known.deviation))


def _known(state: State, layout: Strategy, start: Start, centering: Centering) -> Statistics:
    by_rows = layout.view.orientation is Orientation.ROWS
    tell = scaled_statistics if centering.scale and by_rows else statistics
    return tell(state, layout, start, centering)


def _kept(
    run: Run, name: str, w: Float64, offset: Float64, shift: Float64, seed: int, *, random: int = 0
) -> Preconditioner:
    path = save_once(run.part(f"{name}.part"), {"w": w, "offset": offset, "shift": shift})
    return Preconditioner(path, w.shape[1], random, seed)


def _condition(r: Float64) -> float:
    s = np.linalg.svd(r, compute_uv=False)
    return float(s[0] / s[-1]) if s[-1] > 0 else np.inf
