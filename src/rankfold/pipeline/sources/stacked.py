"""An array of several axes as a matrix: some axes make the rows, the others the columns.

Nothing is copied or reordered first: a rectangle of the matrix is a few boxes of the array, and each is
read straight to where it belongs. Where a span of columns cuts through stacked axes there are up to
``2 n - 1`` boxes for n axes, so whoever reads along the grids reads fewest.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.blocks import Grid
from rankfold.pipeline.source import Span
from rankfold.pipeline.sources.axes import Rows, row_axes
from rankfold.pipeline.sources.matrix import require_matrix
from rankfold.pipeline.sources.volume import Box, Piece, Volume, runs, stack_grids

PIECE_BYTES = 1024
"""Most memory of the views and spans of one box."""


@dataclass(frozen=True, slots=True)
class StackedSource:
    """A volume whose ``row_axes`` and ``column_axes`` are stacked in C order, in the order they are named."""

    volume: Volume
    row_axes: tuple[int, ...]
    column_axes: tuple[int, ...]

    @property
    def name(self) -> str:
        """What messages call it: the array, and its rows where they are not the first of two axes."""
        if self.row_axes == (0,) and self.column_axes == (1,):
            return self.volume.name
        return f"{self.volume.name} by {','.join(self.volume.axes[axis] for axis in self.row_axes)}"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return math.prod(self._lengths(self.row_axes)), math.prod(self._lengths(self.column_axes))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements in native byte order."""
        return self.volume.dtype

    @property
    def path(self) -> str | None:
        """Local file or folder, if it lies in one."""
        return self.volume.path

    @property
    def format(self) -> str:
        """Kind of store, and its axes."""
        axes = zip(self.volume.axes, self.volume.shape, strict=True)
        return f"{self.volume.format}, {' x '.join(f'{axis} {length}' for axis, length in axes)}"

    @property
    def codec(self) -> str:
        """How chunks are compressed."""
        return self.volume.codec

    @property
    def row_grid(self) -> Grid:
        """Chunks along the stacked rows."""
        return stack_grids([self.volume.grids[axis] for axis in self.row_axes])

    @property
    def column_grid(self) -> Grid:
        """Chunks along the stacked columns."""
        return stack_grids([self.volume.grids[axis] for axis in self.column_axes])

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``; see ``Source``."""
        order = np.argsort((*self.row_axes, *self.column_axes)).tolist()
        pieces = []
        for down, (top, bottom) in runs(*rows, self._lengths(self.row_axes)):
            for across, (left, right) in runs(*columns, self._lengths(self.column_axes)):
                spans: Box = (*down, *across)
                part = out[top - rows[0] : bottom - rows[0], left - columns[0] : right - columns[0]]
                # Splitting an axis never copies, whatever the strides.
                view = part.reshape([stop - start for start, stop in spans], copy=False)
                pieces.append(Piece(tuple(spans[axis] for axis in order), view.transpose(order)))
        if pieces:
            self.volume.read_boxes(pieces)

    def read_bytes(self, rows: int, columns: int) -> int:
        """Most memory of one ``read_into`` besides ``out``: that of the volume, and a few views."""
        boxes = (2 * len(self.row_axes) - 1) * max(1, 2 * len(self.column_axes) - 1)
        return self.volume.read_bytes(rows * columns) + boxes * PIECE_BYTES

    def check(self) -> None:
        """Raise ``ChunkError`` for what can be found wrong without reading the data."""
        self.volume.check()

    def fingerprint(self) -> str:
        """Digest of the array and of how its axes are stacked."""
        text = f"{self.volume.fingerprint()} {self.row_axes} {self.column_axes}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def stored_bytes(self) -> int:
        """Bytes on disk."""
        return self.volume.stored_bytes()

    def _lengths(self, axes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.volume.shape[axis] for axis in axes)


def stacked(volume: Volume, rows: Rows) -> StackedSource:
    """A volume as a matrix whose rows are the axes that ``rows`` names, checked."""
    down = row_axes(volume.name, volume.axes, volume.shape, rows)
    across = tuple(axis for axis in range(len(volume.shape)) if axis not in down)
    source = StackedSource(volume, down, across)
    require_matrix(source.name, source.shape, volume.dtype)
    return source
