"""Fused block Krylov: the fewest reads of a matrix for its leading singular triplets.

Each pass multiplies a block by A and by A' while a panel is in cache, and the block joins an
orthonormal basis of span{W, A'A W, (A'A)^2 W, ...}. Small matrices give the errors of the singular values
after each pass, so passes end when the answer is good enough.

Without a rank, passes end when the basis holds all but a given share of the matrix (``capture``). The number
of components that this takes is not known before, but the remainder is: |A - A Q Q'|^2 is |A|^2 - |A Q|^2,
and a pass finds both. Only rounding is estimated, from the asymmetry of the small matrix Q'A'A Q.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.dense import adjoint, ritz_vectors
from rankfold.kernels.linear.orthonormal import orthonormalize
from rankfold.methods.claims import has_converged
from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.start import Start
from rankfold.methods.svd.error_estimates import (
    Ritz,
    Truncation,
    errors_of_remainder,
    estimated_errors,
    rounding,
)
from rankfold.methods.svd.operator import Application, CenteredMatrix, Operator, iterate
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.ritz import Basis, Convergence, errors_by_sketch, rayleigh_ritz
from rankfold.methods.svd.solvers.blocks import BlockSolver, of_triplets, truncation_facts
from rankfold.methods.svd.solvers.solver import Decomposition
from rankfold.methods.svd.strategy import Strategy, expected_passes
from rankfold.methods.svd.unseen_directions import RowSketch
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.run import Run

Float64 = npt.NDArray[np.float64]


def krylov(
    operator: Operator, *, width: int, rank: int, tol: float, tries: int | None = None
) -> tuple[Basis, Convergence]:
    """Grow the basis until the ``rank`` leading singular values are known to ``tol``, by blocks of ``width``.

    Returns the basis, and the estimated errors after each pass. With ``tries`` it also ends when the errors
    so far show that this many passes will not be enough.

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
    growth = _Growth(operator, width, Convergence(rank, tol, operator.dtype), tries)
    iterate(operator, width, growth)
    return growth.basis, growth.convergence


@dataclass(slots=True)
class _Growth:
    operator: Operator
    width: int
    convergence: Convergence
    tries: int | None = None
    """Number of passes in which the tolerance has to be met, if another method follows; None if none does."""

    basis: Basis = field(default_factory=Basis)
    history: list[Ritz] = field(default_factory=list)
    uses_residuals: bool = False
    """True if the next block is made from residuals, as some blocks are not images of those before."""

    sketch: RowSketch | None = None
    """Sketch of all rows that the basis does not depend on; None if there is none."""

    def take(self, application: Application, squared_norm: float) -> bool:
        self.basis.add(application.block)
        self.sketch = application.sketch or self.sketch
        outside = 0.0 if application.missing is None else float(application.missing.bound)
        settling = self.uses_residuals and not self.history
        self.history.append(
            self.basis.ritz(self.convergence.rank, self.width, outside=outside, settling=settling)
        )
        exact = self.basis.width == self.operator.short
        ritz, bound = self.history[-1], None
        if self.sketch is not None and not exact:
            bound = errors_by_sketch(
                self.basis, ritz, self.sketch, squared_norm, self.convergence.dtype, ritz.half_step_values
            )
        estimate, without_bound = (estimated_errors(self.history, each) for each in (bound, None))
        enough = self.convergence.observe(ritz, estimate, exact=exact, without_bound=without_bound)
        return enough or (self.tries is not None and not self.convergence.ends_within(self.tries))

    def following(self, application: Application) -> Float64:
        missing = application.missing
        free_columns = self.operator.short - self.basis.width
        z = self.basis.residuals(self.width) if self.uses_residuals else application.block.load("z")
        if (
            missing is not None
            and (both := self.basis.with_missing(missing, self.convergence.rank)) is not None
        ):
            z, self.uses_residuals = both, True
            self.history.clear()  # rates of convergence begin anew
            self.operator.sketch_again()
            self.sketch = None
        if not self.uses_residuals:
            self.basis.closed.add(len(self.basis.blocks) - 1)
        return orthonormalize(z[:, : min(self.width, free_columns)], lambda: self.basis.each("q"))


# To a tolerance -----------------------------------------------------------------------------------


LEAST_GAIN = 0.1
"""Share of the columns of a block that is kept free for new directions that a sketch has found."""


@dataclass(frozen=True, slots=True)
class Capture:
    """A basis that holds all but a share of the norm of a matrix."""

    basis: Basis
    cut: Truncation
    """Number of components that the approximation needs, and its error."""

    errors: list[float]
    """Relative error of the approximation, in the Frobenius norm, after each pass."""

    remainder: float
    """Sum of squares of A outside the basis: no squared singular value exceeds that on the basis by more."""


def capture(operator: Operator, *, width: int, tol: float) -> Capture:
    """Grow the basis, by blocks of ``width`` columns, until what it leaves out is ``tol`` of the norm.

    Notes
    -----
    Passes and memory as ``krylov``, with blocks of ``width`` columns.

    References
    ----------
    Yu, Gu, Li, Efficient randomized algorithms for the fixed-precision low-rank matrix approximation, SIAM J.
    Matrix Anal. Appl. 39(3), 2018, for the error indicator |A|^2 - |B|^2, where B = Q'A; ours is that of A Q
    on a Krylov basis, and rounding, which limits theirs to 2e-7 in float64, is measured.
    """
    growth = _CaptureGrowth(operator.short, width, tol)
    iterate(operator, width, growth)
    errors = [each.error for each in growth.truncations]
    return Capture(growth.basis, growth.truncations[-1], errors, growth.remainder)


@dataclass(slots=True)
class _CaptureGrowth:
    short: int
    width: int
    tol: float
    basis: Basis = field(default_factory=Basis)
    truncations: list[Truncation] = field(default_factory=list)
    remainder: float = 0.0
    uses_residuals: bool = False
    """True if the next block is made from residuals, as some blocks are not images of those before."""

    def take(self, application: Application, squared_norm: float) -> bool:
        self.basis.add(application.block)
        products = self.basis.products
        theta, _ = ritz_vectors(products, len(products))
        rounding = float(np.linalg.norm(products - adjoint(products)))
        self.truncations.append(Truncation.of(theta, squared_norm, self.tol, rounding=rounding))
        rest = squared_norm - float(theta.sum())
        self.remainder, below_noise = max(rest, 0.0) + rounding, rest <= rounding
        return self.truncations[-1].error <= self.tol or below_noise or len(products) == self.short

    def following(self, application: Application) -> Float64:
        missing = application.missing
        width = min(self.width, self.short - self.basis.width)
        z = self.basis.residuals(self.width) if self.uses_residuals else application.block.load("z")
        if missing is not None:
            rank = self.width - int(LEAST_GAIN * self.width)
            both = self.basis.with_missing(missing, rank)
            if both is not None:
                z, self.uses_residuals = both, True
        return orthonormalize(z[:, :width], lambda: self.basis.each("q"))


# The solver ---------------------------------------------------------------------------------------


FEW_PASSES = 4
"""Factor on errors estimated without the history of passes, which a request without a rank lacks."""


class Krylov(BlockSolver):
    """Solver by block Krylov: keeps the block of every pass; together they are the basis."""

    name = "krylov"
    finds_rank = True
    stops_early = True
    loops = ("panels", "buckets")
    narrower: ClassVar[Mapping[str, str]] = {"subspace": "keeps one block, not one for each pass"}

    def most_components(self, request: Request, view: View, width: int) -> int:
        """Largest number of components that it may find without a given rank: the columns of all blocks."""
        statistics = request.scale and view.orientation is Orientation.ROWS
        return width * max(request.passes - statistics, 1)

    def block_passes(self, strategy: Strategy) -> int:
        """Largest number of fused passes, at most as many as fill the space."""
        return min(super().block_passes(strategy), -(-strategy.view.short // strategy.width))

    def likely_passes(self, request: Request, strategy: Strategy, most: int) -> int:
        """Typical number of passes for the tolerance, at most ``most``: see ``expected_passes``."""
        passes = expected_passes(request.tol, from_sample=strategy.sample.gives_block)
        return most - max(0, self.block_passes(strategy) - passes)

    def solve(
        self, run: Run, strategy: Strategy, request: Request, centering: Centering, start: Start
    ) -> Decomposition | None:
        """Find triplets up to a rank, or up to a share of the norm if the rank is not given.

        None if the tolerance is not met and ``strategy.otherwise`` is to be carried out instead.
        """
        rows, width, rank = (
            strategy.sketch_rows,
            strategy.vectors(strategy.width),
            strategy.vectors(request.rank),
        )
        matrix = CenteredMatrix(run, strategy, centering, start, request.seed, sketch_rows=rows)
        if not request.adaptive:
            tries = None if strategy.otherwise is None else strategy.passes - strategy.statistics_passes
            if tries is not None and start.is_flat(rank, least_gap(request.tol, tries)):
                return None
            basis, convergence = krylov(matrix, width=width, rank=rank, tol=request.tol, tries=tries)
            if tries is not None and not has_converged(convergence.errors[-1], request.tol):
                for block in basis.blocks:
                    matrix.drop(block)
                return None
            triplets = rayleigh_ritz(run, strategy, basis, rank, request.seed, estimate=convergence.estimate)
            return of_triplets(strategy, centering, triplets, matrix.columns, convergence.errors)
        approximation = capture(matrix, width=width, tol=request.tol)
        triplets = rayleigh_ritz(run, strategy, approximation.basis, approximation.cut.rank, request.seed)
        bound = errors_of_remainder(triplets.s, approximation.remainder) + rounding(
            triplets.s, strategy.view.dtype
        )
        errors = np.maximum.accumulate(np.minimum(FEW_PASSES * triplets.errors, bound))
        triplets = dataclasses.replace(triplets, errors=errors)
        decomposition = of_triplets(strategy, centering, triplets, matrix.columns, approximation.errors)
        return dataclasses.replace(decomposition, facts=truncation_facts(approximation.cut, strategy))


def least_gap(tol: float, passes: int) -> float:
    """Smallest relative gap between two squared values that ``passes`` resolve to a relative error ``tol``.

    The gap is that between squares of the last wanted singular value and the next. After t passes errors are
    about exp(-4 t sqrt(gap)) of what they were, by squares of Chebyshev polynomials (Parlett, The Symmetric
    Eigenvalue Problem, 1980, chapter 12).
    """
    return (-math.log(tol) / (4 * passes)) ** 2


KRYLOV = Krylov()
