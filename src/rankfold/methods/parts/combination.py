"""Combinations of narrow matrices on scratch: ``[Y_1 ... Y_t] C - 1 o'``, followed by Gaussian columns.

Scratch is intermediate files of a run. Folds over such a combination form its rows whenever they need them:
one sums the Gram matrix of its columns in float64, one finds its R factor by a tree of Householder
factorizations, and one writes rows of a factor as whole chunks of the result, each once and by one task.

A panel is the rows that fill whole chunks, a grain the rows of one product.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.gaussian import gaussian_rows
from rankfold.kernels.linear.products import add_gram, mirror_bytes, product, weigh
from rankfold.kernels.linear.qr import merge_r, panel_r
from rankfold.methods.random_keys import Purpose
from rankfold.pipeline.engine.blocks import Cut, grains
from rankfold.pipeline.engine.fold import Buffer, Constant, DeclaredFold, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.chunk_writer import write_long_rows
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Combination:
    """Matrix ``[Y_1 ... Y_t] C - 1 o'``, then Gaussian columns; its rows are formed when they are read."""

    parts: tuple[ScratchMatrix, ...]
    """The matrices Y on scratch, (long, b) each."""

    constants: Path
    """Path of a checkpoint file with ``coefficients`` C (sum of widths of the Y, columns) and ``offset`` o
    (columns,)."""

    columns: int
    """Number of columns of C."""

    random: int
    """Number of Gaussian columns, in place of directions in which the matrix is zero."""

    seed: int
    """Key of the Gaussian columns."""

    @property
    def width(self) -> int:
        """Number of columns of the combination, with Gaussian ones."""
        return self.columns + self.random

    @property
    def row_bytes(self) -> int:
        """Bytes of scratch that one row is formed from."""
        return sum(part.row_bytes for part in self.parts)

    @property
    def working_row_bytes(self) -> int:
        """Bytes of buffers for one row: as read, in float64, combined, and copied by LAPACK."""
        widest = max(part.columns for part in self.parts)
        return max(part.row_bytes for part in self.parts) + 8 * widest + 4 * 8 * self.width

    def buffers(self, rows: int) -> dict[str, Buffer]:
        """Working arrays by name, to form ``rows`` rows at a time.

        ``y`` holds rows of one Y as read and ``y64`` in float64, (rows, largest b); ``product`` (rows,
        columns) is their product with C, ``combined`` (rows, width) the rows formed. ``coefficients`` and
        ``offset`` are constants.
        """
        widest = max(self.parts, key=lambda part: part.columns)
        total = sum(part.columns for part in self.parts)
        return {
            "y": Buffer((rows, widest.columns), widest.dtype),
            "y64": Buffer((rows, widest.columns)),
            "product": Buffer((rows, self.columns)),
            "combined": Buffer((rows, self.width)),
            "coefficients": Constant((total, self.columns), part=self.constants),
            "offset": Constant((self.columns,), part=self.constants),
        }

    @property
    def temporary_bytes(self) -> int:
        """Bytes that drawing Gaussian columns takes besides the buffers."""
        return 8 * 1024 * self.random

    def rows(self, work: Workspace, start: int, stop: int) -> Float64:
        """Form rows ``start:stop``, (stop - start, width), in a buffer of ``work``, which is returned."""
        count = stop - start
        out: Float64 = work.combined[:count]
        out[:, : self.columns] = -work.offset
        edges = itertools.accumulate((part.columns for part in self.parts), initial=0)
        for part, (top, end) in zip(self.parts, itertools.pairwise(edges), strict=True):
            y = work.y.reshape(-1)[: count * part.columns].reshape(count, part.columns)
            y64 = work.y64.reshape(-1)[: count * part.columns].reshape(count, part.columns)
            work.device.fill(y, functools.partial(part.read_into, start=start))
            np.copyto(y64, y)
            product(y64, work.coefficients[top:end], out=work.product[:count])
            out[:, : self.columns] += work.product[:count]
        if self.random:
            random_columns = gaussian_rows(self.seed, Purpose.COMPLETION, (start, stop), self.random)
            out[:, self.columns :] = work.device.place(random_columns, random_columns.dtype)
        return out


class OverCombination(DeclaredFold):
    """Base class of folds over the rows of a combination, read from scratch."""

    __slots__ = ()
    combination: Combination
    cut: Cut

    @property
    def grain_rows(self) -> int:
        """Largest number of rows of a grain."""
        return min(self.cut.grain_rows, self.cut.panel_rows)

    @property
    def longest_side(self) -> int:
        """Largest number of rows of an operand of BLAS: those of a grain, with an R factor above them."""
        return self.grain_rows + self.combination.width

    @property
    def operand_bytes(self) -> int:
        """Bytes of the largest operand of a product: combined rows, rows of one Y, or all coefficients."""
        columns = [part.columns for part in self.combination.parts]
        rows = self.longest_side * max(self.combination.width, *columns)
        return 8 * max(rows, sum(columns) * self.combination.columns)

    def buffers(self) -> Mapping[str, Buffer]:
        """Working arrays to form one grain of the combination: see ``Combination.buffers``."""
        return self.combination.buffers(self.grain_rows)

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides buffers and sums: those that forming rows takes."""
        return self.combination.temporary_bytes

    @property
    def device_bytes(self) -> int:
        """Upper bound on the bytes on a GPU, with those in which the Gram matrix of a grain is formed."""
        return super().device_bytes + 8 * self.combination.width**2 + mirror_bytes(self.combination.width)


@dataclass(frozen=True, slots=True)
class NarrowGram(OverCombination):
    """Fold that sums the Gram matrix of a combination's columns over all rows."""

    combination: Combination
    cut: Cut
    row_seconds: float
    slots: int = 1

    kernels = (gaussian_rows, product, add_gram)

    def sums(self) -> Mapping[str, Sum]:
        """The sum ``gram`` (width, width): the Gram matrix of the combination's columns."""
        return {"gram": Sum((self.combination.width,) * 2)}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides buffers and sums: of forming rows, and of the Gram matrix of a grain."""
        return self.combination.temporary_bytes + 8 * self.combination.width**2

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Add the Gram matrix of rows ``start:stop`` to ``state["gram"]``, grain by grain."""
        for first, last in grains(start, stop, self.cut.grain_rows):
            rows = self.combination.rows(work, first, last)
            add_gram(rows, total=state["gram"])


# R factor -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NarrowR(OverCombination):
    """Fold that finds the R factor of a combination by a tree of Householder factorizations."""

    combination: Combination
    cut: Cut
    row_seconds: float
    slots: int = 1

    kernels = (gaussian_rows, product, panel_r, merge_r)

    def sums(self) -> Mapping[str, Sum]:
        """The sum ``r`` (width, width): R factor of the rows so far; those of two streams are merged."""
        return {"r": Sum((self.combination.width,) * 2, join=merge_r)}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides buffers and sums: copies that LAPACK makes of what it factorizes.

        That is rows of a grain, or R factors that are merged.
        """
        rows, width = self.grain_rows, self.combination.width
        copies = max(2 * 8 * rows * width, (1 + 3 * 2) * 8 * width**2)
        return self.combination.temporary_bytes + copies

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Replace ``state["r"]`` by the R factor of its rows and rows ``start:stop``, grain by grain."""
        for first, last in grains(start, stop, self.cut.grain_rows):
            state["r"] = merge_r(state["r"], panel_r(self.combination.rows(work, first, last)))


@dataclass(frozen=True, slots=True)
class WriteRows(OverCombination):
    """Fold that writes ``(combination @ rotation) * weights``, and sums its Gram matrix before weights."""

    combination: Combination
    cut: Cut
    """Cut of the rows into panels that are whole chunks of the array."""

    constants: Path
    """Path of a checkpoint file with ``rotation`` (width, k) and ``weights`` (k,)."""

    array: Path
    """Path of the Zarr array to write, (rows, k), or (k, rows) if ``transposed``."""

    transposed: bool
    dtype: np.dtype[Any]
    rank: int
    """Number k of columns to write."""

    row_seconds: float
    slots: int = 1

    kernels = (gaussian_rows, product, add_gram, weigh)

    def buffers(self) -> Mapping[str, Buffer]:
        """Working arrays by name, with those of the combination.

        ``rotation`` (width, k) and ``weights`` (k,) are constants, ``factor`` (grain rows, k) a grain of the
        factor before weights, ``out`` (panel rows, k) the chunks to write, transposed if these are.
        """
        tall, rank = self.cut.panel_rows, self.rank
        return {
            **OverCombination.buffers(self),
            "rotation": Constant((self.combination.width, rank), part=self.constants),
            "weights": Constant((rank,), part=self.constants),
            "factor": Buffer((self.grain_rows, rank)),
            "out": Buffer((rank, tall) if self.transposed else (tall, rank), self.dtype),
        }

    def sums(self) -> Mapping[str, Sum]:
        """The sum ``gram`` (k, k): Gram matrix of the factor ``combination @ rotation``, before weights."""
        return {"gram": Sum((self.rank, self.rank))}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides buffers and sums: of forming rows, a Gram matrix, and a copy of chunks."""
        chunks = self.cut.panel_rows * self.rank * self.dtype.itemsize
        return self.combination.temporary_bytes + 8 * self.rank**2 + chunks

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Form rows ``start:stop``, add to the Gram matrix in ``state``, and write them as whole chunks."""
        out = work.out.T if self.transposed else work.out
        for first, last in grains(start, stop, self.cut.grain_rows):
            factor = work.factor[: last - first]
            product(self.combination.rows(work, first, last), work.rotation, out=factor)
            add_gram(factor, total=state["gram"])
            weigh(factor, work.weights, out=out[first - start : last - start])
        write = functools.partial(
            write_long_rows, self.array, start=start, stop=stop, transposed=self.transposed
        )
        work.device.send(work.out, write)
