"""The rank-K approximation of a matrix from its result, written in whole chunks as a plain array.

The sweep runs along the longer side of the output: over the left factor by rows, or over the right one by
columns. Sums are float64 and rounded once, so a mean of 1e4 costs no more digits than float32 needs for it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold._version import __version__
from rankfold.kernels.linear.products import product
from rankfold.methods.model.arguments import RECONSTRUCT, ReconstructArguments
from rankfold.methods.model.model import FactorModel, open_model
from rankfold.methods.parts.panels import OverPanels, Panels
from rankfold.methods.task import Output, count
from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.index_selection import runs_of
from rankfold.pipeline.data.names import names_of_result
from rankfold.pipeline.data.origin import places_in_words
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.blocks import Cut, cut, grain_rows, grains
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, Given, Sum, Workspace
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError, argument
from rankfold.pipeline.importing.chunking import FULL_ROWS, FULL_ROWS_BYTES
from rankfold.pipeline.machine import one_blas_thread
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import PanelSweeps, TaskFacts, one_sweep, plan_task, smaller_argument
from rankfold.pipeline.planning.seconds import NOMINAL_FLOPS, NOMINAL_READ
from rankfold.pipeline.prepare.affine import Affine, columns_left, keeps_numbers
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.chunk_writer import create_matrix, write_whole_chunks
from rankfold.pipeline.storage.result import Result, write_matrix_facts
from rankfold.pipeline.storage.scratch import NOWHERE, ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rebuild(OverPanels):
    """Fold over the rows of one factor that writes the matrix ``(left * weights) @ right * scale + mean``.

    The long side of the output is its longer one: the fold runs over the factor with a row for each row, or
    each column, of that side, and keeps the other factor in memory.
    """

    panels: Panels
    """Panels (rows read at a time) of the long factor."""

    first: int
    """Index of the first row of the long factor to rebuild: row 0 of the long side of the output."""

    other: Source
    """The other factor, that of the shorter side of the output."""

    short: Span
    """Start and stop of the columns (or rows, if the columns are the long side) to write."""

    columns: ScratchMatrix
    """Mean and scale of each column of the output, (columns, 2), on scratch."""

    weights: Float64
    """(rank,) factors of the leading components; components beyond them are left out."""

    array: Path
    """Path of the Zarr array to write, (rows, columns)."""

    width: int
    """Length of a chunk of the output along its short side."""

    row_seconds: float

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the output, which is that of the factors."""
        return self.panels.dtype

    @property
    def _by_rows(self) -> bool:
        return self.panels.view.orientation is Orientation.ROWS

    @property
    def _other_shape(self) -> tuple[int, int]:
        shape = len(self.weights), self.short[1] - self.short[0]
        return shape if self._by_rows else shape[::-1]

    @property
    def _resident_columns(self) -> int:
        return self.columns.rows if self._by_rows else self.cut.panel_rows

    kernels = (product,)

    def buffers(self) -> Mapping[str, Buffer]:
        """Working arrays of a segment by name.

        ``other`` (rank, short) is the other factor times the weights, ``columns`` (c, 2) mean and scale of
        columns, ``factor`` (grain rows, rank) are rows of the long factor, ``product`` is a grain (rows of
        one product) of a chunk in float64, and ``out`` a chunk of the output in its type, both flat.
        """
        rank, short, rows = len(self.weights), self.short[1] - self.short[0], self.panels.grain_rows
        return {
            "other": Buffer((rank, short)),
            "columns": Buffer((self._resident_columns, 2)),
            "factor": Buffer((rows, rank)),
            "weights": Given.of(self.weights),
            "product": Buffer((rows * self.width,)),
            "out": Buffer((self.cut.panel_rows * self.width,), self.dtype),
        }

    def sums(self) -> Mapping[str, Sum]:
        """The sum ``rows`` (1,): number of long rows written."""
        return {"rows": Sum((1,), np.dtype(np.int64), on_host=True)}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of reading the other factor, of a padded last chunk, and of mean and scale of columns."""
        raw = len(self.weights) * (self.short[1] - self.short[0]) * self.dtype.itemsize
        last = self.cut.panel_rows * self.width * self.dtype.itemsize
        return raw + self.other.read_bytes(*self._other_shape) + last + 16 * self._resident_columns

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers and panels; load the other factor times the weights, and statistics of columns."""
        work, rank = OverPanels.workspace(self, device), len(self.weights)
        raw = np.empty(self._other_shape, self.other.dtype)
        spans = [(0, rank), self.short]
        self.other.read_into(raw, *(spans if self._by_rows else spans[::-1]))
        raw = device.place(raw, raw.dtype)
        np.multiply(raw if self._by_rows else raw.T, work.weights[:, None], out=work.other)
        if self._by_rows:
            device.fill(work.columns, functools.partial(self.columns.read_into, start=0))
        return work

    def read(self, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Read the rows of the long factor for long rows ``start:stop`` of the output into panel ``slot``."""
        self.panels.read(work.panels, self.first + start, self.first + stop, slot)

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Compute long rows ``start:stop`` of the output and write them, one chunk at a time; count them."""
        view = self.panels.view
        panel, device = work.panels.slots[slot], work.device
        factor_rows = view.as_rows(view.part(panel.array(), 0, stop - start))
        if not self._by_rows:
            device.fill(work.columns[: stop - start], functools.partial(self.columns.read_into, start=start))
        short = self.short[1] - self.short[0]
        for left in range(0, short, self.width):
            right = min(left + self.width, short)
            out = work.out[: (stop - start) * (right - left)].reshape(stop - start, right - left)
            for first, last in grains(0, stop - start, self.cut.grain_rows):
                self._form(work, factor_rows[first:last], (first, last), (left, right), out[first:last])
            device.send(out, functools.partial(self._write, (start, stop), (left, right)))
        panel.release()
        state["rows"] += stop - start

    def _write(self, long: Span, short: Span, out: Array) -> None:
        if self._by_rows:
            write_whole_chunks(self.array, out, long, short)
        else:
            write_whole_chunks(self.array, out.T, short, long)

    def _form(self, work: Workspace, factor_rows: Array, rows: Span, across: Span, out: Array) -> None:
        """Compute a grain of a chunk into ``out``, from the rows ``factor_rows`` of the long factor.

        ``rows`` are start and stop within the panel, ``across`` those within the short range that is written.
        """
        factor = work.factor[: len(factor_rows)]
        np.copyto(factor, factor_rows[:, : len(self.weights)])
        values = work.product[: out.size].reshape(out.shape)
        product(factor, work.other[:, slice(*across)], out=values)
        columns = work.columns[slice(*across)] if self._by_rows else work.columns[slice(*rows), None]
        values *= columns[..., 1]
        values += columns[..., 0]
        np.copyto(out, values, casting="same_kind")


# The task -----------------------------------------------------------------------------------------


CHUNK_BYTES = 16 * 2**20
"""Target size in bytes of a chunk of the output, the same as for ``rankfold import``."""


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """Task that rebuilds rows of a matrix from the two factors of a result."""

    model: FactorModel
    left: Source
    """The left factor of the result, (m, k)."""

    rank: int
    """Number of leading components to use."""

    rows: Span
    """Start and stop of the rows to rebuild."""

    digest: str
    """Digest of the model, and of ``before`` if given: part of the request."""

    before: Affine | None = None
    """Shift and factor of the preparation steps, to be undone; None to leave columns as prepared."""

    @classmethod
    def of(
        cls, model: FactorModel, *, rank: int | None, rows: slice | None, physical: bool = False
    ) -> Reconstruction:
        """Make the task; ``InputError`` if the model lacks that rank or rows, or steps cannot be undone.

        ``rank`` None takes all components, ``rows`` None all rows. With ``physical`` the output is in units
        of the data before preparation steps.
        """
        left = model.left()
        left.check()
        rank, most = model.components if rank is None else rank, model.components
        if not model.factors.spectrum and rank != most:
            raise InputError(f"components of {model.name} are in no order: leave out the rank, to take all")
        if not 1 <= rank <= most:
            raise InputError(
                f"rank {rank} was asked for, but {model.name} holds {most} components: ask for 1 to "
                f"{most}, or fit again with {argument('rank', rank)}"
            )
        before = model.before_steps() if physical else None
        digest = model.digest() if before is None else f"{model.digest()} {before.digest()}"
        return cls(model, left, rank, _span(rows, model.shape[0]), digest, before)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the output; a complex column counts as two, its real parts."""
        return self.rows[1] - self.rows[0], self.model.right.shape[1]

    @property
    def _parts(self) -> int:
        """Real columns per number: 2 if complex, else 1."""
        return 1 + self.model.paired

    @property
    def _stored(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Shape of the output array and of its chunks, complex columns counted once."""
        (rows, columns), (height, width) = self.shape, self.chunks()
        return (rows, columns // self._parts), (height, width // self._parts)

    @property
    def by_rows(self) -> bool:
        """True if the sweep runs along the rows, the longer side of the output."""
        return self.shape[0] >= self.shape[1]

    @property
    def source(self) -> Source:
        """The long factor, which is swept: the left one if ``by_rows``, else the right one."""
        return self.left if self.by_rows else self.model.right

    def request(self) -> dict[str, Any]:
        """Rank, rows, and digests of the result and its left factor, as JSON types."""
        return {
            "kind": "reconstruct",
            "of": self.model.kind,
            "rank": self.rank,
            "rows": list(self.rows),
            "result": self.digest,
            "left": self.left.fingerprint(),
            **({} if self.before is None else {"physical": True}),
        }

    def outputs(self) -> tuple[Output, ...]:
        """The one array of the result, which has no name: it is the result itself."""
        shape, chunk = self._stored
        chunks = math.prod(count(length, each) for length, each in zip(shape, chunk, strict=True))
        return (Output("", shape, self.model.factor_dtype, chunks),)

    def plan(self, budget: Budget) -> Plan:
        """Plan of the one sweep over a factor."""
        rows, columns = self.shape
        data = rows * columns * self.model.dtype.itemsize
        task_facts = TaskFacts(
            kind="reconstruct",
            method="product",
            source=self.source,
            dtype=self.model.dtype,
            orientation=self._orientation,
            rank=self.rank,
            result_bytes=data,
            scratch_bytes=16 * columns,
        )

        def sweep_of(rank: int) -> PanelSweeps:
            fewer = dataclasses.replace(self, rank=rank)
            return one_sweep(
                task_facts,
                lambda slots: fewer.fold(NOWHERE, NOWHERE, slots),
                flops=2.0 * rows * columns * rank,
                driver_bytes=6 * 8 * self.model.block_columns
                + (0 if self.before is None else 4 * 8 * columns),
                accumulator_bytes=8,
                writes_bytes=data,
            )

        # All components are used if they have no order.
        most = self.rank if self.model.factors.spectrum else 0
        smaller = partial(smaller_argument, "rank", most, sweep_of, budget)
        return plan_task(task_facts, sweep_of(self.rank), budget, smaller=smaller)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Write the array chunk by chunk; return its facts (metadata)."""
        with one_blas_thread():
            fold = self.fold(run.scratch, run.result, run.slots)
            for start, stop in self.model.blocks():
                mean, scale = self._before_steps(*self.model.columns(start, stop), start)
                fold.columns.write(start, np.column_stack([mean, scale]))
            shape, chunks = self._stored
            create_matrix(run.result, shape, self.model.factor_dtype, chunks)
            run.pass_over_data("reconstruct", fold)
        facts = {**run.device_facts, **self._facts(fingerprint)}
        write_matrix_facts(run.result, facts)
        return facts

    def _before_steps(self, mean: Float64, scale: Float64, first: int) -> tuple[Float64, Float64]:
        """Mean and scale (c,) of columns ``first`` and on, in units of the data if ``before`` is given."""
        if self.before is None:
            return mean, scale
        part = self.before.take(np.arange(first, first + len(mean)) // self._parts)
        return part.data(mean), scale / part.divisor

    def fold(self, folder: Path, array: Path, slots: int) -> Rebuild:
        """Fold of the one sweep: scratch lies in ``folder``, the output at ``array``, in ``slots`` panels."""
        columns = ScratchMatrix(folder / "columns.bin", self.shape[1], 2, np.dtype(np.float64))
        height, width = self.chunks() if self.by_rows else self.chunks()[::-1]
        short, item = min(self.shape), self.model.dtype.itemsize
        return Rebuild(
            panels=Panels(View(self.source, self._orientation), self._cut(height), slots, self.source.dtype),
            first=self.rows[0] if self.by_rows else 0,
            other=self.model.right if self.by_rows else self.left,
            short=(0, short) if self.by_rows else self.rows,
            columns=columns,
            weights=self.model.row_weights()[: self.rank * self._parts],
            array=array,
            width=width,
            row_seconds=short * (item / NOMINAL_READ + 2 * self.rank / NOMINAL_FLOPS[8]),
        )

    def chunks(self) -> tuple[int, int]:
        """Shape of a chunk of the output, with complex columns counted twice.

        A chunk is as wide as the short side of the output if that is short; its height is then a multiple of
        a grain, the rows of one product.
        """
        (long, short), item = self._sides(), self.model.dtype.itemsize
        if FULL_ROWS * short * item <= FULL_ROWS_BYTES:
            grain = grain_rows(short * item)
            height, width = max(FULL_ROWS, CHUNK_BYTES // (short * item)), short
            height -= height % grain if height > grain else 0
        else:
            height, width = FULL_ROWS, -(-short // -(-short * FULL_ROWS * item // CHUNK_BYTES))
        height, width = min(height, long), width
        if self.by_rows:
            width += width % self._parts
        else:
            height += height % self._parts
        return (height, width) if self.by_rows else (width, height)

    @property
    def _orientation(self) -> Orientation:
        return Orientation.ROWS if self.by_rows else Orientation.COLUMNS

    def _sides(self) -> tuple[int, int]:
        return max(self.shape), min(self.shape)

    def _cut(self, height: int) -> Cut:
        """Cut of the long side into panels of ``height`` rows, which are whole chunks of the output.

        The only sum of a stream is a row count, of 8 bytes.
        """
        long, short = self._sides()
        return cut(Grid.regular(long, height, splittable=False), 8 * short, 8)

    def _facts(self, fingerprint: str) -> dict[str, Any]:
        """Reproducible facts of the array; ``fingerprint`` is that of the factor that was swept."""
        attrs, floor = self.model.result.attrs, float(np.sqrt(np.finfo(self.model.dtype).eps))
        total = float(attrs.get("squared_norm") or 0.0)
        s = self.model.s[:: self._parts]
        residual_squares = total - float((s[: self.rank] ** 2).sum())
        if not self.model.factors.spectrum:
            residual_squares = total * float(attrs["relative_error"]) ** 2
        return {
            "kind": "reconstruct",
            "method": "product",
            "request": self.request(),
            "input": {
                "name": self.model.result.path.name,
                "shape": list(self.model.shape),
                "dtype": self.model.factor_dtype.name,
                "fingerprint": fingerprint,
                **self._places(),
            },
            "version": __version__,
            "passes": 1,
            "relative_error": float(np.sqrt(max(residual_squares / total, floor**2))) if total > 0 else 0.0,
            "relative_error_floor": floor,
            "warnings": [],
        }

    def _places(self) -> dict[str, Any]:
        """Names of rows and columns, their positions in the original array, and its units if still valid."""
        result = self.model.result
        facts = result.attrs["input"]
        layout, names = dict(facts.get("layout", {})), dict(facts.get("names", {}))
        if self.before is None and not keeps_numbers(facts):
            names.pop("attributes", None)
        chosen = columns_left(facts, lambda array: np.asarray(result[array][...]))
        if chosen is not None:  # the layout has only the chosen columns, but names are of all
            known = names_of_result(self.model.name, result.attrs, 1)
            names["columns"] = None if known is None else known.take(chosen).as_json()
        if self.rows != (0, self.model.shape[0]) and not isinstance(layout.get("rows"), str):
            kept, known = np.arange(*self.rows), names_of_result(self.model.name, result.attrs, 0)
            names["rows"] = None if known is None else known.take(kept).as_json()
            whole = places_in_words(layout, "rows")
            places = kept if whole is None else whole[kept]
            layout = {"shape": list(self.model.shape), **layout, "rows": runs_of(places)}
        names = {side: known for side, known in names.items() if known}
        return {part: known for part, known in (("layout", layout), ("names", names)) if known}


def _span(rows: slice | None, length: int) -> Span:
    """Start and stop of a slice of ``length`` rows without steps; ``InputError`` if it is empty."""
    if rows is None:
        return 0, length
    if not isinstance(rows, slice):
        raise InputError(f"row_range must be a slice, as slice(0, 100), not {rows!r}")
    if rows.step not in (None, 1):
        raise InputError(f"row_range={rows} takes steps of {rows.step}; ask for consecutive rows")
    start, stop, _ = rows.indices(length)
    if stop <= start:
        raise InputError(
            f"row_range {rows.start}:{rows.stop} holds none of the {length} rows, counted from 0"
        )
    return start, stop


def reconstruct_task(
    result: FactorModel | Result | str | Path, arguments: ReconstructArguments
) -> Reconstruction:
    """Make the task that rebuilds the matrix, or some of its rows, from the factors of ``result``."""
    model = open_model(result, among=RECONSTRUCT.results)
    return Reconstruction.of(
        model, rank=arguments.rank, rows=arguments.row_range, physical=arguments.physical
    )
