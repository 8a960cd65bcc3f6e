"""The number of missing chunks: those that a store does not hold, and that its format reads as fill value.

Zarr does not write a chunk, or an inner chunk of a shard, that is all fill value. So a store that lacks
chunks may be complete or damaged, and only the number of missing chunks can be reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

CHOICES = ("fill", "error")
"""Values of ``missing_chunks``: read missing chunks as fill value, or refuse them."""

REFUSAL = "missing_chunks='error' (--missing-chunks error) refuses them"


@dataclass(frozen=True, slots=True)
class Absence:
    """Number of chunks that a store lacks, ``count``, and of all that its shape implies, ``total``.

    Inner chunks are counted if it has shards.
    """

    count: int
    total: int
    fills: tuple[str, ...]
    """Fill value of each array that lacks chunks, as text."""

    sampled: bool = False
    """True if ``count`` is estimated from a sample of the files."""

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON values, for the attributes of a result."""
        facts = {"missing": self.count, "of": self.total, "fill": list(self.fills)}
        return facts | ({"sampled": True} if self.sampled else {})

    def __str__(self) -> str:
        about = "about " * self.sampled
        verb = "is" if self.count == 1 else "are"
        return (
            f"{about}{self.count} of {self.total} chunks {verb} not in the store and read as fill value "
            f"{' or '.join(self.fills)}, as the format says"
        )


def estimate_absence(absent: int, examined: int, total: int, fill: object) -> Absence:
    """Absence of ``total`` chunks, estimated from ``examined`` ones, of which ``absent`` are missing.

    ``fill`` is the fill value of the array.
    """
    if examined in (0, total):
        return Absence(absent, total, (str(fill),))
    # A sample that lacks none gives an estimate of 0; the estimate is never below what was found.
    count = min(total, max(absent, round(absent * total / examined)))
    return Absence(count, total, (str(fill),), sampled=True)


def sum_absences(parts: Iterable[Absence | None]) -> Absence | None:
    """Absence of several arrays together; None if it is known for none of them."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    lacking = [part for part in known if part.count]
    fills = dict.fromkeys(fill for part in lacking or known for fill in part.fills)
    count, total = sum(part.count for part in known), sum(part.total for part in known)
    return Absence(count, total, tuple(fills), any(part.sampled for part in known))


def inner_counts(
    shape: tuple[int, ...], extent: tuple[int, ...], chunks: tuple[int, ...], place: tuple[int, ...]
) -> tuple[int, ...]:
    """Number of inner chunks of a shard along every axis, without those beyond the end of the array.

    ``extent`` is the shape of a shard, ``place`` its index in the grid of shards.

    >>> inner_counts((10, 6), (8, 4), (2, 2), (1, 0))
    (1, 2)
    """
    return tuple(
        -(-min(size, length - size * i) // chunk)
        for length, size, chunk, i in zip(shape, extent, chunks, place, strict=True)
    )


def chunk_count(shape: tuple[int, ...], chunks: tuple[int, ...]) -> int:
    """Number of chunks of shape ``chunks`` in a complete array of shape ``shape``."""
    return math.prod(-(-length // chunk) for length, chunk in zip(shape, chunks, strict=True))
