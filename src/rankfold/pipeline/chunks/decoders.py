"""Decoders that stop at the number of bytes that a chunk must have, whatever its encoded bytes hold.

A few kB may decode to GB. gzip, zlib, bz2 and lzma do not store the decoded size, so they are decoded up to
one byte more than is wanted. zstd may store it in the header of each frame; for frames without it, the sizes
of their blocks give a bound.

The trap: a file may hold several frames or streams, one after the other, and the header of the first does
not include the others.
"""

from __future__ import annotations

import bz2
import functools
import gzip
import lzma
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

DICTIONARY_BYTES = 256 * 2**20
"""Most memory that an lzma stream may take in addition to its output; the highest preset takes 65 MiB."""

ZSTD_MAGIC = 0xFD2FB528

ZSTD_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
"""Magic numbers of frames that decode to nothing."""

ZSTD_BLOCK = 2**17
"""Most bytes of one decoded block, RFC 8878 section 3.1.1.2.4."""

Stream = Any
"""A decoder of the standard library: ``decompress(encoded, most)``, ``eof`` and ``unused_data``."""

STREAMS: Mapping[str, Callable[[], Stream]] = {
    "gzip": functools.partial(zlib.decompressobj, 31),
    "zlib": zlib.decompressobj,
    "bz2": bz2.BZ2Decompressor,
    "lzma": functools.partial(lzma.LZMADecompressor, lzma.FORMAT_AUTO, DICTIONARY_BYTES),
}
"""Decoders of formats that do not store the decoded size, by their names in numcodecs."""


class Promise(NamedTuple):
    """Decoded size in bytes, as the encoded bytes state it."""

    size: int
    exact: bool
    """True if ``size`` is exact; False if it is an upper bound."""


def decode_stream(codec: str, packed_bytes: Bytes, out: Bytes) -> None:
    """Fill ``out`` by a codec of ``STREAMS``; ``ValueError`` unless the decoded size is that of ``out``."""
    block = stream_start(codec, packed_bytes, len(out) + 1)
    if len(block) != len(out):
        size = f"over {len(out)}" if len(block) > len(out) else f"{len(block)}"
        raise ValueError(f"it decodes to {size} bytes instead of {len(out)}")
    out[:] = np.frombuffer(block, np.uint8)


def stream_start(codec: str, packed_bytes: Bytes, most: int) -> bytes:
    """Decode the first ``most`` bytes by a codec of ``STREAMS``, or all if there are fewer."""
    rest: memoryview | bytes = packed_bytes.data
    parts: list[bytes] = []
    while len(rest) and most:
        if codec == "gzip" and bytes(rest[:2]) != b"\x1f\x8b":
            raise gzip.BadGzipFile(f"not a gzipped file ({bytes(rest[:2])!r})")
        stream = STREAMS[codec]()
        parts.append(stream.decompress(rest, most))
        most -= len(parts[-1])
        if not stream.eof and most:
            raise EOFError("it ends before its end-of-stream marker")
        # Files are padded with zeros now and then; a stream of zlib ends the chunk.
        rest = b"" if codec == "zlib" else stream.unused_data.lstrip(b"\0")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def zstd_promise(packed_bytes: Bytes) -> Promise | None:
    """Decoded size from the headers of all zstd frames, read without decoding; None if not all is zstd."""
    at, total, exact = 0, 0, True
    while at < len(packed_bytes):
        magic = word(packed_bytes, at)
        if magic in ZSTD_SKIPPABLE:
            at += 8 + word(packed_bytes, at + 4)
            continue
        if magic != ZSTD_MAGIC or len(packed_bytes) < at + 6:
            return None
        size, at, checksum = _frame_head(packed_bytes, at + 4)
        count, at = _blocks(packed_bytes, at)
        at += 4 * checksum
        total, exact = total + (count if size is None else size), exact and size is not None
    return Promise(total, exact)


def zstd_size(packed_bytes: Bytes) -> int | None:
    """Decoded size that the header of the first zstd frame states for that frame; None if it states none."""
    if len(packed_bytes) < 6 or word(packed_bytes, 0) != ZSTD_MAGIC:
        return None
    return _frame_head(packed_bytes, 4)[0]


def word(packed_bytes: Bytes, at: int) -> int:
    """Unsigned 32-bit little-endian integer at byte ``at``."""
    return int.from_bytes(packed_bytes[at : at + 4].tobytes(), "little")


def _frame_head(packed_bytes: Bytes, at: int) -> tuple[int | None, int, bool]:
    """Decoded size or None, offset of the first block, and True if a checksum follows the blocks.

    RFC 8878 section 3.1.1.1; ``at`` is behind the magic number.
    """
    head = int(packed_bytes[at])
    flag, single, checksum, dictionary = head >> 6, head >> 5 & 1, bool(head >> 2 & 1), (0, 1, 2, 4)[head & 3]
    width = (single, 2, 4, 8)[flag]
    start = at + 1 + (1 - single) + dictionary
    if width == 0:
        return None, start, checksum
    size = int.from_bytes(packed_bytes[start : start + width].tobytes(), "little")
    return (size + 256 if width == 2 else size), start + width, checksum


def _blocks(packed_bytes: Bytes, at: int) -> tuple[int, int]:
    """Most bytes that the blocks of a frame decode to, and the offset behind the last block."""
    total, last = 0, False
    while not last and at + 3 <= len(packed_bytes):
        head = int.from_bytes(packed_bytes[at : at + 3].tobytes(), "little")
        last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
        total += ZSTD_BLOCK if kind == 2 else size
        at += 3 + (1 if kind == 1 else size)
    return total, at
