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

from rankfold.kernels.qr import panel_r, r_of_gram
from rankfold.pipeline.checkpoint import State, load_arrays, save_arrays
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.finite import refuse_bad
from rankfold.pipeline.folds.local_columns import Centring
from rankfold.pipeline.folds.panel_factor import PanelFactor
from rankfold.pipeline.folds.whitened import WhitenedFactor, WhitenedGram, Whitening
from rankfold.pipeline.layout import Layout
from rankfold.pipeline.methods.fused import Statistics, scaled_statistics, statistics
from rankfold.pipeline.methods.gram import divisors
from rankfold.pipeline.methods.start import Start
from rankfold.pipeline.run import Run
from rankfold.pipeline.view import Orientation

Array = npt.NDArray[np.generic]
Float64 = npt.NDArray[np.float64]

LEAST_SAMPLED = 1e-10
"""Smallest singular value of a sample, relative to its largest, that a basis is made from."""

SAMPLED_ROWS = 1024
"""Of a sample that are factorised at a time."""

FAR_FROM_MEAN = 1e2
"""Ratio of the shift's error to a variance past which their difference is left to reflections."""

MILD = 30.0
"""Condition up to which what is divided by the singular values, or by R, is orthonormal to 1e-14."""

MOST_ATTEMPTS = 8
"""At Gaussian columns for a matrix of lower rank and few rows."""


@dataclass(frozen=True, slots=True)
class Factored:
    """A = Q R, where A is centred, scaled, and times the unit."""

    r: Float64
    """(short, short) upper triangular, diagonal not negative."""

    known: Statistics
    whitening: Whitening | None
    """``Q = Y @ inverse`` with the Y of this; None where Q was not asked for and is not known."""

    inverse: Float64


def zero(short: int) -> float:
    """Singular values below this, relative to the largest, are rounding."""
    return max(short, 32) * float(np.finfo(np.float64).eps)


def warn_of_rank(run: Run, layout: Layout, found: Factored, rank: int) -> None:
    """Say which columns of a long factor the matrix does not determine."""
    if found.whitening is not None and found.whitening.directions < rank:
        run.warnings.append(
            f"{layout.view.source.name} has rank {found.whitening.directions}, to rounding: the other "
            f"{rank - found.whitening.directions} columns of its long factor are arbitrary"
        )


def sampled_basis(d: Array) -> Float64:
    """(short, short) basis that makes the columns of some rows orthonormal; nothing if they depend."""
    r = np.zeros((d.shape[1], d.shape[1]))
    for start in range(0, len(d), SAMPLED_ROWS):
        r = panel_r(np.vstack([r, d[start : start + SAMPLED_ROWS]]))
    _, s, vt = np.linalg.svd(r)
    return vt.T / s if s[-1] > LEAST_SAMPLED * s[0] else np.zeros((0, 0))


def tsqr(
    run: Run, layout: Layout, centring: Centring, start: Start, *, form: bool, passes: int, seed: int
) -> Factored:
    """R, and if ``form`` the recipe of Q.

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
    basis = load_arrays(start.sampled)["q"]
    if basis.size:
        found = _by_gram(run, layout, centring, start, basis, seed)
        if found is not None:
            return _scaled(layout, centring, found)
    found = _by_reflections(run, layout, centring, start)
    if form:
        need = run.passes + 1 + (_condition(found.r) > MILD)
        if need > passes:
            raise InputError(
                f"columns of {layout.view.source.name} are so nearly dependent, or its rows so unlike one "
                f"another, that their long factor takes {need} passes, but passes={passes}. Allow "
                f"--passes {need}, or leave rows out (--no-rows)."
            )
        found = _with_recipe(run, layout, centring, found, seed)
    return _scaled(layout, centring, found)


def _by_gram(
    run: Run, layout: Layout, centring: Centring, start: Start, basis: Float64, seed: int
) -> Factored | None:
    """By one pass into the Gram matrix of whitened columns, or None where that loses digits."""
    view = layout.view
    w = basis * centring.unit
    whitening = _kept(run, "first", w, np.zeros(view.short), start.shift, seed)
    fold = WhitenedGram(
        layout.wide_panels(run.slots),
        centring,
        whitening,
        layout.column_file(run.scratch, centring),
        layout.row_seconds(3 * view.short),
    )
    state = run.pass_over_data("gram", fold)
    refuse_bad(state, view.source.name)
    known = _known(state, layout, start, centring)
    offset = w.T @ (known.mean - start.shift)
    product = state["gram"] - view.long * np.outer(offset, offset)
    variance = np.diag(product)
    if not (view.long * offset**2 <= FAR_FROM_MEAN * variance).all():
        return None
    inner = r_of_gram(product)
    if inner is None:
        return None
    whitening = _kept(run, "whitening", w, offset, start.shift, seed)
    return _factored(inner, basis, known, whitening)


def _by_reflections(run: Run, layout: Layout, centring: Centring, start: Start) -> Factored:
    fold = PanelFactor(
        layout.wide_panels(run.slots),
        centring,
        start.shift,
        layout.column_file(run.scratch, centring),
        layout.row_seconds(8 * layout.view.short),
    )
    state = run.pass_over_data("reflections", fold)
    refuse_bad(state, layout.view.source.name)
    return Factored(
        state["r"][int(fold.ones) :, int(fold.ones) :],
        _known(state, layout, start, centring),
        None,
        np.zeros((0, 0)),
    )


def _with_recipe(run: Run, layout: Layout, centring: Centring, found: Factored, seed: int) -> Factored:
    """Q from R: the basis is V / s, with Gaussian columns for what is zero."""
    short = layout.view.short
    _, s, vt = np.linalg.svd(found.r)
    positive = int((s > zero(short) * s[0]).sum())
    basis = vt[:positive].T / s[:positive]
    offset, shift = np.zeros(positive), found.known.mean if centring.centre else np.zeros(short)
    inner = np.eye(short)
    for attempt in range(MOST_ATTEMPTS):
        name = f"whitening-{attempt}"
        random = short - positive
        whitening = _kept(run, name, basis * centring.unit, offset, shift, seed + attempt, random=random)
        if not random and _condition(found.r) <= MILD:
            break
        inner = _reflected(run, layout, centring, whitening, f"reflections-{attempt}")
        if not random or _condition(inner) <= MILD:  # few rows may draw columns that nearly depend
            break
    return _factored(inner, basis, found.known, whitening)


def _reflected(run: Run, layout: Layout, centring: Centring, whitening: Whitening, name: str) -> Float64:
    """The R factor of whitened columns."""
    fold = WhitenedFactor(
        layout.wide_panels(run.slots),
        centring,
        whitening,
        layout.column_file(run.scratch, centring),
        layout.row_seconds(10 * whitening.width),
    )
    state = run.pass_over_data(name, fold)
    refuse_bad(state, layout.view.source.name)
    return state["r"]


def _factored(inner: Float64, basis: Float64, known: Statistics, whitening: Whitening) -> Factored:
    """R and Q from ``Y = Q_Y inner`` and ``A = Y[:, :p] basis^+``: a small QR of their product."""
    short, positive = basis.shape
    back = np.zeros((short, short))
    back[:positive] = inner[:positive, :positive] @ (basis / (basis**2).sum(axis=0)).T
    q, r = np.linalg.qr(back)
    signs = np.where(np.diag(r) < 0, -1.0, 1.0)
    inverse = scipy.linalg.solve_triangular(inner, q * signs, check_finite=False)
    return Factored(r * signs[:, None], known, whitening, inverse)


def _scaled(layout: Layout, centring: Centring, found: Factored) -> Factored:
    """With the columns of a tall matrix divided by their standard deviations."""
    if not (centring.scale and layout.view.orientation is Orientation.ROWS):
        return found
    return replace(found, r=found.r / divisors(found.known.deviation))


def _known(state: State, layout: Layout, start: Start, centring: Centring) -> Statistics:
    by_rows = layout.view.orientation is Orientation.ROWS
    tell = scaled_statistics if centring.scale and by_rows else statistics
    return tell(state, layout, start, centring)


def _kept(
    run: Run, name: str, w: Float64, offset: Float64, shift: Float64, seed: int, *, random: int = 0
) -> Whitening:
    path = run.part(f"{name}.npz")
    if not path.exists():
        save_arrays(path, {"w": w, "offset": offset, "shift": shift})
    return Whitening(path, w.shape[1], random, seed)


def _condition(r: Float64) -> float:
    s = np.linalg.svd(r, compute_uv=False)
    return float(s[0] / s[-1]) if s[-1] > 0 else np.inf
