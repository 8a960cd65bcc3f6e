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

    def sums(self) -> dict[str, Sum]:
        """What a stream keeps; joined by ``join``, since an array cannot be joined without the others."""
        shape = (self.count,)
        return {
            "keys": Sum(shape, empty=self._no_keys),
            "ids": Sum(shape, np.dtype(np.int64), self._no_ids),
            "rows": Sum((self.count, self.columns), self.dtype),
        }

    def _no_keys(self) -> Float64:
        return np.full(self.count, np.inf)

    def _no_ids(self) -> Int64:
        return np.full(self.count, NOBODY)

    def take(self, state: State, keys: Float64, first: int, x: Array) -> None:
        """Keep of rows ``x``, numbered from ``first`` on, those whose keys are small enough."""
        some = np.flatnonzero(keys <= state["keys"][-1])
        if some.size:
            # Most of a first grain is let go again before its rows are copied.
            some = some[np.argsort(keys[some], kind="stable")[: self.count]]
            self._join(state, keys[some], some + first, x[some])

    def join(self, total: State, other: State) -> None:
        """Keep what another stream has kept, if it is smaller."""
        self._join(total, other["keys"], other["ids"], other["rows"])

    def _join(self, state: State, keys: Float64, ids: Int64, rows: Array) -> None:
        all_keys, all_ids = np.concatenate([state["keys"], keys]), np.concatenate([state["ids"], ids])
        order = np.lexsort((all_ids, all_keys))[: self.count]
        own = order < self.count
        kept = np.empty_like(state["rows"])
        kept[own] = state["rows"][order[own]]
        kept[~own] = rows[order[~own] - self.count]
        state["keys"], state["ids"], state["rows"] = all_keys[order], all_ids[order], kept


def held(state: State) -> tuple[Float64, Int64, Array]:
    """Keys, numbers and rows that were kept, in order of their keys."""
    count = int((state["ids"] != NOBODY).sum())
    return state["keys"][:count], state["ids"][:count], state["rows"][:count]


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
