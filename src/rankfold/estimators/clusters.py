"""``KMeans`` and ``MiniBatchKMeans``: clusters of samples in any number."""

from __future__ import annotations

import numbers
import warnings
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn import cluster
from sklearn.base import TransformerMixin, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

import rankfold
from rankfold.estimators.labels import labeled
from rankfold.estimators.samples import forget_names, is_large
from rankfold.kernels.clustering.nearest_centers import assign_rows, centers_of
from rankfold.methods.kmeans.arguments import DEFAULT_STARTS
from rankfold.methods.kmeans.batches import move_centers
from rankfold.methods.kmeans.start import inertia_of
from rankfold.pipeline.machine import one_blas_thread

STARTS = {"k-means++": "k-means||", "random": "sample"}
"""Values of the argument ``init`` of ``rankfold.kmeans``, by the names that scikit-learn's ``init`` takes."""

DTYPES = [np.float64, np.float32]


class CentersOfSamples(TransformerMixin):  # type: ignore[misc]
    """Common base of both k-means estimators: ``fit``, ``predict``, ``transform`` and ``score`` by centers.

    A ``TransformerMixin``, since scikit-learn makes frames of the output of ``transform`` only if the class
    that defines it is one.
    """

    n_clusters: int
    init: Any
    n_init: Any
    tol: float
    random_state: Any
    memory: str | int | None

    def _find(self, X: Any, **how: Any) -> rankfold.Result:
        """Call ``rankfold.kmeans`` with the estimator's parameters, some of which have other names there.

        ``how`` holds further arguments of ``rankfold.kmeans``, among them ``passes``, to which one is added
        for starts that take a read of their own.
        """
        random, init = check_random_state(self.random_state), self._start(X)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rankfold.RankfoldWarning)
            return rankfold.kmeans(
                X,
                self.n_clusters,
                init=init,
                n_init=DEFAULT_STARTS if self.n_init == "auto" else self.n_init,
                tol=self.tol,
                passes=how.pop("passes") + (isinstance(init, str) and init == "k-means||"),
                seed=int(random.randint(2**31)),
                memory=self.memory,
                **how,
            )

    def _samples(self, X: Any, *, reset: bool) -> Any:
        """Check samples and return them for clustering; those on disk are opened.

        ``reset`` is True in a fit, which sets the number and names of features, and False afterwards.
        """
        if is_large(X):
            X = rankfold.open(X)
            if reset:
                forget_names(self, X.shape[1])
        else:
            X = validate_data(
                self, X, accept_sparse="csr", reset=reset, dtype=DTYPES, order="C", accept_large_sparse=False
            )
        if reset and X.shape[0] < self.n_clusters:
            raise ValueError(f"n_samples={X.shape[0]} should be >= n_clusters={self.n_clusters}.")
        return X

    def _start(self, X: Any) -> Any:
        """Value of the argument ``init`` of ``rankfold.kmeans`` for the estimator's ``init``."""
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

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit to samples in rows and return the indices of their clusters, (m,); ``y`` is ignored."""
        return self.fit(X, sample_weight=sample_weight).labels_

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit to samples in rows and return their distances (m, k) from all centers; ``y`` is ignored."""
        return self.fit(X, sample_weight=sample_weight).transform(X)

    def predict(self, X: Any) -> Any:
        """Index of the nearest center of each sample, (m,)."""
        return np.asarray(self._label(X).labels[...])

    def transform(self, X: Any) -> Any:
        """(m, k) distances of samples in memory from all centers."""
        self._require_memory(X)
        X = self._check_test_data(X)
        centers, out = self.cluster_centers_, np.empty((X.shape[0], len(self.cluster_centers_)), X.dtype)
        out[...] = cluster._kmeans.euclidean_distances(X, centers.astype(X.dtype))
        return out

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Negative sum of squared distances of samples from their nearest centers; ``y`` is ignored."""
        return -float(self._label(X, sample_weight).attrs["final_inertia"])

    def _label(self, X: Any, sample_weight: Any = None) -> rankfold.Result:
        """Result of ``rankfold.kmeans`` that labels samples by the centers of the fit, in a single pass."""
        check_is_fitted(self)
        X = self._samples(X, reset=False)
        weights = _weights(sample_weight, X)
        return rankfold.kmeans(X, init=self.cluster_centers_, passes=1, weights=weights, memory=self.memory)

    def _require_memory(self, X: Any) -> None:
        check_is_fitted(self)
        if is_large(X):
            raise ValueError(
                "distances from all centers are for samples in memory: give parts of those on disk"
            )


def _weights(sample_weight: Any, X: Any) -> Any:
    """(m,) weights of samples, checked by scikit-learn if samples lie in memory; else as they were given."""
    if sample_weight is None or is_large(X):
        return sample_weight
    return _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)


@labeled
class KMeans(CentersOfSamples, cluster.KMeans):  # type: ignore[misc]
    """Clusters of samples of any size around their means.

    Parameters
    ----------
    n_clusters, tol, random_state
        As for ``sklearn.cluster.KMeans``.
    init : {"k-means++", "random"}, array or function
        "k-means++" is "k-means||" of ``rankfold.kmeans``, "random" its "sample". Functions are for samples
        in memory.
    n_init : "auto" or int
        Number of starts that are refined on a sample; the best one is used. "auto" is 10.
    max_iter : int
        Most steps, each a read of the samples.
    verbose, copy_x, algorithm
        For compatibility: nothing is printed, samples are never written to, and bounds are always kept.
    memory : int or str, optional
        As for ``rankfold.kmeans``.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_, n_iter_, n_features_in_
        As for ``sklearn.cluster.KMeans``; centers are float64, and those that samples were labeled by.
    result_ : rankfold.Result
        Result of the fit, with the inertia of each step.

    Notes
    -----
    ``sample_weight`` of samples on disk is anything that ``weights`` of ``rankfold.kmeans`` takes.
    ``transform`` is for samples in memory, ``predict`` and ``score`` for any.

    Examples
    --------
    >>> import numpy as np
    >>> from rankfold.estimators import KMeans
    >>> x = np.random.default_rng(0).random((60, 8))
    >>> KMeans(2).fit_predict(x).shape
    (60,)
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
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> KMeans:
        """Fit to samples in rows, each counted by ``sample_weight``; ``y`` is ignored."""
        X = self._samples(X, reset=True)
        self.result_ = self._find(X, passes=self.max_iter + 1, weights=_weights(sample_weight, X))
        self._take(self.result_)
        return self


@labeled
class MiniBatchKMeans(CentersOfSamples, cluster.MiniBatchKMeans):  # type: ignore[misc]
    """Clusters of samples around centers that move with every batch.

    Parameters
    ----------
    n_clusters, batch_size, compute_labels, random_state
        As for ``sklearn.cluster.MiniBatchKMeans``.
    init, n_init
        As for ``KMeans``.
    max_iter : int
        Most reads of the samples in which centers move.
    tol : float
        A fit stops when the squared movement of all centers in a read, divided by the mean variance of
        features, or the relative decrease of the inertia from one read to the next falls to this value.
    verbose, max_no_improvement, init_size, reassignment_ratio
        For compatibility: nothing is printed, ``tol`` and ``max_iter`` alone end a fit, centers begin from
        a sample of all that ``fit`` is given, and a center without samples stays where it is.
    memory : int or str, optional
        As for ``rankfold.kmeans``.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_, n_iter_, n_steps_, n_features_in_
        As for ``sklearn.cluster.MiniBatchKMeans``; centers are float64, labels those by the last of them.
    counts_ : (n_clusters,)
        Total weight of samples behind each center, from which ``partial_fit`` continues.
    result_ : rankfold.Result
        Result of ``fit``.

    Notes
    -----
    ``fit`` takes samples in their order; its first centers come from a sample of all. ``partial_fit`` takes
    its input as one batch; the first has at least as many samples as there are clusters.

    Examples
    --------
    >>> import numpy as np
    >>> from rankfold.estimators import MiniBatchKMeans
    >>> x = np.random.default_rng(0).random((60, 8))
    >>> MiniBatchKMeans(2, batch_size=20).fit_predict(x).shape
    (60,)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **cluster.MiniBatchKMeans._parameter_constraints,
        "memory": [str, numbers.Integral, None],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        max_iter: int = 100,
        batch_size: int = 1024,
        verbose: int = 0,
        compute_labels: bool = True,
        random_state: Any = None,
        tol: float = 1e-4,
        max_no_improvement: int | None = 10,
        init_size: int | None = None,
        n_init: Any = "auto",
        reassignment_ratio: float = 0.01,
        memory: str | int | None = None,
    ) -> None:
        super().__init__(
            n_clusters=n_clusters,
            init=init,
            max_iter=max_iter,
            batch_size=batch_size,
            verbose=verbose,
            compute_labels=compute_labels,
            random_state=random_state,
            tol=tol,
            max_no_improvement=max_no_improvement,
            init_size=init_size,
            n_init=n_init,
            reassignment_ratio=reassignment_ratio,
        )
        self.memory = memory

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> MiniBatchKMeans:
        """Fit to samples in rows, each counted by ``sample_weight``; ``y`` is ignored."""
        X = self._samples(X, reset=True)
        weights = _weights(sample_weight, X)
        self.result_ = self._find(X, passes=self.max_iter + 1, batch_rows=self.batch_size, weights=weights)
        self._take(self.result_)
        self.n_iter_ -= 1  # the last read labels samples
        self.n_steps_ = self.n_iter_ * -(-X.shape[0] // self.batch_size)
        counts = self.result_.counts if weights is None else self.result_.cluster_weights
        self.counts_ = np.asarray(counts[...], np.float64).ravel()
        return self

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> MiniBatchKMeans:
        """Move the centers by one batch of samples in memory; ``y`` is ignored."""
        if is_large(X):
            raise ValueError("a batch lies in memory: fit takes samples on disk, batch after batch")
        is_first = not hasattr(self, "cluster_centers_")
        X = self._samples(X, reset=is_first)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if is_first:
            self.cluster_centers_ = np.array(self._find(X, passes=1).centers[...])
            self._n_features_out, self.n_steps_ = self.n_clusters, 0
            self.counts_ = np.zeros(len(self.cluster_centers_))
        rows = X.toarray() if sparse.issparse(X) else X
        shift = rows.mean(axis=0, dtype=np.float64).astype(X.dtype)
        _, sums, counts, _ = _assign(rows, self.cluster_centers_, shift, weights)
        move_centers(self.cluster_centers_, self.counts_, sums, counts, shift)
        self.n_steps_ += 1
        if self.compute_labels:
            self.labels_, sums, counts, squares = _assign(rows, self.cluster_centers_, shift, weights)
            self.inertia_ = inertia_of(self.cluster_centers_, shift, sums, counts, squares)
        return self


@one_blas_thread()
def _assign(rows: Any, centers: Any, shift: Any, weights: Any) -> tuple[Any, Any, Any, float]:
    """Assign rows (m, n) to their nearest centers (k, n).

    Returns labels (m,); by cluster the sum (k, n) of rows less ``shift`` and the sum (k,) of weights; and the
    sum of squared distances.
    """
    k, labels = len(centers), np.full(len(rows), -1, np.int32)
    sums, counts, squares = np.zeros(centers.shape), np.zeros(k), np.zeros(1)
    packed, bounds = centers_of(centers, shift, np.zeros(k, np.int64)), np.empty((len(rows), 2), np.float32)
    into: dict[str, Any] = {"sums": sums, "counts": counts, "squares": squares}
    assign_rows(rows, packed, labels=labels, bounds=bounds, weights=weights, **into)
    return labels, sums, counts, float(squares[0])
