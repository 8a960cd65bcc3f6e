"""A matrix on disk or in memory, behind one small protocol.

Whoever sweeps over a matrix sees only this: its shape and type, how it is chunked, and
``read_into`` a buffer that the caller owns and uses again. A source is a description that pickles
(a path, never an open store), so a task may carry it to another process.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.blocks import Grid

Span = tuple[int, int]
"""First and one past the last index along an axis."""


@runtime_checkable
class Source(Protocol):
    """What a sweep needs to know of a matrix."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows (samples) and columns (features)."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements as stored, in native byte order."""

    @property
    def row_grid(self) -> Grid:
        """Native chunks along the rows."""

    @property
    def column_grid(self) -> Grid:
        """Native chunks along the columns."""

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``.

        ``out`` has the shape of the selection and the type ``dtype``; its rows are contiguous but
        may lie apart. Raises ``ChunkError`` for a chunk that is missing, truncated or damaged. Safe
        to call from several threads at once.
        """

    def read_bytes(self, rows: int, columns: int) -> int:
        """Most memory one ``read_into`` of that many rows and columns takes besides ``out``."""

    def check(self) -> None:
        """Raise ``ChunkError`` for what can be found wrong without reading the data."""

    def fingerprint(self) -> str:
        """Digest that changes when the data may have changed: metadata, chunk sizes and times."""
