"""Protocols of files that can only be read from their beginning, as an import sees them.

A ``RowReader`` gives rows, an ``EntryReader`` the stored numbers of a sparse matrix. Both are read once,
in blocks whose memory the caller sets, and report their progress.

An ``Archive`` is a matrix that is first unpacked to a plain file, which can then be read at any place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.source import Source


class Entries(NamedTuple):
    """Stored numbers of a sparse matrix."""

    rows: npt.NDArray[Any]
    columns: npt.NDArray[Any]
    values: npt.NDArray[Any]


class MatrixFile(Protocol):
    """Facts that readers of rows and of entries give of a file."""

    @property
    def name(self) -> str:
        """Name of the file in messages."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers in the blocks."""

    @property
    def total_bytes(self) -> int:
        """Bytes to read in all; each block reports how many are done."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Decisions about the file that its owner should know."""


class RowReader(MatrixFile, Protocol):
    """A dense matrix that is read row by row."""

    @property
    def columns(self) -> int:
        """Numbers in a row."""

    def blocks(self, memory_bytes: int) -> Iterator[tuple[npt.NDArray[Any], int]]:
        """Yield blocks of rows from first to last, and bytes done; a block is valid until the next is read.

        Raises ``ChunkError`` for a damaged file and ``DataError`` for text that is no number.
        """


@runtime_checkable
class EntryReader(MatrixFile, Protocol):
    """A sparse matrix whose stored numbers are read in the order of the file."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def entry_count(self) -> int:
        """Approximate number of stored numbers."""

    @property
    def in_row_order(self) -> bool:
        """True if rows never decrease, and a block holds whole rows."""

    def blocks(self, memory_bytes: int) -> Iterator[tuple[Entries, int]]:
        """Yield blocks of stored numbers, with checked indices, and bytes done."""


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
        """Bytes of the plain file."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Decisions about the file that its owner should know."""

    def unpack(self, folder: Path, progress: Callable[[int], None]) -> Source:
        """Write the plain file into ``folder`` and open it; calls ``progress`` with the bytes done."""


def copy_stream(file: IO[bytes], target: Path, progress: Callable[[int], None], *, most: int) -> None:
    """Copy the rest of ``file`` to ``target``; ``ValueError`` for more than ``most`` bytes."""
    byte_count = 0
    with open(target, "wb") as out:
        while piece := file.read(COPY_BYTES):
            byte_count += len(piece)
            if byte_count > most:
                raise ValueError(f"it holds more than the {most} bytes that its header promises")
            out.write(piece)
            progress(byte_count)


def write_columns_header(out: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, int]) -> None:
    """Begin a ``.npy`` file whose numbers follow column by column."""
    header = {"descr": dtype.str, "fortran_order": True, "shape": shape}
    np.lib.format.write_array_header_2_0(out, header)
