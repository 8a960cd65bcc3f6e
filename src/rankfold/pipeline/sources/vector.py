"""A one-dimensional Zarr array, read as the only row of a matrix.

Everything that is true of reading chunks of a matrix is true of these; only their names have one number
instead of two.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import InputError, RankfoldError
from rankfold.pipeline.sources.chunk_files import ChunkFiles
from rankfold.pipeline.sources.locate import node_kind
from rankfold.pipeline.sources.matrix import native, require_chunks
from rankfold.pipeline.sources.rectangle import Tile
from rankfold.pipeline.sources.zarr import ZarrSource
from rankfold.pipeline.sources.zarr_codecs import encoding_of
from rankfold.pipeline.sources.zarr_layout import key_style

if TYPE_CHECKING:
    import zarr


@dataclass(frozen=True, slots=True)
class VectorFiles(ChunkFiles):
    """Chunk files with one number in their names."""

    def key(self, *index: int) -> str:
        """Key of the file in the only row of the grid."""
        return f"{self.prefix}{index[-1]}"


@dataclass(frozen=True, slots=True)
class VectorSource(ZarrSource):
    """A Zarr array of shape ``(n,)`` as a matrix of shape ``(1, n)``, which may be empty."""

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

    def stored_bytes(self) -> int:
        """Bytes of the chunk files on disk."""
        return self.files.stored_bytes() if self.length else 0

    def _decode(self, array: zarr.Array[Any], request: Tile) -> None:
        """Chunks that Zarr decodes; whatever it raises names the first of them."""
        from zarr.buffer.cpu import NDBuffer, buffer_prototype

        target = NDBuffer(cast("Any", request.out[0]))  # Zarr's protocol is narrower than NumPy's stubs
        try:
            array.get_basic_selection((slice(*request.columns),), out=target, prototype=buffer_prototype)
        except MemoryError:
            raise
        except Exception as error:
            raise self._broken(self.files.key(0, request.j), request, error) from error


def vector_at(path: str, array: str, *, missing: str = "error") -> VectorSource:
    """The vector ``array`` of the store in the folder ``path``."""
    import zarr
    from zarr.storage import LocalStore

    name = f"{path}::{array}"
    if node_kind(os.path.join(path, array)) != "array":
        raise InputError(f"{name} is not there, so the sparse matrix is not whole. Restore the store")
    try:
        found = zarr.open_array(LocalStore(path, read_only=True), path=array, mode="r")
    except (RankfoldError, OSError, MemoryError):
        raise
    except Exception as error:
        raise InputError(f"Zarr cannot open {name}: {type(error).__name__}: {error}") from error
    if found.ndim != 1 or found.dtype.kind not in "fiub":
        raise InputError(f"{name} is {found.dtype} {found.shape}, but should be a vector of numbers")
    require_chunks(name, found.shape, found.shards or found.chunks, found.dtype)
    require_chunks(name, found.shape, found.chunks, found.dtype)
    dtype, extent = native(found.dtype), (found.shards or found.chunks)[0]
    folder = os.path.join(os.path.abspath(path), array)
    files, version = _files(found, folder, extent)
    return VectorSource(
        name=name,
        shape=(1, found.shape[0]),
        dtype=dtype,
        path=os.path.abspath(path),
        array=array,
        chunks=(1, found.chunks[0]),
        files=files,
        encoding=encoding_of(found.metadata),
        format=f"Zarr v{found.metadata.zarr_format}",
        fill=dtype.type(0 if found.fill_value is None else found.fill_value).item(),
        missing=missing,
        version=version,
    )


def _files(array: zarr.Array[Any], folder: str, extent: int) -> tuple[VectorFiles, str]:
    """Names of the chunk files, and a digest of the metadata."""
    prefix, separator = key_style(array.metadata, folder)
    document = ".zarray" if array.metadata.zarr_format == 2 else "zarr.json"
    with open(os.path.join(folder, document), "rb") as file:
        version = hashlib.blake2b(file.read(), digest_size=16).hexdigest()
    counts = (1, -(-array.shape[0] // extent))
    return VectorFiles(folder, document, (1, extent), counts, prefix, separator), version
