"""Write arrays of a result: metadata, and whole chunks directly into their files.

Results are uncompressed, so a chunk is its values in C order; the last one along an axis is padded with
zeros. Zarr's own writer takes four times as long for the same bytes: it copies them, and reopens the array.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.regular import open_regular, read_bounded, read_json
from rankfold.pipeline.storage.checkpoint import atomic_file, make_folder, note_written

if TYPE_CHECKING:
    import zarr

Array = npt.NDArray[Any]
Span = tuple[int, int]
Lengths = tuple[int, ...]


def create_array(
    group: Path,
    name: str,
    shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    chunks: tuple[int, ...],
    dimensions: tuple[str, ...],
) -> Path:
    """Make an empty, uncompressed array in the folder of a group; returns the folder of the array.

    ``dimensions`` are the names of its axes.

    Chunks that an earlier attempt at the result wrote are kept.
    """
    return _describe(group / name, shape, dtype, chunks, dimensions)


def create_vector(path: Path, length: int, dtype: npt.DTypeLike, chunk: int) -> None:
    """Make an empty, uncompressed vector in the folder ``path``; chunks of an earlier attempt are kept.

    ``chunk`` is the length of its chunks.
    """
    _describe(path, (length,), dtype, (min(chunk, length),), None)


def create_matrix(path: Path, shape: tuple[int, int], dtype: npt.DTypeLike, chunks: tuple[int, int]) -> None:
    """Make an empty, uncompressed matrix as a store at ``path``; chunks of an earlier attempt are kept."""
    _describe(path, shape, dtype, chunks, ("row", "column"))


def _describe(
    path: Path,
    shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    chunks: tuple[int, ...],
    names: tuple[str, ...] | None,
) -> Path:
    """Write the metadata of an array into its folder, unless they are there already; returns the folder.

    ``chunks`` is the shape of a chunk, ``names`` are those of the axes, or None.
    """
    text, file = _description(shape, np.dtype(dtype).str, chunks, names), path / "zarr.json"
    with contextlib.suppress(OSError):
        if read_bounded(file) == text:
            return path
    make_folder(path)
    with atomic_file(file, durable=False) as out:
        out.write(text)
    return path


@functools.lru_cache(maxsize=256)
def _description(
    shape: tuple[int, ...], dtype: str, chunks: tuple[int, ...], names: tuple[str, ...] | None
) -> bytes:
    """Bytes of ``zarr.json`` of an array, made by Zarr in memory: Zarr would also search a folder."""
    import zarr

    memory: dict[str, Any] = {}
    zarr.create_array(
        zarr.storage.MemoryStore(memory),
        shape=shape,
        dtype=dtype,
        chunks=chunks,
        compressors=None,
        fill_value=0,
        dimension_names=names,
        zarr_format=3,
        config={"write_empty_chunks": True},
    )
    return bytes(memory["zarr.json"].to_bytes())


def open_to_write(path: Path) -> zarr.Array[Any]:
    """Open an array of a result for writing through Zarr, which then writes also chunks of zeros.

    So a missing chunk of a result always indicates damage.
    """
    from rankfold.pipeline.chunks.regular_store import zarr_array

    # The trap: a reopened array has lost the config that it was created with.
    return zarr_array(path, mode="r+").with_config({"write_empty_chunks": True})


def write_whole_chunks(path: Path, block: Array, *spans: Span) -> None:
    """Write a block into whole chunks of an array in ``path``, which a function of this module made.

    ``spans`` are the (start, stop) of the block in the array along each axis. For a complex array, a real
    block holds real and imaginary parts in turn along the last axis, and its last span counts these parts.
    Spans that are not whole chunks are a bug, and an error.
    """
    shape, chunk, dtype = _layout(path, (path / "zarr.json").stat().st_mtime_ns)
    if dtype.kind == "c" and block.dtype.kind == "f":
        block = np.ascontiguousarray(block, f"f{dtype.itemsize // 2}").view(dtype)
        spans = (*spans[:-1], (spans[-1][0] // 2, spans[-1][1] // 2))
    for (start, stop), height, length in zip(spans, chunk, shape, strict=True):
        if start % height or (stop % height and stop != length):
            raise AssertionError(f"{start}:{stop} are not whole chunks of {height}")
    edges = [range(start, stop, height) for (start, stop), height in zip(spans, chunk, strict=True)]
    for corner in itertools.product(*edges):
        offsets = [at - start for at, (start, _) in zip(corner, spans, strict=True)]
        part = block[tuple(slice(at, at + size) for at, size in zip(offsets, chunk, strict=True))]
        if part.shape != chunk or not part.flags.c_contiguous or part.dtype != dtype:
            whole = np.zeros(chunk, dtype)
            whole[tuple(map(slice, part.shape))] = part
            part = whole
        file = path.joinpath("c", *(str(at // size) for at, size in zip(corner, chunk, strict=True)))
        make_folder(file.parent)
        with atomic_file(file, durable=False) as out:
            out.write(part.data)
        note_written(file, 0, part)


def read_array(path: Path) -> Array:
    """Read the whole array in the folder ``path``, which ``write_whole_chunks`` wrote, into memory."""
    shape, chunk, dtype = _layout(path, (path / "zarr.json").stat().st_mtime_ns)
    out = np.zeros(shape, dtype)
    corners = [range(0, length, size) for length, size in zip(shape, chunk, strict=True)]
    for corner in itertools.product(*corners):
        file = path.joinpath("c", *(str(at // size) for at, size in zip(corner, chunk, strict=True)))
        part = out[tuple(slice(at, at + size) for at, size in zip(corner, chunk, strict=True))]
        with open_regular(file) as chunk_file:
            numbers = np.fromfile(chunk_file, dtype)
        part[...] = numbers.reshape(chunk)[tuple(map(slice, part.shape))]
    return out


def write_long_rows(path: Path, block: Array, start: int, stop: int, *, transposed: bool) -> None:
    """Write the first ``stop - start`` rows of a block (rows, k) to rows ``start:stop`` of an array.

    If ``transposed``, block and array have the rows along their second axis: the block is (k, rows). For a
    complex array, the block holds real and imaginary parts in turn along k.
    """
    count = stop - start
    if not transposed:
        write_whole_chunks(path, block[:count], (start, stop), (0, block.shape[1]))
        return
    block, dtype = block[:, :count], _layout(path, (path / "zarr.json").stat().st_mtime_ns)[2]
    if dtype.kind == "c":
        numbers = np.empty((len(block) // 2, count), dtype)
        numbers.real, numbers.imag = block[::2], block[1::2]
        block = numbers
    write_whole_chunks(path, block, (0, len(block)), (start, stop))


@functools.lru_cache(maxsize=64)
def _layout(path: Path, modified: int) -> tuple[Lengths, Lengths, np.dtype[Any]]:
    """Shape, chunk shape and type of an array, from its metadata.

    ``modified``, the time of change of the metadata in nanoseconds, only keys the cache.

    Checks that its chunks are uncompressed values in native byte order.
    """
    facts = read_json(path / "zarr.json")
    codec, *others = facts["codecs"]
    little = codec.get("configuration", {}).get("endian", sys.byteorder)  # single bytes have none
    if others or codec["name"] != "bytes" or little != sys.byteorder:
        raise AssertionError(f"chunks of {path} are not plain numbers: {facts['codecs']}")
    chunk = facts["chunk_grid"]["configuration"]["chunk_shape"]
    return tuple(facts["shape"]), tuple(chunk), np.dtype(facts["data_type"])


def nodes_of(path: Path, group: zarr.Array[Any] | zarr.Group) -> dict[str, zarr.Array[Any] | zarr.Group]:
    """Arrays and groups in ``group``, which was opened from ``path``, by name; an array is its own ``X``.

    Raises the error of the first one that cannot be opened.
    """
    import zarr

    if isinstance(group, zarr.Array):
        return {"X": group}
    if group.metadata.consolidated_metadata:
        return dict(sorted(group.members()))
    # One by one: ``members`` silently leaves out damaged ones.
    return {name: group[name] for name in sorted(one.parent.name for one in path.glob("*/zarr.json"))}
