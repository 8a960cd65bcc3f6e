"""Starting factors: solved on a compressed matrix, from singular vectors, from rows, or at random.

One fused pass (both products from one read) with q (short, w) from a sample leaves P = X q on scratch, and
X'P. The projection of X onto the columns of P is P M with M = (P'P)^+ P'X, and P'P = q'X'P. Iterations on the
projection read P instead of X. They begin on a sample of its rows, where they cost next to nothing.

References
----------
Tepper, Sapiro, Compressed nonnegative matrix factorization is fast and accurate, IEEE Transactions on Signal
Processing 64(9), 2016. They compress both sides by random projections; here one side is compressed, by a
block from sampled rows, and the result is only a start for iterations over the whole matrix.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.gaussian import gaussian_rows
from rankfold.methods.nmf.alternation import (
    Factors,
    Model,
    Sizes,
    cheapest,
    improve_short,
    linear_model,
    penalty,
    sizes_of,
)
from rankfold.methods.nmf.passes.frobenius import CompressedPass, NmfIteration
from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.panels import numbers
from rankfold.methods.parts.square_range import refuse_size
from rankfold.methods.parts.start import Start
from rankfold.methods.random_keys import Purpose
from rankfold.methods.svd.operator import CenteredMatrix
from rankfold.methods.svd.strategy import Strategy
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.engine.blocks import Cut, cut, grains
from rankfold.pipeline.engine.fold import Buffer, Constant, DeclaredFold, Sum, Workspace
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.storage.checkpoint import State, save_once
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class SignedSquares(DeclaredFold):
    """Fold that sums squares of the positive, and of the negative, numbers in each column of a product.

    The product ``y @ coefficients`` (rows, k) is of a matrix ``y`` (rows, columns) on scratch. The result is
    one sum, ``squares`` (2, k): positive numbers first.
    """

    y: ScratchMatrix
    cut: Cut
    constants: Path
    """Checkpoint file with ``coefficients`` (columns, k)."""

    rank: int
    row_seconds: float
    slots: int = 1

    @property
    def _grain_rows(self) -> int:
        return min(self.cut.grain_rows, self.cut.panel_rows)

    def buffers(self) -> Mapping[str, Buffer]:
        """Rows of ``y`` for one product, (grain rows, columns), and the coefficients (columns, k)."""
        return {
            "coefficients": Constant((self.y.columns, self.rank), part=self.constants),
            "rows": Buffer((self._grain_rows, self.y.columns), self.y.dtype),
        }

    def sums(self) -> Mapping[str, Sum]:
        """``squares`` (2, k): sums of squares of the positive numbers in each column of the product, then of
        the negative ones."""
        return {"squares": Sum((2, self.rank))}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a grain of ``y`` in float64, of its product, and of the positive part of the product."""
        return self._grain_rows * 8 * (self.y.columns + 3 * self.rank)

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Add squares of the product for rows ``start:stop`` of ``y`` to the sums in ``state``."""
        for first, last in grains(start, stop, self.cut.grain_rows):
            rows = work.rows[: last - first]
            work.device.fill(rows, functools.partial(self.y.read_into, start=first))
            u = rows @ work.coefficients
            above = np.square(np.maximum(u, 0)).sum(axis=0)
            state["squares"] += above, np.square(u).sum(axis=0) - above


# Starts -------------------------------------------------------------------------------------------


Float64 = npt.NDArray[np.float64]

SWEEPS = 5
"""Sweeps of descent in each iteration on a compressed matrix."""

ITERATIONS = {"sample": 300, "all": 100}
"""Largest number of iterations on a sample of rows of a compressed matrix (``"sample"``), and on all its rows
if there are more (``"all"``)."""

WINDOW = 3
"""Number of iterations over which each of two falls of the cost is measured in ``remaining_decrease``."""

SAMPLE_ROWS = (32, 1024)
"""Size of the sample of rows on which iterations begin: rows per component, and least number of rows."""

MEAN_ROWS = 5
"""Number of sampled rows of the matrix whose mean is the start of a component."""

SMALL_BYTES = 32 * 2**20
"""Bytes of a compressed matrix in float64 up to which iterations on it run in memory."""

LARGEST_EXPONENT = {4: 80, 8: 500}
"""Largest ``|e|`` for a matrix whose largest number is near ``2^e``, by bytes of its working type.

Numbers of both factors are near ``2^(e/2)``; products of the matrix with a factor then stay in range."""


@dataclass(frozen=True, slots=True)
class CompressedMatrix:
    """``(p @ rotation) @ right``: the matrix, projected onto the columns of ``p``."""

    p: ScratchMatrix
    """(long, w) product of the matrix with a block of w vectors."""

    rotation: Float64
    """(w, r) matrix that makes the columns of ``p @ rotation`` orthonormal."""

    right: Float64
    """(r, short) coefficients of the projection in those orthonormal columns."""

    total: float
    """``|X|^2``, the squared Frobenius norm of the matrix."""

    projection_squares: float
    """``|projection|^2``, the part of ``total`` that the projection captures."""

    is_sparse: bool = False
    """True if the matrix is sparse, so that passes skip its zeros."""

    @property
    def m(self) -> Float64:
        """(w, short) product of ``rotation`` and ``right``."""
        return np.asarray(self.rotation @ self.right)

    def squares(self, rows: Float64) -> float:
        """Sum of squares of ``rows @ m`` for ``rows`` (r, w) of ``p``.

        For a sparse matrix, where ``rows @ m`` is very wide, it is computed from Gram matrices.
        """
        if self.is_sparse:
            return float(((rows.T @ rows) * (self.m @ self.m.T)).sum())
        return float(((rows @ self.m) ** 2).sum())


@dataclass(frozen=True, slots=True)
class FactorStart:
    """Starting factors, with what is known of them.

    ``total`` is ``|X|^2``, 0 if unknown; ``error`` is the relative error of the factors, infinite if unknown;
    ``iterations`` is the number of iterations on a compressed matrix that found them.
    """

    factors: Factors
    total: float = 0.0
    error: float = np.inf
    iterations: int = 0


def compress(
    run: Run, layout: Strategy, model: Model, centering: Centering, start: Start
) -> CompressedMatrix:
    """Compress the matrix by one fused pass: project it onto the columns of P = X q.

    The block q (short, w) is that of ``start``; ``centering`` gives the power of two that scales the matrix.
    """
    q = start.block(layout.view, layout.width, model.parameters.seed)
    matrix = CenteredMatrix(run, layout, centering, start, model.parameters.seed)
    block = matrix.apply(q).block
    z = block.load("z")
    products = q.T @ z
    theta, vectors = np.linalg.eigh((products + products.T) / 2)
    significant = theta > 4 * float(np.finfo(layout.view.dtype).eps) * max(theta[-1], 0.0)
    rotation, pow2_scale = vectors[:, significant] / np.sqrt(theta[significant]), centering.pow2_scale
    right = rotation.T @ z.T / pow2_scale
    squared_norm = matrix.squared_norm / pow2_scale**2
    squares = float((right**2).sum())
    return CompressedMatrix(block.y, rotation, right, squared_norm, squares, layout.fullest > 0)


def require_range(model: Model) -> None:
    """Raise ``DataError`` if products of the matrix with its factors would leave the range of its type."""
    dtype, exponent = model.view.dtype, int(-np.log2(model.pow2_scale))
    if abs(exponent) > LARGEST_EXPONENT[dtype.itemsize]:
        refuse_size(model.view.source, 1 / model.pow2_scale, "products with them", dtype)


def random_short(model: Model) -> Float64:
    """(k, short) starting factor: absolute values of normal random numbers, scaled so that the long factor
    will have numbers of similar size."""
    numbers = gaussian_rows(
        model.parameters.seed, Purpose.NONNEGATIVE_START, (0, model.view.short), model.parameters.rank
    )
    return np.ascontiguousarray(np.abs(numbers).T) * model.balance


def factorize_compressed(compressed: CompressedMatrix, run: Run, model: Model) -> FactorStart:
    """Factorize the compressed matrix, starting from a factorization of a sample of its rows.

    The sample is factorized without penalties.
    """
    run.require(compressed.p.path)
    model, sample = model.for_start(), _sampled_rows(compressed.p, model)
    factors, total, count = Factors(random_short(model)), compressed.total, 0
    share = len(sample) / compressed.p.rows
    if share < 1 or any(model.penalties()):
        outside = (compressed.total - compressed.projection_squares) * share
        near = compressed.squares(sample) + max(outside, 0.0)
        free = model.without_penalties()
        short, long, count, _ = _in_memory(compressed, sample, factors.short, free, near, share)
        factors.short = short * cheapest(*model.penalties(share), Sizes.of(long), Sizes.of(short.T))[:, None]
    if compressed.p.rows * compressed.p.columns * 8 > SMALL_BYTES:
        return _on_scratch(compressed, run, model, factors.short, count)
    whole = compressed.p.load().astype(np.float64)
    short, long, more, error = _in_memory(compressed, whole, factors.short, model, total, 1.0)
    after = model.factor(run.scratch, 0)
    after.write(0, np.ascontiguousarray(long, after.dtype))
    return FactorStart(Factors(model.round_to_type(short), after, Sizes.of(long)), total, error, count + more)


def sample_row_count(rank: int) -> int:
    """Number of rows in the sample on which iterations for ``rank`` components begin, if there are more."""
    return max(SAMPLE_ROWS[0] * rank, SAMPLE_ROWS[1])


def _sampled_rows(p: ScratchMatrix, model: Model) -> Float64:
    """(count, w) sample of the rows of ``p`` in float64: one random row from each of ``count`` equally long
    stretches, where ``count`` is ``sample_row_count`` or all rows."""
    count = min(p.rows, sample_row_count(model.parameters.rank))
    within = _uniform_rows(model.parameters.seed, count, 1)[:, 0]
    out = np.empty((count, p.columns), p.dtype)
    for i in range(count):
        p.read_into(out[i : i + 1], min(int((i + within[i]) * p.rows / count), p.rows - 1))
    return out.astype(np.float64)


def _in_memory(
    compressed: CompressedMatrix, p: Float64, short: Float64, model: Model, total: float, share: float
) -> tuple[Float64, Float64, int, float]:
    """Iterate in memory on rows ``p`` (r, w) of the compressed matrix, from the factor ``short`` (k, short).

    ``total`` is the sum of squares of these rows of the matrix, ``share`` their share of all rows. Returns
    the new short factor, the long factor (r, k), the number of iterations, and the relative error.
    """
    m, long = compressed.m, np.zeros((len(p), model.parameters.rank))
    factors = Factors(short)

    def step(index: int) -> State:
        system = linear_model(model, factors, share=share)
        gram = system["gram"] + np.diag(system["diagonal"])
        solver, _ = model.solvers(sweeps=SWEEPS)
        solver.improve(gram, p @ (m @ system["right"]), system["linear"], long, fresh=not index)
        return {"product": long.T @ p, "gram": long.T @ long, "sums": long.sum(axis=0)}

    most = ITERATIONS["sample" if len(p) <= sample_row_count(model.parameters.rank) else "all"]
    count, error = _iterate(step, factors, m, model, total, share, most)
    return factors.short, long, count, error


def _on_scratch(
    compressed: CompressedMatrix, run: Run, model: Model, short: Float64, before: int
) -> FactorStart:
    """Iterate on the whole compressed matrix, on scratch, from the factor ``short`` (k, short).

    ``before`` is the number of iterations on a sample before, which is only added to the number returned.
    """
    factors, m = Factors(short), compressed.m

    def step(index: int) -> State:
        name = f"compressed-{index:03d}"
        system = linear_model(model, factors)
        system["right"] = m @ system["right"]
        constants = save_once(run.part(name, "constants.part"), system)
        fold = compressed_pass(compressed.p, model, constants, run.scratch, index)
        state = run.sweep(name, fold)
        factors.remove_long(run)
        factors.long = fold.iteration.after
        return state

    count, error = _iterate(step, factors, m, model, compressed.total, 1.0, ITERATIONS["all"])
    return FactorStart(factors, compressed.total, error, before + count)


def singular_short(compressed: CompressedMatrix, run: Run, layout: Strategy, model: Model) -> Float64:
    """(k, short) start from leading singular vectors (NNDSVD).

    Each component is the positive or the negative part of a singular triplet, whichever has the larger norm.
    Only its short vector is used.

    References
    ----------
    Boutsidis, Gallopoulos, SVD based initialization, Pattern Recognition 41(4), 2008.
    """
    k, p = model.parameters.rank, compressed.p
    u, s, v = np.linalg.svd(compressed.right, full_matrices=False)
    constants = save_once(run.part("signs.part"), {"coefficients": compressed.rotation @ u[:, :k]})
    fold = signs_pass(p, min(k, len(s)), constants)
    sides = np.sqrt(np.maximum(run.sweep("signs", fold)["squares"], 0.0))
    short = np.zeros((k, model.view.short))
    for j in range(min(k, len(s))):
        parts = np.maximum(v[j], 0), np.maximum(-v[j], 0)
        sizes = [float(sides[i, j] * np.linalg.norm(part)) for i, part in enumerate(parts)]
        part = parts[int(sizes[1] > sizes[0])]
        short[j] = part * np.sqrt(s[j] * max(sizes)) / max(float(np.linalg.norm(part)), 1e-300)
    return short


def signs_pass(p: ScratchMatrix, rank: int, constants: Path) -> SignedSquares:
    """Fold that sums squares of the positive and the negative part of ``rank`` left singular vectors.

    The vectors are ``p @ coefficients``; ``constants`` is the path of ``coefficients`` (w, rank).
    """
    grid = Grid.regular(p.rows, p.rows, splittable=True)
    return SignedSquares(
        p, cut(grid, p.row_bytes + 3 * 8 * rank, 16 * max(rank, 1)), constants, rank, p.row_bytes * 1e-9
    )


def sampled_short(layout: Strategy, model: Model) -> Float64:
    """(k, short) starting factor: each component is the mean of a few rows of a sample, negative numbers as
    0, scaled so that the long factor will have numbers of similar size."""
    rows = layout.view.as_rows(numbers(layout.sample.read())).astype(np.float64)
    picks = _uniform_rows(model.parameters.seed, model.parameters.rank, MEAN_ROWS)
    means = np.maximum(rows[(picks * len(rows)).astype(int)], 0).mean(axis=1)
    return np.asarray(means * (model.pow2_scale * model.balance))


def replace_zero_components(short: Float64, model: Model) -> Float64:
    """Return ``short`` (k, short) with random rows for rows of zeros, which updates would never change."""
    dead = short.max(axis=1) == 0
    if not dead.any():
        return short
    return np.where(dead[:, None], random_short(model), short)


def compressed_pass(
    p: ScratchMatrix, model: Model, constants: Path, folder: Path, index: int
) -> CompressedPass:
    """Fold of iteration ``index``, from 0, over the compressed matrix ``p`` (long, w) on scratch.

    ``constants`` is the path of the arrays of ``linear_model``; the long factors before and after the
    iteration are scratch matrices in ``folder``.
    """
    rank = model.parameters.rank
    grid = Grid.regular(p.rows, p.rows, splittable=True)
    pieces = cut(grid, p.row_bytes + 4 * 8 * rank, 8 * rank * (p.columns + rank))
    solver, _ = model.solvers(sweeps=SWEEPS)
    before = model.compressed_factor(folder, index - 1) if index else None
    iteration = NmfIteration(constants, before, model.compressed_factor(folder, index), solver)
    return CompressedPass(p, pieces, iteration, p.row_bytes * 2e-9)


def _iterate(
    step: Callable[[int], State],
    factors: Factors,
    m: Float64,
    model: Model,
    total: float,
    share: float,
    most: int,
) -> tuple[int, float]:
    costs: list[float] = []
    error = np.inf
    _, solver = model.solvers()
    while len(costs) < most:
        state = step(len(costs))
        update = improve_short(model, factors, state, state["product"] @ m, solver, share=share)
        factors.short = update.short
        factors.sizes = sizes_of(state)
        squares = max(total + update.squares, 0.0)
        error = float(np.sqrt(squares / total)) if total > 0 else 0.0
        more = penalty(*model.penalties(share), factors.sizes, Sizes.of(factors.short.T))
        costs.append(float(np.sqrt((squares + 2 * more) / total)) if total > 0 else 0.0)
        if remaining_decrease(costs) <= model.parameters.tol * costs[-1]:
            break
    return len(costs), error


def remaining_decrease(costs: list[float]) -> float:
    """Extrapolated further fall of the cost, if falls shrink as they did over the last two windows.

    ``costs`` are those of all iterations so far, ``WINDOW`` of which are a window. Infinite if there are too
    few of them, or if falls do not shrink.
    """
    if len(costs) <= 2 * WINDOW:
        return np.inf if len(costs) < 2 or costs[-1] > 0 else 0.0
    before, now = costs[-1 - 2 * WINDOW] - costs[-1 - WINDOW], costs[-1 - WINDOW] - costs[-1]
    if now <= 0:
        return 0.0
    return now**2 / (before - now) if before > now else np.inf


def _uniform_rows(seed: int, rows: int, columns: int) -> Float64:
    """(rows, columns) random numbers in [0, 1): normal numbers modulo 1, which are uniform to 5e-9."""
    return gaussian_rows(seed, Purpose.NONNEGATIVE_ROWS, (0, rows), columns) % 1.0
