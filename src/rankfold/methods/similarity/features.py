"""Features of rows from their similarities to some points, computed and written in one pass over the rows.

A similarity is a value of the kernel function k. With points p and coefficients C a row x becomes ``weights *
(k(x, p)' C) - offset``. If points are landmarks, these are its features in an approximation of the kernel
function. If points are the rows that components were made from, they are its scores. The share of the trace
of similarities that features do not capture is summed over all rows as they are made. A panel is the rows
that are read at a time, a grain the rows of one product. A fold is the work of a pass over the rows on each
panel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.similarity.functions import Rows, Similarity, own_similarities, rows_of
from rankfold.kernels.similarity.tiles import HEIGHT, WIDTH, evaluate, multiply
from rankfold.methods.kmeans.passes import KeptRows, exponentials
from rankfold.methods.parts.panels import BAD, Grain, OverPanels, Panels, numbers, refuse_bad
from rankfold.methods.random_keys import Purpose
from rankfold.methods.similarity.blocks import RowBlocks, edges_of, require_finite, tallest
from rankfold.methods.similarity.request import KINDS, KernelChoice
from rankfold.methods.svd.strategy import matching_chunk
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.blocks import Cut, cut
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, Sum, Workspace
from rankfold.pipeline.planning.passes import BLAS_BYTES
from rankfold.pipeline.planning.seconds import NOMINAL_FLOPS
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

RESIDENT_BYTES = 64 * 2**20
"""Largest number of bytes of points and coefficients that stay in memory; more are read anew for each panel
of rows."""

EVALUATION_FLOPS = 30.0
"""Floating-point operations that take as long as one value of the kernel function, from a product."""


NOTABLE = 1e-6
"""Relative size below which a negative trace error (see ``trace_error``) is taken for rounding: factors of
landmarks are accurate to the root of 1e-12."""


@dataclass(frozen=True, slots=True)
class Points:
    """Points that rows are compared with, and numbers that turn the similarities into features.

    Features are ``weights * (similarities @ coefficients) - offset``.
    """

    choice: KernelChoice
    rows: Source
    """(p, d) points, as a source."""

    coefficients: Source
    """(p, k) coefficients C of the points, as a source."""

    weights: Float64
    """(k,) factors of the products of similarities with ``coefficients``."""

    offset: Float64
    """(k,) subtracted from the products, after these are multiplied by ``weights``."""

    shift: Float64
    """(d,) subtracted from rows and points: see ``rows_of``."""

    @property
    def stay(self) -> bool:
        """True if all points stay in memory."""
        return self._bytes(self.rows.shape[0]) <= RESIDENT_BYTES

    def _bytes(self, rows: int) -> int:
        return 8 * rows * (self.rows.shape[1] + 1 + self.coefficients.shape[1])

    @property
    def reads_bytes(self) -> int:
        """Bytes of points and coefficients read for each panel (rows at a time); 0 if they stay in memory."""
        whole = (math.prod(each.shape) * each.dtype.itemsize for each in (self.rows, self.coefficients))
        return 0 if self.stay else sum(whole)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the points and coefficients in memory, and of reading a block (a run of points)."""
        tall, width = tallest(self.rows), max(self.rows.shape[1], self.coefficients.shape[1])
        reading = 2 * 8 * tall * width + self.rows.read_bytes(tall, self.rows.shape[1])
        reading += self.coefficients.read_bytes(tall, self.coefficients.shape[1])
        return self._bytes(self.rows.shape[0] if self.stay else tall) + reading

    def blocks(self) -> list[tuple[Rows, Float64]] | None:
        """All points as prepared, with coefficients, by blocks, if they stay in memory; else None."""
        return list(self.each()) if self.stay else None

    def each(self) -> Iterator[tuple[Rows, Float64]]:
        """Read and prepare the points block by block; yields (p', d) points and (p', k) coefficients."""
        blocks = RowBlocks(self.rows, self.choice.similarity, self.shift, edges_of(self.rows), False)
        width = self.coefficients.shape[1]
        for index in range(blocks.count):
            span = blocks.span(index)
            raw = np.empty((span.stop - span.start, width), self.coefficients.dtype)
            self.coefficients.read_into(raw, (span.start, span.stop), (0, width))
            yield blocks.block(index), raw.astype(np.float64)


def row_chunk(source: Source, width: int, item: int) -> int:
    """Rows of a chunk of an output that has a row of ``width`` values of ``item`` bytes for each row."""
    return matching_chunk(source.row_grid, source.shape[1] * source.dtype.itemsize, width * item)


def rows_cut(source: Source, width: int, item: int) -> Cut:
    """Cut of the rows into panels, which are whole chunks of an output: see ``row_chunk``."""
    grid = Grid.regular(source.shape[0], row_chunk(source, width, item), splittable=False)
    return cut(grid, 8 * source.shape[1], 8 * width)


class OverRows(OverPanels):
    """Base of folds (work on each panel of rows) that compare rows of a matrix with given points."""

    __slots__ = ()
    kernels = (evaluate,)
    choice: KernelChoice
    shift: Float64

    def rows_of_grains(
        self, state: State, work: Workspace, start: int, stop: int, slot: int
    ) -> Iterator[tuple[Grain, Rows, Float64]]:
        """Yield the rows ``start:stop`` by grains (rows of one product), from panel buffer ``slot``.

        Each item is the grain, its rows as prepared, and (rows,) similarities of each row with itself. A
        grain with values that are not finite is skipped, and these are counted in ``state``.
        """
        similarity = self.choice.similarity
        for grain in self.panels.grains(work.panels, start, stop, slot):
            with np.errstate(over="ignore", invalid="ignore"):
                rows = rows_of(numbers(grain.raw), similarity, self.shift)
                sums = rows.squares + 0 * rows.values.sum(axis=1)
            if self.is_finite(state, work, grain, sums):
                yield grain, rows, own_similarities(rows, similarity)

    @property
    def operand_bytes(self) -> int:
        """Bytes of BLAS buffers: a constant, since the size of the points is not known here."""
        return BLAS_BYTES

    def rows_bytes(self, width: int) -> int:
        """Bytes of prepared rows of a grain, their products with ``width`` vectors, and a tile of pairs."""
        rows, columns = self.panels.grain_rows, self.panels.view.short
        return 8 * (rows * (3 * columns + width + 6) + HEIGHT * (WIDTH + columns + 2 * width))


@dataclass(frozen=True, slots=True)
class WriteFeatures(OverRows):
    """Fold that writes features of rows to an array, and sums the part of the trace that they capture.

    The trace is that of the matrix of similarities of all rows.
    """

    panels: Panels
    points: Points
    array: Path
    """Path of the Zarr array to write, (rows, k)."""

    dtype: np.dtype[Any]
    """Type of the array."""

    kept: tuple[KeptRows, ...] = ()
    """Storage for a random sample of rows, drawn by keys of ``seed``; empty if none are kept."""

    seed: int = 0

    @classmethod
    def of(
        cls,
        source: Source,
        points: Points,
        array: Path,
        dtype: np.dtype[Any],
        slots: int,
        sample: tuple[int, int] = (0, 0),
    ) -> WriteFeatures:
        """Make the fold.

        Parameters
        ----------
        source : Source
            Matrix whose rows get features.
        points : Points
        array : Path
            Zarr array to write, (rows, k).
        dtype : dtype
            Type of the array.
        slots : int
            Number of buffers for panels.
        sample : (int, int)
            Number of random rows to keep, and their seed.
        """
        count, seed = sample
        kept = (KeptRows(count, source.shape[1], np.dtype(np.float64)),) * (count > 0)
        view = View(source, Orientation.ROWS)
        rows = rows_cut(source, points.coefficients.shape[1], dtype.itemsize)
        return cls(
            Panels(view, rows, slots, view.source.dtype, borrows=True), points, array, dtype, kept, seed
        )

    @property
    def choice(self) -> KernelChoice:  # type: ignore[override]
        """The kernel function."""
        return self.points.choice

    @property
    def shift(self) -> Float64:  # type: ignore[override]
        """(d,) subtracted from rows: that of the points."""
        return self.points.shift

    @property
    def width(self) -> int:
        """Number of features of each row, k."""
        return self.points.coefficients.shape[1]

    @property
    def row_flops(self) -> float:
        """Estimated floating-point operations for each row."""
        points, columns = self.points.rows.shape
        return points * (2.0 * columns + EVALUATION_FLOPS + 2 * self.width)

    @property
    def row_seconds(self) -> float:
        """Nominal seconds for each row."""
        return self.row_flops / NOMINAL_FLOPS[8]

    def buffers(self) -> Mapping[str, Buffer]:
        """``out`` (rows, k): features of the rows of a panel, which are whole chunks of the array."""
        return {"out": Buffer((self.cut.panel_rows, self.width), self.dtype)}

    def sums(self) -> Mapping[str, Sum]:
        """``own`` (1,), trace of similarities; ``captured`` (1,), the part of it in features; kept rows.

        ``outside`` (1,) counts features that are not finite, and ``bad`` elements of the matrix that are not.
        """
        rows = {name: each for kept in self.kept for name, each in kept.sums().items()}
        return {"own": Sum((1,)), "captured": Sum((1,)), "outside": Sum((1,)), "bad": BAD, **rows}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides its buffer: points, prepared rows, products, chunks inside Zarr."""
        chunks = self.cut.panel_rows * self.width * self.dtype.itemsize
        kept = sum(8 * (self.panels.grain_rows + 3 * kept.count) * (kept.columns + 4) for kept in self.kept)
        rows = 0 if self.points.stay else self.cut.panel_rows - self.panels.grain_rows
        together = 8 * rows * (self.panels.view.short + self.width + 3)
        return self.points.memory_bytes + self.rows_bytes(self.width) + chunks + kept + together

    @property
    def reads_bytes(self) -> int:
        """Bytes of points and coefficients that are read over the whole pass."""
        return (len(self.cut.panels) - 1) * self.points.reads_bytes

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers and panels, and read the points if they stay in memory."""
        work = OverPanels.workspace(self, device)
        work.resident = self.points.blocks()
        return work

    def merge(self, total: State, other: State) -> None:
        """Add ``other``, the sums and kept rows from other rows of the matrix, to ``total``, in place."""
        names = {name for kept in self.kept for name in kept.names}
        for kept in self.kept:
            kept.join(total, other)
        for name, each in self.sums().items():
            if name not in names:
                total[name] = each.combine(total[name], other[name])

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Compare rows ``start:stop`` with all points, write their features, and add to the sums ``state``.

        Grains (rows of one product) are compared one after another, or all together where points have to be
        read.
        """
        out = work.out[: stop - start]
        each = self.rows_of_grains(state, work, start, stop, slot)
        for grains in ([one] for one in each) if self.points.stay else (list(each),):
            self._compare(state, work, grains, out, start)
        work.device.send(out, functools.partial(self._write, state, start, stop))

    def _compare(
        self, state: State, work: Workspace, grains: list[tuple[Grain, Rows, Float64]], out: Array, start: int
    ) -> None:
        made = features_of([rows for _, rows, _ in grains], self.points, work.resident)
        for (grain, _, own), features in zip(grains, made, strict=True):
            here = out[grain.first - start : grain.last - start]
            with np.errstate(over="ignore", invalid="ignore"):
                state["own"] += own.sum()
                state["captured"] += np.einsum("ij,ij->", features, features)
                here[...] = features
            state["outside"] += np.count_nonzero(~np.isfinite(here))
            for kept in self.kept:
                keys = exponentials(self.seed, Purpose.SIMILAR_ROWS, grain.first, grain.last)
                kept.take(state, keys, grain.first, numbers(grain.raw).astype(np.float64))

    def _write(self, state: State, start: int, stop: int, out: Array) -> None:
        if not (state["bad"][0] or state["outside"][0]):  # a matrix with bad numbers is refused at the end
            write_whole_chunks(self.array, out, (start, stop), (0, self.width))


def refuse_outside(state: State, source: Source, dtype: np.dtype[Any]) -> None:
    """Raise ``DataError`` if a pass over ``source`` found elements or features that are not finite.

    ``state`` has the sums of ``WriteFeatures``, ``dtype`` is the type of features.
    """
    refuse_bad(state, source)
    if state["outside"][0]:
        require_finite(np.inf, source.name, dtype.name)


def trace_error(state: State) -> float:
    """Share of the trace of similarities that features do not capture, from the sums of ``WriteFeatures``.

    It is negative if features exceed the trace, which happens beyond rounding only for a kernel function that
    is not positive definite.
    """
    own, captured = (float(state[name][0]) for name in ("own", "captured"))
    size = abs(own) or captured
    error = (own - captured) / size if size > 0 else 0.0
    return error if error < -NOTABLE else max(error, 0.0)


def features_of(
    grains: list[Rows], points: Points, resident: list[tuple[Rows, Float64]] | None
) -> list[Float64]:
    """Features (rows, k) of each set of prepared rows in ``grains``.

    ``resident`` are the points with their coefficients, by blocks; None to read them once, block by block.
    """
    made = [np.zeros((len(rows.squares), points.coefficients.shape[1])) for rows in grains]
    for others, coefficients in points.each() if resident is None else resident:
        for rows, features in zip(grains, made, strict=True):
            multiply(rows, others, similarity=points.choice.similarity, v=coefficients, out=features)
    with np.errstate(over="ignore", invalid="ignore"):
        for features in made:
            features *= points.weights
            features -= points.offset
    return made


def warm_similarities(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the compiled loop of the kernel of ``request`` once; a caller's own is compiled already."""
    _warm_similarities(str(request["kernel"]))


@functools.cache
def _warm_similarities(kernel: str) -> None:
    import scipy.linalg

    x = Rows(np.zeros((2, 2)), np.zeros(2))
    if kernel in KINDS:
        evaluate(x, x, similarity=Similarity(int(KINDS[kernel])), out=np.empty((2, 2)))
    scipy.linalg.eigh(np.eye(2), subset_by_index=(0, 1))
    np.linalg.eigh(np.eye(2))
