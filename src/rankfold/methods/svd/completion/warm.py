"""Compiled loops that complete rows, each run once on a few numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rankfold.kernels.linear.complete_rows import COUNT_BINS, TOTALS, RowSums, fit_rows
from rankfold.methods.parts.panels import numbers
from rankfold.methods.svd.completion.low_rank_model import row_model
from rankfold.pipeline.data.view import working_dtype
from rankfold.pipeline.prepare.gaps import warm_filling


@functools.cache
def warm_completion(dtype: np.dtype[Any], working: np.dtype[Any] | None) -> None:
    """Compile the loops of completion by running each once: on a matrix's types, on float64, and the filling.

    ``dtype`` is the type of the matrix, ``working`` that of products with it, None for the default.
    """
    warm_filling()
    model = row_model(np.zeros(4), np.ones((4, 1)), np.eye(1), 1.0)
    double = np.dtype(np.float64)
    for raw, out in ((dtype, working or working_dtype(dtype)), (double, double)):
        x = numbers(np.ones((2, 4), raw))
        sums = RowSums(
            *(np.zeros(shape) for shape in ((4, 3), (3,), (3,), (4, 2), (3, 4), (TOTALS,), (4, COUNT_BINS)))
        )
        fit_rows(x, 0, 1, 20, model, model, d=np.empty((2, 4), out), z=np.empty((2, 2), out), sums=sums)
