"""A Zarr store whose chunks do not decode to more bytes than their array has room for.

Zarr decodes whatever it is given, and a few kB may hold GB: so chunks that it is to decode are looked at as
they leave the store. Where codecs do not write how much they hold, that is decoding them twice.

A ``StrictStore`` says so when a chunk is not there, where Zarr would read fill value without a word.

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

from rankfold.pipeline.chunks.codecs import byte_codecs, encoding_of
from rankfold.pipeline.chunks.decoders import Bytes
from rankfold.pipeline.chunks.encoding import decode_within, encoded_bound, require_bounded
from rankfold.pipeline.chunks.regular_store import METADATA
from rankfold.pipeline.chunks.shard import ABSENT
from rankfold.pipeline.errors import DataError

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype


SEEN_SECONDS = 2.0
"""Seconds for which metadata that were seen are taken to be there."""


class MissingChunk(Exception):
    """There is no object with this key."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class StrictStore(WrapperStore[Any]):
    """Another store, of which every chunk must be there."""

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The bytes of an object; ``MissingChunk`` if there is none and it is not metadata."""
        value = await super().get(key, prototype, byte_range)
        if value is None and key.rpartition("/")[2] not in METADATA:
            raise MissingChunk(key)
        return value


class DescribedStore(WrapperStore[Any]):
    """A store that says of a chunk that it is missing only while the metadata of its array are there."""

    document = ""
    """Key of the metadata, which is looked for where a chunk is not there."""

    _seen = -math.inf

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The bytes of an object; ``DataError`` if neither it is there nor the metadata."""
        value = await super().get(key, prototype, byte_range)
        if value is None and key.rpartition("/")[2] not in METADATA:
            if time.monotonic() - self._seen > SEEN_SECONDS and not await self.exists(self.document):
                raise DataError(f"{self.document} is no longer in the store: the array was removed or moved")
            self._seen = time.monotonic()
        return value


# Bounds on what decodes ---------------------------------------------------------------------------


WIDEST = 16
"""Bytes of a number that filters make of others at the most, such as those that store differences."""


@dataclass(frozen=True, slots=True)
class ChunkBound:
    """What the chunks of an array may decode to."""

    codecs: tuple[str, ...]
    """From bytes to bytes, in the order of decoding."""

    most: int
    """Bytes that all of these together may make of a chunk, an inner one where there are shards."""

    index_at: str
    """``start`` or ``end`` of a shard; nothing if files are not shards."""

    index_bytes: int
    count: int
    """Inner chunks of a shard."""

    def check(self, data: Bytes, byte_range: ByteRequest | None) -> None:
        """Raise ``ValueError`` for what decodes to more; ``byte_range`` is the part of a file that it is."""
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
        """Where the chunks of a shard lie; what is wrong with that, Zarr says."""
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
    """Another store, of which no chunk decodes to more than it should."""

    bound: ChunkBound | None = None
    """Known once the metadata have been read."""

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The bytes of an object or of a part of it."""
        value = await super().get(key, prototype, byte_range)
        if value is not None and self.bound is not None and key.rpartition("/")[2] not in METADATA:
            data = np.frombuffer(value.as_buffer_like(), np.uint8)
            await asyncio.to_thread(self.bound.check, data, byte_range)
        return value


def open_bounded(store: Any, path: str) -> zarr.Array[Any]:
    """The array at a path of a store, to be read, with chunks that decode to no more than they should."""
    array = zarr.open_array(BoundedStore(store), path=path, mode="r")
    inner = array.store
    if isinstance(inner, BoundedStore):
        inner.bound = bound_of(array)
    return array


def bound_of(array: zarr.Array[Any]) -> ChunkBound:
    """The bound that the metadata of an array set."""
    encoding, itemsize = encoding_of(array.metadata), array.dtype.itemsize
    filters = array.metadata.zarr_format == 2 and array.metadata.filters
    most = math.prod(array.chunks) * (max(WIDEST, itemsize) if filters else itemsize) + 2**12
    count = math.prod(array.shards) // math.prod(array.chunks) if array.shards else 1
    index_bytes = 16 * count + 4 * encoding.index_checked
    return ChunkBound(byte_codecs(array.metadata), most, encoding.index_at, index_bytes, count)
