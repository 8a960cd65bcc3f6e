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
from rankfold.estimators.samples import (
    MOST_PASSES,
    arpack_solver,
    forget_names,
    is_large,
    require_plain_output,
    tolerance,
    unasked_of_rounding,
)
from rankfold.pipeline.errors import DataError

Float64 = npt.NDArray[np.float64]


class TruncatedSVD(decomposition.TruncatedSVD):  # type: ignore[misc]
    """Singular value decomposition of matrices of any size, without centering.

    Parameters
    ----------
    n_components, algorithm, n_iter, n_oversamples, random_state, tol
        As for ``sklearn.decomposition.TruncatedSVD``. Both algorithms are ``krylov``, and "randomized" makes
        at most ``n_iter + 1`` passes; "arpack" of a matrix in memory that is small or sparse is ``lanczos``.
    power_iteration_normalizer
        For compatibility: bases are always orthonormalized.
    memory : int or str, optional
        As for ``rankfold.pca``.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_, singular_values_, n_features_in_
        As for ``sklearn.decomposition.TruncatedSVD``.
    result_ : rankfold.Result
        What was found, with error estimates.

    Notes
    -----
    ``transform`` of a matrix on disk gives a Zarr array in a temporary store, below 64 MiB a NumPy array. The
    variance of all of its features takes a read of its own, made when ``explained_variance_ratio_`` is first
    asked for.
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

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Fit to samples in rows, and their coordinates; ``y`` is ignored."""
        large = is_large(X)
        if large:
            require_plain_output(self)
        x: Any = rankfold.open(X) if large else self._validate_samples(X)
        if large:
            forget_names(self, x.shape[1])
        self._require_rank(*x.shape)
        rank, solver = min(self.n_components, *x.shape), "krylov"
        if self.algorithm == "arpack":
            solver = arpack_solver(x, rank, self.memory)
        with unasked_of_rounding(self.tol):
            self.result_ = rankfold.pca(
                x,
                rank,
                tol=tolerance(self.tol, solver),
                solver=solver,
                passes=self.n_iter + 1 if self.algorithm == "randomized" else MOST_PASSES,
                oversampling=max(self.n_oversamples, self.n_components // 4),
                seed=int(check_random_state(self.random_state).randint(2**31)),
                center=False,
                with_rows=large,
                memory=self.memory,
            )
        self.components_ = np.asarray(self.result_.components)
        self.singular_values_ = np.asarray(self.result_.singular_values, self.components_.dtype)
        self._matrix: Any = x if large else None
        if large:
            variances = self._variances(self.result_.scores)
            self.explained_variance_ = variances.astype(self.components_.dtype)
            self._all_variance = None
            return self.result_.scores
        scores = safe_sparse_dot(x, self.components_.T)
        self.explained_variance_ = np.var(scores, axis=0)
        variances = mean_variance_axis(x, axis=0)[1] if scipy.sparse.issparse(x) else np.var(x, axis=0)
        self._all_variance = variances.sum()
        return scores

    def transform(self, X: Any) -> Any:
        """Coordinates of samples in the components."""
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
        """Of all features, by a read of its own; 0 where nothing varies."""
        samples = self._matrix.shape[0]
        if samples < 2:
            return 0.0
        try:
            result = rankfold.pca(self._matrix, 1, solver="sketch", with_rows=False, memory=self.memory)
        except DataError:
            return 0.0
        return float(result.attrs["squared_norm"]) / samples  # type: ignore[no-any-return]

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
    def _variances(scores: Any) -> Float64:
        """Variance of each column, a chunk of rows at a time."""
        count, mean, squares = len(scores), np.zeros(scores.shape[1]), np.zeros(scores.shape[1])
        step = scores.chunks[0] if hasattr(scores, "chunks") else count
        for start in range(0, count, step):
            mean += np.asarray(scores[start : start + step], np.float64).sum(axis=0) / count
        for start in range(0, count, step):
            apart = np.asarray(scores[start : start + step], np.float64) - mean
            squares += (apart**2).sum(axis=0)
        return squares / count
