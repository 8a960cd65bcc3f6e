"""Whole chunks of a result, written straight into their files.

Results are uncompressed, so a chunk is its numbers in C order, the last of an axis filled up with zeros.
Zarr's own writer takes four times as long for the same bytes: it copies them, and opens the array anew.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.checkpoint import atomic_file, disk_errors

Array = npt.NDArray[Any]
Span = tuple[int, int]
Lengths = tuple[int, ...]


def write_whole_chunks(path: Path, block: Array, rows: Span, columns: Span) -> None:
    """Write a block of an array that ``result.create_array`` made.

    What is not whole chunks is our own mistake, and refused.
    """
    shape, chunk, dtype = _layout(path, (path / "zarr.json").stat().st_mtime_ns)
    spans = (rows, columns)
    for (start, stop), height, length in zip(spans, chunk, shape, strict=True):
        if start % height or (stop % height and stop != length):
            raise AssertionError(f"{start}:{stop} are not whole chunks of {height}")
    edges = [range(start, stop, height) for (start, stop), height in zip(spans, chunk, strict=True)]
    for top, left in itertools.product(*edges):
        part = block[top - rows[0] :, left - columns[0] :][: chunk[0], : chunk[1]]
        if part.shape != chunk or not part.flags.c_contiguous or part.dtype != dtype:
            whole = np.zeros(chunk, dtype)
            whole[: part.shape[0], : part.shape[1]] = part
            part = whole
        file = path / "c" / str(top // chunk[0]) / str(left // chunk[1])
        with disk_errors(file):
            os.makedirs(file.parent, exist_ok=True)
        with atomic_file(file, durable=False) as out:
            out.write(part.data)


def write_long_rows(path: Path, block: Array, start: int, stop: int, *, transposed: bool) -> None:
    """Write the beginning of a block (rows, k), or (k, rows), as ``start:stop`` of the long side."""
    count = stop - start
    if transposed:
        write_whole_chunks(path, block[:, :count], (0, len(block)), (start, stop))
    else:
        write_whole_chunks(path, block[:count], (start, stop), (0, block.shape[1]))


def write_vector_chunks(path: Path, values: Array, start: int, stop: int) -> None:
    """Write ``start:stop`` of a vector, which are whole chunks of it."""
    shape, chunk, dtype = _layout(path, (path / "zarr.json").stat().st_mtime_ns)
    if start % chunk[0] or (stop % chunk[0] and stop != shape[0]):
        raise AssertionError(f"{start}:{stop} are not whole chunks of {chunk[0]}")
    for top in range(start, stop, chunk[0]):
        part = values[top - start :][: chunk[0]]
        if len(part) != chunk[0] or not part.flags.c_contiguous or part.dtype != dtype:
            whole = np.zeros(chunk[0], dtype)
            whole[: len(part)] = part
            part = whole
        file = path / "c" / str(top // chunk[0])
        with disk_errors(file):
            os.makedirs(file.parent, exist_ok=True)
        with atomic_file(file, durable=False) as out:
            out.write(part.data)


@functools.lru_cache(maxsize=64)
def _layout(path: Path, modified: int) -> tuple[Lengths, Lengths, np.dtype[Any]]:
    """Shape, chunk and type of an array, whose chunks are plain numbers."""
    facts = json.loads((path / "zarr.json").read_text())
    codec, *others = facts["codecs"]
    little = codec.get("configuration", {}).get("endian", sys.byteorder)  # single bytes have none
    if others or codec["name"] != "bytes" or little != sys.byteorder:
        raise AssertionError(f"chunks of {path} are not plain numbers: {facts['codecs']}")
    chunk = facts["chunk_grid"]["configuration"]["chunk_shape"]
    return tuple(facts["shape"]), tuple(chunk), np.dtype(facts["data_type"])
