"""Rows in the leading directions of a sample: short products that bound distances, where this saves time.

Rows of images, of counts or of measurements lie near few directions. There a product of r + 1 numbers rules
out nearly all pairs, and the rest are measured: see ``kernels/neighbors/bounds.py``. The number of directions
is the one that costs least on pairs of the sample. It decides the time of a search, and nothing else.
"""

from __future__ import annotations

import math
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
"""Most rows of the sample, and the places that they are read at."""

SAMPLE_QUERIES = 192
"""Rows of the sample that are compared with all of it."""

DIRECTIONS = (12, 16, 24, 32, 48, 64, 96, 128, 192)
"""Numbers of directions that are tried."""

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


def choose_basis(source: Source, metric: int, shift: Float64 | None, k: int, pairs: float) -> Float64 | None:
    """Orthonormal directions (columns, r) for a search of ``k`` neighbors among ``pairs`` pairs of rows.

    The number of directions is that of least cost on pairs of a sample. None if it is more than ``WORTH_IT``
    of the cost of whole rows, or if the search is too short for a sample.
    """
    rows, columns = source.shape
    if columns < FEWEST_COLUMNS or 2 * columns * pairs < WORTH_FLOPS:
        return None
    places, view = min(PLACES, rows), View(source, Orientation.ROWS)
    x = Sample(view, places, min(SAMPLE_ROWS, rows) // places, gives_block=False).read().astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        if metric == Metric.COSINE:
            norms = np.sqrt(np.einsum("ij,ij->i", x, x))[:, None]
            x = np.divide(x, norms, out=np.zeros_like(x), where=norms > 0)
        elif shift is not None:
            x -= shift
        if not np.isfinite(np.einsum("ij,ij->", x, x)):
            return None
    basis = _leading_directions(x, min(DIRECTIONS[-1], columns - 1))
    costs = _costs(x, basis, max(1, min(len(x) - 1, math.ceil(k * len(x) / rows))), metric)
    best = min(costs, key=costs.__getitem__, default=0)
    whole = columns + PAIR_COST + WHOLE_LIST_COST / rows
    is_worth_it = best > 0 and costs[best] + LIST_COST / rows < WORTH_IT * whole
    return np.ascontiguousarray(basis[:, :best]) if is_worth_it else None


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


def _costs(x: Float64, basis: Float64, known: int, metric: int) -> dict[int, float]:
    """Cost of a pair of rows by number of directions, in columns of a product.

    It is that of its bound, and of its distance where the bound is below the limit of some sampled rows
    (queries): the distance of the ``known``-th of their nearest rows in the sample.
    """
    queries = np.linspace(0, len(x) - 1, min(SAMPLE_QUERIES, len(x))).astype(np.intp)
    norms = np.zeros(len(x)) if metric == Metric.INNER_PRODUCT else np.einsum("ij,ij->i", x, x) / 2
    terms = norms[queries, None] + norms
    exact = terms - x[queries] @ x.T
    exact[np.arange(len(queries)), queries] = np.inf
    limits = np.partition(exact, known - 1, axis=1)[:, known - 1, None]
    costs = dict[int, float]()
    for count in DIRECTIONS:
        if count > basis.shape[1]:
            break
        z = np.empty((len(x), count + 1), np.float32)
        project(x, basis[:, :count], z)
        measured = float((terms - z[queries] @ z.T <= limits).mean())
        costs[count] = count + 1 + PAIR_COST + measured * DISTANCE_COST * x.shape[1]
        if costs[count] > 1.5 * min(costs.values()):
            break
    return costs


def project(x: Float64, basis: Float64, out: Float32) -> None:
    """Write the coordinates of rows x (m, n) in the directions ``basis`` (n, r), and the length of the rest.

    ``out`` is (m, r + 1). The last column is never less than the length.
    """
    z = x @ basis
    squares = np.einsum("ij,ij->i", x, x)
    rest = np.maximum(squares - np.einsum("ij,ij->i", z, z), 0.0)
    rest += 8 * x.shape[1] * np.finfo(np.float64).eps * squares
    out[:, :-1] = z
    out[:, -1] = np.sqrt(rest) * (1 + 2.0**-22)
