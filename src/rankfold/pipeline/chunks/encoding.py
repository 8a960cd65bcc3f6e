"""Encoding of the values of a Zarr chunk, and decoding them into memory that the caller owns.

Blosc, zstd and lz4 decode straight into the destination, with one reused buffer for the compressed
bytes. Zarr's own reader takes two new buffers for every chunk, in a pool of threads whose heaps keep
what they freed: for chunks of 16 MiB, measured, 95 MiB against 17 here, at half the speed.

The trap: Blosc does not check the end of its input. A truncated chunk decodes, without an error, to
whatever lies behind it in memory; so the sizes in its header are checked first.
"""

from __future__ import annotations

import functools
import mmap
import os
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankfold.pipeline.chunks.decoders import (
    STREAMS,
    Bytes,
    Promise,
    decode_stream,
    stream_start,
    word,
    zstd_promise,
    zstd_size,
)
from rankfold.pipeline.regular import open_regular

OWN = ("blosc", "zstd", "lz4", *STREAMS)
"""Names in numcodecs of the codecs that are decoded here; Zarr decodes any other chain."""

CODEC_BYTES = 6 * 2**20
"""Most bytes of workspace that any decoder allocates, measured."""

TABLES = {"zstd": 2**20, "lz4": 2**18, "gzip": 2**19, "zlib": 2**19, "bz2": 4 * 2**20, "lzma": 2**20}
"""Bytes that decoders allocate for tables and windows, by codec, measured.

Blosc, which is not among them, allocates three of its blocks.
"""


@dataclass(frozen=True, slots=True)
class Encoding:
    """Encoding of the values of a chunk as bytes."""

    words: str
    """Text that shows all codecs, as ``blosc(zstd, 3, shuffle)``; ``none`` for uncompressed values."""

    reader: str
    """Way to read chunks: ``plain`` for uncompressed values in C order, ``codec`` for one codec of ``OWN``.

    ``zarr`` for all others, which Zarr decodes.
    """

    codec: str = ""
    """Name in numcodecs of the codec applied last in encoding; empty for shards that Zarr reads."""

    swapped: bool = False
    """True if values are stored in the byte order that is not native."""

    index_at: str = ""
    """Position of the index in a shard, ``start`` or ``end``; empty if files are not shards."""

    index_checked: bool = False
    """True if the index is followed by its CRC-32C."""

    index_plain: bool = True
    """True if the index is not compressed, so that it is read here and not by Zarr."""

    stages: int = 1
    """Memory that Zarr takes to decode a chunk, in sizes of a chunk; includes the compressed bytes."""


def encoded_bound(chunk_bytes: int) -> int:
    """Most bytes that a codec of ``OWN`` produces for a chunk that it cannot compress."""
    return chunk_bytes + chunk_bytes // 128 + 2**16


def decoder_bytes(codec: str, chunk_bytes: int) -> int:
    """Most bytes of workspace that the decoder of a chunk takes."""
    return TABLES.get(codec, min(CODEC_BYTES, 2**19 + 3 * chunk_bytes))


def codec_bytes(codec: str, chunk_bytes: int, *, encoded: int | None = None, placed: bool = False) -> int:
    """Most memory that decoding one chunk takes: its encoded bytes, a buffer for it, workspace of the codec.

    ``encoded`` is the number of encoded bytes; ``encoded_bound`` is used if it is None. A chunk that is
    ``placed`` is decoded straight into its destination. Streams decode in pieces, which are joined before
    they are copied. lzma has a window in addition, of which it touches no more than it has decoded.
    """
    inputs = chunk_bytes * (2 + (codec == "lzma")) if codec in STREAMS else 0
    input_bytes = encoded_bound(chunk_bytes) if encoded is None else encoded
    return decoder_bytes(codec, chunk_bytes) + input_bytes + chunk_bytes * (not placed) + inputs


def require_sensible(size: int, chunk_bytes: int) -> None:
    """Raise ``ValueError`` if no codec makes ``size`` encoded bytes of a chunk of ``chunk_bytes``."""
    if size > encoded_bound(chunk_bytes) + chunk_bytes // 64:
        raise ValueError(f"it holds {size} bytes, more than any codec makes of {chunk_bytes}")


def decode_into(codec: str, encoded: Bytes, out: Bytes) -> None:
    """Decode ``encoded`` so that it fills ``out``, or raise ``ValueError`` or what the codec raises.

    Never allocates more than ``out`` needs, whatever size the encoded bytes state.
    """
    if codec in STREAMS:
        decode_stream(codec, encoded, out)
        return
    if codec == "blosc":
        _require_whole(encoded[:16], len(encoded))
    size = _decoded_size(codec, encoded, len(out))
    if size is not None and size != len(out):
        raise ValueError(f"it decodes to {size} bytes instead of {len(out)}")
    # If no size is stored, the codec itself checks that the decoded bytes fill ``out``.
    _decoder(codec).decode(encoded, out)


def require_bounded(codec: str, encoded: Bytes, most: int) -> None:
    """Raise ``ValueError`` if a codec of ``OWN`` decodes its input to more than ``most`` bytes.

    For callers that decode it afterwards without such a bound. Where the input stores its decoded size, only
    that is read.
    """
    if codec in STREAMS:
        size = len(stream_start(codec, encoded, most + 1))
    elif codec == "zstd":
        promise = zstd_promise(encoded) or Promise(0, exact=True)
        size = promise.size
        if size > most and not promise.exact and _fits(encoded, most):
            return
    else:
        size = word(encoded, 4 if codec == "blosc" else 0) if len(encoded) >= 8 else 0
    if size > most:
        raise ValueError(f"it decodes to {size} bytes or so, where {most} are the most that make sense")


def decode_within(codec: str, encoded: Bytes, most: int) -> Bytes:
    """Decode input that ``require_bounded`` has checked, by a codec of ``OWN``."""
    if codec in STREAMS:
        return np.frombuffer(stream_start(codec, encoded, most), np.uint8)
    return np.frombuffer(_decoder(codec).decode(encoded), np.uint8)


def _fits(encoded: Bytes, most: int) -> bool:
    """True if zstd frames that do not store their decoded size decode to at most ``most`` bytes."""
    try:
        _decoder("zstd").decode(encoded, np.empty(most, np.uint8))
    except RuntimeError as error:
        # Output that is shorter than the buffer is an error of the codec too.
        return "too small" not in str(error)
    return True


def require_whole_blosc(path: str) -> None:
    """Raise ``ValueError`` unless a file is as long as its Blosc header states."""
    with open_regular(path) as file:
        _require_whole(np.frombuffer(file.read(16), np.uint8), os.fstat(file.fileno()).st_size)


def _require_whole(head: Bytes, size: int) -> None:
    length = word(head, 12) if len(head) == 16 else 16
    if length != size:
        raise ValueError(f"it holds {size} bytes, but its Blosc header promises {length}")


def _decoded_size(codec: str, encoded: Bytes, expected: int) -> int | None:
    """Decoded size that the encoded bytes state; None if they state none."""
    if codec == "blosc":
        return word(encoded, 4)
    if codec == "lz4":
        return word(encoded, 0)
    first = zstd_size(encoded)
    if first == expected:
        return first
    promise = zstd_promise(encoded)
    return promise.size if promise is not None and promise.exact else None


@functools.cache
def _decoder(codec: str) -> Any:
    """Decoder from numcodecs; the encoded bytes contain its settings."""
    import numcodecs  # type: ignore[import-untyped]  # comes with Zarr, has no types
    import numcodecs.blosc  # type: ignore[import-untyped]

    # Threads of its own would compete with those of the sweep; Zarr sets the same.
    numcodecs.blosc.use_threads = False
    return numcodecs.get_codec({"id": codec})


class _Scratch(threading.local):
    """Buffers that a thread keeps from chunk to chunk, so that their pages are mapped once.

    They are mapped with ``mmap``: blocks below ``HEAP_BLOCK_BYTES`` would be scattered in the heap, even
    after their thread has ended.
    """

    def __init__(self) -> None:
        self.buffers: dict[str, Bytes] = {}

    def get(self, purpose: str, size: int) -> Bytes:
        """Buffer of ``size`` arbitrary bytes, valid until this thread asks for that purpose again."""
        buffer = self.buffers.get(purpose)
        if buffer is None or len(buffer) < size:
            self.buffers.pop(purpose, None)
            del buffer
            pages = mmap.mmap(-1, size + size // 8, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            buffer = self.buffers[purpose] = np.frombuffer(pages, np.uint8)
        return buffer[:size]


scratch = _Scratch()
"""The calling thread's buffers."""
