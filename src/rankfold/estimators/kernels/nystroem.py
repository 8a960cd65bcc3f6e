"""``Nystroem``: features whose products approximate a kernel function, by similarities to landmarks."""

from __future__ import annotations

import numbers
import warnings
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn import kernel_approximation
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.metrics.pairwise import KERNEL_PARAMS, pairwise_kernels
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

import rankfold
from rankfold.estimators.kernels.functions import choice_of, in_rows, transformed
from rankfold.estimators.labels import labeled
from rankfold.estimators.samples import forget_names, is_large, require_plain_output
from rankfold.kernels.similarity.tiles import multiply
from rankfold.methods.nystroem.arguments import LANDMARKS
from rankfold.methods.similarity.blocks import require_finite
from rankfold.methods.similarity.request import KernelChoice

Float64 = npt.NDArray[np.float64]


@labeled
class Nystroem(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Features whose products approximate a kernel function; see ``rankfold.nystroem``.

    Parameters
    ----------
    kernel : str or callable, default="rbf"
        As for ``rankfold.estimators.KernelPCA``; other kernels of scikit-learn by its own functions, for
        samples in memory.
    gamma, coef0, degree, kernel_params
        As for ``sklearn.kernel_approximation.Nystroem``.
    n_components : int, default=100
        Number of landmarks, and of features.
    landmarks : {"uniform", "kmeans", "rpcholesky"}, default="uniform"
        Choice of landmarks: random samples, as in scikit-learn; means of clusters, with the least error; or
        samples by randomly pivoted Cholesky.
    random_state : int, RandomState or None, default=None
        Seed of this choice.
    n_jobs
        Of no effect where rankfold compares samples.
    memory : int or str, optional
        As for ``rankfold.svd``.

    Attributes
    ----------
    components_ : (n_components, n_features)
        Landmarks.
    component_indices_ : (n_components,)
        Indices of these samples; missing with "kmeans".
    normalization_ : (n_components, n_components)
    trace_error_, pair_error_ : float
        Errors of features, as reported by ``rankfold.nystroem``; missing if scikit-learn compares samples.
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> import numpy as np
    >>> from rankfold.estimators import Nystroem
    >>> x = np.random.default_rng(0).random((60, 8))
    >>> Nystroem(n_components=10).fit_transform(x).shape
    (60, 10)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **kernel_approximation.Nystroem._parameter_constraints,
        "landmarks": [StrOptions(set(LANDMARKS))],
        "memory": [str, numbers.Integral, None],
    }

    def __init__(
        self,
        kernel: Any = "rbf",
        *,
        gamma: float | None = None,
        coef0: float | None = None,
        degree: float | None = None,
        kernel_params: dict[str, Any] | None = None,
        n_components: int = 100,
        landmarks: str = "uniform",
        random_state: Any = None,
        n_jobs: int | None = None,
        memory: str | int | None = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.coef0 = coef0
        self.degree = degree
        self.kernel_params = kernel_params
        self.n_components = n_components
        self.landmarks = landmarks
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.memory = memory

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None) -> Nystroem:
        """Choose landmarks among samples in rows, in memory or on disk; ``y`` is ignored."""
        self._fit(X)
        return self

    def transform(self, X: Any) -> Any:
        """Features of samples, (n_samples, n_components)."""
        check_is_fitted(self)
        if is_large(X):
            require_plain_output(self)
            if self._result is None:
                raise ValueError("samples on disk are transformed by a fit to samples on disk")
            return transformed(self._result, X, self.kernel, self.memory).features
        X = validate_data(self, X, accept_sparse="csr", reset=False)
        if self._choice is None:
            pairs = self._to_landmarks(X)
            return pairs @ self.normalization_.T.astype(pairs.dtype, copy=False)
        rows, others = (in_rows(each, self._choice, self._shift) for each in (X, self.components_))
        out = np.zeros((X.shape[0], self.normalization_.shape[1]))
        multiply(rows, others, similarity=self._choice.similarity, v=self.normalization_, out=out)
        require_finite(out, "X")
        return out.astype(np.float32) if X.dtype == np.float32 else out

    def _params(self) -> dict[str, Any]:
        """Arguments of scikit-learn's kernel function that were given, by name; raises for those it lacks."""
        given = {name: getattr(self, name) for name in ("gamma", "coef0", "degree")}
        given = {name: value for name, value in given.items() if value is not None}
        if callable(self.kernel) or self.kernel == "precomputed":
            if given:
                raise ValueError(
                    "Don't pass gamma, coef0 or degree to Nystroem if using a callable or precomputed kernel"
                )
            return dict(self.kernel_params or {})
        used = KERNEL_PARAMS[self.kernel]
        return {**(self.kernel_params or {}), **{name: each for name, each in given.items() if name in used}}

    def _to_landmarks(self, x: Any) -> Any:
        """Similarities (m, p) of samples ``x`` to the landmarks, computed by scikit-learn.

        With a precomputed kernel, ``x`` holds the similarities to all samples, and columns of it are taken.
        """
        if self.kernel == "precomputed":
            return np.asarray(x[:, self.component_indices_])
        return self._by_scikit_learn(x, self.components_)

    def _by_scikit_learn(self, x: Any, y: Any = None) -> Any:
        return pairwise_kernels(
            x, y, metric=self.kernel, filter_params=True, n_jobs=self.n_jobs, **self._params()
        )

    def _fit(self, X: Any) -> None:
        params = self._params()
        if is_large(X):
            source = rankfold.open(X)
            forget_names(self, source.shape[1])
        else:
            source = X = validate_data(self, X, accept_sparse="csr")
        rows, columns = source.shape
        if self.n_components > rows:
            warnings.warn(
                "n_components > n_samples. This is not possible.\nn_components was set to n_samples, which "
                "results in inefficient evaluation of the full kernel.",
                stacklevel=3,
            )
        wanted = min(rows, self.n_components)
        self._choice = None if self.kernel == "precomputed" else choice_of(self.kernel, params, columns)
        self._result = None
        if self._choice is None:
            self._fit_pairs(X, wanted)
        else:
            self._fit_rows(source, self._choice, wanted, is_large(X))
        self._n_features_out = self.normalization_.shape[1]

    def _fit_rows(self, source: Any, choice: KernelChoice, wanted: int, on_disk: bool) -> None:
        """Choose ``wanted`` landmarks by ``rankfold.nystroem``, and set the fitted attributes.

        If the samples are on disk, the result is kept for ``transform``.
        """
        result = rankfold.nystroem(
            source,
            wanted,
            kernel=choice.kernel if choice.function is None else choice.function,
            gamma=choice.gamma,
            degree=choice.degree,
            coef0=choice.coef0,
            landmarks=self.landmarks,
            seed=int(check_random_state(self.random_state).randint(2**31)),
            memory=self.memory,
        )
        names = ("points", "normalization", "shift", "landmarks")
        points, self.normalization_, self._shift, ids = (np.asarray(result[name][...]) for name in names)
        dtype = source.dtype if source.dtype == np.float32 else np.float64
        self.components_ = points.astype(dtype)
        if self.landmarks != "kmeans":
            self.component_indices_ = ids
        self.trace_error_ = float(result.attrs["trace_error"])
        self.pair_error_ = float(result.attrs["pair_error"])
        self._result = result if on_disk else None

    def _fit_pairs(self, X: Any, wanted: int) -> None:
        """Take ``wanted`` random landmarks of samples in memory, compared by scikit-learn's kernels."""
        if self.landmarks != "uniform" or is_large(X):
            raise ValueError(
                f"kernel {self.kernel!r} is left to scikit-learn, of samples in memory and with "
                "landmarks='uniform'"
            )
        indices = check_random_state(self.random_state).permutation(X.shape[0])[:wanted]
        basis = X[indices]
        precomputed = self.kernel == "precomputed"
        if precomputed and X.shape[0] != X.shape[1]:
            raise ValueError(f"similarities of samples with each other are wanted, not of shape {X.shape}")
        k = np.asarray(basis[:, indices] if precomputed else self._by_scikit_learn(basis), np.float64)
        values, vectors = np.linalg.eigh((k + k.T) / 2)
        some = values > 1e-12 * max(float(np.abs(values).max()), np.finfo(np.float64).tiny)
        roots = np.divide(1.0, np.sqrt(np.where(some, values, 1.0)), out=np.zeros(len(values)), where=some)
        self.normalization_ = (vectors * roots) @ vectors.T
        self.components_, self.component_indices_ = basis, indices
