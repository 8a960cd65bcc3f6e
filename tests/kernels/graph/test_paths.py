"""Shortest paths and components, against SciPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components, dijkstra

from rankfold.kernels.graph.paths import Graph, lower_distances, search_breadth_first


def graph(rows: int, degree: float, seed: int, dtype: Any = np.float64) -> tuple[Graph, Any]:
    """Edges from both ends, as they are taken, and as SciPy takes them."""
    rng = np.random.default_rng(seed)
    starts, ends = rng.integers(0, rows, (2, int(rows * degree)))
    lengths = rng.random(len(starts)).astype(dtype) ** 4 + np.finfo(dtype).tiny  # SciPy has no edge of zero
    both = np.concatenate([starts, ends]), np.concatenate([ends, starts]), np.concatenate([lengths, lengths])
    order = np.lexsort((*both[::-1],))
    starts, ends, lengths = (each[order] for each in both)
    new = np.concatenate([[True], (np.diff(starts) != 0) | (np.diff(ends) != 0)])[: len(starts)]
    starts, ends, lengths = starts[new], ends[new], lengths[new]
    pointers = np.searchsorted(starts, np.arange(rows + 1))
    theirs = scipy.sparse.csr_array((lengths.astype(np.float64), ends, pointers), shape=(rows, rows))
    return Graph(pointers, ends.astype(np.int32), lengths), theirs


@given(rows=st.integers(1, 60), degree=st.floats(0, 4), seed=st.integers(0, 99), narrow=st.booleans())
def test_paths_are_those_of_scipy_to_the_last_bit(rows: int, degree: float, seed: int, narrow: bool) -> None:
    own, theirs = graph(rows, degree, seed, np.float32 if narrow else np.float64)
    exact = dijkstra(theirs)
    nearest = np.full(rows, np.inf)
    for source in range(0, rows, 3):
        near = np.full(rows, np.inf)
        lower_distances(own, source, near=near)
        np.testing.assert_array_equal(near, exact[source])
        lower_distances(own, source, near=nearest)
    np.testing.assert_array_equal(nearest, exact[::3].min(axis=0))


@given(rows=st.integers(1, 80), degree=st.floats(0, 2), seed=st.integers(0, 99))
def test_components_are_those_of_scipy(rows: int, degree: float, seed: int) -> None:
    own, theirs = graph(rows, degree, seed)
    order, labels = np.empty((2, rows), np.int32)
    search_breadth_first(own.pointers, own.neighbors, order=order, labels=labels)
    count, expected = connected_components(theirs)
    assert sorted(order) == list(range(rows)) and labels.max() + 1 == count
    np.testing.assert_array_equal(labels, expected)
    # Components follow each other, and of each the first vertex comes first.
    assert (np.diff(labels[order]) >= 0).all()
    firsts = order[np.searchsorted(labels[order], np.arange(count))]
    np.testing.assert_array_equal(firsts, [np.flatnonzero(labels == each)[0] for each in range(count)])


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
def test_lengths_of_any_size_are_summed(scale: float) -> None:
    pointers, ends = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1], np.int32)
    near = np.full(3, np.inf)
    lower_distances(Graph(pointers, ends, np.array([1, 1, 3, 3]) * scale), 0, near=near)
    np.testing.assert_array_equal(near, np.array([0, 1, 4]) * scale)
