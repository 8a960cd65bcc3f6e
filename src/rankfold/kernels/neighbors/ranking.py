"""Compare rows with others, and count those that come before thresholds: see ``ranks.py``.

On the host products of tiles settle nearly all pairs; see ``cpu/ranking.py``. On a device a warp goes through
the products of a row; see ``gpu/ranking.cu``. Counts are the same, since pairs that products leave open are
measured by one sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.neighbors.bounds import slack
from rankfold.kernels.neighbors.lists import Metric, distance
from rankfold.kernels.neighbors.meeting import Rows, products_at_once
from rankfold.kernels.neighbors.ranks import before

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

TILE = (512, 1024)
"""Largest number of rows of ``x`` and of ``y`` in one product on the host."""


class Thresholds(NamedTuple):
    """Thresholds of some rows, see ``ranks.py``: other rows are counted if they come before one."""

    keys: Float64
    """(rows, k) keys, sorted by (key, id), finite"""

    ids: Int64
    own: Int64
    """(rows,) ids of the rows themselves, which are never counted."""


def ranking_bytes(resident: int, passing: int, columns: int, k: int) -> int:
    """Scratch bytes of ``rank_rows`` on a device, for ``resident`` rows of x and ``passing`` rows of y.

    These are products, rows in float64, and limits of ``k`` thresholds.
    """
    rows = products_at_once(resident, passing, 8)
    limits = 2 * 8 * resident * k * 3
    return 8 * rows * passing + 2 * 8 * (rows + passing) * columns + limits + 8 * 8 * (resident + passing)


def reaches(rows: Rows, metric: int, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """(rows,) terms in lower and in upper bounds of distances: ``near`` and ``far`` of ``count_nearer``."""
    columns, weight = rows.raw.shape[1], 0 if metric == Metric.INNER_PRODUCT else 1
    share, tiny = slack(columns, dtype), columns * float(np.finfo(dtype).tiny)
    halves = rows.norms / 2
    return ((weight - share) * halves - tiny).astype(dtype), ((weight + share) * halves + tiny).astype(dtype)


@kernel
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
    """Count the rows of ``y`` that come before each threshold of the rows of ``x``.

    Parameters
    ----------
    x, y : Rows
        (p, d) and (q, d), of one type.
    thresholds : Thresholds
        Thresholds of x: (p, k).
    counts : (p, k) int64
        Added to.
    measured : (1,) int64
        Added to: the number of pairs that were measured.
    metric : one of ``BY_PRODUCTS``
    shift : (d,) float64 or None
        Subtracted from rows before they are multiplied; not under ``COSINE``.
    precise : bool
        True for products in float64.
    room : callable
        ``room(name, shape, dtype)``, a buffer that is kept for the next call.

    Notes
    -----
    Work 2 p q d flops, two additions and at most 2 k comparisons a pair, 3 d flops where it is measured.
    """
    for i in range(len(x)):
        for j in range(len(y)):
            if y.first + j != thresholds.own[i]:
                key = distance(x.raw[i], y.raw[j], x.scale[i], y.scale[j], metric=metric)
                counts[i] += before(key, y.first + j, thresholds.keys[i], thresholds.ids[i])
                measured += 1
