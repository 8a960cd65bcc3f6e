"""Forces that keep rows apart in a layout that are apart in the data, and rows together that are near.

The local radius of a row is the logarithm of the mean squared distance to its neighbors: in the data by their
weights, in the layout by closeness ``phi = 1 / (1 + a d^(2 b))``. The forces are the gradient of the
correlation of both over all rows, which is a sum over edges. With R the radius in the data, less its mean and
divided by its deviation, and r that in the layout, of variance v, the correlation rises with r of a row by

    w = (R - cov(r, R) (r - mean(r)) / v) / (sqrt(v) m)

and r with the squared length s of an edge by ``phi / sum(phi) ((1 - b (1 - phi)) / exp(r) - phi' / phi)``.
The force along an edge adds the terms of both of its ends, divided by the share of epochs in which it pulls.

Radii of a vertex are measured as it moves, and all other vertices use them from then on: every move depends
on positions and radii alone, whichever process makes it.

References
----------
Narayan, Berger, Cho, Assessing single-cell transcriptomic variability through density-preserving data
visualization, Nature Biotechnology 39, 2021: densMAP. umap-learn is followed in that each direction of an
edge counts one half of ``sum(phi)``, so that weights mean the same. Unlike there, radii are measured for each
vertex as it moves, and not for all at the beginning of an epoch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.layout.forces import Density, closeness_of
from rankfold.methods.fuzzy_graph.fuzzy_graph import LEAST, RADII, copy_radii, log_radii
from rankfold.methods.parts.outputs import create_output
from rankfold.methods.umap.arguments import UmapArguments
from rankfold.methods.umap.edges import BLOCK, PullingEdges, squared_distances
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.result import Result

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

STRONGEST = np.float32(1e12)
"""Limit of the magnitude of factors of density forces, so that all products with them are finite in
float32."""

ROW_BYTES = 128
"""Bytes planned for each row: radii in the data and in the layout, factors of density forces, and copies."""


@dataclass(frozen=True, slots=True)
class DensityGoal:
    """Local radii that a layout is to follow, and parameters of the forces to that end; picklable."""

    graph: Path
    """Path of the result that holds the local radii in the data."""

    weight: float
    shift: float
    first_epoch: int
    """First epoch, from 0 on, with density forces; radii are measured from the one before."""

    turns: float
    """Sum of the weights of the edges that pull, divided by the largest weight of the graph."""

    @classmethod
    def of(cls, graph: Path, edges: PullingEdges, request: UmapArguments) -> DensityGoal | None:
        """Goal of a layout by ``request``; None if its ``density`` is None or 0.

        ``graph`` is the path of the result with the radii. The edges are read once, to sum their weights.
        """
        if not request.density:
            return None
        first = max(1, math.floor(edges.epochs * (1 - request.density_share)))
        turns = sum(int(phases.sum(dtype=np.uint64)) for *_, phases in edges.some_at_a_time(BLOCK))
        return cls(graph, request.density, request.density_shift, first, turns / 2.0**32)


class Densities:
    """Computes density forces during a layout, from the radii that its vertices have by then."""

    def __init__(self, goal: DensityGoal, curve: tuple[float, float]) -> None:
        radii = np.asarray(Result(goal.graph)[RADII][...]).astype(np.float64)
        self.goal, self.is_joined = goal, np.isfinite(radii)
        self.wanted = np.zeros(len(radii))
        self.wanted[self.is_joined] = _standardized(radii[self.is_joined])
        self.closeness, self.slope = closeness_of(*curve), curve[1]

    def now(self, spread: Float32) -> Density:
        """Density forces at present, with factors limited to ``STRONGEST``.

        ``spread`` (n, 2) is the mean squared length of the edges of each vertex, and the sum of their
        closeness.
        """
        pushes = np.zeros((len(spread), 2), np.float32)
        counts = self.is_joined & (spread[:, 1] > 0)
        squares, close = (spread[counts, column].astype(np.float64) for column in (0, 1))
        squares += LEAST
        if len(squares) > 1:
            radii, wanted = np.log(squares), self.wanted[counts]
            radii -= radii.mean()
            variance = float((radii * radii).mean()) + self.goal.shift
            if variance > 0:
                slope = float((radii * wanted).sum()) / (len(radii) - 1) / variance
                scale = self.goal.weight * self.goal.turns / (math.sqrt(variance) * len(radii))
                push = scale * (wanted - slope * radii) / close
                both = np.stack([push / squares, push], axis=1)
                pushes[counts] = np.clip(both, -STRONGEST, STRONGEST)
        return Density(self.closeness, self.slope, pushes)


def _standardized(radii: Float64) -> Float64:
    """(n,) radii less their mean, divided by their standard deviation; all 0 if they do not differ."""
    apart = radii - radii.mean() if len(radii) else radii
    deviation = float(np.sqrt((apart * apart).mean())) if len(radii) else 0.0
    return apart / deviation if deviation > 0 else np.zeros(len(radii))


def require_radii(graph: Result) -> None:
    """Raise ``InputError`` if a graph, the result of fuzzy_graph or the like, has no local radii."""
    if RADII not in graph:
        raise InputError(
            f"{graph.path} says nothing of how far neighbors are, which density is of: make it by "
            "rf.fuzzy_graph(neighbors, radii=True), or give the neighbors themselves"
        )


def write_radii(
    result: Path, graph: Path, positions: Float32, edges: PullingEdges, curve: tuple[float, float], rows: int
) -> dict[str, Any]:
    """Write local radii in the data and in the layout to ``result``; returns facts on their correlation.

    Parameters
    ----------
    result, graph : Path
        Result that is written, and result with the radii in the data, which are copied.
    positions : (n, d) float32
        Positions of all rows in the layout.
    edges : PullingEdges
        Read once.
    curve : tuple of float
        Parameters a and b of the closeness.
    rows : int
        Rows in a chunk of the radii in the layout.
    """
    copy_radii(Result(graph), result)
    of_layout = embedding_radii(positions, edges, *curve)
    path = create_output(result, "radius_embedding", of_layout.shape, np.float32, (rows,))
    write_whole_chunks(path, of_layout.astype(np.float32), (0, len(of_layout)))
    of_data = np.asarray(Result(graph)[RADII][...]).astype(np.float64)
    some = np.isfinite(of_data) & np.isfinite(of_layout)
    one, two = _standardized(of_data[some]), _standardized(of_layout[some])
    if not (one.any() and two.any()):  # radii of one size are correlated with nothing
        return {"density_correlation": None, "density_correlation_error": None}
    correlation = float((one * two).mean())
    error = (1 - correlation**2) / math.sqrt(len(one) - 1)
    return {"density_correlation": correlation, "density_correlation_error": error}


def embedding_radii(positions: Float32, edges: PullingEdges, a: float, b: float) -> Float64:
    """(n,) local radii of all rows in a layout; NaN for rows without edges that pull.

    ``positions`` (n, d) are those of all rows, ``a`` and ``b`` parameters of the closeness. The edges are
    read once.
    """
    sums = np.zeros((2, len(positions)))
    for rows, neighbors, _ in edges.some_at_a_time(BLOCK):
        if len(rows):
            squares = squared_distances(positions, rows, neighbors)
            close = 1 / (1 + a * squares**b)
            own = slice(int(rows[0]), int(rows[-1]) + 1)
            for total, values in zip(sums, (close * squares, close), strict=True):
                total[own] += np.bincount(rows - rows[0], values)
    return log_radii(*sums)
