"""Count rows on a device. See ``kernels/neighbors/ranking.py``: products by cuBLAS, then ranking.cu."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

from rankfold.kernels.gpu.sources import C_TYPES, blocks_of, launch, row_pitch, rows_whole
from rankfold.kernels.neighbors.gpu._products import inner_products
from rankfold.kernels.neighbors.meeting import Rows, doubles, products_at_once
from rankfold.kernels.neighbors.ranking import Thresholds, reaches
from rankfold.kernels.neighbors.ranks import limits

Array = Any

WARPS = 4
"""Warps of a block of threads, each with a row of its own."""

MOST = 1024
"""Largest number of thresholds of a row that are counted in one launch; more of them take several."""


def rank_rows(
    x: Rows,
    y: Rows,
    *,
    thresholds: Thresholds,
    counts: Array,
    measured: Array,
    metric: int,
    shift: Array | None,
    precise: bool,
    room: Callable[..., Array],
) -> None:
    """See the contract; scratch ``ranking_bytes``. Counts the rows of ``y`` that come before thresholds."""
    dtype = np.dtype(np.float64 if precise else np.float32)
    keys, ids, own = (*map(rows_whole, thresholds[:2]), cupy.ascontiguousarray(thresholds.own))
    low, high = limits(keys, metric, dtype)
    others = doubles(y, metric, shift) if precise else y.copy
    near_y, far_y = reaches(y, metric, dtype)
    step = products_at_once(len(x), len(y), dtype.itemsize)
    for start in range(0, len(x), step):
        some = slice(start, min(len(x), start + step))
        rows = x.part(some.start, some.stop)
        tile = inner_products(doubles(rows, metric, shift) if precise else rows.copy, others, dtype)
        bounds = reaches(rows, metric, dtype)
        for first in range(0, counts.shape[1], MOST):
            part = some, slice(first, min(counts.shape[1], first + MOST))
            arrays = (*(each[part] for each in (low, high, keys, ids)), counts[part])
            measured += _count(tile, (*bounds, near_y, far_y), rows, y, metric, own[some], arrays)


def _count(
    tile: Array,
    bounds: tuple[Array, ...],
    x: Rows,
    y: Rows,
    metric: int,
    own: Array,
    arrays: tuple[Array, ...],
) -> Array:
    """Add to counts the pairs of a tile of products that come before thresholds.

    ``bounds`` are ``reaches`` of the rows of ``x``, then of ``y``; ``arrays`` are limits (low, high), keys
    and ids of thresholds, and counts, (rows, k) each. Returns the number of pairs that were measured, on the
    device.
    """
    rows, k = arrays[0].shape
    raw = rows_whole(x.raw), rows_whole(y.raw)
    open_pairs = cupy.zeros(rows, np.int32)
    launch(
        __package__,
        "ranking",
        f"count_nearer<{C_TYPES[tile.dtype]}, {C_TYPES[raw[0].dtype]}>",
        (blocks_of(rows, WARPS),),
        32 * WARPS,
        (
            *(tile, np.int64(rows), np.int64(len(y)), *bounds),
            *(raw[0], row_pitch(raw[0]), raw[1], row_pitch(raw[1]), np.int32(raw[0].shape[1])),
            *(x.scale, y.scale, np.int32(metric), np.int64(y.first), own, np.int32(k)),
            *(each for array in arrays for each in (array, row_pitch(array))),
            open_pairs,
        ),
        shared_bytes=4 * WARPS * (k + 1),
    )
    return open_pairs.sum()
