"""What estimators of neighbors share: samples in memory or on disk, and metrics by scikit-learn's names."""

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
from rankfold.estimators.samples import forget_names, is_large
from rankfold.methods.knn.request import compile_metric
from rankfold.pipeline.errors import InputError

METRICS = {
    "euclidean": "euclidean",
    "l2": "euclidean",
    "sqeuclidean": "sqeuclidean",
    "cosine": "cosine",
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
"""The same by the ``p`` of Minkowski's."""

MODES = ("connectivity", "distance")


class SampleSearch:
    """A fit that keeps samples, or where they lie, and the metric of a search."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {"memory": [str, numbers.Integral, None]}

    metric: Any
    metric_params: dict[str, Any] | None
    memory: str | int | None
    p: float
    _metric: str | Callable[..., float] | None
    """As ``rankfold.knn`` takes it; None where scikit-learn searches."""

    def _fit(self, X: Any, y: Any = None) -> Any:
        """See scikit-learn; called by ``fit`` of either class."""
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
        self._tree, self._fit_method = None, "brute"  # what radius queries read
        self.n_samples_fit_ = int(samples.shape[0])
        return self

    def _p(self) -> Any:
        return (self.metric_params or {}).get("p", self.p)

    def _find_metric(self, samples: Any) -> str | Callable[..., float] | None:
        """The metric as ``rankfold.knn`` takes it, or None."""
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
        """Refuse samples on disk where it is scikit-learn that searches."""
        check_is_fitted(self)
        if self._metric is None and is_large(X):
            raise ValueError(
                f"{self._describe_metric()} is for samples in memory: give parts of those on disk"
            )


def require_mode(mode: str) -> None:
    """Raise, as scikit-learn does, for what is no kind of graph."""
    if mode not in MODES:
        raise ValueError(
            f'Unsupported mode, must be one of "connectivity", or "distance" but got "{mode}" instead'
        )


def csr_matrix(parts: tuple[Any, ...], shape: tuple[int, int]) -> Any:
    """A CSR matrix, or an array where scikit-learn is told to give those."""
    arrays = sklearn.get_config().get("sparse_interface", "spmatrix") == "sparray"
    return (scipy.sparse.csr_array if arrays else scipy.sparse.csr_matrix)(parts, shape=shape)
