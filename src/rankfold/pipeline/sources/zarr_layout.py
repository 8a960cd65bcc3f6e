"""From the metadata of a Zarr array to a ``ZarrSource``: names of chunk files, codecs, byte order.

The trap is in the small print of what counts as uncompressed: version 2 in Fortran order, a filter, a
transpose, a checksum or a shard each make the bytes of a chunk file something else than its numbers.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

from rankfold.pipeline.errors import InputError, RankfoldError
from rankfold.pipeline.sources.chunk_files import ChunkFiles
from rankfold.pipeline.sources.locate import require_array
from rankfold.pipeline.sources.matrix import native, require_matrix
from rankfold.pipeline.sources.zarr import ZarrSource
from rankfold.pipeline.sources.zarr_codecs import encoding_of

if TYPE_CHECKING:
    import zarr
    from zarr.core.metadata import ArrayV2Metadata, ArrayV3Metadata


def source_at(path: str, array: str, *, missing: str) -> ZarrSource:
    """The array ``array`` of the store in the folder ``path``."""
    import zarr
    from zarr.storage import LocalStore

    require_array(path, array)
    name = f"{path}::{array}" if array else path
    try:
        found = zarr.open_array(LocalStore(path, read_only=True), path=array, mode="r")
        return source_of(found, missing=missing, name=name)
    except (RankfoldError, OSError, MemoryError):
        raise
    except Exception as error:
        raise InputError(f"Zarr cannot open {name}: {type(error).__name__}: {error}") from error


def source_of(array: zarr.Array[Any], *, missing: str, name: str | None = None) -> ZarrSource:
    """The same array as a description; its store must be a folder."""
    from zarr.storage import LocalStore

    store = array.store
    if not isinstance(store, LocalStore):
        raise InputError(
            f"{name or array.name} lies in a {type(store).__name__}; "
            "only local stores and files are read so far"
        )
    path = os.path.abspath(store.root)
    name = name or (f"{path}::{array.path}" if array.path else path)
    require_matrix(name, array.shape, array.dtype)
    files, version = _files(array, os.path.join(path, array.path) if array.path else path)
    rows, columns = array.shape
    down, across = array.chunks
    dtype = native(array.dtype)
    return ZarrSource(
        name=name,
        shape=(rows, columns),
        dtype=dtype,
        path=path,
        array=array.path,
        chunks=(down, across),
        files=files,
        encoding=encoding_of(array.metadata),
        format=f"Zarr v{array.metadata.zarr_format}"
        + (f", shards of {array.shards}" if array.shards else ""),
        fill=dtype.type(0 if array.fill_value is None else array.fill_value).item(),
        missing=missing,
        version=version,
    )


def _files(array: zarr.Array[Any], folder: str) -> tuple[ChunkFiles, str]:
    """Names of the chunk files, and a digest of the metadata."""
    prefix, separator = key_style(array.metadata, folder)
    document = ".zarray" if array.metadata.zarr_format == 2 else "zarr.json"
    with open(os.path.join(folder, document), "rb") as file:
        version = hashlib.blake2b(file.read(), digest_size=16).hexdigest()
    down, across = array.shards or array.chunks
    counts = (-(-array.shape[0] // down), -(-array.shape[1] // across))
    return ChunkFiles(folder, document, (down, across), counts, prefix, separator), version


def key_style(metadata: ArrayV2Metadata | ArrayV3Metadata, folder: str) -> tuple[str, str]:
    """What the key of a chunk starts with, and what separates its numbers."""
    if metadata.zarr_format == 2:
        return "", metadata.dimension_separator
    encoding: dict[str, Any] = metadata.chunk_key_encoding.to_dict()
    if encoding["name"] not in ("default", "v2"):
        raise InputError(f"{folder} names its chunks by {encoding['name']}; default and v2 are read so far")
    separator = encoding["configuration"]["separator"]
    return f"c{separator}" if encoding["name"] == "default" else "", separator
