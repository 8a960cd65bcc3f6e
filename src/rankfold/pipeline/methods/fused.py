"""The fused pass with a block, and the loop of passes that Krylov and subspace iteration share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rankfold.kernels.normal import gaussian_rows
from rankfold.kernels.orthonormal import orthonormalise
from rankfold.pipeline.checkpoint import State, load_arrays, save_arrays
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.finite import refuse_bad
from rankfold.pipeline.folds.column_statistics import ColumnStatistics
from rankfold.pipeline.folds.local_columns import Centring
from rankfold.pipeline.folds.panel_pass import PanelPass
from rankfold.pipeline.layout import Layout
from rankfold.pipeline.methods.basis import Block
from rankfold.pipeline.methods.gram import divisors, standard_deviations
from rankfold.pipeline.methods.start import Start
from rankfold.pipeline.narrow import Narrow
from rankfold.pipeline.run import Run
from rankfold.pipeline.view import Orientation, View

Float64 = npt.NDArray[np.float64]

OMEGA = 1
"""Purpose key of the random start block."""

FAR_FROM_MEAN = 1e4
"""Ratio of the shift's error to the variance past which the first product has lost digits."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known of the columns of a tall matrix once all rows were seen."""

    mean: Float64
    deviation: Float64
    total: float
    """Sum of squares of the centred, scaled matrix, times unit squared; of any matrix."""


class Iteration(Protocol):
    """What a method does between passes."""

    def take(self, block: Block) -> bool:
        """Take in the block of a pass; whether another pass would bring no more."""

    def following(self, block: Block) -> Float64:
        """The orthonormal block of the next pass. Called when there is one: ``block.y`` may then go."""


def iterate(
    run: Run, layout: Layout, centring: Centring, start: Start, seed: int, iteration: Iteration
) -> Statistics:
    """Make passes until the iteration has enough, or as many as are allowed."""
    known = statistics_pass(run, layout, centring, start) if layout.statistics_passes else None
    q = orthonormalise(gaussian_rows(seed, OMEGA, (0, layout.view.short), layout.width))
    while True:
        index, had_statistics = run.passes + 1, known is not None
        block, known = multiply(run, layout, centring, start, _kept(run, index, q), index=index, known=known)
        last = run.passes >= layout.passes
        good = had_statistics or last or not _far(known, layout, centring, start)
        if (good and iteration.take(block)) or last:
            return known
        q = iteration.following(block)


def multiply(
    run: Run,
    layout: Layout,
    centring: Centring,
    start: Start,
    q: Float64,
    *,
    index: int,
    known: Statistics | None,
) -> tuple[Block, Statistics]:
    """One fused pass with the basis block ``q`` (short, width).

    ``known`` statistics serve as the shift, and weigh columns; without them the pass takes sums about
    the provisional shift as it goes, and what it accumulated is centred afterwards:

        d = mean - shift,  o = (w q)'d,   Z = w (D'Y - m d o'),   A q = Y - 1 o'

    with D the shifted matrix, w the weights of columns, Y = D (w q).
    """
    view, name = layout.view, f"pass-{index:02d}"
    by_rows = view.orientation is Orientation.ROWS
    shift, weights = conditions(layout, centring, start, known)
    constants = run.part(name, "constants.npz")
    weighted = q * weights[:, None]
    if not constants.exists():
        save_arrays(constants, {"q": weighted, "shift": shift})
    y = layout.y(run.scratch, index, q.shape[1])
    fold = PanelPass(
        panels=layout.panels(run.slots),
        centring=centring,
        constants=constants,
        y=y,
        columns=column_file(run, layout, centring),
        measured=known is None,
        row_seconds=layout.row_seconds(4 * q.shape[1]),
    )
    state = run.pass_over_data(name, fold)
    refuse_overflow(state, view)
    z, offset = state["z"] * weights[:, None], np.zeros(q.shape[1])
    if known is None:
        known = statistics(state, layout, start, centring)
        if by_rows and centring.centre:
            d = known.mean - start.shift
            offset = weighted.T @ d
            z -= np.outer(view.long * centring.unit * d, offset)
    path = run.part(name, "block.npz")
    save_arrays(path, {"q": q, "z": z, "offset": offset})
    return Block(path, q.shape[1], y), known


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


def conditions(
    layout: Layout, centring: Centring, start: Start, known: Statistics | None
) -> tuple[Float64, Float64]:
    """What a pass shifts columns by, and what it multiplies test vectors or a basis by: unit and weights."""
    view = layout.view
    shift = start.shift if known is None or not centring.centre else known.mean
    by_rows = view.orientation is Orientation.ROWS
    weights = np.ones(view.short) if known is None or not by_rows else 1.0 / divisors(known.deviation)
    return shift, weights * centring.unit


def column_file(run: Run, layout: Layout, centring: Centring) -> Narrow | None:
    """Where a sweep along the columns keeps their mean and scale."""
    by_rows = layout.view.orientation is Orientation.ROWS
    return layout.columns(run.scratch) if not by_rows and (centring.centre or centring.scale) else None


def refuse_overflow(state: State, view: View) -> None:
    """Raise for products that are not finite, or for a matrix that is not."""
    refuse_bad(state, view.source.name)
    if not np.isfinite(state["z"]).all():
        raise DataError(
            f"products of {view.source.name} leave the range of {view.dtype}: its elements differ too "
            "much in size. Rescale it, or store it as float64."
        )


def statistics(state: State, layout: Layout, start: Start, centring: Centring) -> Statistics:
    """What a pass that measured its columns tells of them."""
    total, count = float(state["squares"].sum()), layout.view.long
    if not (layout.view.orientation is Orientation.ROWS and centring.centre):
        return Statistics(np.zeros(len(state["sums"])), np.ones(len(state["sums"])), total)
    d = state["sums"] / count
    return Statistics(start.shift + d / centring.unit, np.ones(len(d)), total - count * float(d @ d))
