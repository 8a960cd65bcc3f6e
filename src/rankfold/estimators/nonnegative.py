"""``NMF``: nonnegative factors of samples.

``MiniBatchNMF``: nonnegative factors of samples that arrive in batches.
"""

from __future__ import annotations

import copy
import itertools
import math
import numbers
import warnings
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn import config_context, decomposition
from sklearn.base import _fit_context
from sklearn.decomposition._nmf import _beta_divergence
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, check_non_negative, validate_data

import rankfold
from rankfold.estimators.labels import labeled
from rankfold.estimators.samples import (
    MORE_PASSES,
    forget_names,
    is_large,
    require_plain_output,
    store_factors,
)
from rankfold.kernels.nonnegative.nnls import descend_rows
from rankfold.methods.nmf.row_solvers import Pivoting

FROBENIUS, KULLBACK_LEIBLER = 2, 1
"""Values of scikit-learn's ``beta_loss`` for the two losses, as numbers."""

STARTS = {None: "auto", "random": "random", "nndsvd": "nndsvd", "nndsvda": "nndsvd", "nndsvdar": "nndsvd"}
"""Values of ``init`` of ``rankfold.nmf``, by scikit-learn's names. Zeros of singular vectors need not be
filled: descent leaves them.
"""


@labeled
class NMF(decomposition.NMF):  # type: ignore[misc]
    """Nonnegative matrix factorization of samples of any size.

    Parameters
    ----------
    n_components, init, beta_loss, alpha_W, alpha_H, l1_ratio, max_iter, random_state
        As for ``sklearn.decomposition.NMF``.
    solver : {"cd", "mu"}
        "cd" is coordinate descent with ten sweeps for each read; "mu", multiplicative updates, is
        for the losses "frobenius" and "kullback-leibler". An iteration is a read of the samples.
    tol : float
        Relative decrease of the error in an iteration below which iterations end.
    verbose, shuffle
        For compatibility: nothing is printed, and coordinates keep their order.
    memory : int or str, optional
        As for ``rankfold.nmf``.

    Attributes
    ----------
    components_, n_components_, reconstruction_err_, n_iter_, n_features_in_
        As for ``sklearn.decomposition.NMF``.
    result_ : rankfold.Result
        Result of the fit, with the error after each pass.

    Notes
    -----
    ``transform`` solves the Frobenius problem exactly, and ``fit_transform`` ends with it. For samples on
    disk it gives a Zarr array in a temporary store, below 64 MiB a NumPy array, and takes a read. Components
    beyond the smaller side of the samples are zero: without them the error is as small as it can be.

    Examples
    --------
    >>> import numpy as np
    >>> from rankfold.estimators import NMF
    >>> x = np.random.default_rng(0).random((60, 8))
    >>> NMF(3).fit_transform(x).shape
    (60, 3)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **decomposition.NMF._parameter_constraints,
        "memory": [str, numbers.Integral, None],
    }

    def __init__(
        self,
        n_components: Any = "auto",
        *,
        init: str | None = None,
        solver: str = "cd",
        beta_loss: Any = "frobenius",
        tol: float = 1e-4,
        max_iter: int = 200,
        random_state: Any = None,
        alpha_W: float = 0.0,
        alpha_H: Any = "same",
        l1_ratio: float = 0.0,
        verbose: int = 0,
        shuffle: bool = False,
        memory: str | int | None = None,
    ) -> None:
        super().__init__(
            n_components=n_components,
            init=init,
            solver=solver,
            beta_loss=beta_loss,
            tol=tol,
            max_iter=max_iter,
            random_state=random_state,
            alpha_W=alpha_W,
            alpha_H=alpha_H,
            l1_ratio=l1_ratio,
            verbose=verbose,
            shuffle=shuffle,
        )
        self.memory = memory

    components_: Any
    _n_components: Any

    def fit(self, X: Any, y: Any = None, **params: Any) -> NMF:
        """Fit to samples in rows; ``y`` is ignored."""
        if not is_large(X):
            super().fit(X, y, **params)
            return self
        self._fit(rankfold.open(X), **params)
        return self

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit_transform(self, X: Any, y: Any = None, W: Any = None, H: Any = None) -> Any:
        """Fit to samples in rows and return their coordinates (m, n_components); ``y`` is ignored."""
        if is_large(X):
            require_plain_output(self)
            self._fit(rankfold.open(X), W, H)
            return self.transform(X)
        X = validate_data(self, X, accept_sparse=("csr", "csc"), dtype=[np.float64, np.float32])
        check_non_negative(X, "NMF (input X)")
        self._fit(X, W, H)
        coordinates = self._coordinates(X)
        self.reconstruction_err_ = reconstruction_error(self, X, coordinates)
        return coordinates

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def _fit(self, x: Any, W: Any = None, H: Any = None) -> None:
        """Fit components to checked samples, or to a matrix on disk."""
        if is_large(x):
            forget_names(self, x.shape[1])
        self._check_params(x)
        if self._beta_loss not in (FROBENIUS, KULLBACK_LEIBLER):
            raise ValueError(
                f"beta_loss={self.beta_loss!r} is not there: take 'frobenius' or 'kullback-leibler'"
            )
        component_count = x.shape[1] if self._n_components == "auto" else self._n_components
        if str(self.init).startswith("nndsvd") and component_count > min(x.shape):
            raise ValueError(
                f"init = '{self.init}' can only be used when n_components <= min(n_samples, n_features)"
            )
        start = self._start(x, W, H)
        if self._n_components == "auto":
            self._n_components = x.shape[1]
        with warnings.catch_warnings():  # the estimator itself warns of iterations below
            warnings.filterwarnings("ignore", f".*{MORE_PASSES}", rankfold.RankfoldWarning)
            self.result_ = rankfold.nmf(
                x,
                self._n_components,
                loss="frobenius" if self._beta_loss == FROBENIUS else "kullback-leibler",
                solver="hals" if self.solver == "cd" else "mu",
                init=start,
                alpha_W=self.alpha_W,
                alpha_H=self.alpha_H,
                l1_ratio=self.l1_ratio,
                tol=min(self.tol, 0.999),
                passes=self.max_iter + (0 if start == "random" or not isinstance(start, str) else 1),
                seed=int(check_random_state(self.random_state).randint(2**31)),
                memory=self.memory,
            )
        facts, self.components_ = self.result_.attrs, np.asarray(self.result_.H)
        self.n_components_, self.n_iter_ = self._n_components, len(facts["errors"])
        self.reconstruction_err_ = facts["relative_error"] * float(np.sqrt(facts["squared_norm"]))
        if facts["stopped"] == "passes" and self.tol > 0:
            warnings.warn(
                f"Maximum number of iterations {self.max_iter} reached. Increase it to improve convergence.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _start(self, x: Any, W: Any, H: Any) -> Any:
        """Value of the argument ``init`` of ``rankfold.nmf`` for the estimator's ``init``, W and H."""
        if self.init == "custom":
            if is_large(x):
                raise ValueError("init='custom' is for samples in memory: give rankfold.nmf a start instead")
            return self._check_w_h(x, W, H, True)
        if W is not None or H is not None:
            warnings.warn(
                "When init!='custom', provided W or H are ignored. Set  init='custom' to use them as "
                "initialization.",
                RuntimeWarning,
                stacklevel=4,
            )
        return STARTS[self.init]

    def transform(self, X: Any) -> Any:
        """Coordinates (m, n_components) of samples in the components."""
        check_is_fitted(self)
        if is_large(X):
            require_plain_output(self)
            return rankfold.transform(self.result_, X, memory=self.memory).W
        X = validate_data(
            self,
            X,
            accept_sparse=("csr", "csc"),
            dtype=[np.float64, np.float32],
            reset=False,
            ensure_non_negative=True,
        )
        return self._coordinates(X)

    def _coordinates(self, x: Any) -> Any:
        """Coordinates of checked samples (m, k): exact, or multiplicative updates until they converge."""
        if self._beta_loss != FROBENIUS:
            exponent, scaled, h = _unit_exponent(x), copy.copy(self), self.components_
            across = -int(np.frexp(h.max())[1]) if exponent else 0
            linear = _ldexp(np.float64(self.alpha_W * self.l1_ratio), across)
            square = _ldexp(np.float64(self.alpha_W * (1 - self.l1_ratio)), 2 * across - exponent)
            if exponent and linear + square > 0:
                scaled.alpha_W, scaled.l1_ratio = linear + square, linear / (linear + square)
            with config_context(assume_finite=True), warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                x, h = _ldexp(x, exponent), _ldexp(h, across)
                return _ldexp(scaled._fit_transform(x, H=h, update_H=False)[0], across - exponent)
        l1, _, l2, _ = self._compute_regularization(x)
        return exact_rows(x, self.components_, l1, l2)


def reconstruction_error(estimator: Any, x: Any, w: Any) -> float:
    """Error of coordinates ``w`` (m, k) of samples ``x`` (m, n) in memory, as scikit-learn defines it."""
    exponent = 0 if estimator._beta_loss == FROBENIUS else _unit_exponent(x)
    x, h = _ldexp(x, exponent), _ldexp(estimator.components_, exponent)
    divergence = math.ldexp(float(_beta_divergence(x, w, h, estimator._beta_loss)), -exponent)
    return float(np.sqrt(2 * max(divergence, 0.0)))  # for sparse samples it is a difference


LEAST_SIZE = 2.0**-8
"""Samples whose largest value is below this are scaled up, as scikit-learn replaces products below 1e-7."""


def _unit_exponent(x: Any) -> int:
    """Exponent of the power of two that brings samples near 1, if they are below ``LEAST_SIZE``; else 0.

    The Kullback-Leibler divergence is the same in any unit, but scikit-learn's loops replace products below
    1e-7.
    """
    largest = float(x.max()) if x.shape[0] else 0.0
    return -int(np.frexp(largest)[1]) if 0 < largest < LEAST_SIZE else 0


def _ldexp(x: Any, exponent: int) -> Any:
    """``x * 2**exponent`` of an array or a sparse matrix; ``x`` itself if ``exponent`` is 0."""
    if exponent == 0:
        return x
    if not sp.issparse(x):
        return np.ldexp(x, exponent)
    x = x.copy()
    x.data = np.ldexp(x.data, exponent)
    return x


def exact_rows(x: Any, h: Any, l1: float, l2: float) -> Any:
    """Nonnegative coordinates (m, k) of samples ``x`` (m, n) in components ``h`` (k, n), by least squares.

    Each row w of them minimizes ``|x - w h|^2 / 2 + l1 sum(w) + l2 |w|^2 / 2``.
    """
    wide = np.asarray(h, np.float64)
    products = np.ascontiguousarray(safe_sparse_dot(x, wide.T, dense_output=True), np.float64)
    w = np.zeros(products.shape)
    gram = wide @ wide.T + l2 * np.eye(len(wide))
    Pivoting().improve(gram, products, np.full(len(wide), l1), w, fresh=True)
    return w.astype(x.dtype)


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
        """Fit to samples in rows and return their coordinates (m, n_components); ``y`` is ignored."""
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
        """Coordinates (m, n_components) of samples in the components."""
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
        """Improve the components ``h`` (k, n) in place, by coordinate descent with the sums over all batches.

        ``gram`` (k, k) is W'W and ``products`` (k, n) is W'X of the new batch, which has ``count`` samples.
        They are added to the sums of earlier batches, which are discounted. ``l1`` and ``l2`` are the
        penalties on ``h`` for each sample.
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
