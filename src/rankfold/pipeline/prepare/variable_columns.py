"""Columns that vary most for their mean: the measures of scanpy's ``highly_variable_genes``.

Satija et al., Nature Biotechnology 33, 2015 (seurat); Zheng et al., Nature Communications 8, 2017
(cell_ranger): dispersions within bins of similar means. Stuart et al., Cell 177, 2019 (seurat_v3): variances
of clipped counts, relative to those that a curve through all columns gives. Details follow scanpy 1.11: a
bin of a single gene, how ties are kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import DataError
from rankfold.pipeline.prepare.local_regression import smooth
from rankfold.pipeline.prepare.moments import ColumnSums

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

FLAVORS = ("seurat", "cell_ranger", "seurat_v3")

SPAN = 0.3
"""Share of the columns in each local regression of seurat_v3."""

NO_MEAN = 1e-12
"""Replacement for a mean of 0."""

MAD = 0.6744897501960817
"""Median absolute deviation of a normal distribution of standard deviation 1."""


class Choice(NamedTuple):
    """Columns that vary most, and the measures by which they were compared."""

    chosen: npt.NDArray[np.bool_]
    """Mask (n,) of these columns."""

    measures: dict[str, Float64]
    """Measures, (n,) each, by their scanpy names in ``var``; NaN if undefined."""


def most_variable(mean: Float64, variance: Float64, count: int, *, flavor: str, bins: int) -> Choice:
    """Choose the ``count`` columns of the largest normalized dispersion, and ties with the last.

    Parameters
    ----------
    mean, variance : (n,)
        Of each column: for seurat of values without logarithms, for cell_ranger of logarithms.
    """
    mean = np.where(mean == 0, NO_MEAN, mean)
    dispersion = variance / mean
    if flavor == "seurat":
        with np.errstate(divide="ignore"):
            dispersion = np.where(dispersion == 0, np.nan, np.log(dispersion))
        mean = np.log1p(mean)
        home = _bins_of_like_width(mean, bins)
    else:
        edges = np.unique(np.percentile(mean, np.arange(10, 105, 5)))
        home = np.searchsorted(edges, mean, side="left")
    normalized = np.full(len(mean), np.nan)
    for each in np.unique(home):
        inside = home == each
        center, spread = (_mean_and_deviation if flavor == "seurat" else _median_and_deviation)(
            dispersion[inside]
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            normalized[inside] = (dispersion[inside] - center) / spread
    measures = {"means": mean, "dispersions": dispersion, "dispersions_norm": normalized}
    known = np.sort(normalized[~np.isnan(normalized)])[::-1]
    if not len(known):
        return Choice(np.ones(len(mean), np.bool_), measures)
    cutoff = known[min(count, len(known)) - 1]
    return Choice(np.asarray(np.nan_to_num(normalized, nan=-np.inf) >= cutoff), measures)


def _bins_of_like_width(mean: Float64, bins: int) -> Array:
    """Index of the bin of each mean, among bins of equal width, closed on the right.

    The first bin begins a little lower, as in ``pandas.cut``.
    """
    low, high = float(mean.min()), float(mean.max())
    if low == high:
        return np.zeros(len(mean), np.int64)
    edges = np.linspace(low, high, bins + 1)
    edges[0] -= 0.001 * (high - low)
    return np.searchsorted(edges, mean, side="left")


def _mean_and_deviation(values: Float64) -> tuple[float, float]:
    """Mean and standard deviation of values that are not NaN.

    For a single value these are 0 and the value itself, so that it is normalized to 1.
    """
    values = values[~np.isnan(values)]
    if len(values) < 2:
        return 0.0, float(values[0]) if len(values) else np.nan
    return float(values.mean()), float(values.std(ddof=1))


def _median_and_deviation(values: Float64) -> tuple[float, float]:
    center = float(np.median(values))
    return center, float(np.median(np.abs(values - center))) / MAD


# Of counts ----------------------------------------------------------------------------------------


def expected_deviation(mean: Float64, variance: Float64, *, span: float) -> Float64:
    """Standard deviations (n,) that columns of these means are expected to have.

    They come from a smooth curve of log variance over log mean, fitted to all columns.

    It is 1 for a constant column, as in scanpy.
    """
    varies = variance > 0
    logarithm = np.zeros(len(mean))
    try:
        if varies.any():
            logarithm[varies] = smooth(np.log10(mean[varies]), np.log10(variance[varies]), span=span)
    except DataError as error:
        raise DataError(
            f"highly_variable of flavor='seurat_v3': too many of the {int(varies.sum())} columns that vary "
            f"have the same mean, or these are too few: {error}, or leave out columns of few counts"
        ) from error
    return np.asarray(np.sqrt(10**logarithm), np.float64)


def clipped_variance(mean: Float64, deviation: Float64, sums: ColumnSums, rows: int) -> Float64:
    """Normalized variances (n,) of clipped counts about ``mean``, relative to the expected variances."""
    squares = rows * mean**2 + sums.squares - 2 * sums.total * mean
    return np.asarray(squares / ((rows - 1) * deviation**2) if rows > 1 else np.zeros(len(mean)), np.float64)


def largest(values: Float64, count: int) -> npt.NDArray[np.bool_]:
    """Boolean mask of the ``count`` largest values.

    Ties with the last are resolved as NumPy's unstable sort happens to order them, as in scanpy: perhaps
    differently on another kind of processor.
    """
    chosen = np.zeros(len(values), np.bool_)
    chosen[
        np.argsort(
            -values,
        )[:count]
    ] = True
    return chosen
