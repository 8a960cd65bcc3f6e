"""Public functions of reductions: svd, pca, qr, nmf. They check arguments and run a task of
``rankfold.methods``.
"""

from __future__ import annotations

from typing import Any

from rankfold.api.method_function import method_function, run_method
from rankfold.methods.nmf.arguments import NMF
from rankfold.methods.svd.arguments import PCA, QR, SVD
from rankfold.pipeline.storage.result import Result


@method_function(SVD)
def svd(x: object, **arguments: Any) -> Result:
    """Leading singular triplets of a matrix that may be larger than memory.

    Parameters
    ----------
    x : path, array or Source, (m, n)
        ``"STORE.zarr::array"``, a ``.npy`` file, a NumPy, Zarr or Dask array, or what ``rf.open`` gave.
    others
        Declared in ``rankfold.methods.svd.arguments`` and ``rankfold.api.where``.

    Returns
    -------
    Result
        ``U`` (m, k), ``s`` (k,), ``Vt`` (k, n), and per component ``residuals``, ``error_estimates``.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        What cannot be asked; what cannot be written; what does not fit in ``memory`` or on the disk, before
        anything is read; NaN and Inf, with their place. Each message says what to change.

    Notes
    -----
    Passes over the matrix, and flops of each: Gram 1, and 1 for ``U``, of ``m n min(m, n)``;
    Krylov 2 to 5 of ``4 m n b`` with blocks of b columns, a quarter more than ``rank``; subspace some more of
    these; TSQR 1, and 1 for ``U``, of ``3 m n min(m, n)``; sketch 1 of about ``32 m n rank``. Memory of a
    tall matrix does not depend on its rows. "auto" chooses Gram or Krylov, whichever a nominal core would
    finish first; for sparse matrices that take up to 512 MiB, with working memory, it chooses Lanczos: 1
    pass, then products with the stored values, in memory.

    ``grows="rows"`` updates an earlier result, which has no ``U``: to rounding the same as a fit to all rows
    if it has all triplets, else within ``error_estimates``. A store that has no new rows is not read. Rows
    that have changed since are noticed by sizes and times of chunks, and by the numbers in the last one, and
    refused; with ``overwrite=True`` the result is made anew. ``attrs["rows"]`` says which rows it was
    computed from.

    ``missing="em"`` makes 2 to 9 passes, of matrices with many components near the noise some more, at most
    ``passes`` or 30, of about ``6 m n k`` flops and ``6 k^2`` for each missing value. One of 100 values is
    held out of the model, and ``attrs["completion"]`` has the error of these and what each pass changed. The
    result keeps the model, which completes new rows in ``transform``, ``check`` and ``update``.

    References
    ----------
    Musco, Musco, Randomized block Krylov methods for stronger and faster approximate singular value
    decomposition, NeurIPS 2015, algorithm 2: both products come from one read here, and passes end on an
    estimate of the error. Halko, Martinsson, Tropp, SIAM Review 53(2), 2011, algorithm 4.4 (subspace). Tropp,
    Yurtsever, Udell, Cevher, SIAM J. Sci. Comput. 41(4), 2019 (sketch). Demmel, Grigori, Hoemmen, Langou,
    SIAM J. Sci. Comput. 34(1), 2012, and Fukaya, Kannan, Nakatsukasa, Yamamoto, Yanagisawa, SIAM J. Sci.
    Comput. 42(1), 2020 (TSQR). Ilin, Raiko, JMLR 11, 2010, and Luttinen, Ilin, Neurocomputing 73, 2010
    (missing="em"). Where solvers deviate is said in ``rankfold.methods.svd.solvers``.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> x = np.outer(np.arange(60.0), np.arange(8.0))  # a matrix of rank 1; or the path of one
    >>> result = rf.svd(x, 1)
    >>> result.U.shape, result.s.shape, result.Vt.shape
    ((60, 1), (1,), (1, 8))
    >>> np.allclose(result.U * result.s @ result.Vt, x)
    True
    """
    return run_method(SVD, (x,), arguments)


@method_function(PCA)
def pca(x: object, **arguments: Any) -> Result:
    """Principal components of samples in rows, centered without an additional pass.

    Parameters
    ----------
    x : path, array or Source, (m, n)
        Samples in rows: ``"STORE.zarr::array"``, a ``.npy`` file, a NumPy, Zarr or Dask array, or what
        ``rf.open`` gave.
    center : bool
        Subtract the mean of each column.
    scale : bool
        Divide each column by its standard deviation (its root mean square if not centered), of m - 1, that
        is ``ddof=1`` as R and pandas have it; ``StandardScaler`` of scikit-learn has ``ddof=0``.
        Takes one more pass for a tall matrix, unless under ``solver="gram"``.
    whiten : bool
        Scores of unit variance.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``scores`` (m, k), ``components`` (k, n), ``mean`` and ``scale`` (n,), and per component
        ``singular_values``, ``explained_variance`` (over m - 1), ``explained_variance_ratio``, ``residuals``
        and ``error_estimates``. Signs make the
        leading entry of each vector of the shorter side positive.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``.

    Notes
    -----
    Passes and flops are those of ``svd``: means are taken during the first pass, about a provisional shift
    from a sample, and the difference is corrected exactly.

    References
    ----------
    Chan, Golub, LeVeque, Algorithms for computing the sample variance, The American Statistician 37(3), 1983,
    for means and scatter in pieces; solvers as for ``svd``.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> x = np.random.default_rng(0).normal(size=(60, 8))  # or the path of a matrix
    >>> result = rf.pca(x, 2, scale=True)
    >>> result.scores.shape, result.components.shape
    ((60, 2), (2, 8))
    >>> share = result.explained_variance_ratio.sum()
    """
    return run_method(PCA, (x,), arguments)


@method_function(QR)
def qr(x: object, **arguments: Any) -> Result:
    """QR factorization of a matrix that may be larger than memory.

    Parameters
    ----------
    x : path, array or Source, (m, n)
        Anything ``svd`` takes.
    with_rows : bool
        Form and write ``Q``; without it a tall matrix is read once.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``Q`` (m, k), k = min(m, n), orthonormal columns, and ``R`` (k, n), upper triangular, its diagonal
        not negative. The deviation of ``Q`` from orthogonality is ``attrs["orthogonality"]``.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``.

    Notes
    -----
    Reads the matrix once, or twice with ``Q``; once more where rows are so unlike those of a sample, and with
    ``Q`` once more where columns are nearly dependent. A wide matrix is read once, and so is its leading
    square: ``R`` is as large as the matrix. Flops ``3 m n^2`` for ``R`` of a tall matrix, and ``4 m n^2`` for
    ``Q``.

    References
    ----------
    Demmel, Grigori, Hoemmen, Langou, Communication-optimal parallel and sequential QR and LU factorizations,
    SIAM J. Sci. Comput. 34(1), 2012, where a sample misleads; else Cholesky QR of columns that a sample makes
    nearly orthonormal: Fukaya, Kannan, Nakatsukasa, Yamamoto, Yanagisawa, Shifted Cholesky QR, SIAM J. Sci.
    Comput. 42(1), 2020, with a preconditioner from sampled rows instead of a shift.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> result = rf.qr(np.random.default_rng(0).normal(size=(60, 8)))
    >>> result.Q.shape, result.R.shape
    ((60, 8), (8, 8))
    """
    return run_method(QR, (x,), arguments)


@method_function(NMF)
def nmf(x: object, **arguments: Any) -> Result:
    """Nonnegative factors of a nonnegative matrix that may be larger than memory.

    Parameters
    ----------
    x : path, array or Source, (m, n)
        Anything ``svd`` takes, without negative values.
    rank : int
        Number of components; it may exceed the number of rows or columns.
    weights : anything ``svd`` takes, (m, n), optional
        Weight of each entry, at least 0: ``sum(weights * (x - W @ H)**2)`` is minimized, or the divergence
        whose terms are weighted so. The value of an entry of weight 0 is ignored, be it NaN or negative.
    missing : {"raise", "ignore"}
        Treatment of NaN: as errors, or as entries that do not count.
    row_weights : (m,) numbers, or anything ``svd`` takes, (m, 1), optional
        Weight of each row, at least 0, at no additional cost; for sparse matrices too.
    loss : {"frobenius", "kullback-leibler"}
    solver : {"auto", "hals", "bpp", "mu", "admm"}
        Solver of rows, given the other factor: coordinate descent, exact pivoting, multiplicative updates,
        ADMM. "auto" is "hals"; "mu" for Kullback-Leibler, "admm" with constraints.
    init : {"auto", "compressed", "nndsvd", "rows", "random"}, or (W, H), or a result of nmf
        Start of the factor of the shorter side, from which the other factor follows. "auto" is "compressed":
        a factorization of a projection of the matrix, which one read makes.
    alpha_W, alpha_H, l1_ratio : float
        Penalties, weighed as scikit-learn weighs them; ``alpha_H="same"`` is ``alpha_W``. A penalty on one
        factor alone is taken where components of the other have unit norm.
    constraint_W, constraint_H : {"nonnegative", "simplex"} or float
        "simplex": rows of W, or columns of H, sum to one; a float: no entry is larger than it.
    tol, grad_tol : float
        Relative decrease of the error in a pass, and norm of the projected gradient over that of the matrix,
        below which passes end.
    time_limit, passes, seed : float, int, int
        Seconds after which no pass begins; most reads of the matrix, default 8, 50 for "mu", or 25 with
        weights or gaps; key of random starts.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``W`` (m, k) and ``H`` (k, n), not negative, whose product is near the matrix. ``attrs`` has the
        ``relative_error`` that is left (of the divergence from independent rows and columns, under
        Kullback-Leibler), ``errors`` after each pass, ``stationarity``, and why passes ``stopped``.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``; a negative number is a ``DataError``, with its place.

    Notes
    -----
    Reads the matrix typically 3 or 4 times: see ``docs/choosing.md``. A pass takes ``4 m n k`` flops for its
    products, and as many sweeps of descent as hide behind these; with weights or gaps ``2 m n k^2``, and
    ``2 k^2`` numbers for each column in every thread, unless by "mu". The minimum is local: ``seed`` decides.

    References
    ----------
    Cichocki, Phan, Fast local algorithms for large scale nonnegative matrix and tensor factorizations, IEICE
    Trans. Fundamentals E92-A(3), 2009 ("hals"). Kim, Park, Fast nonnegative matrix factorization, SIAM J.
    Sci. Comput. 33(6), 2011, algorithm 2 ("bpp"). Lee, Seung, Algorithms for non-negative matrix
    factorization, NIPS 13, 2001 ("mu"). Huang, Sidiropoulos, Liavas, IEEE Trans. Signal Processing 64(19),
    2016 ("admm"). Kim, Choi, Weighted nonnegative matrix factorization, ICASSP 2009 (weights). All are
    arranged so that one read updates both factors.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> result = rf.nmf(np.random.default_rng(0).random((60, 8)), 3)
    >>> result.W.shape, result.H.shape
    ((60, 3), (3, 8))
    """
    return run_method(NMF, (x,), arguments)
