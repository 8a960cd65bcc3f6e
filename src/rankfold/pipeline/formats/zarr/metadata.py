"""Layout of the chunks of a Zarr array in any store: names, codecs and byte order, from its metadata.

The trap: chunk files without compression need not be plain values in C order. Fortran order in version 2, a
filter, a transpose, a checksum and a shard each change the bytes of a chunk file.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rankfold.pipeline.chunks.edition import ATTRIBUTE as RESULT
from rankfold.pipeline.chunks.edition import Edition
from rankfold.pipeline.chunks.encoding import Encoding, encoding_of
from rankfold.pipeline.chunks.files import ChunkFiles
from rankfold.pipeline.chunks.geometry import Piece
from rankfold.pipeline.data.cf_attributes import (
    SCALES,
    VARIABLE,
    Attributes,
    Meaning,
    attributes_in,
    meaning_of,
    say_fill,
)
from rankfold.pipeline.data.dtypes import native
from rankfold.pipeline.errors import DataError, InputError, SourceNotFoundError
from rankfold.pipeline.regular import read_bounded

if TYPE_CHECKING:
    import zarr
    from zarr.core.metadata import ArrayV2Metadata, ArrayV3Metadata


AXES = "_ARRAY_DIMENSIONS"
"""Attribute in which xarray stores names of axes in version 2."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Picklable description of a Zarr array: shape, type, chunks and codecs, but not where its store is."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    array: str
    """Path of the array in the store, empty for the store itself."""

    chunks: tuple[int, ...]
    """Shape of a chunk, which is decoded at once; of an inner chunk if there are shards."""

    files: ChunkFiles
    """Names of the files or objects that hold the chunks, or shards."""

    encoding: Encoding
    format: str
    """Zarr version and, if there are shards, their shape."""

    fill: float | int | bool
    missing: str
    """``error`` or ``fill``: a chunk that the store does not hold is an error, or is read as fill value."""

    version: str = field(repr=False)
    """Digest of the metadata, by which an array that was rewritten is opened again."""

    edition: Edition | None = field(repr=False)
    """The result that the array is part of, all of whose chunks were written; None for other stores."""

    attributes: Attributes = field(default_factory=dict, repr=False, compare=False, kw_only=True)
    """Attributes of the values, such as units."""

    @property
    def codec(self) -> str:
        """Text that shows the compression of the chunks; ``none`` without compression."""
        return self.encoding.words

    @property
    def chunk_bytes(self) -> int:
        """Bytes of one decoded chunk."""
        return math.prod(self.chunks) * self.dtype.itemsize

    def request_bytes(self, most: int) -> int:
        """Bytes of the decoded chunks of one request to Zarr, which asks for up to ``most`` bytes of chunks.

        At least those of one chunk, at most those of all.
        """
        counts = (-(-length // chunk) for length, chunk in zip(self.shape, self.chunks, strict=True))
        return max(self.chunk_bytes, min(most, math.prod(counts) * self.chunk_bytes))

    def decoding_bytes(self, request: int, *, more: int = 0) -> int:
        """Bytes of memory that Zarr takes for a request of ``request`` bytes of decoded chunks.

        It is the size of what Zarr decodes at once, times (stages of decoding + ``more``, further copies).
        Zarr fetches, decodes and copies ``async.concurrency`` chunks at once; of shards, all inner chunks of
        a request together.
        """
        from zarr.core.config import config

        chunks = self.chunk_bytes * int(config.get("async.concurrency") or request)
        return (request if self.encoding.index_at else min(request, chunks)) * (self.encoding.stages + more)


def layout_of(
    array: zarr.Array[Any],
    folder: str,
    *,
    document: str,
    version: str,
    missing: str | None,
    where: str = "",
    edition: Edition | None = None,
) -> dict[str, Any]:
    """Fields of a ``Layout`` for an open array, by their names, except name, shape and path.

    Parameters
    ----------
    folder : str
        Folder of the chunks; of an array in an object store, its name in messages.
    document, version : str
        Name of the document with the metadata, and digest of these.
    missing : str, optional
        The option ``missing_chunks``; ``fill`` by default.
    where : str
        Text that is added to ``format`` to describe the store.
    edition : Edition, optional
        The result that the array is part of, where a missing chunk is always an error.
    """
    extent = array.shards or array.chunks
    counts = tuple(-(-length // size) for length, size in zip(array.shape, extent, strict=True))
    dtype = native(array.dtype)
    return {
        "dtype": dtype,
        "chunks": array.chunks,
        "files": ChunkFiles(folder, document, extent, counts, *key_style(array.metadata, folder)),
        "encoding": encoding_of(array.metadata),
        "format": f"Zarr v{array.metadata.zarr_format}{where}"
        + (f", shards of {array.shards}" if array.shards else ""),
        "fill": dtype.type(0 if array.fill_value is None else array.fill_value).item(),
        "missing": (missing or "fill") if edition is None else "error",
        "version": version,
        "edition": edition,
        # Arrays of a result are named by what they are, which is no name of data.
        "attributes": attributes_among(array.attrs, array.path if edition is None else ""),
    }


ATTRIBUTE = "rankfold_names"
"""Attribute of an imported store that holds names of its rows and columns, in the form of a result."""


def names_among(found: Mapping[str, Any]) -> Any:
    """Names of rows and columns, as JSON values, in ``found``, the attributes of an array or group.

    An import wrote them, or ``reconstruct``. None without any.
    """
    found = _table(found)
    facts = found.get(RESULT)
    if ATTRIBUTE in found or not isinstance(facts, Mapping):
        return found.get(ATTRIBUTE)
    of = facts.get("input")
    return of.get("names") if isinstance(of, Mapping) else None


def attributes_among(found: Mapping[str, Any], path: str) -> Attributes:
    """Units, long name and variable of an array, from its attributes ``found``.

    They are those that were written with the names of its rows and columns, or else its own attributes, and
    the last part of its ``path`` in the store as the variable.
    """
    found = _table(found)
    written = names_among(found)
    if written is None:
        return attributes_in(found, of=path)
    said = _table(written.get("attributes")) if isinstance(written, Mapping) else {}
    return attributes_in(said, of=said.get(VARIABLE))


def _table(found: Any) -> Mapping[str, Any]:
    """``found`` as a dictionary; empty if it is not a mapping."""
    try:
        return dict(found)
    except (TypeError, ValueError):
        return {}


def metadata_version(array: zarr.Array[Any], folder: str) -> tuple[str, str]:
    """Name and digest of the document in a folder that describes the array there."""
    document = ".zarray" if array.metadata.zarr_format == 2 else "zarr.json"
    try:
        return document, _digest_of(os.path.join(folder, document))
    except FileNotFoundError:
        raise SourceNotFoundError(f"{folder} was removed or moved since it was opened") from None


def _digest_of(document: str) -> str:
    return hashlib.blake2b(read_bounded(document), digest_size=16).hexdigest()


def require_described(layout: Layout) -> None:
    """Raise ``DataError`` if the metadata of an array are gone: all its chunks would read as fill value."""
    if not os.path.exists(layout.files.path(layout.files.metadata)):
        raise DataError(
            f"{layout.name} is no longer there: it was removed or moved since it was opened. Open it where "
            "it is now"
        )


def require_same_metadata(layout: Layout) -> None:
    """Raise ``DataError`` if the metadata of an array have changed since it was opened."""
    require_described(layout)
    if _digest_of(layout.files.path(layout.files.metadata)) != layout.version:
        raise DataError(f"{layout.name} was changed since it was opened: its metadata differ. Open it again")


def key_style(metadata: ArrayV2Metadata | ArrayV3Metadata, folder: str) -> tuple[str, str]:
    """Prefix of the key of a chunk, and the separator between the grid indices in it."""
    if metadata.zarr_format == 2:
        return "", metadata.dimension_separator
    encoding: dict[str, Any] = metadata.chunk_key_encoding.to_dict()
    if encoding["name"] not in ("default", "v2"):
        raise InputError(f"{folder} names its chunks by {encoding['name']}; default and v2 are read so far")
    separator = encoding["configuration"]["separator"]
    return f"c{separator}" if encoding["name"] == "default" else "", separator


def dimension_names(array: zarr.Array[Any]) -> Any:
    """Names of the axes: a field of the metadata in version 3, an attribute by xarray in version 2."""
    return getattr(array.metadata, "dimension_names", None) or array.attrs.get(AXES)


def meaning_in(name: str, array: zarr.Array[Any]) -> Meaning | None:
    """Rule to decode the values of an array, by its attributes: missing values, scale and offset.

    None if there is nothing to decode. ``name`` is that of the array in messages.

    In version 2 xarray stores the mark of missing values as the fill value of the array. The fill value is
    taken for such a mark if values are packed, or if xarray named the axes and it is not Zarr's default 0.
    """
    attributes, fill = array.attrs.asdict(), None
    if array.fill_value is not None and array.dtype.kind in "iuf":
        fill = native(array.dtype).type(array.fill_value).item()
    is_packed, named = any(each in attributes for each in SCALES), AXES in attributes
    marks = array.metadata.zarr_format == 2 and (is_packed or (bool(fill) and named))
    meaning = meaning_of(name, native(array.dtype), attributes, fill=fill if marks else None)
    say_fill(name, None if array.dtype.kind not in "iuf" else fill, meaning)
    return meaning


def read_through_zarr(array: zarr.Array[Any], request: Piece) -> None:
    """Read the box of a request through Zarr, which copies decoded chunks straight into ``request.out``."""
    from zarr.buffer.cpu import NDBuffer, buffer_prototype

    selection = tuple(slice(*span) for span in request.box)
    target = NDBuffer(cast("Any", request.out))  # Zarr's protocol is narrower than NumPy's stubs
    array.get_basic_selection(selection, out=target, prototype=buffer_prototype)
