"""Steps that make columns comparable or fill them in, measured first in one read.

See ``MeasuredStep`` in ``measured_columns.py`` for the protocol: ``measure`` reads the matrix, ``fitted``
returns the step to apply, ``affine`` its shift and factor of each column.

Steps that make rows comparable, and are measured on the matrix first, in one read.

A measured step becomes a ``Step``, which is applied to values as they are read. A result keeps the
measurement, so that new rows go through the same step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.origin import columns_in_words
from rankfold.pipeline.data.source import Source, compressed, require_rows
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.prepare.moments import FAINTEST, column_counts, column_moments, row_sums
from rankfold.pipeline.prepare.steps import (
    Measured,
    Numbers,
    RowsOfSum,
    Shifted,
    Step,
    require,
    require_flags,
)

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


CONSTANT = 1e-12
"""Standard deviation, as a share of the mean, up to which a column is constant but for rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class ScaleColumns:
    """Replace each value by ``(x - mean) * factor``, clipped at ``most``; missing ones become ``substitute``.

    For the stored values of a sparse matrix, the value that 0 would become, ``shift``, is subtracted, so that
    zeros stay zeros. All values of a column are then smaller by its ``shift`` than they should be.
    """

    mean: Float64
    """Mean (n,) of each column."""

    factor: Float64
    """Factor (n,) of each column."""

    center: bool
    """True if the mean is subtracted."""

    most: float | None
    """Bound at which new values are clipped, above and, with ``center``, at its negative; None for none."""

    missing: float | None
    """Value that marks missing ones, in addition to NaN; None if NaN is an error as usual."""

    substitute: float = 0.0
    """Value that replaces missing ones."""

    genotypes: bool = False
    """True if values are genotype calls, which must be from 0 to 2."""

    name: ClassVar[str] = "scale"
    by_row: ClassVar[bool] = False

    @property
    def shift(self) -> Float64 | None:
        """Value (n,) that 0 becomes in each column; None if zero stays zero."""
        return self._map(np.zeros_like(self.mean), self.mean, self.factor) if self.center else None

    def apply(self, numbers: Numbers) -> None:
        """Scale values in place; ``DataError`` for values that are no genotypes, where they must be."""
        values = numbers.values
        mean, factor = numbers.along_columns(self.mean), numbers.along_columns(self.factor)
        wide = values.astype(np.float64)
        found = self._map(wide, mean, factor)
        infinite = np.isinf(wide)
        found[infinite] = wide[infinite]  # to be refused by the methods, even if numbers are clipped
        if self.genotypes and (odd := _no_genotypes(wide, self.missing)):
            raise DataError(_refusal_of("the matrix", odd, self.missing))
        if self.missing is not None:
            found[np.isnan(wide) | (wide == self.missing)] = self.substitute
        if self.center and numbers.places is not None:
            found -= self._map(np.zeros_like(wide), mean, factor)
        values[...] = found

    def _map(self, values: Float64, mean: Float64, factor: Float64) -> Float64:
        found = (values - mean if self.center else values) * factor
        if self.most is not None:
            np.clip(found, -self.most if self.center else None, self.most, out=found)
        return found


@dataclass(frozen=True, slots=True)
class Scale:
    """Columns of mean 0 and standard deviation 1, clipped at ``max_value``, as ``scanpy.pp.scale``.

    A constant column is not scaled. Without ``zero_center`` means stay, and so do zeros.
    """

    zero_center: bool = True
    max_value: float | None = None
    ddof: int = 1
    """Delta degrees of freedom: 1 as in scanpy; scikit-learn and xeofs have 0."""

    name: ClassVar[str] = "scale"

    def __post_init__(self) -> None:
        require_flags(self, "zero_center")
        if self.max_value is not None:
            require(self, "max_value", above=0)
        if self.ddof not in (0, 1) or isinstance(self.ddof, bool):
            raise InputError(f"{self.name}: ddof must be 0 or 1, not {self.ddof!r}")

    def measure(self, source: Source) -> dict[str, Array]:
        """Mean and standard deviation of each column, as ``"mean"`` and ``"std"``."""
        with np.errstate(over="ignore", invalid="ignore"):
            moments = column_moments(source)
        sizes, squares = np.abs(moments.mean), moments.squares
        lost = ~np.isfinite(squares) | ((squares < FAINTEST**2) & (sizes > 0) & (sizes < FAINTEST))
        if lost.any():
            column = int(lost.argmax())
            raise DataError(
                f"numbers of column {column} (from 0) of {source.name} are near {sizes[column]:.0e}: their "
                "squares leave the range of float64. Store them in other units, and run again"
            )
        return {"mean": moments.mean, "std": np.sqrt(moments.variance(self.ddof))}

    def fitted(self, found: Fitted) -> Step:
        """Make the step that scales columns by the mean and deviation ``found`` by ``measure``."""
        std, mean = np.asarray(found["std"]), np.asarray(found["mean"])
        return ScaleColumns(mean, _reciprocal(std, mean), self.zero_center, self.max_value, None)

    def affine(self, measured: Measured) -> Shifted | None:
        """Mean as shift if ``zero_center``, reciprocal deviation as factor; None if values are clipped."""
        mean = measured("mean")
        off = mean if self.zero_center else 0.0
        return None if self.max_value is not None else (off, _reciprocal(measured("std"), mean))


def _reciprocal(std: Float64, mean: Float64) -> Float64:
    """Factor (n,) of each column: 1 over the standard deviation ``std``, but 1 for constant columns."""
    return 1 / np.where(std > CONSTANT * np.abs(mean), std, 1.0)


@dataclass(frozen=True, slots=True)
class Patterson:
    """Genotypes 0, 1, 2 as ``(g - 2 p) / sqrt(2 p (1 - p))``; missing calls, NaN or ``missing``, become 0.

    Patterson, Price, Reich, PLoS Genetics 2(12), 2006, e190, equations 1 to 3, without their correction of p.
    """

    missing: float = -1.0
    keep_missing: bool | None = None
    """True if missing calls become NaN, for ``missing="em"``; None if they become 0."""

    name: ClassVar[str] = "patterson"

    def __post_init__(self) -> None:
        require(self, "missing")
        if self.keep_missing is not None:
            require_flags(self, "keep_missing")
            object.__setattr__(self, "keep_missing", self.keep_missing or None)

    def measure(self, source: Source) -> dict[str, Array]:
        """Frequency (n,) of the counted allele, ``"frequency"``, and number of present calls, ``"calls"``."""
        _refuse_zero(self, source)
        found = Counter[float]()

        def absent(x: Array) -> Array:
            found.update(_no_genotypes(x, self.missing))
            return np.asarray(np.isnan(x) | (x == self.missing))

        moments = column_moments(source, absent=absent)
        if found:
            raise DataError(_refusal_of(source.name, found, self.missing))
        return {"frequency": moments.mean / 2, "calls": moments.count}

    def fitted(self, found: Fitted) -> Step:
        """Make the step that scales columns by the frequencies ``found`` by ``measure``."""
        mean, factor = _of_frequency(np.asarray(found["frequency"]))
        return ScaleColumns(
            mean, factor, True, None, self.missing, np.nan if self.keep_missing else 0.0, True
        )

    def affine(self, measured: Measured) -> Shifted:
        """Shift ``2 p`` and factor ``1 / sqrt(2 p (1 - p))`` of each column, from its allele frequency p."""
        return _of_frequency(measured("frequency"))


def _of_frequency(p: Float64) -> tuple[Float64, Float64]:
    """Mean ``2 p`` (n,) of the calls of each column, and factor ``1 / sqrt(2 p (1 - p))`` (n,).

    ``p`` (n,) is the frequency of the counted allele; the factor is 0 if it is 0 or 1.
    """
    spread = np.sqrt(2 * p * (1 - p))
    return 2 * p, np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)


def _no_genotypes(x: Array, missing: float | None) -> Counter[float]:
    """Finite values of ``x`` outside [0, 2] that do not mark a missing call, with their counts.

    Values between are genotypes too: dosages, expected numbers of alleles.
    """
    odd = x[((x < 0) | (x > 2)) & (x != missing) & np.isfinite(x)]
    values, counts = np.unique(odd, return_counts=True)
    return Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def _refusal_of(name: str, odd: Counter[float], missing: float | None) -> str:
    """Message about values of the matrix ``name`` that are no genotypes; ``odd`` has the count of each."""
    shown = ", ".join(f"{value:g} ({count} times)" for value, count in odd.most_common(4))
    mark = f"{odd.most_common(1)[0][0]:g}"
    return (
        f"{name} holds {shown}{' and more' if len(odd) > 4 else ''}, but genotypes are from 0 to 2, and "
        f"{missing:g} where missing. Where {mark} stands for a missing call, say patterson(missing={mark})"
    )


def _refuse_zero(step: Any, source: Source) -> None:
    """Raise ``InputError`` if 0 marks missing values in a sparse matrix, which does not store zeros."""
    if step.missing == 0 and compressed(source) is not None:
        raise InputError(
            f"{step.name}(missing=0): {source.name} is sparse, and zeros that are not stored cannot be told "
            "from numbers that are missing. Store what is missing as NaN, or write the matrix dense"
        )


@dataclass(frozen=True, slots=True)
class ImputeMean:
    """Replace missing values, NaN or ``missing``, by the mean of those present in their column."""

    missing: float | None = None

    name: ClassVar[str] = "impute_mean"

    def __post_init__(self) -> None:
        if self.missing is not None:
            require(self, "missing")

    def measure(self, source: Source) -> dict[str, Array]:
        """Mean (n,) of the present values of each column, as ``"mean"``, and their number, as ``"count"``."""
        _refuse_zero(self, source)
        moments = column_moments(source, absent=self.is_missing)
        if not (moments.count > 0).all():
            empty = int(np.flatnonzero(moments.count == 0)[0])
            raise DataError(
                f"column {columns_in_words(source, [empty])} of {source.name} holds no number, so it has no "
                "mean. Leave it out, with select_columns= or drop_missing_columns=True"
            )
        return {"mean": moments.mean, "count": moments.count}

    def is_missing(self, values: Array) -> Array:
        """Mask, of the shape of ``values``, of those that are missing."""
        gone = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, np.bool_)
        return gone if self.missing is None else gone | (values == self.missing)

    def fitted(self, found: Fitted) -> Step:
        """Make the step that replaces missing values by the means ``found`` by ``measure``."""
        return FillIn(np.asarray(found["mean"]), self)

    def affine(self, measured: Measured) -> Shifted:
        """Shift 0 and factor 1: present values stay."""
        return 0.0, 1.0


@dataclass(frozen=True, slots=True, eq=False)
class FillIn:
    """Replace missing values by the means of their columns."""

    mean: Float64
    step: ImputeMean

    name: ClassVar[str] = "impute_mean"
    by_row: ClassVar[bool] = False

    def apply(self, numbers: Numbers) -> None:
        """Replace missing values by means, in place."""
        gone = self.step.is_missing(numbers.values)
        means = np.broadcast_to(numbers.along_columns(self.mean), gone.shape)
        numbers.values[gone] = means[gone]


Fitted = Mapping[str, Array]


class MeasuredStep(Protocol):
    """A preparation step that is first measured on the matrix: a frozen dataclass of its parameters."""

    name: ClassVar[str]

    def measure(self, source: Source) -> dict[str, Array]:
        """Read the matrix and return what the step needs of it: arrays by name, such as means."""

    def fitted(self, found: Fitted) -> Step | None:
        """Make the step to apply from ``found``, what ``measure`` returned.

        None if it only selects the columns ``found["columns"]``.
        """


@dataclass(frozen=True, slots=True)
class NormalizeTotal:
    """Scale rows to one sum, as ``scanpy.pp.normalize_total``: by default the median sum of nonempty rows."""

    target_sum: float | None = None

    name: ClassVar[str] = "normalize_total"

    def __post_init__(self) -> None:
        if self.target_sum is not None:
            require(self, "target_sum", above=0)

    def measure(self, source: Source) -> dict[str, Array]:
        """Median of the row sums as ``"target_sum"``; empty if ``target_sum`` is given."""
        if self.target_sum is not None:
            return {}
        require_rows(source, f"and {self.name} needs whole rows")
        sums = row_sums(source)
        filled = sums[sums > 0]
        if not len(filled):
            raise DataError(f"{source.name} has no row with a sum above 0, so there is no median of them")
        return {"target_sum": np.array([np.median(filled)])}

    def fitted(self, found: Fitted) -> Step:
        """Make the step that scales rows to the sum ``target_sum``, given or ``found`` by ``measure``."""
        return RowsOfSum(float(found["target_sum"][0]) if self.target_sum is None else self.target_sum)


@dataclass(frozen=True, slots=True)
class Tfidf:
    """Weight words by how few documents have them, as scikit-learn's ``TfidfTransformer``."""

    sublinear_tf: bool = False
    smooth_idf: bool = True
    norm: str | None = "l2"

    name: ClassVar[str] = "tfidf"

    def __post_init__(self) -> None:
        if self.norm not in ("l1", "l2", None):
            raise InputError(f"{self.name}: norm must be 'l2', 'l1' or None, not {self.norm!r}")
        require_flags(self, "sublinear_tf", "smooth_idf")

    def measure(self, source: Source) -> dict[str, Array]:
        """Inverse document frequencies (n,), as ``"idf"``.

        They are log(rows / rows in which the column is nonzero) + 1; with ``smooth_idf``, 1 is added to both
        counts.
        """
        rows, counts = source.shape[0], column_counts(source)
        found = counts + self.smooth_idf
        # The weight of a word in no document does not matter.
        share = np.divide(rows + self.smooth_idf, found, out=np.ones_like(counts), where=found > 0)
        return {"idf": np.log(share) + 1}

    def fitted(self, found: Fitted) -> Step:
        """Make the step that multiplies terms by the ``idf`` ``found`` by ``measure``."""
        return WeighTerms(np.asarray(found["idf"]), self.sublinear_tf, self.norm)


@dataclass(frozen=True, slots=True, eq=False)
class WeighTerms:
    """Multiply terms by their inverse document frequencies, then scale rows to norm 1."""

    idf: Float64
    sublinear_tf: bool
    norm: str | None

    name: ClassVar[str] = "tfidf"

    @property
    def by_row(self) -> bool:
        """True if rows are scaled to norm 1."""
        return self.norm is not None

    def apply(self, numbers: Numbers) -> None:
        """Weight terms and scale rows, in place."""
        values = numbers.values
        if self.sublinear_tf:
            with np.errstate(divide="ignore", invalid="ignore"):
                np.copyto(values, np.log(values) + 1, where=values != 0)
        values *= numbers.along_columns(self.idf).astype(values.dtype)
        if self.norm is None:
            return
        size = np.abs(values) if self.norm == "l1" else np.square(values, dtype=np.float64)
        norms = numbers.sum_rows(size)
        norms = norms if self.norm == "l1" else np.sqrt(norms)
        known = np.isfinite(norms) & (norms > 0)
        factors = np.divide(1.0, norms, out=np.ones_like(norms), where=known)
        values *= numbers.along_rows(factors).astype(values.dtype)
