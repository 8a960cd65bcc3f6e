"""Fused subspace iteration: one orthonormal block, multiplied by A and A' again and again.

It needs more passes than Krylov for the same accuracy, and room for one block only: scratch of one
``Y`` and one block in memory, however many passes it takes.

The trap: the long factor is formed from the ``Y`` of the last pass. Every pass writes a file of its own
name, and the one before is removed only when another pass has been decided on. So neither a killed run nor
a task of an earlier pass that some worker still runs can mix two of them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.dense import adjoint, leading_singular_triplets
from rankfold.kernels.linear.orthonormal import orthonormalize
from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.start import Start
from rankfold.methods.svd.error_estimates import errors_of_iteration
from rankfold.methods.svd.operator import Application, Block, CenteredMatrix, Operator, iterate
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.ritz import Basis, Convergence, errors_by_sketch, rayleigh_ritz
from rankfold.methods.svd.solvers.blocks import BlockSolver, of_triplets
from rankfold.methods.svd.solvers.solver import Decomposition
from rankfold.methods.svd.strategy import Strategy, expected_passes
from rankfold.methods.svd.unseen_directions import RowSketch
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.storage.checkpoint import save_arrays

Float64 = npt.NDArray[np.float64]


def subspace(operator: Operator, *, width: int, rank: int, tol: float) -> tuple[Basis, Convergence]:
    """Iterate until the ``rank`` leading singular values are known to ``tol``, with a block of ``width``.

    Returns the last block as a basis, and the estimated errors after each pass.

    Notes
    -----
    Work 4 m n b flops a pass with b = ``width``; scratch m b elements; resident about twelve
    (short, b) blocks of float64 between passes. The error of singular value i falls by about
    (s[b + 1] / s[i])^4 with each pass.

    References
    ----------
    Halko, Martinsson, Tropp, SIAM Review 53(2), 2011, algorithm 4.4. We iterate with A'A on the short
    side, so that both products come from one read, and stop on an estimate of the error: see
    ``errors_of_iteration``.
    """
    iteration = _Power(operator, width, Convergence(rank, tol, operator.dtype))
    iterate(operator, width, iteration)
    return iteration.basis, iteration.convergence


@dataclass(slots=True)
class _Power:
    operator: Operator
    width: int
    convergence: Convergence
    basis: Basis = field(default_factory=Basis)
    """The block of the last pass."""

    has_new_directions: bool = False
    """True if the block has directions that a sketch has found, which the one before had not."""

    sketch: RowSketch | None = None
    """Sketch of all rows that the block does not depend on; None if there is none."""

    is_coarse: bool = False
    """True if the images of the block were rounded to fewer bits than the working type."""

    def take(self, application: Application, squared_norm: float) -> bool:
        block, missing, before = application.block, application.missing, self.basis.blocks
        if self.is_coarse and not application.is_coarse:
            before = []  # rounding of its images would pass for what the block lacks, or hide it
        self.is_coarse = application.is_coarse
        self.basis = Basis()
        self.basis.add(block)
        rank, width = self.convergence.rank, self.width
        outside = float(missing.bound) if missing is not None else 0.0
        ritz = self.basis.ritz(rank, width, outside=outside)
        self.sketch = application.sketch or self.sketch
        basis = self._pair(before[0], block) if before else self.basis
        pair = basis.ritz(rank, width, settling=self.has_new_directions) if before else None
        exact = block.width == self.operator.short
        bound = None
        if self.sketch is not None and not exact:
            bound = errors_by_sketch(
                basis, pair or ritz, self.sketch, squared_norm, self.operator.dtype, ritz.half_step_values
            )
        # Directions of length l, at least the fourth root of eps, add l^2 to values, and rounding of eps / l.
        margin = 1 + float(np.finfo(self.operator.dtype).eps) ** 0.25
        estimate = np.minimum(margin * errors_of_iteration(ritz, pair, bound), 1.0)
        without_bound = errors_of_iteration(ritz, pair)
        enough = self.convergence.observe(ritz, estimate, exact=exact, without_bound=without_bound)
        # Rounding of coarse images keeps estimates from falling long before that of the type does.
        return enough or (application.is_coarse and self.convergence.stalls)

    def following(self, application: Application) -> Float64:
        block, missing = application.block, application.missing
        self.operator.drop(block)
        both = self.basis.with_missing(missing, self.convergence.rank) if missing is not None else None
        self.has_new_directions = both is not None
        if self.has_new_directions:
            self.operator.sketch_again()
            self.sketch = None
        return orthonormalize(block.load("z") if both is None else both)

    def _pair(self, before: Block, block: Block) -> Basis:
        """Basis of a block and the part of the one before outside it, for error estimates only.

        The ``Y`` of the one before may be gone. Images of the added part follow from those of both blocks.
        Directions that are nearly in the block already are left out, since dividing by their length would
        amplify the rounding of the pass: those below the fourth root of eps, 2 % for float32.
        """
        pair = Basis()
        pair.add(block)
        q, z = block.load("q"), block.load("z")
        rest = before.load("q")
        overlap = adjoint(q) @ rest
        rest -= q @ overlap
        _, length, turn = leading_singular_triplets(rest, min(rest.shape))
        count = int((length > np.finfo(self.operator.dtype).eps ** 0.25).sum())
        if not count:
            return pair
        turn = turn[:, :count] / length[:count]
        image = (before.load("z") - z @ overlap) @ turn
        path = block.path.with_name("added.part")
        save_arrays(path, {"q": rest @ turn, "z": image, "offset": np.zeros(count)})
        pair.add(Block(path, count, before.y))
        return pair


# The solver ---------------------------------------------------------------------------------------


class Subspace(BlockSolver):
    """Solver by subspace iteration: keeps one block, and multiplies it until its values have converged."""

    name = "subspace"
    stops_early = True
    keeps_blocks = False
    loops = ("panels", "buckets")

    def likely_passes(self, request: Request, strategy: Strategy, most: int) -> int:
        """Typical number of passes for the tolerance, at most ``most``: see ``expected_passes``."""
        passes = expected_passes(request.tol, self.name, from_sample=strategy.sample.gives_block)
        return most - max(0, self.block_passes(strategy) - passes)

    def resident(self, request: Request, strategy: Strategy) -> tuple[int, int]:
        """Number of (short, width) blocks in memory at once, and of values in small matrices.

        The latter are those of one block, or of two while these are compared.
        """
        _, small = super().resident(request, strategy)
        return 10, max(small, 6 * min(strategy.view.short, 2 * strategy.width) ** 2)

    def solve(
        self, run: Run, strategy: Strategy, request: Request, centering: Centering, start: Start
    ) -> Decomposition:
        """Iterate to the tolerance, and find ``request.rank`` triplets on the last block."""
        rows, rank = strategy.sketch_rows, strategy.vectors(request.rank)
        tf32 = request.precision == "tf32"
        matrix = CenteredMatrix(run, strategy, centering, start, request.seed, sketch_rows=rows, tf32=tf32)
        basis, convergence = subspace(
            matrix, width=strategy.vectors(strategy.width), rank=rank, tol=request.tol
        )
        triplets = rayleigh_ritz(run, strategy, basis, rank, request.seed, estimate=convergence.estimate)
        decomposition = of_triplets(strategy, centering, triplets, matrix.columns, convergence.errors)
        facts = {"tf32_passes": matrix.tf32_passes} if tf32 else {}
        return dataclasses.replace(decomposition, facts=facts)


SUBSPACE = Subspace()
