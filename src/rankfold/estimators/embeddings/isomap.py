"""``Isomap``: embedding of samples by geodesic distances along the graph of their neighbors.

A fit on disk keeps the location of the samples, since new samples are placed by their neighbors there, and
the path lengths in a temporary store. For samples in memory, all is kept in memory.
"""

from __future__ import annotations

import numbers
import warnings
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components
from sklearn import manifold
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.graph import _fix_connected_components
from sklearn.utils.validation import check_is_fitted

import rankfold
from rankfold.estimators.labels import labeled
from rankfold.estimators.neighbors import NearestNeighbors
from rankfold.estimators.samples import forget_names, is_large, require_plain_output, write_facts
from rankfold.methods.isomap.arguments import LANDMARKS
from rankfold.methods.isomap.scaling import Scaling
from rankfold.methods.knn.graph import NAME
from rankfold.pipeline.importing.csr_writer import CsrWriter
from rankfold.pipeline.importing.readers.reader import Entries
from rankfold.pipeline.storage.temporary import TemporaryFolder

BLOCK_ROWS = 2**12
"""Number of new samples that are placed together."""


@labeled
class Isomap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Samples in few dimensions, by geodesic distances along the graph of neighbors; see ``rankfold.isomap``.

    Parameters
    ----------
    n_neighbors : int or None, default=5
        Number of neighbors of each sample, without itself.
    radius : float, optional
        Radius of neighborhoods, in place of ``n_neighbors``.
    n_components : int, default=2
        Dimensions.
    n_landmarks : int, optional
        Number of samples at which paths begin: by default all of up to 1000, which is Isomap itself, else
        500.
    landmarks : {"farthest", "random"}, default="farthest"
        Rule by which these are chosen.
    metric, p, metric_params
        As for ``rankfold.estimators.NearestNeighbors``, or "precomputed".
    eigen_solver, tol, max_iter, path_method, neighbors_algorithm, n_jobs
        Of no effect, but for ``n_jobs`` and ``neighbors_algorithm`` where scikit-learn searches: paths and
        eigenvectors are exact.
    random_state : int, RandomState or None, default=None
        Seed of the choice of landmarks.
    memory : int or str, optional
        As for ``rankfold.svd``, for each step.

    Attributes
    ----------
    embedding_ : (n_samples, n_components)
    landmarks_ : (n_landmarks,)
        Indices of the samples that are landmarks.
    dist_matrix_ : (n_samples, n_landmarks)
        Lengths of the shortest paths; scikit-learn's matrix if all samples are landmarks. For samples on
        disk a Zarr array above 64 MiB.
    residual_variance_ : float
        See ``rankfold.isomap``.
    nbrs_ : NearestNeighbors
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> import numpy as np
    >>> from rankfold.estimators import Isomap
    >>> x = np.random.default_rng(0).random((60, 8))
    >>> Isomap(n_neighbors=10).fit_transform(x).shape
    (60, 2)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **manifold.Isomap._parameter_constraints,
        "n_landmarks": [Interval(numbers.Integral, 1, None, closed="left"), None],
        "landmarks": [StrOptions(set(LANDMARKS))],
        "random_state": ["random_state"],
        "memory": [str, numbers.Integral, None],
    }

    def __init__(
        self,
        *,
        n_neighbors: int | None = 5,
        radius: float | None = None,
        n_components: int = 2,
        n_landmarks: int | None = None,
        landmarks: str = LANDMARKS[0],
        eigen_solver: str = "auto",
        tol: float = 0,
        max_iter: int | None = None,
        path_method: str = "auto",
        neighbors_algorithm: str = "auto",
        n_jobs: int | None = None,
        metric: Any = "minkowski",
        p: float = 2,
        metric_params: dict[str, Any] | None = None,
        random_state: Any = None,
        memory: str | int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.radius = radius
        self.n_components = n_components
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.eigen_solver = eigen_solver
        self.tol = tol
        self.max_iter = max_iter
        self.path_method = path_method
        self.neighbors_algorithm = neighbors_algorithm
        self.n_jobs = n_jobs
        self.metric = metric
        self.p = p
        self.metric_params = metric_params
        self.random_state = random_state
        self.memory = memory

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.pairwise = self.metric == "precomputed"
        tags.input_tags.sparse = True
        return tags

    @_fit_context(prefer_skip_nested_validation=False)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None) -> Isomap:
        """Embed samples in rows, in memory or on disk; ``y`` is ignored."""
        if self.n_neighbors is not None and self.radius is not None:
            raise ValueError(
                "Both n_neighbors and radius are provided. Use "
                f"Isomap(radius={self.radius}, n_neighbors=None) for neighbors within a radius"
            )
        self.nbrs_ = self._search().fit(X)
        forget_names(self, self.nbrs_.n_features_in_)
        if hasattr(self.nbrs_, "feature_names_in_"):
            self.feature_names_in_ = self.nbrs_.feature_names_in_
        samples = self.nbrs_._fit_X
        on_disk = is_large(samples)
        neighbors = self._lists(samples) if on_disk else _stored(self._connected(), samples.dtype)
        marks = self.n_landmarks if self.n_landmarks is None else min(self.n_landmarks, samples.shape[0])
        how: dict[str, Any] = {"disconnected": "join", "matrix": samples} if on_disk else {}
        result = rankfold.isomap(
            neighbors,
            n_components=min(self.n_components, samples.shape[0] if marks is None else marks),
            n_landmarks=marks,
            landmarks=self.landmarks,
            seed=int(check_random_state(self.random_state).randint(2**31)),
            memory=self.memory,
            **how,
        )
        self._keep(result, on_disk=on_disk)
        return self

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Embed samples in rows and return their positions (m, n_components); ``y`` is ignored."""
        return self.fit(X).embedding_

    def transform(self, X: Any) -> Any:
        """Positions of new samples, (n_queries, n_components), by their neighbors in the fit."""
        check_is_fitted(self)
        if is_large(X):
            require_plain_output(self)
        if self._result is not None:
            if self.n_neighbors is None:
                raise ValueError(
                    "new samples among those on disk have neighbors by n_neighbors, not by radius"
                )
            samples, metric = self.nbrs_._fit_X, self.nbrs_._metric
            queries = rankfold.open(X) if is_large(X) else X
            lists = rankfold.knn(
                samples, self.n_neighbors, queries=queries, metric=metric, memory=self.memory
            )
            return rankfold.transform(self._result, lists, memory=self.memory).embedding
        search = self.nbrs_.radius_neighbors if self.n_neighbors is None else self.nbrs_.kneighbors
        distances, indices = search(X)
        if self.n_neighbors is None and any(len(each) == 0 for each in indices):
            raise ValueError(
                f"a new sample has no neighbors within the radius {self.radius}: fit with a larger"
            )
        out = np.empty((len(indices), self.embedding_.shape[1]), self.embedding_.dtype)
        for start in range(0, len(out), BLOCK_ROWS):
            some = slice(start, start + BLOCK_ROWS)
            paths = [
                (self.dist_matrix_[ends] + np.asarray(reach)[:, None]).min(axis=0)
                for ends, reach in zip(indices[some], distances[some], strict=True)
            ]
            out[some] = self._scaling.coordinates(np.stack(paths))
        return out

    def reconstruction_error(self) -> float:
        """Root mean square error of the embedding, over centered squared path lengths among landmarks.

        With all samples as landmarks, equal to that of ``sklearn.manifold.Isomap``.
        """
        check_is_fitted(self)
        return self._scaling.reconstruction_error

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

    def _search(self) -> NearestNeighbors:
        either: dict[str, Any] = {"n_neighbors": self.n_neighbors, "radius": self.radius}
        return NearestNeighbors(
            **either,
            algorithm=self.neighbors_algorithm,
            metric=self.metric,
            p=self.p,
            metric_params=self.metric_params,
            n_jobs=self.n_jobs,
            memory=self.memory,
        )

    def _lists(self, samples: Any) -> rankfold.Result:
        """Result of ``rankfold.knn`` or ``radius_neighbors`` for samples on disk, by number or by radius."""
        how: dict[str, Any] = {"metric": self.nbrs_._metric, "memory": self.memory}
        if self.n_neighbors is None:
            return rankfold.radius_neighbors(samples, float(self.radius or 0), **how)
        return rankfold.knn(samples, self.n_neighbors, **how)

    def _connected(self) -> Any:
        """CSR distances (m, m) to the neighbors of samples in memory; several components are joined."""
        name = "radius_neighbors_graph" if self.n_neighbors is None else "kneighbors_graph"
        graph = getattr(self.nbrs_, name)(mode="distance")
        count, labels = connected_components(graph)
        if count == 1:
            return graph
        if self.metric == "precomputed" and hasattr(self.nbrs_._fit_X, "tocsr"):
            raise RuntimeError(
                f"The number of connected components of the neighbors graph is {count} > 1, and a graph "
                "does not tell distances between them. Increase the number of neighbors, or give all "
                "distances"
            )
        warnings.warn(
            f"The number of connected components of the neighbors graph is {count} > 1: the nearest samples "
            "of any two are joined. Increase the number of neighbors to avoid this",
            stacklevel=3,
        )
        metric, params = self.nbrs_.effective_metric_, self.nbrs_.effective_metric_params_
        return _fix_connected_components(
            self.nbrs_._fit_X, graph, count, labels, mode="distance", metric=metric, **params
        )

    def _keep(self, result: rankfold.Result, *, on_disk: bool) -> None:
        """Set the attributes of the fit from a result of ``rankfold.isomap``.

        If the samples are on disk, the result itself is kept for ``transform``, and geodesics stay in it.
        """
        self._result = result if on_disk else None
        whole = ("embedding", "landmarks", "projection", "mean_squares", "landmark_eigenvalues")
        arrays = {name: np.asarray(result[name][...]) for name in whole}
        self.embedding_, self.landmarks_ = arrays["embedding"], arrays["landmarks"]
        self.dist_matrix_ = result["geodesics"] if on_disk else np.asarray(result["geodesics"][...])
        self.residual_variance_ = float(result.attrs["residual_variance"])
        error = float(result.attrs["reconstruction_error"])
        self._scaling = Scaling(
            arrays["landmark_eigenvalues"], arrays["projection"], arrays["mean_squares"], error
        )


def _stored(graph: Any, dtype: npt.DTypeLike) -> rankfold.Result:
    """Store a graph of distances (m, m) as a result of ``radius_neighbors`` in a temporary store.

    It is made symmetric by the shorter edge of either direction. ``dtype`` is the type of the samples.
    """
    edges, folder = graph.tocoo(), TemporaryFolder()
    rows, columns = np.concatenate([edges.row, edges.col]), np.concatenate([edges.col, edges.row])
    values = np.concatenate([edges.data, edges.data])
    order = np.lexsort((values, columns, rows))
    rows, columns, values = rows[order], columns[order], values[order]
    first = np.concatenate([[True], (np.diff(rows) != 0) | (np.diff(columns) != 0)]) & (rows != columns)
    path, name = folder.path / "result.zarr", "neighbors"
    writer = CsrWriter(path / NAME, graph.shape, np.dtype(np.float64), int(first.sum()), name)
    if first.any():
        writer.append(Entries(rows[first].astype(np.int64), columns[first], values[first].astype(np.float64)))
    writer.finish()
    request = {"kind": "radius_neighbors", "metric": "stored", "radius": 0.0}
    write_facts(path, request, "stored", graph.shape, dtype=np.dtype(dtype).name)
    return rankfold.Result(path, temporary=folder)
