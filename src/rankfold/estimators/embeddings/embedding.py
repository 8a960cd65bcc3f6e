"""Common base of estimators of embeddings, and the graph of neighbors from which they are made."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

import rankfold
from rankfold.estimators.samples import is_large
from rankfold.methods.embedding.arguments import INITS, PCA, RANDOM, SPECTRAL
from rankfold.methods.embedding.components import START_TOL, equal_rows
from rankfold.methods.fuzzy_graph.lists import StoredLists
from rankfold.methods.knn.arguments import ALIASES, HAVERSINE, NAMES, PRECOMPUTED, SET_NAMES
from rankfold.pipeline.errors import NoVarianceError

METRICS = {*NAMES, *SET_NAMES, HAVERSINE, *ALIASES} - {"inner_product"}
"""Metrics whose values are distances."""

STARTS = INITS[:-1]
"""Names that the parameter ``init``, for the first positions of samples, takes."""


class Embedding(BaseEstimator):  # type: ignore[misc]
    """Base of estimators that embed samples in rows by their neighbors; in memory or on disk."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.metric == PRECOMPUTED
        return tags

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Embed samples in rows and return their positions (m, n_components); ``y`` is ignored."""
        return self.fit(X).embedding_

    def _require_start(self) -> None:
        """Raise ``ValueError`` if principal components are asked of precomputed distances."""
        if self.metric == PRECOMPUTED and isinstance(self.init, str) and self.init == PCA:
            raise ValueError(
                'The parameter init="pca" cannot be used with metric="precomputed": begin at "random" or '
                '"spectral"'
            )

    def _lists_of_new(self, X: Any, k: int, seed: int) -> StoredLists:
        """At most k nearest neighbors of new samples X among the fitted ones; ``seed`` is that of the fit."""
        if self.metric == PRECOMPUTED:
            raise ValueError("distances among samples do not tell where new ones are: fit samples instead")
        dtype = None if self.metric in SET_NAMES else "numeric"
        if is_large(X):
            X = rankfold.open(X)
        else:
            X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=dtype)
        fitted = self._fitted_samples
        how = {"metric": self.metric, "seed": seed, "memory": self.memory}
        lists = rankfold.knn(fitted, min(k, fitted.shape[0]), queries=X, **how)
        return StoredLists.of_queries(lists, fitted.shape[0])


def graph_of(estimator: Any, X: Any, seed: int, **targets: Any) -> rankfold.Result:
    """Result of ``rankfold.fuzzy_graph`` for checked samples X, with the parameters of an estimator.

    ``targets`` are further arguments of ``rankfold.fuzzy_graph``, such as ``radii``.
    """
    k = min(estimator.n_neighbors, X.shape[0]) - 1
    for name, most in (("n_neighbors", X.shape[0]), ("local_connectivity", k)):
        value = getattr(estimator, name)
        if value > most:
            warnings.warn(f"{name}={value} is more than there are: {most} are taken", stacklevel=3)
    return rankfold.fuzzy_graph(
        lists_of(estimator, X, k, seed),
        set_op_mix_ratio=estimator.set_op_mix_ratio,
        local_connectivity=min(estimator.local_connectivity, k),
        memory=estimator.memory,
        **targets,
    )


def lists_of(estimator: Any, X: Any, k: int, seed: int) -> rankfold.Result:
    """Result of ``rankfold.knn`` for samples: their k nearest neighbors, by the metric of an estimator."""
    if estimator.metric == PRECOMPUTED:
        if not is_large(X):
            _require_distances(X)
        return rankfold.knn(X, k, metric=PRECOMPUTED, memory=estimator.memory)
    how: dict[str, Any] = {"metric": estimator.metric, "min_recall": estimator.min_recall, "seed": seed}
    return rankfold.knn(X, k, memory=estimator.memory, **how)


def _require_distances(X: Any) -> None:
    """Raise ``ValueError``, in scikit-learn's words, unless X is a square matrix of distances without
    negatives.
    """
    if X.shape[0] != X.shape[1]:
        raise ValueError(f"X should be a square distance matrix, not {X.shape}")
    if (X.data if hasattr(X, "tocsr") else X).min(initial=0) < 0:
        raise ValueError("All distances should be positive, but some of those given as X are not")


def first_positions(estimator: Any, X: Any, seed: int) -> Any:
    """Value of the argument ``init`` of ``rankfold.umap`` or ``tsne`` for an estimator and its samples X.

    A name, an array given by the caller, or (m, n_components) principal component scores. Samples too few for
    eigenvectors begin at components. Dimensions that samples do not have are 0; noise that keeps equal
    positions apart is added later.
    """
    rows, columns = X.shape
    if not isinstance(estimator.init, str):
        shape = getattr(estimator.init, "shape", None) or (rows,)
        if shape[0] != rows:
            raise ValueError(f"positions to begin at have shape {shape}, but there are {rows} samples")
        return estimator.init
    if estimator.init != PCA and not (estimator.init == SPECTRAL and estimator.n_components >= rows):
        return estimator.init
    if estimator.metric == PRECOMPUTED:
        return RANDOM
    rank = min(estimator.n_components, columns, rows - 1)
    samples = X.astype(np.float32) if np.dtype(X.dtype).kind == "b" else X
    try:
        result = rankfold.pca(samples, rank=rank, tol=START_TOL, seed=seed, memory=estimator.memory)
    except NoVarianceError as error:
        raise NoVarianceError(equal_rows("X")) from error
    start = np.zeros((rows, estimator.n_components))
    start[:, :rank] = result.scores[...]
    return start
