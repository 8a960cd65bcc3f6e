"""A solver of another package: a fixed number of power iterations on one block. This file is all there is."""

from __future__ import annotations

from rankfold.kernels.linear.orthonormal import orthonormalize
from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.start import Start
from rankfold.methods.svd.operator import CenteredMatrix
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
        matrix = CenteredMatrix(run, strategy, centering, start, request.seed)
        block = matrix.apply(matrix.first(strategy.width)).block
        for _ in range(1, self.block_passes(strategy)):
            matrix.drop(block)
            block = matrix.apply(orthonormalize(block.load("z"))).block
        basis = Basis()
        basis.add(block)
        triplets = rayleigh_ritz(run, strategy, basis, request.rank, request.seed)
        return of_triplets(strategy, centering, triplets, matrix.columns, [])


POWER = Power()
