"""Encoding of the values of a Zarr chunk, and decoding them into memory that the caller owns.

Blosc, zstd and lz4 decode straight into the destination, with one reused buffer for the compressed
bytes. Zarr's own reader takes two new buffers for every chunk, in a pool of threads whose heaps keep
what they freed: for chunks of 16 MiB, measured, 95 MiB against 17 here, at half the speed.

The trap: Blosc does not check the end of its input. A truncated chunk decodes, without an error, to
whatever lies behind it in memory; so the sizes in its header are checked first.

From the codecs in the metadata of a Zarr array to an ``Encoding``.

The trap: chunks without compression need not be plain values in C order. Fortran order in version 2, a
filter, a transpose and a checksum each change the bytes of a chunk.

Decoders that stop at the number of bytes that a chunk must have, whatever its encoded bytes hold.

A few kB may decode to GB. gzip, zlib, bz2 and lzma do not store the decoded size, so they are decoded up to
one byte more than is wanted. zstd may store it in the header of each frame; for frames without it, the sizes
of their blocks give a bound.

The trap: a file may hold several frames or streams, one after the other, and the header of the first does
not include the others.
"""

from __future__ import annotations

import bz2
import dataclasses
import functools
import gzip
import itertools
import lzma
import mmap
import os
import sys
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.regular import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zarr.core.metadata import ArrayV2Metadata, ArrayV3Metadata


Bytes = npt.NDArray[np.uint8]

DICTIONARY_BYTES = 256 * 2**20
"""Largest bytes that an lzma stream may take besides its output; the highest preset takes 65 MiB."""

ZSTD_MAGIC = 0xFD2FB528

ZSTD_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
"""Magic numbers of frames that decode to nothing."""

ZSTD_BLOCK = 2**17
"""Largest number of bytes of one decoded block, RFC 8878 section 3.1.1.2.4."""

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
    """Decode by a codec of ``STREAMS`` into ``out``; ``ValueError`` unless decoded bytes fill it exactly."""
    block = stream_start(codec, packed_bytes, len(out) + 1)
    if len(block) != len(out):
        size = f"over {len(out)}" if len(block) > len(out) else f"{len(block)}"
        raise ValueError(f"it decodes to {size} bytes instead of {len(out)}")
    out[:] = np.frombuffer(block, np.uint8)


def stream_start(codec: str, packed_bytes: Bytes, most: int) -> bytes:
    """Decode ``packed_bytes`` by a codec of ``STREAMS``, up to ``most`` bytes of output."""
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
    """Unsigned 32-bit little-endian integer in ``packed_bytes`` at byte ``at``."""
    return int.from_bytes(packed_bytes[at : at + 4].tobytes(), "little")


def _frame_head(packed_bytes: Bytes, at: int) -> tuple[int | None, int, bool]:
    """Decoded size that a zstd frame states or None, offset of its first block, True if a checksum follows.

    RFC 8878 section 3.1.1.1; ``at`` is the offset of the frame header, behind the magic number. The checksum
    follows the last block.
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
    """Upper bound on the decoded bytes of the blocks of a frame from offset ``at`` on, and the end of these.

    The end is the offset behind the last block.
    """
    total, last = 0, False
    while not last and at + 3 <= len(packed_bytes):
        head = int.from_bytes(packed_bytes[at : at + 3].tobytes(), "little")
        last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
        total += ZSTD_BLOCK if kind == 2 else size
        at += 3 + (1 if kind == 1 else size)
    return total, at


OWN = ("blosc", "zstd", "lz4", *STREAMS)
"""Names in numcodecs of the codecs that are decoded here; Zarr decodes any other chain."""

CODEC_BYTES = 6 * 2**20
"""Largest number of bytes of workspace that a decoder allocates for one chunk, measured."""

TABLES = {"zstd": 2**20, "lz4": 2**18, "gzip": 2**19, "zlib": 2**19, "bz2": 4 * 2**20, "lzma": 2**20}
"""Bytes that the decoder of a chunk allocates for tables and windows, by codec, measured.

Blosc, which is not among them, allocates three of its blocks.
"""


@dataclass(frozen=True, slots=True)
class Encoding:
    """Encoding of the values of a chunk as bytes."""

    words: str
    """Text that shows all codecs, as ``blosc(zstd, 3, shuffle)``; ``none`` for uncompressed values."""

    reader: str
    """Way to read chunks: ``plain``, ``codec`` or ``zarr``.

    ``plain`` for uncompressed values in C order, ``codec`` for one codec of ``OWN``, ``zarr`` for all others,
    which Zarr decodes.
    """

    codec: str = ""
    """Name in numcodecs of the codec applied last in encoding; empty if none, or if Zarr reads shards."""

    swapped: bool = False
    """True if values are stored in the byte order that is not native."""

    index_at: str = ""
    """Position of the index in a shard, ``start`` or ``end``; empty if files are not shards."""

    index_checked: bool = False
    """True if the index is followed by its CRC-32C."""

    index_plain: bool = True
    """True if the index is not compressed, so that it is read here and not by Zarr."""

    stages: int = 1
    """Memory that Zarr takes to decode a chunk, as a multiple of decoded bytes; includes compressed ones."""


def encoded_bound(chunk_bytes: int) -> int:
    """Upper bound on the encoded bytes of ``chunk_bytes`` bytes that a codec of ``OWN`` cannot compress."""
    return chunk_bytes + chunk_bytes // 128 + 2**16


def decoder_bytes(codec: str, chunk_bytes: int) -> int:
    """Upper bound on the bytes of workspace to decode a chunk of ``chunk_bytes`` decoded bytes."""
    return TABLES.get(codec, min(CODEC_BYTES, 2**19 + 3 * chunk_bytes))


def codec_bytes(codec: str, chunk_bytes: int, *, encoded: int | None = None, placed: bool = False) -> int:
    """Upper bound on the memory of decoding a chunk: encoded bytes, a buffer, workspace of the codec.

    ``chunk_bytes`` is the decoded size of the chunk, ``encoded`` the number of encoded bytes;
    ``encoded_bound`` is used if it is None. A chunk that is ``placed`` is decoded straight into its
    destination. Streams decode in pieces, which are joined before they are copied. lzma has a window in
    addition, of which it touches no more than it has decoded.
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
    """Raise ``ValueError`` if a codec of ``OWN`` decodes ``encoded`` to more than ``most`` bytes.

    It is for callers that decode it afterwards without a bound. If ``encoded`` states its decoded size, only
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
    """Decode input that ``require_bounded`` has checked against ``most``, by a codec of ``OWN``."""
    if codec in STREAMS:
        return np.frombuffer(stream_start(codec, encoded, most), np.uint8)
    return np.frombuffer(_decoder(codec).decode(encoded), np.uint8)


def _fits(encoded: Bytes, most: int) -> bool:
    """True if zstd frames, which do not state their decoded size, decode to at most ``most`` bytes."""
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
    """Decoded size that the encoded bytes state; None if they state none.

    If the first frame of zstd states ``expected`` bytes, no other frame is looked at.
    """
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
"""Buffers of the calling thread, by purpose."""


SETTINGS = ("cname", "clevel", "level", "shuffle", "order")
"""Names of those settings of a codec that are shown to people."""

Chain = list[tuple[str, dict[str, Any]]]
"""Names and settings of codecs, in the order of encoding."""


def encoding_of(metadata: ArrayV2Metadata | ArrayV3Metadata) -> Encoding:
    """Encoding of the chunks of a Zarr array, from its metadata; of the inner chunks if it has shards."""
    return _version_2(metadata) if metadata.zarr_format == 2 else _version_3(metadata)


def _version_2(metadata: ArrayV2Metadata) -> Encoding:
    filters = [codec.get_config() for codec in metadata.filters or ()]
    compressor = [metadata.compressor.get_config()] if metadata.compressor else []
    chain = [(str(config["id"]), dict(config)) for config in (*filters, *compressor)]
    if metadata.order != "C":
        chain.insert(0, ("fortran", {}))
    swapped = not metadata.dtype.to_native_dtype().isnative
    return _encoding(chain, own=not filters and metadata.order == "C", swapped=swapped)


def _version_3(metadata: ArrayV3Metadata) -> Encoding:
    outer, inner = _chain(metadata.codecs), _chain(metadata.inner_codecs)
    swapped = any(_endian(settings) != sys.byteorder for name, settings in inner if name == "bytes")
    own = inner[0][0] == "bytes"
    index_at, index_checked, index_plain = "", False, True
    if outer[0][0] == "sharding_indexed":
        index = _chain(outer[0][1]["index_codecs"])
        index_plain = [name for name, _ in index] in (["bytes"], ["bytes", "crc32c"])
        index_plain = index_plain and _endian(index[0][1]) == "little"
        own = own and index_plain
        index_at, index_checked = str(outer[0][1]["index_location"]), len(index) == 2
    rest = [codec for codec in inner if codec[0] != "bytes"]
    encoding = _encoding(rest, own=own, swapped=swapped, index_at=index_at, index_checked=index_checked)
    return dataclasses.replace(encoding, index_plain=index_plain)


def _encoding(
    chain: Chain, *, own: bool, swapped: bool, index_at: str = "", index_checked: bool = False
) -> Encoding:
    """Encoding of chunks by a chain of codecs.

    ``own`` is True if the chain is applied to plain values in C order, ``swapped`` if these are not in native
    byte order. ``index_at`` and ``index_checked`` as in ``Encoding``.
    """
    names = [name for name, _ in chain]
    words, reader = " + ".join(_words(*codec) for codec in chain) or "none", "zarr"
    if own and not chain:
        reader = "plain"
    elif own and len(chain) == 1 and names[0] in OWN and is_told(*chain[0]):
        reader = "codec"
    # Decoders of streams copy their input and join pieces of output: two more copies of a chunk.
    # Compressed, decoded, one more for a second codec, one more where Zarr assembles a shard.
    stages = 2 + (len(chain) > 1) + 2 * any(_plain_name(name) in STREAMS for name in names) + bool(index_at)
    codec = names[-1] if names and (reader == "codec" or not index_at) else ""
    return Encoding(words, reader, codec, swapped, index_at, index_checked, stages=stages)


def is_told(name: str, settings: dict[str, Any]) -> bool:
    """True if encoded bytes can be decoded without the ``settings`` with which their codec encoded them.

    ``name`` and ``settings`` are name and configuration of a codec in the metadata of a Zarr array. False
    only for lzma in its raw format or with filters.
    """
    return name != "lzma" or (settings.get("format", 1) in (0, 1, 2) and not settings.get("filters"))


def byte_codecs(metadata: ArrayV2Metadata | ArrayV3Metadata) -> tuple[str, ...]:
    """Names in numcodecs of the codecs of an array, in decoding order, up to the first one not in ``OWN``.

    A ``crc32c`` among them is kept.
    """
    if metadata.zarr_format == 2:
        codecs = [codec.get_config() for codec in (*(metadata.filters or ()), metadata.compressor) if codec]
        chain = [(str(config["id"]), dict(config)) for config in codecs]
    else:
        chain = [(_plain_name(name), settings) for name, settings in _chain(metadata.inner_codecs)]
    prefix = itertools.takewhile(
        lambda codec: codec[0] in (*OWN, "crc32c") and is_told(*codec), reversed(chain)
    )
    return tuple(name for name, _ in prefix)


def _chain(codecs: Iterable[Any]) -> Chain:
    """Names and settings of codecs of version 3, given as objects or as dicts of the metadata document."""
    documents = [codec if isinstance(codec, dict) else codec.to_dict() for codec in codecs]
    return [
        (str(each["name"]), cast("dict[str, Any]", each.get("configuration") or {})) for each in documents
    ]


def _endian(settings: dict[str, Any]) -> str:
    """Byte order that a bytes codec states; types of one byte state none."""
    return str(settings.get("endian", sys.byteorder))


def _words(name: str, settings: dict[str, Any]) -> str:
    """Text that shows a codec to people, as ``blosc(zstd, 3, shuffle)``."""
    words = [str(settings[key]) for key in SETTINGS if key in settings]
    return f"{_plain_name(name)}({', '.join(words)})" if words else _plain_name(name)


def _plain_name(name: str) -> str:
    """Name without the namespace that Zarr gives codecs outside the specification."""
    return name.removeprefix("numcodecs.")
