"""``KernelDensity``: kernel density estimate of samples.

Euclidean densities are computed by rankfold. With other metrics, scikit-learn divides sums by an integral
that is not the right one; these are left to scikit-learn all the same, for samples in memory.
"""

from __future__ import annotations

import numbers
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import gammainc
from sklearn import neighbors
from sklearn.base import _fit_context
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

import rankfold
from rankfold.estimators.labels import labeled
from rankfold.estimators.samples import forget_names, is_large, weights_of
from rankfold.methods.sums.arguments import BANDWIDTH_RULES
from rankfold.methods.sums.kernels import bandwidth_by_rule
from rankfold.pipeline.data.selection import select

Float64 = npt.NDArray[np.float64]

DRAWN = ("gaussian", "tophat")
"""Kernels from which samples can be drawn."""


@labeled
class KernelDensity(neighbors.KernelDensity):  # type: ignore[misc]
    """Density by a kernel, with scikit-learn's parameters; see ``rankfold.density``.

    Parameters
    ----------
    bandwidth : float or {"scott", "silverman"}, default=1.0
        Width of the kernel, or the rule that it follows.
    kernel : {"gaussian", "tophat", "epanechnikov", "exponential", "linear", "cosine"}, default="gaussian"
        Function of the distance whose values are summed.
    metric : str, default="euclidean"
        "minkowski" and "p" are the same, unless ``metric_params`` has a ``p`` other than 2; all others are
        left to scikit-learn.
    rtol : float, default=0
        Bound on the relative error of 99 of 100 densities, for the gaussian; 0 for exact ones.
    atol, algorithm, breadth_first, leaf_size, metric_params
        Without effect unless scikit-learn searches: densities are at least as exact as ``atol`` asks.
    memory : int or str, optional
        As for ``rankfold.density``.

    Attributes
    ----------
    bandwidth_ : float
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> import numpy as np
    >>> from rankfold.estimators import KernelDensity
    >>> x = np.random.default_rng(0).random((60, 8))
    >>> KernelDensity(bandwidth=0.5).fit(x).score_samples(x).shape
    (60,)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **neighbors.KernelDensity._parameter_constraints,
        "memory": [str, numbers.Integral, None],
    }

    def __init__(
        self,
        *,
        bandwidth: float | str = 1.0,
        algorithm: str = "auto",
        kernel: str = "gaussian",
        metric: str = "euclidean",
        atol: float = 0,
        rtol: float = 0,
        breadth_first: bool = True,
        leaf_size: int = 40,
        metric_params: dict[str, Any] | None = None,
        memory: str | int | None = None,
    ) -> None:
        super().__init__(
            bandwidth=bandwidth,
            algorithm=algorithm,
            kernel=kernel,
            metric=metric,
            atol=atol,
            rtol=rtol,
            breadth_first=breadth_first,
            leaf_size=leaf_size,
            metric_params=metric_params,
        )
        self.memory = memory

    @_fit_context(prefer_skip_nested_validation=False)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> KernelDensity:
        """Keep the samples in rows and their weights (m,); samples on disk stay there. ``y`` is ignored."""
        self._choose_algorithm(self.algorithm, self.metric)
        if is_large(X):
            if not self._is_euclidean:
                raise ValueError(f"metric {self.metric!r} is for samples in memory: take euclidean")
            X = rankfold.open(X)
            forget_names(self, X.shape[1])
        else:
            X = validate_data(self, X, order="C", dtype=np.float64)
        weights = None if sample_weight is None else weights_of(sample_weight, X)
        if not self._is_euclidean:
            super().fit(X, sample_weight=weights)
            return self
        rule = self.bandwidth in BANDWIDTH_RULES
        self.bandwidth_ = bandwidth_by_rule(self.bandwidth, *X.shape) if rule else self.bandwidth
        self._samples, self._weights = X, weights
        return self

    @property
    def _is_euclidean(self) -> bool:
        power = (self.metric_params or {}).get("p", 2)
        return self.metric in ("euclidean", "l2") or (self.metric in ("minkowski", "p") and power == 2)

    def score_samples(self, X: Any) -> Float64:
        """Logarithm of the density at samples, (n_samples,)."""
        check_is_fitted(self)
        if not self._is_euclidean:
            return super().score_samples(X)  # type: ignore[no-any-return]
        if is_large(X):
            X = rankfold.open(X)
        else:
            X = validate_data(self, X, order="C", dtype=np.float64, reset=False)
        how = {"kernel": self.kernel, "weights": self._weights, "tol": self.rtol, "memory": self.memory}
        result = rankfold.density(self._samples, X, bandwidth=self.bandwidth_, **how)
        return np.asarray(result.log_density[...])

    def score(self, X: Any, y: Any = None) -> float:
        """Log-likelihood: sum of the logarithms of the density at all samples."""
        return float(np.sum(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Float64:
        """Samples drawn from the density, (n_samples, n_features); the same that scikit-learn draws."""
        check_is_fitted(self)
        if not self._is_euclidean or self.kernel not in DRAWN:  # which scikit-learn refuses
            return super().sample(n_samples, random_state)  # type: ignore[no-any-return]
        drawn = check_random_state(random_state)
        shares, rows = drawn.uniform(0, 1, size=n_samples), self._samples.shape[0]
        if self._weights is None:
            chosen = (shares * rows).astype(np.int64)
        else:
            sums = np.cumsum(self._weights)
            chosen = np.searchsorted(sums, shares * sums[-1])
        centers = self._rows(chosen)
        if self.kernel == DRAWN[0]:
            return np.atleast_2d(drawn.normal(centers, self.bandwidth_))
        # A direction, and a radius whose power d is uniformly distributed: that of a point of the ball.
        directions = drawn.normal(size=centers.shape)
        squares, d = (directions * directions).sum(axis=1), centers.shape[1]
        radii = gammainc(0.5 * d, 0.5 * squares) ** (1 / d) * self.bandwidth_ / np.sqrt(squares)
        return centers + directions * radii[:, None]  # type: ignore[no-any-return]

    def _rows(self, chosen: npt.NDArray[np.int64]) -> Float64:
        """Rows of the fitted samples at the indices ``chosen``, of which several may be equal."""
        if isinstance(self._samples, np.ndarray):
            return self._samples[chosen]
        rows, back = np.unique(chosen, return_inverse=True)
        some = select(self._samples, rows=rows, columns=None)
        out = np.empty(some.shape, some.dtype)
        some.read_into(out, (0, len(rows)), (0, some.shape[1]))
        return out[back].astype(np.float64)
