"""A Zarr store that refuses chunks that decode to more bytes than their array has room for.

Zarr decodes whatever it is given, and a few kB may decode to GB. So chunks are checked as they are read from
the store. Where a codec does not store the decoded size, this means decoding the chunk twice.

A ``StrictStore`` raises an error for a missing chunk, where Zarr would silently read fill value.

Imported only once Zarr is needed.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.storage import WrapperStore

from rankfold.pipeline.chunks.encoding import (
    Bytes,
    byte_codecs,
    decode_within,
    encoded_bound,
    encoding_of,
    require_bounded,
)
from rankfold.pipeline.chunks.reads import ABSENT
from rankfold.pipeline.chunks.regular_store import METADATA, WIDEST
from rankfold.pipeline.errors import DataError

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype


SEEN_SECONDS = 2.0
"""Seconds for which metadata that were found are taken to exist without another look."""


class MissingChunk(Exception):
    """There is no object with this key."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class StrictStore(WrapperStore[Any]):
    """Wrapper of a store in which every chunk must exist."""

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The bytes of an object. If it is missing: None for metadata, ``MissingChunk`` for a chunk."""
        value = await super().get(key, prototype, byte_range)
        if value is None and key.rpartition("/")[2] not in METADATA:
            raise MissingChunk(key)
        return value


class DescribedStore(WrapperStore[Any]):
    """Wrapper of a store that reports a chunk as missing only while the metadata of its array exist.

    If these are gone too, the store itself has gone, and the chunk must not be read as fill value.
    """

    document = ""
    """Key of the metadata of the array; looked up when a chunk is missing."""

    _seen = -math.inf

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The bytes of an object, or None. ``DataError`` if both a chunk and the metadata are missing."""
        value = await super().get(key, prototype, byte_range)
        if value is None and key.rpartition("/")[2] not in METADATA:
            if time.monotonic() - self._seen > SEEN_SECONDS and not await self.exists(self.document):
                raise DataError(f"{self.document} is no longer in the store: the array was removed or moved")
            self._seen = time.monotonic()
        return value


# Bounds on what decodes ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChunkBound:
    """Bound on the decoded size of the chunks of an array."""

    codecs: tuple[str, ...]
    """Names of the bytes-to-bytes codecs, in decoding order."""

    most: int
    """Largest number of bytes of a decoded chunk; of an inner chunk if there are shards."""

    index_at: str
    """Position of the index in a shard, ``start`` or ``end``; empty if files are not shards."""

    index_bytes: int
    """Bytes of the index of a shard."""

    count: int
    """Number of inner chunks of a shard."""

    def check(self, data: Bytes, byte_range: ByteRequest | None) -> None:
        """Raise ``ValueError`` if chunks in ``data`` decode to more than the bound.

        ``data`` is a whole file, or its part ``byte_range``.
        """
        if not self.index_at:
            self._check_chunk(data)
        elif byte_range is None:
            for offset, length in self._index(data):
                self._check_chunk(data[offset : offset + length])
        elif not self._is_index(byte_range):
            self._check_chunk(data)

    def _is_index(self, byte_range: ByteRequest) -> bool:
        if isinstance(byte_range, SuffixByteRequest):
            return True
        if self.index_at == "end" or not isinstance(byte_range, RangeByteRequest):
            return False
        return byte_range.start == 0 and byte_range.end == self.index_bytes

    def _index(self, shard: Bytes) -> list[list[int]]:
        """[offset, length in bytes] of each inner chunk that a shard holds.

        Errors are left for Zarr to find.
        """
        head = shard[: self.index_bytes] if self.index_at == "start" else shard[-self.index_bytes :]
        if len(head) < 16 * self.count:
            return []
        index = head[: 16 * self.count].copy().view("<u8").reshape(self.count, 2).tolist()
        return [place for place in index if place[0] != ABSENT]

    def _check_chunk(self, data: Bytes) -> None:
        for number, codec in enumerate(self.codecs):
            if codec == "crc32c":
                data = data[:-4]
                continue
            inner = any(name != "crc32c" for name in self.codecs[number + 1 :])
            most = encoded_bound(self.most) + 4 if inner else self.most
            require_bounded(codec, data, most)
            if not inner:
                return
            data = decode_within(codec, data, most)


class BoundedStore(WrapperStore[Any]):
    """Wrapper of a store that refuses chunks that decode to more bytes than ``bound``."""

    bound: ChunkBound | None = None
    """Bound on decoded sizes; None until the metadata have been read."""

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The bytes of an object or of a part of it. Raises ``ValueError`` for a chunk above the bound."""
        value = await super().get(key, prototype, byte_range)
        if value is not None and self.bound is not None and key.rpartition("/")[2] not in METADATA:
            data = np.frombuffer(value.as_buffer_like(), np.uint8)
            await asyncio.to_thread(self.bound.check, data, byte_range)
        return value


def open_bounded(store: Any, path: str) -> zarr.Array[Any]:
    """Open the array at ``path`` of a Zarr store, read-only, with a bound on decoded sizes of its chunks."""
    array = zarr.open_array(BoundedStore(store), path=path, mode="r")
    inner = array.store
    if isinstance(inner, BoundedStore):
        inner.bound = bound_of(array)
    return array


def bound_of(array: zarr.Array[Any]) -> ChunkBound:
    """Bound on the decoded size of chunks, from the metadata of an array."""
    encoding, itemsize = encoding_of(array.metadata), array.dtype.itemsize
    filters = array.metadata.zarr_format == 2 and array.metadata.filters
    most = math.prod(array.chunks) * (max(WIDEST, itemsize) if filters else itemsize) + 2**12
    count = math.prod(array.shards) // math.prod(array.chunks) if array.shards else 1
    index_bytes = 16 * count + 4 * encoding.index_checked
    return ChunkBound(byte_codecs(array.metadata), most, encoding.index_at, index_bytes, count)
