"""Fused block Krylov: the fewest reads of a matrix for its leading singular triplets.

Each pass multiplies a block by A and by A' while a panel is in cache, and the block joins an
orthonormal basis of span{W, A'A W, (A'A)^2 W, ...}. Small matrices tell after each pass how far the
singular values have come, so passes end when the answer is good enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rankfold.kernels.orthonormal import orthonormalise
from rankfold.pipeline.folds.local_columns import Centring
from rankfold.pipeline.layout import Layout
from rankfold.pipeline.methods.basis import Basis, Block
from rankfold.pipeline.methods.convergence import Convergence
from rankfold.pipeline.methods.fused import Statistics, iterate
from rankfold.pipeline.methods.missing import Missing
from rankfold.pipeline.methods.start import Start
from rankfold.pipeline.quality import Ritz, estimated_errors
from rankfold.pipeline.run import Run

Float64 = npt.NDArray[np.float64]


def krylov(
    run: Run, layout: Layout, centring: Centring, start: Start, *, rank: int, tol: float, seed: int
) -> tuple[Basis, Statistics, Convergence]:
    """Grow the basis until the ``rank`` leading singular values are known to ``tol``.

    Notes
    -----
    Passes t, typically 3 to 6; work 4 m n b flops each with b = ``layout.width``; scratch m b t
    elements; resident about six (short, b) blocks of float64, whatever t.

    References
    ----------
    Musco, Musco, Randomized block Krylov methods for stronger and faster approximate singular value
    decomposition, NeurIPS 2015, algorithm 2. We form the basis of A'A on the short side, reorthogonalise
    each block against all others, and get both products from one read.
    """
    growth = _Growth(layout, Convergence(rank, tol, layout.view.dtype))
    known = iterate(run, layout, centring, start, seed, growth)
    return growth.basis, known, growth.seen


@dataclass(slots=True)
class _Growth:
    layout: Layout
    seen: Convergence
    basis: Basis = field(default_factory=Basis)
    history: list[Ritz] = field(default_factory=list)
    mixed: bool = False
    """Whether blocks are not images of those before alone, so that the next is made from residuals."""

    def take(self, block: Block, known: Statistics, missing: Missing | None) -> bool:
        self.basis.add(block)
        outside = float(missing.bound) if missing is not None else 0.0
        settling = self.mixed and not self.history
        self.history.append(
            self.basis.ritz(self.seen.rank, self.layout.width, outside=outside, settling=settling)
        )
        exact = self.basis.width == self.layout.view.short
        return self.seen.observe(self.history[-1], estimated_errors(self.history), exact=exact)

    def following(self, block: Block, missing: Missing | None) -> Float64:
        left = self.layout.view.short - self.basis.width
        z = self.basis.residuals(self.layout.width) if self.mixed else block.load("z")
        if missing is not None and (both := self.basis.with_missing(missing, self.seen.rank)) is not None:
            z, self.mixed = both, True
            self.history.clear()  # rates of convergence begin anew
        return orthonormalise(z[:, : min(self.layout.width, left)], lambda: self.basis.each("q"))
