"""Gaussian matrices whose every row is a function of (seed, purpose, row index) alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel, portable

TILE_ROWS = 1024


@portable
@kernel
def gaussian_rows(seed: int, purpose: int, rows: tuple[int, int], columns: int) -> npt.NDArray[np.float64]:
    """Rows ``rows[0]:rows[1]`` of an endless standard normal matrix.

    Parameters
    ----------
    seed, purpose : int, 0 <= value < 2**64
        Key of the counter-based generator.
    rows : (start, stop)
    columns : int
        Part of the definition: another width is another matrix.

    Returns
    -------
    (stop - start, columns) float64

    Notes
    -----
    About 20 ns a number, whole tiles of 1024 rows at a time: the ziggurat takes a varying number of
    draws, so a row inside a tile cannot be reached by advancing the counter.

    References
    ----------
    Salmon, Moraes, Dror, Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011 (Philox).
    """
    start, stop = rows
    out = np.empty((stop - start, columns))
    for tile in range(start // TILE_ROWS, -(-stop // TILE_ROWS)):
        bits = np.random.Philox(key=np.array([seed, purpose], np.uint64), counter=[0, 0, 0, tile])
        numbers = np.random.Generator(bits).standard_normal((TILE_ROWS, columns))
        first, last = max(start, tile * TILE_ROWS), min(stop, (tile + 1) * TILE_ROWS)
        out[first - start : last - start] = numbers[first - tile * TILE_ROWS : last - tile * TILE_ROWS]
    return out
