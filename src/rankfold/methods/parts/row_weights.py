"""Weights of rows: one number for each, from an array, a table or a store."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.dtypes import require_real
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.formats.npy import map_npy
from rankfold.pipeline.prepare.alike import require_same_rows
from rankfold.pipeline.regular import is_regular
from rankfold.pipeline.storage.manifest import require_whole_input

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

BLOCK_ROWS = 2**16
"""Number of rows whose weights are read at a time."""

SMALLEST, LARGEST = 1e-100, 1e100
"""Smallest and largest weight above 0 that is accepted: products with squares stay in range of float64."""


@dataclass(frozen=True, slots=True, eq=False)
class RowWeights:
    """Weights of the rows of a matrix, read when they are needed."""

    source: Source
    """The weights as a matrix, (rows, 1)."""

    def read(self, start: int, stop: int) -> Float64:
        """Weights of rows ``start:stop``, (stop - start,)."""
        out = np.empty((stop - start, 1), self.source.dtype)
        self.source.read_into(out, (start, stop), (0, 1))
        return out[:, 0].astype(np.float64)

    def at(self, rows: Int64) -> Float64:
        """Weights of the rows with the indices ``rows``, in their order."""
        order, found = np.argsort(rows, kind="stable"), np.empty(len(rows))
        edges = [*range(0, self.source.shape[0], BLOCK_ROWS), self.source.shape[0]]
        for start, stop in itertools.pairwise(edges):
            here = order[slice(*np.searchsorted(rows, (start, stop), sorter=order))]
            if here.size:
                found[here] = self.read(start, stop)[rows[here] - start]
        return found

    def total(self) -> float:
        """Sum of all weights, each of which is checked.

        Raises
        ------
        DataError
            A weight is negative or not finite, or too large or small to be multiplied by squares; or none is
            above zero.
        """
        self.source.check()
        require_whole_input(getattr(self.source, "path", None))
        rows, total = self.source.shape[0], 0.0
        for start in range(0, rows, BLOCK_ROWS):
            weights = self.read(start, min(start + BLOCK_ROWS, rows))
            require_weights(weights, start)
            odd = (weights > LARGEST) | ((weights > 0) & (weights < SMALLEST))
            if odd.any():
                first = int(odd.argmax())
                raise DataError(
                    f"the weight of row {start + first} (from 0) is {weights[first]}, and weights are from "
                    f"{SMALLEST:g} to {LARGEST:g}, or 0: multiply all of them by one number"
                )
            total += float(weights.sum())
        if not total:
            raise DataError(NO_WEIGHT)
        return total

    def read_bytes(self, rows: int) -> int:
        """Bytes of memory that reading the weights of ``rows`` consecutive rows takes."""
        return self.source.read_bytes(rows, 1) + rows * (self.source.dtype.itemsize + 3 * 8)


NO_WEIGHT = "all rows are of weight zero: give a weight above zero to those that count"


def require_weights(weights: Float64, start: int) -> None:
    """Raise ``DataError`` for weights that are negative or not finite; the first is that of row ``start``."""
    bad = ~((weights >= 0) & (weights < np.inf))
    if bad.any():
        first = int(bad.argmax())
        raise DataError(
            f"the weight of row {start + first} (from 0) is {weights[first]}. A weight is a finite "
            "number of at least 0, and 0 leaves a row out: replace it, and run again."
        )


def open_row_weights(value: object, source: Source, argument: str) -> Source:
    """Open weights of the m rows of ``source`` as a matrix (m, 1), from m numbers or a matrix of one column.

    Raises
    ------
    InputError
        They are complex, not one for each row, or those of other rows by their names. ``argument`` is their
        name in messages.
    """
    if isinstance(value, str | os.PathLike) and str(value).endswith(".npy"):
        value = map_npy(value) if is_regular(value) else value
    if hasattr(value, "to_frame"):  # a series of pandas or polars
        value = cast(Any, value).to_frame()
    if not isinstance(value, str | os.PathLike | Source) and np.ndim(cast(Any, value)) == 1:
        value = np.array(value).reshape(-1, 1)
    weights, rows = open_source(value), source.shape[0]
    require_real(argument, weights.dtype)
    if weights.shape != (rows, 1):
        raise InputError(
            f"{argument} are {weights.shape[0]} x {weights.shape[1]}, but {source.name} has {rows} rows: "
            "give one number for each"
        )
    require_same_rows(weights, source)
    return weights
