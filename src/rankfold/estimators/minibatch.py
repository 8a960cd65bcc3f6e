"""``MiniBatchNMF``: nonnegative factors of samples that arrive in batches."""

from __future__ import annotations

import itertools
import numbers
from typing import Any, ClassVar

import numpy as np
from sklearn import decomposition
from sklearn.base import _fit_context
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted, validate_data

import rankfold
from rankfold.estimators.labels import labeled
from rankfold.estimators.nonnegative import FROBENIUS, exact_rows, reconstruction_error
from rankfold.estimators.samples import forget_names, is_large, require_plain_output, store_factors
from rankfold.kernels.nonnegative.nnls import descend_rows

SWEEPS = 10
"""Number of passes of coordinate descent over all components, for each batch."""


@labeled
class MiniBatchNMF(decomposition.MiniBatchNMF):  # type: ignore[misc]
    """Nonnegative matrix factorization, a batch of samples at a time.

    Parameters
    ----------
    n_components, init, batch_size, beta_loss, tol, max_no_improvement, max_iter, alpha_W, alpha_H, l1_ratio,
    forget_factor, fresh_restarts, fresh_restarts_max_iter, transform_max_iter, random_state, verbose
        As for ``sklearn.decomposition.MiniBatchNMF``.
    memory : int or str, optional
        For ``transform`` of samples on disk, as for ``rankfold.transform``.

    Notes
    -----
    Under the Frobenius loss each batch is solved exactly, and its statistics of the components are added to
    sums of all batches, older ones discounted by ``forget_factor``. With these sums the components are
    improved by coordinate descent: Mairal, Bach, Ponce, Sapiro, Online learning for matrix factorization and
    sparse coding, JMLR 11, 2010, algorithm 1. Other losses are scikit-learn's own. Samples on disk are read
    once for each of ``max_iter`` iterations; the first batch initializes. ``NMF`` needs fewer reads of
    samples that are all available.

    Examples
    --------
    >>> import numpy as np
    >>> from rankfold.estimators import MiniBatchNMF
    >>> x = np.random.default_rng(0).random((60, 8))
    >>> MiniBatchNMF(3, batch_size=20).fit_transform(x).shape
    (60, 3)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **decomposition.MiniBatchNMF._parameter_constraints,
        "memory": [str, numbers.Integral, None],
    }

    def __init__(
        self,
        n_components: Any = "auto",
        *,
        init: str | None = None,
        batch_size: int = 1024,
        beta_loss: Any = "frobenius",
        tol: float = 1e-4,
        max_no_improvement: int | None = 10,
        max_iter: int = 200,
        alpha_W: float = 0.0,
        alpha_H: Any = "same",
        l1_ratio: float = 0.0,
        forget_factor: float = 0.7,
        fresh_restarts: bool = False,
        fresh_restarts_max_iter: int = 30,
        transform_max_iter: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        memory: str | int | None = None,
    ) -> None:
        super().__init__(
            n_components=n_components,
            init=init,
            batch_size=batch_size,
            beta_loss=beta_loss,
            tol=tol,
            max_no_improvement=max_no_improvement,
            max_iter=max_iter,
            alpha_W=alpha_W,
            alpha_H=alpha_H,
            l1_ratio=l1_ratio,
            forget_factor=forget_factor,
            fresh_restarts=fresh_restarts,
            fresh_restarts_max_iter=fresh_restarts_max_iter,
            transform_max_iter=transform_max_iter,
            random_state=random_state,
            verbose=verbose,
        )
        self.memory = memory

    def fit(self, X: Any, y: Any = None, **params: Any) -> MiniBatchNMF:
        """Fit to samples in rows; ``y`` is ignored."""
        if is_large(X):
            self._fit_on_disk(rankfold.open(X))
        else:
            super().fit(X, y, **params)
        return self

    def fit_transform(self, X: Any, y: Any = None, W: Any = None, H: Any = None) -> Any:
        """Fit to samples in rows and return their coordinates; ``y`` is ignored."""
        if is_large(X):
            require_plain_output(self)
            return self.fit(X).transform(X)
        coordinates = super().fit_transform(X, y, W=W, H=H)
        if self._beta_loss != FROBENIUS:
            return coordinates
        X = validate_data(self, X, accept_sparse=("csr", "csc"), dtype=[np.float64, np.float32], reset=False)
        coordinates = self._solve_W(X, self.components_, self._transform_max_iter)
        self.reconstruction_err_ = reconstruction_error(self, X, coordinates)
        return coordinates

    def transform(self, X: Any) -> Any:
        """Coordinates of samples in the components."""
        check_is_fitted(self)
        if not is_large(X):
            return super().transform(X)
        require_plain_output(self)
        return rankfold.transform(store_factors(self), X, memory=self.memory).W

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def _fit_on_disk(self, source: Any) -> None:
        source.check()
        samples, features = source.shape
        self._check_params(source)
        batches = list(gen_batches(samples, self._batch_size))
        first = self._read(source, batches[0])
        forget_names(self, features)
        _, h = self._check_w_h(first, None, None, True)
        self._components_numerator, self._components_denominator = h.copy(), np.ones_like(h)
        self._ewa_cost = self._ewa_cost_min = None
        self._no_improvement = 0
        most = self.max_iter * len(batches)
        for step, rows in zip(range(most), itertools.cycle(batches), strict=False):
            batch, before = self._read(source, rows), h.copy()
            cost = self._minibatch_step(batch, None, h, True)
            if self._minibatch_convergence(batch, cost, h, before, samples, step, most):
                break
        self.components_, self.n_components_ = h, len(h)
        self.n_steps_ = step + 1
        self.n_iter_ = -(-self.n_steps_ // len(batches))

    def _read(self, source: Any, rows: slice) -> Any:
        out = np.empty((rows.stop - rows.start, source.shape[1]), source.dtype)
        source.read_into(out, (rows.start, rows.stop), (0, source.shape[1]))
        return validate_data(
            self, out, dtype=[np.float64, np.float32], ensure_non_negative=True, reset=rows.start == 0
        )

    def _check_params(self, X: Any) -> Any:
        """Check parameters as scikit-learn does, and discard the sums of earlier batches."""
        self._sums: tuple[Any, Any, float] | None = None
        return super()._check_params(X)

    def _solve_W(self, X: Any, H: Any, max_iter: int) -> Any:
        if self._beta_loss != FROBENIUS:
            return super()._solve_W(X, H, max_iter)
        l1, _, l2, _ = self._compute_regularization(X)
        return exact_rows(X, H, l1, l2)

    def _minibatch_step(self, X: Any, W: Any, H: Any, update_H: bool) -> Any:
        if self._beta_loss != FROBENIUS:
            return super()._minibatch_step(X, W, H, update_H)
        count = X.shape[0]
        l1, l1_each, l2, l2_each = self._compute_regularization(X)
        w = exact_rows(X, H, l1, l2).astype(np.float64)
        h = np.asarray(H, np.float64)
        products, gram = np.asarray((X.T @ w).T, np.float64), w.T @ w
        squares = float(X.multiply(X).sum() if hasattr(X, "multiply") else np.vdot(X, X))
        residual_squares = squares - 2 * float((products * h).sum()) + float((gram * (h @ h.T)).sum())
        penalties = l1 * w.sum() + l1_each * h.sum() + l2 * (w**2).sum() + l2_each * (h**2).sum()
        if update_H:
            self._improve(H, gram, products, count, l1_each / count, l2_each / count)
        return (max(residual_squares, 0.0) / 2 + penalties) / count

    def _improve(self, h: Any, gram: Any, products: Any, count: int, l1: float, l2: float) -> None:
        """Improve the components ``h`` (k, n) in place, by coordinate descent with the
        sums over all batches so far.

        ``gram`` (k, k) is W'W and ``products`` (k, n) is W'X of the new batch, which has ``count`` samples.
        Sums of earlier batches are discounted.
        """
        if self._sums is not None:
            earlier, rho = self._sums, self._rho
            gram, products = gram + rho * earlier[0], products + rho * earlier[1]
            weight = count + rho * earlier[2]
        else:
            weight = float(count)
        self._sums = gram, products, weight
        transpose = np.ascontiguousarray(h.T, np.float64)
        right = np.ascontiguousarray(products.T) - weight * l1
        descend_rows(gram + weight * l2 * np.eye(len(gram)), right, w=transpose, sweeps=SWEEPS)
        h[:] = transpose.T
