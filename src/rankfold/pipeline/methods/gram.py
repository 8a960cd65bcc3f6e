"""One pass into the scatter matrix of the short side, and its leading eigenvectors.

Squaring the matrix squares its condition: a singular value s below the largest, s1, is known to a
relative error of eps (s1 / s)^2 only. Products and sums are therefore float64 whatever the data, and the
fused pass that follows for the long factor takes the singular values from the matrix itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rankfold.kernels.small import leading_eigenpairs
from rankfold.pipeline.finite import refuse_bad
from rankfold.pipeline.folds.gram_pass import GramPass
from rankfold.pipeline.folds.local_columns import Centring
from rankfold.pipeline.layout import Layout
from rankfold.pipeline.methods.start import Start
from rankfold.pipeline.run import Run
from rankfold.pipeline.view import Orientation

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scatter:
    """Leading eigenpairs of the scatter matrix and the column statistics found on the way."""

    values: Float64
    """(width,) eigenvalues: squared singular values, times unit squared."""

    vectors: Float64
    """(short, width)."""

    mean: Float64
    """(short,) column means of a tall matrix, in the units of the data."""

    deviation: Float64
    """(short,) column standard deviations of a tall matrix, 0 where constant; 1 where not scaled by."""

    total: float
    """Sum of squares of the centred, scaled matrix, times unit squared."""


def gram(run: Run, layout: Layout, centring: Centring, start: Start) -> Scatter:
    """Make the pass and solve the eigenproblem.

    Notes
    -----
    Work m n min(m, n) flops for the pass, 4/3 min(m, n)^3 for the eigenproblem.

    References
    ----------
    Chan, Golub, LeVeque, The American Statistician 37(3), 1983, for the scatter; LAPACK ``syevr``.
    """
    view = layout.view
    by_rows = view.orientation is Orientation.ROWS
    fold = GramPass(
        panels=layout.gram_panels(run.slots),
        centring=centring,
        shift=start.shift,
        columns=layout.column_file(run.scratch, centring),
        row_seconds=layout.row_seconds(2 * view.short),
    )
    state = run.pass_over_data("gram", fold)
    refuse_bad(state, view.source)
    scatter = state["scatter"]
    mean, deviation = state["mean"] / centring.unit, np.ones(view.short)
    if by_rows and centring.scale:
        deviation = standard_deviations(np.diag(scatter) / centring.unit**2, view.long, mean, centring)
        scatter /= divisors(deviation)[:, None]
        scatter /= divisors(deviation)
    total = float(np.trace(scatter))
    values, vectors = leading_eigenpairs(scatter, layout.width)
    return Scatter(values, vectors, mean, deviation, total)


def standard_deviations(squares: Float64, count: int, mean: Float64, centring: Centring) -> Float64:
    """Standard deviations from centred sums of squares; 0 for columns that are constant but for rounding."""
    deviation = np.sqrt(np.maximum(squares, 0.0) / max(count - 1, 1))
    return np.where(deviation > centring.constant_below * np.abs(mean), deviation, 0.0)


def divisors(deviation: Float64) -> Float64:
    """What columns are divided by: constant ones are left as they are."""
    return np.where(deviation > 0, deviation, 1.0)
