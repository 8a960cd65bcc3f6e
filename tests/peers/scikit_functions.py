"""Functions of scikit-learn by rankfold, and the estimator of which ours has fewer parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils import check_random_state
from sklearn.utils.extmath import svd_flip

import rankfold as rf
from rankfold import estimators


def randomized_svd(
    M: Any,
    n_components: int,
    *,
    n_oversamples: int = 10,
    n_iter: int | str = "auto",
    power_iteration_normalizer: str = "auto",
    transpose: bool | str = "auto",
    flip_sign: bool = True,
    random_state: Any = None,
    svd_lapack_driver: str = "gesdd",
) -> tuple[Any, ...]:
    """See ``sklearn.utils.extmath.randomized_svd``.

    ``n_iter`` is the number of passes after the first; bases are always orthonormalized, and the shorter
    side is found out.
    """
    found = rf.svd(
        M.T if transpose is True else M,
        n_components,
        tol=1e-8,
        solver="krylov",
        passes=8 if n_iter == "auto" else int(n_iter) + 1,
        oversampling=n_oversamples,
        seed=int(check_random_state(random_state).randint(2**31)),
    )
    u, s, vt = found.U[...], found.s, found.Vt[...]
    if transpose is True:
        u, vt = vt.T, u.T
    if flip_sign:
        u, vt = svd_flip(u, vt)
    return u, s.astype(u.dtype), np.ascontiguousarray(vt)


def spectral_embedding(
    adjacency: Any,
    *,
    n_components: int = 8,
    eigen_solver: str | None = None,
    random_state: Any = None,
    eigen_tol: float | str = "auto",
) -> Any:
    """See ``sklearn.manifold.spectral_embedding``; there is one solver, and loops change nothing there."""
    weights = scipy.sparse.csr_array(adjacency)
    weights = scipy.sparse.csr_array(weights - scipy.sparse.diags_array(weights.diagonal()))
    seed = int(check_random_state(random_state).randint(2**31))
    tol = {} if eigen_tol == "auto" else {"tol": eigen_tol}
    return np.asarray(rf.spectral(weights, n_components, seed=seed, **tol).embedding[...])


class SpectralEmbedding(estimators.SpectralEmbedding):  # type: ignore[misc]
    """The same with kernels, which are computed before, and names of solvers, which change nothing."""

    def __init__(
        self,
        n_components: int = 2,
        *,
        affinity: Any = "nearest_neighbors",
        gamma: float | None = None,
        random_state: Any = None,
        eigen_solver: str | None = None,
        eigen_tol: float | str = "auto",
        n_neighbors: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        how: dict[str, Any] = {"random_state": random_state, "n_neighbors": n_neighbors}
        super().__init__(n_components, affinity=affinity, eigen_tol=eigen_tol, **how)
        self.gamma, self.eigen_solver, self.n_jobs = gamma, eigen_solver, n_jobs

    def fit(self, X: Any, y: Any = None) -> SpectralEmbedding:
        """See ``sklearn.manifold.SpectralEmbedding``."""
        kernel = self.affinity
        if kernel == "rbf" or callable(kernel):
            X = rbf_kernel(X, gamma=self.gamma) if kernel == "rbf" else kernel(X)
            self.affinity = "precomputed"
        super().fit(X)
        self.affinity = kernel
        return self
