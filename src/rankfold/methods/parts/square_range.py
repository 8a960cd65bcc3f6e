"""Numbers whose squares leave the range of float64: distinguished from equal rows, and refused.

Squares of numbers below ``FAINTEST`` leave the range of float64, so different rows seem to be equal. Only the
numbers themselves show whether they are, not a sum of squares near 0.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import Metric
from rankfold.methods.parts.sample import Sample
from rankfold.pipeline.data.source import Source, sparse_by_rows
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.errors import DataError, RankfoldError
from rankfold.pipeline.prepare.moments import FAINTEST

Float64 = npt.NDArray[np.float64]

POWERS = {Metric.EUCLIDEAN: 1, Metric.SQEUCLIDEAN: 2, Metric.INNER_PRODUCT: 2}
"""Power of a length in the distances of each metric that sums squares or products, by metric."""

FAINT_NUMBERS = 2.0**-420
"""Absolute value above which distinct numbers are farther apart than ``FAINTEST``, by their last digits."""


def refuse_faint_distances(distances: Path, metric: int, *matrices: Source) -> None:
    """Raise ``DataError`` where all distances are too small for their squares, and rows are not all equal.

    Parameters
    ----------
    distances : Path
        Array (rows, k) of a result. Read by chunks up to the first distance that is large enough, which is
        usually in the first chunk.
    metric : int
        Code of the metric; others than those of ``POWERS`` have no squares and are not checked.
    *matrices : Source
        Matrices that rows come from. A sample of each is read if all distances are small.
    """
    if metric in POWERS and _are_below(FAINTEST ** POWERS[Metric(metric)], distances):
        for matrix in matrices:
            refuse_faint(matrix)


def _are_below(least: float, distances: Path) -> bool:
    """True if all numbers of the array at ``distances`` are below ``least``; False if a chunk is damaged."""
    from rankfold.pipeline.chunks.regular_store import zarr_array

    with contextlib.suppress(RankfoldError, OSError, ValueError, RuntimeError):
        keys = zarr_array(distances)
        parts = (keys[start : start + keys.chunks[0]] for start in range(0, keys.shape[0], keys.chunks[0]))
        return all(np.abs(np.asarray(part)).max(initial=0.0) < least for part in parts)
    return False


def refuse_faint(matrix: Source) -> None:
    """Raise ``DataError`` if a sample of the rows has only numbers that are too small to be squared."""
    sample, stored = Sample.of(View(matrix, Orientation.ROWS), 0), sparse_by_rows(matrix)
    if stored is None:
        size = float(np.abs(sample.read()).max(initial=0))
    else:
        rows = matrix.shape[0]
        starts = [rows * i // sample.places for i in range(sample.places)]
        parts = (stored.read_sparse((start, start + sample.rows_per_place)) for start in starts)
        size = max(float(np.abs(part.data).max(initial=0)) for part in parts)
    if 0 < size < FAINT_NUMBERS:
        refuse_size(matrix, size)


def require_squares(box: Float64, metric: int, matrix: Source) -> None:
    """Raise ``DataError`` if squares of points in a box leave the range of float64, for metrics that square.

    ``box`` (2, d) are the least and the largest coordinates of the points, rows of ``matrix``.
    """
    size = float(np.abs(box).max(initial=0.0))
    with np.errstate(over="ignore"):
        largest = float(((box[1] - box[0]) ** 2).sum())
    if metric in POWERS and (0 < size < FAINTEST or not np.isfinite(largest)):
        refuse_size(matrix, size)


def refuse_size(
    matrix: Source, size: float, what: str = "their squares", dtype: npt.DTypeLike = np.float64
) -> NoReturn:
    """Raise ``DataError`` for numbers near ``size``: ``what``, such as squares, leave the range of a type."""
    wider = ", or as float64" if np.dtype(dtype).itemsize < 8 else ""
    raise DataError(
        f"numbers of {matrix.name} are near {size:.0e}: {what} leave the range of {np.dtype(dtype)}. Store "
        f"them in other units, {1 / size:.0e} times as large{wider}, and run again."
    )


FAINT_COLUMNS = 2.0**-525
"""Size of a column, relative to the largest column, below which squares of its numbers have no more than
seven digits, or are 0."""


def refuse_faint_columns(source: Source, mean: Float64, deviation: Float64) -> None:
    """Raise ``DataError`` if squares of a column leave the range of float64, and of the largest do not.

    ``mean`` and ``deviation`` are (n,), of each column, as found in one unit for all. A deviation of 0 may
    then be that of a column that varies.
    """
    sizes = np.maximum(np.abs(mean), np.abs(deviation))
    faint = np.flatnonzero((sizes > 0) & (sizes < FAINT_COLUMNS * sizes.max(initial=0.0)))
    if len(faint):
        column, largest = int(faint[0]), float(sizes.max())
        raise DataError(
            f"columns of {source.name} are near {largest:.0e}, and column {column} near {sizes[column]:.0e}: "
            "no unit keeps the squares of both in the range of float64. Store it in other units, or leave it "
            "out with select_columns= (--select-columns), and run again."
        )
