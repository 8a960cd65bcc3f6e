"""Reductions by kernel functions of pairs of rows."""

from __future__ import annotations

from typing import Any

from rankfold.api.method_function import method_function, run_method
from rankfold.methods.kernel_pca.arguments import KERNEL_PCA
from rankfold.methods.nystroem.arguments import NYSTROEM
from rankfold.pipeline.storage.result import Result


@method_function(KERNEL_PCA)
def kernel_pca(x: object, **arguments: Any) -> Result:
    """Principal components of rows in the space of a kernel function, without the matrix of all pairs.

    Parameters
    ----------
    x : path, array or Source, (m, n)
        Anything ``svd`` takes.
    rank : int, at most m
        Number of components.
    kernel : str or callable
        Kernel of rows x and y: "rbf", ``exp(-gamma |x - y|^2)``; "laplacian", ``exp(-gamma sum |x - y|)``;
        "polynomial", ``(gamma x'y + coef0)^degree``; "sigmoid", ``tanh(gamma x'y + coef0)``; "cosine";
        "linear"; or a function of two float64 rows that numba compiles, which must be symmetric.
    gamma : float, optional
        1 / n by default. 0 makes all rows alike: all components are 0.
    degree, coef0 : float
    tol : float
        Estimated relative error of an eigenvalue at which it counts as converged. Errors of scores are then
        about the square root of it, depending on the gaps between eigenvalues.
    passes : int
        Most sweeps over all pairs.
    seed : int
        Key of the random starting vectors.
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
        As for ``svd``; ``DataError`` for similarities that are not numbers, or out of range.

    Notes
    -----
    A sweep evaluates each pair of rows once, m^2 / 2 in all, and multiplies eight vectors with
    it; 10 to 20 sweeps are usual. About 8 m (4 rank + 200) bytes of vectors are in memory, and rows (8 n
    bytes each) where they fit; else they are read block by block, some blocks for each time that all others
    pass. For up to 512 rows, or few rows for the number of components, the matrix of all pairs is held in
    memory. One process computes with all its threads; the result has the same bytes for any number of threads
    and any memory. A killed run continues after its last sweep.

    A kernel that is not positive, such as "sigmoid", has negative eigenvalues: a warning says how many were
    seen. Components are those of the largest eigenvalues.

    References
    ----------
    Schoelkopf, Smola, Mueller, Nonlinear component analysis as a kernel eigenvalue problem, Neural
    Computation 10(5), 1998. Eigenpairs by block Lanczos, with random vectors that look for what it misses.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> result = rf.kernel_pca(np.random.default_rng(0).normal(size=(60, 3)), 2, kernel="rbf")
    >>> result.scores.shape
    (60, 2)
    """
    return run_method(KERNEL_PCA, (x,), arguments)


@method_function(NYSTROEM)
def nystroem(x: object, **arguments: Any) -> Result:
    """Features of rows whose products approximate a kernel function, by similarities to landmarks.

    Parameters
    ----------
    x : path, array or Source, (m, n)
        Anything ``svd`` takes.
    rank : int, at most m
        Number p of landmarks, and of features of each row.
    kernel, gamma, degree, coef0
        As for ``kernel_pca``.
    landmarks : {"kmeans", "rpcholesky", "uniform"}
        "kmeans": means of as many clusters, by ten passes of ``kmeans`` at most. "rpcholesky": rows, each
        drawn with a probability that grows with its residual, usually in 2 to 12 passes, at most 30; kernels
        that are not positive are refused. "uniform": random rows, in one pass.
    seed : int
        Key of the random numbers.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``features`` (m, p) ``k(x, L) W^-1/2`` with landmarks L and their similarities W, where directions
        below 1e-12 of the largest are left out; ``points`` (p, n), the landmarks, and ``landmarks``
        (p,), the indices of these rows, -1 for means; ``normalization`` (p, p) and ``shift`` (n,), by which
        ``transform`` makes features of new rows. ``attrs`` has
        ``trace_error``, the share of the trace of all similarities that features leave out, over all rows,
        which may be negative for kernels that are not positive;
        ``trace_error_interval``, due to rounding; ``pair_error``, the error of similarities of pairs as a
        norm, relative to that of the similarities, from 256 sampled rows, and the 95 %
        ``pair_error_interval``.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``.

    Notes
    -----
    One pass writes the features, with ``2 m p (n + p)`` flops and m p evaluations of the kernel.
    Memory: 8 p (n + p) bytes, in addition to the rows that are read at a time.

    References
    ----------
    Williams, Seeger, Using the Nystroem method to speed up kernel machines, NIPS 2000; Zhang, Tsang, Kwok,
    ICML 2008, for means of clusters; Chen, Epperly, Tropp, Webber, arXiv:2207.06503, and Epperly, Tropp,
    Webber, arXiv:2410.03969, for randomly pivoted Cholesky, ours as design note 34 says.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> result = rf.nystroem(np.random.default_rng(0).normal(size=(60, 3)), 10, kernel="rbf")
    >>> result.features.shape
    (60, 10)
    """
    return run_method(NYSTROEM, (x,), arguments)
