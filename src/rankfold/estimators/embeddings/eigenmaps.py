"""``SpectralEmbedding`` and ``DiffusionMap``: samples by eigenvectors of the graph of their neighbors."""

from __future__ import annotations

import numbers
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from sklearn.base import _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

import rankfold
from rankfold.estimators.embeddings.embedding import METRICS, Embedding, graph_of, lists_of
from rankfold.estimators.labels import labeled
from rankfold.estimators.samples import in_own_words, is_large, samples_of
from rankfold.methods.knn.arguments import PRECOMPUTED, SET_NAMES

WORDS = {"allow more passes, or": "give", "Ask knn for more neighbors": "Raise n_neighbors"}
"""Replacements that turn advice of ``rankfold.spectral`` into parameters of estimators."""


@labeled
class SpectralEmbedding(Embedding):
    """Laplacian eigenmaps of samples, by a graph of their neighbors; see ``rankfold.spectral``.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions.
    affinity : {"nearest_neighbors", "precomputed"}, default="nearest_neighbors"
        Weights are 1 between mutual neighbors, 1/2 if only one is a neighbor of the other; or
        they are given, as a symmetric matrix.
    n_neighbors : int, optional
        Number of neighbors of each sample, including itself; by default a tenth of the samples.
    metric : str, default="euclidean"
        As for ``UMAP``.
    eigen_tol : float or "auto", default="auto"
        ``tol`` of ``rankfold.spectral``.
    random_state : int, RandomState or None, default=None
        Seed of the starting vectors.
    min_recall, memory
        As for ``UMAP``.

    Attributes
    ----------
    embedding_ : (n_samples, n_components) array
        In float32 for samples in float32, else in float64.
    affinity_matrix_ : CSR array, or what was given
        Weights without edges of samples to themselves, which change nothing.
    n_neighbors_ : int
    eigenvalues_ : (n_components,) array
        Eigenvalues of the Laplacian.
    n_features_in_ : int
    feature_names_in_
        If samples have names of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from rankfold.estimators import SpectralEmbedding
    >>> x = np.random.default_rng(0).random((60, 8))
    >>> SpectralEmbedding(n_neighbors=10).fit_transform(x).shape
    (60, 2)
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
            lists = lists_of(self, X, k, seed)
            self.affinity_matrix_ = weights = _mean_of_both(np.asarray(lists.indices[...]))
        weights = weights - scipy.sparse.diags_array(weights.diagonal())
        tol = {} if self.eigen_tol == "auto" else {"tol": self.eigen_tol}
        how: dict[str, Any] = {"seed": seed, "memory": self.memory, **tol}
        with in_own_words({**WORDS, "tol ": "eigen_tol ", "a larger tol": "a larger eigen_tol"}):
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
        Eigenvalues of the random walk.
    graph_ : CSR array
        Weights of neighbors: see ``rankfold.fuzzy_graph``.
    n_features_in_ : int
    feature_names_in_
        If samples have names of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from rankfold.estimators import DiffusionMap
    >>> x = np.random.default_rng(0).random((60, 8))
    >>> DiffusionMap(n_neighbors=10).fit_transform(x).shape
    (60, 2)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_components": [Interval(numbers.Integral, 1, None, closed="left")],
        "n_neighbors": [Interval(numbers.Integral, 2, None, closed="left")],
        "metric": [StrOptions({*METRICS, PRECOMPUTED})],
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
        weights = graph_of(self, X, seed)
        how: dict[str, Any] = {"alpha": self.alpha, "t": self.t, "tol": self.tol}
        with in_own_words(WORDS):
            found = rankfold.diffusion_map(weights, self.n_components, seed=seed, memory=self.memory, **how)
        self.embedding_, self.eigenvalues_ = np.asarray(found.embedding[...]), np.asarray(found.eigenvalues)
        self.graph_ = weights.graph
        return self


def _mean_of_both(indices: Any) -> Any:
    """Mean of the 0/1 graph of neighbors ``indices`` (m, k) and its transpose: (m, m) CSR of 1/2 and 1."""
    rows, k = indices.shape
    parts = (np.ones(rows * k), indices.ravel(), np.arange(0, rows * k + 1, k))
    lists = scipy.sparse.csr_array(parts, shape=(rows, rows))
    return scipy.sparse.csr_array((lists + lists.T) / 2)
