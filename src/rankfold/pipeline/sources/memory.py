"""A NumPy array as a ``Source``. Pickling one ships the numbers: tasks should carry paths instead."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.mixing import LANES, mix_words
from rankfold.pipeline.blocks import Grid
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.source import Span
from rankfold.pipeline.sources.matrix import native, require_matrix

DIGEST_BYTES = 4 * 2**20
"""Rows are hashed in blocks of this size, so that no second copy of the matrix is ever made."""


class InMemory:
    """What matrices in memory share, dense or sparse."""

    __slots__ = ()
    array: Any

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.array.shape
        return rows, columns

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements in native byte order."""
        return native(self.array.dtype)

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
        """One piece that can be cut anywhere."""
        return Grid.regular(self.shape[1], self.shape[1], splittable=True)

    def check(self) -> None:
        """Nothing can be wrong with it."""

    def stored_bytes(self) -> int:
        """Bytes on disk: none."""
        return 0


@dataclass(frozen=True, slots=True, eq=False)
class ArraySource(InMemory):
    """A matrix in memory, in any order and byte order."""

    array: npt.NDArray[Any]

    @property
    def name(self) -> str:
        """What messages call it: type and shape."""
        return f"array {self.dtype} {self.shape}"

    @property
    def format(self) -> str:
        """Where it lies."""
        return "NumPy array"

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``; see ``Source``."""
        np.copyto(out, self.array[slice(*rows), slice(*columns)])

    def read_bytes(self, rows: int, columns: int) -> int:
        """Nothing: the copy goes from one array to the other."""
        return 0

    def fingerprint(self) -> str:
        """Digest of type, shape and content; order in memory does not matter."""
        digest = hashlib.blake2b(f"{self.dtype.str} {self.shape}".encode(), digest_size=16)
        step = max(1, DIGEST_BYTES // (self.shape[1] * self.dtype.itemsize))
        lanes = np.arange(LANES, dtype=np.uint64)
        for top in range(0, self.shape[0], step):
            part = np.ascontiguousarray(self.array[top : top + step], self.dtype).reshape(-1).view(np.uint8)
            whole = len(part) - len(part) % 8
            mix_words(part[:whole].view(np.uint64), lanes=lanes)
            digest.update(part[whole:].data)
        digest.update(lanes.data)
        return digest.hexdigest()

    def lend(self, rows: Span, columns: Span) -> npt.NDArray[Any] | None:
        """``self[rows, columns]`` where it lies, if row by row, native, and open to compiled loops."""
        if self.array.flags.c_contiguous and self.array.flags.writeable and self.array.dtype.isnative:
            return self.array[slice(*rows), slice(*columns)]
        return None


def array_source(array: npt.NDArray[Any]) -> ArraySource:
    """A matrix in memory, checked."""
    if isinstance(array, np.ma.MaskedArray):
        raise InputError("a masked array has gaps, which would be taken for numbers; pass x.filled(value)")
    require_matrix("array", array.shape, array.dtype)
    return ArraySource(np.asarray(array))
