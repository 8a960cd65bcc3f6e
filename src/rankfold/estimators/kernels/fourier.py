"""``RBFSampler``: random Fourier features, whose inner products approximate the rbf kernel.

They do not depend on samples, only on the number of columns: the features of a row are the same in any block
of rows. Their error falls only with the root of their number, so ``Nystroem`` with as many landmarks is more
accurate.

Features come in pairs of one frequency, whose phases differ by a quarter of a turn. So the terms in a product
of two rows that depend on their sum, and not on their difference, cancel.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from sklearn import kernel_approximation
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from rankfold.estimators.labels import labeled
from rankfold.estimators.samples import is_large
from rankfold.kernels.linear.gaussian import gaussian_rows
from rankfold.methods.random_keys import Purpose


@labeled
class RBFSampler(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Random Fourier features of the kernel ``exp(-gamma |x - y|^2)``.

    Parameters
    ----------
    gamma : float or "scale", default=1.0
        "scale" is 1 / (columns * variance of all values).
    n_components : int, default=100
        Number of features.
    random_state : int, RandomState or None, default=None
        Key of the random numbers: a frequency is a function of it, its number and its column.

    Attributes
    ----------
    random_weights_ : (n_features, n_components)
    random_offset_ : (n_components,)
    n_features_in_, feature_names_in_

    References
    ----------
    Rahimi, Recht, Random features for large-scale kernel machines, NIPS 2007. Sutherland, Schneider, On the
    error of random Fourier features, UAI 2015: with pairs the variance is less for this kernel.

    Examples
    --------
    >>> import numpy as np
    >>> from rankfold.estimators import RBFSampler
    >>> x = np.random.default_rng(0).random((60, 8))
    >>> RBFSampler(n_components=10).fit_transform(x).shape
    (60, 10)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = kernel_approximation.RBFSampler._parameter_constraints

    def __init__(
        self, *, gamma: float | str = 1.0, n_components: int = 100, random_state: Any = None
    ) -> None:
        self.gamma = gamma
        self.n_components = n_components
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None) -> RBFSampler:
        """Draw frequencies for the columns of X; its values matter only with ``gamma="scale"``."""
        X = self._in_memory(X, reset=True)
        columns = X.shape[1]
        self._gamma = float(self.gamma) if self.gamma != "scale" else 1.0
        if self.gamma == "scale":
            variance = float((X.multiply(X)).mean() - X.mean() ** 2 if issparse(X) else X.var())
            self._gamma = 1.0 / (columns * variance) if variance else 1.0
        seed = int(check_random_state(self.random_state).randint(2**31))
        pairs = -(-self.n_components // 2)
        drawn = gaussian_rows(seed, Purpose.FOURIER_WEIGHTS, (0, columns), pairs)
        key = np.array([seed, Purpose.FOURIER_WEIGHTS], np.uint64)
        phases = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 1, 0])).random(pairs)
        dtype = np.float32 if X.dtype == np.float32 else np.float64
        weights = np.repeat(np.sqrt(2 * self._gamma) * drawn, 2, axis=1)[:, : self.n_components]
        turns = (phases[:, None] + np.array([0.0, 0.25])).ravel()[: self.n_components]
        self.random_weights_ = weights.astype(dtype)
        self.random_offset_ = (2 * np.pi * turns).astype(dtype)
        self._n_features_out = self.n_components
        return self

    def transform(self, X: Any) -> Any:
        """Features of samples in memory, (n_samples, n_components)."""
        check_is_fitted(self)
        X = self._in_memory(X, reset=False)
        angles = safe_sparse_dot(X, self.random_weights_) + self.random_offset_
        np.cos(angles, angles)
        angles *= np.sqrt(2.0 / self.n_components)
        return angles

    def _in_memory(self, X: Any, *, reset: bool) -> Any:
        if is_large(X):
            raise ValueError(
                "RBFSampler takes samples in memory: features of a block of rows do not depend on others, so "
                "that blocks may be read and transformed one by one"
            )
        return validate_data(self, X, accept_sparse="csr", reset=reset)
