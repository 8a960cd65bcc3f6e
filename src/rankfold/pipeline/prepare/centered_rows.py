"""Rows less their own mean, whose cosine is the correlation.

Centering is part of a metric and no step of ``prepare``: results name the metric, and their matrix is the
one that was given. Rows of a sparse matrix are read with their zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankfold.pipeline.chunks.row_marks import RowMarks
from rankfold.pipeline.data.source import Source, row_marks
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.prepare.prepared import PreparedSource, fitted_of, steps_of
from rankfold.pipeline.prepare.steps import Numbers


@dataclass(frozen=True, slots=True)
class CenterRows:
    """Subtract the mean of each row; constant rows become exactly 0, however their mean is rounded."""

    name: ClassVar[str] = "center_rows"
    by_row: ClassVar[bool] = True

    def apply(self, numbers: Numbers) -> None:
        """Center rows in place; ``numbers`` must be a dense block of whole rows."""
        values = numbers.values
        constant = (values == values[:, :1]).all(axis=1)
        with np.errstate(invalid="ignore", over="ignore"):  # NaN and Inf remain, and readers refuse them
            wide = values - values.mean(axis=1, dtype=np.float64, keepdims=True)
        wide[constant] = 0
        values[...] = wide


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CenteredRows(PreparedSource):
    """A matrix whose rows are centered as they are read; see ``center_rows``."""

    @property
    def name(self) -> str:
        """Name in messages: that of the given matrix."""
        return self.inner.name

    def fingerprint(self) -> str:
        """Digest of the given matrix."""
        return self.inner.fingerprint()

    def row_marks(self, rows: int) -> RowMarks:
        """Digests that change if the first ``rows`` rows have changed; see ``GrowingSource``."""
        return row_marks(self.inner, rows)


def center_rows(source: Source) -> Source:
    """The matrix with the mean of each row subtracted as it is read.

    Raises
    ------
    InputError
        The matrix is complex.
    """
    if isinstance(source, CenteredRows):
        return source
    if source.dtype.kind == "c":
        raise InputError(f"{source.name} holds {source.dtype}, and correlation is of real numbers")
    return CenteredRows(source, (CenterRows(),), steps_of(source), fitted_of(source))
