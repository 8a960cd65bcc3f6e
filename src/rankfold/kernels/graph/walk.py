"""Random walks on a graph: steps of blocks of vectors, and components, the vertices that a walk can reach.

A step maps vectors ``u`` to ``walk * (W @ u)``, plus multiples of the current and the previous vectors: with
``walk`` one over the row sums of W, the first term is a mean over neighbors. Each row is one sum, in an order
that its own edges fix, so that ranges of rows may be handed to any number of threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.sparse.products import multiply_rows

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


class Steps(NamedTuple):
    """Coefficients of the three terms of a step, for each vertex."""

    walk: Float64
    """(r,) coefficients of the sum over neighbors."""

    stay: Float64
    """(r,) coefficients of the current vector."""

    back: float
    """Coefficient of the vector one step before."""


@kernel
def step_rows(
    indptr: Array,
    indices: Array,
    data: Array,
    u: Float64,
    *,
    own: Float64,
    before: Float64,
    steps: Steps,
    out: Float64,
) -> None:
    """``walk * (W @ u) + stay * own + back * before`` for a range of rows of a graph.

    Parameters
    ----------
    indptr, indices, data
        CSR arrays of r rows of W, as for ``sparse.products.multiply_rows``: indices are not checked.
    u : (n, b) float64
        Vectors at all vertices.
    own, before : (r, b) float64
        Vectors at the vertices of the range, now and a step before.
    steps : Steps
    out : (r, b) float64, written
        Rows are contiguous, perhaps with gaps between them; shares no memory with the other arrays.

    Notes
    -----
    Work 2 b flops an edge and 6 b a row; no scratch. A row of t edges is within (t + 3) eps of the sum of
    magnitudes. Bits depend on b, and not on the range of rows.
    """
    multiply_rows(indptr, indices, data, u, y=out)
    out *= steps.walk[:, None]
    out += steps.stay[:, None] * own
    out += steps.back * before


@kernel
def join_edges(indptr: Array, indices: Array, data: Array, first: int, *, parents: Int64) -> None:
    """Join the components of the ends of all edges of a range of rows whose weight is above 0.

    Parameters
    ----------
    indptr, indices, data
        CSR arrays of the rows, as for ``sparse.products.multiply_rows``: indices are not checked.
    first : int
        Vertex of the first row.
    parents : (n,) int64, written
        For each vertex one of the same component, no larger; itself where it is the least. It begins as
        ``arange(n)``. The components in the end do not depend on the order of edges, nor do the least
        vertices that are found by following parents.

    Notes
    -----
    About two reads of ``parents`` an edge. Ranges are joined one at a time, not by several threads.

    References
    ----------
    Tarjan, van Leeuwen, Worst-case analysis of set union algorithms, Journal of the ACM 31(2), 1984: halving
    of paths; the root of fewer vertices is replaced there, here the larger one.
    """
    for i in range(len(indptr) - 1):
        for p in range(int(indptr[i]), int(indptr[i + 1])):
            if data[p] > 0:
                a, b = _least(parents, first + i), _least(parents, int(indices[p]))
                parents[max(a, b)] = min(a, b)


def _least(parents: Int64, vertex: int) -> int:
    while parents[vertex] != vertex:
        parents[vertex] = parents[parents[vertex]]
        vertex = int(parents[vertex])
    return vertex


def components_of(parents: Int64) -> Int64:
    """(n,) least vertex of the component of each vertex, from ``parents`` as ``join_edges`` leaves them."""
    least = parents
    while True:
        further = least[least]
        if (further == least).all():
            return least
        least = further
