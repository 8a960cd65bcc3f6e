"""Products of rows and centers in the working type, with additions in any order: error bounds allow for it.

Four rows by four centers are multiplied in one loop: each number that is loaded serves four products, and
sixteen sums hide how long an addition takes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop

Array = npt.NDArray[Any]

FOUR = 4
"""Centers, and rows, that are multiplied at a time."""

REORDERED = {"reassoc", "contract", "nsz"}
"""Liberties of the compiler in products: reorder sums, fuse steps, ignore the sign of zero."""


def _load_of(
    x: Array, i: int, shift: Array, packed: Array, p: int, rows: Array, a: int
) -> tuple[float, float]:
    # Sums of squares round as products do: their share is in the slack.
    norm = product = rows.dtype.type(0)
    for t in range(rows.shape[1]):
        value = rows.dtype.type(x[i, t]) - shift[t]
        rows[a, t] = value
        norm += value * value
        product += value * packed[p, t]
    return np.float64(norm), np.float64(product)


def _dot_of(row: Array, packed: Array, p: int) -> Any:
    a = row.dtype.type(0)
    for t in range(row.shape[0]):
        a += row[t] * packed[p, t]
    return a


def _row_by_four_of(row: Array, packed: Array, p: int, out: Array) -> None:
    zero = row.dtype.type(0)
    a, b, c, d = zero, zero, zero, zero
    for t in range(row.shape[0]):
        v = row[t]
        a += v * packed[p, t]
        b += v * packed[p + 1, t]
        c += v * packed[p + 2, t]
        d += v * packed[p + 3, t]
    out[p], out[p + 1], out[p + 2], out[p + 3] = a, b, c, d


def _four_by_four_of(rows: Array, some: Array, packed: Array, p: int, out: Array) -> None:
    i, j, k, m = some[0], some[1], some[2], some[3]
    zero = rows.dtype.type(0)
    i0, i1, i2, i3 = zero, zero, zero, zero
    j0, j1, j2, j3 = zero, zero, zero, zero
    k0, k1, k2, k3 = zero, zero, zero, zero
    m0, m1, m2, m3 = zero, zero, zero, zero
    for t in range(rows.shape[1]):
        a, b, c, d = packed[p, t], packed[p + 1, t], packed[p + 2, t], packed[p + 3, t]
        u, v, w, z = rows[i, t], rows[j, t], rows[k, t], rows[m, t]
        i0, i1, i2, i3 = i0 + u * a, i1 + u * b, i2 + u * c, i3 + u * d
        j0, j1, j2, j3 = j0 + v * a, j1 + v * b, j2 + v * c, j3 + v * d
        k0, k1, k2, k3 = k0 + w * a, k1 + w * b, k2 + w * c, k3 + w * d
        m0, m1, m2, m3 = m0 + z * a, m1 + z * b, m2 + z * c, m3 + z * d
    out[i, p], out[i, p + 1], out[i, p + 2], out[i, p + 3] = i0, i1, i2, i3
    out[j, p], out[j, p + 1], out[j, p + 2], out[j, p + 3] = j0, j1, j2, j3
    out[k, p], out[k, p + 1], out[k, p + 2], out[k, p + 3] = k0, k1, k2, k3
    out[m, p], out[m, p + 1], out[m, p + 2], out[m, p + 3] = m0, m1, m2, m3


load_less_shift = compile_loop(_load_of, fastmath=REORDERED, called_from_python=False)
"""Write ``x[i] - shift`` into ``rows[a]``; returns its squared norm, and its product with ``packed[p]``."""

_dot = compile_loop(_dot_of, fastmath=REORDERED, called_from_python=False)
_row_by_four = compile_loop(_row_by_four_of, fastmath=REORDERED, called_from_python=False)
_four_by_four = compile_loop(_four_by_four_of, fastmath=REORDERED, called_from_python=False)


@compile_loop
def multiply_groups(
    rows: Array, packed: Array, edges: Array, members: Array, counts: Array, out: Array
) -> None:
    """Products of centers, group by group, with the rows for which a group is open.

    ``members`` (g, r) are positions of these rows, the first ``counts`` (g,) of each group; ``out`` (r, k) is
    written.
    """
    for g in range(counts.shape[0]):
        whole = counts[g] - counts[g] % FOUR
        p = edges[g]
        while p + FOUR <= edges[g + 1]:
            for a in range(0, whole, FOUR):
                _four_by_four(rows, members[g, a : a + FOUR], packed, p, out)
            for a in range(whole, counts[g]):
                _row_by_four(rows[members[g, a]], packed, p, out[members[g, a]])
            p += FOUR
        while p < edges[g + 1]:
            for a in range(counts[g]):
                out[members[g, a], p] = _dot(rows[members[g, a]], packed, p)
            p += 1
