"""Edges that join the components of a graph: one between the nearest rows of any two, by all distances.

Rows of all components but the largest are compared with all rows, in blocks, so that memory does not grow.
Work grows with the rows outside the largest component times all rows. The edges are those of
``_fix_connected_components`` of scikit-learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.isomap.graph import Bridges
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import ArgumentError, DataError, InputError
from rankfold.pipeline.storage.result import Result

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

METRICS = {
    "euclidean": "euclidean",
    "sqeuclidean": "sqeuclidean",
    "cosine": "cosine",
    "correlation": "correlation",
    "manhattan": "cityblock",
    "chebyshev": "chebyshev",
    "hamming": "hamming",
    "jaccard": "jaccard",
}
"""Metrics by which rows of components are compared, with their names in SciPy."""

MOST_COMPONENTS = 1024
"""Most components that are joined: any two get an edge, and more components would have too many of these."""

BLOCK_BYTES = 16 * 2**20
"""Most bytes, as float64, of a block of rows that is compared with another."""

BLOCK_ROWS = 2048
"""Most rows of a block."""

BRIDGE_BYTES = 4 * BLOCK_BYTES + 3 * 8 * BLOCK_ROWS**2 + 24 * MOST_COMPONENTS**2
"""Bytes of memory that finding bridges (edges between components) takes."""


def require_rows(result: Result, x: Source | None) -> Source:
    """Check that ``x`` is the matrix in which neighbors were searched, and return it; raises otherwise."""
    if x is None:
        raise ArgumentError(
            "disconnected='join' compares rows of different components, which neighbors do not tell: give "
            "matrix=, the rows that they are of"
        )
    facts, asked = result.attrs["input"], result.attrs["request"]
    if facts["fingerprint"] and facts["fingerprint"] != x.fingerprint():
        raise InputError(f"{x.name} is not the matrix that {result.path} has neighbors of, {facts['name']}")
    if asked["metric"] not in METRICS or asked.get("box") is not None:
        raise InputError(
            f"components of neighbors by {asked['metric']}{' in a box' * ('box' in asked)} are not joined: "
            f"search by one of {', '.join(METRICS)}, or for more neighbors"
        )
    return x


def find_bridges(x: Source, metric: str, labels: Array) -> Bridges:
    """Find the shortest edge between any two components; the order of rows decides between equal ones."""
    count, largest = int(labels.max()) + 1, int(np.bincount(labels).argmax())
    if count > MOST_COMPONENTS:
        raise DataError(
            f"the graph of neighbors has {count} components, and at most {MOST_COMPONENTS} are joined: "
            "search for more neighbors"
        )
    lengths, pairs = np.full((count, count), np.inf), np.zeros((count, count, 2), np.int64)
    step = max(1, min(BLOCK_ROWS, BLOCK_BYTES // (8 * x.shape[1])))
    few = np.flatnonzero(labels != largest)
    for top in range(0, len(few), step):
        names = few[top : top + step]
        rows = _comparable(_gather(x, names), metric)
        for start in range(0, x.shape[0], step):
            others = np.arange(start, min(x.shape[0], start + step))
            block = _comparable(_read(x, start, len(others)), metric)
            _meet((rows, names), (block, others), metric, labels, largest, lengths, pairs)
    first, second = np.nonzero(np.isfinite(lengths))
    ends = pairs[first, second]
    return Bridges(ends[:, 0], ends[:, 1], lengths[first, second])


def _meet(
    some: tuple[Array, Int64],
    others: tuple[Array, Int64],
    metric: str,
    labels: Array,
    largest: int,
    lengths: Float64,
    pairs: Int64,
) -> None:
    """Update shortest edges by the distances between two blocks, each given as rows and their indices.

    ``lengths`` (c, c) has the shortest distance between any two of c components, ``pairs`` (c, c, 2) the two
    rows. Each pair of components is compared once.
    """
    from scipy.spatial.distance import cdist

    (rows, names), (block, other_names) = some, others
    distances = cdist(rows, block, METRICS[metric])
    own, across = labels[names], labels[other_names]
    columns = {int(each): np.flatnonzero(across == each) for each in np.unique(across)}
    for p in np.unique(own).tolist():
        lines = np.flatnonzero(own == p)
        for q, places in columns.items():
            if q != largest and q >= p:
                continue
            part = distances[np.ix_(lines, places)]
            line, place = np.unravel_index(part.argmin(), part.shape)
            if part[line, place] < lengths[p, q]:
                lengths[p, q] = part[line, place]
                pairs[p, q] = names[lines[line]], other_names[places[place]]


def _read(x: Source, start: int, count: int) -> Array:
    block = np.empty((count, x.shape[1]), x.dtype)
    x.read_into(block, (start, start + count), (0, x.shape[1]))
    return block


def _gather(x: Source, names: Int64) -> Array:
    """Read rows by ascending indices; consecutive ones in one read."""
    runs = np.split(names, np.flatnonzero(np.diff(names) > 1) + 1)
    return np.concatenate([_read(x, int(run[0]), len(run)) for run in runs])


def _comparable(rows: Array, metric: str) -> Array:
    """Convert rows to the type that the metric is measured in."""
    return rows != 0 if metric == "jaccard" else rows.astype(np.float64)
