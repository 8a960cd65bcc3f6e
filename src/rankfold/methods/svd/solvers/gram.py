"""One pass into the scatter matrix of the short side, and its leading eigenvectors.

Squaring the matrix squares its condition: a singular value s below the largest, s1, is only known to a
relative error of eps (s1 / s)^2. Products and sums are therefore float64 whatever the data, and the
fused pass that follows for the long factor takes the singular values from the matrix itself.

The scatter matrix is centered block by block and merged exactly. Products are formed in float64 even of
float32 data: in float32 every eigenvalue below 1e-7 of the largest, every singular value below 3e-4, would
be rounding, and with it the directions that a second pass refines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.center_scale import measure, subtract
from rankfold.kernels.linear.dense import fix_signs, leading_eigenpairs
from rankfold.kernels.linear.moments import Moments, add_rows, merge_moments
from rankfold.kernels.linear.products import mirror_bytes, product
from rankfold.methods.parts.conditioned import Centering, OverColumns, Statistics, deviations, unit_divisors
from rankfold.methods.parts.panels import BAD, Grain, Panels, join_bad, numbers, refuse_bad
from rankfold.methods.parts.start import Start
from rankfold.methods.svd.error_estimates import SAFETY, Truncation
from rankfold.methods.svd.operator import CenteredMatrix, refuse_overflow
from rankfold.methods.svd.passes import SparseGramPass
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.ritz import Basis, rayleigh_ritz
from rankfold.methods.svd.solvers.blocks import BlockSolver, of_triplets, squared_norm, truncation_facts
from rankfold.methods.svd.solvers.solver import Decomposition, Dimensions
from rankfold.methods.svd.strategy import Strategy
from rankfold.pipeline.data.real_parts import collapse
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.blocks import cut
from rankfold.pipeline.engine.fold import Buffer, Given, Sum, Workspace
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.planning.passes import Pass, numbers_of
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class GramPass(OverColumns):
    """Fold that finds count, mean and scatter matrix of the long rows of a matrix.

    A tall matrix is not scaled here: ``gram`` divides rows and columns of the scatter.
    """

    panels: Panels
    """Buffers for panels (rows in memory at a time). In a sweep by rows, grains (rows of one product) are
    copied out of them and have one extra row: see ``add_rows``."""

    centering: Centering
    shift: npt.NDArray[np.float64]
    """Provisional mean of the columns, (short,), about which block means are taken."""

    columns: ScratchMatrix | None
    """Scratch matrix (long, 2) for mean and deviation of columns in a sweep along these; None for no such
    file."""

    row_seconds: float

    kernels = (measure, subtract, add_rows, product)

    def buffers(self) -> Mapping[str, Buffer]:
        """Working arrays by name: ``product`` (short, short) of a grain with itself; ``shift`` (short,)."""
        return {"product": Buffer((self.panels.view.short,) * 2), "shift": Given.of(self.shift)}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides buffers and sums: vectors along either side of a grain."""
        return 8 * 8 * max(self.panels.view.short, self.panels.grain_rows)

    @property
    def device_bytes(self) -> int:
        """Upper bound on the bytes on a GPU, with temporary memory of the product."""
        return int(OverColumns.device_bytes.__get__(self)) + mirror_bytes(self.panels.view.short)

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all long rows by name, from which the scatter matrix about the mean follows.

        ``count`` (1,) is the number of rows, ``mean`` (short,) their mean, ``scatter`` (short, short) the
        scatter about it, ``bad`` count and first position of NaN and Inf. Rows are times a power of two:
        ``pow2_scale`` in a sweep by rows, else the factor of A.
        """
        short, one = self.panels.view.short, np.dtype(np.int64)
        return {
            "count": Sum((1,), one, on_host=True),
            "mean": Sum((short,)),
            "scatter": Sum((short, short)),
            "bad": BAD,
        }

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Add long rows ``start:stop``, read into panel ``slot``, to count, mean and scatter in ``state``."""
        add = self._add_rows if self.panels.view.orientation is Orientation.ROWS else self._add_columns
        for grain in self.panels.grains(work.panels, start, stop, slot):
            add(state, work, grain)

    def merge(self, total: State, other: State) -> None:
        """Merge count, mean and scatter of another stream (part of the rows) into ``total``, in place."""
        sum_ = _moments(total)
        merge_moments(sum_, _moments(other))
        total["count"][0] = sum_.count
        total["bad"] = join_bad(total["bad"], other["bad"])

    def _add_rows(self, state: State, work: Workspace, grain: Grain) -> None:
        raw = numbers(grain.raw)
        sums, squares = measure(raw, work.shift, self.centering.pow2_scale)
        if not self.is_finite(state, work, grain, squares):
            return
        mean = np.zeros_like(sums)
        if self.centering.center:
            mean = work.shift + sums / (len(raw) * self.centering.pow2_scale)
        total = _moments(state)
        out = work.panels.grain
        if out is None:
            raise TypeError("a Gram pass by rows needs grains of their own")
        add_rows(total, raw, mean, self.centering.pow2_scale, out=out, work=work.product)
        state["count"][0] = total.count

    def _add_columns(self, state: State, work: Workspace, grain: Grain) -> None:
        columns = self.measure_columns(state, work, grain)
        if columns is None:
            return
        d = self.panels.condition(work.panels, grain.raw, columns.mean, columns.scale * self.centering.factor)
        product(d, d.T, out=work.product)
        state["scatter"] += work.product
        state["count"][0] += d.shape[1]


def _moments(state: State) -> Moments:
    return Moments(int(state["count"][0]), state["mean"], state["scatter"])


# The solver ---------------------------------------------------------------------------------------


Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scatter:
    """Leading eigenpairs of the scatter matrix, and the column statistics found on the way."""

    values: Float64
    """(width,) eigenvalues, decreasing: squared singular values of A times its factor."""

    vectors: Float64
    """(short, width) eigenvectors."""

    mean: Float64
    """(short,) column means of a tall matrix, in the units of the data."""

    deviation: Float64
    """(short,) column standard deviations of a tall matrix, 0 for constant columns; 1 if not scaled."""

    total: float
    """Sum of squares of A, centered, scaled and times its factor."""

    mean_squares: float = 0.0
    """Sum of squares of the mean, once for each row, if the mean was subtracted after the pass; else 0."""


def gram(run: Run, layout: Strategy, centering: Centering, start: Start) -> Scatter:
    """Sum the scatter matrix by one pass over the matrix, and find its leading eigenpairs.

    Notes
    -----
    Work m n min(m, n) flops for the pass, 4/3 min(m, n)^3 for the eigenproblem.

    References
    ----------
    Chan, Golub, LeVeque, The American Statistician 37(3), 1983, for the scatter; LAPACK ``syevr``.
    """
    view = layout.view
    by_rows = view.orientation is Orientation.ROWS
    columns = layout.column_file(run.scratch, centering)
    fold = gram_fold(layout, run.slots, centering, start.shift, columns)
    state = run.pass_over_data("gram", fold)
    refuse_bad(state, view.source)
    if isinstance(fold, SparseGramPass):
        state = fold.finish(state, start.shift)
    scatter = state["scatter"]
    mean, deviation = state["mean"] / centering.pow2_scale, np.ones(view.short)
    if by_rows and centering.scale:
        deviation = deviations(np.diag(scatter), view, mean, centering)
        units = unit_divisors(deviation, centering)
        with np.errstate(over="ignore"):
            scatter /= units[:, None]
            scatter /= units
        refuse_overflow(state, view, "scatter")
    scatter = collapse(scatter, paired=layout.paired)
    total = float(np.trace(scatter).real)
    mean_squares = 0.0
    if isinstance(fold, SparseGramPass):
        mean_squares = view.long * float(((state["mean"] / unit_divisors(deviation, centering)) ** 2).sum())
    values, vectors = leading_eigenpairs(scatter, layout.vectors(layout.width))
    return Scatter(values, vectors, mean, deviation, total, mean_squares)


def gram_fold(
    layout: Strategy, slots: int, centering: Centering, shift: Float64, columns: ScratchMatrix | None
) -> GramPass | SparseGramPass:
    """The fold of the Gram pass, over dense panels or over stored numbers alone.

    ``slots`` panels are in memory at once. ``shift`` (short,) is the provisional mean, and ``columns`` the
    scratch file for column statistics if the sweep runs along the columns.
    """
    view = layout.view
    if layout.fullest and view.orientation is Orientation.ROWS:
        pairs = layout.numbers / view.long  # of each number with the others of its row
        return SparseGramPass(layout.sparse_panels(slots), centering, shift, layout.row_seconds(10 * pairs))
    seconds = layout.row_seconds(2 * view.short)
    return GramPass(gram_panels(view, slots), centering, shift, columns, seconds)


def gram_panels(view: View, slots: int) -> Panels:
    """Buffers for panels of a Gram pass, ``slots`` at once, whose products are float64 whatever the data.

    By rows, grains are copied out of their panel and have one more row.
    """
    row_bytes, rows = view.short * view.dtype.itemsize, view.orientation is Orientation.ROWS
    # The (short, short) product is added in float64 once a grain, 24 short^2 bytes of traffic: grains
    # at least as long as short keep that under a tenth of the product's own time.
    least = max(1, min(view.short, (32 * 2**20) // row_bytes))
    # A byte takes ten times as long as in a fused pass, so streams may be that much shorter.
    grains = cut(
        view.grid, row_bytes, 8 * view.short**2, least_rows=least, reads_per_byte=8, device=view.device
    )
    return Panels(view, grains, slots, np.dtype(np.float64), extra_rows=int(rows), copy_grains=rows)


class Gram(BlockSolver):
    """Solver by a Gram pass, then one fused pass for the long factor, which also gives the values."""

    name = "gram"
    finds_rank = True
    scales_first = False
    keeps_square = True
    loops = ("panels", "double")
    narrower: ClassVar[Mapping[str, str]] = {"krylov": "keeps no (n, n) matrix"}

    def least_passes(self, request: Request, view: View) -> int:
        """Smallest number of passes: the Gram pass, and a second one if the long factor is wanted."""
        return 2 if request.rows or view.orientation is Orientation.COLUMNS else 1

    def arrange(self, request: Request, view: View, width: int) -> Dimensions:
        """Blocks of the rank and one more column, which gives the gap below the last wanted value."""
        dimensions = super().arrange(request, view, min(request.rank + 1, view.short))
        return dataclasses.replace(dimensions, block=0, looks_beyond=False)

    def block_passes(self, strategy: Strategy) -> int:
        """Number of fused passes: one, which forms the long factor."""
        return 1

    def sweeps(self, request: Request, strategy: Strategy, slots: int) -> list[Pass]:
        """Planned sweeps: the Gram pass, the fused pass for the long factor, and sweeps over its products."""
        view = strategy.view
        centering = Centering(request.center, request.scale, 1.0, 0.0, 1.0)
        fold = gram_fold(strategy, slots, centering, np.zeros(0), None)
        if isinstance(fold, SparseGramPass):
            pairs = strategy.numbers / view.long
            flops, reads, numbers = strategy.numbers * pairs, strategy.read_bytes, strategy.numbers
        else:
            elements, numbers = view.long * view.short, 0
            reads, flops = elements * view.source.dtype.itemsize, float(elements) * view.short
        sweep = numbers_of("gram", fold, reads, 0, flops)
        sweep = dataclasses.replace(sweep, item=8, numbers=numbers)
        return [sweep, *self.block_sweeps(request, strategy, slots, 1)]

    def driver_bytes(self, request: Request, strategy: Strategy) -> int:
        """Bytes of two (short, short) matrices, or those of the fused pass if these are more.

        They are the scatter, and the workspace of its decomposition.
        """
        squares = 2 * 8 * strategy.view.short**2 + strategy.long_vectors_bytes
        return max(squares, super().driver_bytes(request, strategy))

    def panels(self, strategy: Strategy) -> Panels:
        """Buffers for panels (rows in memory at a time) of the Gram pass."""
        return gram_panels(strategy.view, 1)

    def solve(
        self, run: Run, strategy: Strategy, request: Request, centering: Centering, start: Start
    ) -> Decomposition:
        """Find triplets; from the scatter matrix alone if no long factor is wanted and squares are enough.

        Else a fused pass with its eigenvectors gives the values, and forms the long factor.
        """
        scatter = gram(run, strategy, centering, start)
        columns = Statistics(scatter.mean, scatter.deviation, scatter.total)
        rank, facts = strategy.vectors(request.rank), {}
        if request.adaptive:
            cut = Truncation.of(scatter.values, scatter.total, request.tol)
            rank, facts = cut.rank, truncation_facts(cut, strategy)
        values = np.maximum(scatter.values[:rank], 0.0)
        relative = np.sqrt(values / max(values[0], np.finfo(float).tiny))
        eps = float(np.finfo(np.float64).eps)
        # Subtracting a mean from the squares leaves rounding of the size of what was subtracted.
        lost = 1 + scatter.mean_squares / max(values[0], np.finfo(float).tiny)
        value_errors = np.minimum(eps * lost / np.maximum(relative, eps) ** 2 / 2, 1.0)
        by_rows = strategy.view.orientation is Orientation.ROWS
        enough = request.adaptive or value_errors.max() <= request.tol or run.passes >= request.passes
        if by_rows and not request.rows and enough:
            s = np.sqrt(values) / centering.factor
            short = scatter.vectors[:, :rank]
            short = short * fix_signs(short)
            residuals = eps / np.maximum(relative, eps)
            total = squared_norm(strategy, scatter.total, centering.factor)
            return Decomposition(s, short, None, columns, residuals, value_errors, [], total, facts)
        vectors = scatter.vectors[:, : rank + 1]
        matrix = CenteredMatrix(run, strategy, centering, start, request.seed, columns)
        basis = Basis()
        basis.add(matrix.apply(vectors).block)
        ritz = basis.ritz(rank, basis.width)
        # All eigenvalues were computed: none is missing, and no gap below those wanted is asked for.
        estimate = SAFETY * np.minimum(ritz.second_order, ritz.first_order)
        triplets = rayleigh_ritz(run, strategy, basis, rank, request.seed, estimate=estimate)
        return dataclasses.replace(of_triplets(strategy, centering, triplets, columns, []), facts=facts)


GRAM = Gram()
