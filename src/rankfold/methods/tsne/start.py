"""Initial positions, close together: from an array, from a result, or random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.gaussian import gaussian_rows
from rankfold.methods.random_keys import Purpose
from rankfold.methods.umap.start import anywhere, extend_positions

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

WIDTH = 1e-4
"""Standard deviation of the first coordinate of initial positions: so close, all repel each other alike."""

NOISE = 0.01
"""Noise added to given coordinates, as a share of ``WIDTH``: vertices in one place would stay together."""


def start_positions(given: Float64 | None, rows: int, columns: int, seed: int, graph: Path) -> Float32:
    """Initial positions, (rows, columns): each a function of seed, row, and all that are given.

    Rows beyond the given ones begin among their neighbors in the graph.
    """
    noise = gaussian_rows(seed, Purpose.LAYOUT_START, (0, rows), columns)
    if given is None:
        return np.asarray(WIDTH * noise, np.float32)
    places: Any = _unit(given)
    if len(given) < rows:
        placed = extend_positions(places.astype(np.float32), anywhere(rows, columns, seed), graph, seed)
        places = _unit(placed.astype(np.float64))
    return np.asarray(WIDTH * (places + NOISE * noise), np.float32)


def _unit(given: Float64) -> Float64:
    """Positions centered at 0 and scaled: the first coordinate that varies has a standard deviation of 1."""
    largest = float(np.abs(given).max(initial=0.0))
    centered = given / largest if largest > 0 else given.copy()
    centered -= centered.mean(axis=0)
    deviations = centered.std(axis=0)
    varied = deviations > 0
    if varied.any():
        centered /= deviations[varied.argmax()]
    return centered
