"""Samples in the forms that estimators accept, and components in the form of rankfold's results."""

from __future__ import annotations

import math
import numbers
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn.utils import check_array
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import validate_data

import rankfold
from rankfold.methods.parts.outputs import write_outputs
from rankfold.pipeline.formats import are_paths
from rankfold.pipeline.storage.result import write_group
from rankfold.pipeline.storage.temporary import TemporaryFolder

TOL = 1e-8
"""Relative tolerance of singular values where an estimator has ``tol=0``, which means as exact as possible,
and the solver reads the matrix in passes.
"""

LANCZOS_TOL = 1e-22
"""Relative tolerance of singular values where an estimator has ``tol=0`` and the solver is ``lanczos``.

Errors of values are squares of those of vectors, which should be exact.
"""

SMALL_SIZE = 2**24
"""Largest number of elements of a matrix, including zeros, that is copied in float64 without being asked
to."""

ROUNDING_IS_LEFT = (
    "the largest estimated error of a singular value.*(rounding errors of|holds no smaller values)"
)
"""Pattern of the beginning of warnings about errors due to rounding, which more passes would not reduce."""

MOST_PASSES = 20
"""Largest number of passes of methods that stop on a tolerance, unless the caller sets them."""


def is_large(x: object) -> bool:
    """True if samples are read some rows at a time: a path, paths of files in a list, or a lazy array."""
    if isinstance(x, str | os.PathLike) or are_paths(x):
        return True
    return type(x).__module__.partition(".")[0] in ("zarr", "dask", "xarray", "rankfold")


def tolerance(tol: float, solver: str) -> float:
    """Tolerance of singular values for an estimator's ``tol``, where 0 means as exact as possible."""
    return tol or (LANCZOS_TOL if solver == "lanczos" else TOL)


@contextmanager
def ignore_rounding_warnings(tol: float) -> Iterator[None]:
    """Silence warnings about errors due to rounding alone in the block, if an estimator's ``tol`` is 0."""
    with warnings.catch_warnings():
        if not tol:
            warnings.filterwarnings("ignore", ROUNDING_IS_LEFT, rankfold.RankfoldWarning)
        yield


MORE_PASSES = "allow more with passes="
"""Advice in warnings of methods whose argument ``passes`` limits how often the matrix is read."""


def words_of_components(passes: str | None) -> dict[str, str]:
    """Replacements that turn advice of ``rankfold.pca`` into parameters of estimators, for ``in_own_words``.

    ``passes`` is the name of the estimator's parameter that limits the reads; None if it has none.
    """
    more = {"passes=": f"{passes}="} if passes else {f"{MORE_PASSES}, or ": "", f"{MORE_PASSES}, ": ""}
    return {
        **more,
        "solver='gram' or tsqr": "svd_solver='covariance_eigh' or 'full'",
        "solver='tsqr'": "svd_solver='full'",
        "solver='krylov'": "svd_solver='randomized'",
        "rank=": "n_components=",
        "say precision='float64'": "give samples in float64",
    }


@contextmanager
def in_own_words(words: Mapping[str, str]) -> Iterator[None]:
    """Within the block, change the text of rankfold's warnings: each key of ``words`` to its value.

    So they name parameters of an estimator in place of arguments of a function.
    """
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", rankfold.RankfoldWarning)
        yield
    for each in said:
        message: Warning | str = each.message
        if issubclass(each.category, rankfold.RankfoldWarning):
            message = str(each.message)
            for argument, parameter in words.items():
                message = message.replace(argument, parameter)
        warnings.warn_explicit(message, each.category, each.filename, each.lineno, source=each.source)


def whitened(estimator: Any, scores: Any, samples: int) -> Any:
    """Scores (m, k) divided by the standard deviations of an estimator's fit, for values of any magnitude.

    ``samples`` is the number of samples of the fit. Deviations that are 0 within rounding of the largest are
    not used as divisors; scikit-learn compares them with 1. Where variances leave the range of their type,
    deviations are computed from singular values.
    """
    deviations = np.sqrt(estimator.explained_variance_)
    kind = np.finfo(deviations.dtype)
    eps, least = kind.eps, np.sqrt(kind.tiny) / kind.eps
    if len(deviations) and not least < deviations.max() < np.inf:
        deviations = estimator.singular_values_ / np.sqrt(max(samples - 1, 1))
    largest = deviations.max(initial=0.0)
    return scores / np.maximum(deviations, eps * min(largest, 1.0) if largest > 0 else eps)


def coordinates(estimator: Any, X: Any, samples: int, x_is_centered: bool) -> Any:
    """Scores (m, k) of samples X (m, n) in memory, whitened if the estimator whitens.

    ``samples`` is the number of samples that the estimator was fitted to.
    """
    scores = X @ estimator.components_.T
    if not x_is_centered:
        scores -= estimator.mean_.reshape(1, -1) @ estimator.components_.T
    return whitened(estimator, scores, samples) if estimator.whiten else scores


def arpack_solver(x: Any, rank: int, memory: str | int | None) -> str:
    """Solver of ``rankfold.pca`` for "arpack": ``lanczos`` or ``krylov``.

    It is ``lanczos`` for a matrix ``x`` in memory that is small, or for which ``rankfold.pca`` with this
    ``rank`` would choose it, as it does for sparse matrices. With a given ``memory`` it is always
    ``krylov``, whose passes may fit where ``lanczos`` would not.
    """
    sparse = scipy.sparse.issparse(x)
    if memory is not None or not (sparse or isinstance(x, np.ndarray)):
        return "krylov"
    if math.prod(x.shape) <= SMALL_SIZE:
        return "lanczos"
    unasked = rankfold.plan("pca", x, rank=rank).method if sparse else "krylov"
    return unasked if unasked == "lanczos" else "krylov"


def weights_of(sample_weight: Any, x: Any) -> npt.NDArray[np.float64]:
    """Weights (m,) of the rows of ``x`` (m, n), from an array or a number; raises if they are invalid."""
    if isinstance(sample_weight, numbers.Number):
        weights = np.full(x.shape[0], float(sample_weight))  # type: ignore[arg-type]
    else:
        weights = np.asarray(check_array(sample_weight, ensure_2d=False, dtype=np.float64), np.float64)
    if weights.shape != (x.shape[0],):
        raise ValueError(f"sample_weight.shape == {weights.shape}, expected {(x.shape[0],)}!")
    if (weights < 0).any():
        raise ValueError(f"sample_weight must not be negative, and there is {weights.min():g}")
    if not weights.any():
        raise ValueError("sample_weight must not be zero for all samples")
    return weights


def weighted(x: Any, weights: npt.NDArray[np.float64], *, center: bool = True) -> Any:
    """The matrix with rows scaled by the roots of their weights, less their weighted mean if ``center``."""
    return rankfold.open(x, prepare=[{"sample_weight": {"values": weights, "center": center}}])


def require_plain_output(estimator: Any) -> None:
    """Raise if ``set_output`` asks for a data frame, which may exceed memory for samples on disk."""
    container = _get_output_config("transform", estimator)["dense"]
    if container != "default":
        raise ValueError(
            f"set_output(transform={container!r}) is for samples in memory: what is made of a matrix on disk "
            "is an array"
        )


def forget_names(estimator: Any, features: int) -> None:
    """Set ``n_features_in_`` of an estimator, and remove the names of features of an earlier fit."""
    estimator.n_features_in_ = features
    vars(estimator).pop("feature_names_in_", None)


def store_factors(estimator: Any) -> rankfold.Result:
    """Components of a fitted nonnegative factorization as a result of ``nmf`` in a temporary store."""
    folder = TemporaryFolder()
    path, h = folder.path / "result.zarr", estimator.components_
    write_outputs(path, {"H": h})
    request = {
        "kind": "nmf",
        "rank": len(h),
        "loss": "frobenius",
        "alpha_w": estimator.alpha_W,
        "l1_ratio": estimator.l1_ratio,
        "constraint_w": "nonnegative",
    }
    write_facts(path, request, "minibatch", h.shape, product_norm=1.0)
    return rankfold.Result(path, temporary=folder)


def store_components(estimator: Any, samples: int) -> rankfold.Result:
    """Components of a fitted estimator as a result of ``pca`` in a temporary store.

    ``samples`` is the number of samples that the estimator was fitted to.
    """
    folder = TemporaryFolder()
    path, rank = folder.path / "result.zarr", len(estimator.components_)
    values = np.asarray(estimator.singular_values_, np.float64)
    if estimator.whiten:  # from variances, whose divisor differs if samples have weights
        values = np.sqrt(np.asarray(estimator.explained_variance_, np.float64) * max(samples - 1, 1))
    small = {"components": estimator.components_, "singular_values": values, "mean": estimator.mean_}
    write_outputs(path, small)
    request = {"kind": "pca", "rank": rank, "center": True, "scale": False, "whiten": estimator.whiten}
    write_facts(path, request, "update", (samples, estimator.n_features_in_))
    return rankfold.Result(path, temporary=folder)


def write_facts(
    path: Path,
    request: dict[str, Any],
    method: str,
    shape: Sequence[int],
    *,
    dtype: str = "float64",
    **more: object,
) -> None:
    """Write the metadata that makes the folder ``path`` a result of ``request``, computed by ``method``.

    ``shape`` and ``dtype`` are those of the samples, ``more`` further attributes of the result.
    """
    samples = {"name": "samples", "shape": [int(n) for n in shape], "dtype": dtype, "fingerprint": ""}
    facts = {"kind": request["kind"], "method": method, "request": request, "input": samples, "passes": 0}
    write_group(path, {**facts, **more})


def samples_of(estimator: Any, X: Any, least: int, *, bits: bool) -> Any:
    """Check samples and return them as an array, CSR matrix or ``Source``; those on disk are opened.

    There must be at least ``least`` samples. With ``bits`` any type is accepted, as for packed bits.
    """
    if is_large(X):
        X = rankfold.open(X)
        forget_names(estimator, X.shape[1])
    else:
        X = validate_data(estimator, X, accept_sparse="csr", dtype=None if bits else "numeric")
    if X.shape[0] < least:
        name = type(estimator).__name__
        raise ValueError(f"{name} takes {least} samples or more, not n_samples={X.shape[0]}")
    return X
