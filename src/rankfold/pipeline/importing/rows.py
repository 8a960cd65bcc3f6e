"""Write the rows of a ``RowReader`` in order to a new Zarr array.

The number of rows is often known only at the end, so chunks are those for a tall matrix. A matrix that turns
out to be wide is then copied once more into chunks that suit it.

``GrowingArray`` is a Zarr array whose length is known only when its last row is written.

Rows are collected until chunks side by side are full, so every chunk is written once and whole. The array is
declared with a length beyond any real one; in the end its chunk files are moved under metadata with the
right length: Zarr's own ``resize`` lists every chunk that might exist.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.dtypes import convert_into
from rankfold.pipeline.durable import rename
from rankfold.pipeline.errors import DataError, MemoryBudgetError, memory_argument
from rankfold.pipeline.formats.zarr.layout import source_at
from rankfold.pipeline.importing.chunking import (
    PLAIN,
    SAMPLE_BYTES,
    WRITE_COPIES,
    WRITE_OVERHEAD,
    Codec,
    chunks_of,
    codec_for,
)
from rankfold.pipeline.importing.readers.reader import RowReader
from rankfold.pipeline.importing.tiles import (
    Copy,
    Ticker,
    copy_tiles,
    create,
    data_bytes,
    plan_tiles,
    require_room,
)
from rankfold.pipeline.removal import remove
from rankfold.pipeline.units import format_bytes

ENDLESS = 2**40
"""Declared length of an array that is still growing."""

Settle = Callable[[int], tuple[int, ...]]
"""Function from the final length of an array to its chunks, for arrays shorter than one chunk."""


class GrowingArray:
    """Zarr array in ``folder`` to which rows are appended; its codec is chosen by the first rows written.

    Parameters
    ----------
    folder : Path
        Folder of the array, which exists once ``finish`` was called.
    dtype : dtype
        Type of its elements.
    chunks : tuple of int
        Shape of a chunk; as many rows are buffered as it has.
    tail : tuple of int
        Lengths of all axes but the first: empty for a vector, (columns,) for a matrix.
    settle : function
        Gives other chunks for an array that turns out to be shorter than one of ``chunks``.
    """

    def __init__(
        self,
        folder: Path,
        dtype: np.dtype[Any],
        chunks: tuple[int, ...],
        tail: tuple[int, ...],
        settle: Settle,
    ) -> None:
        self.folder, self.dtype, self.chunks, self.tail = folder, dtype, chunks, tail
        self.settle = settle
        self.buffer = np.empty((chunks[0], *tail), dtype)
        self.fill = self.length = 0
        self.codec = PLAIN
        self.array: Any = None

    def append(self, block: npt.NDArray[Any], where: str) -> None:
        """Add rows, converted to the type of the array; ``where`` names them in errors."""
        start = 0
        while start < len(block):
            take = min(len(self.buffer) - self.fill, len(block) - start)
            convert_into(self.buffer[self.fill : self.fill + take], block[start : start + take], where)
            self.fill, self.length, start = self.fill + take, self.length + take, start + take
            if self.fill == len(self.buffer):
                self._flush()

    def finish(self) -> None:
        """Write buffered rows, and set the length of the array."""
        if self.array is None:
            self.chunks = self.settle(self.length)
            self.codec = self._choose_codec()
            self.array = create(self.folder, self._shape(self.length), self.dtype, self.chunks, self.codec)
            self._write(0)
            return
        self._write(self.length - self.fill)
        growing = self.folder.with_name(f"{self.folder.name}.growing")
        create(self.folder, self._shape(self.length), self.dtype, self.chunks, self.codec)
        rename(growing / "c", self.folder / "c")
        remove(growing)

    def _flush(self) -> None:
        if self.array is None:
            self.codec = self._choose_codec()
            growing = self.folder.with_name(f"{self.folder.name}.growing")
            self.array = create(growing, self._shape(ENDLESS), self.dtype, self.chunks, self.codec)
        self._write(self.length - self.fill)
        self.fill = 0

    def _write(self, top: int) -> None:
        """Write the buffered rows from row ``top`` of the array on, chunk by chunk.

        Zarr would otherwise encode all chunks side by side at once.
        """
        for start in range(0, self.fill, self.chunks[0]):
            rows = slice(start, min(self.fill, start + self.chunks[0]))
            there = slice(top + rows.start, top + rows.stop)
            if not self.tail:
                self.array[there] = self.buffer[rows]
                continue
            for left in range(0, self.tail[0], self.chunks[1]):
                columns = slice(left, min(self.tail[0], left + self.chunks[1]))
                self.array[there, columns] = self.buffer[rows, columns]

    def _choose_codec(self) -> Codec:
        row = max(1, self.buffer[:1].nbytes)
        middle = max(0, self.fill // 2 - SAMPLE_BYTES // row // 2)
        return codec_for(np.ascontiguousarray(self.buffer[middle : self.fill][: max(1, SAMPLE_BYTES // row)]))

    def _shape(self, length: int) -> tuple[int, ...]:
        return (length, *self.tail)


# Rows into a store --------------------------------------------------------------------------------


BAND_SHARE = 4
"""Divisor of the memory: the rows being collected, and the reader that yields them, get this share each."""


def copy_rows(
    reader: RowReader,
    folder: Path,
    dtype: np.dtype[Any],
    *,
    memory_bytes: int,
    chunk_bytes: int,
    ticker: Ticker,
) -> Copy:
    """Write all rows of a reader, in type ``dtype``, into the new array ``folder / "array"``.

    ``memory_bytes`` bounds the memory of buffers, reader and encoder, ``chunk_bytes`` is the size that chunks
    are to have.
    """
    chunks = _band_chunks(reader.name, reader.columns, dtype, memory_bytes, chunk_bytes)
    growing = GrowingArray(
        folder / "array",
        dtype,
        chunks,
        (reader.columns,),
        lambda rows: chunks_of((max(rows, 1), reader.columns), dtype, chunk_bytes),
    )
    for block, count in reader.blocks(memory_bytes // BAND_SHARE):
        first = growing.array is None
        growing.append(block, f"{reader.name}, rows {growing.length}:{growing.length + len(block)}")
        if first and growing.array is not None:
            _require_space(growing, folder, min(1.0, count / max(1, reader.total_bytes)), reader.name)
        ticker.at(count)
    if not growing.length:
        raise DataError(f"{reader.name} holds no rows of numbers, so there is nothing to import")
    growing.finish()
    source = source_at(str(folder / "array"), "", missing="error")
    whole = Copy(source, growing.codec, data_bytes(source), source.stored_bytes())
    if source.shape[0] >= source.shape[1] or growing.chunks == chunks_of(source.shape, dtype, chunk_bytes):
        ticker.at(reader.total_bytes)
        return whole
    return _turn(whole, folder, memory_bytes, chunk_bytes, ticker)


def _turn(tall: Copy, folder: Path, memory_bytes: int, chunk_bytes: int, ticker: Ticker) -> Copy:
    """Copy the matrix ``tall``, in ``folder / "array"``, once more, into chunks that suit a wide matrix.

    The returned ``Copy`` counts the bytes of both copies.
    """
    rename(folder / "array", folder / "rows")
    source = source_at(str(folder / "rows"), "", missing="error")
    plan = plan_tiles(source, folder, memory_bytes, chunk_bytes)
    ticker.total += plan.ticks
    copy = copy_tiles(plan, folder, ticker)
    return Copy(
        copy.source,
        copy.codec,
        tall.bytes_read + copy.bytes_read,
        tall.bytes_written + copy.bytes_written,
    )


def _band_chunks(
    name: str, columns: int, dtype: np.dtype[Any], memory_bytes: int, chunk_bytes: int
) -> tuple[int, int]:
    """Shape (rows, columns) of the chunks for a matrix of ``columns`` columns and an unknown number of rows.

    The chunks side by side fit into their share of the memory. ``name`` is that of the file in the message of
    ``MemoryBudgetError``, raised if not even a row fits.
    """
    row = columns * dtype.itemsize
    room = memory_bytes - WRITE_OVERHEAD
    height, width = chunks_of((ENDLESS, columns), dtype, min(chunk_bytes, room // (4 * WRITE_COPIES)))
    height = min(height, room // BAND_SHARE // row)
    if height < 1:
        need = BAND_SHARE * row + WRITE_OVERHEAD
        raise MemoryBudgetError(
            f"a row of {name} takes {format_bytes(row)}, and import holds about {BAND_SHARE} of them, but is "
            f"given {format_bytes(memory_bytes)}. Give it "
            f"{memory_argument(need)}"
        )
    return height, min(width, columns)


def _require_space(growing: GrowingArray, folder: Path, share: float, name: str) -> None:
    """Raise ``DiskSpaceError`` if the remaining rows of the file ``name`` will not fit on the disk.

    They are estimated from the bytes written so far, for ``share`` of the file.
    """
    size = growing.length * growing.buffer[:1].nbytes / growing.codec.ratio
    require_room(int(size / max(share, 1e-9) - size), folder, name)
