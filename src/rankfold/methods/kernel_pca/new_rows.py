"""Scores of new rows: their similarities to the rows of the fit, times scores of these over eigenvalues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rankfold.methods.similarity.features import Points
from rankfold.methods.similarity.request import KernelChoice
from rankfold.methods.similarity.transform import SimilarRows, imagined_points, similar_rows_task
from rankfold.pipeline.planning.shape_only import ImaginedResult
from rankfold.pipeline.storage.result import Result


def scores_task(result: Result, x: object, function: Callable[..., Any] | None = None) -> SimilarRows:
    """Make the task of the scores of new rows ``x`` in ``result``, which is one of kernel_pca.

    ``function`` is a kernel of the caller's own, which the result does not hold; None for one of ours.
    """
    return similar_rows_task(result, x, function, _points_of, dtype=np.dtype(np.float64))


def _points_of(result: Result, choice: KernelChoice) -> Points:
    """Points of ``result``: rows of the fit as points, and their scores as coefficients."""
    if isinstance(result, ImaginedResult):
        return imagined_points(choice, result.matrix("rows"), result.matrix("scores"))
    result.require_whole()
    shift, values = np.asarray(result["shift"][...]), np.asarray(result["eigenvalues"][...])
    weights = np.divide(1.0, values, out=np.zeros(len(values)), where=values > 0)
    offset = np.asarray(result["offset"][...])
    return Points(choice, result.matrix("rows"), result.matrix("scores"), weights, offset, shift)
