"""Products at stored positions, a vector at a time. See ``kernels/sparse/sampled.py``.

Serial loops that release the GIL: parallelism comes from the threads that call them, with ranges of rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop
from rankfold.kernels._dispatch import plain, wide
from rankfold.kernels.sparse.cpu._gather import Lanes, add_dots, parts, store_dots
from rankfold.kernels.sparse.cpu._order import positions

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]


@compile_loop
def _store_products(
    indptr: Int64, indices: Array, left: Array, right: Array, out: Array, column: int, lanes: Lanes
) -> None:
    end = indptr[len(indptr) - 1]
    for i in range(len(indptr) - 1):
        store_dots(lanes, indices, indptr[i], indptr[i + 1], end, left, right, out, i, column)  # type: ignore[call-arg]


@compile_loop
def _add_products(
    indptr: Int64, indices: Array, left: Array, right: Array, out: Array, column: int, lanes: Lanes
) -> None:
    end = indptr[len(indptr) - 1]
    for i in range(len(indptr) - 1):
        add_dots(lanes, indices, indptr[i], indptr[i + 1], end, left, right, out, i, column)  # type: ignore[call-arg]


def sample_product(indptr: Array, indices: Array, left: Array, right: Array, *, out: Array) -> None:
    """See the contract. Entries of ``left @ right.T`` at stored positions."""
    starts, places, one, other = positions(indptr), plain(indices), wide(left), wide(right)
    into = np.ascontiguousarray(out)
    for column, lanes in parts(right.shape[1], right.dtype):
        loop = _add_products if column else _store_products
        loop(starts, places, one, other, into, column, lanes)
    if into is not out:
        out[...] = into
