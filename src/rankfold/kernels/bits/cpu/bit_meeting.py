"""Compare two blocks of rows of bits on the host. See ``kernels/bits/bit_meeting.py``.

Columns, that is rows of the other side, are transposed a run at a time, so that the words of a run are
vectors: one AND, one count of bits and one addition each. The compiler uses what a machine has: vector
counts (AVX-512 VPOPCNTDQ), tables of nibbles (AVX2), or the scalar instruction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba.extending import intrinsic

from rankfold.kernels._compiled import compile_loop, part
from rankfold.kernels._dispatch import plain
from rankfold.kernels.bits.bit_meeting import RUN, BitRows
from rankfold.kernels.bits.cpu._shares import Lanes, lists_of_others, open_lanes, take_run
from rankfold.kernels.neighbors.bounds import tiles
from rankfold.kernels.neighbors.meeting import Lists

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

TILE = 512
"""Largest number of rows of either side that are compared at once: their words and lists stay in cache."""

Index = np.uint64
ONE, TWO, THREE = Index(1), Index(2), Index(3)


def meet_bits(
    x: BitRows, y: BitRows, *, lists_i: Lists, lists_j: Lists | None, metric: int, same: bool
) -> None:
    """See the contract. Compares each pair of rows of packed bits from two blocks, and inserts it into lists
    of neighbors, which are contiguous arrays.
    """
    words = plain(x.words), plain(y.words)
    sizes = [np.ascontiguousarray(side.sizes, np.float64) for side in (x, y)]
    keys_j, ids_j = lists_of_others(lists_i, lists_j, len(y), same=same)
    run = np.empty((words[0].shape[1], RUN), np.uint64)
    scratch = np.empty(RUN), np.empty(RUN), np.empty(RUN), np.empty(RUN, np.int64)
    for i, j in tiles(len(x), len(y), TILE, same=same):
        _meet_words(
            words[0][i],
            words[1][j],
            sizes[0][i],
            sizes[1][j],
            (lists_i.keys[i], lists_i.ids[i]),
            (keys_j[j], ids_j[j]),
            (x.first + i.start, y.first + j.start),
            i.start - j.start + 1 if same else i.start - i.stop,
            (x.bits, int(metric)),
            run,
            np.empty(RUN, np.uint64),
            scratch,
        )


def _generate_count(typing: Any, word: Any) -> Any:
    """Count the ones of a word, by one instruction or as part of a vector."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = builder.module.declare_intrinsic("llvm.ctpop", [arguments[0].type])
        return builder.call(function, arguments)

    return word(word), generate


_count_ones: Any = intrinsic(_generate_count)


@compile_loop
def _meet_words(
    x: Array,
    y: Array,
    sizes_i: Float64,
    sizes_j: Float64,
    lists_i: tuple[Float64, Int64],
    lists_j: tuple[Float64, Int64],
    first: tuple[int, int],
    diagonal: int,
    what: tuple[int, int],
    run: Array,
    shared: Array,
    lanes: Lanes,
) -> None:
    p, q, (first_i, first_j), (bits, metric) = len(x), len(y), first, what
    (keys_i, ids_i), (keys_j, ids_j) = lists_i, lists_j
    for start in range(0, q, RUN):
        columns = min(RUN, q - start)
        _load(y, start, columns, run)
        open_lanes(lanes, sizes_j, keys_j, ids_j, start, columns, first_i, bits, metric)
        for i in range(p):
            least = max(0, i + diagonal - start)
            if least >= columns:
                break
            _count_run(x, Index(i), run, shared)
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


@part
def _load(y: Array, start: int, columns: int, run: Array) -> None:
    run[:] = 0
    for j in range(columns):
        for t in range(len(run)):
            run[t, j] = y[start + j, t]


@part
def _count_run(x: Array, i: Index, run: Array, shared: Array) -> None:
    """Write into ``shared`` the number of ones that row ``i`` of ``x`` shares with each column of ``run``."""
    words = len(run)
    fours = words - words % 4
    shared[:] = 0
    # Four words at a time load and store the sums once instead of four times.
    for t in range(Index(0), Index(fours), Index(4)):
        a, b, c, d = x[i, t], x[i, t + ONE], x[i, t + TWO], x[i, t + THREE]
        for j in range(Index(RUN)):
            two = _count_ones(a & run[t, j]) + _count_ones(b & run[t + ONE, j])
            more = _count_ones(c & run[t + TWO, j]) + _count_ones(d & run[t + THREE, j])
            shared[j] += two + more
    for t in range(Index(fours), Index(words)):
        a = x[i, t]
        for j in range(Index(RUN)):
            shared[j] += _count_ones(a & run[t, j])
