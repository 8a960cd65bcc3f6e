"""Compare two blocks of rows of bits: exact nearest neighbors of either block in the other.

Bits are packed into words of 64. The ones that two rows share are counted by the instruction that counts the
bits of a word, and the key of a pair follows: nothing is rounded but one quotient, and no candidate is
measured twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.bits.set_keys import set_key
from rankfold.kernels.neighbors.lists import _take
from rankfold.kernels.neighbors.meeting import Lists

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]

WORD = 64
"""Bits of a word."""

RUN = 128
"""Number of rows of ``y`` that are compared with a row of ``x`` at a time."""


@dataclass(frozen=True, slots=True)
class BitRows:
    """Some rows of a matrix of bits, in memory."""

    first: int
    """Number of the first of these rows in the matrix."""

    bits: int
    """Columns of the matrix, one bit each."""

    words: npt.NDArray[np.uint64]
    """(rows, words) packed bits of each row; bits beyond the last column are zero."""

    sizes: Int64
    """(rows,) number of ones in each row."""

    def __len__(self) -> int:
        return len(self.words)


def words_of(bits: int) -> int:
    """Number of 64-bit words that hold a row of ``bits`` bits.

    >>> words_of(64), words_of(65)
    (1, 2)
    """
    return -(-bits // WORD)


@kernel
def meet_bits(
    x: BitRows,
    y: BitRows,
    *,
    lists_i: Lists,
    lists_j: Lists | None,
    metric: int,
    same: bool,
) -> None:
    """Compare all pairs of rows of two blocks, and insert them into the neighbor lists of both, in place.

    Parameters
    ----------
    x, y : BitRows
        p and q rows of the same bits; ``y`` is ``x`` where ``same``.
    lists_i, lists_j : Lists
        Neighbor lists of the rows of x and of y; ``lists_j`` is None if y has none or is x. Written.
    metric : one of ``SetMetric``
    same : bool
        True if both are one block; no row is then paired with itself.

    Notes
    -----
    Work: an AND, a count and an addition for each word of a pair, in vectors across the rows of ``y``.
    Scratch: 1 KiB for each word of a row.
    """
    for i in range(len(x)):
        shared = np.bitwise_count(x.words[i] & y.words).sum(axis=1, dtype=np.int64)
        for j in range(len(y)):
            if same and i == j:
                continue
            key = set_key(int(shared[j]), int(x.sizes[i]), int(y.sizes[j]), x.bits, metric)
            _take(lists_i.keys[i], lists_i.ids[i], key, y.first + j)
            if lists_j is not None:
                _take(lists_j.keys[j], lists_j.ids[j], key, x.first + i)


def scratch_bytes(rows: int, words: int) -> int:
    """Upper bound on the scratch bytes of ``meet_bits`` on blocks of ``rows`` rows of ``words`` words.

    These are the transposed words of a run of ``RUN`` rows, sizes, and lists that accept nothing in place of
    missing ones.
    """
    return RUN * (8 * words + 5 * 8) + rows * (2 * 8 + 2 * 8)
