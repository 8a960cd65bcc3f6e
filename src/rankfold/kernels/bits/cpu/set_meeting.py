"""Compare two blocks of sparse rows as sets on the host. See ``kernels/bits/set_meeting.py``.

Tiles of products are those of ``kernels/neighbors/cpu/sparse_meeting.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop
from rankfold.kernels._dispatch import wide
from rankfold.kernels.bits.bit_meeting import RUN
from rankfold.kernels.bits.cpu._shares import Lanes, lists_of_others, open_lanes, take_run
from rankfold.kernels.neighbors.bounds import pieces
from rankfold.kernels.neighbors.cpu.sparse_meeting import SparseTiles
from rankfold.kernels.neighbors.meeting import Lists
from rankfold.kernels.neighbors.sparse_meeting import TILE, SparseRows

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

MOST_SINGLE = 2**24
"""Largest number of stored entries of a row for which float32 counts shared members exactly."""


def meet_sets(
    x: SparseRows,
    y: SparseRows,
    *,
    common: Int64,
    lists_i: Lists,
    lists_j: Lists | None,
    metric: int,
    same: bool,
    room: Callable[..., Array],
) -> None:
    """See the contract. Compares each pair of rows of two blocks as sets of columns, and inserts it into
    lists of neighbors, which are contiguous arrays.
    """
    dtype = np.dtype(np.float32 if max(x.longest, y.longest) <= MOST_SINGLE else np.float64)
    task = SparseTiles(common, room)
    sizes = [np.diff(side.indptr).astype(np.float64) for side in (x, y)]
    keys_j, ids_j = lists_of_others(lists_i, lists_j, len(y), same=same)
    scratch = np.empty(RUN), np.empty(RUN), np.empty(RUN), np.empty(RUN, np.int64)
    places = task.places(x.columns)
    for top, end in pieces(len(y), TILE[1]):
        by_columns = task.by_columns(y.part(top, end), places, dtype)
        for first, last in pieces(len(x), TILE[0]):
            if same and first >= end - 1:
                continue
            by_rows = task.part("held", x.part(first, last), places, dtype)
            begin = max(top, first + 1) if same else top
            _meet_tile(
                wide(task.products(by_rows, by_columns, begin - top)),
                sizes[0][first:last],
                sizes[1][begin:end],
                (lists_i.keys[first:last], lists_i.ids[first:last]),
                (keys_j[begin:end], ids_j[begin:end]),
                (x.first + first, y.first + begin),
                first - begin + 1 if same else first - last,
                (x.columns, int(metric)),
                np.empty(RUN, dtype),
                scratch,
            )


@compile_loop
def _meet_tile(
    products: Array,
    sizes_i: Float64,
    sizes_j: Float64,
    lists_i: tuple[Float64, Int64],
    lists_j: tuple[Float64, Int64],
    first: tuple[int, int],
    diagonal: int,
    what: tuple[int, int],
    shared: Array,
    lanes: Lanes,
) -> None:
    p, q, (first_i, first_j), (bits, metric) = len(sizes_i), len(sizes_j), first, what
    (keys_i, ids_i), (keys_j, ids_j) = lists_i, lists_j
    for start in range(0, q, RUN):
        columns = min(RUN, q - start)
        open_lanes(lanes, sizes_j, keys_j, ids_j, start, columns, first_i, bits, metric)
        shared[:] = 0
        for i in range(p):
            least = max(0, i + diagonal - start)
            if least >= columns:
                break
            for j in range(columns):
                shared[j] = products[i, start + j]
            take_run(
                shared,
                lanes,
                sizes_i[i],
                keys_i[i],
                ids_i[i],
                first_i + i,
                keys_j,
                ids_j,
                start,
                first_j,
                least,
                columns,
                bits,
                metric,
            )
