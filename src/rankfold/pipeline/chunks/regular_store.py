"""A folder as a store of Zarr that opens only regular files, and only files of sensible size.

Zarr opens whatever has the name of a chunk or of metadata: a pipe makes it wait forever, metadata with
100 000 codecs take it half a minute, and a chunk of 2 GiB as much memory. Every store in a folder is opened
through this one.

Imported only once Zarr is needed.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import LocalStore

from rankfold.pipeline.errors import InputError, UnfitFileError
from rankfold.pipeline.regular import is_regular, read_bounded
from rankfold.pipeline.units import format_bytes

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
"""Names of the documents that describe an array or a group."""

MOST_AXES = 64
"""Largest number of axes of an array; NumPy has no more."""

MOST_CODECS = 32
"""Largest number of codecs of an array, those within shards included."""

MOST_ENTRIES = 1024
"""Largest number of entries of any list that describes an array, such as the fields of a structured type."""


WIDEST = 16
"""Largest size in bytes of an element after filters, such as those that store differences.

The index of a shard takes as much for each inner chunk.
"""

TEXT_BYTES = 2**10
"""Bytes that a chunk file may have for each of its elements, if these have no fixed size, such as text."""


class RegularStore(LocalStore):
    """Zarr store in a folder that opens only regular files, and no chunk file too large for its array."""

    def __init__(self, root: Path | str, *, read_only: bool = False) -> None:
        super().__init__(root, read_only=read_only)
        self._largest: dict[str, int] = {}
        """Largest number of bytes of a chunk file, by the path of each array whose metadata were read."""

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """The bytes of a file or of a part of it; None if there is no regular file."""
        path = self.root / key
        if key.rpartition("/")[2] in METADATA:
            data = await asyncio.to_thread(self._metadata, key)
            buffer = (prototype or default_buffer_prototype()).buffer
            return None if data is None else buffer.from_bytes(data)
        if not path.is_dir() and not await asyncio.to_thread(self._is_chunk, key, whole=byte_range is None):
            return None
        return await super().get(key, prototype, byte_range)

    def _metadata(self, key: str) -> bytes | None:
        """Read a metadata document and check it before Zarr parses it; None if there is none."""
        path = self.root / key
        try:
            data = read_bounded(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            return data  # Zarr reports what is wrong with it
        require_sensible(str(path), document)
        self._largest.update(largest_chunks(key.rpartition("/")[0], document))
        return data

    def _is_chunk(self, key: str, *, whole: bool) -> bool:
        """True if a file exists; ``UnfitFileError`` if not a regular one, or too large to read ``whole``."""
        path = self.root / key
        if not is_regular(path):
            return False
        folder = key
        while folder and folder not in self._largest:
            folder = folder.rpartition("/")[0]
        most = self._largest.get(folder)
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return False
        if whole and most is not None and size > most:
            allowed = f"a chunk of its array has at most {format_bytes(most)}"
            raise UnfitFileError(f"{path} is {format_bytes(size)} large, and {allowed}")
        return True

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Bytes of parts of several files; None for each that does not exist."""
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    def get_sync(
        self,
        key: str,
        *,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Bytes of a file or of a part of it, as ``get`` returns, but not asynchronous."""
        return asyncio.run(self.get(key, prototype, byte_range))


def zarr_array(path: str | Path, array: str = "", *, mode: Literal["r", "r+"] = "r") -> zarr.Array[Any]:
    """Open the array in a folder, or at path ``array`` of the store there; read-only by default."""
    return zarr.open_array(RegularStore(path, read_only=mode == "r"), path=array, mode=mode)


def zarr_group(path: str | Path, *, consolidated: bool | None = None) -> zarr.Group:
    """Open the group in a folder, read-only; ``consolidated`` as ``use_consolidated`` in Zarr."""
    return zarr.open_group(RegularStore(path, read_only=True), mode="r", use_consolidated=consolidated)


def zarr_node(path: str | Path) -> zarr.Array[Any] | zarr.Group:
    """Open the array or group in a folder, read-only."""
    return zarr.open(RegularStore(path, read_only=True), mode="r")


def largest_chunks(folder: str, document: Any) -> dict[str, int]:
    """Upper bound on the bytes of a chunk file, by the path of each array in a metadata document.

    ``folder`` is the path of the document's folder in the store, ``document`` its parsed content.
    """
    sizes = {
        _joined(folder, path.removesuffix(".zarray")): _largest_chunk(node) for path, node in _nodes(document)
    }
    return {path: size for path, size in sizes.items() if size is not None}


def _joined(folder: str, path: str) -> str:
    return f"{folder}/{path}".strip("/")


def _nodes(document: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the node that a metadata document describes and copies of others in it, each with its path."""
    if not isinstance(document, dict):
        return
    yield "", document
    for whole in (document.get("consolidated_metadata"), document):
        nodes = whole.get("metadata") if isinstance(whole, dict) else None
        for path, node in nodes.items() if isinstance(nodes, dict) else ():
            if isinstance(node, dict):
                yield path, node


def _largest_chunk(node: Any) -> int | None:
    """Upper bound on the bytes of a chunk file of the array that a node describes; None if it is no array."""
    try:
        if "chunk_grid" in node:
            shape, kind = node["chunk_grid"]["configuration"]["chunk_shape"], node["data_type"]
        else:
            shape, kind = node["chunks"], node["dtype"]
        count: int = math.prod(max(0, int(n)) for n in shape)
    except (TypeError, KeyError, ValueError):
        return None
    try:
        itemsize = np.dtype(kind).itemsize
    except (TypeError, ValueError):
        itemsize = 0
    if not itemsize or kind == "|O":
        return 2**26 + TEXT_BYTES * count
    return 2**16 + 2 * max(WIDEST, int(itemsize)) * count


def require_sensible(name: str, document: Any) -> None:
    """Raise ``InputError`` for metadata in the file ``name``, also consolidated, that no real array has."""
    for _, node in _nodes(document):
        _require_array(name, node)


def _require_array(name: str, node: dict[str, Any]) -> None:
    """Raise ``InputError`` for too many axes or codecs, or for a list that is too long or holds booleans."""
    for key in ("shape", "dimension_names", "chunks"):
        axes = node.get(key)
        if isinstance(axes, list) and len(axes) > MOST_AXES:
            raise InputError(f"{name} is of an array of {len(axes)} axes, and at most {MOST_AXES} are read")
    codecs = 0
    # Not by recursion: a document may be nested as deeply as its parser allows.
    parts = [(key, value) for key, value in node.items() if key not in _OTHERS]
    while parts:
        key, part = parts.pop()
        if isinstance(part, dict):
            parts += part.items()
        elif isinstance(part, list):
            codecs += len(part) * (key in _CHAINS)
            if codecs > MOST_CODECS:
                raise InputError(
                    f"{name} is of an array of {codecs} codecs, and read are at most {MOST_CODECS}"
                )
            if len(part) > MOST_ENTRIES:
                raise InputError(
                    f"{name} has a list of {len(part)} entries, which says nothing of an array. Restore it"
                )
            if any(isinstance(each, bool) for each in part):
                # Python takes booleans for integers, and Zarr would read 1 and 0.
                raise InputError(
                    f"{name}: {key or 'a list in it'} is {part!r:.60}, and true or false is no length"
                )
            parts += (("", each) for each in part)


_OTHERS = ("attributes", "consolidated_metadata", "metadata", "fill_value")
"""Parts of metadata that do not affect how chunks are decoded."""

_CHAINS = ("codecs", "index_codecs", "filters")
"""Names of lists of codecs."""
