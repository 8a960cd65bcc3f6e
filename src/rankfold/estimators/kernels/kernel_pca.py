"""``KernelPCA``: principal components in the space of a kernel function."""

from __future__ import annotations

import numbers
import warnings
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.linalg
from sklearn import decomposition
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import KernelCenterer
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import _check_psd_eigenvalues, check_is_fitted, validate_data

import rankfold
from rankfold.estimators.kernels.functions import all_pairs, choice_of, in_rows, transformed
from rankfold.estimators.labels import labeled
from rankfold.estimators.samples import forget_names, in_own_words, is_large, require_plain_output
from rankfold.kernels.linear.dense import fix_signs, leading_eigenpairs
from rankfold.kernels.similarity.tiles import multiply
from rankfold.methods.similarity.arguments import ALIASES, KERNELS
from rankfold.methods.similarity.blocks import require_finite
from rankfold.methods.similarity.request import KernelChoice

Float64 = npt.NDArray[np.float64]

TOL = 1e-12
"""Relative tolerance of eigenvalues for ``tol=0``; errors of eigenvectors are square roots of theirs."""

NEGATIVE = "There are significant negative eigenvalues"
"""Prefix of scikit-learn's error about components that a kernel function does not have."""


@labeled
class KernelPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Principal components in the space of a kernel function; see ``rankfold.kernel_pca``.

    Parameters
    ----------
    n_components : int, optional
        By default all with nonzero variance, for which the matrix of all pairs is held in memory.
    kernel : str or callable, default="linear"
        "linear", "poly", "rbf", "sigmoid", "cosine", "laplacian"; a function of two samples that numba
        compiles; or as ``sklearn.decomposition.KernelPCA`` has it, with the matrix of all pairs in memory:
        "precomputed", and functions that it does not compile.
    gamma, degree, coef0, kernel_params
        As for ``sklearn.decomposition.KernelPCA``.
    alpha, fit_inverse_transform
        As for ``sklearn.decomposition.KernelPCA``; ``inverse_transform`` is for samples in memory.
    tol : float, default=0
        As for ``rankfold.kernel_pca``; 0 is as exact as possible.
    random_state : int, RandomState or None, default=None
        Seed of the starting vectors of the iteration.
    eigen_solver, max_iter, iterated_power, copy_X, n_jobs
        Of no effect, but for ``n_jobs`` where scikit-learn compares samples.
    remove_zero_eig
        As for ``sklearn.decomposition.KernelPCA``.
    memory : int or str, optional
        As for ``rankfold.svd``.

    Attributes
    ----------
    eigenvalues_ : (n_components,)
    eigenvectors_ : (n_samples, n_components)
        Of length 1, except those of the eigenvalue 0, which are 0.
    X_fit_ : (n_samples, n_features)
        Samples, in memory or on disk.
    dual_coef_, X_transformed_fit_
        Coefficients and samples that ``inverse_transform`` uses.
    gamma_ : float
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> import numpy as np
    >>> from rankfold.estimators import KernelPCA
    >>> x = np.random.default_rng(0).random((60, 8))
    >>> KernelPCA(2, kernel="rbf").fit_transform(x).shape
    (60, 2)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **decomposition.KernelPCA._parameter_constraints,
        "kernel": [StrOptions({*KERNELS, *ALIASES, "precomputed"}), callable],
        "memory": [str, numbers.Integral, None],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        kernel: Any = "linear",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        alpha: float = 1.0,
        fit_inverse_transform: bool = False,
        eigen_solver: str = "auto",
        tol: float = 0,
        max_iter: int | None = None,
        iterated_power: Any = "auto",
        remove_zero_eig: bool = False,
        random_state: Any = None,
        copy_X: bool = True,
        n_jobs: int | None = None,
        memory: str | int | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.alpha = alpha
        self.fit_inverse_transform = fit_inverse_transform
        self.eigen_solver = eigen_solver
        self.tol = tol
        self.max_iter = max_iter
        self.iterated_power = iterated_power
        self.remove_zero_eig = remove_zero_eig
        self.random_state = random_state
        self.copy_X = copy_X
        self.n_jobs = n_jobs
        self.memory = memory

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None) -> KernelPCA:
        """Find components of samples in rows, in memory or on disk; ``y`` is ignored."""
        self._fit(X)
        return self

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit_transform(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Fit, and return coordinates of the samples (m, n_components); ``y`` is ignored."""
        return self._fit(X)

    def transform(self, X: Any) -> Any:
        """Coordinates of new samples, (n_queries, n_components)."""
        check_is_fitted(self)
        if is_large(X) or self._result is not None:
            require_plain_output(self)
            if self._result is None:
                raise ValueError("new samples on disk are transformed by a fit to samples on disk")
            count = len(self.eigenvalues_)
            return transformed(self._result, X, self.kernel, self.memory).scores[:, :count]
        X = validate_data(self, X, accept_sparse="csr", reset=False)
        values = self.eigenvalues_
        roots = np.sqrt(values)
        inverse = np.divide(1.0, roots, out=np.zeros(len(values)), where=values > 0)
        alphas = self.eigenvectors_ * inverse
        if self._choice is None:
            return _as_given(self._centerer.transform(self._pairs(X, self.X_fit_)) @ alphas, X)
        rows, others = (in_rows(each, self._choice, self._shift) for each in (X, self.X_fit_))
        out = np.zeros((X.shape[0], len(values)))
        multiply(rows, others, similarity=self._choice.similarity, v=alphas, out=out)
        require_finite(out, "X")
        return _as_given(out - self._offset, X)

    def inverse_transform(self, X: Any) -> Any:
        """Samples (m, n_features) whose coordinates are about X (m, n_components), by ridge regression."""
        if not self.fit_inverse_transform:
            raise NotFittedError(
                "The fit_inverse_transform parameter was not set to True when instantiating and hence the "
                "inverse transform is not available."
            )
        check_is_fitted(self)
        return self._pairs(np.asarray(X), self.X_transformed_fit_) @ self.dual_coef_

    @property
    def _n_features_out(self) -> int:
        return int(self.eigenvalues_.shape[0])

    def _params(self) -> dict[str, Any]:
        if callable(self.kernel):
            return self.kernel_params or {}
        return {"gamma": self.gamma_, "degree": self.degree, "coef0": self.coef0}

    def _pairs(self, x: Any, y: Any = None) -> Float64:
        return all_pairs(x, y, self.kernel, self._params(), self.n_jobs)

    def _fit(self, X: Any) -> Any:
        """Fit, and return coordinates of the samples (m, n_components)."""
        if self.fit_inverse_transform and self.kernel == "precomputed":
            raise ValueError("Cannot fit_inverse_transform with a precomputed kernel.")
        if is_large(X):
            if self.fit_inverse_transform:
                raise ValueError("inverse_transform is of samples in memory: these are on disk")
            source = rankfold.open(X)
            forget_names(self, source.shape[1])
        else:
            source = X = validate_data(self, X, accept_sparse="csr", copy=self.copy_X)
        rows, columns = source.shape
        self.gamma_ = 1 / columns if self.gamma is None else self.gamma
        self._choice = (
            None if self.kernel == "precomputed" else choice_of(self.kernel, self._params(), columns)
        )
        wanted = rows if self.n_components is None else min(rows, self.n_components)
        self._result: rankfold.Result | None = None
        self.X_fit_ = X
        if self._choice is None:
            self._fit_pairs(wanted)
        else:
            self._fit_rows(source, self._choice, wanted, is_large(X))
        if self.remove_zero_eig or self.n_components is None:
            some = self.eigenvalues_ > 0
            self._take(self.eigenvalues_[some], self.eigenvectors_[:, some], self._offset[some])
        scores = self.eigenvectors_ * np.sqrt(self.eigenvalues_)
        if self.fit_inverse_transform:
            self._fit_inverse(scores, X)
        return scores if is_large(X) else _as_given(scores, X)

    def _fit_rows(self, source: Any, choice: KernelChoice, wanted: int, on_disk: bool) -> None:
        """Fit ``wanted`` components of ``source`` by ``rankfold.kernel_pca``, and set the fitted attributes.

        If the samples are on disk, the result is kept for ``transform``.
        """
        with in_own_words({"allow more passes, or": "give"}), warnings.catch_warnings():
            for words in ("no variance beyond rounding", "rounding hides what is left"):
                warnings.filterwarnings("ignore", f".*{words}", rankfold.RankfoldWarning)
            result = rankfold.kernel_pca(
                source,
                wanted,
                kernel=choice.kernel if choice.function is None else choice.function,
                gamma=choice.gamma,
                degree=choice.degree,
                coef0=choice.coef0,
                tol=self.tol or TOL,
                seed=int(check_random_state(self.random_state).randint(2**31)),
                memory=self.memory,
            )
        facts = result.attrs
        if facts["all_eigenvalues"] and facts["negative_eigenvalues"] > source.shape[0] - wanted:
            raise ValueError(
                f"{NEGATIVE}: {facts['negative_eigenvalues']}, down to {facts['least_eigenvalue']:g}. "
                "Ask for fewer components, or take a kernel that is positive"
            )
        values = np.asarray(result["eigenvalues"][...])
        self._keep(_check_psd_eigenvalues(values, enable_warnings=False), result)
        self._result = result if on_disk else None

    def _take(self, values: Float64, vectors: Float64, offset: Float64) -> None:
        self.eigenvalues_: Float64 = values
        self.eigenvectors_: Float64 = vectors
        self._offset: Float64 = offset

    def _keep(self, values: Float64, result: rankfold.Result) -> None:
        scores = np.asarray(result["scores"][...])
        roots = np.sqrt(values)
        vectors = scores * np.divide(1.0, roots, out=np.zeros(len(values)), where=values > 0)
        self._take(values, vectors, np.asarray(result["offset"][...]))
        self._shift = np.asarray(result["shift"][...])

    def _fit_pairs(self, wanted: int) -> None:
        """Fit ``wanted`` components by the kernel matrix of all pairs of samples, and set the attributes."""
        self._centerer = KernelCenterer().set_output(transform="default")
        k = self._centerer.fit_transform(self._pairs(self.X_fit_))
        values, vectors = leading_eigenpairs(np.ascontiguousarray((k + k.T) / 2, np.float64), wanted)
        checked = _check_psd_eigenvalues(np.array(values), enable_warnings=False)
        self._take(checked, vectors * fix_signs(vectors), np.zeros(wanted))

    def _fit_inverse(self, scores: Float64, X: Any) -> None:
        """Fit the ridge regression of samples X (m, n) on ``scores`` (m, k), for ``inverse_transform``."""
        if hasattr(X, "tocsr"):
            raise ValueError("inverse_transform is of dense samples: these are sparse")
        k = self._pairs(scores)
        k.flat[:: len(k) + 1] += self.alpha
        self.dual_coef_ = scipy.linalg.solve(k, X, assume_a="pos", overwrite_a=True)
        self.X_transformed_fit_ = scores


def _as_given(scores: Float64, x: Any) -> Any:
    """Scores in float32 if ``x`` is in float32, else as they are."""
    return scores.astype(np.float32) if x.dtype == np.float32 else scores
