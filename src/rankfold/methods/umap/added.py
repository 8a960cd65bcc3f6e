"""Where rows begin that are added to a layout: among their neighbors, whichever of them have places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.fuzzy_graph.stored_rows import StoredRows, row_spans
from rankfold.methods.umap.start import a_little_apart

Float32 = npt.NDArray[np.float32]


def place_added(first: Float32, anywhere: Float32, graph: Path, seed: int) -> Float32:
    """First positions of all rows, of which the first have some.

    A row has the mean of its neighbors that have places, by weight; one whose neighbors have none waits until
    they do, and one that no edges lead to from there is anywhere.

    Parameters
    ----------
    first : (n, d) float32
        Positions of the first rows.
    anywhere : (m, d) float32, n < m
        Of all rows, where there is nothing better; those of the first are overwritten.
    graph : Path
        The graph of all rows, which is read once for each edge that the longest wait takes.
    seed : int
        Key of what keeps rows apart that have the same neighbors.
    """
    positions, rows = anywhere, len(anywhere)
    positions[: len(first)] = first
    placed = np.arange(rows) < len(first)
    stored, noise = StoredRows(graph), a_little_apart(seed, (len(first), rows), first.shape[1])
    while True:
        found: list[tuple[Any, Any]] = []
        for top, bottom in row_spans([stored]):
            if placed[top:bottom].all():
                continue
            edges = stored.between(top, bottom)
            leads = ~placed[edges.rows] & placed[edges.columns]
            own, weights = edges.rows[leads] - top, edges.weights[leads].astype(np.float64)
            total = np.bincount(own, weights, bottom - top)
            some = np.flatnonzero(total > 0)
            ends = positions[edges.columns[leads]].astype(np.float64)
            sums = [np.bincount(own, weights * end, bottom - top)[some] for end in ends.T]
            found.append((some + top, np.stack(sums, axis=1) / total[some, None]))
        new = np.concatenate([each for each, _ in found]) if found else np.empty(0, np.int64)
        if not len(new):
            return positions
        positions[new] = np.concatenate([means for _, means in found]) + noise[new - len(first)]
        placed[new] = True
