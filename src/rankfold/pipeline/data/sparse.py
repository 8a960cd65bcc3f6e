"""Stored numbers of a sparse matrix as they are, for those who can do without the zeros."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.data.source import Source


@dataclass(frozen=True, slots=True)
class Csr:
    """Some lines of a sparse matrix, compressed: rows, or columns where those lie together."""

    indptr: npt.NDArray[np.integer[Any]]
    """(lines + 1,) where each line begins, from 0."""

    indices: npt.NDArray[np.integer[Any]]
    """Place of every number in its line, checked; of the type of ``indptr``."""

    data: npt.NDArray[Any]
    """The numbers. A place that comes twice means the sum."""


@runtime_checkable
class CompressedSource(Source, Protocol):
    """A ``Source`` whose stored numbers can be had without the zeros between them."""

    @property
    def by(self) -> str:
        """``rows`` or ``columns``: the lines that lie together."""

    @property
    def nnz(self) -> int:
        """Stored numbers."""

    def read_sparse(self, lines: Span) -> Csr:
        """Lines ``start:stop``, not to be written to: they may be the caller's own. Thread-safe.

        Raises ``ChunkError`` for pointers that decrease and for places outside the matrix.
        """

    def sparse_bytes(self, numbers: int) -> int:
        """Most memory that reading so many takes besides themselves."""


def index_dtype(lines: int, across: int, numbers: int) -> np.dtype[Any]:
    """The narrower type that holds all pointers and places of a sparse matrix.

    >>> index_dtype(10, 10, 50).name, index_dtype(10, 10, 2**31).name
    ('int32', 'int64')
    """
    return np.dtype(np.int32 if max(lines, across, numbers) < 2**31 else np.int64)
