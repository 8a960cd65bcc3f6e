"""A matrix that does not exist, or not yet: enough of it to plan with.

A result that does not exist, or not yet: enough of it to plan tasks that use it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.encoding import CODEC_BYTES, decoder_bytes
from rankfold.pipeline.chunks.reads import SCRATCH_BYTES
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.formats.csr import entry_bytes, spread_bytes
from rankfold.pipeline.formats.zarr.source import OVERHEAD_BYTES
from rankfold.pipeline.storage.result import Result

VECTOR_BYTES = OVERHEAD_BYTES + SCRATCH_BYTES
"""Upper bound on the bytes that reading an uncompressed vector takes in addition to the vector."""


@dataclass(frozen=True, slots=True)
class ShapeOnly:
    """A ``Source`` that has shape, type and chunks, but no values: reading it is an error."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    row_grid: Grid
    column_grid: Grid
    name: str = ""
    decoded: bool = True
    """True if reading takes memory besides the buffer that is read into."""

    @classmethod
    def plain(
        cls, shape: tuple[int, int], dtype: np.dtype[Any], name: str = "", *, decoded: bool = True
    ) -> ShapeOnly:
        """A matrix that can be read at any place: uncompressed, or in small chunks if ``decoded``."""
        rows, columns = (Grid.regular(length, length, splittable=True) for length in shape)
        return cls(shape, dtype, rows, columns, name, decoded)

    @classmethod
    def with_chunks(
        cls, shape: tuple[int, int], dtype: np.dtype[Any], chunks: tuple[int, int], name: str = ""
    ) -> ShapeOnly:
        """A matrix in chunks of so many rows and columns, which are decoded whole."""
        rows, columns = (
            Grid.regular(length, chunk, splittable=False) for length, chunk in zip(shape, chunks, strict=True)
        )
        return cls(shape, dtype, rows, columns, name)

    @classmethod
    def sparse(
        cls, shape: tuple[int, int], dtype: np.dtype[Any], name: str = "", *, decoded: bool = True
    ) -> ShapeOnly:
        """A matrix stored by rows (CSR), whose number of stored entries is not known."""
        return cls(shape, dtype, *_grids_by_rows(shape), name, decoded)

    def read_bytes(self, rows: int, columns: int) -> int:
        """Bytes that reading a block of this size would take in addition to its buffer."""
        if self.column_grid.scattered:
            return VECTOR_BYTES + CODEC_BYTES * self.decoded + spread_bytes(rows)
        return 2 * rows * columns * self.dtype.itemsize if self.decoded else 0

    def read_into(self, out: Any, rows: Any, columns: Any) -> None:
        """Raise ``TypeError``: a plan reads nothing."""
        raise TypeError("a plan reads nothing")

    def check(self) -> None:
        """No-op: there is nothing to check."""

    def fingerprint(self) -> str:
        """Empty: it has no contents."""
        return ""


@dataclass(frozen=True, slots=True)
class StoredOnly(ShapeOnly):
    """A sparse matrix stored by rows that has shape, type and a largest number of entries, but no values."""

    nnz: int = 0
    """Largest number of stored entries."""

    by: str = "rows"

    @classmethod
    def of(
        cls, shape: tuple[int, int], dtype: np.dtype[Any], nnz: int, name: str = "", *, decoded: bool = True
    ) -> StoredOnly:
        """A sparse matrix stored by rows with at most ``nnz`` entries."""
        return cls(shape, dtype, *_grids_by_rows(shape), name, decoded, nnz)

    def pointers(self, top: int, bottom: int) -> npt.NDArray[np.int64]:
        """Number of entries before each row from ``top`` to ``bottom``, counted from row 0 of the matrix.

        (bottom - top + 1,), as if all rows had equally many entries.
        """
        lines = np.arange(top, bottom + 1, dtype=np.float64)
        return (lines * (self.nnz / self.shape[0])).round().astype(np.int64)

    def read_sparse(self, lines: Any) -> Any:
        """Raise ``TypeError``: a plan reads nothing."""
        raise TypeError("a plan reads nothing")

    def sparse_bytes(self, numbers: int) -> int:
        """Bytes that reading ``numbers`` stored entries would take in addition to them."""
        own = decoder_bytes("blosc", self.nnz * self.dtype.itemsize) if self.decoded else 0
        return VECTOR_BYTES + own + entry_bytes(self.shape[0], numbers)


def _grids_by_rows(shape: tuple[int, int]) -> tuple[Grid, Grid]:
    rows, columns = (Grid.regular(length, length, splittable=axis == 0) for axis, length in enumerate(shape))
    return rows, dataclasses.replace(columns, scattered=True)


class ImaginedResult(Result):
    """A result that does not exist yet: its path, shapes of its matrices, and facts that are known.

    Its only arrays are those that were measured for the preparation steps of its matrix (``prepare=``).
    """

    def __init__(
        self,
        path: Path,
        facts: Mapping[str, Any],
        matrices: Mapping[str, ShapeOnly],
        fitted: Mapping[str, npt.NDArray[Any]] | None = None,
    ) -> None:
        self._path, self._in_memory, self._facts = path, False, dict(facts)
        self._matrices, self._fitted = matrices, dict(fitted or {})

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the arrays that are known."""
        return iter(self._fitted)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """A known array, by its name."""
        return self._fitted[name]

    def matrix(self, name: str) -> Source:
        """Stand-in, of shape and type alone, for the matrix of the result that has that name."""
        return self._matrices[name]

    def require_whole(self, *, sums: bool = False) -> None:
        """No-op: there is nothing yet that could be damaged."""
