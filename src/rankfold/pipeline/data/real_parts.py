"""A complex matrix as a real one, with real and imaginary parts side by side, called parts.

Sums over the rows of that real matrix give those of the complex one. Its product with the ``expand``-ed form
of another complex matrix holds the parts of the complex product. So everything that sweeps over a matrix
handles complex ones as well, at the cost of complex products: four real ones.

With X = a + i b, Y = p + i q in pairs of columns (a, b), (p, q), and Q = c + i d:

    X Q   is   (a, b) [ c  d ]      and   X^H Y = (a'p + b'q) + i (a'q - b'p)
                      [-d  c ]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.data.grid import Even, Grid
from rankfold.pipeline.data.source import Source, Wrapper
from rankfold.pipeline.data.view import Orientation

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Complex128 = npt.NDArray[np.complex128]


@dataclass(frozen=True, slots=True)
class RealParts(Wrapper):
    """A complex matrix (m, n) as a real one: (m, 2 n), with real and imaginary columns in turn.

    If it is read along its columns (``orientation``): (2 m, n), with real and imaginary rows in turn.
    """

    inner: Source
    orientation: Orientation

    @property
    def format(self) -> str:
        """Kind of store."""
        return str(getattr(self.inner, "format", type(self.inner).__name__))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the real matrix: the axis of the parts has twice the length."""
        rows, columns = self.inner.shape
        return (rows, 2 * columns) if self._by_rows else (2 * rows, columns)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the parts."""
        return parts_dtype(self.inner.dtype)

    @property
    def row_grid(self) -> Grid:
        """Chunks along the rows."""
        return self.inner.row_grid if self._by_rows else _whole(self.shape[0])

    @property
    def column_grid(self) -> Grid:
        """Chunks along the columns."""
        return _whole(self.shape[1]) if self._by_rows else self.inner.column_grid

    @property
    def _by_rows(self) -> bool:
        return self.orientation is Orientation.ROWS

    def read_into(self, out: Array, rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``; both parts of a complex number are read together."""
        if self._by_rows:
            first, last = columns[0] // 2, -(-columns[1] // 2)
            parts = self._read(rows, (first, last)).view(self.dtype)
            out[...] = parts[:, columns[0] - 2 * first : columns[1] - 2 * first]
            return
        first, last = rows[0] // 2, -(-rows[1] // 2)
        numbers = self._read((first, last), columns)
        parts = np.stack([numbers.real, numbers.imag], axis=1).reshape(-1, numbers.shape[1])
        out[...] = parts[rows[0] - 2 * first : rows[1] - 2 * first]

    def _read(self, rows: Span, columns: Span) -> Array:
        numbers = np.empty((rows[1] - rows[0], columns[1] - columns[0]), self.inner.dtype)
        self.inner.read_into(numbers, rows, columns)
        return numbers

    def read_bytes(self, rows: int, columns: int) -> int:
        """Upper bound on the bytes of one ``read_into`` in addition to ``out``.

        That is what the matrix takes, complex numbers, and by columns also copies of parts.
        """
        rows, columns = (rows, columns // 2 + 1) if self._by_rows else (rows // 2 + 1, columns)
        copies = 1 if self._by_rows else 2
        return self.inner.read_bytes(rows, columns) + copies * rows * columns * self.inner.dtype.itemsize

    def place(self, row: int, column: int) -> tuple[int, int]:
        """Row and column, in the complex matrix, of the number whose part is at ``row``, ``column``."""
        return (row, column // 2) if self._by_rows else (row // 2, column)

    def lend(self, rows: Span, columns: Span) -> Array | None:
        """Whole rows ``rows`` of parts, as a view of the caller's memory; None if that is not possible.

        It is for a matrix in memory that has its parts in turn along rows.
        """
        lend = getattr(self.inner, "lend", None)
        if lend is None or not self._by_rows or columns != (0, self.shape[1]):
            return None
        numbers: Array | None = lend(rows, (0, self.inner.shape[1]))
        return None if numbers is None else numbers.view(self.dtype)

    def fingerprint(self) -> str:
        """Fingerprint of the complex matrix."""
        return self.inner.fingerprint()


@dataclass(frozen=True, slots=True)
class Expanded(Wrapper):
    """A complex matrix (n, b) in expanded form, real (2 n, 2 b): see ``expand``."""

    inner: Source

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.inner.shape
        return 2 * rows, 2 * columns

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the parts."""
        return parts_dtype(self.inner.dtype)

    @property
    def row_grid(self) -> Grid:
        """Native chunks along the rows."""
        return _twice_as_long(self.inner.row_grid)

    @property
    def column_grid(self) -> Grid:
        """Native chunks along the columns."""
        return _twice_as_long(self.inner.column_grid)

    def read_into(self, out: Array, rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``."""
        (top, bottom), (left, right) = ((start // 2, -(-stop // 2)) for start, stop in (rows, columns))
        numbers = np.empty((bottom - top, right - left), self.inner.dtype)
        self.inner.read_into(numbers, (top, bottom), (left, right))
        first, start = rows[0] - 2 * top, columns[0] - 2 * left
        out[...] = expand(numbers)[first : first + out.shape[0], start : start + out.shape[1]]

    def read_bytes(self, rows: int, columns: int) -> int:
        """Upper bound on the bytes of one ``read_into`` in addition to ``out``.

        That is what the matrix takes, complex numbers, and their expanded form in float64.
        """
        height, width = rows // 2 + 2, columns // 2 + 2
        return self.inner.read_bytes(height, width) + height * width * (self.inner.dtype.itemsize + 4 * 8)

    def fingerprint(self) -> str:
        """Fingerprint of the complex matrix."""
        return self.inner.fingerprint()


def _twice_as_long(grid: Grid) -> Grid:
    cuts = grid.cuts
    twice = Even(2 * cuts.length, 2 * cuts.chunk) if isinstance(cuts, Even) else 2 * cuts
    return Grid(twice, grid.splittable, grid.scattered)


def _whole(length: int) -> Grid:
    """Grid of the axis of the parts, as one chunk: it is always read whole."""
    return Grid.regular(length, length, splittable=True)


def is_complex(source: Source) -> bool:
    """True if a matrix is a real one that stands for a complex one, of its parts."""
    return isinstance(source, RealParts)


def matrix_of_parts(source: Source) -> Source:
    """The complex matrix that a matrix of parts stands for; any other matrix itself."""
    return source.inner if isinstance(source, RealParts) else source


# Small matrices -----------------------------------------------------------------------------------


def expand(q: Array) -> Float64:
    """Real (2 n, 2 b) from complex (n, b): parts (m, 2 n) times it are the parts of the complex product.

    A real matrix is returned unchanged.
    """
    if not np.iscomplexobj(q):
        return q
    out = np.empty((2 * len(q), 2 * q.shape[1]))
    out[::2, ::2] = out[1::2, 1::2] = q.real
    out[::2, 1::2] = q.imag
    np.negative(q.imag, out=out[1::2, ::2])
    return out


def parts_of(vector: Array) -> Float64:
    """Real (2 b,) from complex (b,): real and imaginary parts in turn; a real vector unchanged."""
    if not np.iscomplexobj(vector):
        return vector
    return np.ascontiguousarray(vector, np.complex128).view(np.float64)


def twice(vector: Array, *, paired: bool) -> Array:
    """Real (2 b,) from real (b,) if ``paired``: each value twice, for both parts; else unchanged."""
    return np.repeat(vector, 2) if paired else vector


def numbers_of_parts(parts: Array, *, paired: bool) -> Array:
    """Complex (r, b) from parts (r, 2 b), or complex (b,) from parts (2 b,); unchanged unless ``paired``."""
    if not paired:
        return parts
    return np.ascontiguousarray(parts).view(numbers_dtype(parts.dtype, paired=True))


def parts_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Type of the parts of complex numbers; a real type unchanged."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def numbers_dtype(dtype: np.dtype[Any], *, paired: bool) -> np.dtype[Any]:
    """Complex type whose parts have type ``dtype``; ``dtype`` itself unless ``paired``."""
    return np.result_type(dtype, np.complex64) if paired else dtype


def collapse(products: Array, *, paired: bool) -> Array:
    """Complex ``X^H Y``, (n, b), from the real product of parts, X' Y, (2 n, 2 b).

    Unchanged unless ``paired``.
    """
    if not paired:
        return products
    out = np.empty((len(products) // 2, products.shape[1] // 2), np.complex128)
    np.add(products[::2, ::2], products[1::2, 1::2], out=out.real)
    np.subtract(products[::2, 1::2], products[1::2, ::2], out=out.imag)
    return out
