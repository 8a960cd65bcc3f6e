"""Reductions by kernel functions of pairs of rows."""

from __future__ import annotations

from typing import Unpack

from rankfold.api.arguments import public
from rankfold.api.execute import run
from rankfold.api.where import OfMatrix, opened
from rankfold.methods.kernel_pca.arguments import KERNEL_PCA, MOST_PASSES, TOL
from rankfold.methods.similarity.arguments import COEF0, DEGREE
from rankfold.pipeline.storage.result import Result


@public
def kernel_pca(
    x: object,
    rank: int,
    *,
    kernel: object = "rbf",
    gamma: float | None = None,
    degree: float = DEGREE,
    coef0: float = COEF0,
    tol: float = TOL,
    passes: int = MOST_PASSES,
    seed: int = 0,
    **where: Unpack[OfMatrix],
) -> Result:
    """Principal components of rows in the space of a kernel function, of all pairs and without their matrix.

    Parameters
    ----------
    x : path, array or Source, (m, n)
        Anything ``svd`` takes.
    rank : int, at most m
        Components.
    kernel : str or callable
        Of rows x and y: "rbf", ``exp(-gamma |x - y|^2)``; "laplacian", ``exp(-gamma sum |x - y|)``;
        "polynomial", ``(gamma x'y + coef0)^degree``; "sigmoid", ``tanh(gamma x'y + coef0)``; "cosine";
        "linear"; or a function of two float64 rows that numba compiles, which must be symmetric.
    gamma : float, optional
        1 / n by default. 0 makes all rows alike: all components are 0.
    degree, coef0 : float
    tol : float
        Estimated relative error of an eigenvalue at which it counts as known. Scores are then off by some
        square root of it, by how far eigenvalues lie apart.
    passes : int
        Sweeps over all pairs at most.
    seed : int
        Key of the vectors that the iteration begins with.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``scores`` (m, rank) float64: eigenvectors of the centered matrix of pairs times the roots of
        ``eigenvalues`` (rank,), signs as for ``svd``; ``residuals`` and ``error_estimates`` (rank,) of
        eigenvalues, absolute. ``rows`` (m, n), ``shift`` (n,) and ``offset`` (rank,) are what ``transform``
        compares new rows with. ``attrs`` has ``trace``, the sum of eigenvalues, ``explained_share`` of it,
        ``negative_eigenvalues``, ``least_eigenvalue`` and ``converged``.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``; ``DataError`` for similarities that are no numbers, or out of range.

    Notes
    -----
    A sweep evaluates each pair of rows once, m^2 / 2 in all, and multiplies eight vectors with it; 10 to 20
    sweeps are usual. About 8 m (4 rank + 200) bytes of vectors are in memory, and rows (8 n bytes each) where
    they fit; else they are read block by block, some blocks for each time that all others pass. The matrix of
    up to 512 rows, or of few for so many components, is made dense. One process does it, with all its
    threads, to the same bytes for any threads and memory; where it was killed it goes on from the last sweep.

    A kernel that is not positive, such as "sigmoid", has negative eigenvalues: a warning says how many were
    seen. Components are those of the largest eigenvalues.

    References
    ----------
    Schoelkopf, Smola, Mueller, Nonlinear component analysis as a kernel eigenvalue problem, Neural
    Computation 10(5), 1998. Eigenpairs by block Lanczos, with random vectors that look for what it misses.
    """
    how = {"kernel": kernel, "gamma": gamma, "degree": degree, "coef0": coef0, "tol": tol}
    return run(KERNEL_PCA.task(opened(x, where), rank=rank, **how, passes=passes, seed=seed), where)
