"""Fold that writes rows of a factor as whole chunks of the result, each once and by one task.

A panel is the rows that fill whole chunks, a grain the rows of one product.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.gaussian import gaussian_rows
from rankfold.kernels.linear.products import add_gram, product, weigh
from rankfold.methods.parts.combination import Combination, OverCombination
from rankfold.pipeline.engine.blocks import Cut, grains
from rankfold.pipeline.engine.fold import Buffer, Constant, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.chunk_writer import write_long_rows

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class WriteRows(OverCombination):
    """Fold that writes ``(combination @ rotation) * weights`` and sums up the Gram matrix before weights."""

    combination: Combination
    cut: Cut
    """Panels are whole chunks of the array."""

    constants: Path
    """Path of a checkpoint file with ``rotation`` (width, k) and ``weights`` (k,)."""

    array: Path
    """The Zarr array to write, (rows, k), or (k, rows) if ``transposed``."""

    transposed: bool
    dtype: np.dtype[Any]
    rank: int
    row_seconds: float
    slots: int = 1

    kernels = (gaussian_rows, product, add_gram, weigh)

    def buffers(self) -> Mapping[str, Buffer]:
        """Buffers of the combination; rotation (width, k), weights (k,), a grain of the factor; chunks."""
        tall, rank = self.cut.panel_rows, self.rank
        return {
            **OverCombination.buffers(self),
            "rotation": Constant((self.combination.width, rank), part=self.constants),
            "weights": Constant((rank,), part=self.constants),
            "factor": Buffer((self.grain_rows, rank)),
            "out": Buffer((rank, tall) if self.transposed else (tall, rank), self.dtype),
        }

    def sums(self) -> Mapping[str, Sum]:
        """Gram matrix (k, k) of the factor ``combination @ rotation``, before weights."""
        return {"gram": Sum((self.rank, self.rank))}

    @property
    def temporary_bytes(self) -> int:
        """Bytes that the combination takes besides its buffers, of a Gram matrix, and of a copy of chunks."""
        chunks = self.cut.panel_rows * self.rank * self.dtype.itemsize
        return self.combination.temporary_bytes + 8 * self.rank**2 + chunks

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Form rows ``start:stop`` and write them as whole chunks."""
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
