"""``IncrementalPCA``: principal components of samples that arrive in batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn import decomposition
from sklearn.base import _fit_context
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted, validate_data

import rankfold
from rankfold.estimators.labels import labeled
from rankfold.estimators.samples import (
    coordinates,
    forget_names,
    is_large,
    require_plain_output,
    store_components,
)
from rankfold.kernels.linear.dense import fix_signs
from rankfold.methods.model.summary import Summary, merge_summaries
from rankfold.methods.svd.error_estimates import errors_of_remainder
from rankfold.pipeline.blas import one_blas_thread

Float64 = npt.NDArray[np.float64]

EXACT_FEATURES = 512
"""Most features for which nothing is truncated between batches: a matrix of that size is cheap to
decompose.
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
        """Coordinates of samples in the components; of a matrix on disk as a Zarr array."""
        check_is_fitted(self)
        if not is_large(X):
            return super().transform(X)
        require_plain_output(self)
        return rankfold.transform(store_components(self, self.n_samples_seen_), X).scores

    def _transform(self, X: Any, xp: Any, x_is_centered: bool = False) -> Any:
        """Coordinates of samples in memory."""
        return coordinates(self, X, self.n_samples_seen_, x_is_centered)

    @property
    def _before(self) -> Summary | None:
        """Summary of earlier batches, or None before the first."""
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
        """Set the attributes of the fit, named as in scikit-learn, from the summary of all batches."""
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
