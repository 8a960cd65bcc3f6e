"""R factor of a tall matrix, all of its singular values, and Q without storing anything else.

Householder reflections of panels, as in TSQR, are accurate for every matrix, but run at a third of the
speed of matrix products, and Q would take a tree of small factors. If instead the columns are first made
nearly orthonormal by a basis from a sample of rows, their Gram matrix is near the identity: its Cholesky
factor loses nothing, and the product with its inverse is Q to rounding. Where the sample misleads,
reflections find R, and the basis is made from R.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.linalg

from rankfold.kernels.linear.dense import fix_signs, leading_singular_triplets, phases_to_positive
from rankfold.kernels.linear.qr import r_of_gram
from rankfold.methods.parts.conditioned import (
    Centering,
    Statistics,
    mean_about_shift,
    scaled_statistics,
    statistics,
    unit_divisors,
)
from rankfold.methods.parts.panels import Panels, refuse_bad
from rankfold.methods.parts.start import Start
from rankfold.methods.svd.error_estimates import Truncation, rounding
from rankfold.methods.svd.long_factor import FromMatrix
from rankfold.methods.svd.orientation import factors_leading_square
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.solvers.blocks import squared_norm, truncation_facts
from rankfold.methods.svd.solvers.preconditioned import (
    PanelFactor,
    PreconditionedFactor,
    PreconditionedGram,
    Preconditioner,
    WritePreconditionedRows,
)
from rankfold.methods.svd.solvers.solver import Decomposition, Dimensions, Solver
from rankfold.methods.svd.solvers.whitening import ColumnBasis, is_constant, r_of_parts, sampled_basis
from rankfold.methods.svd.strategy import Strategy, matching_chunk
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.real_parts import collapse, expand
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.blocks import cut
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.errors import DataError, argument
from rankfold.pipeline.planning.passes import Pass, numbers_of
from rankfold.pipeline.storage.checkpoint import State, load_arrays, save_once
from rankfold.pipeline.storage.scratch import NOWHERE

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

MOST_MEAN_SHARE = 1e2
"""Ratio of the shift's squared error, over all rows, to the variance of a whitened column above which
reflections replace the Gram matrix, as their difference loses digits."""

MOST_CONDITION = 30.0
"""Condition number up to which division by singular values, or by R, leaves columns orthonormal to 1e-14."""

MOST_ROUNDING = 1e-8
"""Largest element of R in a constant column, relative to those in scaled ones, above which it is set to 0."""

MOST_ATTEMPTS = 8
"""Largest number of times that Gaussian columns are drawn, for a matrix of lower rank and few rows."""


@dataclass(frozen=True, slots=True)
class Factorization:
    """A = Q R, where A is the matrix centered, scaled, and times its factor."""

    r: Float64
    """(short, short) upper triangular, diagonal not negative."""

    columns: Statistics
    preconditioner: Preconditioner | None
    """Recipe of Y, with ``Q = Y @ inverse``; None where Q was not asked for and is not known."""

    inverse: Float64
    """(short, short) coefficients of Q on the columns of Y; empty without a preconditioner."""


def zero(short: int) -> float:
    """Size of singular values, relative to the largest, up to which ``short`` of them are rounding."""
    return max(short, 32) * float(np.finfo(np.float64).eps)


def warn_of_rank(run: Run, layout: Strategy, factorization: Factorization, rank: int) -> None:
    """Add a warning to ``run`` if the matrix has a lower rank than ``rank``, as its preconditioner shows.

    It does not determine the other columns of its long factor.
    """
    preconditioner = factorization.preconditioner
    found = rank if preconditioner is None else layout.vectors(preconditioner.directions)
    if found < rank:
        run.warnings.append(
            f"{layout.view.source.name} has rank {found}, to rounding: the other {rank - found} columns of "
            "its long factor are arbitrary"
        )


def tsqr(
    run: Run, layout: Strategy, centering: Centering, start: Start, *, form: bool, passes: int, seed: int
) -> Factorization:
    """Find R of the matrix by passes over it, and a recipe of Q if ``form``.

    ``seed`` is the key of Gaussian columns that complete Q if the rank is lower.

    Raises
    ------
    DataError
        More than ``passes`` passes would be needed.

    Notes
    -----
    One pass of 3 m n^2 flops, if a sample gives a basis whose columns turn out independent; else one of
    2 m n^2 by reflections, and another if Q is wanted of a matrix whose condition exceeds
    ``MOST_CONDITION``.

    References
    ----------
    Demmel, Grigori, Hoemmen, Langou, SIAM J. Sci. Comput. 34(1), 2012, for the tree of reflections. Fukaya,
    Kannan, Nakatsukasa, Yamamoto, Yanagisawa, Shifted Cholesky QR, SIAM J. Sci. Comput. 42(1), 2020, for the
    stability of Cholesky QR after preconditioning; our preconditioner comes from sampled rows.
    """
    sample = load_arrays(start.block_path)
    if sample["q"].size:
        basis = ColumnBasis(sample["q"], sample["scale"])
        factorization = _by_gram(run, layout, centering, start, basis, seed)
        if factorization is not None:
            return _scale_columns(layout, centering, factorization)
        _require_passes(run, layout, run.passes + 1 + form, passes, form)
    r, mean_shift, columns = _by_reflections(run, layout, centering, start)
    short = layout.vectors(layout.view.short)
    if not form:
        return _scale_columns(layout, centering, Factorization(r, columns, None, np.zeros((0, 0))))
    mean = layout.numbers_of(columns.mean) * centering.pow2_scale
    r[:, is_constant(r, mean, layout.view.long)] = 0
    basis = ColumnBasis.of(r, zero(short))
    mild = basis.vectors.shape == r.shape and _condition(r / basis.scale) <= MOST_CONDITION
    _require_passes(run, layout, run.passes + 1 + (not mild), passes, form)
    w = expand(basis.weights) * centering.panel_factor(layout.view.orientation)
    offset, random = w.T @ mean_shift, layout.view.short - w.shape[1]
    inner = np.eye(short, dtype=layout.wide_dtype)
    for attempt in range(1 if mild else min(MOST_ATTEMPTS, passes - run.passes - 1)):
        key = (seed + attempt) % 2**64
        preconditioner = _save_basis(run, f"whitening-{attempt}", w, offset, start.shift, key, random=random)
        if not mild:
            inner = _reflect(run, layout, centering, preconditioner, f"reflections-{attempt}")
        if not random or _condition(inner) <= MOST_CONDITION:  # few rows may draw columns that nearly depend
            break
    return _scale_columns(layout, centering, _factorize(inner, basis, columns, preconditioner))


def _require_passes(run: Run, layout: Strategy, need: int, passes: int, form: bool) -> None:
    if need > passes:
        way_out = ", or leave rows out, with_rows=False (--no-rows)" * (
            form and layout.view.orientation is Orientation.ROWS
        )
        raise DataError(
            f"columns of {layout.view.source.name} are so nearly dependent, or its rows so unlike one "
            f"another, that it takes {need} passes, but passes is {passes}. Allow "
            f"{argument('passes', need)}{way_out}."
        )


def _by_gram(
    run: Run, layout: Strategy, centering: Centering, start: Start, basis: ColumnBasis, seed: int
) -> Factorization | None:
    """Factorize by one pass into the Gram matrix of whitened columns; None if that loses digits."""
    view = layout.view
    w = expand(basis.weights) * centering.panel_factor(layout.view.orientation)
    fold = PreconditionedGram(
        layout.wide_panels(run.slots),
        centering,
        _save_basis(run, "first", w, np.zeros(view.short), start.shift, seed),
        layout.column_file(run.scratch, centering),
        layout.row_seconds(3 * view.short),
    )
    state = run.pass_over_data("gram", fold)
    refuse_bad(state, view.source)
    offset = w.T @ mean_about_shift(state, layout.view, centering)
    product = state["gram"] - view.long * np.outer(offset, offset)
    variance = np.diag(product)
    product = collapse(product, paired=layout.paired)
    if not (view.long * offset**2 <= MOST_MEAN_SHARE * variance).all():
        return None
    inner = r_of_gram(product)
    if inner is None:
        return None
    preconditioner = _save_basis(run, "whitening", w, offset, start.shift, seed)
    return _factorize(inner, basis, _column_statistics(state, layout, start, centering), preconditioner)


def _by_reflections(
    run: Run, layout: Strategy, centering: Centering, start: Start
) -> tuple[Float64, Float64, Statistics]:
    """R (short, short) by one pass of reflections, mean less shift (short,), and statistics of columns."""
    fold = PanelFactor(
        layout.wide_panels(run.slots),
        centering,
        start.shift,
        layout.column_file(run.scratch, centering),
        layout.row_seconds(8 * layout.view.short),
    )
    state = run.pass_over_data("reflections", fold)
    refuse_bad(state, layout.view.source)
    r, ones = state["r"], int(fold.ones)
    columns = _column_statistics(state, layout, start, centering)
    r = r_of_parts(r[ones:, ones:], paired=layout.paired)
    return r, mean_about_shift(state, layout.view, centering), columns


def _reflect(
    run: Run, layout: Strategy, centering: Centering, preconditioner: Preconditioner, name: str
) -> Float64:
    """R factor of the preconditioned columns Y, by one pass of reflections that is called ``name``."""
    fold = PreconditionedFactor(
        layout.wide_panels(run.slots),
        centering,
        preconditioner,
        layout.column_file(run.scratch, centering),
        layout.row_seconds(10 * preconditioner.width),
    )
    state = run.pass_over_data(name, fold)
    refuse_bad(state, layout.view.source)
    return r_of_parts(state["r"], paired=layout.paired)


def _factorize(
    inner: Float64, basis: ColumnBasis, columns: Statistics, preconditioner: Preconditioner
) -> Factorization:
    """R and Q of A from ``Y = Q_Y inner`` and ``A = Y[:, :p] back``, by a QR factorization of their product.

    Y is A in the ``basis``, which has p columns; ``inner`` is the R factor of Y.
    """
    short, positive = basis.vectors.shape
    back = np.zeros((short, short), inner.dtype)
    back[:positive] = inner[:positive, :positive] @ basis.back()
    q, r = np.linalg.qr(back)
    phases = phases_to_positive(np.diag(r))
    inverse = scipy.linalg.solve_triangular(inner, q * phases.conj(), check_finite=False)
    return Factorization(r * phases[:, None], columns, preconditioner, inverse)


def _scale_columns(layout: Strategy, centering: Centering, factorization: Factorization) -> Factorization:
    """The factorization with columns divided by their standard deviations, if asked for a tall matrix."""
    if not (centering.scale and layout.view.orientation is Orientation.ROWS):
        return factorization
    deviation = factorization.columns.deviation[:: 1 + layout.paired]
    r = factorization.r / unit_divisors(deviation, centering)
    # Constant columns keep their unit, and in a large one their rounding is larger than scaled columns are.
    lengths, constant = np.abs(r).max(axis=0), deviation == 0
    r[:, constant & (lengths > MOST_ROUNDING * lengths[~constant].max(initial=0.0))] = 0.0
    return dataclasses.replace(factorization, r=r)


def _column_statistics(state: State, layout: Strategy, start: Start, centering: Centering) -> Statistics:
    by_rows = layout.view.orientation is Orientation.ROWS
    tell = scaled_statistics if centering.scale and by_rows else statistics
    return tell(state, layout.view, start.shift, centering)


def _save_basis(
    run: Run, name: str, w: Float64, offset: Float64, shift: Float64, seed: int, *, random: int = 0
) -> Preconditioner:
    path = save_once(run.part(f"{name}.part"), {"w": w, "offset": offset, "shift": shift})
    return Preconditioner(path, w.shape[1], random, seed)


def _condition(r: Float64) -> float:
    s = np.linalg.svd(r, compute_uv=False)
    return float(s[0] / s[-1]) if s[-1] > 0 else np.inf


# The solver ---------------------------------------------------------------------------------------


class Tsqr(Solver):
    """Solver by R of the matrix itself: all singular values, to the accuracy of a matrix not squared."""

    name = "tsqr"
    finds_rank = True
    needs_long = True
    rows_from_matrix = True
    takes_complex = True
    scales_first = False
    loops = ("panels", "double")
    narrower: ClassVar[Mapping[str, str]] = {"krylov": "keeps no (n, n) matrix"}

    def least_passes(self, request: Request, view: View) -> int:
        """Smallest number of passes: one for R, and a second if the long factor is written."""
        if factors_leading_square(request, view):
            return 1
        return 2 if request.rows or view.orientation is Orientation.COLUMNS else 1

    def arrange(self, request: Request, view: View, width: int) -> Dimensions:
        """Cut into panels of whole output chunks, the same in every pass: see ``preconditioned.py``.

        A grain (rows of one product) in float64 and its product with the basis fit into second-level cache
        together, so grains are an eighth as long as in a fused pass. A stream (rows summed in order) reads
        32 MiB at least: less takes less time than its start.
        """
        short, row_bytes = view.short, 8 * view.short
        read_bytes, write_bytes = short * view.source.dtype.itemsize, request.rank * view.dtype.itemsize
        chunk = matching_chunk(view.grid, read_bytes, write_bytes)
        grid = Grid.regular(view.long, chunk, splittable=False)
        least = max(1, min(4 * short, (32 * 2**20) // row_bytes))
        sums = max(8 * short**2, 4 * 2**20)
        grains = cut(grid, 8 * row_bytes, sums, least_rows=least, reads_per_byte=64, device=view.device)
        return Dimensions(short, grains, chunk, 0 if factors_leading_square(request, view) else short)

    def basis_columns(self, strategy: Strategy) -> int:
        """0 columns: no block is kept on scratch."""
        return 0

    def sweeps(self, request: Request, strategy: Strategy, slots: int) -> list[Pass]:
        """Planned sweeps with ``slots`` panels in memory.

        First those if a sample of rows is good enough or not needed, then those added if it is not.
        """
        return [dataclasses.replace(sweep, item=8) for sweep in _sweeps(request, strategy, slots)]

    def likely_passes(self, request: Request, strategy: Strategy, most: int) -> int:
        """Smallest number of passes that gives a result: a sample usually saves the others."""
        return self.least_passes(request, strategy.view)

    def resident_bytes(self, request: Request, strategy: Strategy, over: str) -> int:
        """Bytes that the leading process keeps during a sweep: of a basis, of its product with R^-1, of R."""
        return 5 * 8 * strategy.view.short**2

    def driver_bytes(self, request: Request, strategy: Strategy) -> int:
        """Bytes of decomposing R, or a sample: ten matrices of its size, or eleven while Q is found.

        They are R, its inverse, and in ``gesdd`` a copy, both factors inside and outside of LAPACK, and three
        of workspace. One is for the allocator.
        """
        squares = 12 * 8 * strategy.view.short**2
        return max(strategy.sample_bytes, squares) + strategy.long_vectors_bytes

    def panels(self, strategy: Strategy) -> Panels:
        """Buffers for panels (rows in memory at a time), converted to float64."""
        return strategy.wide_panels(1)

    def way_out(self, request: Request, strategy: Strategy) -> str:
        """Advice where it does not fit in memory: fewer components, if all were asked for."""
        if request.kind == "qr":
            return ""
        if request.rank == min(strategy.view.source.shape):
            return ", or say how many components are enough, rank= (--rank): all of them were asked for"
        return ""

    def advice(self, request: Request, strategy: Strategy, passes: int) -> str:
        """Text for errors above the tolerance: no request helps, as the type holds no smaller values."""
        return f"{strategy.view.dtype.name} does not hold so small a value beside the largest"

    def make_sample_block(self, request: Request, strategy: Strategy, rows: npt.NDArray[Any]) -> State:
        """Compute the map that makes the columns of the sampled rows orthonormal.

        Returns the arrays ``q`` and ``scale`` of ``sampled_basis``; ``q`` is empty if the columns are
        linearly dependent.
        """
        return sampled_basis(rows, paired=strategy.paired)

    def solve(
        self, run: Run, strategy: Strategy, request: Request, centering: Centering, start: Start
    ) -> Decomposition:
        """Find all triplets by R, and keep the leading ones that the rank or the tolerance asks for."""
        form = request.rows or strategy.view.orientation is Orientation.COLUMNS
        factorization = tsqr(
            run, strategy, centering, start, form=form, passes=request.passes, seed=request.seed
        )
        left, s, short = leading_singular_triplets(factorization.r, strategy.vectors(request.rank))
        facts = {}
        if request.adaptive:
            cut = Truncation.of_all(s, request.tol)
            left, s, short = left[:, : cut.rank], s[: cut.rank], short[:, : cut.rank]
            facts = truncation_facts(cut, strategy)
        warn_of_rank(run, strategy, factorization, len(s))
        s[s <= zero(strategy.view.short) * s[0]] = 0.0
        signs = fix_signs(short)
        long = None
        if factorization.preconditioner is not None:
            long = FromMatrix(factorization.preconditioner, factorization.inverse @ (left * signs), centering)
        errors = np.minimum(strategy.view.short * rounding(s, np.dtype(np.float64)), 1.0)
        residuals = np.full(len(s), strategy.view.short * np.finfo(np.float64).eps)
        total = squared_norm(strategy, factorization.columns.total, centering.factor)
        values = s / centering.factor
        return Decomposition(
            values, short * signs, long, factorization.columns, residuals, errors, [], total, facts
        )


def _sweeps(request: Request, strategy: Strategy, slots: int) -> list[Pass]:
    view, short, panels = strategy.view, strategy.view.short, strategy.wide_panels(slots)
    centering = Centering(request.center, request.scale, 1.0, 0.0, 1.0)
    data = view.long * short * view.source.dtype.itemsize
    elements, preconditioner = float(view.long * short), Preconditioner(NOWHERE, short, 0, 0)
    gram = PreconditionedGram(panels, centering, preconditioner, None, strategy.row_seconds(3 * short))
    factor = PanelFactor(panels, centering, np.zeros(0), None, strategy.row_seconds(8 * short))
    by_gram = numbers_of("gram", gram, data, 0, 3 * elements * short)
    by_reflections = numbers_of("reflections", factor, data, 0, 2 * elements * short)
    sweeps = [by_gram, by_reflections] if strategy.sample.gives_block else [by_reflections]
    if factors_leading_square(request, view):
        sweeps = []
    if request.rows or view.orientation is Orientation.COLUMNS:
        rank, long = request.rank, view.long * request.rank * view.dtype.itemsize
        seconds = strategy.row_seconds(2 * (short + rank))
        arguments = (NOWHERE, NOWHERE, view.orientation is Orientation.COLUMNS, view.dtype, rank, seconds)
        write = WritePreconditionedRows(panels, centering, preconditioner, None, *arguments)
        sweeps.insert(1, numbers_of("rows", write, data, long, 2 * elements * (short + rank)))
        if factors_leading_square(request, view):
            return sweeps
        seconds = strategy.row_seconds(10 * short)
        again = PreconditionedFactor(panels, centering, preconditioner, None, seconds)
        sweeps.append(numbers_of("reflections again", again, data, 0, 4 * elements * short))
    return sweeps


TSQR = Tsqr()
