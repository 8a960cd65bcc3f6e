"""Count rows before thresholds on the host. See ``kernels/neighbors/ranking.py``: by products of tiles."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.bounds import products
from rankfold.kernels.neighbors.meeting import Rows, doubles
from rankfold.kernels.neighbors.ranking import TILE, Thresholds, reaches
from rankfold.kernels.neighbors.ranks import count_nearer

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


def rank_rows(
    x: Rows,
    y: Rows,
    *,
    thresholds: Thresholds,
    counts: Int64,
    measured: Int64,
    metric: int,
    shift: Float64 | None,
    precise: bool,
    room: Callable[..., Array],
) -> None:
    """See the contract. Counts the rows of ``y`` that come before each threshold.

    Scratch a tile of products, and both sides of it in float64 if ``precise``.
    """
    dtype = np.dtype(np.float64 if precise else np.float32)

    def factor(rows: Rows) -> Array:
        copy = doubles(rows, metric, shift) if precise else rows.copy
        assert copy is not None  # noqa: S101 - products bound the metric
        return copy

    for top in range(0, len(y), TILE[1]):
        others = y.part(top, min(len(y), top + TILE[1]))
        for start in range(0, len(x), TILE[0]):
            some = slice(start, min(len(x), start + TILE[0]))
            rows = x.part(some.start, some.stop)
            tile = room("tile", (len(rows), len(others)), dtype)
            spare = functools.partial(room, "more", tile.shape, dtype)
            products(factor(rows), factor(others), tile, spare)
            (near_i, far_i), (near_j, far_j) = (reaches(each, metric, dtype) for each in (rows, others))
            measured += count_nearer(
                tile,
                (near_i, near_j),
                (far_i, far_j),
                *(rows.raw, others.raw, rows.scale, others.scale),
                metric=metric,
                own=thresholds.own[some],
                first=others.first,
                keys=thresholds.keys[some],
                ids=thresholds.ids[some],
                counts=counts[some],
            )
