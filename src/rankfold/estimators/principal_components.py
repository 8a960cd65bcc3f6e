"""``PCA``: principal components of all samples at once, by a suitable method.

``IncrementalPCA``: principal components of samples that arrive in batches.
"""

from __future__ import annotations

import numbers
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn import decomposition
from sklearn.base import _fit_context
from sklearn.decomposition._pca import _infer_dimension
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils.validation import check_is_fitted, validate_data

import rankfold
from rankfold.estimators.labels import labeled
from rankfold.estimators.samples import (
    MOST_PASSES,
    arpack_solver,
    coordinates,
    forget_names,
    ignore_rounding_warnings,
    in_own_words,
    is_large,
    require_plain_output,
    store_components,
    tolerance,
    weighted,
    weights_of,
    words_of_components,
)
from rankfold.kernels.linear.dense import fix_signs
from rankfold.methods.model.update import Summary, merge_summaries
from rankfold.methods.svd.error_estimates import errors_of_remainder
from rankfold.pipeline.machine import one_blas_thread

ROUNDING = 1e-6
"""Amount by which the sum of sample weights must at least exceed 1."""


def _needs_all(n: Any) -> bool:
    """True if ``n_components`` is "mle" or a share of the variance: the number follows from all variances."""
    return isinstance(n, str) or (isinstance(n, float | np.floating) and 0 < float(n) < 1)


@labeled
class PCA(decomposition.PCA):  # type: ignore[misc]
    """Principal components of matrices of any size.

    Parameters
    ----------
    n_components, whiten, tol, iterated_power, n_oversamples, random_state
        As for ``sklearn.decomposition.PCA``.
    svd_solver : {"auto", "full", "covariance_eigh", "arpack", "randomized"}
        Names of scikit-learn for methods of ``rankfold.pca``: "full" is ``tsqr``, "covariance_eigh"
        ``gram``, "arpack" and "randomized" ``krylov``, with at most ``iterated_power + 1`` passes for the
        latter; "auto" is ``tsqr`` if all components are needed, else the choice of ``rankfold.pca``.
        "arpack" for a matrix in memory that is small or sparse is ``lanczos``, which is as exact.
    copy, power_iteration_normalizer
        For compatibility: X is never overwritten, and bases are always orthonormalized.
    memory : int or str, optional
        As for ``rankfold.pca``.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_, singular_values_, mean_, n_components_,
    n_samples_, noise_variance_, n_features_in_
        As for ``sklearn.decomposition.PCA``.
    result_ : rankfold.Result
        Result of the fit, with error estimates.

    Notes
    -----
    ``transform`` of a matrix on disk returns a Zarr array in a temporary store, below 64 MiB a NumPy array.

    With ``sample_weight`` the mean and the covariance are weighted: a weight of 2 is a sample that occurs
    twice, 0 one that is left out, and variances are over the sum of weights less one. A sparse matrix is then
    read as dense blocks of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from rankfold.estimators import PCA
    >>> x = np.random.default_rng(0).random((60, 8))
    >>> PCA(2).fit_transform(x).shape
    (60, 2)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **decomposition.PCA._parameter_constraints,
        "memory": [str, numbers.Integral, None],
    }

    def __init__(
        self,
        n_components: Any = None,
        *,
        copy: bool = True,
        whiten: bool = False,
        svd_solver: str = "auto",
        tol: float = 0.0,
        iterated_power: Any = "auto",
        n_oversamples: int = 10,
        power_iteration_normalizer: str = "auto",
        random_state: Any = None,
        memory: str | int | None = None,
    ) -> None:
        super().__init__(
            n_components=n_components,
            copy=copy,
            whiten=whiten,
            svd_solver=svd_solver,
            tol=tol,
            iterated_power=iterated_power,
            n_oversamples=n_oversamples,
            power_iteration_normalizer=power_iteration_normalizer,
            random_state=random_state,
        )
        self.memory = memory

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> PCA:
        """Fit to samples in rows, each counted by ``sample_weight``; ``y`` is ignored."""
        self._find(X, sample_weight, rows=False)
        return self

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit to samples in rows and return their coordinates (m, n_components); ``y`` is ignored."""
        large, rows = is_large(X), is_large(X) and sample_weight is None
        if large:
            require_plain_output(self)
        # Samples in memory are multiplied again, which costs less than a sweep; so are weighted rows.
        x = self._find(X, sample_weight, rows=rows)
        whole = rows and "scores" in set(self.result_) and self.n_components_ == len(self.components_) > 0
        if large:
            return self.result_.scores if whole else self.transform(X)
        return self._transform(x, xp=np)

    def transform(self, X: Any) -> Any:
        """Coordinates (m, n_components) of samples in the components."""
        check_is_fitted(self)
        if not is_large(X):
            return super().transform(X)
        require_plain_output(self)
        if not self.n_components_:
            return np.empty((rankfold.open(X).shape[0], 0), self.components_.dtype)
        whole = self.result_.components.shape[0] == self.n_components_
        whole &= self.result_.attrs["request"]["center"]  # as it is without weights
        result = self.result_ if whole else store_components(self, self.n_samples_)
        return rankfold.transform(result, X, memory=self.memory).scores

    def _transform(self, X: Any, xp: Any, x_is_centered: bool = False) -> Any:
        """Coordinates (m, n_components) of samples in memory."""
        return coordinates(self, X, self.n_samples_, x_is_centered)

    def score_samples(self, X: Any) -> Any:
        """Log-likelihood of each sample, which must be in memory."""
        if is_large(X):
            raise TypeError("score and score_samples take samples in memory: give parts of those on disk")
        check_is_fitted(self)
        self._require_density()
        return super().score_samples(X)

    def _require_density(self) -> None:
        """Raise if all samples lie in a hyperplane: a Gaussian has no density there."""
        variance, features = self.explained_variance_, self.mean_.size
        if self.n_components_ < features:
            variance = np.append(variance, self.noise_variance_)
        least = features * np.finfo(self.components_.dtype).eps * variance.max(initial=0.0)
        flat = variance <= least
        if flat.any():
            raise ValueError(
                f"the samples fitted have no variance in {features - int(flat.argmax())} of {features} "
                "dimensions, so that no density is there to score by: leave out columns that are constant or "
                "combinations of others, or use explained_variance_ratio_"
            )

    def _find(self, X: Any, sample_weight: Any, *, rows: bool) -> Any:
        """Fit, and return the matrix as it was checked or opened; with ``rows`` the result has scores."""
        large = is_large(X)
        x = rankfold.open(X) if large else self._validate_samples(X)
        samples, features = x.shape
        if large:
            forget_names(self, features)
        weights = None if sample_weight is None else weights_of(sample_weight, x)
        if weights is not None and weights.sum() < 1 + ROUNDING:
            raise ValueError(
                f"sample_weight counts samples: a sum of {weights.sum():g} is no more than one sample, and "
                "variances are over the sum less one. Multiply the weights"
            )
        present = samples if weights is None else int((weights > 0).sum())
        rank, method = self._choose_rank(present, features)
        if self.svd_solver == "arpack" and rank is not None:
            method = arpack_solver(x, rank, self.memory)
        passes = MOST_PASSES
        if self.svd_solver == "randomized" and self.iterated_power != "auto":
            passes = int(self.iterated_power) + 1
        every, tol = _needs_all(self.n_components), tolerance(self.tol, method)
        if large and every and self.n_components != "mle":  # no more components than needed
            rank, every, tol = None, False, min(float(1 - self.n_components) ** 0.5, 1 - 1e-12)
            method = "auto" if self.svd_solver == "auto" else method
        words = words_of_components("iterated_power" if self.svd_solver == "randomized" else None)
        with in_own_words(words), ignore_rounding_warnings(self.tol):
            self.result_ = rankfold.pca(
                x if weights is None else weighted(x, weights),
                rank,
                tol=tol,
                solver=method,
                passes=passes,
                seed=int(check_random_state(self.random_state).randint(2**31)),
                center=weights is None,
                whiten=self.whiten and weights is None,
                with_rows=rows and not every,
                memory=self.memory,
            )
        self._keep(samples, features, weights)
        return x

    def _validate_samples(self, X: Any) -> Any:
        kinds = {"dtype": [np.float64, np.float32], "accept_sparse": ("csr", "csc")}
        return validate_data(self, X, **kinds, ensure_min_samples=2)

    def _choose_rank(self, samples: int, features: int) -> tuple[int | None, str]:
        """Rank and solver of ``rankfold.pca`` for the estimator's parameters and the shape of its matrix."""
        most, n = min(samples, features), self.n_components
        solver = self.svd_solver
        everything = n is None or _needs_all(n)
        if _needs_all(n) and solver in ("arpack", "randomized"):
            cannot = "cannot be a string" if n == "mle" else "must be an integer"
            raise ValueError(f"n_components={n!r} {cannot} with svd_solver={solver!r}")
        if n == "mle" and samples < features:
            raise ValueError("n_components='mle' is only supported if n_samples >= n_features")
        if n is None and solver == "arpack":
            return most - 1, "krylov"
        least = int(solver in ("arpack", "randomized"))
        if not everything and not least <= n <= most:
            name = "full" if solver == "auto" else solver
            raise ValueError(
                f"n_components={n!r} must be between {least} and min(n_samples, n_features)={most} with "
                f"svd_solver={name!r}"
            )
        if not everything and solver == "arpack" and n == most:
            raise ValueError(
                f"n_components={n!r} must be strictly less than min(n_samples, n_features)={most} with "
                f"svd_solver={solver!r}"
            )
        method = {"auto": "tsqr" if everything else "auto", "full": "tsqr", "covariance_eigh": "gram"}
        return (most if everything else max(int(n), 1)), method.get(solver, "krylov")

    def _keep(self, samples: int, features: int, weights: Any) -> None:
        """Set the attributes of the fit, named as in scikit-learn, from its result.

        ``samples`` and ``features`` are the numbers of rows and columns, ``weights`` (m,) those of rows or
        None.
        """
        result: Any = self.result_
        freedom, variance, mean = float(samples - 1), result.explained_variance, result.mean
        if weights is not None:  # the result is for rows scaled by roots of weights
            samples, freedom = int((weights > 0).sum()), float(weights.sum()) - 1
            variance, mean = result.singular_values**2 / freedom, result.prepare_1_sample_weight_mean
        most = min(samples, features)
        k = len(result.singular_values) if self.n_components is None else self.n_components
        if k == "mle":
            k = _infer_dimension(variance, samples)
        elif _needs_all(k) and self.result_.attrs["request"]["adaptive"]:
            k = len(result.singular_values)
        elif _needs_all(k):
            shares = np.cumsum(result.explained_variance_ratio)
            k = min(int(np.searchsorted(shares, self.n_components, side="right")) + 1, len(shares))
        self.n_samples_, self.n_components_ = samples, int(k)
        dtype = result.components.dtype
        self.components_ = result.components[:k]
        self.mean_ = mean.astype(dtype)
        self.explained_variance_ = variance[:k].astype(dtype)
        self.explained_variance_ratio_ = result.explained_variance_ratio[:k].astype(dtype)
        self.singular_values_ = result.singular_values[:k].astype(dtype)
        total = result.attrs["squared_norm"] / (freedom or 1)
        rest = max(total - float(variance[:k].sum()), 0.0)
        self.noise_variance_ = rest / (most - k) if k < most else 0.0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.array_api_support = False
        return tags


Float64 = npt.NDArray[np.float64]

EXACT_FEATURES = 512
"""Largest number of features for which nothing is truncated between batches: the factor that is kept has at
most that many rows, and is cheap to decompose.
"""


@labeled
class IncrementalPCA(decomposition.IncrementalPCA):  # type: ignore[misc]
    """Principal components from batches, of whatever length, in the memory of one.

    Parameters
    ----------
    n_components, whiten, copy, batch_size
        As for ``sklearn.decomposition.IncrementalPCA``; X is never overwritten.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_, singular_values_, mean_, var_,
    noise_variance_, n_components_, n_samples_seen_, batch_size_, n_features_in_
        As for ``sklearn.decomposition.IncrementalPCA``.
    error_estimates_ : (n_components_,)
        Bound on the relative error of each singular value, due to truncation between batches.

    Notes
    -----
    With up to 512 features all directions are kept, so that any sequence of batches gives what a fit to all
    samples gives, to rounding, and a batch after the first may have fewer samples than ``n_components``. With
    more features, a quarter more than ``n_components`` are kept.

    Examples
    --------
    >>> import numpy as np
    >>> from rankfold.estimators import IncrementalPCA
    >>> x = np.random.default_rng(0).random((60, 8))
    >>> IncrementalPCA(2).partial_fit(x[:30]).partial_fit(x[30:]).transform(x).shape
    (60, 2)
    """

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None) -> IncrementalPCA:
        """Fit to samples in rows, a batch at a time; ``y`` is ignored."""
        self._summary: Summary | None = None
        x: Any = _open_whole(X) if is_large(X) else self._validate_samples(X, sparse=True, reset=True)
        samples, features = x.shape
        if is_large(X):
            forget_names(self, features)
        self.batch_size_ = self.batch_size or 5 * features
        for rows in gen_batches(samples, self.batch_size_, min_batch_size=self.n_components or 0):
            if is_large(X):
                batch = self._validate_samples(_read(x, rows.start, rows.stop), sparse=False, reset=False)
            else:
                batch = x[rows].toarray() if scipy.sparse.issparse(x) else x[rows]
            self._add(batch)
        return self

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None, check_input: bool = True) -> IncrementalPCA:
        """Add a batch of samples in rows; ``y`` is ignored."""
        first = self._before is None
        if is_large(X):
            source = _open_whole(X)
            X, check_input = _read(source, 0, source.shape[0]), True
        if check_input and scipy.sparse.issparse(X):
            return super().partial_fit(X)  # type: ignore[no-any-return]  # raises, and says what to do
        self._add(self._validate_samples(X, sparse=False, reset=first) if check_input else X)
        return self

    def transform(self, X: Any) -> Any:
        """Coordinates of samples in the components, (samples, n_components).

        They are a NumPy array; if ``X`` is a matrix on disk, a Zarr array.
        """
        check_is_fitted(self)
        if not is_large(X):
            return super().transform(X)
        require_plain_output(self)
        return rankfold.transform(store_components(self, self.n_samples_seen_), X).scores

    def _transform(self, X: Any, xp: Any, x_is_centered: bool = False) -> Any:
        """Coordinates (m, n_components) of samples in memory."""
        return coordinates(self, X, self.n_samples_seen_, x_is_centered)

    @property
    def _before(self) -> Summary | None:
        """Count, mean and factor of the rows of earlier batches; None before the first batch."""
        return getattr(self, "_summary", None)

    def _validate_samples(self, X: Any, *, sparse: bool, reset: bool) -> Any:
        formats = ("csr", "csc", "lil") if sparse else False
        return validate_data(self, X, dtype=[np.float64, np.float32], accept_sparse=formats, reset=reset)

    @one_blas_thread()
    def _add(self, batch: Any) -> None:
        samples, features = batch.shape
        if self.n_components is not None and self.n_components > features:
            raise ValueError(
                f"n_components={self.n_components} invalid for n_features={features}: ask for at most as many"
            )
        if (
            self._before is not None
            and self._before.truncation_bound
            and (self.n_components or 0) > self.n_components_
        ):
            raise ValueError(
                f"n_components={self.n_components} is more than the {self.n_components_} of earlier batches, "
                "from which others were cut off: fit again"
            )
        new, before = Summary.of_rows(np.asarray(batch, np.float64), center=True), self._before
        summary = new if before is None else merge_summaries(before, new)
        components = self.n_components
        if components is None:
            components = min(samples, features) if before is None else self.n_components_
        if features > EXACT_FEATURES:
            summary = summary.cut_to(components + max(8, components // 4))
        self._keep(summary, components, batch.dtype)
        self._summary = summary

    def _keep(self, summary: Summary, components: int, dtype: Any) -> None:
        """Set the attributes of the fit, named as in scikit-learn, from the summary of all batches.

        The first ``components`` directions are kept, in the type ``dtype``.
        """
        count, features = summary.count, len(summary.mean)
        _, s, vt = np.linalg.svd(summary.factor, full_matrices=False)
        if components > len(s):
            raise ValueError(
                f"n_components={components} must be less or equal to the number of samples so far, {count}"
            )
        s, vt = s[:components], vt[:components]
        freedom = max(count - 1, 1)
        self.n_components_, self.n_samples_seen_ = components, count
        self.components_ = (vt * fix_signs(vt.T)[:, None]).astype(dtype)
        self.singular_values_ = s.astype(dtype)
        self.mean_, self.var_ = summary.mean, summary.squares / count
        self.explained_variance_ = (s**2 / freedom).astype(dtype)
        share = s**2 / summary.total if summary.total > 0 else np.zeros_like(s)
        self.explained_variance_ratio_ = share.astype(dtype)
        rest, remaining = max(summary.total - float((s**2).sum()), 0.0), min(count, features) - components
        self.noise_variance_ = rest / freedom / remaining if remaining > 0 else 0.0
        self.error_estimates_ = errors_of_remainder(s, summary.truncation_bound)


def _open_whole(x: Any) -> Any:
    """Open a matrix on disk; raises if chunks are missing."""
    source = rankfold.open(x)
    source.check()
    return source


def _read(source: Any, start: int, stop: int) -> Any:
    """Rows ``start:stop`` of a matrix."""
    batch = np.empty((stop - start, source.shape[1]), source.dtype)
    source.read_into(batch, (start, stop), (0, source.shape[1]))
    return batch
