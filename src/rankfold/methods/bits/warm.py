"""Compile the loops of a search of sets, before the baseline of memory is measured."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rankfold.kernels.bits.bit_meeting import BitRows, meet_bits
from rankfold.kernels.bits.set_keys import SetMetric
from rankfold.kernels.bits.set_meeting import meet_sets
from rankfold.kernels.neighbors.lists import EMPTY, merge_lists, sort_lists
from rankfold.kernels.neighbors.meeting import Lists
from rankfold.kernels.neighbors.sparse_meeting import SparseRows


@functools.cache
def warm_sets(way: str, index: np.dtype[Any]) -> None:
    """Compile the loops for packed ``"bits"``, or for ``"sets"`` whose columns are of type ``index``."""
    rows = 4
    one, two = (
        Lists(np.full((rows, 2), np.inf), np.full((rows, 2), EMPTY), np.zeros(1, np.int64)) for _ in "xy"
    )
    how: dict[str, Any] = {"lists_i": one, "lists_j": two, "metric": int(SetMetric.HAMMING), "same": False}
    if way == "bits":
        x = BitRows(0, 64, np.ones((rows, 1), np.uint64), np.ones(rows, np.int64))
        meet_bits(x, x, **how)
    else:
        arrays = np.arange(rows + 1), np.zeros(rows, index), np.ones(rows, np.uint8)
        y = SparseRows(0, 2, *arrays, np.ones(rows), np.ones(rows), np.ones((rows, 2)))
        how |= {"common": np.zeros(0, np.int64), "room": lambda name, shape, kind: np.empty(shape, kind)}
        meet_sets(y, y, **how)
    merge_lists(one.keys, one.ids, other_keys=two.keys, other_ids=two.ids)
    sort_lists(one.keys, one.ids)
