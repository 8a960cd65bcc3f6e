"""Nonnegative least squares on a device. See ``kernels/nonnegative/nnls.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from rankfold.kernels.gpu.sources import (
    C_TYPES,
    blocks_of,
    launch,
    row_pitch,
    rows_whole,
    shared_bytes_at_most,
)
from rankfold.kernels.nonnegative.nnls import EXCHANGES, RETRIES, STEPS, ridge_of

Array = Any
PACKAGE = __package__


@dataclass(frozen=True, slots=True)
class Tile:
    """A template instance of ``descend_rows`` in nnls.cu, for rows of up to ``k`` coordinates.

    A group of ``lanes`` threads computes ``rows`` rows; a block has ``threads`` threads.
    """

    k: int
    lanes: int
    rows: int
    threads: int = 128

    @property
    def tile_rows(self) -> int:
        """Number of rows that a block of threads computes."""
        return self.threads // self.lanes * self.rows

    def shared_bytes(self, item: int) -> int:
        """Bytes of shared memory of a block of threads, for arrays with elements of ``item`` bytes.

        The memory holds the Gram matrix, divided among lanes, the rows, and the reciprocals of the diagonal,
        in the layout of nnls.cu.
        """
        pack = 16 // item
        shares = self.k * self.lanes * (self.k // self.lanes + pack)
        return item * (shares + self.k * (self.tile_rows + pack) + self.k)


TILES = {
    np.dtype(np.float32): (Tile(32, 2, 8), Tile(64, 4, 8), Tile(128, 8, 8)),
    np.dtype(np.float64): (Tile(32, 2, 4), Tile(64, 4, 4), Tile(128, 8, 4)),
}
"""Instances by type of the rows, the smallest ``k`` first: each fits into the registers and the shared memory
of an H100."""


def descend_rows(gram: Array, b: Array, *, w: Array, sweeps: int) -> None:
    """See the contract. Improves rows by coordinate descent (HALS).

    One launch for all sweeps up to k = 128, beyond that one for each coordinate.
    """
    rows, k = w.shape
    tile = next((each for each in TILES[w.dtype] if each.k >= k), None)
    if tile is None or tile.shared_bytes(w.itemsize) > shared_bytes_at_most():
        _descend_by_columns(gram, b, w, sweeps)
        return
    b, whole = rows_whole(b), rows_whole(w)
    launch(
        PACKAGE,
        "nnls",
        f"descend_rows<{C_TYPES[w.dtype]}, {tile.k}, {tile.lanes}, {tile.rows}, {tile.threads}>",
        (blocks_of(rows, tile.tile_rows),),
        tile.threads,
        (
            *(cupy.ascontiguousarray(gram), b, row_pitch(b), whole, row_pitch(whole)),
            *(np.int64(rows), np.int32(k), np.int32(sweeps)),
        ),
        shared_bytes=tile.shared_bytes(w.itemsize),
    )
    if whole is not w:
        w[...] = whole


def _descend_by_columns(gram: Array, b: Array, w: Array, sweeps: int) -> None:
    curvature = cupy.diagonal(gram)
    length = cupy.where(curvature > 0, 1 / cupy.maximum(curvature, np.finfo(gram.dtype).tiny), 0)
    for _ in range(sweeps):
        for t in range(len(gram)):
            step = (w @ gram[:, t] - b[:, t]) * length[t]
            w[:, t] = cupy.where(curvature[t] > 0, cupy.maximum(w[:, t] - step, 0), w[:, t])


BLOCKS = 1024
"""Rows that are solved at once where factors are in device memory."""

SHARED_BYTES = 96 << 10
"""Largest number of bytes of shared memory for a row: beyond that its factor is in device memory."""


def solve_rows(gram: Array, b: Array, *, w: Array, upper: float = np.inf, simplex: bool = False) -> None:
    """See the contract. Solves rows by block principal pivoting, each by one warp.

    Scratch ``BLOCKS`` factors for k above 130 or so.
    """
    rows, k = w.shape
    ridge = ridge_of(gram)
    sizes = cupy.sqrt(gram.diagonal() + ridge)
    least = float(sizes.min()) if simplex else 0.0
    b, whole, vectors = rows_whole(b), rows_whole(w), 3 * 8 * k + 3 * 4 * k + 4 * (k % 2)
    factor_bytes = 8 * (k * (k + 1) // 2)
    scratch, shared_bytes, blocks = None, vectors + factor_bytes, rows
    if shared_bytes > SHARED_BYTES:
        blocks, shared_bytes = min(rows, BLOCKS), vectors
        scratch = cupy.empty((blocks, factor_bytes // 8), np.float64)
    launch(
        PACKAGE,
        "nnls",
        "solve_rows",
        (max(blocks, 1),),
        32,
        (
            *(cupy.ascontiguousarray(gram), ridge, sizes, np.float64(least)),
            *(b, row_pitch(b), whole, row_pitch(whole), np.int64(rows), np.int32(k)),
            *(
                np.float64(upper),
                np.int32(simplex),
                np.int32(RETRIES),
                np.int32(EXCHANGES * k),
                np.int32(STEPS * k),
            ),
            np.uint64(0) if scratch is None else scratch,
        ),
        shared_bytes=shared_bytes,
    )
    if whole is not w:
        w[...] = whole
