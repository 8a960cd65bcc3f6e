"""``pynndescent.NNDescent`` by rankfold: exact, so that nothing is built and all options are of no effect."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from pynndescent.distances import named_distances
from sklearn.preprocessing import normalize

import rankfold as rf

OURS = ("euclidean", "sqeuclidean", "cosine", "manhattan", "chebyshev", "l1", "l2", "linf")
"""Metrics that mean the same by the same name; of all others we take their functions."""

OF_UNIT_ROWS = ("dot", "direct_cosine")
"""Functions that are told rows of norm one."""


class NNDescent:
    """See ``pynndescent.NNDescent``. Each row comes first in its own list, at distance 0."""

    def __init__(
        self, data: Any, metric: str = "euclidean", metric_kwds: Any = None, n_neighbors: int = 30, **_: Any
    ) -> None:
        self.data, self.n_neighbors = data.copy(), n_neighbors
        self.metric = metric if metric in OURS else named_distances[metric]
        self.unit = metric in OF_UNIT_ROWS
        self._find()

    def _find(self) -> None:
        found = rf.knn(self._rows(self.data), self.n_neighbors - 1, metric=self.metric)
        own = np.arange(self.data.shape[0])[:, None]
        self._neighbor_graph = np.hstack([own, found.indices]), np.hstack([0.0 * own, found.distances])

    def _rows(self, x: Any) -> Any:
        return normalize(x) if self.unit else x

    @property
    def neighbor_graph(self) -> tuple[Any, Any]:
        """Indices and distances."""
        return self._neighbor_graph

    def prepare(self, **_: Any) -> None:
        """There is nothing to build."""

    def query(self, query_data: Any, k: int = 10, **_: Any) -> tuple[Any, Any]:
        """Indices and distances of the nearest rows of the data."""
        found = rf.knn(self._rows(self.data), k, queries=self._rows(query_data), metric=self.metric)
        return found.indices, found.distances

    def update(self, xs_fresh: Any = None, xs_updated: Any = None, updated_indices: Any = None) -> None:
        """Replace rows and append others."""
        if xs_updated is not None:
            self.data[updated_indices] = xs_updated
        if xs_fresh is not None:
            stack = scipy.sparse.vstack if scipy.sparse.issparse(self.data) else np.vstack
            self.data = stack([self.data, xs_fresh])
        self._find()
