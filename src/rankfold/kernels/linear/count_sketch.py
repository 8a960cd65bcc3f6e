"""Sketch a matrix of many rows by few: every row is added, with a random sign, to one of some buckets.

Each right singular vector keeps its singular value up to a factor that depends on the number of buckets
alone, wherever in the matrix the rows are that make it: unlike a sample, a sketch misses none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel, light_kernel, portable

Array = npt.NDArray[Any]

TILE_ROWS = 1024


@portable
@kernel
def draw_buckets(
    seed: int, purpose: int, tile: int, count: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Bucket in ``0 .. count - 1`` and sign of each row of a tile of ``TILE_ROWS``.

    Parameters
    ----------
    seed, purpose : int, 0 <= value < 2**64
        Key of the counter-based generator.
    tile, count : int
        Number of the tile, from 0 on, and number of buckets.

    Returns
    -------
    buckets, signs : (TILE_ROWS,) int64

    References
    ----------
    Salmon, Moraes, Dror, Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011 (Philox).
    """
    bits = np.random.Philox(key=np.array([seed, purpose], np.uint64), counter=[0, 0, 0, tile])
    numbers = np.random.Generator(bits).integers(0, 2 * count, TILE_ROWS)
    return numbers // 2, 2 * (numbers % 2) - 1


def draw_tiles(
    seed: int, purpose: int, count: int, start: int, stop: int
) -> Iterator[tuple[int, int, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Buckets and signs of rows ``start:stop``, tile by tile.

    Yields the first row, one past the last, and the bucket and the sign of each row between them.
    """
    for tile in range(start // TILE_ROWS, -(-stop // TILE_ROWS)):
        top = tile * TILE_ROWS
        low, high = max(start, top), min(stop, top + TILE_ROWS)
        buckets, signs = draw_buckets(seed, purpose, tile, count)
        yield low, high, buckets[low - top : high - top], signs[low - top : high - top]


@portable
@light_kernel
def add_to_buckets(d: Array, buckets: npt.NDArray[np.int64], factors: Array, *, sums: Array) -> None:
    """``sums[buckets[i]] += factors[i] * d[i]`` for every row.

    Parameters
    ----------
    d : (r, s) float32 or float64, C or Fortran order
        Left untouched.
    buckets : (r,) int64
    factors : (r,) of the type of ``d``
        Signs, times a power of two that keeps sums in range.
    sums : (c, s) of the type of ``d``, C order, added to

    Notes
    -----
    Rows are added in order; if columns are contiguous, they are added up on their own first, and then to
    ``sums``. Work 2 r s flops and one read of ``d``; no scratch but, for Fortran order, c numbers (the
    reference body: copies of ``d`` and ``sums``).

    References
    ----------
    Clarkson, Woodruff, Low-rank approximation and regression in input sparsity time, J. ACM 63(6), 2017
    (the CountSketch of Charikar, Chen and Farach-Colton as a subspace embedding).
    """
    by_columns = abs(d.strides[0]) < abs(d.strides[1])
    into = np.zeros_like(sums) if by_columns else sums
    with np.errstate(over="ignore", invalid="ignore"):
        np.add.at(into, buckets, factors[:, None] * d)
        if by_columns:
            sums += into
