"""Fused block Krylov: the fewest reads of a matrix for its leading singular triplets.

Each pass multiplies a block by A and by A' while a panel is in cache, and the block joins an
orthonormal basis of span{W, A'A W, (A'A)^2 W, ...}. Small matrices tell after each pass how far the
singular values have come, so passes end when the answer is good enough.

Fused block Krylov that goes on until the basis holds all but a given share of the matrix.

How many components that takes is not known before. What a basis leaves out is: |A - A Q Q'|^2 is
|A|^2 - |A Q|^2, and a pass knows both. Nothing about it is an estimate but rounding, which the small
matrix Q'A'A Q tells by what it lacks of symmetry.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.dense import ritz_vectors
from rankfold.kernels.linear.orthonormal import orthonormalize
from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.start import Start
from rankfold.methods.svd.error_estimates import (
    Ritz,
    Truncation,
    errors_of_missed,
    estimated_errors,
    rounding,
)
from rankfold.methods.svd.operator import Application, CenteredMatrix, Operator, iterate
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.ritz import Basis, Convergence, rayleigh_ritz
from rankfold.methods.svd.solvers.blocks import BlockSolver, left_out, of_triplets
from rankfold.methods.svd.solvers.solver import Decomposition
from rankfold.methods.svd.strategy import Strategy, expected_passes
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.run import Run

Float64 = npt.NDArray[np.float64]


def krylov(operator: Operator, *, width: int, rank: int, tol: float) -> tuple[Basis, Convergence]:
    """Grow the basis until the ``rank`` leading singular values are known to ``tol``.

    Notes
    -----
    Passes t, typically 3 to 6; work 4 m n b flops each with b = ``width``; scratch m b t
    elements; resident about six (short, b) blocks of float64, whatever t.

    References
    ----------
    Musco, Musco, Randomized block Krylov methods for stronger and faster approximate singular value
    decomposition, NeurIPS 2015, algorithm 2. We form the basis of A'A on the short side, reorthogonalise
    each block against all others, and get both products from one read.
    """
    growth = _Growth(operator.short, width, Convergence(rank, tol, operator.dtype))
    iterate(operator, width, growth)
    return growth.basis, growth.seen


@dataclass(slots=True)
class _Growth:
    short: int
    width: int
    seen: Convergence
    basis: Basis = field(default_factory=Basis)
    history: list[Ritz] = field(default_factory=list)
    mixed: bool = False
    """Whether blocks are not images of those before alone, so that the next is made from residuals."""

    def take(self, applied: Application, squared_norm: float) -> bool:
        self.basis.add(applied.block)
        outside = 0.0 if applied.missing is None else float(applied.missing.bound)
        settling = self.mixed and not self.history
        self.history.append(self.basis.ritz(self.seen.rank, self.width, outside=outside, settling=settling))
        exact = self.basis.width == self.short
        return self.seen.observe(self.history[-1], estimated_errors(self.history), exact=exact)

    def following(self, applied: Application) -> Float64:
        missing = applied.missing
        left = self.short - self.basis.width
        z = self.basis.residuals(self.width) if self.mixed else applied.block.load("z")
        if missing is not None and (both := self.basis.with_missing(missing, self.seen.rank)) is not None:
            z, self.mixed = both, True
            self.history.clear()  # rates of convergence begin anew
        return orthonormalize(z[:, : min(self.width, left)], lambda: self.basis.each("q"))


# To a tolerance -----------------------------------------------------------------------------------


LEAST_GAIN = 0.1
"""Share of the room for new components that images of known ones leave to what a sketch has found."""


@dataclass(frozen=True, slots=True)
class Captured:
    """A basis that holds a matrix but for a share of it."""

    basis: Basis
    cut: Truncation
    errors: list[float]
    """Approximation error after each pass."""

    missed: float
    """Sum of squares outside the basis: no squared singular value is larger by more than that."""


def capture(operator: Operator, *, width: int, tol: float) -> Captured:
    """Grow the basis until what it leaves out is ``tol`` of the norm.

    Notes
    -----
    Passes and memory as ``krylov``, with blocks of ``width`` columns.

    References
    ----------
    Yu, Gu, Li, Efficient randomized algorithms for the fixed-precision low-rank matrix approximation, SIAM J.
    Matrix Anal. Appl. 39(3), 2018, for the error indicator |A|^2 - |B|^2, where B = Q'A; ours is that of A Q
    on a Krylov basis, and rounding, which limits theirs to 2e-7 in float64, is measured.
    """
    growth = _Capture(operator.short, width, tol)
    iterate(operator, width, growth)
    errors = [each.error for each in growth.told]
    return Captured(growth.basis, growth.told[-1], errors, growth.missed)


@dataclass(slots=True)
class _Capture:
    short: int
    width: int
    tol: float
    basis: Basis = field(default_factory=Basis)
    told: list[Truncation] = field(default_factory=list)
    missed: float = 0.0
    mixed: bool = False
    """Whether blocks are not images of those before alone, so that the next is made from residuals."""

    def take(self, applied: Application, squared_norm: float) -> bool:
        self.basis.add(applied.block)
        products = self.basis.products
        theta, _ = ritz_vectors(products, len(products))
        rounding = float(np.linalg.norm(products - products.T))
        self.told.append(Truncation.of(theta, squared_norm, self.tol, rounding=rounding))
        left = squared_norm - float(theta.sum())
        self.missed, drowned = max(left, 0.0) + rounding, left <= rounding
        return self.told[-1].error <= self.tol or drowned or len(products) == self.short

    def following(self, applied: Application) -> Float64:
        missing = applied.missing
        width = min(self.width, self.short - self.basis.width)
        z = self.basis.residuals(self.width) if self.mixed else applied.block.load("z")
        if missing is not None:
            wanted = self.width - int(LEAST_GAIN * self.width)
            both = self.basis.with_missing(missing, wanted)
            if both is not None:
                z, self.mixed = both, True
        return orthonormalize(z[:, :width], lambda: self.basis.each("q"))


# The solver ---------------------------------------------------------------------------------------


FEW_PASSES = 4
"""Residuals alone, without the history of passes that a given rank has, are trusted by so much less."""


class Krylov(BlockSolver):
    """Blocks of all passes stay, and are one basis."""

    name = "krylov"
    finds_rank = True
    stops_early = True
    loops = ("panels", "buckets")
    narrower: ClassVar[Mapping[str, str]] = {"subspace": "keeps one block, not one for each pass"}

    def most_components(self, request: Request, view: View, width: int) -> int:
        """As many as all blocks have columns."""
        statistics = request.scale and view.orientation is Orientation.ROWS
        return width * max(request.passes - statistics, 1)

    def block_passes(self, strategy: Strategy) -> int:
        """No more than fill the space."""
        return min(super().block_passes(strategy), -(-strategy.view.short // strategy.width))

    def likely_passes(self, request: Request, strategy: Strategy, most: int) -> int:
        """See ``expected_passes``."""
        expected = expected_passes(request.tol, sampled=strategy.sample.gives_block)
        return most - max(0, self.block_passes(strategy) - expected)

    def solve(
        self, run: Run, strategy: Strategy, request: Request, centering: Centering, start: Start
    ) -> Decomposition:
        """To a rank, or to a share of the norm."""
        rows, width = strategy.sketch_rows, strategy.width
        matrix = CenteredMatrix(run, strategy, centering, start, request.seed, sketch_rows=rows)
        if not request.adaptive:
            basis, seen = krylov(matrix, width=width, rank=request.rank, tol=request.tol)
            triplets = rayleigh_ritz(run, strategy, basis, request.rank, request.seed, estimate=seen.estimate)
            return of_triplets(strategy, centering, triplets, matrix.columns, seen.errors)
        held = capture(matrix, width=width, tol=request.tol)
        triplets = rayleigh_ritz(run, strategy, held.basis, held.cut.rank, request.seed)
        bound = errors_of_missed(triplets.s, held.missed) + rounding(triplets.s, strategy.view.dtype)
        errors = np.maximum.accumulate(np.minimum(FEW_PASSES * triplets.errors, bound))
        triplets = dataclasses.replace(triplets, errors=errors)
        found = of_triplets(strategy, centering, triplets, matrix.columns, held.errors)
        return dataclasses.replace(found, facts=left_out(held.cut, strategy))


KRYLOV = Krylov()
