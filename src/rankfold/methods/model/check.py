"""Residuals and orthogonality of a stored result, by one more pass over its matrix.

The errors that a method reports are estimates from its own passes. The check measures on the matrix itself
how far A v is from s u and A'u from s v, for every component, and how far the stored factors are from
orthonormal. It is independent evidence, and costs one read.

The long factor L has a row for each long row of the matrix: for each row, or each column if the matrix is
swept along its columns. A panel (long rows read at a time) and its rows of L are used together while in
cache, grain by grain (rows of one product). Squares of the long residuals are summed at once; products of the
panel with its rows of L sum to A'L for the short residuals.

A sparse matrix is checked at a cost proportional to its stored numbers (``VerifySparse``). With ``S`` the
stored matrix, the centered and scaled matrix is ``A = S D - 1 (mean D)'``, where D holds the factors of
columns. Products with ``A`` and ``A'`` are those with ``S`` minus a term of rank one: for ``A`` in every
panel (rows read at a time), for ``A'`` once in the end.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.center_scale import measure, subtract
from rankfold.kernels.linear.dense import adjoint
from rankfold.kernels.linear.products import add_gram, add_product, product, weigh
from rankfold.kernels.sparse.products import add_columns, multiply_rows, order_columns
from rankfold.methods.model.arguments import NoArguments
from rankfold.methods.model.model import FactorModel, open_model
from rankfold.methods.model.transform_pass import SQUARES_BYTES, take_measured, take_squares
from rankfold.methods.parts.outputs import write_outputs
from rankfold.methods.parts.panels import BAD, OverPanels, Panels, refuse_bad
from rankfold.methods.parts.sparse_panels import OverStoredNumbers, SparsePanels
from rankfold.methods.svd.orientation import choose_orientation
from rankfold.methods.task import Output, vectors
from rankfold.pipeline.data.real_parts import collapse, matrix_of_parts, numbers_of_parts
from rankfold.pipeline.data.source import CompressedSource, Source, number_bytes, sparse_by_rows, stored_size
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.blocks import cut, cut_by_numbers
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, Given, ScratchConstant, Sum, Workspace
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats.open_like import has_columns_of, opened_rows
from rankfold.pipeline.machine import one_blas_thread
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import TaskFacts, one_sweep, plan_task
from rankfold.pipeline.planning.seconds import (
    NOMINAL_FLOPS,
    NOMINAL_GATHERED_FLOPS,
    NOMINAL_READ,
    ORDER_SECONDS,
)
from rankfold.pipeline.prepare.prepared import lacks_row_weights
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.storage.scratch import NOWHERE, ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Verify(OverPanels):
    """Fold of a matrix A and its factors S and L into ``sum((A S - L s)^2)``, ``A'L`` and ``L'L``.

    A is long by short, centered and scaled; S (short, k) and L (long, k) have orthonormal columns.
    """

    panels: Panels
    """Panels of the matrix, converted to float64."""

    long: View
    """The long factor L (long, k), swept along the same axis as the matrix."""

    short: ScratchMatrix
    """The short factor S, (short, k) float64, on scratch."""

    columns: ScratchMatrix
    """Scratch matrix (columns, 2): mean of each column of the matrix, and its factor once the mean is
    subtracted."""

    values: Float64
    """(k,) singular values, times the power of two that the factors in ``columns`` contain."""

    weights: Float64
    """(k,) factors that make the columns of the stored long factor orthonormal."""

    square_scale: float
    """Power of two that scales raw numbers before their squares are summed: see
    ``FactorModel.square_scale``."""

    row_seconds: float

    @property
    def rank(self) -> int:
        """Number of components."""
        return len(self.values)

    kernels = (measure, subtract, product, add_gram, add_product, weigh)

    def buffers(self) -> Mapping[str, Buffer]:
        """Working arrays of a segment by name.

        ``short`` (short, k) is S, ``columns`` mean and factor of columns, ``values`` and ``weights`` (k,) are
        as in the fields. ``y`` (grain rows, k) is a grain of A times S, ``long`` (grain rows, k) its rows of
        L, and ``product`` (short, k) what it adds to A'L.
        """
        rows, short = self.panels.grain_rows, self.panels.view.short
        columns = ScratchConstant.of(self.columns) if self._by_rows else Buffer((rows, 2))
        return {
            "columns": columns,
            "short": ScratchConstant.of(self.short),
            "values": Given.of(self.values),
            "weights": Given.of(self.weights),
            "y": Buffer((rows, self.rank)),
            "long": Buffer((rows, self.rank)),
            "product": Buffer((short, self.rank)),
        }

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all long rows, by name, from which residuals and orthogonality follow.

        ``left`` (k,) are sums of squares of the columns of A S - L s, ``product`` (short, k) is A'L, ``gram``
        (k, k) is L'L, ``squares`` (1,) the sum of squares of A, ``bad`` count and first position of NaN and
        Inf.
        """
        k = self.rank
        product_, gram = Sum((self.panels.view.short, k)), Sum((k, k))
        return {"left": Sum((k,)), "product": product_, "gram": gram, "squares": Sum((1,)), "bad": BAD}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides buffers and sums: long rows read ahead, the product of a grain, vectors."""
        tall, rank = self.cut.panel_rows, self.rank
        factor_bytes = self.slots * (tall * rank * self.long.dtype.itemsize + self.long.read_bytes(tall))
        return factor_bytes + 8 * rank * rank + 7 * 8 * max(self.panels.grain_rows, self.panels.view.short)

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers on ``device``, panels of the matrix, and as many panels of the long factor."""
        work = OverPanels.workspace(self, device)
        shape, dtype = self.long.panel_shape(self.cut.panel_rows), self.long.source.dtype
        work.long_panels = [device.slot(shape, dtype) for _ in range(self.slots)]
        return work

    def read(self, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Read long rows ``start:stop`` of the matrix and of the long factor into panel buffer ``slot``."""
        self.panels.read(work.panels, start, stop, slot)
        room = work.long_panels[slot].room(self.long.panel_shape(stop - start))
        self.long.read(self.long.part(room, 0, stop - start), start, stop)
        work.long_panels[slot].send()

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Add long rows ``start:stop``, read into panel buffer ``slot``, to the sums ``state``, in place."""
        long_panel = work.long_panels[slot].array()
        for grain in self.panels.grains(work.panels, start, stop, slot):
            first, last, raw, _ = grain
            if not self._by_rows:
                read = functools.partial(self.columns.read_into, start=first)
                work.device.fill(work.columns[: last - first], read)
            mean, factor = work.columns[: raw.shape[1]].T.copy()
            if not take_squares(self, state, work, grain, (mean, factor), self.square_scale):
                continue
            d = self.panels.view.as_rows(self.panels.condition(work.panels, raw, mean, factor))
            factor_rows = self.long.as_rows(self.long.part(long_panel, first - start, last - start))
            long, y = work.long[: last - first], work.y[: last - first]
            weigh(factor_rows, work.weights, out=long)
            product(d, work.short, out=y)
            add_product(d, long, total=state["product"], work=work.product)
            add_gram(long, total=state["gram"])
            long *= work.values
            y -= long
            state["left"] += np.einsum("ij,ij->j", y, y)
        work.long_panels[slot].release()

    @property
    def _by_rows(self) -> bool:
        return self.panels.view.orientation is Orientation.ROWS


# The task -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verification:
    """Task that checks a result against the matrix that it was made from, for residuals and orthogonality."""

    model: FactorModel
    left: Source
    """The left factor of the result, (m, k)."""

    source: Source
    """The matrix that the result is checked against, (m, n)."""

    digest: str
    """Digest of the model: see ``FactorModel.digest``."""

    square_scale: float
    """Power of two that scales raw numbers before their squares are summed: see
    ``FactorModel.square_scale``."""

    is_comparable: bool = True
    """True if columns are in the order of the fit, so that the fingerprint of ``source`` should be that of
    the fit."""

    @classmethod
    def of(cls, model: FactorModel, source: Source, *, is_comparable: bool = True) -> Verification:
        """Make the task; ``InputError`` if the shape of ``source`` is not that of the matrix of the model."""
        left = model.left()
        left.check()
        rows, columns = matrix_of_parts(source).shape
        if (rows, columns) != model.shape:
            raise InputError(
                f"{model.name} is not a result of {source.name}, which is {rows} x {columns}. Give the "
                "matrix that it was made from, with the rows and columns that were chosen of it: mask_obs= "
                "(--mask-obs), mask_var= (--mask-var), select_rows= (--select-rows), select_columns= "
                "(--select-columns)."
            )
        return cls(model, left, source, model.digest(), model.square_scale(), is_comparable)

    def request(self) -> dict[str, Any]:
        """Kind, rank and digest of the result, and the fingerprint of its left factor, as JSON types."""
        return {
            "kind": "check",
            "of": self.model.kind,
            "rank": self.model.components,
            "result": self.digest,
            "left": self.left.fingerprint(),
        }

    def outputs(self) -> tuple[Output, ...]:
        """Arrays of the result: ``left_residuals`` and ``right_residuals``, each (k,)."""
        return vectors(self.model.components, "left_residuals", "right_residuals")

    def plan(self, budget: Budget) -> Plan:
        """Plan of the one pass over the matrix."""
        (rows, columns), rank = self.source.shape, self.model.rank
        fold = self.fold(NOWHERE, 1)
        accumulator = 8 * rank * (fold.panels.view.short + rank)
        task_facts = TaskFacts(
            kind="check",
            method="residuals",
            source=self.source,
            dtype=np.dtype(np.float64),
            orientation=fold.panels.view.orientation,
            rank=rank,
            result_bytes=16 * rank,
            scratch_bytes=fold.short.nbytes + fold.columns.nbytes,
        )
        sweep = one_sweep(
            task_facts,
            lambda slots: self.fold(NOWHERE, slots),
            flops=4.0 * (rows * columns if self.stored is None else self.stored.nnz) * rank,
            driver_bytes=4 * accumulator + self.model.block_columns * (rank * 24 + 64),
            accumulator_bytes=accumulator,
            stored=(0, 0) if self.stored is None else stored_size(self.stored),
        )
        return plan_task(
            task_facts,
            sweep,
            budget,
            lambda: ", or cut the store anew with `rankfold import`, if its chunks are tall",
        )

    @property
    def stored(self) -> CompressedSource | None:
        """The matrix if it is sparse by rows and swept by stored numbers; else None."""
        return sparse_by_rows(self.source)

    def _sparse_fold(self, stored: CompressedSource, folder: Path, slots: int) -> VerifySparse:
        (rows, columns), rank, double = stored.shape, self.model.rank, np.dtype(np.float64)
        each = number_bytes(stored)
        sizes = stored.nnz, each, 8 * columns * rank
        pieces, fullest = cut_by_numbers(stored.pointers, stored.row_grid, columns, *sizes)
        view = View(stored, Orientation.ROWS, precision=double)
        seconds = each / NOMINAL_READ + 4 * rank / NOMINAL_GATHERED_FLOPS[8] + ORDER_SECONDS
        return VerifySparse(
            panels=SparsePanels(view, pieces, slots, fullest),
            long=View(self.left, Orientation.ROWS),
            short=ScratchMatrix(folder / "short.bin", columns, rank, double),
            columns=ScratchMatrix(folder / "columns.bin", columns, 2, double),
            values=self.model.s * self.model.pow2_scale(double),
            weights=self._left_weights(),
            row_seconds=max(stored.nnz / rows, 1) * seconds,
        )

    def fold(self, folder: Path, slots: int) -> Verify | VerifySparse:
        """Fold of the one pass, with scratch files in ``folder`` and ``slots`` panels in memory at once."""
        if self.stored is not None:
            return self._sparse_fold(self.stored, folder, slots)
        (_, columns), rank = self.source.shape, self.model.rank
        view = View(self.source, choose_orientation(self.source, rank))
        by_rows = view.orientation is Orientation.ROWS
        item = np.dtype(np.float64).itemsize
        pieces = cut(view.grid, view.short * item, item * view.short * rank)
        per_element = self.source.dtype.itemsize / NOMINAL_READ + 4 * rank / NOMINAL_FLOPS[item]
        return Verify(
            panels=Panels(view, pieces, slots, np.dtype(np.float64)),
            long=View(self.left if by_rows else self.model.right, view.orientation),
            short=ScratchMatrix(folder / "short.bin", view.short, rank, np.dtype(np.float64)),
            columns=ScratchMatrix(folder / "columns.bin", columns, 2, np.dtype(np.float64)),
            values=self.model.s * self.model.pow2_scale(np.dtype(np.float64)),
            weights=self._left_weights() if by_rows else np.ones(rank),
            square_scale=self.square_scale,
            row_seconds=view.short * per_element,
        )

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Measure and write residuals; return the facts (metadata) of the result, with orthogonality."""
        with one_blas_thread():
            fold = self.fold(run.scratch, run.slots)
            self._prepare(fold)
            state = run.pass_over_data("check", fold)
            refuse_bad(state, self.source)
            if isinstance(fold, VerifySparse):
                state = fold.finish(state, fold.columns.load())
            paired, short, s = self.model.paired, fold.short.load(), fold.values
            if paired:
                state, short, s = _of_numbers(state), numbers_of_parts(short[::2], paired=True), s[::2]
            across = state["product"] - short * s
            largest = s[0] if s[0] > 0 else 1.0
            long_residuals = np.sqrt(state["left"]) / largest
            short_residuals = np.sqrt(np.einsum("ij,ij->j", across.conj(), across).real) / largest
            by_rows = fold.panels.view.orientation is Orientation.ROWS
            sides = (long_residuals, short_residuals)
            left, right = sides if by_rows else sides[::-1]
            write_outputs(run.result, {"left_residuals": left, "right_residuals": right})
            grams = (state["gram"], adjoint(short) @ short)
            facts = self._facts(run, fingerprint, left, right, grams if by_rows else grams[::-1])
            run.describe(facts)
        return facts

    def _prepare(self, fold: Verify | VerifySparse) -> None:
        """Write the short factor, and mean and factor of each column, to the scratch files of ``fold``."""
        pow2_scale = self.model.pow2_scale(np.dtype(np.float64))
        for start, stop in self.model.blocks():
            mean, scale = self.model.columns(start, stop)
            fold.columns.write(start, np.column_stack([mean, pow2_scale / scale]))
            if fold.panels.view.orientation is Orientation.ROWS:
                fold.short.write(start, self.model.vectors(start, stop).astype(np.float64))
        if fold.panels.view.orientation is Orientation.COLUMNS:
            rows, rank = self.left.shape
            left = np.empty((rows, rank), self.left.dtype)
            self.left.read_into(left, (0, rows), (0, rank))
            fold.short.write(0, left * self._left_weights())

    def _left_weights(self) -> Float64:
        """(k,) factors of the columns of the stored left factor that give them length 1."""
        s, weights = self.model.s, self.model.row_weights()
        if self.model.factors.left_is_unit:
            return np.ones(self.model.rank)
        return np.divide(weights, s, out=np.zeros(len(s)), where=self.model.significant())

    def _facts(
        self, run: Run, fingerprint: str, left: Float64, right: Float64, grams: tuple[Float64, Float64]
    ) -> dict[str, Any]:
        """Reproducible facts of the check; warns if the fingerprint is not that of the fit.

        ``left`` and ``right`` (k,) are residuals, ``grams`` (k, k) those of left and right vectors.
        """
        if self.is_comparable and fingerprint != self.model.result.attrs["input"]["fingerprint"]:
            run.warnings.append(
                f"{self.source.name} has changed since {self.model.result.path.name} was made from it, or "
                "is another matrix of that shape"
            )
        significant = self.model.significant()[:: 1 + self.model.paired] | self.model.factors.left_is_unit
        names, identity = ("left", "right"), np.eye(self.model.components)
        block = np.ix_(significant, significant)
        orthogonality = {
            f"{name}_orthogonality": float(np.abs((gram - identity)[block]).max(initial=0.0))
            for name, gram in zip(names, grams, strict=True)
        }
        return {
            **run.facts(self.request(), "residuals", matrix_of_parts(self.source), fingerprint),
            "largest_residual": float(max(left.max(), right.max())),
            **orthogonality,
        }


def _of_numbers(state: State) -> State:
    """Convert sums of ``Verify`` over a complex matrix in real parts (2 k components) to complex ones (k)."""
    sums: State = {name: collapse(state[name], paired=True) for name in ("product", "gram")}
    return {**sums, "left": state["left"][::2] + state["left"][1::2]}


def check_task(result: FactorModel | Result | str | Path, x: object, _: NoArguments) -> Verification:
    """Make the task that checks ``result`` against its matrix ``x``: residuals and orthogonality."""
    model = open_model(result)
    given = opened_rows(x, model.result)
    source, is_comparable = model.source(given), has_columns_of(given, model.result, model.name)
    if lacks_row_weights(source):
        raise InputError(
            f"rows of {model.name} were weighed by sample_weight, and a result keeps no weights: give the "
            "matrix as it was opened, with prepare= (--prepare)"
        )
    return Verification.of(model, source, is_comparable=is_comparable)


@dataclass(frozen=True, slots=True)
class VerifySparse(OverStoredNumbers):
    """Fold of a tall sparse matrix A into ``sum((A V - L s)^2)``, ``A'L`` and ``L'L``.

    V (n, k) and L (m, k) are its short and its long factor, s (k,) its singular values.
    """

    panels: SparsePanels
    """Panels of rows in float64."""

    long: View
    """The long factor L, (m, k), swept by rows."""

    short: ScratchMatrix
    """The short factor V, (n, k) float64, on scratch."""

    columns: ScratchMatrix
    """Scratch matrix (n, 2): mean of each column of the matrix, and its factor once the mean is
    subtracted."""

    values: Float64
    """(k,) singular values, times the power of two that the factors in ``columns`` contain."""

    weights: Float64
    """(k,) factors that make the columns of the stored long factor orthonormal."""

    row_seconds: float

    kernels = (order_columns, multiply_rows, add_columns, add_gram, weigh)

    def buffers(self) -> Mapping[str, Buffer]:
        """Working arrays of a segment by name, with those of a transposed panel.

        ``short`` (n, k) is the short factor, ``columns`` (n, 2) mean and factor of columns, ``s`` and
        ``weights`` (k,) are the fields ``values`` and ``weights``. ``y`` (rows, k) is a panel of A times the
        short factor, ``long`` (rows, k) its rows of the long one.
        """
        rows, rank = self.cut.panel_rows, len(self.values)
        return {
            **OverStoredNumbers.buffers(self),
            "short": ScratchConstant.of(self.short),
            "columns": ScratchConstant.of(self.columns),
            "s": Given.of(self.values),
            "weights": Given.of(self.weights),
            "y": Buffer((rows, rank)),
            "long": Buffer((rows, rank)),
        }

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all rows, by name, from which residuals and orthogonality follow.

        ``left`` (k,) are sums of squares of the columns of A V - L s, ``gram`` (k, k) is L'L, ``squares``
        (1,) the sum of squares of A. ``product`` (n, k) is S'L with S the stored matrix, neither centered nor
        scaled, and ``long`` (k,) are the column sums of L, for the term of the mean that ``finish``
        subtracts. ``bad`` holds count and first position of NaN and Inf.
        """
        k = len(self.values)
        product, gram = Sum((self.panels.view.short, k)), Sum((k, k))
        sums = {"left": Sum((k,)), "product": product, "long": Sum((k,)), "gram": gram}
        return {**sums, "squares": Sum((1,)), "bad": BAD}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides buffers and sums.

        They are those of rows of the long factor read ahead, vectors, the scaled short factor, and squares.
        """
        tall, rank, short = self.cut.panel_rows, len(self.values), self.panels.view.short
        factor = self.slots * (tall * rank * self.long.dtype.itemsize + self.long.read_bytes(tall))
        return factor + 8 * rank * (rank + short) + 7 * 8 * max(tall, short) + SQUARES_BYTES

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers and panels of the long factor; multiply the short factor by factors of columns."""
        work = OverStoredNumbers.workspace(self, device)
        work.mean, work.factor = work.columns.T.copy()
        work.offset = (work.mean * work.factor) @ work.short
        work.short = work.short * work.factor[:, None]
        shape, dtype = self.long.panel_shape(self.cut.panel_rows), self.long.source.dtype
        work.long_panels = [np.empty(shape, dtype) for _ in range(self.slots)]
        return work

    def read(self, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Read rows ``start:stop`` of the matrix and of the long factor into panel buffer ``slot``."""
        OverStoredNumbers.read(self, work, start, stop, slot)
        self.long.read(self.long.part(work.long_panels[slot], 0, stop - start), start, stop)

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Add rows ``start:stop``, read into panel buffer ``slot``, to the sums ``state``, in place."""
        lines, count = take_measured(self, state, work, start, slot), stop - start
        if lines is None:
            return
        long, y = work.long[:count], work.y[:count]
        weigh(self.long.part(work.long_panels[slot], 0, count), work.weights, out=long)
        multiply_rows(lines.indptr, lines.indices, lines.data, work.short, y=y)
        y -= work.offset
        self.bring_in_order(work, lines)
        add_columns(work.pointers, work.rows, work.values, long, z=state["product"])
        state["long"] += long.sum(axis=0)
        add_gram(long, total=state["gram"])
        long *= work.s
        y -= long
        state["left"] += np.einsum("ij,ij->j", y, y)

    def finish(self, state: State, columns: Any) -> State:
        """The sums with ``product`` corrected from S'L to A'L; ``columns`` (n, 2) are means and factors."""
        mean, factor = columns.T
        product = (state["product"] - np.outer(mean, state["long"])) * factor[:, None]
        return {**state, "product": product}
