"""A SciPy sparse array or matrix as a ``Source``: what is read is filled in with zeros."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from rankfold.pipeline.blocks import Grid
from rankfold.pipeline.source import Span
from rankfold.pipeline.sources.matrix import native, require_matrix


@dataclass(frozen=True, slots=True, eq=False)
class SparseSource:
    """A compressed matrix in memory."""

    matrix: Any
    """Compressed by rows, without duplicates."""

    @property
    def name(self) -> str:
        """What messages call it: type and shape."""
        return f"sparse {self.dtype} {self.shape}"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.matrix.shape
        return rows, columns

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return native(self.matrix.dtype)

    @property
    def format(self) -> str:
        """Where it lies."""
        return "SciPy sparse array"

    @property
    def codec(self) -> str:
        """Never compressed."""
        return "none"

    @property
    def row_grid(self) -> Grid:
        """One piece that can be cut anywhere."""
        return Grid.regular(self.shape[0], self.shape[0], splittable=True)

    @property
    def column_grid(self) -> Grid:
        """One piece that can be cut anywhere, at the cost of a look at every row."""
        return Grid.regular(self.shape[1], self.shape[1], splittable=True)

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        """Fill ``out`` with ``self[rows, columns]``; see ``Source``."""
        part = self.matrix[slice(*rows), slice(*columns)]
        if out.flags.c_contiguous or out.flags.f_contiguous:
            part.toarray(out=out)
        else:
            np.copyto(out, part.toarray())

    def read_bytes(self, rows: int, columns: int) -> int:
        """The part that is cut out, and its dense copy where the buffer has gaps."""
        return rows * columns * self.dtype.itemsize + min(rows * columns, int(self.matrix.nnz)) * 16

    def check(self) -> None:
        """Nothing can be wrong with it."""

    def fingerprint(self) -> str:
        """Digest of type, shape and content."""
        digest = hashlib.blake2b(f"csr {self.dtype.str} {self.shape}".encode(), digest_size=16)
        for part in (self.matrix.indptr, self.matrix.indices, self.matrix.data):
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    def stored_bytes(self) -> int:
        """Bytes on disk: none."""
        return 0


def sparse_source(x: Any) -> SparseSource:
    """A sparse matrix, checked, compressed by rows, and without duplicates."""
    require_matrix(f"sparse {x.format}", x.shape, x.dtype)
    compressed = scipy.sparse.csr_array(x)
    if not compressed.has_canonical_format:
        compressed = compressed.copy()
        compressed.sum_duplicates()
    return SparseSource(compressed)
