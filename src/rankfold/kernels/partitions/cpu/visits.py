"""Partitions to visit. See ``kernels/partitions/visits.py``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, part
from rankfold.kernels._dispatch import plain
from rankfold.kernels.neighbors.lists import EMPTY
from rankfold.kernels.partitions.visits import NONE

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]


def choose_visits(ids: Int64, partitions: Int32, own: int, *, out: Int32) -> None:
    """See the contract; scratch 8 k s bytes. Finds the other partitions that hold most neighbors of a row."""
    most = ids.shape[1] * partitions.shape[1]
    _choose(plain(ids), plain(partitions), int(own), out, np.empty(most, np.int32), np.empty(most, np.int32))


@part
def _is_in(partitions: Int32, name: int) -> bool:
    hit = False
    for s in range(len(partitions)):
        hit |= partitions[s] == name
    return hit


@part
def _tally(ids: Int64, partitions: Int32, own: Int32, names: Int32, counts: Int32) -> int:
    """Count the neighbors ``ids`` of a row by partition, except partitions in ``own``, those of the row.

    Writes numbers of partitions into ``names`` and their counts into ``counts``; returns how many there are.
    """
    count = 0
    for t in range(len(ids)):
        if ids[t] == EMPTY:
            continue
        for s in range(partitions.shape[1]):
            name = partitions[ids[t], s]
            if name == NONE or _is_in(own, name):
                continue
            place = 0
            while place < count and names[place] != name:
                place += 1
            if place == count:
                names[count], counts[count], count = name, 0, count + 1
            counts[place] += 1
    return count


@compile_loop
def _choose(ids: Int64, partitions: Int32, own: int, out: Int32, names: Int32, counts: Int32) -> None:
    for i in range(len(ids)):
        out[i] = NONE
        if partitions[i, 0] != own:
            continue
        count = _tally(ids[i], partitions, partitions[i], names, counts)
        for v in range(min(count, out.shape[1])):
            best = 0
            for place in range(1, count):
                more = counts[place] > counts[best]
                if more or (counts[place] == counts[best] and names[place] < names[best]):
                    best = place
            out[i, v], counts[best] = names[best], 0
