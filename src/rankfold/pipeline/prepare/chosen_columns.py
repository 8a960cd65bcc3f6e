"""Steps that keep some of the columns: those that vary most for their mean, or those that a caller names.

The choice is measured on the matrix as the preceding steps return it, or on the raw counts.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.source import Source, Wrapper
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.prepare.measured_rows import Fitted
from rankfold.pipeline.prepare.moments import column_moments, column_sums
from rankfold.pipeline.prepare.steps import require
from rankfold.pipeline.prepare.variable_columns import (
    FLAVORS,
    SPAN,
    Choice,
    clipped_variance,
    expected_deviation,
    largest,
    most_variable,
)

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
    flavor: str = "seurat"
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
        """True if another machine may break ties differently, so that the chosen columns go into the
        fingerprint.
        """
        return self.flavor == "seurat_v3"

    def measure(self, source: Source) -> dict[str, Array]:
        """Indices ``"columns"`` of those kept, ``"of"`` how many, and scanpy's measures of all columns."""
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
        """Return None: the step selects the columns ``found["columns"]`` and changes no values; see
        ``MeasuredStep``.
        """


def _counts_of(source: Any) -> Source:
    """The matrix before all steps; ``InputError`` if a row or column has been left out since."""
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
    """Base of the last ``log1p`` that a matrix went through; None for the natural
    logarithm, or without any.
    """
    bases = [step.base for step in getattr(source, "said", ()) if step.name == "log1p"]
    return bases[-1] if bases else None


@dataclass(frozen=True, slots=True, eq=False)
class TakeColumns:
    """Keep the columns of given indices: the form that a selection of columns of a prepared matrix takes."""

    columns: Any = None
    digest: str | None = None
    """Digest of the indices, by which a result identifies them."""

    name: ClassVar[str] = "take_columns"
    in_name: ClassVar[bool] = False
    """False, since the name of the matrix already says which columns were taken."""

    def __post_init__(self) -> None:
        if self.columns is not None:
            mark = hashlib.blake2b(np.ascontiguousarray(self.columns, "<i8").tobytes(), digest_size=8)
            object.__setattr__(self, "digest", mark.hexdigest())

    def measure(self, source: Source) -> dict[str, Array]:
        """The given indices as ``"columns"``, and the number of columns that they were chosen from as
        ``"of"``.
        """
        if self.columns is None:
            raise InputError(f"{self.name} is what select_columns= of a prepared matrix becomes: say that")
        return {"columns": np.asarray(self.columns), "of": np.array([source.shape[1]])}

    def fitted(self, found: Fitted) -> None:
        """Return None: the step selects the columns ``found["columns"]`` and changes no values; see
        ``MeasuredStep``.
        """


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
