"""Coordinates of new rows in the components of a result, in one pass over them, however they are chunked.

Rows are swept if a panel of whole rows is small enough, and each panel of scores is written at once as whole
chunks of the output. Rows too long for that (a wide matrix in chunks of columns) are swept by columns, and
their products with the right vectors are summed in float64.

The trap is the error of rows that lie within the components. Its square is the difference of two sums of
squares, which is accurate to ``eps`` of the whole. The error itself is thus resolved only down to
``sqrt(eps)``. Right vectors that are not quite orthonormal, by rounding to the stored type, are corrected for
by their Gram matrix.
"""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.model.arguments import TRANSFORM, NoArguments
from rankfold.methods.model.model import FactorModel, open_model
from rankfold.methods.model.transform_pass import ProjectColumns, ProjectRows, ProjectSparseRows
from rankfold.methods.model.transform_pass import products as inner_products
from rankfold.methods.nmf.alternation import Penalty
from rankfold.methods.nmf.row_solvers import NormalRows, RowSolver
from rankfold.methods.parts.outputs import create_output, write_outputs
from rankfold.methods.parts.panels import Panels, refuse_bad
from rankfold.methods.parts.sparse_panels import SparsePanels
from rankfold.methods.registry import METHODS, Transformation
from rankfold.methods.svd.strategy import matching_chunk
from rankfold.methods.task import Output, Task, count
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.real_parts import matrix_of_parts, numbers_dtype, numbers_of_parts
from rankfold.pipeline.data.source import CompressedSource, Source, number_bytes, sparse_by_rows, stored_size
from rankfold.pipeline.data.view import Orientation, View, working_dtype
from rankfold.pipeline.engine.blocks import Cut, cut, most_numbers
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.machine import one_blas_thread
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import PanelSweeps, TaskFacts, cut_store, one_sweep, plan_task
from rankfold.pipeline.planning.seconds import NOMINAL_FLOPS, NOMINAL_READ
from rankfold.pipeline.planning.shape_only import ShapeOnly
from rankfold.pipeline.storage.checkpoint import State, load_arrays, save_once
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.storage.scratch import NOWHERE, ScratchMatrix

ROWS_BYTES = 128 * 2**20
"""Largest memory, in bytes, of a segment (unit of work) of rows up to which rows are always swept. Above it
columns are swept if a segment of these takes less."""


@dataclass(frozen=True, slots=True)
class RowLimits:
    """Constraint and penalty that coordinates of a row obey."""

    solver: RowSolver
    """Solver of the coordinates of rows under the constraint."""

    penalty: Penalty
    """Penalty of coordinates, added to the error of a row."""


@dataclass(frozen=True, slots=True)
class Projection:
    """Task that computes coordinates of new rows in the components of a model."""

    model: FactorModel
    source: Source
    """The new rows as a matrix, (rows, n)."""

    digest: str
    """Digest of the model: see ``FactorModel.digest``."""

    square_scale: float
    """Power of two that scales raw numbers before their squares are summed in float64."""

    limits: RowLimits | None = None
    """Constraint and penalty that coordinates of a row obey; None if coordinates are the products themselves.

    Products are those of centered, scaled rows with the right vectors.
    """

    @classmethod
    def of(cls, model: FactorModel, source: Source, limits: RowLimits | None = None) -> Projection:
        """Make the task; ``InputError`` if the rows are empty, or have not as many columns as the model."""
        columns, width = model.shape[1], matrix_of_parts(source).shape[1]
        if width != columns:
            raise InputError(
                f"{model.name} was fitted to {columns} columns, but {source.name} is {source.shape[0]} x "
                f"{width}. Give samples of the same {columns} columns, in the same order."
            )
        if min(source.shape) < 1:
            raise InputError(f"{source.name} is {source.shape[0]} x {width}: there is nothing to transform")
        return cls(model, source, model.digest(), model.square_scale(), limits)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of products and coordinates: the wider of the types of the model and of the rows."""
        return np.promote_types(self.model.dtype, working_dtype(self.source.dtype))

    @property
    def _stored_dtype(self) -> np.dtype[Any]:
        return numbers_dtype(self.dtype, paired=self.model.paired)

    @property
    def pow2_scale(self) -> float:
        """Power of two that brings a typical element of a row, centered and scaled, near 1."""
        return self.model.pow2_scale(self.dtype)

    def request(self) -> dict[str, Any]:
        """Kind, rank and digest of the result, as JSON types."""
        kind = self.model.kind
        return {"kind": "transform", "of": kind, "rank": self.model.components, "result": self.digest}

    def outputs(self) -> tuple[Output, ...]:
        """The one array of the result, named like the left factor of the model: coordinates (rows, k)."""
        rows, by_rows = self.source.shape[0], not isinstance(self.fold(NOWHERE, NOWHERE, 1), ProjectColumns)
        chunks = count(rows, self.row_chunk()) if by_rows else 1
        return (Output(self.model.left_name, (rows, self.model.components), self._stored_dtype, chunks),)

    def plan(self, budget: Budget) -> Plan:
        """Plan of the one pass over the new rows."""
        task_facts, sweep = self._planned()
        fold = self.fold(NOWHERE, NOWHERE, 1)
        return plan_task(task_facts, sweep, budget, lambda: self._way_out(fold.panels.view, fold.cut, budget))

    def _planned(self) -> tuple[TaskFacts, PanelSweeps]:
        rank, item = self.model.rank, self.dtype.itemsize
        fold = self.fold(NOWHERE, NOWHERE, 1)
        by_rows = not isinstance(fold, ProjectColumns)
        (rows, columns), scores = self.source.shape, self.source.shape[0] * rank * item
        accumulator = 8 * rank * (rank if by_rows else rows)
        block = self.model.block_columns * (rank * (self.model.dtype.itemsize + item + 8) + 8 * 8)
        task_facts = TaskFacts(
            kind="transform",
            method="projection",
            source=self.source,
            dtype=self.dtype,
            orientation=fold.panels.view.orientation,
            rank=rank,
            result_bytes=scores,
            scratch_bytes=fold.basis.nbytes + fold.columns.nbytes,
        )
        sweep = one_sweep(
            task_facts,
            lambda slots: self.fold(NOWHERE, NOWHERE, slots),
            flops=2.0 * (rows * columns if self.stored is None else self.stored.nnz) * rank,
            driver_bytes=max(block, 3 * accumulator + (0 if by_rows else 3 * scores + 3 * accumulator)),
            accumulator_bytes=accumulator,
            writes_bytes=scores if by_rows else 0,
            stored=(0, 0) if self.stored is None else stored_size(self.stored),
        )
        return task_facts, sweep

    def _way_out(self, view: View, panels: Cut, budget: Budget) -> str:
        """Text that suggests smaller chunks of the store, if large ones make panels too tall; else empty."""
        grid = view.grid
        if grid.splittable or grid.longest <= 2 * panels.grain_rows:
            return ""
        small = dataclasses.replace(self, source=ShapeOnly.plain(self.source.shape, self.source.dtype))
        what = f"of {grid.longest} {view.orientation.value} must be held whole"
        return cut_store(what, small._planned()[1], budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Project rows and write their coordinates; return the facts (metadata) of the result."""
        with one_blas_thread():
            gram = self._prepare(run)
            fold = self.fold(run.scratch, run.result / self.model.left_name, run.slots)
            if not isinstance(fold, ProjectColumns):
                rank = self.model.components
                shape, chunks = (self.source.shape[0], rank), (self.row_chunk(), rank)
                create_output(run.result, self.model.left_name, shape, self._stored_dtype, chunks)
            state = run.pass_over_data("transform", fold)
            refuse_bad(state, self.source)
            if isinstance(fold, ProjectColumns):
                state |= self._coordinates(run, state["product"])
            facts = self._facts(run, fingerprint, state, gram)
            run.describe(facts)
        return facts

    def _normal(self, folder: Path) -> NormalRows | None:
        """Solver of coordinates from products, with constants in ``folder``; None if none is needed."""
        return None if self.limits is None else NormalRows(folder / "normal.part", self.limits.solver)

    def _coordinates(self, run: Run, products: npt.NDArray[np.float64]) -> State:
        """Write coordinates of all rows, from ``products`` (rows, k) of these with the right vectors.

        Returns the sums ``gram`` and ``inner`` of ``transform_pass.products``.
        """
        normal, z = self._normal(run.scratch), products
        if normal is not None:
            z = np.empty_like(products)
            constants = load_arrays(normal.constants)
            normal.solve(products, constants["normal"], constants["linear"], out=z)
        left = numbers_of_parts((z * self._weights()).astype(self.dtype), paired=self.model.paired)
        write_outputs(run.result, {self.model.left_name: left})
        return inner_products(z, products)

    @property
    def stored(self) -> CompressedSource | None:
        """The rows if they are sparse (CSR) and swept by stored numbers; else None."""
        return sparse_by_rows(self.source)

    def fold(self, folder: Path, array: Path, slots: int) -> ProjectSparseRows | ProjectRows | ProjectColumns:
        """Fold of the one pass: by rows, unless these need much memory and columns need less.

        ``folder`` is that of scratch files, ``array`` the path of the coordinates, and ``slots`` the number
        of panels in memory at once.
        """
        columns, rank = self.source.shape[1], self.model.rank
        basis = ScratchMatrix(folder / "basis.bin", columns, rank, self.dtype)
        numbers = ScratchMatrix(folder / "columns.bin", columns, 2, np.dtype(np.float64))

        if self.stored is not None:
            view, rows_cut = View(self.source, Orientation.ROWS, precision=self.dtype), self._rows_cut()
            fullest = most_numbers(self.stored.pointers, rows_cut.panels)
            return ProjectSparseRows(
                SparsePanels(view, rows_cut, slots, fullest),
                basis,
                numbers,
                self._weights(),
                array,
                self._seconds(-(-self.stored.nnz // self.source.shape[0])),
                self._normal(folder),
            )

        def by_rows(slots: int) -> ProjectRows:
            panels = Panels(View(self.source, Orientation.ROWS), self._rows_cut(), slots, self.dtype)
            seconds = self._seconds(columns)
            weights, normal = self._weights(), self._normal(folder)
            return ProjectRows(panels, basis, numbers, weights, self.square_scale, array, seconds, normal)

        def by_columns(slots: int) -> ProjectColumns:
            panels = Panels(View(self.source, Orientation.COLUMNS), self._columns_cut(), slots, self.dtype)
            return ProjectColumns(
                panels, basis, numbers, self.square_scale, self._seconds(self.source.shape[0])
            )

        most = by_rows(1).memory_bytes
        rows = most <= ROWS_BYTES or most <= by_columns(1).memory_bytes
        return by_rows(slots) if rows else by_columns(slots)

    @property
    def _row_bytes(self) -> int:
        """Bytes to read for a row; of a sparse matrix on average, with indices."""
        item = self.source.dtype.itemsize
        if self.stored is None:
            return self.source.shape[1] * item
        return -(-self.stored.nnz * number_bytes(self.stored) // self.source.shape[0]) + 8

    def row_chunk(self) -> int:
        """Number of rows in a chunk of the output."""
        read = self._row_bytes
        return matching_chunk(self.source.row_grid, read, self.model.rank * self.dtype.itemsize)

    def _rows_cut(self) -> Cut:
        """Cut along the rows into panels that are whole chunks of the output."""
        (rows, columns), rank = self.source.shape, self.model.rank
        grid = Grid.regular(rows, self.row_chunk(), splittable=False)
        row_bytes = columns * self.dtype.itemsize if self.stored is None else self._row_bytes
        return cut(grid, row_bytes, 8 * rank * rank)

    def _columns_cut(self) -> Cut:
        rows = self.source.shape[0]
        return cut(self.source.column_grid, rows * self.dtype.itemsize, 8 * rows * self.model.rank)

    def _seconds(self, length: int) -> float:
        """Nominal seconds to read and multiply a row, or column, of ``length`` numbers."""
        flops = 2 * self.model.rank / NOMINAL_FLOPS[self.dtype.itemsize]
        return length * (self.source.dtype.itemsize / NOMINAL_READ + flops)

    def _weights(self) -> npt.NDArray[np.float64]:
        return self.model.score_weights() / self.pow2_scale

    def _prepare(self, run: Run) -> npt.NDArray[np.float64]:
        """Write right vectors, and mean and factor of columns, to scratch.

        Returns the Gram matrix (k, k) of the right vectors.
        """

        def prepare() -> State:
            fold = self.fold(run.scratch, NOWHERE, 1)
            gram = np.zeros((self.model.rank, self.model.rank))
            for start, stop in self.model.blocks():
                vectors = self.model.vectors(start, stop)
                mean, scale = self.model.columns(start, stop)
                fold.basis.write(start, vectors.astype(self.dtype))
                fold.columns.write(start, np.column_stack([mean, self.pow2_scale / scale]))
                wide = vectors.astype(np.float64)
                with np.errstate(over="ignore", invalid="ignore"):
                    gram += wide.T @ wide
            if not np.isfinite(gram).all():
                raise DataError(f"components of {self.model.result.path} are not finite: restore it")
            rank, penalty = self.model.rank, Penalty() if self.limits is None else self.limits.penalty
            normal = gram + np.diag(np.full(rank, penalty.l2))
            return {"gram": gram, "normal": normal, "linear": np.full(rank, penalty.l1)}

        state = run.prepare(run.part("prepared.part"), prepare)
        save_once(run.scratch / "normal.part", {name: state[name] for name in ("normal", "linear")})
        return state["gram"]

    def _facts(
        self,
        run: Run,
        fingerprint: str,
        state: State,
        gram: npt.NDArray[np.float64],
    ) -> dict[str, Any]:
        """Reproducible facts of the transform, from the sums ``state`` of the pass and ``gram`` (k, k).

        ``gram`` is that of the right vectors.
        """
        noise_components = int((self.model.score_weights() == 0).sum()) // (1 + self.model.paired)
        if noise_components:
            run.warnings.append(
                f"{noise_components} components were fitted with no variance beyond rounding; their columns "
                f"of {self.model.left_name} are zero"
            )
        floor = float(np.sqrt(np.finfo(self.dtype).eps))
        # ||X - T V'||^2 = ||X||^2 - 2 <X V, T> + <T'T, V'V>
        squares = float(state["squares"][0])
        residual_squares = squares - 2 * float(state["inner"][0]) + float((state["gram"] * gram).sum())
        error = float(np.sqrt(max(residual_squares / squares, floor**2))) if squares > 0 else 0.0
        return {
            **run.facts(self.request(), "projection", matrix_of_parts(self.source), fingerprint),
            "relative_error": error,
            "relative_error_floor": floor,
        }


def projection_task(result: FactorModel | Result | str | Path, x: object) -> Task:
    """Make the task of the coordinates of the rows ``x`` in the factors of ``result``."""
    model = open_model(result, among=TRANSFORM.results)
    return Projection.of(model, model.source(x))


def transform_task(result: FactorModel | Result | str | Path, x: object, _: NoArguments) -> Task:
    """Make the task of the coordinates of the rows ``x`` in ``result``, as its method declares."""
    found = _opened(result)
    way = None if found is None else _transformation(found)
    return projection_task(result, x) if way is None else way.task(found, x)


def embedding_of(result: object) -> Result | None:
    """Return an embedding that places new rows by neighbors, given it or its path; None for anything else."""
    found = _opened(result)
    way = None if found is None else _transformation(found)
    return found if way is not None and way.by_neighbors else None


def _opened(result: object) -> Result | None:
    """Return a result, given the result or its path; None for anything else."""
    if isinstance(result, (str, Path)) and Path(result).is_dir():
        with contextlib.suppress(InputError):
            result = Result(result)
    return result if isinstance(result, Result) else None


def _transformation(result: Result) -> Transformation | None:
    """Description of how a result gives coordinates to new rows; None if it does not."""
    kind = result.attrs["kind"]
    return METHODS[kind].transformation if kind in METHODS else None


def warm_transform(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run each compiled loop of a transform once, to compile it; the method in ``request["of"]`` names them.

    ``dtype`` and ``shape`` are those of the matrix of new rows.
    """
    way = METHODS[request["of"]].transformation
    assert way is not None  # noqa: S101  the task was made by it
    way.warm(dtype, request, shape)
