"""Functions of a result: transform or add samples, check it against its matrix, reconstruct the matrix."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankfold.api.method_function import method_function, run_method
from rankfold.methods.model.arguments import CHECK, RECONSTRUCT, TRANSFORM, UPDATE
from rankfold.methods.model.model import require_apart
from rankfold.methods.model.transform import embedding_of
from rankfold.methods.registry import Method
from rankfold.pipeline.errors import ArgumentError
from rankfold.pipeline.storage.result import Result

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from rankfold.pipeline.chunks.lazy_array import LazyArray

    Matrix = npt.NDArray[np.generic] | LazyArray


@method_function(TRANSFORM)
def transform(result: Result | str | Path, x: object, **arguments: Any) -> Result:
    """Coordinates of new samples in the components of a result, or in an embedding, in one pass over them.

    Parameters
    ----------
    result : Result or path
        Of ``svd``, ``pca`` or ``nmf``, which need no rows, of ``kernel_pca`` or ``nystroem``; or an embedding
        of ``umap``, ``tsne``, ``isomap``, ``spectral`` or ``diffusion_map``.
    x : path, array or Source
        Samples in rows, with the columns that were fitted. Anything ``svd`` takes. For an embedding: the
        result of ``knn`` of new rows among those that were embedded, ``knn(x, k=15, queries=new)`` or
        ``knn(new, k=15, index=...)``, by the same metric, or its path; for a layout k is one more than it
        has, as in umap-learn.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``scores`` of a pca, centered, scaled and whitened as its own; ``U = x V / s`` of an svd; ``W`` of an
        nmf, exact least squares over rows that are nonnegative, or satisfy the constraint of the fit (by
        block principal pivoting), penalized as in the fit. The share of the samples that the components leave
        out, as a norm, is ``attrs["relative_error"]``. ``scores`` of a kernel_pca and ``features`` of a
        nystroem, likewise. For a layout of umap ``embedding`` (m, d) float32: a row moves for a third of the
        epochs at a quarter of the rate, while those of the layout are fixed. It depends on the row alone, not
        on the others; one at a distance of 0 from a row of the layout has its position. For a tsne likewise,
        after 250 steps down the row's own divergence. For an isomap ``embedding``, by the shortest paths over
        the neighbors of each sample, with ``residual_variance`` and ``standard_error`` in ``attrs``. For
        ``spectral`` and ``diffusion_map`` ``embedding``, the weighted mean over neighbors, divided by the
        eigenvalue of the walk, with its relative ``standard_error``.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``.

    Notes
    -----
    One pass of ``2 m n k`` flops over (m, n) samples; rows of the coordinates are written as they are read.

    References
    ----------
    Kim, Park, SIAM J. Sci. Comput. 33(6), 2011, algorithm 2, for the rows of an nmf. ``transform`` of
    umap-learn for weights and epochs; unlike there no weight is taken relative to others of a batch.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> x = np.random.default_rng(0).normal(size=(60, 8))
    >>> result = rf.pca(x[:50], 2)
    >>> rf.transform(result, x[50:]).scores.shape
    (10, 2)
    """
    if embedding_of(result) is None:
        _require_order("transform", result, x)
    return _run_apart(TRANSFORM, (result, x), arguments)


@method_function(UPDATE)
def update(result: Result | str | Path, x: object, **arguments: Any) -> Result:
    """Update components, or singular triplets, of a result with new samples, in one pass over these.

    Parameters
    ----------
    result : Result or path
        Of ``pca`` or ``svd``, or of an earlier update; it needs no rows. It is left as it is.
    x : path, array or Source
        New samples in rows, with the columns that were fitted. Anything ``svd`` takes.
    rank : int, default that of the result
        Number of components to keep.
    others
        As for ``svd``.

    Returns
    -------
    Result
        As for ``pca`` or ``svd`` with all rows, without scores or U: centered, scaled and whitened as the
        result is. To rounding the same, if the result has all components (``rank=min(m, n)``); else
        ``error_estimates`` bound what may be missing.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``.

    Notes
    -----
    Fewer new rows than columns are held in memory. For more, a matrix (n, n) is held instead,
    after a pass of ``3 m n^2`` flops over the m new rows.

    References
    ----------
    Chan, Golub, LeVeque, The American Statistician 37(3), 1983, for the mean's part in the scatter of two
    groups: it enters as one more row of the stacked factors.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> x = np.random.default_rng(0).normal(size=(60, 8))
    >>> result = rf.update(rf.pca(x[:50]), x[50:])
    >>> np.allclose(result.mean, x.mean(axis=0))
    True
    """
    _require_order("update", result, x)
    return _run_apart(UPDATE, (result, x), arguments)


@method_function(CHECK)
def check(result: Result | str | Path, x: object, **arguments: Any) -> Result:
    """Residuals and orthogonality of the factors of a result, by one more pass over its matrix.

    Parameters
    ----------
    result : Result or path
        Of ``svd`` or ``pca``, with its rows.
    x : path, array or Source
        The matrix that it was made from.
    others
        As for ``svd``.

    Returns
    -------
    Result
        Per component ``left_residuals``, ``|A v - s u| / s1``, and ``right_residuals``, ``|A'u - s v| / s1``,
        with A centered and scaled as in the result, all in float64. ``attrs`` has the ``largest_residual``,
        and the deviation of both stored factors from orthonormality, ``left_orthogonality`` and
        ``right_orthogonality``.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``.

    Notes
    -----
    A residual r says that the matrix has a singular value within r s1 of s. One pass of ``4 m n k`` flops.

    References
    ----------
    Golub, Van Loan, Matrix Computations, fourth edition, 2013, section 8.1, for the bound, by way of the
    symmetric matrix of A and A'.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> x = np.random.default_rng(0).normal(size=(60, 8))
    >>> rf.check(rf.svd(x, 2), x).attrs["left_orthogonality"] < 1e-12
    True
    """
    _require_order("check", result, x)
    return _run_apart(CHECK, (result, x), arguments)


@method_function(RECONSTRUCT)
def reconstruct(result: Result | str | Path, **arguments: Any) -> Matrix:
    """Reconstruct a matrix from its leading components, after the steps of ``prepare`` or before them.

    Parameters
    ----------
    result : Result or path
        Of ``svd``, ``pca`` or ``nmf``, with its rows.
    rank : int, default all
        Number of leading components to use.
    row_range : slice, default all
        Consecutive rows to write.
    physical : bool
        Undo the steps of ``prepare`` on columns, such as ``coslat``, ``weights`` and ``scale``: the numbers
        are then in units of the data, NaN where a weight is 0. By default they are those of the matrix after
        these steps, as it was fitted.
    others
        As for ``svd``.

    Returns
    -------
    NumPy array, or Zarr array if it lies in ``out`` or exceeds 64 MiB
        ``U s Vt``, ``W H``, or ``scores components``, with whitening, scale and mean undone; of the type of
        the fit. It has the columns of the fit: those that were left out, such as land, are not in it.
        With ``physical``, ``open_result(out).to_xarray()`` puts it on the axes of the data, NaN there.
        ``out`` is a plain Zarr array, which ``rf.open`` and every other reader of Zarr takes.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``.

    Notes
    -----
    Work ``2 m n rank`` flops; the result is read once, and the matrix written once, by whole chunks.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> x = np.random.default_rng(0).normal(size=(60, 8))
    >>> np.allclose(rf.reconstruct(rf.svd(x), row_range=slice(0, 5)), x[:5])
    True
    """
    return _run_apart(RECONSTRUCT, (result,), arguments).X


def _require_order(name: str, result: object, x: object) -> None:
    """Raise if a result and a matrix are given in the wrong order."""
    if isinstance(x, Result) or not isinstance(result, Result | str | os.PathLike):
        raise ArgumentError(f"{name} takes a result first, then the matrix: rankfold.{name}(result, x)")


def _run_apart(method: Method, inputs: tuple[object, ...], arguments: Mapping[str, Any]) -> Result:
    """Run a method whose first input is a result, which its output must not overlap."""
    result = inputs[0]
    if isinstance(result, Result | str | os.PathLike):
        require_apart(arguments.get("out"), result if isinstance(result, Result) else os.fspath(result))
    return run_method(method, inputs, arguments)
