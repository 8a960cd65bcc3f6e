"""``NMF``: nonnegative factors of samples."""

from __future__ import annotations

import copy
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
from sklearn.utils import check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, check_non_negative, validate_data

import rankfold
from rankfold.estimators.labels import labeled
from rankfold.estimators.samples import MORE_PASSES, forget_names, is_large, require_plain_output
from rankfold.methods.nmf.row_solvers import Pivoting

FROBENIUS, KULLBACK_LEIBLER = 2, 1
"""Numbers of losses in scikit-learn."""

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
        """Fit to samples in rows and return their coordinates; ``y`` is ignored."""
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
        """The argument ``init`` of ``rankfold.nmf``."""
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
        """Coordinates of samples in the components."""
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
    """Error of coordinates ``w`` (m, k) of samples in memory, as scikit-learn defines it."""
    exponent = 0 if estimator._beta_loss == FROBENIUS else _unit_exponent(x)
    x, h = _ldexp(x, exponent), _ldexp(estimator.components_, exponent)
    divergence = math.ldexp(float(_beta_divergence(x, w, h, estimator._beta_loss)), -exponent)
    return float(np.sqrt(2 * max(divergence, 0.0)))  # for sparse samples it is a difference


LEAST_SIZE = 2.0**-8
"""Size of samples above which 1e-7, by which scikit-learn replaces smaller products, is small."""


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
    """Nonnegative coordinates (m, k) of samples ``x`` (m, n) in components ``h`` (k, n), by penalized least
    squares.
    """
    wide = np.asarray(h, np.float64)
    products = np.ascontiguousarray(safe_sparse_dot(x, wide.T, dense_output=True), np.float64)
    w = np.zeros(products.shape)
    gram = wide @ wide.T + l2 * np.eye(len(wide))
    Pivoting().improve(gram, products, np.full(len(wide), l1), w, fresh=True)
    return w.astype(x.dtype)
