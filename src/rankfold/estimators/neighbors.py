"""``NearestNeighbors`` and ``KNeighborsTransformer``: exact neighbors of any number of samples.

A fit on disk keeps the location of the samples, and every search reads them again. A graph is a SciPy matrix
in memory, 12 to 16 bytes an edge; neighbor lists of samples on disk are arrays that may be on disk too.

The trap: among samples that are equal, scikit-learn may return a sample as its own neighbor, or drop the
first neighbor in place of the sample. Here a sample is identified by its index, wherever that is known: in
searches without ``X``, and in ``fit_transform``.
"""

from __future__ import annotations

import numbers
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from sklearn import neighbors
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import validate_data

import rankfold
from rankfold.estimators.labels import labeled
from rankfold.estimators.samples import is_large, require_plain_output
from rankfold.estimators.search import RadiusSearch, SampleSearch, csr_matrix, require_mode
from rankfold.methods.index.arguments import NAMES as INDEXED
from rankfold.methods.partitions.layout import RECALL_ROWS

INDEXED_COLUMNS = 16
"""Least number of columns for which samples get an index."""

COPIED_BYTES = 2**24
"""Largest number of bytes of neighbor indices that are copied into a graph at a time."""


class KNeighborsSearch(SampleSearch):
    """Mixin that replaces methods of scikit-learn: ``fit``, and lists and graphs of nearest neighbors."""

    n_neighbors: int

    def kneighbors(self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True) -> Any:
        """Distances and indices of the nearest samples, each (n_queries, n_neighbors).

        Parameters
        ----------
        X : samples in memory or on disk, optional
            Queries; without them, each sample of the fit gets its neighbors among the others.
        n_neighbors : int, optional
            In place of the parameter of that name.
        return_distance : bool, default=True
            False returns indices alone.

        Returns
        -------
        NumPy arrays; above 64 MiB Zarr arrays in a temporary store, if the queries, or the fit without
        queries, are on disk.
        """
        self._require_memory(X)
        if self._metric is None:
            return super().kneighbors(X, n_neighbors, return_distance)  # type: ignore[misc]
        result = self._nearest(X, n_neighbors)
        stay = is_large(self._fit_X if X is None else X)
        indices = result.indices if stay else np.asarray(result.indices[...])
        if not return_distance:
            return indices
        return result.distances if stay else np.asarray(result.distances[...]), indices

    def kneighbors_graph(
        self, X: Any = None, n_neighbors: int | None = None, mode: str = "connectivity"
    ) -> Any:
        """A CSR matrix (n_queries, n_samples_fit_) of ones or, with mode="distance", of distances."""
        self._require_memory(X)
        if self._metric is None:
            return super().kneighbors_graph(X, n_neighbors, mode)  # type: ignore[misc]
        require_mode(mode)
        return self._graph(self._nearest(X, n_neighbors), mode)

    def _nearest(self, X: Any, n_neighbors: int | None) -> rankfold.Result:
        """Result of ``rankfold.knn`` for queries X, or if X is None, for the fitted samples themselves."""
        k = self.n_neighbors if n_neighbors is None else n_neighbors
        if k <= 0:
            raise ValueError(f"Expected n_neighbors > 0. Got {int(k)}")
        if not isinstance(k, numbers.Integral):
            raise TypeError(f"n_neighbors does not take {type(k)} value, enter integer value")
        queries = X
        if is_large(X):
            queries = rankfold.open(X)
        elif X is not None:
            queries = validate_data(self, X, accept_sparse="csr", order="C", reset=False)
        self._require_samples(int(k), queries)
        recall, index = getattr(self, "min_recall", None), self._index_for(queries)
        asked: dict[str, Any] = {"metric": self._metric, "memory": self.memory}
        if index is not None:
            return rankfold.knn(queries, int(k), index=index, min_recall=recall, **asked)
        recall = recall if queries is None else None
        return rankfold.knn(self._fit_X, int(k), queries=queries, min_recall=recall, **asked)

    def _index_for(self, queries: Any) -> rankfold.Result | None:
        """Index of the samples of the fit in which to look up the queries; None to search exactly."""
        return None

    def _require_samples(self, k: int, queries: Any) -> None:
        """Raise, as scikit-learn does, if there are fewer samples than neighbors."""
        itself, most = queries is None, self.n_samples_fit_
        if k > most - itself:
            rows = (self._fit_X if itself else queries).shape[0]
            raise ValueError(
                f"Expected n_neighbors {'<' if itself else '<='} n_samples_fit, but n_neighbors = {k}, "
                f"n_samples_fit = {most}, n_samples = {rows}"
            )

    def _graph(self, result: rankfold.Result, mode: str, *, itself: bool = False) -> Any:
        """Neighbor lists of a result as rows of a CSR matrix, nearest first; ``mode`` as of scikit-learn.

        ``itself`` puts each sample first in its own row.
        """
        indices, distances = result.indices, result.distances if mode == "distance" else None
        rows, length = indices.shape
        k, columns = length + itself, self.n_samples_fit_
        ids = np.empty((rows, k), scipy.sparse.get_index_dtype(maxval=max(rows * k, columns)))
        values = np.ones((rows, k)) if distances is None else np.empty((rows, k))
        if itself:
            ids[:, 0] = np.arange(rows)
            values[:, 0] = mode == "connectivity"
        step = max(1, COPIED_BYTES // (8 * k))
        for start in range(0, rows, step):
            some = slice(start, min(rows, start + step))
            ids[some, itself:] = indices[some]
            if distances is not None:
                values[some, itself:] = distances[some]
        ends = np.arange(0, rows * k + 1, k, dtype=ids.dtype)
        return csr_matrix((values.ravel(), ids.ravel(), ends), (rows, columns))


@labeled
class NearestNeighbors(RadiusSearch, KNeighborsSearch, neighbors.NearestNeighbors):  # type: ignore[misc]
    """Exact nearest neighbors among any number of samples.

    Parameters
    ----------
    n_neighbors, radius, p
        As for ``sklearn.neighbors.NearestNeighbors``.
    metric : str or function
        "euclidean", "l2", "sqeuclidean", "cosine", "correlation", "manhattan", "l1", "cityblock",
        "chebyshev", "infinity", "hamming", "jaccard", "minkowski" with ``p`` of 1, 2 or inf, and symmetric
        functions of two rows that numba compiles are those of ``rankfold.knn``. For any other, and with
        ``metric_params``, scikit-learn searches, and samples must be in memory.
    metric_params
        As for ``sklearn.neighbors.NearestNeighbors``.
    algorithm, leaf_size, n_jobs
        Without effect unless scikit-learn searches.
    memory : int or str, optional
        As for ``rankfold.knn``.

    Attributes
    ----------
    effective_metric_, effective_metric_params_, n_samples_fit_, n_features_in_
        As for ``sklearn.neighbors.NearestNeighbors``.

    Notes
    -----
    Searches within a radius are scikit-learn's, by brute force, for samples in memory, and those of
    ``rankfold.radius_neighbors`` for samples on disk.

    Examples
    --------
    >>> import numpy as np
    >>> from rankfold.estimators import NearestNeighbors
    >>> x = np.random.default_rng(0).random((60, 8))
    >>> distances, indices = NearestNeighbors(n_neighbors=3).fit(x).kneighbors(x)
    >>> indices[:4, 0].tolist()
    [0, 1, 2, 3]
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **neighbors.NearestNeighbors._parameter_constraints,
        **KNeighborsSearch._parameter_constraints,
    }

    def __init__(
        self,
        *,
        n_neighbors: int = 5,
        radius: float = 1.0,
        algorithm: str = "auto",
        leaf_size: int = 30,
        metric: Any = "minkowski",
        p: float = 2,
        metric_params: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        memory: str | int | None = None,
    ) -> None:
        super().__init__(
            n_neighbors=n_neighbors,
            radius=radius,
            algorithm=algorithm,
            leaf_size=leaf_size,
            metric=metric,
            p=p,
            metric_params=metric_params,
            n_jobs=n_jobs,
        )
        self.memory = memory


@labeled
class KNeighborsTransformer(KNeighborsSearch, neighbors.KNeighborsTransformer):  # type: ignore[misc]
    """Graph of the nearest neighbors of any number of samples, for estimators that take one; exact, unless a
    lower recall is allowed.

    Parameters
    ----------
    mode, n_neighbors, p, metric_params
        As for ``sklearn.neighbors.KNeighborsTransformer``: with mode="distance" each sample has
        ``n_neighbors`` besides itself, with mode="connectivity" it is one of them.
    metric, algorithm, leaf_size, n_jobs, memory
        As for ``NearestNeighbors``.
    min_recall : float, optional
        As for ``rankfold.knn``, in the graph of the samples of the fit among themselves. More than 400 other
        samples are looked up in an index of those of the fit, by metrics that have one, made when it is
        first needed and kept in a temporary store; neighbors of fewer are exact.

    Attributes
    ----------
    effective_metric_, effective_metric_params_, n_samples_fit_, n_features_in_
        As for ``sklearn.neighbors.KNeighborsTransformer``.

    Notes
    -----
    ``fit_transform`` identifies each sample by its index: it comes first in its row, at distance 0, however
    many others are equal to it. ``transform`` treats the same samples as new ones; equal ones are ordered by
    index.

    Examples
    --------
    >>> import numpy as np
    >>> from rankfold.estimators import KNeighborsTransformer
    >>> x = np.random.default_rng(0).random((60, 8))
    >>> KNeighborsTransformer(n_neighbors=3).fit_transform(x).shape
    (60, 60)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **neighbors.KNeighborsTransformer._parameter_constraints,
        **KNeighborsSearch._parameter_constraints,
        "min_recall": [Interval(numbers.Real, 0, 1, closed="left"), None],
    }

    def __init__(
        self,
        *,
        mode: str = "distance",
        n_neighbors: int = 5,
        algorithm: str = "auto",
        leaf_size: int = 30,
        metric: Any = "minkowski",
        p: float = 2,
        metric_params: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        memory: str | int | None = None,
        min_recall: float | None = None,
    ) -> None:
        super().__init__(
            mode=mode,
            n_neighbors=n_neighbors,
            algorithm=algorithm,
            leaf_size=leaf_size,
            metric=metric,
            p=p,
            metric_params=metric_params,
            n_jobs=n_jobs,
        )
        self.memory = memory
        self.min_recall = min_recall

    def _fit(self, X: Any, y: Any = None) -> Any:
        """Fit as ``SampleSearch`` does, and discard the index of earlier samples."""
        self._index: rankfold.Result | None = None
        return super()._fit(X, y)

    def _index_for(self, queries: Any) -> rankfold.Result | None:
        """Index for many queries, made at the first need; None for few queries, whose neighbors are exact."""
        has_one = self._metric in INDEXED and self._fit_X.shape[1] >= INDEXED_COLUMNS
        if self.min_recall is None or queries is None or not has_one or queries.shape[0] <= RECALL_ROWS:
            return None
        if self._index is None:
            self._index = rankfold.index(self._fit_X, metric=str(self._metric), memory=self.memory)
        return self._index

    def __getstate__(self) -> dict[str, Any]:
        """State without the index, whose store stays with this process."""
        return {**super().__getstate__(), "_index": None}

    def transform(self, X: Any) -> Any:
        """CSR graph (m, n_samples_fit_) from samples X (m, n) to the nearest samples of the fit."""
        if is_large(X):
            require_plain_output(self)
        return super().transform(X)

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Fit, and return the CSR graph (m, m) of the samples among themselves; ``y`` is ignored."""
        if is_large(X):
            require_plain_output(self)
        self.fit(X)
        if self._metric is None:
            return super().transform(X)
        k = self.n_neighbors + (self.mode == "distance")
        self._require_samples(k, self._fit_X)
        if k == 1:
            every = np.arange(self.n_samples_fit_ + 1)
            return csr_matrix((np.ones(len(every) - 1), every[:-1], every), (len(every) - 1,) * 2)
        return self._graph(self._nearest(None, k - 1), self.mode, itself=True)
