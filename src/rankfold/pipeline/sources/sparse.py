"""A SciPy sparse array or matrix as a ``Source``: what is read is filled in with zeros."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from rankfold.pipeline.source import Span
from rankfold.pipeline.sources.matrix import require_matrix
from rankfold.pipeline.sources.memory import InMemory


@dataclass(frozen=True, slots=True, eq=False)
class SparseSource(InMemory):
    """A compressed matrix in memory."""

    array: Any
    """Compressed by rows, without duplicates."""

    @property
    def name(self) -> str:
        """What messages call it: type and shape."""
        return f"sparse {self.dtype} {self.shape}"

    @property
    def format(self) -> str:
        """Where it lies."""
        return "SciPy sparse array"

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        """Fill ``out`` with ``self[rows, columns]``; see ``Source``."""
        part = self.array[slice(*rows), slice(*columns)]
        if out.flags.c_contiguous or out.flags.f_contiguous:
            part.toarray(out=out)
        else:
            np.copyto(out, part.toarray())

    def read_bytes(self, rows: int, columns: int) -> int:
        """The part that is cut out, and its dense copy where the buffer has gaps."""
        return rows * columns * self.dtype.itemsize + min(rows * columns, int(self.array.nnz)) * 16

    def fingerprint(self) -> str:
        """Digest of type, shape and content."""
        digest = hashlib.blake2b(f"csr {self.dtype.str} {self.shape}".encode(), digest_size=16)
        for part in (self.array.indptr, self.array.indices, self.array.data):
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()


def sparse_source(x: Any) -> SparseSource:
    """A sparse matrix, checked, compressed by rows, and without duplicates."""
    require_matrix(f"sparse {x.format}", x.shape, x.dtype)
    compressed = scipy.sparse.csr_array(x)
    if not compressed.has_canonical_format:
        compressed = compressed.copy()
        compressed.sum_duplicates()
    return SparseSource(compressed)
