"""AnnData's HDF5 files: ``X``, or the matrix named after ``::`` as ``layers/counts`` or ``obsm/X_pca``.

https://anndata.readthedocs.io/en/stable/fileformat-prose.html. A dataset is dense, a group is CSR or CSC
by its attributes: see ``formats.hdf5_contents``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.dtypes import native, require_matrix
from rankfold.pipeline.errors import (
    ChunkError,
    InputError,
    MemoryBudgetError,
    RankfoldError,
    SourceNotFoundError,
    memory_argument,
)
from rankfold.pipeline.formats.frame_columns import is_frame_group
from rankfold.pipeline.formats.hdf5 import DAMAGE
from rankfold.pipeline.formats.hdf5_contents import sparse_layout
from rankfold.pipeline.formats.open_files import library, open_hdf5, require_regular_parts
from rankfold.pipeline.importing.readers.compressed import CompressedReader, Vector, require_vectors
from rankfold.pipeline.units import format_bytes

DECODE_FACTOR = 3
"""Memory of reading a block of rows, as a multiple of its size: itself, and chunks being decoded."""


@dataclass(frozen=True, slots=True)
class DatasetReader:
    """Reader of a dense two-dimensional HDF5 dataset, some rows at a time."""

    name: str
    path: str
    key: str
    rows: int
    columns: int
    dtype: np.dtype[Any]
    chunk: tuple[int, int]
    """Rows and columns of a chunk of the dataset, which is decoded as a whole."""

    notes: tuple[str, ...] = field(default=())

    @property
    def total_bytes(self) -> int:
        """Bytes of all values."""
        return self.rows * self.columns * self.dtype.itemsize

    def blocks(self, memory_bytes: int) -> Iterator[tuple[npt.NDArray[Any], int]]:
        """Yield blocks (rows, columns), of whole chunks if these fit into memory, with the bytes read so far.

        ``MemoryBudgetError`` if a chunk does not fit; see ``RowReader``.
        """
        row = self.columns * self.dtype.itemsize
        chunk_bytes = 2 * self.chunk[0] * self.chunk[1] * self.dtype.itemsize
        if chunk_bytes + row > memory_bytes:
            raise MemoryBudgetError(
                f"{self.name} has chunks of {self.chunk[0]} x {self.chunk[1]}, and decoding one takes "
                f"{format_bytes(chunk_bytes)}, but reading is given {format_bytes(memory_bytes)}. Give "
                f"four times as much: {memory_argument(4 * (chunk_bytes + row))}"
            )
        step = max(1, (memory_bytes - chunk_bytes) // (DECODE_FACTOR * row))
        step = step - step % self.chunk[0] if step > self.chunk[0] else step
        with _file(self.path) as file:
            for top in range(0, self.rows, step):
                bottom = min(self.rows, top + step)
                yield _read(file[self.key], top, bottom, self.name), bottom * row


class DatasetVector:
    """One-dimensional HDF5 dataset, read in order; a ``Vector``."""

    def __init__(self, dataset: Any, name: str) -> None:
        self.dataset, self.name = dataset, name

    def take(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Read the elements ``start:stop``, in native byte order."""
        return _read(self.dataset, start, stop, self.name)


def h5ad_reader(path: str, key: str) -> DatasetReader | CompressedReader | None:
    """Reader of the matrix ``key``, a path in the file; ``X`` if it is empty.

    None for a data frame, of which any part can be read.
    """
    key = key or "X"
    name = f"{path}::{key}"
    h5py = library("h5py", extra="formats", what=f"reading {path}")
    with _file(path) as file:
        if key not in file:
            raise SourceNotFoundError(
                f"{path} has no matrix {key}. It holds {', '.join(_matrices(file, h5py))}"
            )
        node = file[key]
        if isinstance(node, h5py.Dataset):
            require_matrix(name, node.shape, node.dtype)
            require_regular_parts(path, node)
            rows, columns = node.shape
            chunk = node.chunks or (1, 1)
            return DatasetReader(name, path, key, rows, columns, native(node.dtype), chunk)
        return None if is_frame_group(node) else _sparse(path, key, node)


def _sparse(path: str, key: str, group: Any) -> CompressedReader:
    name = f"{path}::{key}"
    layout = sparse_layout(group)
    if layout is None or layout.shape is None or not {"data", "indices", "indptr"} <= set(group):
        kind = group.attrs.get("encoding-type", "of no known layout")
        raise InputError(f"{name} is a group ({kind}), not a matrix; name one with ::")
    rows, columns = layout.lengths(name)
    vectors = {part: group[part] for part in ("data", "indices", "indptr")}
    if not all(hasattr(vector, "shape") for vector in vectors.values()):
        raise ChunkError(f"{name} has groups or types for vectors: it is no sparse matrix. Restore the file")
    require_vectors(name, {part: (vector.shape or (), vector.dtype) for part, vector in vectors.items()})
    data, indices, pointers = (group[part].shape[0] for part in ("data", "indices", "indptr"))
    require_matrix(name, (rows, columns), group["data"].dtype)
    by = layout.by
    lines = rows if by == "rows" else columns
    if indices != data or pointers != lines + 1:
        raise ChunkError(
            f"{name}: data has {data} numbers, indices {indices}, indptr {pointers} for {lines} {by}: the "
            "first two must agree, the last be one more. Restore the file"
        )
    dtype = native(group["data"].dtype)
    return CompressedReader(name, (rows, columns), dtype, data, by, lambda: _vectors(path, key))


@contextlib.contextmanager
def _vectors(path: str, key: str) -> Iterator[dict[str, Vector]]:
    with _file(path) as file:
        parts = ("data", "indices", "indptr")
        yield {part: DatasetVector(file[key][part], f"{path}::{key}/{part}") for part in parts}


@contextlib.contextmanager
def _file(path: str) -> Iterator[Any]:
    try:
        file = open_hdf5(path)
    except RankfoldError:
        raise
    except OSError as error:
        raise ChunkError(f"{path} cannot be opened as HDF5: {error}. Restore the file") from error
    try:
        with file:
            yield file
    except RankfoldError:
        raise
    except DAMAGE as error:
        raise ChunkError(f"{path} cannot be read: {error}. Restore the file") from error


def _read(dataset: Any, start: int, stop: int, name: str) -> npt.NDArray[Any]:
    try:
        block = dataset[start:stop]
    except (OSError, RuntimeError) as error:
        raise ChunkError(
            f"{name}, lines {start}:{stop}, cannot be read: {error}. Restore the file"
        ) from error
    numbers: npt.NDArray[Any] = block.astype(native(block.dtype), copy=False)
    return numbers


def _matrices(file: Any, h5py: Any) -> list[str]:
    """Text for messages on each matrix, dense or sparse, or data frame in an open file: name, shape, type."""
    matrices = []
    for key in (
        "X",
        "raw/X",
        *(f"layers/{k}" for k in file.get("layers", ())),
        *(f"obsm/{k}" for k in file.get("obsm", ())),
    ):
        node = file.get(key)
        if isinstance(node, h5py.Dataset) and node.ndim == 2:
            matrices.append(f"{key} {node.shape} {node.dtype}")
        elif isinstance(node, h5py.Group) and "indptr" in node:
            matrices.append(f"{key} {tuple(node.attrs.get('shape', ()))} sparse")
        elif isinstance(node, h5py.Group) and is_frame_group(node):
            matrices.append(f"{key} data frame")
    return matrices or [f"no matrix ({os.path.getsize(file.filename)} bytes)"]
