"""From the metadata of a Zarr array to a ``ZarrSource`` or ``ZarrVolume``: names of files, codecs, byte
order.

The trap is in the small print of what counts as uncompressed: version 2 in Fortran order, a filter, a
transpose, a checksum or a shard each make the bytes of a chunk file something else than its numbers.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rankfold.pipeline.chunks.codecs import encoding_of
from rankfold.pipeline.chunks.files import ChunkFiles
from rankfold.pipeline.data.decoded import decoded, is_packed
from rankfold.pipeline.data.dtypes import native, require_chunks, require_matrix, require_numbers
from rankfold.pipeline.data.stacked import Rows, StackedSource, axis_names, row_axes, stacked
from rankfold.pipeline.errors import InputError, RankfoldError
from rankfold.pipeline.formats.locate import require_array
from rankfold.pipeline.formats.zarr import ZarrSource, ZarrVolume

if TYPE_CHECKING:
    import zarr
    from zarr.core.metadata import ArrayV2Metadata, ArrayV3Metadata


def source_at(path: str, array: str, *, missing: str) -> ZarrSource:
    """The matrix ``array`` of the store in the folder ``path``."""
    name = f"{path}::{array}" if array else path
    with _explained(name):
        return source_of(_open(path, array), missing=missing, name=name)


def matrix_at(path: str, array: str, *, missing: str, rows: Rows = None) -> ZarrSource | StackedSource:
    """The array ``array`` of the store in the folder ``path``, as a matrix."""
    name = f"{path}::{array}" if array else path
    with _explained(name):
        return matrix_of(_open(path, array), missing=missing, rows=rows, name=name)


def matrix_of(
    array: zarr.Array[Any], *, missing: str, rows: Rows = None, name: str | None = None
) -> ZarrSource | StackedSource:
    """An array that is open, as a matrix whose rows are the axes that ``rows`` names."""
    path = _folder(array, name)
    name = name or _name(path, array)
    axes = axis_names(array.shape, dimension_names(array))
    require_chunks(name, array.shape, array.shards or array.chunks, array.dtype)
    require_chunks(name, array.shape, array.chunks, array.dtype)
    first = row_axes(name, axes, array.shape, rows) == (0,)
    require_numbers(name, array.dtype)
    if array.ndim == 2 and first and not is_packed(native(array.dtype), array.attrs):
        return source_of(array, missing=missing, name=name)
    facts = _facts(array, path, missing, name)
    volume = ZarrVolume(shape=array.shape, axes=axes, chunks=array.chunks, **facts)
    return stacked(decoded(volume, array.attrs, fill=store_fill(array)), rows)


def store_fill(array: zarr.Array[Any]) -> float | int | None:
    """The fill value of a store of version 2; in version 3 missing values are an attribute."""
    if array.metadata.zarr_format == 3 or array.fill_value is None:
        return None
    return native(array.dtype).type(array.fill_value).item()  # type: ignore[no-any-return]


def source_of(array: zarr.Array[Any], *, missing: str, name: str | None = None) -> ZarrSource:
    """A matrix that is open, as a description; its store must be a folder."""
    path = _folder(array, name)
    name = name or _name(path, array)
    require_matrix(name, array.shape, array.dtype)
    require_chunks(name, array.shape, array.chunks, array.dtype)
    rows, columns = array.shape
    down, across = array.chunks
    return ZarrSource(shape=(rows, columns), chunks=(down, across), **_facts(array, path, missing, name))


def _open(path: str, array: str) -> zarr.Array[Any]:
    """The array, opened through Zarr."""
    import zarr
    from zarr.storage import LocalStore

    require_array(path, array)
    return zarr.open_array(LocalStore(path, read_only=True), path=array, mode="r")


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn whatever Zarr says of metadata that it does not understand into ``InputError``."""
    try:
        yield
    except (RankfoldError, OSError, MemoryError):
        raise
    except Exception as error:
        raise InputError(f"Zarr cannot open {name}: {type(error).__name__}: {error}") from error


def dimension_names(array: zarr.Array[Any]) -> Any:
    """Names of the axes, which version 3 has a place for and xarray keeps as an attribute in version 2."""
    return getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS")


def _folder(array: zarr.Array[Any], name: str | None) -> str:
    """Folder of the store of an array."""
    from zarr.storage import LocalStore

    store = array.store
    if not isinstance(store, LocalStore):
        raise InputError(
            f"{name or array.name} lies in a {type(store).__name__}; only local stores are read as objects. "
            "Give its address instead, as s3://bucket/store.zarr::array"
        )
    return os.path.abspath(store.root)


def _name(path: str, array: zarr.Array[Any]) -> str:
    return f"{path}::{array.path}" if array.path else path


def _facts(array: zarr.Array[Any], path: str, missing: str, name: str) -> dict[str, Any]:
    """What a description holds whatever the number of axes."""
    files, version = _files(array, os.path.join(path, array.path) if array.path else path)
    dtype = native(array.dtype)
    return {
        "name": name,
        "dtype": dtype,
        "path": path,
        "array": array.path,
        "files": files,
        "encoding": encoding_of(array.metadata),
        "format": f"Zarr v{array.metadata.zarr_format}"
        + (f", shards of {array.shards}" if array.shards else ""),
        "fill": dtype.type(0 if array.fill_value is None else array.fill_value).item(),
        "missing": missing,
        "version": version,
    }


def _files(array: zarr.Array[Any], folder: str) -> tuple[ChunkFiles, str]:
    """Names of the chunk files, and a digest of the metadata."""
    prefix, separator = key_style(array.metadata, folder)
    document = ".zarray" if array.metadata.zarr_format == 2 else "zarr.json"
    with open(os.path.join(folder, document), "rb") as file:
        version = hashlib.blake2b(file.read(), digest_size=16).hexdigest()
    extent = array.shards or array.chunks
    counts = tuple(-(-length // size) for length, size in zip(array.shape, extent, strict=True))
    return ChunkFiles(folder, document, extent, counts, prefix, separator), version


def key_style(metadata: ArrayV2Metadata | ArrayV3Metadata, folder: str) -> tuple[str, str]:
    """What the key of a chunk starts with, and what separates its numbers."""
    if metadata.zarr_format == 2:
        return "", metadata.dimension_separator
    encoding: dict[str, Any] = metadata.chunk_key_encoding.to_dict()
    if encoding["name"] not in ("default", "v2"):
        raise InputError(f"{folder} names its chunks by {encoding['name']}; default and v2 are read so far")
    separator = encoding["configuration"]["separator"]
    return f"c{separator}" if encoding["name"] == "default" else "", separator
