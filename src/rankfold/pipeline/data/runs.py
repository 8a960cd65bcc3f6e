"""Lists of indices as runs (first index, count, step), as facts of a result keep them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]


def runs_of(places: Array) -> list[list[int]]:
    """Runs [first index, count, step] that make up a list of indices.

    >>> runs_of(np.array([0, 2, 4])), runs_of(np.array([0, 1, 7]))
    ([[0, 3, 2]], [[0, 2, 1], [7, 1, 1]])
    """
    step = int(places[1] - places[0]) if len(places) > 1 else 1
    if step and (np.diff(places) == step).all():
        return [[int(places[0]), len(places), step]]
    firsts = np.flatnonzero(np.diff(places, prepend=-2) != 1)
    counts = np.diff(np.append(firsts, len(places)))
    return [[int(places[at]), int(count), 1] for at, count in zip(firsts, counts, strict=True)]


def of_runs(runs: Any, length: int) -> Int64:
    good = isinstance(runs, list) and all(
        isinstance(run, list) and len(run) == 3 and all(type(each) is int for each in run) for run in runs
    )
    if not good or not runs:
        raise ValueError("places that are no runs")
    parts, total = [], 0
    for first, count, step in runs:
        last, total = first + (count - 1) * step, total + max(count, 0)
        if count < 1 or total > length or not (0 <= first < length and 0 <= last < length):
            raise ValueError(f"places beyond the {length} that there are")
        parts.append(first + step * np.arange(count))
    return np.concatenate(parts)
