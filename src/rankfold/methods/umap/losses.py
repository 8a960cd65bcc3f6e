"""Losses of a layout: how well it keeps joined vertices together, and others apart.

Both are parts of the cross entropy that a layout lowers. ``phi = 1 / (1 + a d^(2 b))`` is how much two
vertices belong together where they lie: the loss of edges is the mean of ``-log(phi)`` by weight, and that of
other pairs the mean of ``-log(1 - phi)``, over one random vertex for each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.random_keys import Purpose
from rankfold.methods.umap.edges import PullingEdges

Float32 = npt.NDArray[np.float32]

BLOCK = 2**16
"""Pairs processed at a time."""

NEAREST = 1e-3
"""Least squared distance of a pair, which replaces smaller ones, as in the repulsion."""


def edge_loss(positions: Float32, edges: PullingEdges, a: float, b: float) -> tuple[float, int]:
    """Loss of edges, 0 if there are none, and the number of those that pull; the edges are read once more."""
    total = weights = 0.0
    count = 0
    for rows, neighbors, phases in edges.some_at_a_time(BLOCK):
        shares = phases.astype(np.float64)
        total += float(shares @ np.log1p(a * squared_distances(positions, rows, neighbors) ** b))
        weights += float(shares.sum())
        count += len(rows)
    return total / weights if weights else 0.0, count


def pair_loss(positions: Float32, a: float, b: float, seed: int) -> float:
    """Mean of ``-log(1 - phi)`` over pairs of each vertex and a random other one."""
    count, total = len(positions), 0.0
    key = np.array([seed, Purpose.LAYOUT_PAIRS], np.uint64)
    for block, start in enumerate(range(0, count, BLOCK)):
        rows = np.arange(start, min(count, start + BLOCK))
        bits = np.random.Philox(key=key, counter=[0, 0, 0, block])
        steps = np.random.Generator(bits).integers(1, max(2, count), BLOCK)[: len(rows)]
        power = a * np.maximum(squared_distances(positions, rows, (rows + steps) % count), NEAREST) ** b
        total += float((np.log1p(power) - np.log(power)).sum())
    return total / count


def squared_distances(positions: Float32, rows: Any, others: Any) -> npt.NDArray[np.float64]:
    """Squared distances of pairs of vertices, (m,) float64."""
    difference = positions[rows].astype(np.float64) - positions[others]
    squares: npt.NDArray[np.float64] = (difference * difference).sum(axis=1)
    return squares
