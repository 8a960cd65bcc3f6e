"""Singular triplets from a subspace: Rayleigh-Ritz on a QR factorization, and half a step more.

The small matrix Q'A'A Q squares the condition of A, so it only chooses directions. The values come from
the R factor of ``A Q`` itself, which one narrow sweep over scratch finds by Householder reflections. Their
errors are of order eps times the largest value, however small they are.

``Basis`` holds blocks Q, Y = A Q and Z = A'Y of a growing orthonormal basis, kept on disk and read one at a
time. ``Convergence`` holds the estimated errors after each pass, and decides whether they are small enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.dense import adjoint, fix_signs, leading_singular_triplets, ritz_vectors
from rankfold.methods.parts.combination import Combination
from rankfold.methods.svd.error_estimates import (
    SAFETY,
    Ritz,
    errors_within,
    largest_eigenvalues,
    ritz_values,
    rounding,
)
from rankfold.methods.svd.long_factor import ZERO, OnScratch, Triplets
from rankfold.methods.svd.operator import Block
from rankfold.methods.svd.strategy import Strategy
from rankfold.methods.svd.unseen_directions import Outside, RowSketch, UnseenDirections
from rankfold.pipeline.engine.run import Run

Float64 = npt.NDArray[np.float64]


@dataclass(slots=True)
class Basis:
    """The basis Q = ``[Q_1 ... Q_t]``, orthonormal, with the small matrix that describes A on it."""

    blocks: list[Block] = field(default_factory=list)
    """The blocks Q_i with their images Y_i and Z_i, in files."""

    products: Float64 = field(default_factory=lambda: np.zeros((0, 0)))
    """Q'Z = Q'A'A Q (width, width) as computed: its asymmetry is the rounding error of the passes."""

    closed: set[int] = field(default_factory=set)
    """Indices of blocks whose images Z lie in the basis, because later blocks were made from them."""

    @property
    def width(self) -> int:
        """Number of columns of all blocks together."""
        return sum(block.width for block in self.blocks)

    def each(self, name: str) -> Iterator[Float64]:
        """Yield the array called ``name`` ("q", "z" or "offset") of every block, one block at a time."""
        for block in self.blocks:
            yield block.load(name)

    def add(self, block: Block) -> None:
        """Add a block, and extend ``products``: 4 short (width of the block) (width of all) flops."""
        q, z = block.load("q"), block.load("z")
        below = [adjoint(q) @ other for other in self.each("z")]
        self.blocks.append(block)
        column = np.vstack([adjoint(other) @ z for other in self.each("q")])
        row = np.hstack([*below, column[-block.width :]])
        self.products = _add_border(self.products, column, row)

    def combine(self, name: str, coefficients: Float64) -> Float64:
        """``[Q_1 ...] @ coefficients`` for the name "q", ``[Z_1 ...] @ coefficients`` for "z"; (short, k).

        ``coefficients`` are (width of all, k).
        """
        shape = len(self.blocks[0].load(name)), coefficients.shape[1]
        total, row = np.zeros(shape, self.products.dtype), 0
        for block in self.blocks:
            total += block.load(name) @ coefficients[row : row + block.width]
            row += block.width
        return total

    def with_missing(self, missing: UnseenDirections, rank: int) -> Float64 | None:
        """Vectors for the next block after the first: directions that a sketch found, then images.

        The images A'A Q w are those of leading Ritz vectors, ``rank`` of which are wanted. Directions are
        included that rank among the leading ones by the sketch. Of those that the sketch does not rule out,
        as many are included as leave room for images of the wanted Ritz vectors. Returns (short, width), not
        orthonormal; None if no direction is as large as the wanted ones.
        """
        theta, w = ritz_vectors(self.products, self.width)
        possible = int((missing.sketched > theta[rank - 1]).sum())
        if not possible:
            return None
        order = np.argsort(-np.append(theta, missing.squares), kind="stable")
        leading = int((order[: self.width] >= self.width).sum())
        new = max(min(leading, possible), min(possible, self.width - rank))
        return np.hstack([missing.directions[:, :new], self.combine("z", w[:, : self.width - new])])

    def upper_bounds(self, lower: Float64, outside: Outside) -> Float64:
        """Upper bounds (k,) of the k leading eigenvalues of A'A, given lower bounds ``lower`` (k,) of them.

        ``outside`` is what a sketch of rows shows outside the basis: see ``largest_eigenvalues``. Work 6
        short (width of all)^2 flops where no block is in ``closed``, and some p^3.
        """
        theta, w = ritz_vectors(self.products, self.width)
        couplings, sketched = self._couplings(outside)
        parts = adjoint(outside.turn) @ (sketched @ w)
        return largest_eigenvalues(
            theta, adjoint(w) @ couplings @ w, parts, outside.squares, outside.least, lower
        )

    def _couplings(self, outside: Outside) -> tuple[Float64, Float64]:
        """E'E (width, width) with E = (I - Q Q') A'A Q, and a sketch (l, width) of A E.

        Formed from vectors: as a difference of squares E'E would be rounding.
        """
        edges = np.cumsum([0, *(block.width for block in self.blocks)])
        couplings = np.zeros_like(self.products)
        sketched = np.zeros((len(outside.rows), self.width), self.products.dtype)
        for i in range(len(self.blocks)):
            if i in self.closed:
                continue
            part, rows = self._outside(i), slice(edges[i], edges[i + 1])
            sketched[:, rows] = outside.rows @ part
            couplings[rows, rows] = adjoint(part) @ part
            for j in range(i):
                if j not in self.closed:
                    columns = slice(edges[j], edges[j + 1])
                    couplings[rows, columns] = adjoint(part) @ self._outside(j)
                    couplings[columns, rows] = adjoint(couplings[rows, columns])
        return couplings, sketched

    def _outside(self, index: int) -> Float64:
        """Part of the images Z of block number ``index`` outside the basis, (short, width of the block)."""
        part = self.blocks[index].load("z").copy()
        for q in self.each("q"):
            part -= q @ (adjoint(q) @ part)
        return part

    def residuals(self, keep: int) -> Float64:
        """Residuals A'A u - theta u of the ``keep`` leading Ritz vectors u, (short, keep), of length 1."""
        theta, w = ritz_vectors(self.products, keep)
        rest = self.combine("z", w) - self.combine("q", w) * theta
        length = np.linalg.norm(rest, axis=0)
        return rest / np.where(length > 0, length, 1.0)

    def ritz(self, rank: int, keep: int, *, outside: float = 0.0, settling: bool = False) -> Ritz:
        """Estimates of the ``rank`` leading singular values, from ``keep`` Ritz pairs, at least ``rank``.

        ``outside`` bounds the largest squared singular value outside the basis, where one is known, else 0.
        With ``settling`` the basis has just gained directions whose values may still rise: the bound is then
        the largest value that those beyond ``rank`` may rise to. Work 4 short keep (width of all) flops.
        """
        theta, w = ritz_vectors(self.products, keep)
        image = self.combine("z", w)
        rest = self.combine("q", w)
        rest *= -theta
        rest += image
        residual = np.einsum("ij,ij->j", rest.conj(), rest).real
        if settling:
            outside = float((theta + np.sqrt(residual))[rank:].max(initial=0.0))
        return ritz_values(self.products, theta, w, image, residual, rank, outside)


def _add_border(matrix: Float64, column: Float64, row: Float64) -> Float64:
    """``matrix`` with a block ``column`` and a block ``row`` added, which overlap in their last square."""
    old = len(matrix)
    return np.block([[matrix, column[:old]], [row[:, :old], column[old:]]])


# Singular triplets --------------------------------------------------------------------------------


NOISE_LIMIT = 0.1
"""Relative rounding error from which on no digit of a value is known, nor how much of it is noise."""

SMALL = float(np.finfo(np.float64).eps ** 0.5)
"""Size of a singular value, relative to the largest, up to which its square cannot be told from zero."""

TINY = float(np.finfo(np.float64).tiny)

HALF_STEP_NOISE = {4: 1e-5, 8: 1e-10}
"""Largest relative rounding error of a direction, by item size, at which it takes part in the half step."""


def rayleigh_ritz(
    run: Run, layout: Strategy, basis: Basis, rank: int, seed: int, *, estimate: Float64 | None = None
) -> Triplets:
    """Extract the ``rank`` leading singular triplets of A from a basis and its images.

    ``estimate`` (rank,) holds relative errors that the caller estimated from its passes, None if it did not;
    ``seed`` is the key of random columns that complete a factor.

    Notes
    -----
    One sweep over scratch: reads m p elements, 2 m l (p + l) flops for l directions kept out of p.
    All p are kept when the working type cannot distinguish the smallest wanted value from rounding in the
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


def _directions(layout: Strategy, basis: Basis, rank: int) -> Float64:
    """Leading eigenvectors of Q'A'A Q, (width of all, l): as many as a block has columns, or all of them.

    All are taken if rounding has mixed the ``rank`` wanted ones, or if the basis is the whole space.
    """
    theta, w = ritz_vectors(basis.products, basis.width)
    eps = float(np.finfo(layout.view.dtype).eps)
    keep = min(max(layout.vectors(layout.width), rank), basis.width)
    # Of the whole space all directions are kept: squares may order them wrongly, and lose wanted ones.
    keep_all = basis.width == layout.vectors(layout.view.short) or theta[rank - 1] <= 100 * eps * theta[0]
    return w if keep_all else w[:, :keep]


def _half_step(
    layout: Strategy,
    basis: Basis,
    combination: Combination,
    directions: Float64,
    h: Float64,
    s: Float64,
    rank: int,
    estimate: Float64 | None,
) -> Triplets:
    """Triplets of A on the span of U, by half a step more: those of U'A, with orthonormal U = Y h / s.

    Y is ``combination``, the product of A with the ``directions`` in the basis, s and h its singular values
    and right vectors. Directions whose products with A' are lost in rounding do not take part. If a wanted
    one is among them, there is no half step, and the Ritz values are returned.
    """
    wide = max(layout.vectors(layout.width), rank)
    basis_ritz = basis.ritz(wide, wide)
    # A direction beyond the wanted ones adds noise in proportion to its own size.
    last = max(basis_ritz.values[rank - 1], TINY)
    noise_level = basis_ritz.noise * (np.minimum(basis_ritz.values, last) / last)
    below_noise = (noise_level > _tolerated_noise(layout, estimate)) | (basis_ritz.noise > NOISE_LIMIT)
    # The trap: a direction of rounding alone may look exact by chance. Its square and its length then differ.
    count = min(len(s), len(below_noise))
    squares = basis_ritz.values[:count] ** 2
    differs = np.abs(squares - s[:count] ** 2) > NOISE_LIMIT * squares
    below_noise[:count] |= differs | (s[:count] <= ZERO * s[0])
    accurate = int(below_noise.argmax()) if below_noise.any() else len(below_noise)
    if is_whole := basis.width == layout.vectors(layout.view.short):
        accurate = 0  # no half step: Ritz pairs on the whole space are as exact as they get
    count = min(max(rank, accurate), len(s))
    image = basis.combine("z", directions @ (h[:, :count] / s[:count]))
    ritz = basis.combine("q", directions @ h[:, :rank])
    residuals = np.linalg.norm(image[:, :rank] - ritz * s[:rank], axis=0) / s[0]
    values, short, rotation = s[:rank], ritz, h[:, :rank] / s[:rank]
    noise, gain = basis_ritz.noise[:rank], basis_ritz.gain[:rank]
    estimate = SAFETY * basis_ritz.second_order[:rank] if estimate is None else estimate
    if accurate >= rank:
        short, values, turn = leading_singular_triplets(image, rank)
        rotation = (h[:, :count] / s[:count]) @ turn
        errors = estimate + np.maximum(noise, noise_level[rank:count].max(initial=0.0))
        errors += _shortfall(values, basis_ritz.half_step_values[:rank])  # the estimate is for the latter
    else:
        errors = np.maximum(estimate, noise) + gain
        has_estimate = estimate < 1  # without one the gap to values outside the basis is not known
        errors[has_estimate] = np.minimum(errors, SAFETY * _second_order(residuals, s, rank, count))[
            has_estimate
        ]
    errors = (0.0 if is_whole else errors) + rounding(s[:rank], layout.view.dtype)
    signs = fix_signs(short)
    return Triplets(values, short * signs, combination, rotation * signs, residuals, np.minimum(errors, 1.0))


def _shortfall(values: Float64, of_all: Float64) -> Float64:
    """Relative amount (k,) by which ``values`` are below ``of_all``, those of all directions together."""
    return np.maximum(of_all - values, 0.0) / np.maximum(values, TINY)


def _tolerated_noise(layout: Strategy, estimate: Float64 | None) -> float:
    """Largest relative rounding error of a direction that takes part in the half step.

    It is well below the error ``estimate`` (rank,) that is left without the step.
    """
    least = HALF_STEP_NOISE[layout.view.dtype.itemsize]
    return least if estimate is None else float(np.clip(0.1 * estimate.max(), least, 100 * least))


def _second_order(residuals: Float64, s: Float64, rank: int, count: int) -> Float64:
    """Second-order relative errors (rank,) as in ``ritz_values``, for values ``s`` from the R factor.

    ``residuals`` (rank,) are relative to ``s[0]``; gaps are those to the last of ``count`` values.
    """
    last = s[min(max(count, rank + 1), len(s)) - 1]
    gap = s[:rank] ** 2 - last**2
    return np.where(gap > 0, (residuals * s[0]) ** 2 / (2 * np.where(gap > 0, gap, 1.0)), np.inf)


def _with_zeros(
    y: OnScratch, basis: Basis, directions: Float64, s: Float64, estimate: Float64 | None
) -> Triplets:
    """Return ``y.rank`` triplets of a matrix whose numerical rank is lower.

    ``s`` are the singular values that A has along the ``directions`` (width of all, l). The missing singular
    values are 0. Random columns, made orthonormal to the others, complete the long factor.
    """
    positive, rank = int((s > ZERO * s[0]).sum()), y.rank
    coefficients = directions[:, :positive]
    combination, inverse = y.complete(coefficients)
    values = np.concatenate([s[:positive], np.zeros(rank - positive)])
    short = basis.combine("q", directions[:, :rank])
    image = basis.combine("z", coefficients) @ inverse[:positive]
    residuals = np.linalg.norm(image - short * values, axis=0) / (s[0] if s[0] > 0 else 1.0)
    signs = fix_signs(short)
    errors = rounding(values, y.layout.view.dtype)
    if basis.width < y.layout.vectors(y.layout.view.short):
        ritz = basis.ritz(rank, max(y.layout.vectors(y.layout.width), rank))
        # An estimate of passes holds for the half step, which is not made here.
        estimate = SAFETY * ritz.second_order + ritz.noise if estimate is None else estimate + ritz.gain
    if estimate is not None:
        errors[:positive] += estimate[:positive]
        errors[positive:] = np.where(
            estimate[positive:] < 1, 0.0, 1.0
        )  # a value that is not 0 may be outside
    return Triplets(values, short * signs, combination, inverse * signs, residuals, np.minimum(errors, 1.0))


def errors_by_sketch(
    basis: Basis, ritz: Ritz, sketch: RowSketch, squared_norm: float, dtype: np.dtype[Any], values: Float64
) -> Float64:
    """Largest relative errors (k,) of lower bounds ``values``, by a sketch of rows.

    The sketch bounds what is outside the basis. ``ritz`` are the estimates on the basis, ``squared_norm`` the
    sum of squares of A, ``dtype`` that of products.
    """
    remainder = squared_norm - float(np.trace(basis.products).real)
    eps = float(np.finfo(dtype).eps)
    outside = sketch.look_outside(basis.each("q"), remainder, squared_norm, eps)
    errors = errors_within(values, basis.upper_bounds(ritz.half_step_values**2, outside))
    # If nothing is left outside, values not above rounding of squares are known to be small.
    nothing_left = outside.squares.max(initial=outside.least) <= ZERO**2 * squared_norm
    negligible = ritz.half_step_values**2 <= ZERO * squared_norm
    return np.where(negligible & nothing_left, 0.0, errors)


# Convergence --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Convergence:
    """Errors of the ``rank`` leading singular values after each pass, compared with ``tol``."""

    rank: int
    tol: float
    dtype: np.dtype[Any]
    """Type of products with the matrix, which sets their rounding."""

    estimate: Float64 | None = None
    """(rank,) estimated relative errors after the last pass, without rounding; None before the first."""

    errors: list[float] = field(default_factory=list)
    """Largest estimated relative error after each pass, rounding included."""

    def observe(self, ritz: Ritz, estimate: Float64, *, exact: bool, without_bound: Float64) -> bool:
        """Record the errors after a pass; return True if another pass would bring no more.

        ``exact`` is True if the basis is the whole space. ``estimate`` and ``without_bound`` (rank,) are the
        errors estimated with a sketch, if there is one, and by residuals and gaps alone. While residuals
        exceed rounding, an error hidden by rounding is no reason to stop: values that rounding excludes from
        the half step still improve by a pass.
        """
        # Nor is a half step made where values may be zero: see ``rayleigh_ritz``.
        if ritz.values[-1] <= SMALL * ritz.values[0]:
            estimate = np.maximum(estimate, without_bound)
        self.estimate = np.zeros(self.rank) if exact else estimate
        rounding_error = ritz.noise + rounding(ritz.values, self.dtype)
        self.errors.append(float(np.minimum(self.estimate + rounding_error, 1.0).max()))
        enough = (self.estimate + rounding_error <= self.tol) | (
            np.maximum(self.estimate, without_bound) <= 2 * rounding_error
        )
        return exact or bool(enough.all())

    def ends_within(self, passes: int) -> bool:
        """True if the tolerance may be met after ``passes`` passes in all.

        Each pass is assumed to shrink the error by the factor of the last one. After the first two passes,
        and while an error is unknown (1), only the number of passes counts.
        """
        if len(self.errors) <= 2 or self.errors[-1] >= 1:
            return len(self.errors) < passes
        left = passes - len(self.errors)
        return self.errors[-1] * (self.errors[-1] / self.errors[-2]) ** left <= self.tol

    @property
    def stalls(self) -> bool:
        """True if the error after the last pass is more than half of that after the pass before."""
        return len(self.errors) > 1 and self.errors[-1] > self.errors[-2] / 2
