"""``TruncatedSVD``: leading singular vectors of samples that are not centered."""

from __future__ import annotations

import numbers
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn import decomposition
from sklearn.base import _fit_context
from sklearn.utils import check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.sparsefuncs import mean_variance_axis
from sklearn.utils.validation import check_is_fitted, validate_data

import rankfold
from rankfold.estimators.labels import labeled
from rankfold.estimators.samples import (
    MOST_PASSES,
    arpack_solver,
    forget_names,
    ignore_rounding_warnings,
    in_own_words,
    is_large,
    require_plain_output,
    tolerance,
    weighted,
    weights_of,
    words_of_components,
)
from rankfold.pipeline.errors import DataError

Float64 = npt.NDArray[np.float64]


@labeled
class TruncatedSVD(decomposition.TruncatedSVD):  # type: ignore[misc]
    """Singular value decomposition of matrices of any size, without centering.

    Parameters
    ----------
    n_components, n_iter, n_oversamples, random_state, tol
        As for ``sklearn.decomposition.TruncatedSVD``.
    algorithm : {"arpack", "randomized"}
        Both are ``krylov`` of ``rankfold.pca``, and "randomized" makes
        at most ``n_iter + 1`` passes; "arpack" for a matrix in memory that is small or sparse is ``lanczos``.
    power_iteration_normalizer
        For compatibility: bases are always orthonormalized.
    memory : int or str, optional
        As for ``rankfold.pca``.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_, singular_values_, n_features_in_
        As for ``sklearn.decomposition.TruncatedSVD``.
    result_ : rankfold.Result
        Result of the fit, with error estimates.

    Notes
    -----
    With ``sample_weight``, components are those of rows times the roots of weights: a weight of 2 is a sample
    that occurs twice, 0 one that is left out. Coordinates are those of the unweighted samples.

    ``transform`` of a matrix on disk returns a Zarr array in a temporary store, below 64 MiB a NumPy array.
    The variance of all of its features takes a separate read, made when ``explained_variance_ratio_`` is
    first accessed.

    Examples
    --------
    >>> import numpy as np
    >>> from rankfold.estimators import TruncatedSVD
    >>> x = np.random.default_rng(0).random((60, 8))
    >>> TruncatedSVD(2).fit_transform(x).shape
    (60, 2)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **decomposition.TruncatedSVD._parameter_constraints,
        "memory": [str, numbers.Integral, None],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        algorithm: str = "randomized",
        n_iter: int = 5,
        n_oversamples: int = 10,
        power_iteration_normalizer: str = "auto",
        random_state: Any = None,
        tol: float = 0.0,
        memory: str | int | None = None,
    ) -> None:
        super().__init__(
            n_components=n_components,
            algorithm=algorithm,
            n_iter=n_iter,
            n_oversamples=n_oversamples,
            power_iteration_normalizer=power_iteration_normalizer,
            random_state=random_state,
            tol=tol,
        )
        self.memory = memory

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> TruncatedSVD:
        """Fit to samples in rows, each counted by ``sample_weight``; ``y`` is ignored."""
        self.fit_transform(X, sample_weight=sample_weight)
        return self

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit to samples in rows, each counted by ``sample_weight``, and return their coordinates."""
        large = is_large(X)
        if large:
            require_plain_output(self)
        x: Any = rankfold.open(X) if large else self._validate_samples(X)
        if large:
            forget_names(self, x.shape[1])
        self._require_rank(*x.shape)
        weights = None if sample_weight is None else weights_of(sample_weight, x)
        self._weights = weights
        rank, solver = min(self.n_components, *x.shape), "krylov"
        if self.algorithm == "arpack":
            solver = arpack_solver(x, rank, self.memory)
        words = words_of_components("n_iter" if self.algorithm == "randomized" else None)
        with in_own_words(words), ignore_rounding_warnings(self.tol):
            self.result_ = rankfold.pca(
                x if weights is None else weighted(x, weights, center=False),
                rank,
                tol=tolerance(self.tol, solver),
                solver=solver,
                passes=self.n_iter + 1 if self.algorithm == "randomized" else MOST_PASSES,
                oversampling=max(self.n_oversamples, self.n_components // 4),
                seed=int(check_random_state(self.random_state).randint(2**31)),
                center=False,
                with_rows=large and weights is None,
                memory=self.memory,
            )
        self.components_ = np.asarray(self.result_.components)
        self.singular_values_ = np.asarray(self.result_.singular_values, self.components_.dtype)
        self._matrix: Any = x if large else None
        if large:
            scores = self.result_.scores if weights is None else self.transform(X)
            self.explained_variance_ = self._variances(scores, weights).astype(self.components_.dtype)
            self._all_variance = None
            return scores
        scores = safe_sparse_dot(x, self.components_.T)
        self.explained_variance_ = _variance(scores, weights)
        sparse = scipy.sparse.issparse(x)
        variances = mean_variance_axis(x, axis=0, weights=weights)[1] if sparse else _variance(x, weights)
        self._all_variance = variances.sum()
        return scores

    def transform(self, X: Any) -> Any:
        """Coordinates (m, n_components) of samples in the components."""
        check_is_fitted(self)
        if not is_large(X):
            return super().transform(X)
        require_plain_output(self)
        return rankfold.transform(self.result_, X, memory=self.memory).scores

    @property
    def explained_variance_ratio_(self) -> Any:
        """Share of the variance of all features, (n_components,)."""
        check_is_fitted(self)
        if self._all_variance is None:
            self._all_variance = self.components_.dtype.type(self._variance_on_disk())
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.explained_variance_ / self._all_variance

    def _variance_on_disk(self) -> float:
        """Sum of the variances of all features, by another read of the matrix; 0 if it cannot be computed."""
        samples, x, weights = self._matrix.shape[0], self._matrix, self._weights
        if samples < 2:
            return 0.0
        try:
            result = rankfold.pca(
                x if weights is None else weighted(x, weights),
                1,
                solver="sketch",
                center=weights is None,
                with_rows=False,
                memory=self.memory,
            )
        except DataError:
            return 0.0
        count = samples if weights is None else weights.sum()
        return float(result.attrs["squared_norm"] / count)

    def _validate_samples(self, X: Any) -> Any:
        return validate_data(
            self, X, dtype=[np.float64, np.float32], accept_sparse=("csr", "csc"), ensure_min_features=2
        )

    def _require_rank(self, samples: int, features: int) -> None:
        most = features if self.algorithm == "randomized" else min(samples, features) - 1
        if self.n_components > most:
            raise ValueError(
                f"n_components({self.n_components}) must be <= {most} for {samples} x {features} samples "
                f"and algorithm={self.algorithm!r}"
            )

    @staticmethod
    def _variances(scores: Any, weights: Float64 | None) -> Float64:
        """Variance (k,) of each column of ``scores`` (m, k), weighted by ``weights`` (m,), chunk by chunk."""
        rows, mean, squares = len(scores), np.zeros(scores.shape[1]), np.zeros(scores.shape[1])
        counts = np.ones(rows) if weights is None else weights
        count, step = counts.sum(), scores.chunks[0] if hasattr(scores, "chunks") else rows
        for start in range(0, rows, step):
            part = np.asarray(scores[start : start + step], np.float64)
            mean += counts[start : start + step] @ part / count
        for start in range(0, rows, step):
            apart = np.asarray(scores[start : start + step], np.float64) - mean
            squares += counts[start : start + step] @ apart**2
        return np.asarray(squares / count)


def _variance(x: Any, weights: Float64 | None) -> Any:
    """Variance (n,) of each column of ``x`` (m, n), weighted by ``weights`` (m,) unless they are None."""
    if weights is None:
        return np.var(x, axis=0)
    return np.average((x - np.average(x, axis=0, weights=weights)) ** 2, axis=0, weights=weights).astype(
        x.dtype
    )
