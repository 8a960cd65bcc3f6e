"""A matrix without its missing rows, such as months without a measurement in data of a field.

A missing row has no number, only NaN. Such rows are found by a read when the matrix is opened. It covers only
as many columns as are needed to see a number in each row. Rows that are kept may hold NaN; the reductions
decide how to treat it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.row_marks import RowMarks
from rankfold.pipeline.data.index_selection import pick
from rankfold.pipeline.data.names import Names
from rankfold.pipeline.data.selection import SelectedSource, steps, unit
from rankfold.pipeline.data.source import Source, compressed
from rankfold.pipeline.errors import DataError, InputError

READ_BYTES = 8 * 2**20
"""Bytes of values that are read and checked together, unless one chunk holds more."""

MOST_NAMES = 4
"""Largest number of rows that a message names."""

LOG = logging.getLogger("rankfold")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PresentRows(SelectedSource):
    """The rows of another matrix that have at least one number, not only NaN."""

    @property
    def name(self) -> str:
        """Name of the matrix in messages."""
        return f"{self.inner.name} [{self.shape[0]} of {self.inner.shape[0]} rows not missing]"

    def row_marks(self, rows: int) -> RowMarks:
        """Raise ``InputError``: whether a row is kept is not known for rows added later."""
        raise InputError(
            f"{self.name} leaves out rows without a number, so that it does not grow at its end: leave out "
            "grows, or drop_missing_rows"
        )


def without_missing_rows(source: Source, names: Names | None = None) -> Source:
    """The matrix without rows that are NaN throughout; the matrix itself if there are none.

    Reads as much of the matrix as shows a number in each row, and logs how many rows are left out.

    Parameters
    ----------
    source : Source
        A sparse matrix is returned as it is: numbers that it does not store are 0.
    names : Names, optional
        Names of its rows, for the log.

    Raises
    ------
    DataError
        No row holds a number.
    """
    if source.dtype.kind not in "fc" or compressed(source) is not None:
        return source
    rows = source.shape[0]
    there = np.zeros(rows, np.bool_)
    tall, wide = (unit(grid) for grid in (source.row_grid, source.column_grid))
    numbers = READ_BYTES // source.dtype.itemsize
    for span in steps((0, rows), source.row_grid, max(1, numbers // max(wide, source.shape[1]))):
        most = max(1, numbers // max(tall, span[1] - span[0]))
        for columns in steps((0, source.shape[1]), source.column_grid, most):
            block = np.empty((span[1] - span[0], columns[1] - columns[0]), source.dtype)
            source.read_into(block, span, columns)
            there[slice(*span)] |= ~np.isnan(block).all(axis=1)
            if there[slice(*span)].all():
                break
    if there.all():
        return source
    if not there.any():
        raise DataError(
            f"{source.name}: all {rows} rows are NaN, so drop_missing_rows would leave nothing. Is it the "
            "variable that was meant?"
        )
    _tell(source, there, names)
    return PresentRows(source, pick(there, rows, what="row", name=source.name), None)


def _tell(source: Source, there: npt.NDArray[np.bool_], names: Names | None) -> None:
    """Log the number and the first few of the rows left out; ``there`` (rows,) is True for those kept."""
    gone = np.flatnonzero(~there)
    first = [str(at) if names is None else names.title(int(at)) for at in gone[:MOST_NAMES]]
    more = ", ..." if len(gone) > MOST_NAMES else ""
    LOG.warning(
        "%d of %d rows of %s hold no number and are left out: %s%s",
        len(gone),
        len(there),
        source.name,
        ", ".join(first),
        f"{more} (from 0)" if names is None else more,
    )
