"""Rows in the leading directions of a sample: short products that bound distances, where this saves time.

Rows of images, of counts or of measurements lie near few directions. There a product of r + 1 numbers rules
out nearly all pairs, and the rest are measured: see ``kernels/neighbors/bounds.py``. The number of directions
is the one that costs least on pairs of the sample. It decides the time of a search, and nothing else.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import Metric
from rankfold.methods.parts.sample import Sample
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation, View

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

FEWEST_COLUMNS = 48
"""Rows shorter than this are compared whole: a product takes hardly longer than its bounds."""

WORTH_FLOPS = 1e11
"""Floating-point operations of a search from which on a sample is worth reading."""

SAMPLE_ROWS, PLACES = 1024, 64
"""Largest number of rows of the sample, and of places that they are read at."""

SAMPLE_NUMBERS = 2**20
"""Largest number of numbers of the sample: what is made of it takes less than the copies of whole rows that a
plan has and projected rows leave free."""

FEWEST_ROWS = 128
"""Least number of rows of a sample that tells directions."""

SAMPLE_QUERIES = 192
"""Rows of the sample that are compared with all of it."""

NUMBERS = (12, 16, 24, 32, 48, 64, 96, 128)
"""Numbers of directions that are tried."""

MORE = 3
"""Directions by which distances are bounded closer, for each that is multiplied."""

CLOSER_COST = 220.0
"""Columns of a distance that take as long as what bounding it closer takes besides its columns."""

PAIR_COST = 25.0
"""Columns of a product that take as long as testing the bound of a pair."""

DISTANCE_COST = 9.0
"""Columns of a product that take as long as a column of a distance: its rows lie apart in memory, and there
are twice as many as in the end, since limits fall along a search."""

WHOLE_LIST_COST, LIST_COST = 1.5e6, 4e6
"""Columns of a product, times rows, that take as long as filling the lists of rows: by products of whole
rows, and by others, which measure more pairs before limits have fallen."""

WORTH_IT = 0.8
"""Share of the cost of whole rows below which directions are taken."""


@dataclass(frozen=True, slots=True)
class Directions:
    """Orthonormal directions of rows: few whose products bound distances, and more that bound them closer."""

    basis: Float64
    """(n, directions), those of largest sums of squares first."""

    multiplied: int
    """Number of the first directions, in which rows are multiplied."""

    @property
    def leading(self) -> int:
        """Columns of projected rows that are multiplied: coordinates, and the length of the rest."""
        return self.multiplied + 1

    @property
    def columns(self) -> int:
        """Columns of projected rows; if there are more directions than are multiplied, their rest as well."""
        more = self.basis.shape[1] - self.multiplied
        return self.leading + (more + 1 if more else 0)

    def project(self, x: Float64, out: Float32) -> None:
        """Write coordinates of rows ``x`` (m, n), and lengths of what these leave, to ``out`` (m, columns).

        Coordinates that are multiplied come first, then the length of what they leave, then the others, and
        the length of what all leave. A length is never less than the true one.
        """
        z = x @ self.basis
        squares = np.einsum("ij,ij->i", x, x)
        margin = 8 * x.shape[1] * np.finfo(np.float64).eps * squares
        top = 0
        for first, last in itertools.pairwise(sorted({0, self.multiplied, z.shape[1]})):
            out[:, top : top + last - first] = z[:, first:last]
            rest = np.maximum(squares - np.einsum("ij,ij->i", z[:, :last], z[:, :last]), 0.0)
            top += last - first + 1
            out[:, top - 1] = np.sqrt(rest + margin) * (1 + 2.0**-22)


def choose_directions(
    source: Source, metric: int, shift: Float64 | None, k: int, pairs: float
) -> Directions | None:
    """Directions for a search of ``k`` neighbors among ``pairs`` pairs of rows, by their cost on a sample.

    None if it is more than ``WORTH_IT`` of that of whole rows, or if the search is too short for a sample.
    """
    rows, columns = source.shape
    if columns < FEWEST_COLUMNS or 2 * columns * pairs < WORTH_FLOPS:
        return None
    sampled = min(SAMPLE_ROWS, SAMPLE_NUMBERS // columns, rows)
    if sampled < FEWEST_ROWS:
        return None
    places, view = min(PLACES, sampled), View(source, Orientation.ROWS)
    x = Sample(view, places, sampled // places, gives_block=False).read().astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        if metric == Metric.COSINE:
            norms = np.sqrt(np.einsum("ij,ij->i", x, x))[:, None]
            x = np.divide(x, norms, out=np.zeros_like(x), where=norms > 0)
        elif shift is not None:
            x -= shift
        if not np.isfinite(np.einsum("ij,ij->", x, x)):
            return None
    basis = _leading_directions(x, min(MORE * NUMBERS[-1], columns - 1, len(x) // 2))
    costs = _costs(x, basis, max(1, min(len(x) - 1, math.ceil(k * len(x) / rows))), metric)
    best = min(costs, key=costs.__getitem__, default=None)
    whole = columns + PAIR_COST + WHOLE_LIST_COST / rows
    if best is None or costs[best] + LIST_COST / rows > WORTH_IT * whole:
        return None
    return Directions(np.ascontiguousarray(basis[:, : best[1]]), best[0])


def _leading_directions(x: Float64, count: int) -> Float64:
    """Orthonormal directions (columns, count) of the largest sums of squares of rows about their mean."""
    centered = x - x.mean(axis=0)
    if len(x) < x.shape[1]:
        values, vectors = np.linalg.eigh(centered @ centered.T)
        kept = np.flatnonzero(values > values[-1] * len(x) * np.finfo(np.float64).eps)[::-1][:count]
        found = np.linalg.qr(centered.T @ vectors[:, kept])[0]
    else:
        found = np.linalg.eigh(centered.T @ centered)[1][:, ::-1][:, :count]
    return np.asarray(found)


def _costs(x: Float64, basis: Float64, known: int, metric: int) -> dict[tuple[int, int], float]:
    """Cost of a pair of rows, in columns of a product, by number of directions multiplied, and of all.

    It is that of its bound, and of its distance where the bound is below the limit of some sampled rows
    (queries): the distance of the ``known``-th of their nearest rows in the sample.
    """
    queries = np.linspace(0, len(x) - 1, min(SAMPLE_QUERIES, len(x))).astype(np.intp)
    norms = np.zeros(len(x)) if metric == Metric.INNER_PRODUCT else np.einsum("ij,ij->i", x, x) / 2
    terms = norms[queries, None] + norms
    exact = terms - x[queries] @ x.T
    exact[np.arange(len(queries)), queries] = np.inf
    limits = np.partition(exact, known - 1, axis=1)[:, known - 1, None]

    z = x @ basis
    lengths = np.sqrt(np.maximum(np.einsum("ij,ij->i", x, x)[:, None] - np.cumsum(z * z, axis=1), 0.0))

    @functools.cache
    def below(count: int) -> float:
        """Share of pairs whose bound in that many directions is below the limit."""
        short = np.hstack([z[:, :count], lengths[:, count - 1 : count]])
        return float((terms - short[queries] @ short.T <= limits).mean())

    costs = dict[tuple[int, int], float]()
    columns = x.shape[1]
    for count in NUMBERS:
        if count > basis.shape[1]:
            break
        first = count + 1 + PAIR_COST
        costs[count, count] = first + below(count) * DISTANCE_COST * columns
        more = MORE * count
        if more + 2 <= columns / 2 and more <= basis.shape[1]:
            shorter = below(count) * DISTANCE_COST * (more - count + CLOSER_COST)
            costs[count, more] = first + shorter + below(more) * DISTANCE_COST * columns
    return costs
