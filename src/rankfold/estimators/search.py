"""Common parts of estimators of neighbors: samples in memory or on disk, metrics by scikit-learn's names,
radii.

Points are held in memory for a search within a radius; graphs and lists are in memory as well, as in
scikit-learn.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
import sklearn
from sklearn import neighbors
from sklearn.neighbors._base import NeighborsBase
from sklearn.utils.validation import check_is_fitted, validate_data

import rankfold
from rankfold.estimators.labels import labeled
from rankfold.estimators.samples import forget_names, is_large, require_plain_output
from rankfold.methods.knn.request import compile_metric
from rankfold.methods.radius.arguments import NAMES
from rankfold.pipeline.errors import InputError

METRICS = {
    "euclidean": "euclidean",
    "l2": "euclidean",
    "sqeuclidean": "sqeuclidean",
    "cosine": "cosine",
    "correlation": "correlation",
    "manhattan": "manhattan",
    "l1": "manhattan",
    "cityblock": "manhattan",
    "chebyshev": "chebyshev",
    "infinity": "chebyshev",
    "hamming": "hamming",
    "jaccard": "jaccard",
}
"""Metrics of ``rankfold.knn`` by scikit-learn's names."""

MINKOWSKI = {1: "manhattan", 2: "euclidean", np.inf: "chebyshev"}
"""Metrics of ``rankfold.knn``, by the ``p`` of Minkowski's metric."""

MODES = ("connectivity", "distance")


class SampleSearch:
    """Mixin whose fit keeps the samples, or if on disk their location, and the metric of searches."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {"memory": [str, numbers.Integral, None]}

    metric: Any
    metric_params: dict[str, Any] | None
    memory: str | int | None
    p: float
    _metric: str | Callable[..., float] | None
    """Metric of ``rankfold.knn``; None if scikit-learn searches."""

    def _fit(self, X: Any, y: Any = None) -> Any:
        """Keep the samples and choose the metric; called by ``fit`` of either class."""
        samples = X._fit_X if isinstance(X, NeighborsBase) else X
        large, tree = is_large(samples), isinstance(X, neighbors.KDTree | neighbors.BallTree)
        self._metric = None if tree else self._find_metric(samples)
        if self._metric is None and large:
            raise ValueError(
                f"{self._describe_metric()} is for samples in memory. Samples on disk have neighbors by "
                f"{', '.join(sorted(METRICS))}, 'minkowski' with p=1, 2 or inf, or a function of two rows "
                "that numba compiles"
            )
        if self._metric is None:
            return super()._fit(X, y)  # type: ignore[misc]
        if large:
            samples = rankfold.open(samples)
            forget_names(self, samples.shape[1])
        else:
            samples = validate_data(self, samples, accept_sparse="csr", order="C")
        self._check_algorithm_metric()  # type: ignore[attr-defined]
        self.effective_metric_ = MINKOWSKI[self._p()] if self.metric == "minkowski" else self.metric
        self.effective_metric_params_: dict[str, Any] = {}
        self._fit_X = samples.copy() if scipy.sparse.issparse(samples) else samples
        self._tree, self._fit_method = None, "brute"  # read by radius queries
        self.n_samples_fit_ = int(samples.shape[0])
        return self

    def _p(self) -> Any:
        return (self.metric_params or {}).get("p", self.p)

    def _find_metric(self, samples: Any) -> str | Callable[..., float] | None:
        """Metric of ``rankfold.knn`` for the parameters; None if it has none."""
        minkowski = isinstance(self.metric, str) and self.metric == "minkowski"
        if set(self.metric_params or {}) - ({"p"} if minkowski else set()):
            return None
        if isinstance(self.metric, str):
            return MINKOWSKI.get(self._p()) if minkowski else METRICS.get(self.metric)
        if not callable(self.metric) or scipy.sparse.issparse(samples):  # such a function gets sparse rows
            return None
        try:
            return compile_metric(self.metric)
        except (InputError, ArithmeticError, AssertionError, LookupError, TypeError):
            return None

    def _describe_metric(self) -> str:
        """The metric, as a message names it."""
        params = f" with metric_params={self.metric_params!r}" if self.metric_params else ""
        return f"metric={self.metric!r}{params or f' with p={self.p}' * (self.metric == 'minkowski')}"

    def _require_memory(self, X: Any) -> None:
        """Raise for samples on disk if scikit-learn searches."""
        check_is_fitted(self)
        if self._metric is None and is_large(X):
            raise ValueError(
                f"{self._describe_metric()} is for samples in memory: give parts of those on disk"
            )


def require_mode(mode: str) -> None:
    """Raise, as scikit-learn does, for an unknown kind of graph."""
    if mode not in MODES:
        raise ValueError(
            f'Unsupported mode, must be one of "connectivity", or "distance" but got "{mode}" instead'
        )


def csr_matrix(parts: tuple[Any, ...], shape: tuple[int, int]) -> Any:
    """A CSR matrix, or a CSR array if scikit-learn's configuration asks for arrays."""
    arrays = sklearn.get_config().get("sparse_interface", "spmatrix") == "sparray"
    return (scipy.sparse.csr_array if arrays else scipy.sparse.csr_matrix)(parts, shape=shape)


# Within a radius -----------------------------------------------------------------------------------


class RadiusSearch(SampleSearch):
    """Mixin that replaces methods of scikit-learn: lists and graphs of all neighbors within a radius."""

    _always = False
    """True if samples in memory are searched by rankfold too."""

    radius: float

    def radius_neighbors(
        self,
        X: Any = None,
        radius: float | None = None,
        return_distance: bool = True,
        sort_results: bool = False,
    ) -> Any:
        """Distances and indices of the samples within a radius, each an array of arrays, nearest first.

        Parameters
        ----------
        X : samples in memory or on disk, optional
            Queries; without them, each sample of the fit gets its neighbors among the others.
        radius : float, optional
            In place of the parameter of that name.
        return_distance : bool, default=True
            False returns indices alone.
        sort_results : bool, default=False
            Sort neighbors by distance; those of samples on disk always are sorted.
        """
        if not self._is_ours(X):
            return super().radius_neighbors(X, radius, return_distance, sort_results)  # type: ignore[misc]
        if sort_results and not return_distance:
            raise ValueError("return_distance must be True if sort_results is True.")
        graph = self._within(X, radius).graph
        indices = _parted(graph.indices, graph.indptr)
        return (_parted(graph.data, graph.indptr), indices) if return_distance else indices

    def radius_neighbors_graph(
        self,
        X: Any = None,
        radius: float | None = None,
        mode: str = "connectivity",
        sort_results: bool = False,
    ) -> Any:
        """A CSR matrix (n_queries, n_samples_fit_) of ones or, with mode="distance", of distances."""
        if not self._is_ours(X):
            return super().radius_neighbors_graph(X, radius, mode, sort_results)  # type: ignore[misc]
        require_mode(mode)
        graph = self._within(X, radius).graph
        values = graph.data if mode == "distance" else np.ones(graph.nnz)
        return csr_matrix((values, graph.indices, graph.indptr), graph.shape)

    def _is_ours(self, X: Any) -> bool:
        """True if rankfold searches; raises for samples on disk with a metric that only scikit-learn has."""
        check_is_fitted(self)
        large, able = is_large(X) or is_large(self._fit_X), self._metric in NAMES
        if large and not able:
            raise TypeError(
                f"queries of a radius take samples in memory by {self._describe_metric()}: fit, and give, "
                f"parts of those on disk, or take one of {', '.join(NAMES[:-1])}"
            )
        stored = scipy.sparse.issparse(self._fit_X) or scipy.sparse.issparse(X)
        return large or (able and self._always and not stored)

    def _within(self, X: Any, radius: float | None) -> rankfold.Result:
        queries = X
        if is_large(X):
            queries = rankfold.open(X)
        elif X is not None:
            queries = validate_data(self, X, accept_sparse="csr", order="C", reset=False)
        within, how = self.radius if radius is None else radius, {"memory": self.memory}
        return rankfold.radius_neighbors(
            self._fit_X,
            within,
            queries=queries,
            metric=str(self._metric),
            **how,  # type: ignore[arg-type]
        )


def _parted(values: Any, ends: Any) -> Any:
    """Split values (nnz,) of a CSR matrix at its pointers ``ends`` (m + 1,): object array (m,) of arrays."""
    rows = np.empty(len(ends) - 1, object)
    for i in range(len(rows)):
        rows[i] = values[ends[i] : ends[i + 1]]
    return rows


@labeled
class RadiusNeighborsTransformer(RadiusSearch, neighbors.RadiusNeighborsTransformer):  # type: ignore[misc]
    """Graph of all samples within a radius, for estimators that take one, such as ``DBSCAN``.

    Parameters
    ----------
    mode, radius, p, metric_params
        As for ``sklearn.neighbors.RadiusNeighborsTransformer``; each sample is within the radius of itself.
    metric : str or function
        "euclidean", "l2", "sqeuclidean", "cosine", "correlation", "manhattan", "l1", "cityblock",
        "chebyshev", "infinity" and "minkowski" with ``p`` of 1, 2 or inf are those of
        ``rankfold.radius_neighbors``. For any other, and for sparse samples in memory, scikit-learn
        searches.
    algorithm, leaf_size, n_jobs
        Without effect unless scikit-learn searches.
    memory : int or str, optional
        As for ``rankfold.radius_neighbors``.

    Attributes
    ----------
    effective_metric_, effective_metric_params_, n_samples_fit_, n_features_in_
        As for ``sklearn.neighbors.RadiusNeighborsTransformer``.

    Examples
    --------
    >>> import numpy as np
    >>> from rankfold.estimators import RadiusNeighborsTransformer
    >>> x = np.random.default_rng(0).random((60, 8))
    >>> RadiusNeighborsTransformer(radius=1.0).fit_transform(x).shape
    (60, 60)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **neighbors.RadiusNeighborsTransformer._parameter_constraints,
        **SampleSearch._parameter_constraints,
    }

    _always = True

    def __init__(
        self,
        *,
        mode: str = "distance",
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
            mode=mode,
            radius=radius,
            algorithm=algorithm,
            leaf_size=leaf_size,
            metric=metric,
            p=p,
            metric_params=metric_params,
            n_jobs=n_jobs,
        )
        self.memory = memory

    def transform(self, X: Any) -> Any:
        """CSR graph (m, n_samples_fit_) from samples X (m, n) to the samples of the fit within the radius."""
        if is_large(X):
            require_plain_output(self)
        return super().transform(X)
