"""Choose the chunks and the codec of a new store, and the tiles by which a matrix is copied into it.

A tile is a block of whole chunks of the new store, which one thread holds in memory. If a chunk of the source
can only be decoded as a whole, it is decoded again for every tile that overlaps it, so tiles extend along the
chunks of the source as far as memory allows.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.grid import Even, Grid
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import working_dtype
from rankfold.pipeline.engine.blocks import grain_rows
from rankfold.pipeline.errors import MemoryBudgetError, memory_argument
from rankfold.pipeline.units import format_bytes

FULL_ROWS = 256
"""Chunks hold full rows (or columns, if shorter) if at least so many fit into ``FULL_ROWS_BYTES``."""

FULL_ROWS_BYTES = 64 * 2**20

SAMPLE_BYTES = 4 * 2**20
"""Largest size in bytes of the block, from the middle of the matrix, that is compressed to choose a codec."""

WORTH_IT = 0.15
"""Least share of the bytes that compression must save; if it saves less, chunks are not compressed."""

DENSE_RATIO = 3.0
"""Compression ratio of lz4 above which zstd is used: bytes are few, and decoding fewer of them saves time."""

STAGING_PAYS = 2.0
"""Average number of times that each element is decoded above which an uncompressed copy is made first.

The copy decodes once and is read once more, which takes less time than decoding three times.
"""

WRITE_COPIES = 3
"""Memory that Zarr takes to write a chunk, as a multiple of its size: cut out, encoded, and encoded into."""

WRITE_OVERHEAD = 8 * 2**20

MOST_THREADS = 8

MOST_TILES = 2**20
"""Largest number of tiles along an axis for which decodings are counted; others are taken to be alike."""


@dataclass(frozen=True, slots=True)
class Codec:
    """Compression of the chunks of the new store."""

    name: str
    """``none``, ``lz4`` or ``zstd``, the last two within Blosc and after a shuffle."""

    level: int
    ratio: float
    """Decoded bytes of the sample per encoded byte."""

    @property
    def words(self) -> str:
        """Name and level as text."""
        return self.name if self.name == "none" else f"blosc({self.name}, {self.level}, shuffle)"


PLAIN = Codec("none", 0, 1.0)


@dataclass(frozen=True, slots=True)
class Chunking:
    """Layout of one copy of a matrix: chunks, tiles (rows, columns), codec, and number of threads."""

    chunks: tuple[int, int]
    tile: tuple[int, int]
    codec: Codec
    threads: int


def chunk_shape(source: Source, chunk_bytes: int) -> tuple[int, int]:
    """Shape (rows, columns) of the chunks of the new store of a matrix, of about ``chunk_bytes`` bytes each.

    See ``chunks_of``.
    """
    return chunks_of(source.shape, source.dtype, chunk_bytes)


def chunks_of(shape: tuple[int, int], dtype: np.dtype[Any], chunk_bytes: int) -> tuple[int, int]:
    """Shape (rows, columns) of the chunks for a matrix of ``shape``, of about ``chunk_bytes`` bytes each.

    They span the whole shorter side if it is short enough. Passes over a matrix run along its longer side.
    The chunks side by side across it hold at most what a pass holds in memory, compressed or not, and a
    multiple of the rows of one matrix product (a grain).
    """
    (rows, columns), itemsize = shape, dtype.itemsize
    long, short = max(rows, columns), min(rows, columns)
    grain = grain_rows(short * working_dtype(dtype).itemsize)
    if FULL_ROWS * short * itemsize <= FULL_ROWS_BYTES:
        height = max(FULL_ROWS, chunk_bytes // (short * itemsize))
        height = min(long, height - height % grain if height > grain else height)
        width = short
    else:
        height = min(long, FULL_ROWS, grain)
        width = -(-short // max(1, -(-short * height * itemsize // chunk_bytes)))
    return (height, width) if rows >= columns else (width, height)


def choose_codec(source: Source, chunks: tuple[int, int]) -> Codec:
    """Choose the codec by compressing a block from the middle of the matrix, at most as large as a chunk.

    ``chunks`` is the shape of a chunk of the new store.
    """
    width = min(chunks[1], max(1, SAMPLE_BYTES // source.dtype.itemsize))
    height = min(chunks[0], max(1, SAMPLE_BYTES // (width * source.dtype.itemsize)))
    top, left = (source.shape[0] - height) // 2, (source.shape[1] - width) // 2
    sample = np.empty((height, width), source.dtype)
    source.read_into(sample, (top, top + height), (left, left + width))
    return codec_for(sample)


def codec_for(sample: npt.NDArray[Any]) -> Codec:
    """Choose the codec by compressing a contiguous sample of the values."""
    import numcodecs  # type: ignore[import-untyped]  # comes with Zarr, has no types

    def ratio(name: str, level: int) -> float:
        codec: Any = numcodecs.Blosc(name, level, numcodecs.Blosc.SHUFFLE)
        return sample.nbytes / len(codec.encode(sample))

    if not sample.nbytes:
        return PLAIN
    fast = ratio("lz4", 5)
    if 1 - 1 / fast < WORTH_IT:
        return PLAIN
    return Codec("zstd", 3, ratio("zstd", 3)) if fast > DENSE_RATIO else Codec("lz4", 5, fast)


def fit_tile(source: Source, chunks: tuple[int, int], codec: Codec, memory_bytes: int) -> Chunking:
    """Choose the shape of a tile, and the number of threads, each of which holds one tile.

    Parameters
    ----------
    source : Source
        The matrix to copy.
    chunks, codec
        Shape of a chunk of the new store, and its compression.
    memory_bytes : int
        Bytes of memory for all threads together. ``MemoryBudgetError`` if not even one chunk fits.
    """
    rows, columns = source.shape
    least = memory_need(source, chunks, chunks)
    if least > memory_bytes:
        raise MemoryBudgetError(
            f"import needs {format_bytes(least)} for a chunk of {chunks[0]} x {chunks[1]} {source.dtype} and "
            f"what reading {source.name} takes, but is given {format_bytes(memory_bytes)}. "
            f"Give it {memory_argument(least)}"
        )
    width = chunks[1]
    while width < columns and memory_need(source, (chunks[0], width + chunks[1]), chunks) <= memory_bytes:
        width += chunks[1]
    height = chunks[0]
    if not source.row_grid.splittable:
        height = _along(source, width, chunks, memory_bytes)
    tile = (min(height, -(-rows // chunks[0]) * chunks[0]), width)
    count = -(-rows // tile[0]) * -(-columns // tile[1])
    threads = min(memory_bytes // memory_need(source, tile, chunks), MOST_THREADS, os.cpu_count() or 1, count)
    return Chunking(chunks, tile, codec, max(1, threads))


def _along(source: Source, width: int, chunks: tuple[int, int], memory_bytes: int) -> int:
    """Rows of a tile of ``width`` columns, so that it ends where chunks of the source end.

    If that takes more than ``memory_bytes``, the most rows that fit, by doubling those of a new chunk.
    """
    even = math.lcm(chunks[0], source.row_grid.longest)
    if memory_need(source, (even, width), chunks) <= memory_bytes:
        return even
    height = chunks[0]
    while height < source.shape[0] and memory_need(source, (2 * height, width), chunks) <= memory_bytes:
        height *= 2
    return height


def staging(source: Source, memory_bytes: int) -> Chunking | None:
    """Layout of an uncompressed copy with the chunks of the source; None if a chunk exceeds the memory."""
    chunks = (source.row_grid.longest, source.column_grid.longest)
    if memory_need(source, chunks, chunks) > memory_bytes:
        return None
    return fit_tile(source, chunks, PLAIN, memory_bytes)


def memory_need(source: Source, tile: tuple[int, int], chunks: tuple[int, int]) -> int:
    """Bytes of memory of one thread that copies a tile into chunks: the tile, reading and writing.

    ``tile`` and ``chunks`` are shapes (rows, columns).
    """
    height, width = min(tile[0], source.shape[0]), min(tile[1], source.shape[1])
    itemsize = source.dtype.itemsize
    writing = WRITE_COPIES * chunks[0] * chunks[1] * itemsize + WRITE_OVERHEAD
    return height * width * itemsize + source.read_bytes(height, width) + writing


def decoded_again(source: Source, tile: tuple[int, int]) -> float:
    """Average number of times that an element of the source is decoded when it is read tile by tile.

    ``tile`` is the shape (rows, columns) of a tile.
    """
    return _axis(source.row_grid, tile[0]) * _axis(source.column_grid, tile[1])


def _axis(grid: Grid, step: int) -> float:
    if grid.splittable:
        return 1.0
    length = min(grid.length, MOST_TILES * step)
    starts = np.arange(0, length, step)
    stops = np.minimum(starts + step, length)
    if isinstance(grid.cuts, Even):
        chunk = grid.cuts.chunk
        first, last = starts // chunk * chunk, np.minimum(-(-stops // chunk) * chunk, grid.length)
    else:
        first = grid.cuts[np.searchsorted(grid.cuts, starts, side="right") - 1]
        last = grid.cuts[np.searchsorted(grid.cuts, stops, side="left")]
    return float((last - first).sum() / length)
