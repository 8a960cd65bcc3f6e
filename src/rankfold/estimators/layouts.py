"""``UMAP``, ``SpectralEmbedding``, ``DiffusionMap``: samples in few dimensions, by their neighbors."""

from __future__ import annotations

import numbers
import warnings
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

import rankfold
from rankfold.estimators.labels import labeled
from rankfold.estimators.samples import is_large, samples_of
from rankfold.methods.knn.arguments import ALIASES, HAVERSINE, NAMES, SET_NAMES

METRICS = {*NAMES, *SET_NAMES, HAVERSINE, *ALIASES} - {"inner_product"}
"""Whose values are distances."""

STARTS = ("pca", "random", "spectral")

START_TOL = 1e-2
"""Of the first principal components: they only say where samples begin."""


class Embedding(BaseEstimator):  # type: ignore[misc]
    """What these estimators share."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Embed samples in rows, and where they are; ``y`` is ignored."""
        return self.fit(X).embedding_


@labeled
class UMAP(Embedding):
    """Samples laid out in few dimensions, so that neighbors lie together; see ``rankfold.umap``.

    Parameters
    ----------
    n_neighbors : int, default=15
        Of each sample, itself among them.
    n_components : int, default=2
        Dimensions.
    metric : str, default="euclidean"
        One of ``rankfold.knn`` but "inner_product".
    n_epochs, learning_rate, min_dist, spread, a, b, negative_sample_rate, repulsion_strength
        As for ``rankfold.umap``.
    set_op_mix_ratio, local_connectivity, target_metric, target_weight
        As for ``rankfold.fuzzy_graph``.
    init : {"spectral", "pca", "random"} or array of shape (n_samples, n_components), default="spectral"
        Where samples begin: at eigenvectors of the graph, or at their first principal components, as also
        where samples are too few for eigenvectors.
    random_state : int, RandomState or None, default=None
        Layouts are the same for any number of threads in any case.
    min_recall : float, optional
        Neighbors may be approximate, as in ``rankfold.knn``.
    memory : int or str, optional
        As for ``rankfold.svd``, of each step.

    Attributes
    ----------
    embedding_ : (n_samples, n_components) float32 array
    graph_ : CSR array
        Weights of neighbors: see ``rankfold.fuzzy_graph``.
    n_features_in_ : int
    feature_names_in_
        Where samples have names of columns.

    Notes
    -----
    There is no ``transform``: other samples have no place in a layout yet. Samples are read from where they
    are, by each step; the graph and the layout are held in memory.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_neighbors": [Interval(numbers.Integral, 2, None, closed="left")],
        "n_components": [Interval(numbers.Integral, 1, None, closed="left")],
        "metric": [StrOptions(METRICS)],
        "n_epochs": [Interval(numbers.Integral, 1, None, closed="left"), None],
        "learning_rate": [Interval(numbers.Real, 0, None, closed="neither")],
        "init": [StrOptions(set(STARTS)), "array-like", HasMethods("attrs")],
        "min_dist": [Interval(numbers.Real, 0, None, closed="left")],
        "spread": [Interval(numbers.Real, 0, None, closed="neither")],
        "set_op_mix_ratio": [Interval(numbers.Real, 0, 1, closed="both")],
        "local_connectivity": [Interval(numbers.Real, 0, None, closed="left")],
        "repulsion_strength": [Interval(numbers.Real, 0, None, closed="left")],
        "negative_sample_rate": [Interval(numbers.Integral, 0, None, closed="left")],
        "a": [numbers.Real, None],
        "b": [numbers.Real, None],
        "target_metric": [StrOptions({"categorical", "euclidean"})],
        "target_weight": [Interval(numbers.Real, 0, 1, closed="both")],
        "random_state": ["random_state"],
        "min_recall": [Interval(numbers.Real, 0, 1, closed="left"), None],
        "memory": [str, numbers.Integral, None],
    }

    def __init__(
        self,
        n_neighbors: int = 15,
        n_components: int = 2,
        *,
        metric: str = "euclidean",
        n_epochs: int | None = None,
        learning_rate: float = 1.0,
        init: Any = "spectral",
        min_dist: float = 0.1,
        spread: float = 1.0,
        set_op_mix_ratio: float = 1.0,
        local_connectivity: float = 1.0,
        repulsion_strength: float = 1.0,
        negative_sample_rate: int = 5,
        a: float | None = None,
        b: float | None = None,
        target_metric: str = "categorical",
        target_weight: float = 0.5,
        random_state: Any = None,
        min_recall: float | None = None,
        memory: str | int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.n_components = n_components
        self.metric = metric
        self.n_epochs = n_epochs
        self.learning_rate = learning_rate
        self.init = init
        self.min_dist = min_dist
        self.spread = spread
        self.set_op_mix_ratio = set_op_mix_ratio
        self.local_connectivity = local_connectivity
        self.repulsion_strength = repulsion_strength
        self.negative_sample_rate = negative_sample_rate
        self.a = a
        self.b = b
        self.target_metric = target_metric
        self.target_weight = target_weight
        self.random_state = random_state
        self.min_recall = min_recall
        self.memory = memory

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None) -> UMAP:
        """Lay out samples in rows, in memory or on disk; those of one label in ``y`` nearer to each other.

        Labels are words or numbers, -1 where none is known; or numbers whose distances count, by
        ``target_metric``.
        """
        X = samples_of(self, X, 3, bits=self.metric in SET_NAMES)
        seed = int(check_random_state(self.random_state).randint(2**31))
        beside = {"target_metric": self.target_metric, "target_weight": self.target_weight}
        weights = _graph(self, X, seed, targets=y, **beside)
        layout = rankfold.umap(
            weights,
            n_components=self.n_components,
            n_epochs=self.n_epochs,
            learning_rate=self.learning_rate,
            min_dist=self.min_dist,
            spread=self.spread,
            a=self.a,
            b=self.b,
            repulsion_strength=self.repulsion_strength,
            negative_sample_rate=self.negative_sample_rate,
            init=self._start(X, seed),
            seed=seed,
            memory=self.memory,
        )
        self.graph_, self.embedding_ = weights.graph, np.asarray(layout.embedding[...])
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Lay out samples in rows, and where they are; ``y`` as in ``fit``."""
        return self.fit(X, y).embedding_

    def _start(self, X: Any, seed: int) -> Any:
        """Where samples begin; missing dimensions at zero, from which they part."""
        rows, columns = X.shape
        is_given = not isinstance(self.init, str) or self.init == "random"
        if is_given or (self.init == "spectral" and self.n_components < rows):
            return self.init
        rank = min(self.n_components, columns, rows - 1)
        samples = X.astype(np.float32) if np.dtype(X.dtype).kind == "b" else X
        scores = rankfold.pca(samples, rank=rank, tol=START_TOL, seed=seed, memory=self.memory).scores
        start = np.zeros((rows, self.n_components))
        start[:, :rank] = scores[...]
        return start


@labeled
class SpectralEmbedding(Embedding):
    """Laplacian eigenmaps of samples, by a graph of their neighbors; see ``rankfold.spectral``.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions.
    affinity : {"nearest_neighbors", "precomputed"}, default="nearest_neighbors"
        Weights are 1 between samples that are neighbors of each other, 1/2 if only one is of the other; or
        they are given, as a symmetric matrix.
    n_neighbors : int, optional
        Of each sample, itself among them; a tenth of the samples by default.
    metric : str, default="euclidean"
        As for ``UMAP``.
    eigen_tol : float or "auto", default="auto"
        ``tol`` of ``rankfold.spectral``.
    random_state : int, RandomState or None, default=None
        Of the vectors that are begun with.
    min_recall, memory
        As for ``UMAP``.

    Attributes
    ----------
    embedding_ : (n_samples, n_components) array
        In float32 for samples in float32, else in float64.
    affinity_matrix_ : CSR array, or what was given
        Without samples joined to themselves, which change nothing.
    n_neighbors_ : int
    eigenvalues_ : (n_components,) array
        Of the Laplacian.
    n_features_in_ : int
    feature_names_in_
        Where samples have names of columns.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_components": [Interval(numbers.Integral, 1, None, closed="left")],
        "affinity": [StrOptions({"nearest_neighbors", "precomputed"})],
        "n_neighbors": [Interval(numbers.Integral, 1, None, closed="left"), None],
        "metric": [StrOptions(METRICS)],
        "eigen_tol": [Interval(numbers.Real, 0, 1, closed="left"), StrOptions({"auto"})],
        "random_state": ["random_state"],
        "min_recall": [Interval(numbers.Real, 0, 1, closed="left"), None],
        "memory": [str, numbers.Integral, None],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        affinity: str = "nearest_neighbors",
        n_neighbors: int | None = None,
        metric: str = "euclidean",
        eigen_tol: float | str = "auto",
        random_state: Any = None,
        min_recall: float | None = None,
        memory: str | int | None = None,
    ) -> None:
        self.n_components = n_components
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.eigen_tol = eigen_tol
        self.random_state = random_state
        self.min_recall = min_recall
        self.memory = memory

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.affinity == "precomputed"
        return tags

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None) -> SpectralEmbedding:
        """Embed samples in rows, in memory or on disk; ``y`` is ignored."""
        X = samples_of(self, X, 2, bits=self.metric in SET_NAMES)
        seed = int(check_random_state(self.random_state).randint(2**31))
        if self.affinity == "precomputed":
            if X.shape[0] != X.shape[1]:
                raise ValueError(f"precomputed weights are square, not {X.shape[0]} x {X.shape[1]}")
            self.affinity_matrix_ = X
            weights = scipy.sparse.csr_array(X[...] if is_large(X) else X)
        else:
            rows = X.shape[0]
            self.n_neighbors_ = max(rows // 10, 1) if self.n_neighbors is None else self.n_neighbors
            k = min(max(self.n_neighbors_ - 1, 1), rows - 1)  # itself alone makes no graph
            lists = rankfold.knn(
                X, k, metric=self.metric, min_recall=self.min_recall, seed=seed, memory=self.memory
            )
            self.affinity_matrix_ = weights = _mean_of_both(np.asarray(lists.indices[...]))
        weights = weights - scipy.sparse.diags_array(weights.diagonal())
        tol = {} if self.eigen_tol == "auto" else {"tol": self.eigen_tol}
        how: dict[str, Any] = {"seed": seed, "memory": self.memory, **tol}
        found = rankfold.spectral(scipy.sparse.csr_array(weights), self.n_components, **how)
        single = np.dtype(X.dtype) == np.float32
        self.embedding_ = np.asarray(found.embedding[...], np.float32 if single else np.float64)
        self.eigenvalues_ = np.asarray(found.eigenvalues)
        return self


@labeled
class DiffusionMap(Embedding):
    """Diffusion map of samples, by the graph of their neighbors; see ``rankfold.diffusion_map``.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions.
    n_neighbors, metric, set_op_mix_ratio, local_connectivity
        As for ``UMAP``.
    alpha, t, tol
        As for ``rankfold.diffusion_map``.
    random_state, min_recall, memory
        As for ``SpectralEmbedding``.

    Attributes
    ----------
    embedding_ : (n_samples, n_components) float64 array
    eigenvalues_ : (n_components,) array
        Of the walk.
    graph_ : CSR array
        Weights of neighbors: see ``rankfold.fuzzy_graph``.
    n_features_in_ : int
    feature_names_in_
        Where samples have names of columns.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_components": [Interval(numbers.Integral, 1, None, closed="left")],
        "n_neighbors": [Interval(numbers.Integral, 2, None, closed="left")],
        "metric": [StrOptions(METRICS)],
        "set_op_mix_ratio": [Interval(numbers.Real, 0, 1, closed="both")],
        "local_connectivity": [Interval(numbers.Real, 0, None, closed="left")],
        "alpha": [Interval(numbers.Real, 0, 1, closed="both")],
        "t": [Interval(numbers.Integral, 0, None, closed="left")],
        "tol": [Interval(numbers.Real, 0, 1, closed="left")],
        "random_state": ["random_state"],
        "min_recall": [Interval(numbers.Real, 0, 1, closed="left"), None],
        "memory": [str, numbers.Integral, None],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_neighbors: int = 15,
        metric: str = "euclidean",
        set_op_mix_ratio: float = 1.0,
        local_connectivity: float = 1.0,
        alpha: float = 1.0,
        t: int = 1,
        tol: float = 1e-6,
        random_state: Any = None,
        min_recall: float | None = None,
        memory: str | int | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.set_op_mix_ratio = set_op_mix_ratio
        self.local_connectivity = local_connectivity
        self.alpha = alpha
        self.t = t
        self.tol = tol
        self.random_state = random_state
        self.min_recall = min_recall
        self.memory = memory

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None) -> DiffusionMap:
        """Embed samples in rows, in memory or on disk; ``y`` is ignored."""
        X = samples_of(self, X, 3, bits=self.metric in SET_NAMES)
        seed = int(check_random_state(self.random_state).randint(2**31))
        weights = _graph(self, X, seed)
        how: dict[str, Any] = {"alpha": self.alpha, "t": self.t, "tol": self.tol}
        found = rankfold.diffusion_map(weights, self.n_components, seed=seed, memory=self.memory, **how)
        self.embedding_, self.eigenvalues_ = np.asarray(found.embedding[...]), np.asarray(found.eigenvalues)
        self.graph_ = weights.graph
        return self


def _graph(estimator: Any, X: Any, seed: int, **targets: Any) -> rankfold.Result:
    """The graph of neighbors of samples, by parameters of an estimator."""
    k = min(estimator.n_neighbors, X.shape[0]) - 1
    for name, most in (("n_neighbors", X.shape[0]), ("local_connectivity", k)):
        value = getattr(estimator, name)
        if value > most:
            warnings.warn(f"{name}={value} is more than there are: {most} are taken", stacklevel=3)
    how: dict[str, Any] = {"metric": estimator.metric, "min_recall": estimator.min_recall, "seed": seed}
    return rankfold.fuzzy_graph(
        rankfold.knn(X, k, memory=estimator.memory, **how),
        set_op_mix_ratio=estimator.set_op_mix_ratio,
        local_connectivity=min(estimator.local_connectivity, k),
        memory=estimator.memory,
        **targets,
    )


def _mean_of_both(indices: Any) -> Any:
    """What lists of neighbors and those that lead back have in the mean: CSR weights of 1/2 and 1."""
    rows, k = indices.shape
    parts = (np.ones(rows * k), indices.ravel(), np.arange(0, rows * k + 1, k))
    lists = scipy.sparse.csr_array(parts, shape=(rows, rows))
    return scipy.sparse.csr_array((lists + lists.T) / 2)
