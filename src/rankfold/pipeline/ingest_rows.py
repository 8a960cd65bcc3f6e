"""Write the rows of a ``RowReader`` as they come.

How many there will be is often known at the end only, so chunks are as for a tall matrix. One that turns
out to be wide is then copied once more into chunks that suit it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rankfold.pipeline.errors import DataError, MemoryBudgetError
from rankfold.pipeline.growing import ENDLESS, GrowingArray
from rankfold.pipeline.ingest_layout import WRITE_COPIES, WRITE_OVERHEAD, chunks_of
from rankfold.pipeline.ingest_place import require_room
from rankfold.pipeline.ingest_tiles import Copied, Ticker, copy_tiles, data_bytes, plan_tiles
from rankfold.pipeline.readers.reader import RowReader
from rankfold.pipeline.sources.zarr_layout import source_at
from rankfold.pipeline.units import format_bytes

BAND_SHARE = 4
"""The rows being collected take at most this part of the memory, and so does what reads them."""


def copy_rows(
    reader: RowReader,
    folder: Path,
    dtype: np.dtype[Any],
    *,
    memory_bytes: int,
    chunk_bytes: int,
    ticker: Ticker,
) -> Copied:
    """Make ``folder / "array"`` of all the rows."""
    chunks = _band_chunks(reader.name, reader.columns, dtype, memory_bytes, chunk_bytes)
    growing = GrowingArray(
        folder / "array",
        dtype,
        chunks,
        (reader.columns,),
        lambda rows: chunks_of((max(rows, 1), reader.columns), dtype, chunk_bytes),
    )
    for block, done in reader.blocks(memory_bytes // BAND_SHARE):
        first = growing.array is None
        growing.append(block, f"{reader.name}, rows {growing.length}:{growing.length + len(block)}")
        if first and growing.array is not None:
            _require_space(growing, folder, min(1.0, done / max(1, reader.total_bytes)), reader.name)
        ticker.at(done)
    if not growing.length:
        raise DataError(f"{reader.name} holds no rows of numbers, so there is nothing to import")
    growing.finish()
    made = source_at(str(folder / "array"), "", missing="error")
    whole = Copied(made, growing.codec, data_bytes(made), made.stored_bytes())
    if made.shape[0] >= made.shape[1] or growing.chunks == chunks_of(made.shape, dtype, chunk_bytes):
        ticker.at(reader.total_bytes)
        return whole
    return _turned(whole, folder, memory_bytes, chunk_bytes, ticker)


def _turned(tall: Copied, folder: Path, memory_bytes: int, chunk_bytes: int, ticker: Ticker) -> Copied:
    """The same matrix in chunks for one that is wide."""
    (folder / "array").rename(folder / "rows")
    source = source_at(str(folder / "rows"), "", missing="error")
    plan = plan_tiles(source, folder, memory_bytes, chunk_bytes)
    ticker.total += plan.ticks
    copied = copy_tiles(plan, folder, ticker)
    return Copied(
        copied.made,
        copied.codec,
        tall.bytes_read + copied.bytes_read,
        tall.bytes_written + copied.bytes_written,
    )


def _band_chunks(
    name: str, columns: int, dtype: np.dtype[Any], memory_bytes: int, chunk_bytes: int
) -> tuple[int, int]:
    """Chunks of a matrix of many rows, a line of which fits into its share of the memory."""
    row = columns * dtype.itemsize
    room = memory_bytes - WRITE_OVERHEAD
    height, width = chunks_of((ENDLESS, columns), dtype, min(chunk_bytes, room // (4 * WRITE_COPIES)))
    height = min(height, room // BAND_SHARE // row)
    if height < 1:
        need = BAND_SHARE * row + WRITE_OVERHEAD
        raise MemoryBudgetError(
            f"a row of {name} takes {format_bytes(row)}, and import holds about {BAND_SHARE} of them, but is "
            f"given {format_bytes(memory_bytes)}. Give it --memory {-(-need // 2**20)}MiB"
        )
    return height, min(width, columns)


def _require_space(growing: GrowingArray, folder: Path, share: float, name: str) -> None:
    """Raise if the rest will not fit, going by how much of the file made what is written so far."""
    written = growing.length * growing.buffer[:1].nbytes / growing.codec.ratio
    require_room(int(written / max(share, 1e-9) - written), folder, name)
