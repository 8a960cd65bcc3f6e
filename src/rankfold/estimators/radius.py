"""``RadiusNeighborsTransformer``, and queries of a radius: exact neighbors of samples in memory or on disk.

Points are held in memory for a search; graphs and lists are in memory as well, as scikit-learn gives them.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from sklearn import neighbors
from sklearn.utils.validation import check_is_fitted, validate_data

import rankfold
from rankfold.estimators.labels import labeled
from rankfold.estimators.samples import is_large, require_plain_output
from rankfold.estimators.search import SampleSearch, csr_matrix, require_mode
from rankfold.methods.radius.arguments import NAMES


class RadiusSearch(SampleSearch):
    """Lists and graphs of all samples within a radius, in scikit-learn's place."""

    _always = False
    """Whether samples in memory are searched here too."""

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
            Left out, each sample of the fit gets its neighbors among the others.
        radius : float, optional
            In place of the parameter of that name.
        return_distance : bool, default=True
            Else indices alone.
        sort_results : bool, default=False
            Those of samples on disk always are.
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
        """Whether it is not scikit-learn that searches; refuses samples on disk by metrics of others."""
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
    """An array of arrays, one for each row."""
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
        "euclidean", "l2", "sqeuclidean", "manhattan", "l1", "cityblock", "chebyshev", "infinity" and
        "minkowski" with ``p`` of 1, 2 or inf are those of ``rankfold.radius_neighbors``. With any other, and
        of sparse samples in memory, it is scikit-learn that searches.
    algorithm, leaf_size, n_jobs
        Of no effect but where scikit-learn searches.
    memory : int or str, optional
        As for ``rankfold.radius_neighbors``.

    Attributes
    ----------
    effective_metric_, effective_metric_params_, n_samples_fit_, n_features_in_
        As for ``sklearn.neighbors.RadiusNeighborsTransformer``.
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
        """Graph of the samples of the fit within the radius of these, (n_samples, n_samples_fit_)."""
        if is_large(X):
            require_plain_output(self)
        return super().transform(X)
