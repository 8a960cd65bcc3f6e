"""The kernel function of an estimator: one of rankfold's, or any of scikit-learn's for all pairs in memory.

Kernels by name that rankfold has, and functions that numba compiles, run in tiles, also on disk.
"precomputed", other names, and functions with keywords or that only Python can call are left to
scikit-learn's ``pairwise_kernels``, whose matrix is held as a whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn.metrics.pairwise import pairwise_kernels

from rankfold.api.execute import run
from rankfold.kernels.similarity.functions import Rows, rows_of
from rankfold.kernels.similarity.tiles import evaluate
from rankfold.methods.registry import METHODS
from rankfold.methods.similarity.arguments import ALIASES, KERNELS
from rankfold.methods.similarity.request import KernelChoice
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.storage.result import Result

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


def choice_of(kernel: Any, params: dict[str, Any], columns: int) -> KernelChoice | None:
    """The kernel of an estimator in rankfold's form; None if it is left to scikit-learn.

    ``params`` may have gamma, degree and coef0, or the arguments of a function besides the two samples.
    ``columns`` is the number of columns of the samples.
    """
    if callable(kernel):
        if params:
            return None
        try:
            return KernelChoice.of(columns, kernel, None, 3, 1)
        except InputError:
            return None
    if kernel not in (*KERNELS, *ALIASES):
        return None
    numbers = (params.get(name, default) for name, default in (("gamma", None), ("degree", 3), ("coef0", 1)))
    return KernelChoice.of(columns, kernel, *numbers)


def in_rows(x: Any, choice: KernelChoice, shift: Float64) -> Rows:
    """Convert samples in memory (m, n) to the rows that kernels take.

    ``shift`` (n,) is subtracted from each if the kernel function depends on differences of samples alone.
    """
    return rows_of(x.toarray() if scipy.sparse.issparse(x) else np.asarray(x), choice.similarity, shift)


def transformed(result: Result, x: object, kernel: Any, memory: str | int | None) -> Result:
    """Result of transforming samples ``x`` by a result on disk, in working memory ``memory``.

    If ``kernel`` is a user's function, it is used, since the result does not hold it.
    """
    way = METHODS[result.attrs["kind"]].transformation
    assert way is not None  # noqa: S101  estimators fit only methods that have one
    task = way.task(result, x, kernel if callable(kernel) else None)
    return run(task, {"memory": memory})


def all_pairs(x: Any, y: Any, kernel: Any, params: dict[str, Any], jobs: int | None = None) -> Float64:
    """Kernel matrix (m, p) of samples in memory, ``x`` (m, n) and ``y`` (p, n), or ``x`` twice without ``y``.

    ``params`` are as for ``choice_of``; ``jobs`` is scikit-learn's ``n_jobs``, if it compares the samples.
    """
    choice = None if kernel == "precomputed" else choice_of(kernel, params, x.shape[1])
    if choice is None:
        filtered = {} if callable(kernel) else {"filter_params": True}
        return np.asarray(pairwise_kernels(x, y, metric=kernel, n_jobs=jobs, **filtered, **params))
    shift = np.zeros(x.shape[1])
    if choice.similarity.is_of_differences:
        shift = np.asarray((x if y is None else y).mean(axis=0), np.float64).ravel()
    rows = in_rows(x, choice, shift)
    others = rows if y is None else in_rows(y, choice, shift)
    out = np.empty((len(rows.squares), len(others.squares)))
    evaluate(rows, others, similarity=choice.similarity, out=out)
    return out
