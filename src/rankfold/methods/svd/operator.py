"""A matrix that is known by what it makes of blocks of vectors, and the loop of iterations that need no more.

``Y = A Q`` goes to scratch and ``Z = A'Y`` comes back, both from one read. ``CenteredMatrix`` is the matrix
of a request. Whatever else is applied to a block likewise, a product, a kernel of all pairs, the Laplacian
of a graph, can stand in its place: see ``tests/methods/svd/test_operator.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.dense import adjoint, inner, ritz_vectors
from rankfold.methods.parts.column_statistics import (
    Statistics,
    divisors,
    mean_about_shift,
    scaled_statistics,
    statistics,
)
from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.finite import refuse_bad
from rankfold.methods.parts.square_range import refuse_size
from rankfold.methods.parts.start import Start, random_block, sample_start
from rankfold.methods.random_keys import Purpose
from rankfold.methods.svd.missing import RowSketch, UnseenDirections, load_missing, save_missing
from rankfold.methods.svd.passes.choice import fused_pass, statistics_fold
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.strategy import Strategy
from rankfold.pipeline.data.real_parts import collapse, expand
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.storage.checkpoint import State, load_arrays, save_arrays, save_once
from rankfold.pipeline.storage.scratch import ScratchMatrix

Float64 = npt.NDArray[np.float64]

FAR_FROM_MEAN = 1e4
"""Ratio of the shift's error to the variance past which the first product has lost digits."""

CONSTANT_DEVIATION = 1e-12
"""A column whose standard deviation is below this share of its mean is constant but for rounding."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of orthonormal vectors and its images."""

    path: Path
    """A part with ``q`` and ``z`` (short, width) and ``offset`` (width,)."""

    width: int
    y: ScratchMatrix
    """``A Q``, or the parts of it, before the true mean was known: ``A Q = Y - 1 offset'``."""

    def load(self, name: str) -> Float64:
        """One array of the block."""
        return load_arrays(self.path, name)[name]


@dataclass(frozen=True, slots=True)
class Application:
    """A block with its images, and what the operator learned beside."""

    block: Block
    missing: UnseenDirections | None = None
    """Directions outside the block, where the operator made a sketch of rows to look for them."""

    sketch: RowSketch | None = None
    """A sketch of rows that the block does not depend on, where the operator made one."""

    bad_start: bool = False
    """Whether what the block was made from was so far off that a random one is the better beginning."""

    is_coarse: bool = False
    """Whether its images were rounded more than the type of the operator: no result is made of them."""


class Operator(Protocol):
    """A, long by short, applied to blocks of vectors of the short side."""

    @property
    def short(self) -> int:
        """Length of the vectors."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its products, which sets their rounding."""

    @property
    def squared_norm(self) -> float:
        """Sum of its squares, known once it was applied."""

    @property
    def is_exhausted(self) -> bool:
        """Whether it may not be applied again."""

    def first(self, width: int) -> Float64:
        """Orthonormal (short, width) to begin with."""

    def random(self, width: int) -> Float64:
        """The same, random."""

    def apply(self, q: Float64) -> Application:
        """``A q`` and ``A'A q`` of orthonormal (short, width)."""

    def sketch_again(self) -> None:
        """Make another sketch beside the next block, if any was made: the basis depends on that one now."""

    def drop(self, block: Block) -> None:
        """Give back the scratch of a block that is needed no more."""

    def refine(self) -> None:
        """Round no more than the type from here on. Called after an application that is coarse."""


class Iteration(Protocol):
    """The steps of a method between applications."""

    def take(self, application: Application, squared_norm: float) -> bool:
        """Take in the images of a block; whether another block would bring no more."""

    def following(self, application: Application) -> Float64:
        """The next orthonormal block. Called when there is one: the scratch of the last may then go."""


def iterate(operator: Operator, width: int, iteration: Iteration) -> None:
    """Apply an operator until the iteration has enough, or as often as is allowed.

    What a coarse application was enough for is looked at once more.
    """
    q = operator.first(width)
    while True:
        application = operator.apply(q)
        last = operator.is_exhausted
        if application.bad_start and not last:
            operator.sketch_again()
            q = operator.random(width)
        elif iteration.take(application, operator.squared_norm) or last:
            if not application.is_coarse:
                return
            operator.refine()
            q = iteration.following(application)
        else:
            q = iteration.following(application)


LARGEST_SCALED = {4: 64, 8: 240}
"""Largest exponent of the size of numbers whose columns are scaled, by item size.

Scaled columns keep the power of two that brings numbers near 1: squares, and squares of these, stay in range.
"""


# The matrix of a request --------------------------------------------------------------------------


def begin(run: Run, strategy: Strategy, request: Request) -> tuple[Centering, Start]:
    """What is known before the first pass: how columns are centered, and what a sample tells."""
    solver = strategy.solver
    if solver.holds_matrix:
        unknown = Start(np.zeros(strategy.view.short), 1.0, Path())
        return Centering(request.center, request.scale, 1.0, CONSTANT_DEVIATION), unknown
    block = partial(solver.make_sample_block, request, strategy)
    # A solver that does not scale before its passes does so with what they find.
    scale = request.scale and (solver.scales_first or strategy.view.orientation is Orientation.COLUMNS)
    start = sample_start(strategy.sample, block, center=request.center, scale=scale, folder=run.folder)
    view, exponent = strategy.view, -int(np.log2(start.pow2_scale))
    if request.scale and abs(exponent) > LARGEST_SCALED[view.dtype.itemsize]:
        what = "products of columns divided by their deviations"
        refuse_size(view.source, 1 / start.pow2_scale, what, view.dtype)
    return Centering(request.center, request.scale, start.pow2_scale, CONSTANT_DEVIATION), start


@dataclass(slots=True)
class CenteredMatrix:
    """A matrix, its columns centered and scaled as asked, times a power of two: an ``Operator``."""

    run: Run
    strategy: Strategy
    centering: Centering
    start: Start
    seed: int
    column_statistics: Statistics | None = None
    """Statistics of its columns; None before the first pass, which measures them."""

    sketch_rows: int = 0
    """Rows of the sketch that the next pass makes beside, to tell what its block misses; 0 for none."""

    sketch_purpose: Purpose = Purpose.ROW_SIGNS
    """Of its random numbers."""

    tf32: bool = False
    """Whether products may be rounded to 11 bits, but for those of the last pass that is allowed, and of a
    first one beside a sketch, which tells what its block misses from differences of squares."""

    tf32_passes: int = 0
    """Passes whose products were."""

    is_double: bool = False
    """Whether products of stored numbers are summed in float64 whatever the type of the data."""

    @property
    def short(self) -> int:
        """See ``Operator``."""
        return self.strategy.vectors(self.strategy.view.short)

    @property
    def dtype(self) -> np.dtype[Any]:
        """See ``Operator``."""
        return self.strategy.view.dtype

    @property
    def columns(self) -> Statistics:
        """Statistics of the columns, which a pass has measured."""
        if self.column_statistics is None:
            raise TypeError("columns are known after a pass")
        return self.column_statistics

    @property
    def squared_norm(self) -> float:
        """See ``Operator``."""
        return self.columns.total

    @property
    def is_exhausted(self) -> bool:
        """See ``Operator``."""
        return self.run.passes >= self.strategy.passes

    def first(self, width: int) -> Float64:
        """What a sample gives, or random; columns are measured before where that takes a pass."""
        if self.strategy.statistics_passes:
            self.column_statistics = statistics_pass(self.run, self.strategy, self.centering, self.start)
        return self.start.block(self.strategy.view, width, self.seed)

    def random(self, width: int) -> Float64:
        """See ``Operator``."""
        return random_block(self.short, width, self.seed, paired=self.strategy.paired)

    def sketch_again(self) -> None:
        """See ``Operator``."""
        self.sketch_rows, self.sketch_purpose = self.strategy.sketch_rows, Purpose.ROW_SIGNS_AGAIN

    def drop(self, block: Block) -> None:
        """See ``Operator``."""
        self.run.drop(block.y)

    def refine(self) -> None:
        """See ``Operator``."""
        self.tf32 = False

    def apply(self, q: Float64) -> Application:
        """One fused pass.

        Statistics that are known serve as the shift, and weigh columns; without them the pass takes sums
        about the provisional shift as it goes, and what it accumulated is centered afterwards:

            d = mean - shift,  o = (w q)'d,   Z = w (D'Y - m d o'),   A q = Y - 1 o'

        with D the shifted matrix, w the weights of columns, Y = D (w q). A sketch: S A = (S D - (S 1) d') w.
        Of a complex matrix the pass multiplies the parts: see ``real_parts.py``.
        """
        run, strategy, prior, paired = self.run, self.strategy, self.column_statistics, self.strategy.paired
        name = f"pass-{run.passes + 1:02d}"
        q = load_arrays(save_once(run.part(name, "basis.part"), {"q": q}))["q"]
        y = strategy.y(run.scratch, run.passes + 1, q.shape[1] * (1 + paired))
        shift, weights = conditions(strategy, self.centering, self.start, prior)
        basis, rows = expand(q) * weights[:, None], self.sketch_rows
        is_coarse = self.tf32 and not rows and run.passes + 1 < strategy.passes
        self.tf32_passes += is_coarse
        self.is_double = self.is_double or self._is_far_from_zero(shift)
        state = self._pass(name, {"q": basis, "shift": shift}, y, tf32=is_coarse)
        offset = np.zeros(y.columns)
        if prior is None:
            self.column_statistics = statistics(state, strategy.view, self.start.shift, self.centering)
            offset = self._move_to_mean(state, basis)
        z = collapse(state["z"] * weights[:, None], paired=paired)
        offset = strategy.numbers_of(offset)
        missing, sketch = None, None
        if rows:
            sketched = state["rows"] * (weights / self.centering.pow2_scale)
            sketched, path = strategy.numbers_of(sketched), run.part(name, "sketch.part")
            save_arrays(path, {"rows": sketched})
            sketch, self.sketch_rows = RowSketch(path), 0
            if self.sketch_purpose is Purpose.ROW_SIGNS and self.start.from_sample:
                path = run.part(name, "missing.part")
                save_missing(path, sketched, q, self.squared_norm - inner(q, z), self.squared_norm)
                missing = load_missing(path)
        path = run.part(name, "block.part")
        save_arrays(path, {"q": q, "z": z, "offset": offset})
        block = Block(path, q.shape[1], y)
        far = prior is None and (
            self._far() or (self._is_far_from_zero(self.columns.mean) and not self.is_double)
        )
        bad_start = far or (missing is not None and _hides(missing, block))
        return Application(block, missing, sketch, bad_start, is_coarse)

    def _pass(self, name: str, constants: dict[str, Float64], y: ScratchMatrix, *, tf32: bool) -> State:
        fold = fused_pass(
            self.strategy,
            self.run.slots,
            self.centering,
            save_once(self.run.part(name, "constants.part"), constants),
            y,
            self.strategy.column_file(self.run.scratch, self.centering),
            measures_columns=self.column_statistics is None,
            sketch_rows=self.sketch_rows,
            seed=self.seed,
            purpose=self.sketch_purpose,
            tf32=tf32,
            is_double=self.is_double,
        )
        state = fold.finish(self.run.pass_over_data(name, fold), constants["shift"])
        refuse_overflow(state, self.strategy.view)
        return state

    def _move_to_mean(self, state: State, basis: Float64) -> Float64:
        """Center what a pass accumulated about the provisional shift; the offset of its products."""
        d = mean_about_shift(state, self.strategy.view, self.centering)
        offset = basis.T @ d
        state["z"] -= np.outer(self.strategy.view.long * d, offset)
        if "rows" in state:
            state["rows"] -= np.outer(state["signs"], self.centering.pow2_scale * d)
        return np.asarray(offset)

    def _far(self) -> bool:
        """Whether the provisional shift was so far off that the first block is better left out.

        Its product then carries rounding errors of the size of the shift's error, and a sample whose mean is
        wrong tells no directions. Passes start again from a random block, about the true mean.
        """
        view = self.strategy.view
        if not (self.centering.center and view.orientation is Orientation.ROWS):
            return False
        d = (self.columns.mean - self.start.shift) * self.centering.pow2_scale
        return view.long * float(d @ d) > FAR_FROM_MEAN * self.squared_norm

    def _is_far_from_zero(self, shift: Float64) -> bool:
        """Whether a shift of a sparse matrix, whose zeros are not shifted, takes more digits than it leaves.

        Products of stored numbers are then summed in float64.
        """
        view = self.strategy.view
        if not (self.strategy.fullest and self.centering.center and view.orientation is Orientation.ROWS):
            return False
        if self.column_statistics is None:
            return False
        shift = shift * self.centering.pow2_scale / divisors(self.columns.deviation)
        return view.long * float(shift @ shift) > FAR_FROM_MEAN * self.squared_norm


def _hides(missing: UnseenDirections, block: Block) -> bool:
    """Whether squares that neither block nor sketch accounts for could matter: a random block sees them."""
    if not missing.hidden > 0:
        return False
    theta, _ = ritz_vectors(adjoint(block.load("q")) @ block.load("z"), block.width)
    return bool(missing.hidden > theta[-1])


def statistics_pass(run: Run, strategy: Strategy, centering: Centering, start: Start) -> Statistics:
    """Means and standard deviations of the columns of a tall matrix, for scaling."""
    fold = statistics_fold(strategy, run.slots, start.shift, centering)
    state = fold.finish(run.pass_over_data("statistics", fold), start.shift)
    refuse_bad(state, strategy.view.source)
    return scaled_statistics(state, strategy.view, start.shift, centering)


def conditions(
    strategy: Strategy, centering: Centering, start: Start, columns: Statistics | None
) -> tuple[Float64, Float64]:
    """What a pass shifts columns by, and what it multiplies test vectors or a basis by: unit and weights."""
    view = strategy.view
    shift = start.shift if columns is None or not centering.center else columns.mean
    by_rows = view.orientation is Orientation.ROWS
    weights = np.ones(view.short) if columns is None or not by_rows else 1.0 / divisors(columns.deviation)
    return shift, weights * centering.pow2_scale


def refuse_overflow(state: State, view: View, products: str = "z") -> None:
    """Raise for products that are not finite, or for a matrix that is not."""
    refuse_bad(state, view.source)
    if not np.isfinite(state[products]).all():
        raise DataError(
            f"products of {view.source.name} leave the range of {view.dtype}: its elements differ too "
            "much in size. Rescale it, or store it as float64."
        )
