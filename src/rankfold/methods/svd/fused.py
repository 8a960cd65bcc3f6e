"""The fused pass with a block, and the loop of passes that Krylov and subspace iteration share.

The fused pass: ``Y = A Q`` goes to scratch and ``Z = A'Y`` accumulates, each panel read once.

A first pass may make a sketch of the rows as well, while they are in cache.

``A`` is the matrix as long by short, its columns centered and scaled as asked: see ``conditioned``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.count_sketch import TILE_ROWS, add_to_buckets, draw_buckets
from rankfold.kernels.linear.panel import panel_product
from rankfold.methods.parts.column_statistics import ColumnStatistics, divisors, standard_deviations
from rankfold.methods.parts.conditioned import Centering, Grains, OverConditioned
from rankfold.methods.parts.finite import join_bad, refuse_bad
from rankfold.methods.parts.panels import Panels
from rankfold.methods.parts.start import Start, random_block
from rankfold.methods.svd.error_estimates import ritz_vectors
from rankfold.methods.svd.missing import UnseenDirections, load_missing, save_missing
from rankfold.methods.svd.ritz import Block
from rankfold.methods.svd.strategy import Strategy
from rankfold.pipeline.data.view import Orientation, View, aligned_empty
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.storage.checkpoint import State, load_arrays, save_arrays, save_once
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]

ROW_SIGNS = 6
"""Purpose key of buckets and signs."""


@dataclass(slots=True)
class Work:
    """Buffers of one segment."""

    grains: Grains
    q: Array
    y: Array
    z: Array


@dataclass(frozen=True, slots=True)
class PanelPass(OverConditioned):
    """Fold of a matrix with a basis of ``width`` columns."""

    panels: Panels
    centering: Centering
    constants: Path
    """A part with ``q`` (short, width), scaled by ``unit`` and by column weights, and ``shift``."""

    y: ScratchMatrix
    columns: ScratchMatrix | None
    measured: bool
    row_seconds: float
    sketch_rows: int = 0
    """Rows of the sketch; 0 for none."""

    seed: int = 0

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace, and of two accumulators, which a merge holds beside it.

        The basis in the working type; as it is loaded it is gone before there is an accumulator.
        """
        short, width, item = self.panels.view.short, self.y.columns, self.panels.view.dtype.itemsize
        products = (self.panels.grain_rows + 2 * short) * width * item
        return self.grains_bytes + products + 2 * self.accumulator_bytes

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of the sums of a stream."""
        short, item = self.panels.view.short, self.panels.view.dtype.itemsize
        return 8 * short * self.y.columns + self.sketch_rows * (short * item + 8)

    def start(self) -> State:
        """Accumulator of no rows."""
        view = self.panels.view
        state = {"z": np.zeros((view.short, self.y.columns)), **self.measures()}
        if self.sketch_rows:
            state["rows"] = np.zeros((self.sketch_rows, view.short), view.dtype)
            state["signs"] = np.zeros(self.sketch_rows)
        return state

    def workspace(self) -> Work:
        """Allocate the buffers and load the constants."""
        view, width = self.panels.view, self.y.columns
        constants = load_arrays(self.constants)
        return Work(
            grains=self.buffers(constants["shift"]),
            q=constants["q"].astype(view.dtype),
            y=aligned_empty((self.panels.grain_rows, width), view.dtype),
            z=aligned_empty((view.short, width), view.dtype),
        )

    def read(self, work: Work, start: int, stop: int, slot: int) -> None:
        """Fetch a panel."""
        self.panels.read(work.grains.panels, start, stop, slot)

    def step(self, state: State, work: Work, start: int, stop: int, slot: int) -> None:
        """Multiply a panel, grain by grain."""
        for first, last, d in self.conditioned(state, work.grains, start, stop, slot):
            y = work.y[: last - first]
            panel_product(d, work.q, y=y, z=state["z"], work=work.z)
            self.y.write(first, y)
            if self.sketch_rows:
                self._sketch(state, d, first)

    def _sketch(self, state: State, d: Array, first: int) -> None:
        """Add rows to their buckets, which are drawn by tiles."""
        last = first + len(d)
        for tile in range(first // TILE_ROWS, -(-last // TILE_ROWS)):
            top = tile * TILE_ROWS
            low, high = max(first, top), min(last, top + TILE_ROWS)
            drawn = draw_buckets(self.seed, ROW_SIGNS, tile, self.sketch_rows)
            buckets, signs = (numbers[low - top : high - top] for numbers in drawn)
            factors = (signs * self.centering.unit).astype(d.dtype)
            add_to_buckets(d[low - first : high - first], buckets, factors, sums=state["rows"])
            np.add.at(state["signs"], buckets, signs)

    def merge(self, total: State, other: State) -> None:
        """Add the sums."""
        for name in ("z", "sums", "squares", *("rows", "signs") * bool(self.sketch_rows)):
            total[name] += other[name]
        total["bad"] = join_bad(total["bad"], other["bad"])


# The loop of passes -------------------------------------------------------------------------------


Float64 = npt.NDArray[np.float64]

FAR_FROM_MEAN = 1e4
"""Ratio of the shift's error to the variance past which the first product has lost digits."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known of the columns of a tall matrix once all rows were seen."""

    mean: Float64
    deviation: Float64
    total: float
    """Sum of squares of the centered, scaled matrix, times unit squared; of any matrix."""


class Iteration(Protocol):
    """What a method does between passes."""

    def take(self, block: Block, known: Statistics, missing: UnseenDirections | None) -> bool:
        """Take in the block of a pass; whether another pass would bring no more."""

    def following(self, block: Block, missing: UnseenDirections | None) -> Float64:
        """The orthonormal block of the next pass. Called when there is one: ``block.y`` may then go."""


def iterate(
    run: Run, layout: Strategy, centering: Centering, start: Start, seed: int, iteration: Iteration
) -> Statistics:
    """Make passes until the iteration has enough, or as many as are allowed."""
    known = statistics_pass(run, layout, centering, start) if layout.statistics_passes else None
    q, sketch_rows = start.block(layout.view, layout.width, seed), layout.sketch_rows
    while True:
        index, had_statistics = run.passes + 1, known is not None
        q = load_arrays(save_once(run.part(f"pass-{index:02d}", "basis.part"), {"q": q}))["q"]
        block, known = multiply(
            run, layout, centering, start, q, index=index, known=known, sketch_rows=sketch_rows, seed=seed
        )
        missing = load_missing(_missing(run, index)) if sketch_rows else None
        last, sketch_rows = run.passes >= layout.passes, 0
        far = not had_statistics and _far(known, layout, centering, start)
        if not last and (far or (missing is not None and _hides(missing, block))):
            q = random_block(layout.view.short, layout.width, seed)
        elif iteration.take(block, known, missing) or last:
            return known
        else:
            q = iteration.following(block, missing)


def multiply(
    run: Run,
    layout: Strategy,
    centering: Centering,
    start: Start,
    q: Float64,
    *,
    index: int,
    known: Statistics | None,
    sketch_rows: int = 0,
    seed: int = 0,
) -> tuple[Block, Statistics]:
    """One fused pass with the basis block ``q`` (short, width); what a sketch of rows tells beside it.

    ``known`` statistics serve as the shift, and weigh columns; without them the pass takes sums about
    the provisional shift as it goes, and what it accumulated is centered afterwards:

        d = mean - shift,  o = (w q)'d,   Z = w (D'Y - m d o'),   A q = Y - 1 o'

    with D the shifted matrix, w the weights of columns, Y = D (w q); S A = (S D - (S 1) d') w for a sketch.
    """
    view, name = layout.view, f"pass-{index:02d}"
    shift, weights = conditions(layout, centering, start, known)
    weighted = q * weights[:, None]
    y = layout.y(run.scratch, index, q.shape[1])
    fold = PanelPass(
        panels=layout.panels(run.slots),
        centering=centering,
        constants=save_once(run.part(name, "constants.part"), {"q": weighted, "shift": shift}),
        y=y,
        columns=layout.column_file(run.scratch, centering),
        measured=known is None,
        row_seconds=layout.row_seconds(4 * q.shape[1]),
        sketch_rows=sketch_rows,
        seed=seed,
    )
    state = run.pass_over_data(name, fold)
    refuse_overflow(state, view)
    offset = np.zeros(q.shape[1])
    if known is None:
        known = statistics(state, layout, start, centering)
        offset = _move_to_mean(state, layout, centering, weighted)
    z = state["z"] * weights[:, None]
    if sketch_rows:
        rows, left_over = state["rows"] * (weights / centering.unit), known.total - float((q * z).sum())
        save_missing(_missing(run, index), rows, q, left_over, known.total)
    path = run.part(name, "block.part")
    save_arrays(path, {"q": q, "z": z, "offset": offset})
    return Block(path, q.shape[1], y), known


def _move_to_mean(state: State, layout: Strategy, centering: Centering, weighted: Float64) -> Float64:
    """Center what a pass accumulated about the provisional shift; the offset of its products."""
    d = mean_about_shift(state, layout, centering)
    offset = weighted.T @ d
    state["z"] -= np.outer(layout.view.long * d, offset)
    if "rows" in state:
        state["rows"] -= np.outer(state["signs"], centering.unit * d)
    return np.asarray(offset)


def statistics_pass(run: Run, layout: Strategy, centering: Centering, start: Start) -> Statistics:
    """Means and standard deviations of the columns of a tall matrix, for scaling."""
    fold = ColumnStatistics(layout.panels(run.slots), start.shift, centering.unit, layout.row_seconds(4))
    state = run.pass_over_data("statistics", fold)
    refuse_bad(state, layout.view.source)
    return scaled_statistics(state, layout, start, centering)


def scaled_statistics(state: State, layout: Strategy, start: Start, centering: Centering) -> Statistics:
    """What sums about the provisional shift tell of columns that are to be scaled."""
    count = layout.view.long
    d = state["sums"] / count if centering.center else np.zeros(layout.view.short)
    squares = state["squares"] - count * d**2
    mean = start.shift + d / centering.unit
    deviation = standard_deviations(squares / centering.unit**2, count, mean, centering)
    return Statistics(mean, deviation, float((squares / divisors(deviation) ** 2).sum()))


def _missing(run: Run, index: int) -> Path:
    return run.part(f"pass-{index:02d}", "missing.part")


def _far(known: Statistics, layout: Strategy, centering: Centering, start: Start) -> bool:
    """Whether the provisional shift was so far off that the first block is better left out.

    Its product then carries rounding errors of the size of the shift's error, and a sample whose mean is
    wrong tells no directions. Passes start again from a random block, about the true mean.
    """
    if not (centering.center and layout.view.orientation is Orientation.ROWS):
        return False
    d = (known.mean - start.shift) * centering.unit
    return layout.view.long * float(d @ d) > FAR_FROM_MEAN * known.total


def _hides(missing: UnseenDirections, block: Block) -> bool:
    """Whether squares that neither block nor sketch accounts for could matter: a random block sees them."""
    if not missing.hidden > 0:
        return False
    theta, _ = ritz_vectors(block.load("q").T @ block.load("z"), block.width)
    return bool(missing.hidden > theta[-1])


def mean_about_shift(state: State, layout: Strategy, centering: Centering) -> Float64:
    """What the true mean differs from the provisional shift: the difference of both would lose digits."""
    if not (centering.center and layout.view.orientation is Orientation.ROWS):
        return np.zeros(layout.view.short)
    return np.asarray(state["sums"] / layout.view.long / centering.unit)


def conditions(
    layout: Strategy, centering: Centering, start: Start, known: Statistics | None
) -> tuple[Float64, Float64]:
    """What a pass shifts columns by, and what it multiplies test vectors or a basis by: unit and weights."""
    view = layout.view
    shift = start.shift if known is None or not centering.center else known.mean
    by_rows = view.orientation is Orientation.ROWS
    weights = np.ones(view.short) if known is None or not by_rows else 1.0 / divisors(known.deviation)
    return shift, weights * centering.unit


def refuse_overflow(state: State, view: View, products: str = "z") -> None:
    """Raise for products that are not finite, or for a matrix that is not."""
    refuse_bad(state, view.source)
    if not np.isfinite(state[products]).all():
        raise DataError(
            f"products of {view.source.name} leave the range of {view.dtype}: its elements differ too "
            "much in size. Rescale it, or store it as float64."
        )


def statistics(state: State, layout: Strategy, start: Start, centering: Centering) -> Statistics:
    """What a pass that measured its columns tells of them."""
    total, count = float(state["squares"].sum()), layout.view.long
    if not (layout.view.orientation is Orientation.ROWS and centering.center):
        return Statistics(np.zeros(len(state["sums"])), np.ones(len(state["sums"])), total)
    d = state["sums"] / count
    return Statistics(start.shift + d / centering.unit, np.ones(len(d)), total - count * float(d @ d))
