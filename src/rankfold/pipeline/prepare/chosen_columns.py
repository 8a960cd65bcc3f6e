"""Steps that keep some of the columns: those that vary most for their mean, or those that a caller names.

The choice is measured on the matrix as the preceding steps return it, or on the raw counts.

Columns that vary most for their mean: the measures of scanpy's ``highly_variable_genes``.

Satija et al., Nature Biotechnology 33, 2015 (seurat); Zheng et al., Nature Communications 8, 2017
(cell_ranger): dispersions within bins of similar means. Stuart et al., Cell 177, 2019 (seurat_v3): variances
of clipped counts, relative to those that a curve through all columns gives. Details follow scanpy 1.11: a
bin of a single gene, how ties are kept.

A smooth curve through points, by local regression: loess as in Cleveland's Fortran code.

That code, which R's ``loess`` and scikit-misc wrap, does not regress at every point: it cuts the line at some
of the points, regresses there, and joins values and slopes by cubics. The joined curve may differ by 0.01
from regression at each point, in logarithms of variances, which changes what is chosen by it. So cuts are
made where that code makes them.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.source import Source, Wrapper
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.prepare.measured_columns import Fitted
from rankfold.pipeline.prepare.moments import ColumnSums, column_moments, column_sums
from rankfold.pipeline.prepare.steps import require

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

CHOOSING = ("highly_variable", "take_columns")
"""Names of steps that leave columns out."""

COUNTS = "counts"
"""The only possible ``layer``: the matrix before all steps."""


@dataclass(frozen=True, slots=True)
class HighlyVariable:
    """The columns that vary most among those of like mean, as ``scanpy.pp.highly_variable_genes``.

    For seurat and cell_ranger, of counts that were normalized and went through log1p. For seurat_v3, of raw
    counts: before other steps, or with ``layer="counts"`` after them.
    """

    n_top_genes: int
    """Number of columns to keep."""

    flavor: str = "seurat"
    """Measure by which columns are compared: one of ``FLAVORS``."""

    n_bins: int = 20
    """Number of bins of means, for seurat."""

    span: float | None = None
    """Share of the columns in each regression of seurat_v3, 0.3 by default."""

    layer: str | None = None
    """``"counts"`` for the matrix before all steps, with seurat_v3."""

    name: ClassVar[str] = "highly_variable"

    def __post_init__(self) -> None:
        for field in ("n_top_genes", "n_bins"):
            value = getattr(self, field)
            is_number = isinstance(value, int | float | np.integer | np.floating)
            if not is_number or isinstance(value, bool) or not value >= 1 or value % 1:
                raise InputError(f"{self.name}: {field} must be a whole number of at least 1, not {value!r}")
            object.__setattr__(self, field, int(value))
        if self.flavor not in FLAVORS:
            known = f"{', '.join(map(repr, FLAVORS[:-1]))} or {FLAVORS[-1]!r}"
            raise InputError(f"{self.name}: flavor must be {known}, not {self.flavor!r}")
        if self.layer not in (None, COUNTS):
            raise InputError(
                f"{self.name}: layer must be {COUNTS!r}, the matrix before all steps, not {self.layer!r}"
            )
        if self.span is not None:
            require(self, "span", above=0)
            if self.span > 1:
                raise InputError(f"{self.name}: span must be a share of the columns up to 1, not {self.span}")
        for field in ("span", "layer"):
            if getattr(self, field) is not None and self.flavor != "seurat_v3":
                raise InputError(f"{self.name}: {field} is for flavor='seurat_v3', not {self.flavor!r}")

    @property
    def may_tie(self) -> bool:
        """True if another machine may break ties differently: then the fingerprint covers the choice."""
        return self.flavor == "seurat_v3"

    def measure(self, source: Source) -> dict[str, Array]:
        """Measure columns: indices of those kept, ``"columns"``, the number of all, ``"of"``, and measures.

        The latter are those of scanpy, (n,) each, by their names in ``var``.
        """
        choice = self._of_counts(source) if self.flavor == "seurat_v3" else self._of_logarithms(source)
        return {
            "columns": np.flatnonzero(choice.chosen),
            "of": np.array([source.shape[1]]),
            **choice.measures,
        }

    def _of_logarithms(self, source: Source) -> Choice:
        base = _base_of(source)
        change = None
        if self.flavor == "seurat":
            factor = 1.0 if base is None else float(np.log(base))
            change = lambda x: np.expm1(x * factor)  # noqa: E731
        moments = column_moments(source, change=change)
        return most_variable(
            moments.mean, moments.variance(1), self.n_top_genes, flavor=self.flavor, bins=self.n_bins
        )

    def _of_counts(self, source: Source) -> Choice:
        counts = _counts_of(source) if self.layer == COUNTS else source
        rows = counts.shape[0]
        sums = column_sums(counts)
        if sums.negative.any():
            raise DataError(
                f"{counts.name} has numbers below 0, in column {int(np.flatnonzero(sums.negative)[0])} (from "
                f"0), and {self.name} of flavor='seurat_v3' takes counts. Say it before other steps, or with "
                "layer='counts'"
            )
        if sums.fractional.any():
            warnings.warn(
                f"{self.name} of flavor='seurat_v3' expects counts, and {int(sums.fractional.sum())} numbers "
                f"of {counts.name} are not whole. Say it before other steps, or with layer='counts'",
                UserWarning,
                stacklevel=2,
            )
        mean, variance = sums.total / rows, sums.variance(rows)
        deviation = expected_deviation(mean, variance, span=SPAN if self.span is None else self.span)
        most = mean + deviation * np.sqrt(rows)
        normalized = clipped_variance(mean, deviation, column_sums(counts, most=most), rows)
        measures = {"means": mean, "variances": variance, "variances_norm": normalized}
        return Choice(largest(normalized, self.n_top_genes), measures)

    def fitted(self, found: Fitted) -> None:
        """Return None: the step only selects columns ``found["columns"]``; see ``MeasuredStep``."""


def _counts_of(source: Any) -> Source:
    """The matrix before all steps; ``InputError`` if steps or selections have left out rows or columns."""
    if not hasattr(source, "said"):
        return source  # type: ignore[no-any-return]
    inner, within = source, source
    while isinstance(within, Wrapper):
        if hasattr(within, "said"):
            inner = within.inner
        within = within.inner
    if inner.shape != source.shape or any(isinstance(step, TakeColumns) for step in source.said):
        raise InputError(
            f"{source.name} has {source.shape[0]} x {source.shape[1]} of the {inner.shape[0]} x "
            f"{inner.shape[1]} numbers of {inner.name}, so its counts are of another shape. Say "
            "layer='counts' where no rows or columns are left out before"
        )
    return inner  # type: ignore[no-any-return]


def _base_of(source: Any) -> float | None:
    """Base of the last ``log1p`` that a matrix went through; None if it was natural, or if there was none."""
    bases = [step.base for step in getattr(source, "said", ()) if step.name == "log1p"]
    return bases[-1] if bases else None


@dataclass(frozen=True, slots=True, eq=False)
class TakeColumns:
    """Keep the columns of given indices: the form that a selection of columns of a prepared matrix takes."""

    columns: Any = None
    digest: str | None = None
    """Digest of ``columns``, by which a result identifies the step."""

    name: ClassVar[str] = "take_columns"
    in_name: ClassVar[bool] = False
    """False, since the name of the matrix already says which columns were taken."""

    def __post_init__(self) -> None:
        if self.columns is not None:
            mark = hashlib.blake2b(np.ascontiguousarray(self.columns, "<i8").tobytes(), digest_size=8)
            object.__setattr__(self, "digest", mark.hexdigest())

    def measure(self, source: Source) -> dict[str, Array]:
        """Return the given indices, as ``"columns"``, and of how many columns they are, as ``"of"``."""
        if self.columns is None:
            raise InputError(f"{self.name} is what select_columns= of a prepared matrix becomes: say that")
        return {"columns": np.asarray(self.columns), "of": np.array([source.shape[1]])}

    def fitted(self, found: Fitted) -> None:
        """Return None: the step only selects columns ``found["columns"]``; see ``MeasuredStep``."""


ALL_COLUMNS = ("normalize_total", "tfidf", "coslat")
"""Names of steps that must see all columns before some are chosen, such as those that sum over rows."""


def choose_columns(steps: tuple[Any, ...], mask: npt.NDArray[np.bool_]) -> tuple[Any, ...]:
    """Insert a step that keeps the columns of a mask (n,), as early as ``ALL_COLUMNS`` permits."""
    for step in steps:
        if step.name in CHOOSING:
            raise InputError(f"mask_var= and {step.name} both choose columns: say one of them")
    if not mask.any():
        raise InputError(f"mask_var keeps none of the {len(mask)} columns")
    behind = max((place for place, step in enumerate(steps, 1) if step.name in ALL_COLUMNS), default=0)
    return (*steps[:behind], TakeColumns(np.flatnonzero(mask)), *steps[behind:])


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
    """Mask (n,): True for the columns that vary most."""

    measures: dict[str, Float64]
    """Measures, (n,) each, by their scanpy names in ``var``; NaN if undefined."""


def most_variable(mean: Float64, variance: Float64, count: int, *, flavor: str, bins: int) -> Choice:
    """Choose the ``count`` columns of the largest normalized dispersion, and ties with the last.

    Parameters
    ----------
    mean, variance : (n,)
        Mean and variance of each column: for seurat of values before log1p, for cell_ranger after it.
    flavor : {"seurat", "cell_ranger"}
    bins : int
        Number of bins of means, for seurat.
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
    """Index (n,) of the bin of each mean, among bins of equal width that are closed on the right.

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

    They come from a smooth curve of log variance over log mean, fitted to all columns that vary; ``span`` as
    in ``smooth``.

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
    """Variances (n,) of clipped counts about ``mean``, relative to the expected ones, ``deviation`` squared.

    ``sums`` are those of the clipped counts of ``rows`` rows, ``mean`` (n,) that of counts before clipping.
    """
    squares = rows * mean**2 + sums.squares - 2 * sums.total * mean
    return np.asarray(squares / ((rows - 1) * deviation**2) if rows > 1 else np.zeros(len(mean)), np.float64)


def largest(values: Float64, count: int) -> npt.NDArray[np.bool_]:
    """Mask (n,) of the ``count`` largest values.

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


CELL = 0.2
"""Share of the points of one regression: intervals of a line with at most so many are not cut again."""

MARGIN = 0.005
"""Distance from the outermost points to the ends of the curve, as a share of the range of the points."""

SINGULAR = 100 * float(np.finfo(np.float64).eps)
"""Smallest over largest singular value below which points of a regression determine no parabola."""


def smooth(x: Float64, y: Float64, *, span: float) -> Float64:
    """Fit a loess curve to points, and return its values (n,) at ``x``.

    Parameters
    ----------
    x, y : (n,) float64
        Coordinates of the points.
    span : float
        Share of the points, in (0, 1], that each parabola is fitted to, weighted by distance.

    Raises
    ------
    DataError
        A share of the points has too few different ``x`` for a parabola.

    Notes
    -----
    Some ``2 / (CELL span)`` regressions of ``span n`` points: a few milliseconds for 20 000.

    References
    ----------
    Cleveland, Grosse, Computational methods for local regression, Statistics and Computing 1, 1991: cells of
    a k-d tree and blending, here on a line. Cuts fall on the point in the middle, and points that tie stay
    together, as in ``dloess`` of netlib, which scikit-misc 0.5 wraps.
    """
    order = np.argsort(x, kind="stable")
    knots = _knots(x[order], int(np.floor(len(x) * span * CELL)))
    count = min(len(x), int(len(x) * span + 1e-5))
    values, slopes = np.transpose([_parabola(x, y, knot, count, span) for knot in knots])
    left = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
    width = knots[left + 1] - knots[left]
    t = (x - knots[left]) / width
    found = (1 - t) ** 2 * (1 + 2 * t) * values[left] + t**2 * (3 - 2 * t) * values[left + 1]
    return np.asarray(
        found + width * (t * (1 - t) ** 2 * slopes[left] - t**2 * (1 - t) * slopes[left + 1]), np.float64
    )


def _knots(x: Float64, most: int) -> Float64:
    """Sorted ``x`` at which regressions are made: both ends, and cuts down to ``most`` points each.

    ``x`` (n,) are those of all points, sorted.
    """
    low, high = float(x[0]), float(x[-1])
    beyond = MARGIN * max(high - low, 1e-3 * max(abs(low), abs(high)) + 1e-30)
    knots = [low - beyond, high + beyond]
    cells = [(0, len(x) - 1, knots[0], knots[1])]
    while cells:
        first, last, left, right = cells.pop()
        if last - first + 1 <= most:
            continue
        middle = _cut(x, first, last)
        at = float(x[middle])
        if at not in (left, right):
            knots.append(at)
            cells += [(first, middle, left, at), (middle + 1, last, at, right)]
    return np.sort(knots)


def _cut(x: Float64, first: int, last: int) -> int:
    """Index of the point nearest the middle of ``first`` to ``last`` whose ``x`` differs from the next one.

    The middle itself if there is none. ``x`` (n,) of all points is sorted.
    """
    middle, offset = (first + last) // 2, 0
    while first <= middle + offset < last and x[middle + offset] == x[middle + offset + 1]:
        offset = -offset if offset > 0 else 1 - offset
    return middle + offset if first <= middle + offset < last else middle


def _parabola(x: Float64, y: Float64, at: float, count: int, span: float) -> tuple[float, float]:
    """Value and slope, at ``at``, of a parabola fitted to the ``count`` nearest points, weighted by distance.

    ``DataError``, which names ``span``, if the points do not determine a parabola.
    """
    distances = np.abs(x - at)
    near = np.argpartition(distances, count - 1)[:count] if count else np.zeros(0, np.int64)
    reach = distances[near].max(initial=0.0)
    inside = near[distances[near] < reach]  # a point at the end of the reach has weight 0
    weights = (1 - (distances[inside] / reach) ** 3) ** 1.5
    t = (x[inside] - at) / (reach or 1.0)
    terms: npt.NDArray[Any] = np.stack([weights, weights * t, weights * t**2], axis=1)
    sizes = np.sqrt((terms**2).sum(axis=0))
    sizes[sizes == 0] = 1.0
    factors, _, rank, _ = np.linalg.lstsq(terms / sizes, weights * y[inside], rcond=SINGULAR)
    if rank < 3:
        raise DataError(
            f"a parabola is to go through the nearest {count} of {len(x)} points, and these lie at "
            f"{len(np.unique(x[near]))} places alone. Say a larger span (it is {span:g})"
        )
    return float(factors[0] / sizes[0]), float(factors[1] / sizes[1] / reach)
