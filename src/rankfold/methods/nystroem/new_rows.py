"""Features of new rows: their similarities to the landmarks of the fit, times its normalization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rankfold.methods.similarity.features import Points, trace_error
from rankfold.methods.similarity.request import KernelChoice
from rankfold.methods.similarity.transform import SimilarRows, imagined_points, similar_rows_task
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.planning.shape_only import ImaginedResult
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.result import Result


def features_task(result: Result, x: object, function: Callable[..., Any] | None = None) -> SimilarRows:
    """Make the task of the features of new rows ``x`` in ``result``, which is one of nystroem.

    ``function`` is a kernel of the caller's own, which the result does not hold; None for one of ours.
    """
    return similar_rows_task(result, x, function, _points_of, measure=_error_of)


def _points_of(result: Result, choice: KernelChoice) -> Points:
    """Points of ``result``: landmarks of the fit as points, and its normalization as coefficients."""
    if isinstance(result, ImaginedResult):
        return imagined_points(choice, result.matrix("points"), result.matrix("normalization"))
    result.require_whole()
    shift, normalization = np.asarray(result["shift"][...]), result.matrix("normalization")
    ones = np.ones(normalization.shape[1])
    return Points(choice, result.matrix("points"), normalization, ones, 0 * ones, shift)


def _error_of(state: State, source: Source) -> dict[str, Any]:
    """Fact ``trace_error``, the share of the trace that features leave out, from the sums of a pass.

    Raises ``DataError`` if squares of features overflow.
    """
    error = trace_error(state)
    if not np.isfinite(error):
        raise DataError(
            f"squares of features of {source.name} leave the range of floating point: the "
            "result is damaged, or rows are far from those that it was made of"
        )
    return {"trace_error": error}
