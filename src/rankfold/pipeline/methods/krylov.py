"""Fused block Krylov: the fewest reads of a matrix for its leading singular triplets.

Each pass multiplies a block by A and by A' while a panel is in cache, and the block joins an
orthonormal basis of span{W, A'A W, (A'A)^2 W, ...}. Small matrices tell after each pass how far the
singular values have come, so passes end when the answer is good enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rankfold.kernels.normal import gaussian_rows
from rankfold.kernels.orthonormal import orthonormalise
from rankfold.pipeline.checkpoint import load_arrays, save_arrays
from rankfold.pipeline.finite import refuse_bad
from rankfold.pipeline.folds.column_statistics import ColumnStatistics
from rankfold.pipeline.folds.local_columns import Centring
from rankfold.pipeline.layout import Layout
from rankfold.pipeline.methods.gram import divisors, standard_deviations
from rankfold.pipeline.methods.start import Start
from rankfold.pipeline.methods.subspace import Statistics, Subspace, multiply
from rankfold.pipeline.quality import Ritz, estimated_errors, rounding
from rankfold.pipeline.run import Run
from rankfold.pipeline.view import Orientation

Float64 = npt.NDArray[np.float64]

OMEGA = 1
"""Purpose key of the random start block."""

FAR_FROM_MEAN = 1e4
"""Ratio of the shift's error to the variance past which the first product has lost digits."""


@dataclass(slots=True)
class Convergence:
    """What each pass told."""

    history: list[Ritz] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    """Largest estimated relative error after each pass."""

    def observe(self, space: Subspace, rank: int, layout: Layout, tol: float) -> bool:
        """Take in the state after a pass; whether another one would bring no more."""
        ritz = space.ritz(rank, layout.width)
        self.history.append(ritz)
        exact = space.width == layout.view.short
        error = np.zeros(rank) if exact else estimated_errors(self.history)
        rounded = ritz.noise + rounding(ritz.values, layout.view.dtype)
        self.errors.append(float(np.minimum(error + rounded, 1.0).max()))
        return exact or bool(((error + rounded <= tol) | (error <= 2 * rounded)).all())


def krylov(
    run: Run, layout: Layout, centring: Centring, start: Start, *, rank: int, tol: float, seed: int
) -> tuple[Subspace, Statistics, Convergence]:
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
    known = statistics_pass(run, layout, centring, start) if layout.statistics_passes else None
    space, seen = Subspace(), Convergence()
    q = orthonormalise(gaussian_rows(seed, OMEGA, (0, layout.view.short), layout.width))
    while True:
        index = run.passes + 1
        had_statistics = known is not None
        block, known = multiply(run, layout, centring, start, _kept(run, index, q), index=index, known=known)
        z = block.load("z")
        if had_statistics or run.passes >= layout.passes or not _far(known, layout, centring, start):
            space.add(block)
            if seen.observe(space, rank, layout, tol):
                break
        if run.passes >= layout.passes:
            break
        left = layout.view.short - space.width
        q = orthonormalise(z[:, : min(layout.width, left)], lambda: space.each("q"))
    return space, known, seen


def statistics_pass(run: Run, layout: Layout, centring: Centring, start: Start) -> Statistics:
    """Means and standard deviations of the columns of a tall matrix, for scaling."""
    fold = ColumnStatistics(layout.panels(run.slots), start.shift, centring.unit, layout.row_seconds(4))
    state = run.pass_over_data("statistics", fold)
    refuse_bad(state, layout.view.source.name)
    count = layout.view.long
    d = state["sums"] / count if centring.centre else np.zeros(layout.view.short)
    squares = state["squares"] - count * d**2
    mean = start.shift + d / centring.unit
    deviation = standard_deviations(squares / centring.unit**2, count, mean, centring)
    return Statistics(mean, deviation, float((squares / divisors(deviation) ** 2).sum()))


def _kept(run: Run, index: int, q: Float64) -> Float64:
    """The block as an earlier attempt stored it: the same numbers, not computed twice."""
    path = run.part(f"pass-{index:02d}", "basis.npz")
    if not path.exists():
        save_arrays(path, {"q": q})
    return load_arrays(path)["q"]


def _far(known: Statistics, layout: Layout, centring: Centring, start: Start) -> bool:
    """Whether the provisional shift was so far off that the first block is better left out.

    Its product then carries rounding errors of the size of the shift's error. The next block, which it
    led to, is multiplied about the true mean and is as good a start as any.
    """
    if not (centring.centre and layout.view.orientation is Orientation.ROWS):
        return False
    d = (known.mean - start.shift) * centring.unit
    return layout.view.long * float(d @ d) > FAR_FROM_MEAN * known.total
