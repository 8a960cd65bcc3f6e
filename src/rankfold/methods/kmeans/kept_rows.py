"""Rows that a sweep keeps: those of the smallest keys, and of equal keys the first.

Which they are depends on keys and numbers of rows alone, so that any cut of the matrix keeps the same. With
exponential keys over weights, ``-log(u) / w``, they are a sample without replacement in which a row is
likely by its weight, whatever the sum of all weights is: one read draws it.

References
----------
Efraimidis, Spirakis, Weighted random sampling with a reservoir, Information Processing Letters 97(5), 2006:
algorithm A, by logarithms. Cohen, Kaplan, Summarizing data using bottom-k sketches, PODC 2007: the next key
after those kept tells how likely each was, from which weights of an unbiased estimate follow.
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
"""Number of a row that is not there."""

TILE_ROWS = 1024


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Room for some rows."""

    count: int
    columns: int
    dtype: np.dtype[Any]
    name: str = "kept"
    """What tells it from another of the same sweep."""

    @property
    def names(self) -> tuple[str, str, str]:
        """Of keys, numbers of rows, and rows, in a state."""
        return f"{self.name}_keys", f"{self.name}_ids", f"{self.name}_rows"

    def sums(self) -> dict[str, Sum]:
        """What a stream keeps; joined by ``join``, since an array cannot be joined without the others."""
        shape = (self.count,)
        keys = Sum(shape, empty=self._no_keys)
        ids = Sum(shape, np.dtype(np.int64), self._no_ids)
        return dict(zip(self.names, (keys, ids, Sum((self.count, self.columns), self.dtype)), strict=True))

    def _no_keys(self) -> Float64:
        return np.full(self.count, np.inf)

    def _no_ids(self) -> Int64:
        return np.full(self.count, NOBODY)

    def take(self, state: State, keys: Float64, first: int, x: Array) -> None:
        """Keep of rows ``x``, numbered from ``first`` on, those whose keys are small enough."""
        some = np.flatnonzero(keys <= state[self.names[0]][-1])
        if some.size:
            # Most of a first grain is let go again before its rows are copied.
            some = some[np.argsort(keys[some], kind="stable")[: self.count]]
            self._join(state, keys[some], some + first, x[some])

    def join(self, total: State, other: State) -> None:
        """Keep what another stream has kept, if it is smaller."""
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
        """Keys, numbers and rows that were kept, in order of their keys."""
        keys, ids, rows = (state[name] for name in self.names)
        count = int((ids != NOBODY).sum())
        return keys[:count], ids[:count], rows[:count]


def exponentials(seed: int, purpose: int, start: int, stop: int) -> Float64:
    """(stop - start,) exponential random numbers, each a function of (seed, purpose, row) alone.

    Whole tiles of 1024 rows are drawn at a time, as by ``gaussian_rows``.
    """
    out = np.empty(stop - start)
    for tile in range(start // TILE_ROWS, -(-stop // TILE_ROWS)):
        bits = np.random.Philox(key=np.array([seed, purpose], np.uint64), counter=[0, 0, 0, tile])
        numbers = -np.log1p(-np.random.Generator(bits).random(TILE_ROWS))
        first, last = max(start, tile * TILE_ROWS), min(stop, (tile + 1) * TILE_ROWS)
        out[first - start : last - start] = numbers[first - tile * TILE_ROWS : last - tile * TILE_ROWS]
    return out
