"""Steps that make rows comparable, and are measured on the matrix first, in one read.

A measured step becomes a ``Step``, which is applied to values as they are read. A result keeps the
measurement, so that new rows go through the same step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.source import Source, require_rows
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.prepare.moments import column_counts, row_sums
from rankfold.pipeline.prepare.steps import Numbers, RowsOfSum, Step, require, require_flags

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Fitted = Mapping[str, Array]


class MeasuredStep(Protocol):
    """A preparation step that is first measured on the matrix: a frozen dataclass whose fields are its
    parameters.
    """

    name: ClassVar[str]

    def measure(self, source: Source) -> dict[str, Array]:
        """Read the matrix and return what the step needs of it: arrays by name, such as means."""

    def fitted(self, found: Fitted) -> Step | None:
        """The step to apply, made from the arrays of ``measure``; None if it only selects
        ``found["columns"]``.
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
        """Step that scales rows to ``target_sum``."""
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
        """Inverse document frequencies (n,), as ``"idf"``: log(rows / rows in which the column is nonzero) +
        1.

        With ``smooth_idf``, 1 is added to both counts.
        """
        rows, counts = source.shape[0], column_counts(source)
        found = counts + self.smooth_idf
        # The weight of a word in no document does not matter.
        share = np.divide(rows + self.smooth_idf, found, out=np.ones_like(counts), where=found > 0)
        return {"idf": np.log(share) + 1}

    def fitted(self, found: Fitted) -> Step:
        """Step that multiplies terms by the measured ``idf``."""
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
