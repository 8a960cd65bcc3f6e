"""One pass into the scatter matrix of the short side, and its leading eigenvectors.

Squaring the matrix squares its condition: a singular value s below the largest, s1, is known to a
relative error of eps (s1 / s)^2 only. Products and sums are therefore float64 whatever the data, and the
fused pass that follows for the long factor takes the singular values from the matrix itself.

The scatter matrix is centered block by block and merged exactly. Products are formed in float64 even of
float32 data: in float32 every eigenvalue below 1e-7 of the largest, every singular value below 3e-4, would
be rounding, and with it the directions that a second pass refines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.center_scale import measure
from rankfold.kernels.linear.dense import leading_eigenpairs
from rankfold.kernels.linear.moments import Moments, add_rows, merge_moments
from rankfold.methods.parts.conditioned import Centering, kept_columns
from rankfold.methods.parts.finite import count_bad, join_bad, no_bad, refuse_bad
from rankfold.methods.parts.panels import Buffers, OverPanels, Panels, numbers
from rankfold.methods.parts.start import Start
from rankfold.methods.svd.strategy import Strategy
from rankfold.pipeline.data.view import Orientation, aligned_empty
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]


@dataclass(slots=True)
class Work:
    """Buffers of one segment."""

    panels: Buffers
    product: Array


@dataclass(frozen=True, slots=True)
class GramPass(OverPanels):
    """Fold of a matrix into count, mean and scatter of its long rows.

    Scaling of a tall matrix is left to the reader of the scatter, who divides rows and columns.
    """

    panels: Panels
    """With one extra row and grains of their own: see ``add_rows``."""

    centering: Centering
    shift: npt.NDArray[np.float64]
    """Provisional mean of the columns, (short,), about which block means are taken."""

    columns: ScratchMatrix | None
    row_seconds: float

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace and of two accumulators, which a merge holds beside it."""
        short = self.panels.view.short
        vectors = 8 * 8 * max(short, self.panels.grain_rows)
        return self.panels.memory_bytes + 3 * 8 * short * short + vectors

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of the sums of a stream."""
        return 8 * self.panels.view.short**2

    def start(self) -> State:
        """Accumulator of no rows."""
        short = self.panels.view.short
        return {
            "count": np.zeros(1, np.int64),
            "mean": np.zeros(short),
            "scatter": np.zeros((short, short)),
            "bad": no_bad(),
        }

    def workspace(self) -> Work:
        """Allocate the buffers."""
        short = self.panels.view.short
        return Work(self.panels.buffers(), aligned_empty((short, short), np.float64))

    def read(self, work: Work, start: int, stop: int, slot: int) -> None:
        """Fetch a panel."""
        self.panels.read(work.panels, start, stop, slot)

    def step(self, state: State, work: Work, start: int, stop: int, slot: int) -> None:
        """Add a panel, grain by grain."""
        add = self._add_rows if self.panels.view.orientation is Orientation.ROWS else self._add_columns
        for first, _, raw in self.panels.grains(work.panels, start, stop, slot):
            if not add(state, work, first, raw):
                count_bad(state, raw, *self.panels.corner(first))

    def merge(self, total: State, other: State) -> None:
        """Merge the moments."""
        sum_ = _moments(total)
        merge_moments(sum_, _moments(other))
        total["count"][0] = sum_.count
        total["bad"] = join_bad(total["bad"], other["bad"])

    def _add_rows(self, state: State, work: Work, first: int, raw: Array) -> bool:
        raw = numbers(raw)
        sums, squares = measure(raw, self.shift, self.centering.unit)
        if not np.isfinite(squares).all():
            return False
        mean = np.zeros(len(sums))
        if self.centering.center:
            mean = self.shift + sums / (len(raw) * self.centering.unit)
        total = _moments(state)
        grain = work.panels.grain
        if grain is None:
            raise TypeError("a Gram pass by rows needs grains of their own")
        add_rows(total, raw, mean, self.centering.unit, out=grain, work=work.product)
        state["count"][0] = total.count
        return True

    def _add_columns(self, state: State, work: Work, first: int, raw: Array) -> bool:
        columns = kept_columns(raw, self.centering, first, self.columns)
        if columns is None:
            return False
        d = self.panels.conditioned(work.panels, raw, columns.mean, columns.scale * self.centering.unit)
        np.matmul(d, d.T, out=work.product)
        state["scatter"] += work.product
        state["count"][0] += d.shape[1]
        return True


def _moments(state: State) -> Moments:
    return Moments(int(state["count"][0]), state["mean"], state["scatter"])


# The solver ---------------------------------------------------------------------------------------


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
    """Sum of squares of the centered, scaled matrix, times unit squared."""


def gram(run: Run, layout: Strategy, centering: Centering, start: Start) -> Scatter:
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
        centering=centering,
        shift=start.shift,
        columns=layout.column_file(run.scratch, centering),
        row_seconds=layout.row_seconds(2 * view.short),
    )
    state = run.pass_over_data("gram", fold)
    refuse_bad(state, view.source)
    scatter = state["scatter"]
    mean, deviation = state["mean"] / centering.unit, np.ones(view.short)
    if by_rows and centering.scale:
        deviation = standard_deviations(np.diag(scatter) / centering.unit**2, view.long, mean, centering)
        scatter /= divisors(deviation)[:, None]
        scatter /= divisors(deviation)
    total = float(np.trace(scatter))
    values, vectors = leading_eigenpairs(scatter, layout.width)
    return Scatter(values, vectors, mean, deviation, total)


def standard_deviations(squares: Float64, count: int, mean: Float64, centering: Centering) -> Float64:
    """Standard deviations from centered sums of squares; 0 for columns that are constant but for rounding."""
    deviation = np.sqrt(np.maximum(squares, 0.0) / max(count - 1, 1))
    return np.where(deviation > centering.constant_below * np.abs(mean), deviation, 0.0)


def divisors(deviation: Float64) -> Float64:
    """What columns are divided by: constant ones are left as they are."""
    return np.where(deviation > 0, deviation, 1.0)
