"""Scratch matrices: intermediate matrices of few columns on disk, written once and read twice.

Each is a flat file addressed by row. So the sweep that reads it may be cut into other pieces than the sweep
that wrote it, and a piece that is repeated after a kill writes the same bytes to the same position.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import DamagedStateError
from rankfold.pipeline.regular import open_descriptor
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.checkpoint import disk_errors, note_written

Array = npt.NDArray[Any]

NOWHERE = Path("-")
"""Placeholder path that no sweep writes to, for planning folds."""


@dataclass(frozen=True, slots=True)
class ScratchMatrix:
    """A (rows, columns) matrix in one flat file, in C order."""

    path: Path
    rows: int
    columns: int
    dtype: np.dtype[Any]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.columns * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return self.rows * self.row_bytes

    def write(self, start: int, values: Array) -> None:
        """Write ``values`` (r, columns) to rows ``start:start + r``.

        They are C-contiguous, of type ``dtype``, and may be empty.
        """
        if not values.size:
            return
        with disk_errors(self.path):
            if self.path.is_dir():
                remove(self.path)
            file = open_descriptor(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
            try:
                _write_all(file, memoryview(values.data).cast("B"), start * self.row_bytes)
            finally:
                os.close(file)
        note_written(self.path, start * self.row_bytes, values)

    def read_into(self, out: Array, start: int) -> None:
        """Fill C-contiguous ``out`` (r, columns) with rows ``start:start + r``."""
        try:
            file = open_descriptor(self.path)
            try:
                _read_all(file, memoryview(out.data).cast("B"), start * self.row_bytes, self.path)
            finally:
                os.close(file)
        except FileNotFoundError as error:
            raise DamagedStateError(self.path, "is missing") from error
        except OSError as error:  # ESTALE: it was replaced, on a network file system
            raise DamagedStateError(self.path, f"cannot be read ({error.strerror})") from error

    def remove(self) -> None:
        """Remove the file."""
        remove(self.path)

    def load(self) -> Array:
        """Read the whole matrix into a new array (rows, columns)."""
        out = np.empty((self.rows, self.columns), self.dtype)
        self.read_into(out, 0)
        return out


def _write_all(file: int, data: memoryview, offset: int) -> None:
    while len(data):
        count = os.pwrite(file, data, offset)
        data, offset = data[count:], offset + count


def _read_all(file: int, data: memoryview, offset: int, path: Path) -> None:
    while len(data):
        read = os.preadv(file, [data], offset)
        if not read:
            raise DamagedStateError(path, "has lost its end")
        data, offset = data[read:], offset + read
