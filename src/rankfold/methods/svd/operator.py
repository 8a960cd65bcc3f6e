"""Operators known only by their products with blocks of vectors, and the loop of iterations on them.

``Y = A Q`` is written to scratch and ``Z = A'Y`` is returned, both from one read. ``CenteredMatrix`` is the
matrix of a request. Anything else that multiplies blocks can take its place: a product of matrices, a kernel
of all pairs, the Laplacian of a graph. See ``tests/methods/svd/test_operator.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.dense import adjoint, inner, ritz_vectors
from rankfold.methods.parts.conditioned import (
    Centering,
    Statistics,
    divisors,
    mean_about_shift,
    scaled_statistics,
    statistics,
)
from rankfold.methods.parts.panels import refuse_bad
from rankfold.methods.parts.start import Start, random_block, sample_start
from rankfold.methods.random_keys import Purpose
from rankfold.methods.svd.passes import fused_pass, statistics_fold
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.strategy import Strategy
from rankfold.methods.svd.unseen_directions import RowSketch, UnseenDirections, load_unseen, save_unseen
from rankfold.pipeline.data.real_parts import collapse, expand
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.storage.checkpoint import State, load_arrays, save_arrays, save_once
from rankfold.pipeline.storage.scratch import ScratchMatrix

Float64 = npt.NDArray[np.float64]

FAR_FROM_MEAN = 1e4
"""Squared distance of the shift from the mean, over all rows and relative to the squares of A, above which
the first product has lost digits."""

CONSTANT_DEVIATION = 1e-12
"""Standard deviation of a column, relative to its mean, up to which the column is constant but for
rounding."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block Q of orthonormal vectors, (short, width), and its images A Q and A'A Q, in files."""

    path: Path
    """Path of a file with Q ``q`` and A'A Q ``z``, (short, width) each, and ``offset`` (width,)."""

    width: int
    y: ScratchMatrix
    """``Y`` (long, width) on scratch, the product before the true mean was known, in real parts if complex:
    ``A Q = Y - 1 offset'``."""

    def load(self, name: str) -> Float64:
        """Load an array of the block by its name, ``"q"``, ``"z"`` or ``"offset"``."""
        return load_arrays(self.path, name)[name]


@dataclass(frozen=True, slots=True)
class Application:
    """A block with its images, and what the operator found in the same pass."""

    block: Block
    missing: UnseenDirections | None = None
    """Directions outside the block, found in a sketch of rows of the same pass; None if there is none."""

    sketch: RowSketch | None = None
    """A sketch of rows that the block does not depend on; None if the pass made none."""

    bad_start: bool = False
    """True if the block started from a shift or a sample so far off that a random block is a better start."""

    is_coarse: bool = False
    """True if the images were rounded to fewer bits than the operator's type: no result is made of them."""


class Operator(Protocol):
    """Protocol of a matrix A, (long, short), that multiplies blocks of vectors of length ``short``."""

    @property
    def short(self) -> int:
        """Length of the vectors that it multiplies."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its products, which decides how they are rounded."""

    @property
    def squared_norm(self) -> float:
        """Sum of squares of A, known once it has been applied."""

    @property
    def is_exhausted(self) -> bool:
        """True if the operator must not be applied again, as its passes are used up."""

    def first(self, width: int) -> Float64:
        """Orthonormal block (short, width) to begin with."""

    def random(self, width: int) -> Float64:
        """Random orthonormal block, (short, width)."""

    def apply(self, q: Float64) -> Application:
        """Compute ``A q`` and ``A'A q`` of an orthonormal block ``q``, (short, width)."""

    def sketch_again(self) -> None:
        """Make a new sketch of rows in the next pass, as the basis depends on the last one."""

    def drop(self, block: Block) -> None:
        """Delete the scratch file with the products A Q of a block that is no longer needed."""

    def refine(self) -> None:
        """Use the full precision of the type from now on; called after a coarse application."""


class Iteration(Protocol):
    """Protocol of what an iterative method does between two applications of an operator."""

    def take(self, application: Application, squared_norm: float) -> bool:
        """Take in a block and its images; return True if no other block is needed.

        ``squared_norm`` is the sum of squares of the operator.
        """

    def following(self, application: Application) -> Float64:
        """Return the next orthonormal block (short, b). Called only if one follows.

        It may delete the scratch file of the last block.
        """


def iterate(operator: Operator, width: int, iteration: Iteration) -> None:
    """Apply an operator to blocks until ``iteration`` has enough, or as often as is allowed.

    The first block has ``width`` columns. If a coarse application was enough, another one in full precision
    follows.
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
"""Largest absolute binary exponent of ``pow2_scale``, by item size, at which it is also the factor of scaled
columns.

Squares of products leave the range with a larger one. Scaled columns are near 1 without it.
"""


# The matrix of a request --------------------------------------------------------------------------


def begin(run: Run, strategy: Strategy, request: Request) -> tuple[Centering, Start]:
    """Prepare the first pass: how columns are centered, and what a sample of rows gives to start from.

    The sample is read, or loaded from an earlier attempt. Solvers that hold the matrix in memory need none.
    """
    solver = strategy.solver
    if solver.holds_matrix:
        unknown = Start(np.zeros(strategy.view.short), 1.0, Path())
        return Centering(request.center, request.scale, 1.0, CONSTANT_DEVIATION, 1.0), unknown
    block = partial(solver.make_sample_block, request, strategy)
    # A solver that does not scale before its passes does so with what they find.
    scale = request.scale and (solver.scales_first or strategy.view.orientation is Orientation.COLUMNS)
    start = sample_start(strategy.sample, block, center=request.center, scale=scale, folder=run.folder)
    view, unit = strategy.view, start.pow2_scale
    is_extreme = abs(np.log2(unit)) > LARGEST_SCALED[view.dtype.itemsize]
    factor = 1.0 if request.scale and is_extreme else unit
    return Centering(request.center, request.scale, unit, CONSTANT_DEVIATION, factor), start


@dataclass(slots=True)
class CenteredMatrix:
    """A matrix, its columns centered and scaled as asked, times the factor of A: an ``Operator``."""

    run: Run
    strategy: Strategy
    centering: Centering
    start: Start
    seed: int
    """Key of random blocks and sketches."""

    column_statistics: Statistics | None = None
    """Statistics of its columns; None before the first pass, which measures them."""

    sketch_rows: int = 0
    """Number of rows of the sketch that the next pass makes as well, to find what its block misses; 0 for
    none."""

    sketch_purpose: Purpose = Purpose.ROW_SIGNS
    """Purpose of random numbers (part of their key) that the next sketch is drawn for."""

    tf32: bool = False
    """True if products may be rounded to 11 bits. The last pass allowed is exempt, and so is a pass that
    makes a sketch, which finds what its block misses from differences of squares."""

    tf32_passes: int = 0
    """Number of passes whose products were rounded to 11 bits."""

    is_double: bool = False
    """True if products with stored numbers of a sparse matrix are summed in float64 whatever their type."""

    @property
    def short(self) -> int:
        """Length of the vectors of the short side; complex numbers count once."""
        return self.strategy.vectors(self.strategy.view.short)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Working type of products, of real parts if the matrix is complex."""
        return self.strategy.view.dtype

    @property
    def columns(self) -> Statistics:
        """Statistics of the columns, measured by a pass; ``TypeError`` before that."""
        if self.column_statistics is None:
            raise TypeError("columns are known after a pass")
        return self.column_statistics

    @property
    def squared_norm(self) -> float:
        """Sum of squares of the matrix, centered, scaled and times its factor, known after a pass."""
        return self.columns.total

    @property
    def is_exhausted(self) -> bool:
        """True if all passes that are allowed were made."""
        return self.run.passes >= self.strategy.passes

    def first(self, width: int) -> Float64:
        """First block (short, width), from a sample or random.

        Makes the pass that measures columns before the first product, if the solver needs it.
        """
        if self.strategy.statistics_passes:
            self.column_statistics = statistics_pass(self.run, self.strategy, self.centering, self.start)
        return self.start.block(self.strategy.view, width, self.seed)

    def random(self, width: int) -> Float64:
        """Random orthonormal block, (short, width)."""
        return random_block(self.short, width, self.seed, paired=self.strategy.paired)

    def sketch_again(self) -> None:
        """Make a sketch with new random signs in the next pass."""
        self.sketch_rows, self.sketch_purpose = self.strategy.sketch_rows, Purpose.ROW_SIGNS_AGAIN

    def drop(self, block: Block) -> None:
        """Delete the scratch file with the products Y of a block."""
        self.run.drop(block.y)

    def refine(self) -> None:
        """Turn off rounding to 11 bits."""
        self.tf32 = False

    def apply(self, q: Float64) -> Application:
        """Compute ``A q`` and ``A'A q`` by one fused pass.

        Known statistics give the shift and the weights of columns. Without them the pass sums about the
        provisional shift, and its sums are centered afterwards:

            d = mean - shift,  o = (w q)'d,   Z = w (D'Y - m d o'),   A q = Y - 1 o'

        with D the shifted matrix, w the weights of columns, Y = D (w q). A sketch: S A = (S D - (S 1) d') w.
        A complex matrix is multiplied in its real parts: see ``real_parts.py``.
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
            sketched = state["rows"] * (weights / self.centering.panel_factor(strategy.view.orientation))
            sketched, path = strategy.numbers_of(sketched), run.part(name, "sketch.part")
            save_arrays(path, {"rows": sketched})
            sketch, self.sketch_rows = RowSketch(path), 0
            if self.sketch_purpose is Purpose.ROW_SIGNS and self.start.from_sample:
                path = run.part(name, "missing.part")
                save_unseen(path, sketched, q, self.squared_norm - inner(q, z), self.squared_norm)
                missing = load_unseen(path)
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
        """Center the sums ``state`` of a pass about the provisional shift, in place; return its Y's offset.

        ``basis`` (short, width) is what panels were multiplied by; the offset is (width,).
        """
        d = mean_about_shift(state, self.strategy.view, self.centering)
        offset = basis.T @ d
        state["z"] -= np.outer(self.strategy.view.long * d, offset)
        if "rows" in state:
            state["rows"] -= np.outer(state["signs"], self.centering.pow2_scale * d)
        return np.asarray(offset)

    def _far(self) -> bool:
        """True if the provisional shift was so far off the mean that the first block is better left out.

        Its product then has rounding errors of the size of the shift's error, and a sample with a wrong mean
        gives no useful directions. Passes start again from a random block, about the true mean.
        """
        view = self.strategy.view
        if not (self.centering.center and view.orientation is Orientation.ROWS):
            return False
        d = (self.columns.mean - self.start.shift) * self.centering.pow2_scale
        return view.long * float(d @ d) > FAR_FROM_MEAN * self.squared_norm

    def _is_far_from_zero(self, shift: Float64) -> bool:
        """True if ``shift`` (short,) cancels too many digits of products with numbers of a sparse matrix.

        Zeros are not shifted: the shift is subtracted from these products, which are then summed in float64.
        """
        view = self.strategy.view
        if not (self.strategy.fullest and self.centering.center and view.orientation is Orientation.ROWS):
            return False
        if self.column_statistics is None:
            return False
        shift = shift * self.centering.factor / divisors(self.columns.deviation)
        return view.long * float(shift @ shift) > FAR_FROM_MEAN * self.squared_norm


def _hides(missing: UnseenDirections, block: Block) -> bool:
    """True if squares that neither block nor sketch accounts for exceed the block's smallest Ritz value.

    A random block then shows them.
    """
    if not missing.hidden > 0:
        return False
    theta, _ = ritz_vectors(adjoint(block.load("q")) @ block.load("z"), block.width)
    return bool(missing.hidden > theta[-1])


def statistics_pass(run: Run, strategy: Strategy, centering: Centering, start: Start) -> Statistics:
    """Means and deviations of the columns of a tall matrix, by a pass over it, for scaling."""
    fold = statistics_fold(strategy, run.slots, start.shift, centering)
    state = fold.finish(run.pass_over_data("statistics", fold), start.shift)
    refuse_bad(state, strategy.view.source)
    return scaled_statistics(state, strategy.view, start.shift, centering)


def conditions(
    strategy: Strategy, centering: Centering, start: Start, columns: Statistics | None
) -> tuple[Float64, Float64]:
    """Shift of the columns in a pass, and factors of the rows of its basis or test vectors, both (short,).

    ``columns`` are statistics if a pass has measured them, else None. The factors are the weights of columns
    times the factor of A.
    """
    view = strategy.view
    shift = start.shift if columns is None or not centering.center else columns.mean
    by_rows = view.orientation is Orientation.ROWS
    weights = np.ones(view.short) if columns is None or not by_rows else 1.0 / divisors(columns.deviation)
    return shift, weights * centering.factor


def refuse_overflow(state: State, view: View, products: str = "z") -> None:
    """Raise an error if the matrix of ``view``, or the sum ``state[products]`` over it, is not finite."""
    refuse_bad(state, view.source)
    if not np.isfinite(state[products]).all():
        raise DataError(
            f"products of {view.source.name} leave the range of {view.dtype}: its elements differ too "
            "much in size. Rescale it, or store it as float64."
        )
