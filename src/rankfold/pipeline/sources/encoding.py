"""How the numbers of a Zarr chunk are encoded, and decoding them into memory that the caller owns.

Blosc, zstd and lz4 decode straight into the destination, with one reused buffer for the compressed
bytes. Zarr's own reader takes two new buffers for every chunk, in a pool of threads whose heaps keep
what they freed: for chunks of 16 MiB, measured, 95 MiB against 17 here, at half the speed.

The trap: Blosc does not look at the end of its input. A chunk that was cut short decodes, without an
error, to whatever lies behind it in memory; so the sizes in its header are compared first.
"""

from __future__ import annotations

import functools
import mmap
import os
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

OWN = ("blosc", "zstd", "lz4")
"""Codecs, by their name in numcodecs, that are decoded here; any other chain is left to Zarr."""

CODEC_BYTES = 6 * 2**20
"""What decoders take for themselves, by measurement: Blosc three blocks, kept by the thread's heap."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """What stands between the bytes of a chunk and its numbers."""

    words: str
    """All codecs for people, as ``blosc(zstd, 3, shuffle)``; ``none`` for plain numbers."""

    reader: str
    """``plain`` numbers in C order, one ``codec`` of ``OWN`` around them, or left to ``zarr``."""

    codec: str = ""
    """The codec nearest to the file, by its name in numcodecs; nothing for shards left to Zarr."""

    swapped: bool = False
    """Whether the bytes of a number are stored the other way round."""

    index_at: str = ""
    """``start`` or ``end``: where a shard has its index; nothing if files are not shards."""

    index_checked: bool = False
    """Whether the index is followed by its CRC-32C."""

    stages: int = 1
    """Times the size of a chunk that Zarr holds while it decodes one, compressed bytes included."""


def encoded_bound(chunk_bytes: int) -> int:
    """Most bytes that a codec of ``OWN`` makes of a chunk that it cannot compress."""
    return chunk_bytes + chunk_bytes // 128 + 2**16


def decode_into(codec: str, encoded: Bytes, out: Bytes) -> None:
    """Decode ``encoded`` so that it fills ``out``, or raise ``ValueError`` or what the codec raises."""
    if codec == "blosc":
        _require_whole(encoded[:16], len(encoded))
    if _decoded_size(codec, encoded) == len(out):
        _decoder(codec).decode(encoded, out)
        return
    # A size that is not written, or that of the first of several frames: the codec finds out.
    decoded = np.frombuffer(_decoder(codec).decode(encoded), np.uint8)
    if len(decoded) != len(out):
        raise ValueError(f"it decodes to {len(decoded)} bytes instead of {len(out)}")
    out[:] = decoded


def require_whole_blosc(path: str) -> None:
    """Raise ``ValueError`` unless a file is as long as the Blosc header in it says."""
    with open(path, "rb") as file:
        _require_whole(np.frombuffer(file.read(16), np.uint8), os.fstat(file.fileno()).st_size)


def _require_whole(head: Bytes, size: int) -> None:
    promised = _word(head, 12) if len(head) == 16 else 16
    if promised != size:
        raise ValueError(f"it holds {size} bytes, but its Blosc header promises {promised}")


def _decoded_size(codec: str, encoded: Bytes) -> int | None:
    """What the head of the encoded bytes says of the size of the decoded ones, if anything."""
    if codec == "blosc":
        return _word(encoded, 4)
    if codec == "lz4":
        return _word(encoded, 0)
    if len(encoded) < 5 or _word(encoded, 0) != 0xFD2FB528:
        return None
    return _zstd_size(encoded[4:18].tolist())


def _zstd_size(head: list[int]) -> int | None:
    """Frame_Content_Size of a frame header, RFC 8878 section 3.1.1.1, given without its magic number."""
    flag, single, dictionary = head[0] >> 6, head[0] >> 5 & 1, (0, 1, 2, 4)[head[0] & 3]
    width = (single, 2, 4, 8)[flag]
    if width == 0:
        return None
    start = 1 + (1 - single) + dictionary
    size = int.from_bytes(bytes(head[start : start + width]), "little")
    return size + 256 if width == 2 else size


def _word(encoded: Bytes, at: int) -> int:
    """Unsigned 32 bits, least significant byte first."""
    return int.from_bytes(encoded[at : at + 4].tobytes(), "little")


@functools.cache
def _decoder(codec: str) -> Any:
    """Decoder from numcodecs; its settings lie in the encoded bytes."""
    import numcodecs  # type: ignore[import-untyped]  # comes with Zarr, has no types
    import numcodecs.blosc  # type: ignore[import-untyped]

    # Threads of its own would compete with those of the sweep; Zarr sets the same.
    numcodecs.blosc.use_threads = False
    return numcodecs.get_codec({"id": codec})


class _Scratch(threading.local):
    """Buffers that a thread keeps from chunk to chunk, so that their pages are mapped once.

    Mapped by hand, since the heap of a thread that has ended is not given back to the system.
    """

    def __init__(self) -> None:
        self.buffers: dict[str, Bytes] = {}

    def get(self, purpose: str, size: int) -> Bytes:
        """At least ``size`` bytes of any content, until the same thread asks for them again."""
        buffer = self.buffers.get(purpose)
        if buffer is None or len(buffer) < size:
            self.buffers.pop(purpose, None)
            del buffer
            pages = mmap.mmap(-1, size + size // 8, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            buffer = self.buffers[purpose] = np.frombuffer(pages, np.uint8)
        return buffer[:size]


scratch = _Scratch()
"""The calling thread's buffers."""
