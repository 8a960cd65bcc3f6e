"""``KMeans``: clusters of samples in any number."""

from __future__ import annotations

import numbers
import warnings
from typing import Any, ClassVar

import numpy as np
from sklearn import cluster
from sklearn.base import _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

import rankfold
from rankfold.estimators.labels import labeled
from rankfold.estimators.samples import forget_names, is_large
from rankfold.methods.kmeans.arguments import DEFAULT_STARTS

STARTS = {"k-means++": "k-means||", "random": "sample"}
"""Of ``rankfold.kmeans`` by scikit-learn's names."""

DTYPES = [np.float64, np.float32]


@labeled
class KMeans(cluster.KMeans):  # type: ignore[misc]
    """Clusters of samples of any size around their means.

    Parameters
    ----------
    n_clusters, tol, random_state
        As for ``sklearn.cluster.KMeans``.
    init : {"k-means++", "random"}, array or function
        "k-means++" is "k-means||" of ``rankfold.kmeans``, "random" its "sample". Functions are for samples
        in memory.
    n_init : "auto" or int
        Starts that are refined on a sample, of which the best goes on; "auto" is 4.
    max_iter : int
        Steps, each a read of the samples.
    verbose, copy_x, algorithm
        For compatibility: nothing is printed, samples are never written to, and bounds are always kept.
    memory : int or str, optional
        As for ``rankfold.kmeans``.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_, n_iter_, n_features_in_
        As for ``sklearn.cluster.KMeans``; centers are float64, and those that samples were labeled by.
    result_ : rankfold.Result
        What was found, with the inertia of each step.

    Notes
    -----
    Samples have no weights. ``transform`` and ``score`` are for samples in memory, ``predict`` for any.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **cluster.KMeans._parameter_constraints,
        "memory": [str, numbers.Integral, None],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        n_init: Any = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        verbose: int = 0,
        random_state: Any = None,
        copy_x: bool = True,
        algorithm: str = "lloyd",
        memory: str | int | None = None,
    ) -> None:
        super().__init__(
            n_clusters=n_clusters,
            init=init,
            n_init=n_init,
            max_iter=max_iter,
            tol=tol,
            verbose=verbose,
            random_state=random_state,
            copy_x=copy_x,
            algorithm=algorithm,
        )
        self.memory = memory

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None) -> KMeans:
        """Fit to samples in rows; ``y`` is ignored."""
        if is_large(X):
            X = rankfold.open(X)
            forget_names(self, X.shape[1])
        else:
            X = validate_data(
                self, X, accept_sparse="csr", dtype=DTYPES, order="C", accept_large_sparse=False
            )
        if X.shape[0] < self.n_clusters:
            raise ValueError(f"n_samples={X.shape[0]} should be >= n_clusters={self.n_clusters}.")
        random, init = check_random_state(self.random_state), self._start(X)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rankfold.RankfoldWarning)
            self.result_ = rankfold.kmeans(
                X,
                self.n_clusters,
                init=init,
                n_init=DEFAULT_STARTS if self.n_init == "auto" else self.n_init,
                tol=self.tol,
                passes=self.max_iter + 1 + (isinstance(init, str) and init == "k-means||"),
                seed=int(random.randint(2**31)),
                memory=self.memory,
            )
        self._take(self.result_)
        return self

    def _start(self, X: Any) -> Any:
        """The argument ``init`` of ``rankfold.kmeans``."""
        if isinstance(self.init, str):
            return STARTS[self.init]
        if not callable(self.init):
            centers = np.asarray(self.init, np.float64)
            if centers.shape != (self.n_clusters, X.shape[1]):
                raise ValueError(
                    f"The shape of the initial centers {centers.shape} does not match the number of clusters "
                    f"{self.n_clusters} or of features of the data {X.shape[1]}."
                )
            return centers
        if is_large(X):
            raise ValueError("init as a function is for samples in memory: give an array of centers")
        return self.init(X, self.n_clusters, random_state=check_random_state(self.random_state))

    def _take(self, result: rankfold.Result) -> None:
        facts = result.attrs
        self.cluster_centers_ = np.asarray(result.centers[...])
        self.labels_ = np.asarray(result.labels[...])
        self.inertia_, self.n_iter_ = facts["final_inertia"], facts["steps"]
        self._n_features_out = len(self.cluster_centers_)
        if facts["empty_clusters"]:
            found = self.n_clusters - facts["empty_clusters"]
            warnings.warn(
                f"Number of distinct clusters ({found}) found smaller than n_clusters ({self.n_clusters}). "
                "Possibly due to duplicate points in X.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def fit_predict(self, X: Any, y: Any = None) -> Any:
        """Fit to samples in rows, and their clusters; ``y`` is ignored."""
        return self.fit(X).labels_

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Fit to samples in rows, and their distances from all centers; ``y`` is ignored."""
        return self.fit(X).transform(X)

    def predict(self, X: Any) -> Any:
        """The nearest center of each sample."""
        return np.asarray(self._label(X).labels[...])

    def transform(self, X: Any) -> Any:
        """(m, k) distances of samples in memory from all centers."""
        self._require_memory(X)
        X = self._check_test_data(X)
        centers, out = self.cluster_centers_, np.empty((X.shape[0], len(self.cluster_centers_)), X.dtype)
        out[...] = cluster._kmeans.euclidean_distances(X, centers.astype(X.dtype))
        return out

    def score(self, X: Any, y: Any = None) -> float:
        """Squared distances of samples from their nearest centers in all, negative; ``y`` is ignored."""
        return -float(self._label(X).attrs["final_inertia"])

    def _label(self, X: Any) -> rankfold.Result:
        """A single pass by the centers of the fit."""
        check_is_fitted(self)
        if is_large(X):
            X = rankfold.open(X)
        else:
            X = validate_data(
                self, X, accept_sparse="csr", reset=False, dtype=DTYPES, order="C", accept_large_sparse=False
            )
        return rankfold.kmeans(X, init=self.cluster_centers_, passes=1, memory=self.memory)

    def _require_memory(self, X: Any) -> None:
        check_is_fitted(self)
        if is_large(X):
            raise ValueError(
                "distances from all centers are for samples in memory: give parts of those on disk"
            )
