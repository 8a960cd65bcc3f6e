"""Protocols of files that can only be read from their beginning, as an import sees them.

A ``RowReader`` yields rows, an ``EntryReader`` the stored values of a sparse matrix. Both are read once,
in blocks whose memory the caller sets, and report their progress.

An ``Archive`` is a matrix that is first unpacked to a plain file, of which any part can then be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.source import Source


class Entries(NamedTuple):
    """Stored values of a sparse matrix, with indices of their rows and columns: three vectors (count,)."""

    rows: npt.NDArray[Any]
    columns: npt.NDArray[Any]
    values: npt.NDArray[Any]


class MatrixFile(Protocol):
    """What readers of rows and of entries have in common: facts about the file."""

    @property
    def name(self) -> str:
        """Name of the file in messages."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values in the blocks."""

    @property
    def total_bytes(self) -> int:
        """Bytes to read in all, of which readers yield the number read so far with each block."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the owner of the file: how it was understood where it was ambiguous."""


class RowReader(MatrixFile, Protocol):
    """A dense matrix that is read row by row."""

    @property
    def columns(self) -> int:
        """Number of columns."""

    def blocks(self, memory_bytes: int) -> Iterator[tuple[npt.NDArray[Any], int]]:
        """Yield arrays (rows, columns) from first to last, each with the bytes read so far.

        Reading a block takes about ``memory_bytes``; bytes read are those of ``total_bytes``. A block is
        valid until the next is read. Raises ``ChunkError`` for a damaged file and ``DataError`` for text that
        is no number.
        """


@runtime_checkable
class EntryReader(MatrixFile, Protocol):
    """A sparse matrix whose stored values are read in the order of the file."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def entry_count(self) -> int:
        """Approximate number of stored values."""

    @property
    def in_row_order(self) -> bool:
        """True if row indices never decrease from entry to entry, and each block holds whole rows."""

    def blocks(self, memory_bytes: int) -> Iterator[tuple[Entries, int]]:
        """Yield blocks of stored values, with checked indices, each with the bytes read so far.

        Reading a block takes about ``memory_bytes``; bytes read are those of ``total_bytes``.
        """


# Unpacked first -----------------------------------------------------------------------------------


COPY_BYTES = 2**20


@runtime_checkable
class Archive(Protocol):
    """A matrix that can only be read forward, and not by rows."""

    @property
    def name(self) -> str:
        """Name of the file in messages."""

    @property
    def total_bytes(self) -> int:
        """Bytes of the plain file, once unpacked."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the owner of the file: how it was understood where it was ambiguous."""

    def unpack(self, folder: Path, progress: Callable[[int], None]) -> Source:
        """Unpack the matrix to a file in ``folder``, and open that.

        ``progress`` is called with the number of bytes written so far.
        """


def copy_stream(file: IO[bytes], target: Path, progress: Callable[[int], None], *, most: int) -> None:
    """Copy the remaining bytes of ``file`` to a new file; ``ValueError`` if there are more than ``most``.

    ``progress`` is called with the number of bytes copied so far.
    """
    byte_count = 0
    with open(target, "wb") as out:
        while piece := file.read(COPY_BYTES):
            byte_count += len(piece)
            if byte_count > most:
                raise ValueError(f"it holds more than the {most} bytes that its header promises")
            out.write(piece)
            progress(byte_count)


def write_columns_header(out: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, int]) -> None:
    """Write the header of a ``.npy`` file of ``shape`` in Fortran order, whose values follow by columns."""
    header = {"descr": dtype.str, "fortran_order": True, "shape": shape}
    np.lib.format.write_array_header_2_0(out, header)
