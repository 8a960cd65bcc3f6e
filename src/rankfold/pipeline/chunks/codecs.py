"""From the codecs in the metadata of a Zarr array to an ``Encoding``.

The trap: chunks without compression need not be plain values in C order. Fortran order in version 2, a
filter, a transpose and a checksum each change the bytes of a chunk.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from typing import TYPE_CHECKING, Any, cast

from rankfold.pipeline.chunks.decoders import STREAMS
from rankfold.pipeline.chunks.encoding import OWN, Encoding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zarr.core.metadata import ArrayV2Metadata, ArrayV3Metadata

SETTINGS = ("cname", "clevel", "level", "shuffle", "order")
"""Settings of codecs that are shown to people."""

Chain = list[tuple[str, dict[str, Any]]]
"""Names and settings of codecs, in the order of encoding."""


def encoding_of(metadata: ArrayV2Metadata | ArrayV3Metadata) -> Encoding:
    """Encoding of the chunks of an array; of the inner chunks if it has shards."""
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
    """True if the encoded bytes alone determine how to decode them, which those of lzma may not."""
    return name != "lzma" or (settings.get("format", 1) in (0, 1, 2) and not settings.get("filters"))


def byte_codecs(metadata: ArrayV2Metadata | ArrayV3Metadata) -> tuple[str, ...]:
    """Names in numcodecs of bytes-to-bytes codecs, in decoding order, up to the first codec not in ``OWN``.

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
