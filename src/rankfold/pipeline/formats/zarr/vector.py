"""Zarr arrays of one axis as matrices of one row, so that their chunks are read as those of a matrix."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.edition import edition_around
from rankfold.pipeline.chunks.files import ChunkFiles
from rankfold.pipeline.chunks.geometry import Piece, Span
from rankfold.pipeline.chunks.row_marks import RowMarks, digest_of
from rankfold.pipeline.data.dtypes import require_chunks
from rankfold.pipeline.data.names import Axis, Names
from rankfold.pipeline.errors import ChunkError, InputError, RankfoldError
from rankfold.pipeline.formats.locate import node_kind, zarr_refusal
from rankfold.pipeline.formats.naming import written_names, zarr_axis
from rankfold.pipeline.formats.zarr.metadata import layout_of, metadata_version, read_through_zarr
from rankfold.pipeline.formats.zarr.source import ZarrSource

if TYPE_CHECKING:
    import zarr


@dataclass(frozen=True, slots=True)
class VectorFiles(ChunkFiles):
    """Chunk files of an array of one axis as those of a matrix of one row; names have one grid index."""

    def key(self, *index: int) -> str:
        """Key of the file at grid index (0, i) of the matrix of one row: only ``i`` is in the name."""
        return f"{self.prefix}{index[-1]}"


class Vector:
    """Mixin with the interface of a vector for a source of shape ``(1, n)``."""

    __slots__ = ()

    if TYPE_CHECKING:
        name: str
        shape: tuple[int, int]

        @property
        def dtype(self) -> np.dtype[Any]: ...

        @property
        def path(self) -> str: ...

        @property
        def format(self) -> str: ...

        @property
        def codec(self) -> str: ...

        def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None: ...

        def read_bytes(self, rows: int, columns: int) -> int: ...

        def check(self) -> None: ...

        def fingerprint(self) -> str: ...

        def row_marks(self, rows: int) -> RowMarks: ...

        def stored_bytes(self) -> int: ...

    def axis_of_group(self, number: int, name: str, length: int) -> Axis:
        """Axis ``number`` (0 or 1) of the sparse matrix that this vector is part of: without labels here.

        ``name`` and ``length`` are those of the axis. Subclasses add the labels that their store has.
        """
        return Axis(name, length)

    def names_of_group(self, axis: int) -> Names | None:
        """Names of rows (0) or columns (1) that an import wrote for the sparse matrix of this vector: None.

        Subclasses read them where their store has any.
        """
        return None

    @property
    def length(self) -> int:
        """Number of elements."""
        return self.shape[1]

    def take(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Elements ``start:stop``, in new memory."""
        out: npt.NDArray[Any] = np.empty(stop - start, self.dtype)
        if stop > start:
            self.read_into(out[np.newaxis], (0, 1), (start, stop))
        return out


@dataclass(frozen=True, slots=True, repr=False)
class VectorSource(Vector, ZarrSource):
    """A Zarr array of shape ``(n,)`` as a matrix of shape ``(1, n)``; n may be 0."""

    def stored_bytes(self) -> int:
        """Bytes of the chunk files on disk."""
        return self.files.stored_bytes() if self.length else 0

    def axis_of_group(self, number: int, name: str, length: int) -> Axis:
        """Axis ``number`` (0 or 1) of the sparse matrix in the group of this vector, with its labels.

        ``name`` and ``length`` are those of the axis.
        """
        return zarr_axis(self.path, os.path.dirname(self.array), number, name, length)

    def names_of_group(self, axis: int) -> Names | None:
        """Names of rows (0) or columns (1) in the attributes of the group of this vector; None without."""
        return written_names(self.path, os.path.dirname(self.array), axis)

    def row_marks(self, rows: int) -> RowMarks:
        """Digests that change if the first ``rows`` elements have changed."""
        tall = self.files.extent[1]
        whole = rows // tall
        rest = hashlib.blake2b(self.take(whole * tall, rows).data, digest_size=16).hexdigest()
        facts = self.dtype.str, self.chunks, tall, self.codec
        return RowMarks(digest_of(*facts), self.files.first_fingerprint(whole), rest)

    def _select(self, array: zarr.Array[Any], request: Piece) -> None:
        """Read the elements of one request from an open array of one axis, which is that of columns here."""
        read_through_zarr(array, Piece(request.box[1:], request.out[0]))


def vector_at(path: str, array: str, *, missing: str | None = "error") -> VectorSource:
    """The array ``array``, of one axis, of the store in the folder ``path``, as a matrix of one row.

    ``missing`` is the option ``missing_chunks`` of ``open_source``: ``error`` or ``fill``.
    """
    from rankfold.pipeline.chunks.regular_store import zarr_array

    name = f"{path}::{array}"
    if node_kind(os.path.join(path, array)) != "array":
        raise ChunkError(f"{name} is not there, so the sparse matrix is not whole. Restore the store")
    try:
        vector = zarr_array(path, array)
    except (RankfoldError, OSError, MemoryError):
        raise
    except Exception as error:
        raise zarr_refusal(name, error) from error
    if vector.ndim != 1 or vector.dtype.kind not in "fiub":
        raise InputError(f"{name} is {vector.dtype} {vector.shape}, but should be a vector of numbers")
    require_chunks(name, vector.shape, vector.shards or vector.chunks, vector.dtype)
    require_chunks(name, vector.shape, vector.chunks, vector.dtype)
    folder = os.path.join(os.path.abspath(path), array)
    document, version = metadata_version(vector, folder)
    edition = edition_around(folder)
    layout = layout_of(vector, folder, document=document, version=version, missing=missing, edition=edition)
    files: ChunkFiles = layout["files"]  # turned into those of a grid of one row
    counts, extent = (1, *files.counts), (1, *files.extent)
    layout["files"] = VectorFiles(files.folder, document, extent, counts, files.prefix, files.separator)
    layout["chunks"] = (1, *layout["chunks"])
    layout["format"] = f"Zarr v{vector.metadata.zarr_format}"
    return VectorSource(
        name=name,
        shape=(1, vector.shape[0]),
        path=os.path.abspath(path),
        array=array,
        **layout,
    )
