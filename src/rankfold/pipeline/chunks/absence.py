"""Chunks that a store does not hold and its format reads as fill value: how many, and what is said of them.

Zarr writes no chunk, nor an inner chunk of a shard, that is all fill value, so a store without some of its
chunks is as likely whole as it is damaged, and only their number can be told.
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
    """How many chunks a matrix has, and how many of them its store lacks; of shards, inner chunks count."""

    count: int
    total: int
    fills: tuple[str, ...]
    """Fill value of each array that lacks chunks, as text."""

    sampled: bool = False
    """Whether ``count`` is estimated from a sample of the files."""

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON values, for the attributes of a result."""
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
    """Absence of ``total`` chunks, of which so many were looked at."""
    if examined in (0, total):
        return Absence(absent, total, (str(fill),))
    # A sample that lacks none says nothing of the rest; one that lacks some stands for at least these.
    count = min(total, max(absent, round(absent * total / examined)))
    return Absence(count, total, (str(fill),), sampled=True)


def sum_absences(parts: Iterable[Absence | None]) -> Absence | None:
    """Absence of several arrays together; None where chunks of none are known."""
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
    """Inner chunks of a shard along every axis, without those beyond the end of the array.

    >>> inner_counts((10, 6), (8, 4), (2, 2), (1, 0))
    (1, 2)
    """
    return tuple(
        -(-min(size, length - size * i) // chunk)
        for length, size, chunk, i in zip(shape, extent, chunks, place, strict=True)
    )


def chunk_count(shape: tuple[int, ...], chunks: tuple[int, ...]) -> int:
    """Number of chunks of an array."""
    return math.prod(-(-length // chunk) for length, chunk in zip(shape, chunks, strict=True))
