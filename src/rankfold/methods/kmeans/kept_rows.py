"""Rows that a pass over a matrix keeps: those with the smallest keys, and of equal keys the first.

The choice depends only on keys and row numbers, so that any cut of the matrix keeps the same rows. With
exponential keys over weights, ``-log(u) / w``, they are a weighted sample without replacement, drawn in one
read without knowing the sum of all weights.

References
----------
Efraimidis, Spirakis, Weighted random sampling with a reservoir, Information Processing Letters 97(5), 2006:
algorithm A, by logarithms. Cohen, Kaplan, Summarizing data using bottom-k sketches, PODC 2007: the next key
after those kept gives the inclusion probabilities, and these give weights of an unbiased estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.engine.fold import Sum
from rankfold.pipeline.storage.checkpoint import State

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

NOBODY = np.iinfo(np.int64).max
"""Row number that stands for no row, where fewer rows were kept than there is storage for."""

TILE_ROWS = 1024


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Storage for the ``count`` rows with the smallest keys, with these keys and the row numbers.

    The arrays are among the sums that a pass over the matrix accumulates, its ``State``.
    """

    count: int
    columns: int
    dtype: np.dtype[Any]
    name: str = "kept"
    """Prefix of the names of the three arrays, unique among the sums of a pass."""

    @property
    def names(self) -> tuple[str, str, str]:
        """Names, in a state, of the arrays of keys, row numbers, and rows."""
        return f"{self.name}_keys", f"{self.name}_ids", f"{self.name}_rows"

    def sums(self) -> dict[str, Sum]:
        """Arrays to accumulate, by name: keys (count,), row numbers (count,), and rows (count, columns).

        ``join`` merges those of two states, since each array depends on the others.
        """
        shape = (self.count,)
        keys = Sum(shape, empty=self._no_keys)
        ids = Sum(shape, np.dtype(np.int64), self._no_ids)
        return dict(zip(self.names, (keys, ids, Sum((self.count, self.columns), self.dtype)), strict=True))

    def _no_keys(self) -> Float64:
        return np.full(self.count, np.inf)

    def _no_ids(self) -> Int64:
        return np.full(self.count, NOBODY)

    def take(self, state: State, keys: Float64, first: int, x: Array) -> None:
        """Keep those of rows ``x``, numbered from ``first`` on, whose keys (r,) are among the smallest."""
        some = np.flatnonzero(keys <= state[self.names[0]][-1])
        if some.size:
            # Most rows of a first grain are dropped before they are copied.
            some = some[np.argsort(keys[some], kind="stable")[: self.count]]
            self._join(state, keys[some], some + first, x[some])

    def join(self, total: State, other: State) -> None:
        """Merge the kept rows of another state, from other rows of the matrix, into ``total``."""
        keys, ids, rows = (other[name] for name in self.names)
        self._join(total, keys, ids, rows)

    def _join(self, state: State, keys: Float64, ids: Int64, rows: Array) -> None:
        own_keys, own_ids, own_rows = (state[name] for name in self.names)
        all_keys, all_ids = np.concatenate([own_keys, keys]), np.concatenate([own_ids, ids])
        order = np.lexsort((all_ids, all_keys))[: self.count]
        own = order < self.count
        kept = np.empty_like(own_rows)
        kept[own] = own_rows[order[own]]
        kept[~own] = rows[order[~own] - self.count]
        state |= zip(self.names, (all_keys[order], all_ids[order], kept), strict=True)

    def held(self, state: State) -> tuple[Float64, Int64, Array]:
        """Kept keys (c,), row numbers (c,) and rows (c, columns), ordered by key; c is at most ``count``."""
        keys, ids, rows = (state[name] for name in self.names)
        count = int((ids != NOBODY).sum())
        return keys[:count], ids[:count], rows[:count]


def exponentials(seed: int, purpose: int, start: int, stop: int) -> Float64:
    """(stop - start,) exponential random numbers, each a function of only (seed, purpose, row).

    Whole tiles of 1024 rows are drawn at a time, as by ``gaussian_rows``.
    """
    out = np.empty(stop - start)
    for tile in range(start // TILE_ROWS, -(-stop // TILE_ROWS)):
        bits = np.random.Philox(key=np.array([seed, purpose], np.uint64), counter=[0, 0, 0, tile])
        numbers = -np.log1p(-np.random.Generator(bits).random(TILE_ROWS))
        first, last = max(start, tile * TILE_ROWS), min(stop, (tile + 1) * TILE_ROWS)
        out[first - start : last - start] = numbers[first - tile * TILE_ROWS : last - tile * TILE_ROWS]
    return out
