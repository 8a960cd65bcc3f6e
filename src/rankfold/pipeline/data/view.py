"""A matrix seen as long x short: sweeps run along the long axis, be it the rows or the columns.

A sweep is one run through the matrix, a panel at a time: rows (or columns) that are in memory together. A
tall matrix is swept by rows, a wide one by columns, which is a sweep over the rows of its transpose. These
rows are called long rows. Nothing is transposed in memory: a panel of columns is read in the layout of the
source, (samples, some features), and BLAS is told that it is the transpose of what the method sees.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import aligned_empty
from rankfold.pipeline.data.dtypes import note_digits
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError

Array = npt.NDArray[Any]


class Orientation(enum.Enum):
    """The axis along which a sweep runs."""

    ROWS = "rows"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class View:
    """A matrix and the axis along which it is swept, the long one."""

    source: Source
    orientation: Orientation
    device: str = "cpu"
    """Kind of device on which sweeps run, which decides how they are cut into pieces."""

    precision: np.dtype[Any] | None = None
    """Type to compute in, if the caller requested one; None chooses it by the type of the source."""

    @property
    def long(self) -> int:
        """Length of the axis that is swept."""
        return self.source.shape[0 if self.orientation is Orientation.ROWS else 1]

    @property
    def short(self) -> int:
        """Length of the other axis: of a long row, and of basis vectors that are kept in memory."""
        return self.source.shape[1 if self.orientation is Orientation.ROWS else 0]

    @property
    def grid(self) -> Grid:
        """Native chunks along the long axis."""
        rows = self.orientation is Orientation.ROWS
        return self.source.row_grid if rows else self.source.column_grid

    @property
    def dtype(self) -> np.dtype[Any]:
        """Working type: float32 or float64."""
        return self.precision or working_dtype(self.source.dtype)

    def panel_buffer(self, long_rows: int, dtype: np.dtype[Any]) -> Array:
        """Allocate a buffer for a panel of ``long_rows`` long rows: see ``panel_shape``."""
        return aligned_empty(self.panel_shape(long_rows), dtype)

    def panel_shape(self, long_rows: int) -> tuple[int, int]:
        """Shape of a panel of so many long rows: (long_rows, short), or (short, long_rows) by columns."""
        return (long_rows, self.short) if self.orientation is Orientation.ROWS else (self.short, long_rows)

    def part(self, panel: Array, start: int, stop: int) -> Array:
        """View of long rows ``start:stop`` of a panel buffer, counted in the buffer, in its layout."""
        return panel[start:stop] if self.orientation is Orientation.ROWS else panel[:, start:stop]

    def as_rows(self, part: Array) -> Array:
        """View of a part of a panel as (long rows, short): it is transposed if these are columns."""
        return part if self.orientation is Orientation.ROWS else part.T

    def read(self, panel: Array, start: int, stop: int) -> None:
        """Read long rows ``start:stop`` of the matrix into the first long rows of a panel buffer."""
        part = self.part(panel, 0, stop - start)
        whole = (0, self.short)
        if self.orientation is Orientation.ROWS:
            self.source.read_into(part, (start, stop), whole)
        else:
            self.source.read_into(part, whole, (start, stop))
        note_digits(self.source.name, part)

    def lend(self, start: int, stop: int) -> Array | None:
        """Long rows ``start:stop`` as a view of the caller's memory, which must not be written to.

        None if the matrix is not in memory.
        """
        lend = getattr(self.source, "lend", None)
        if lend is None:
            return None
        spans = ((start, stop), (0, self.short))
        block: Array | None = lend(*(spans if self.orientation is Orientation.ROWS else spans[::-1]))
        if block is not None:
            note_digits(self.source.name, block)
        return block

    def read_bytes(self, long_rows: int) -> int:
        """Upper bound on the bytes that a read of so many long rows takes in addition to the panel buffer."""
        if self.orientation is Orientation.ROWS:
            return self.source.read_bytes(long_rows, self.short)
        return self.source.read_bytes(self.short, long_rows)


def working_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Type to compute in: float32 for float16 and types that float32 holds exactly, float64 for wider types.

    >>> [working_dtype(np.dtype(t)).name for t in ("f2", "f4", "f8", "u1", "i2", "i4")]
    ['float32', 'float32', 'float64', 'float32', 'float32', 'float64']
    """
    if dtype.kind == "c":
        raise InputError(
            f"elements are {dtype}: svd, pca, qr and what goes on with their results take complex numbers, "
            "other methods real ones. Give the real part, or absolute values"
        )
    if dtype.kind not in "fiub" or dtype.itemsize > 8:
        raise InputError(f"elements are {dtype}: rankfold reduces floats, integers and booleans")
    narrow = dtype.itemsize <= 4 if dtype.kind == "f" else dtype.itemsize <= 2
    return np.dtype(np.float32 if narrow else np.float64)
