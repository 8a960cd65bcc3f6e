"""A solver of another package: a fixed number of power iterations on one block. This file is all there is."""

from __future__ import annotations

from rankfold.kernels.linear.orthonormal import orthonormalize
from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.start import Start
from rankfold.methods.svd.fused import multiply, statistics_pass
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.ritz import Basis, rayleigh_ritz
from rankfold.methods.svd.solvers.blocks import BlockSolver, of_triplets
from rankfold.methods.svd.solvers.solver import Decomposition
from rankfold.methods.svd.strategy import Strategy
from rankfold.pipeline.engine.run import Run

ITERATIONS = 3


class Power(BlockSolver):
    """Multiplies one block by A'A; Ritz values of the last block are the answer."""

    name = "power"
    keeps_blocks = False

    def block_passes(self, strategy: Strategy) -> int:
        """A fixed number, if that many are allowed."""
        return min(ITERATIONS, super().block_passes(strategy))

    def solve(
        self, run: Run, strategy: Strategy, request: Request, centering: Centering, start: Start
    ) -> Decomposition:
        """Halko, Martinsson, Tropp, SIAM Review 53(2), 2011, algorithm 4.4, on the short side."""
        known = statistics_pass(run, strategy, centering, start) if strategy.statistics_passes else None
        q = start.block(strategy.view, strategy.width, request.seed)
        block, known = multiply(run, strategy, centering, start, q, index=1, known=known)
        for index in range(2, self.block_passes(strategy) + 1):
            q = orthonormalize(block.load("z"))
            run.drop(block.y)
            block, known = multiply(run, strategy, centering, start, q, index=index, known=known)
        basis = Basis()
        basis.add(block)
        triplets = rayleigh_ritz(run, strategy, basis, request.rank, request.seed)
        return of_triplets(strategy, centering, triplets, known, [])


POWER = Power()
