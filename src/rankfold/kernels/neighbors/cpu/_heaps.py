"""Max-heaps by (value, name) in two arrays, for lists and shortlists of neighbors.

Slot ``p`` has its children in ``2 p + 1`` and ``2 p + 2``. Names break ties, so that a heap holds the same
pairs in whatever order they were inserted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import part

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

TOP: Any = np.int64(0)
"""The slot of the largest pair. A plain 0 is a type of its own, for which numba compiles ``sift`` again."""


@part
def sift(values: Array, names: Array, slot: int, count: int, value: Any, name: Any) -> None:
    """Replace the pair in a slot of a heap of ``count`` pairs, and sift the new one down."""
    while True:
        child = 2 * slot + 1
        if child >= count:
            break
        other = child + 1
        if other < count and (
            values[other] > values[child] or (values[other] == values[child] and names[other] > names[child])
        ):
            child = other
        if value > values[child] or (value == values[child] and name >= names[child]):
            break
        values[slot], names[slot] = values[child], names[child]
        slot = child
    values[slot], names[slot] = value, name


@part
def take(keys: Float64, ids: Int64, key: float, name: int, room: int = TOP) -> int:
    """Insert a pair (key, id) into a list if it is nearer than the farthest there and not in it.

    If the first ``room`` slots are empty, it goes into the last of them: a heap is then built from its
    leaves, in less than a sift for each. Returns the number of slots still empty.
    """
    if key < keys[0] or (key == keys[0] and name < ids[0]):
        # Copies are counted, not searched for: a loop without an early exit is vectorized.
        copies = 0
        for t in range(len(ids)):
            copies += ids[t] == name
        if copies == 0:
            room = max(TOP, room - 1)
            sift(keys, ids, room, len(keys), key, name)
    return room


@part
def heapify(values: Array, names: Array, count: int) -> None:
    """Make the first ``count`` pairs a heap, in place."""
    for slot in range(count // 2 - 1, -1, -1):
        sift(values, names, slot, count, values[slot], names[slot])


@part
def sort(values: Array, names: Array) -> None:
    """Sort pairs by (value, name), smallest first, in place."""
    heapify(values, names, len(values))
    for last in range(len(values) - 1, 0, -1):
        value, name = values[last], names[last]
        values[last], names[last] = values[0], names[0]
        sift(values, names, TOP, last, value, name)
