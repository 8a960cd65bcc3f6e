"""Scales and exponents of rows, for which each row has an edge of weight 1 and all have one sum of weights.

References
----------
McInnes, Healy, Melville, UMAP, arXiv:1802.03426, section 3.1; ``reset_local_connectivity`` of umap-learn 0.5.
The same bisection steps are made, since the result depends on where the search for an exponent stops: at a
sum within 1e-5 of its target.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rankfold.methods.fuzzy_graph.stored_rows import Edges

Float64 = npt.NDArray[np.float64]
Float32 = npt.NDArray[np.float32]

NEIGHBORHOOD = np.log2(15)
"""Target sum of the weights of a row."""

STEPS = 32
"""Steps of bisection for an exponent."""

CLOSE = 1e-5


@dataclass(frozen=True, slots=True)
class RowScales:
    """Scales of rows: from its row i, an edge of weight w has ``(w / strongest[i]) ** exponents[i]``."""

    strongest: Float32
    exponents: Float64 | None
    """(rows,) exponents; None if all are 1."""

    @classmethod
    def ones(cls, rows: int, *, resized: bool) -> RowScales:
        """Initial scales, before ``measure``; exponents are all 1, and stay so unless ``resized``."""
        return cls(np.zeros(rows, np.float32), np.ones(rows) if resized else None)

    def measure(self, edges: Edges) -> None:
        """Set the strongest weight and the exponent of some rows, from all of their edges, in place."""
        if not len(edges.rows):
            return
        rows, starts = np.unique(edges.rows, return_index=True)
        weights = edges.weights.astype(np.float32)
        self.strongest[rows] = np.maximum.reduceat(weights, starts)
        if self.exponents is not None:
            counts = np.diff(np.append(starts, len(weights)))
            relative = weights / np.repeat(self._above_zero(rows), counts)
            self.exponents[rows] = _exponents(relative.astype(np.float64), counts)

    def union(self, edges: Edges) -> Float32:
        """Fuzzy union ``a + b - a b`` of the weights of edges from both rows."""
        own, their = self._at(edges.rows, edges.weights), self._at(edges.columns, edges.weights)
        return own + their - own * their

    def _at(self, rows: npt.NDArray[np.int64], weights: npt.NDArray[np.floating]) -> Float32:
        relative = weights.astype(np.float32) / self._above_zero(rows)
        if self.exponents is None:
            return relative
        return (relative.astype(np.float64) ** self.exponents[rows]).astype(np.float32)

    def _above_zero(self, rows: npt.NDArray[np.int64]) -> Float32:
        strongest = self.strongest[rows]
        return np.where(strongest > 0, strongest, np.float32(1))


def _exponents(values: Float64, counts: npt.NDArray[np.int64]) -> Float64:
    """(rows,) exponents for which weights of a row sum to ``NEIGHBORHOOD``, as far as bisection gets.

    ``values`` (edges,) are relative weights, row after row; ``counts`` (rows,) are edges of each row.
    """
    low, high = np.zeros(len(counts)), np.full(len(counts), np.inf)
    middle, still = np.ones(len(counts)), np.arange(len(counts))
    for _ in range(STEPS):
        starts = np.concatenate([[0], np.cumsum(counts[still])[:-1]])
        total = np.add.reduceat(values ** np.repeat(middle[still], counts[still]), starts)
        open_ = np.abs(total - NEIGHBORHOOD) >= CLOSE
        values, still, total = values[np.repeat(open_, counts[still])], still[open_], total[open_]
        if not len(still):
            break
        few, many = still[total < NEIGHBORHOOD], still[total >= NEIGHBORHOOD]
        high[few], low[many] = middle[few], middle[many]
        bounded = np.isfinite(high[still])
        middle[still] = np.where(bounded, (low[still] + high[still]) / 2, 2 * middle[still])
    return middle
