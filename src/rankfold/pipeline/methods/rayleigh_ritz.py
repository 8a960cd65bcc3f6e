"""Singular triplets from a subspace: Rayleigh-Ritz on a QR factorisation, and half a step more.

The small matrix Q'A'A Q squares the condition of A, so it only chooses directions. The values come from
the R factor of ``A Q`` itself, which one narrow sweep over scratch finds by Householder reflections; what
they are wrong by is of order eps times the largest, however small they are.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankfold.kernels.small import fix_signs, leading_singular_triplets
from rankfold.pipeline.folds.combination import Combination
from rankfold.pipeline.layout import Layout
from rankfold.pipeline.methods.basis import Basis
from rankfold.pipeline.methods.long_factor import ZERO, OnScratch, Triplets
from rankfold.pipeline.quality import SAFETY, ritz_vectors, rounding
from rankfold.pipeline.run import Run

Float64 = npt.NDArray[np.float64]

DROWNED = 0.1
"""Noise at which a value is not known to a digit, nor then how much of it is noise."""

TINY = float(np.finfo(np.float64).tiny)

HALF_STEP_NOISE = {4: 1e-5, 8: 1e-10}
"""Largest relative rounding error, by item size, at which a direction takes part in the half step."""


def rayleigh_ritz(
    run: Run, layout: Layout, basis: Basis, rank: int, seed: int, *, estimate: Float64 | None = None
) -> Triplets:
    """Extract ``rank`` triplets from a subspace.

    ``estimate`` (rank,) is what passes told of the relative errors that are left, where there were several.

    Notes
    -----
    One sweep over scratch: reads m p elements, 2 m l (p + l) flops for l directions kept out of p.
    All p are kept when the working type cannot tell the smallest wanted value from rounding in the
    squared matrix.

    References
    ----------
    Halko, Martinsson, Tropp, SIAM Review 53(2), 2011, section 5 for the extraction with A' of an
    orthonormal left basis; ours starts from Ritz vectors, so that it stays stable on a Krylov basis.
    """
    directions = _directions(layout, basis, rank)
    offset = np.concatenate(list(basis.each("offset")))
    y = OnScratch(run, layout, [block.y for block in basis.blocks], offset, rank, seed)
    combination = y.combination(directions, "ritz")
    r = y.r_factor(combination, "ritz")
    _, s, h = leading_singular_triplets(r, r.shape[1])
    if s[min(rank, len(s)) - 1] <= ZERO * s[0]:
        return _with_zeros(y, basis, directions @ h, s, estimate)
    return _half_step(layout, basis, combination, directions, h, s, rank, estimate)


def _directions(layout: Layout, basis: Basis, rank: int) -> Float64:
    """Eigenvectors of Q'A'A Q: a block of them, or all where rounding has mixed those that matter."""
    theta, w = ritz_vectors(basis.products, basis.width)
    eps = float(np.finfo(layout.view.dtype).eps)
    keep = min(max(layout.width, rank), basis.width)
    # Of all of the space nothing may be lost to the squares that order its directions.
    mixed = basis.width == layout.view.short or theta[rank - 1] <= 100 * eps * theta[0]
    return w if mixed else w[:, :keep]


def _half_step(
    layout: Layout,
    basis: Basis,
    combination: Combination,
    directions: Float64,
    h: Float64,
    s: Float64,
    rank: int,
    estimate: Float64 | None,
) -> Triplets:
    """Left vectors U = Y h / s are orthonormal; the triplets of U'A are those of A on their span.

    Directions whose products with A' drown in rounding do not take part; when a wanted one is among
    them nobody does, and the Ritz values stand as they are.
    """
    wide = max(layout.width, rank)
    all_kept = basis.ritz(wide, wide)
    # What a direction beyond the wanted ones brings in is its own size times its own noise.
    last = max(all_kept.values[rank - 1], TINY)
    heard = all_kept.noise * (np.minimum(all_kept.values, last) / last)
    drowned = (heard > _bearable_noise(layout, estimate)) | (all_kept.noise > DROWNED)
    accurate = int(drowned.argmax()) if drowned.any() else len(drowned)
    if basis.width == layout.view.short:
        accurate = 0  # there is nowhere to step: Ritz pairs on all of the space are as exact as they get
    kept = min(max(rank, accurate), len(s))
    image = basis.combine("z", directions @ (h[:, :kept] / s[:kept]))
    ritz = basis.combine("q", directions @ h[:, :rank])
    residuals = np.linalg.norm(image[:, :rank] - ritz * s[:rank], axis=0) / s[0]
    values, short, rotation = s[:rank], ritz, h[:, :rank] / s[:rank]
    noise, gain = all_kept.noise[:rank], all_kept.gain[:rank]
    if estimate is None:
        estimate = SAFETY * all_kept.second_order[:rank]
    if accurate >= rank:
        short, values, turn = leading_singular_triplets(image, rank)
        rotation = (h[:, :kept] / s[:kept]) @ turn
        errors = estimate + np.maximum(noise, heard[rank:kept].max(initial=0.0))
    else:
        errors = np.maximum(estimate, noise) + gain
        known = estimate < 1  # where passes could not tell, the gap to what lies outside is not known
        errors[known] = np.minimum(errors, SAFETY * _second_order(residuals, s, rank, kept))[known]
    errors = (0.0 if basis.width == layout.view.short else errors) + rounding(s[:rank], layout.view.dtype)
    signs = fix_signs(short)
    return Triplets(values, short * signs, combination, rotation * signs, residuals, np.minimum(errors, 1.0))


def _bearable_noise(layout: Layout, estimate: Float64 | None) -> float:
    """Noise that a direction may bring: well below the error that is left without the half step."""
    least = HALF_STEP_NOISE[layout.view.dtype.itemsize]
    return least if estimate is None else float(np.clip(0.1 * estimate.max(), least, 100 * least))


def _second_order(residuals: Float64, s: Float64, rank: int, kept: int) -> Float64:
    """As in ``ritz_values``, for values and vectors that come from the R factor."""
    last = s[min(max(kept, rank + 1), len(s)) - 1]
    gap = s[:rank] ** 2 - last**2
    return np.where(gap > 0, (residuals * s[0]) ** 2 / (2 * np.where(gap > 0, gap, 1.0)), np.inf)


def _with_zeros(
    y: OnScratch, basis: Basis, directions: Float64, s: Float64, estimate: Float64 | None
) -> Triplets:
    """A matrix of lower rank than asked for: its long factor is completed."""
    positive, rank = int((s > ZERO * s[0]).sum()), y.rank
    kept = directions[:, :positive]
    combination, inverse = y.completed(kept)
    values = np.concatenate([s[:positive], np.zeros(rank - positive)])
    short = basis.combine("q", directions[:, :rank])
    image = basis.combine("z", kept) @ inverse[:positive]
    residuals = np.linalg.norm(image - short * values, axis=0) / (s[0] if s[0] > 0 else 1.0)
    signs = fix_signs(short)
    errors = rounding(values, y.layout.view.dtype)
    if estimate is None and basis.width < y.layout.view.short:
        told = basis.ritz(rank, max(y.layout.width, rank))
        estimate = SAFETY * told.second_order + told.noise
    if estimate is not None:
        errors[:positive] += estimate[:positive]
    return Triplets(values, short * signs, combination, inverse * signs, residuals, np.minimum(errors, 1.0))
