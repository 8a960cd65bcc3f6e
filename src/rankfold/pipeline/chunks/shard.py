"""The index of a Zarr shard: where in the file its inner chunks lie.

https://zarr-specs.readthedocs.io/en/latest/v3/codecs/sharding-indexed: a pair (offset, bytes) of
little-endian uint64 for every inner chunk in C order, at the start or the end of the file, usually
followed by a CRC-32C. Only that checksum shows that a shard was truncated.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.encoding import Encoding
from rankfold.pipeline.chunks.reads import read_run

ABSENT = 2**64 - 1
"""Offset of an inner chunk that was not written, because it holds only the fill value."""


def read_index(fd: int, size: int, count: int, encoding: Encoding) -> npt.NDArray[np.uint64]:
    """Read the index of a shard of ``size`` bytes: offset and bytes of ``count`` inner chunks, (count, 2)."""
    start, stop = index_span(size, count, encoding)
    head = np.empty(stop - start, np.uint8)
    read_run(fd, head, start)
    return decode_index(head, size, count, encoding)


def index_span(size: int, count: int, encoding: Encoding) -> tuple[int, int]:
    """First byte of the index of a shard, and one past its last.

    Raises ``ValueError`` for a shard that is shorter than its index.
    """
    length = 16 * count + 4 * encoding.index_checked
    if size < length:
        raise ValueError(f"it holds {size} bytes, less than the {length} of its index")
    return (0, length) if encoding.index_at == "start" else (size - length, size)


def decode_index(
    head: npt.NDArray[np.uint8], size: int, count: int, encoding: Encoding
) -> npt.NDArray[np.uint64]:
    """Decode and check the bytes of an index; see ``read_index``. ``ValueError`` if it is damaged."""
    if encoding.index_checked:
        import google_crc32c

        if google_crc32c.value(head[:-4].tobytes()) != int.from_bytes(head[-4:].tobytes(), "little"):
            raise ValueError("the checksum of its index does not match: it is cut short or damaged")
    index = head[: 16 * count].view("<u8").reshape(count, 2).astype(np.uint64, copy=False)
    present = index[index[:, 0] != ABSENT]
    if len(present) and int(present.sum(axis=1).max()) > size:
        raise ValueError(f"its index points beyond its {size} bytes: it is cut short or damaged")
    return index
