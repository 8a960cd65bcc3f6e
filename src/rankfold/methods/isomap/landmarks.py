"""Choice of the rows that paths begin at: each the farthest from those before, or random ones.

A smaller number of landmarks gives the first of a larger number. The farthest row is exact, though paths are
not followed where other landmarks are nearer: see ``lower_distances``.

References
----------
De Silva, Tenenbaum, Sparse multidimensional scaling using landmark points, Stanford, 2004, section 2.3, for
both ways; Gonzalez, Clustering to minimize the maximum intercluster distance, Theoretical Computer Science
38, 1985: for any choice of as many rows, the largest distance of a row from its nearest is at least half of
that here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.graph.paths import lower_distances
from rankfold.methods.isomap.graph import NumberedGraph
from rankfold.methods.random_keys import Purpose

Int64 = npt.NDArray[np.int64]


def random_numbers(seed: int, purpose: Purpose) -> np.random.Generator:
    """Generator of random numbers for a seed and a purpose."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, purpose], np.uint64)))


def any_rows(rows: int, count: int, seed: int) -> Int64:
    """(count,) rows drawn at random, in random order."""
    return random_numbers(seed, Purpose.PATH_LANDMARKS).permutation(rows)[:count]


def farthest_rows(graph: NumberedGraph, count: int, seed: int, tell: Callable[[int], Any]) -> Int64:
    """(count,) rows, the first random, each other the farthest from those before.

    Of equally far ones it is the first vertex.
    """
    near = np.full(graph.rows, np.inf)
    first = int(random_numbers(seed, Purpose.PATH_LANDMARKS).integers(graph.rows))
    vertex, chosen = int(graph.numbers[first]), np.empty(count, np.int64)
    for place in range(count):
        chosen[place] = vertex
        lower_distances(graph.edges, vertex, near=near)
        near[vertex] = -1  # not chosen again, even if all other rows are at distance 0
        vertex = int(near.argmax())
        tell(place + 1)
    rows = np.empty(graph.rows, np.int64)
    rows[graph.numbers] = np.arange(graph.rows)
    return rows[chosen]
