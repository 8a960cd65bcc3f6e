"""Insert pairs into lists by counts of what their rows share. See ``kernels/bits/set_keys.py``.

Lanes are ``RUN`` columns, that is rows of the other side. Whether a pair may enter a list is one linear test
of the number of members that both rows share:

- Hamming: ``(s - 2 shared) / bits``, with ``s`` the sum of both sizes, is at most the farthest of the list,
  ``limit / bits``, where ``shared`` is at least ``s / 2 - limit / 2``.
- Jaccard: ``(s - 2 shared) / (s - shared)`` is at most ``far`` where ``shared`` is at least
  ``s (1 - far) / (2 - far)``.

Ties are common among whole numbers, and a list accepts no equal pair of a larger id. So where its farthest
has an id smaller than all that follow, the test is strict: a limit one less, a slope above by ``MARGIN``.
A slope is a number of shared members divided by a sum of two sizes, which is at most twice ``MOST_STRICT``:
different slopes differ by 2^-46 at least, and each is right to 2^-51. The test is never too strict, and
``take`` repeats it: a pair that passes by mistake costs only time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import contracted_part, part
from rankfold.kernels.bits.bit_meeting import RUN
from rankfold.kernels.bits.set_keys import SetMetric
from rankfold.kernels.neighbors.cpu._heaps import take
from rankfold.kernels.neighbors.meeting import Lists

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

MARGIN = 2.0**-48
"""Amount by which a slope is raised or lowered: above its rounding error, and below the least difference of
two slopes."""

MOST_STRICT = 2**22
"""Largest number of bits of a row for which different slopes differ by more than ``MARGIN``."""

HAMMING = int(SetMetric.HAMMING)

Index = np.uint64
"""Index type of loops that are to be vectorized: see ``kernels/neighbors/cpu/lists.py``."""

Lanes = tuple[Float64, Float64, Float64, Int64]
"""Size, slope and offset of each column of a run, ``RUN`` each; last a buffer that lists the near columns."""


def lists_of_others(
    lists_i: Lists, lists_j: Lists | None, count: int, *, same: bool
) -> tuple[Float64, Int64]:
    """Keys and ids, (count, k), of the neighbor lists of ``count`` columns, that is rows of the other block.

    They are those of ``lists_i`` if both blocks are the same, else those of ``lists_j``; if that is None,
    they are new lists that accept nothing.
    """
    if same:
        return lists_i.keys, lists_i.ids
    if lists_j is None:
        return np.full((count, 1), -np.inf), np.zeros((count, 1), np.int64)
    return lists_j.keys, lists_j.ids


@part
def limit(key: float, name: int, size: float, first: int, bits: int, metric: int) -> tuple[float, float]:
    """Slope and offset of the test that a pair must pass to enter the neighbor list of a row.

    The row has ``size`` members; the farthest neighbor in its list is row ``name``, at distance ``key``.
    Candidates have ids from ``first`` on. A candidate may enter only if it shares at least
    ``offset + slope * size`` members with the row, where ``size`` is the candidate's own.
    """
    if np.isinf(key):  # inf: the list is not full; -inf: it accepts nothing
        return 0.0, -key
    strict = name < first and bits <= MOST_STRICT
    if metric == HAMMING:
        return 0.5, (size - np.rint(key * bits) + (1.0 if strict else 0.0)) / 2
    slope = (1 - key) / (2 - key) + (MARGIN if strict else -MARGIN)
    return slope, slope * size


@part
def open_lanes(
    lanes: Lanes,
    sizes: Float64,
    keys: Float64,
    ids: Int64,
    start: int,
    columns: int,
    first: int,
    bits: int,
    metric: int,
) -> None:
    """Write into ``lanes`` size, slope and offset of each column of a run, for rows of ids >= ``first``.

    The run is columns ``start:start + columns`` of a block; ``sizes``, ``keys`` and ``ids`` are those of all
    columns of the block. Lanes after the last column pass no pair.
    """
    for j in range(RUN):
        if j < columns:
            size = sizes[start + j]
            lanes[0][j] = size
            lanes[1][j], lanes[2][j] = limit(keys[start + j, 0], ids[start + j, 0], size, first, bits, metric)
        else:
            lanes[0][j], lanes[1][j], lanes[2][j] = 0.0, 0.0, np.inf


@part
def take_run(
    shared: Array,
    lanes: Lanes,
    size: float,
    keys: Float64,
    ids: Int64,
    name: int,
    keys_j: Float64,
    ids_j: Int64,
    start: int,
    first_j: int,
    least: int,
    columns: int,
    bits: int,
    metric: int,
) -> None:
    """Insert pairs of a row and the columns of a run that pass the test into the lists of both, in place.

    Parameters
    ----------
    shared : (RUN,)
        Numbers of members that the row shares with each column of the run.
    lanes : Lanes
        Of the run; slopes and offsets are updated with the lists.
    size, keys, ids, name
        Of the row: its size, its neighbor list, and its id.
    keys_j, ids_j : (q, k)
        Neighbor lists of all columns of the block.
    start, first_j : int
        First column of the run in the block, and the id of the block's first column.
    least, columns : int
        Columns ``least:columns`` of the run are compared.
    """
    slope, offset = limit(keys[0], ids[0], size, first_j + start, bits, metric)
    if not _any_near(shared, lanes[0], lanes[1], lanes[2], size, slope, offset):
        return
    for t in range(_list_near(shared, lanes[0], lanes[1], lanes[2], size, slope, offset, lanes[3])):
        j = lanes[3][t]
        if least <= j < columns:
            key = _key(np.float64(shared[j]), size + lanes[0][j], bits, metric)
            take(keys, ids, key, first_j + start + j)
            take(keys_j[start + j], ids_j[start + j], key, name)
            # Rows that follow have larger ids.
            lanes[1][j], lanes[2][j] = limit(
                keys_j[start + j, 0], ids_j[start + j, 0], lanes[0][j], name + 1, bits, metric
            )


@part
def _key(shared: float, sizes: float, bits: int, metric: int) -> float:
    apart = sizes - 2 * shared
    if metric == HAMMING:
        return apart / bits
    return apart / (apart + shared) if apart > 0 else 0.0


@contracted_part
def _any_near(
    shared: Array, sizes: Float64, slopes: Float64, offsets: Float64, size: float, slope: float, offset: float
) -> bool:
    near = False
    for j in range(Index(RUN)):
        by_row, by_column = offset + slope * sizes[j], offsets[j] + slopes[j] * size
        least = by_row if by_row < by_column else by_column
        near |= least <= np.float64(shared[j])
    return near


@contracted_part
def _list_near(
    shared: Array,
    sizes: Float64,
    slopes: Float64,
    offsets: Float64,
    size: float,
    slope: float,
    offset: float,
    columns: Int64,
) -> int:
    count = Index(0)
    for j in range(Index(RUN)):
        columns[count] = j
        by_row, by_column = offset + slope * sizes[j], offsets[j] + slopes[j] * size
        least = by_row if by_row < by_column else by_column
        count += Index(least <= np.float64(shared[j]))
    return count  # type: ignore[return-value]
