"""Local radii of rows: the logarithm of the mean squared distance to neighbors, weighted by a graph.

Edges arrive in order of rows, so that sums of a chunk of rows are written as soon as a later row arrives.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.parts.outputs import create_output
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.result import Result

Array = npt.NDArray[Any]

RADII = "radius_data"

LEAST = 1e-8
"""Added to mean squared distances, in units of ``distance_unit``, since these are 0 for equal rows."""

PLAIN = (2.0**-10, 2.0**60)
"""Range of mean distances whose squares are far above ``LEAST``, and in the range of float32."""

CHUNK_ROWS = 2**17
"""Number of rows whose sums are in memory, and rows of a chunk."""


def distance_unit(mean: float) -> float:
    """Power of two used as unit of distances, so that radii are right for distances of any size.

    >>> distance_unit(3.0), distance_unit(0.0), distance_unit(3 * 2.0**-300) == 2.0**-299
    (1.0, 1.0, True)
    """
    if mean == 0 or PLAIN[0] <= mean <= PLAIN[1]:
        return 1.0
    return math.ldexp(1.0, math.frexp(mean)[1] - 1)


def log_radii(squares: Array, weights: Array) -> npt.NDArray[np.float64]:
    """Radii from sums of weighted squares and of weights, each (m,); NaN where weights are 0."""
    means = np.divide(squares, weights, out=np.full(len(weights), np.nan), where=weights > 0)
    radii: npt.NDArray[np.float64] = np.log(LEAST + means)
    return radii


def copy_radii(stored: Result, result: Path) -> None:
    """Copy radii from one result to another, chunk by chunk."""
    rows = stored[RADII].shape[0]
    path = create_output(result, RADII, (rows,), np.float32, (min(rows, CHUNK_ROWS),))
    for top in range(0, rows, CHUNK_ROWS):
        bottom = min(rows, top + CHUNK_ROWS)
        write_whole_chunks(path, np.asarray(stored[RADII][top:bottom]), (top, bottom))


class RadiusWriter:
    """Computes local radii from edges, added in order of rows, and writes them into a result."""

    def __init__(self, result: Path, rows: int, unit: float) -> None:
        self.rows, self.top = rows, 0
        self.path = create_output(result, RADII, (rows,), np.float32, (min(rows, CHUNK_ROWS),))
        self.sums, self.log_unit = np.zeros((2, CHUNK_ROWS)), math.log(unit)

    def append(self, rows: Array, weights: Array, distances: Array) -> None:
        """Add edges with their row, weight and distance, each (edges,), in order of rows.

        Distances are in units of ``unit``. A row may continue in the next call.
        """
        shares = weights.astype(np.float64)
        squares = shares * distances.astype(np.float64) ** 2
        while len(rows):
            cut = int(np.searchsorted(rows, self.top + CHUNK_ROWS))
            for sums, values in zip(self.sums, (squares, shares), strict=True):
                sums += np.bincount(rows[:cut] - self.top, values[:cut], CHUNK_ROWS)
            rows, squares, shares = rows[cut:], squares[cut:], shares[cut:]
            if len(rows):
                self._write()

    def finish(self) -> None:
        """Write radii of all remaining rows."""
        while self.top < self.rows:
            self._write()

    def _write(self) -> None:
        bottom = min(self.rows, self.top + CHUNK_ROWS)
        radii = log_radii(*self.sums)[: bottom - self.top] + 2 * self.log_unit
        write_whole_chunks(self.path, radii.astype(np.float32), (self.top, bottom))
        self.top = bottom
        self.sums[:] = 0
