"""Lists of neighbors as a graph in memory: an edge joins two rows if either has the other in its list.

Vertices are numbered in the order of a breadth-first search. Vertices that are near in the graph are then
near in memory too, whatever the order of rows, and paths take less than half of the time.

Edges that join the components of a graph: one between the nearest rows of any two, by all distances.

Rows of all components but the largest are compared with all rows, in blocks, so that memory does not grow.
Work grows with the rows outside the largest component times all rows. The edges are those of
``_fix_connected_components`` of scikit-learn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.graph.paths import Graph, search_breadth_first
from rankfold.methods.fuzzy_graph.lists import BLOCK_BYTES, LARGEST, StoredLists
from rankfold.methods.fuzzy_graph.stored_rows import StoredRows
from rankfold.methods.knn.graph import SORT_BYTES, write_edges
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import ArgumentError, DataError, InputError
from rankfold.pipeline.importing.csr_writer import chunk_length
from rankfold.pipeline.importing.readers.reader import Entries
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.result import Result

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]

RECORD_BYTES = 24
"""Bytes of an edge in the scratch files in which edges are sorted."""


def index_type(rows: int) -> np.dtype[Any]:
    """Integer type that numbers ``rows`` vertices: int32, or int64 for more than it can number."""
    return np.dtype(np.int32 if rows < 2**31 else np.int64)


def graph_bytes(rows: int, edges: int, item: int) -> int:
    """Bytes of a graph in memory, and of the vertex of each row; a length of an edge has ``item`` bytes."""
    index = index_type(rows).itemsize
    return 8 * (rows + 1) + edges * (index + item) + rows * index


def reading_bytes(rows: int, edges: int) -> int:
    """Additional bytes while a graph is read: pointers as stored, order and labels, a chunk in pieces."""
    chunk = chunk_length(edges)
    return 4 * 8 * (rows + 1) + 3 * index_type(rows).itemsize * rows + 80 * chunk


def sorting_bytes(lists: StoredLists) -> int:
    """Bytes of memory to make a graph of neighbor lists, by a sort in scratch files."""
    return 4 * lists.chunk_bytes + 8 * BLOCK_BYTES + 3 * SORT_BYTES


def write_graph(lists: StoredLists, folder: Path, between: Path) -> None:
    """Write the graph of neighbor lists to ``folder``; edges are sorted in files in folder ``between``."""
    for old in (folder, between):
        remove(old)
    between.mkdir()
    shape, edges = (lists.rows, lists.rows), 2 * lists.rows * lists.k
    write_edges(_both_ways(lists), folder, between, shape, edges, name=str(lists.result.path), mutual=False)
    remove(between)


def _both_ways(lists: StoredLists) -> Iterator[Entries]:
    """Yield every edge and its reverse, with a distance as real part; none from a row to itself."""
    for first, distances, indices in lists.blocks():
        ends, starts = indices.reshape(-1), np.repeat(np.arange(first, first + len(indices)), lists.k)
        apart = ends != starts
        ends, starts, values = ends[apart], starts[apart], distances.reshape(-1)[apart] + 1j
        if len(values):
            yield Entries(starts, ends, values)
            yield Entries(ends, starts, values)


@dataclass(frozen=True, slots=True)
class Components:
    """Connected components of a graph."""

    order: Array
    """(rows,) rows in the order of a breadth-first search."""

    labels: Array
    """(rows,) number of the component of each row, from 0 on."""

    @property
    def sizes(self) -> Int64:
        """(c,) number of rows of each component."""
        sizes: Int64 = np.bincount(self.labels)
        return sizes


@dataclass(frozen=True, slots=True)
class Bridges:
    """Edges that are added to a graph to join its components, each given once; three arrays (edges,)."""

    starts: Int64
    ends: Int64
    lengths: npt.NDArray[np.float64]

    def both_ways(self) -> tuple[Int64, Int64, npt.NDArray[np.float64]]:
        """Starts, ends and lengths of the edges in both directions, (2 edges,) each, in order of starts."""
        starts, ends = np.concatenate([self.starts, self.ends]), np.concatenate([self.ends, self.starts])
        order = np.argsort(starts, kind="stable")
        return starts[order], ends[order], np.concatenate([self.lengths, self.lengths])[order]


NO_BRIDGES = Bridges(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


@dataclass(frozen=True, slots=True)
class NumberedGraph:
    """A graph in memory whose vertices are the rows of a matrix in another order."""

    edges: Graph
    numbers: Array
    """(rows,) number of the vertex that stands for each row."""

    @property
    def rows(self) -> int:
        """Number of vertices."""
        return len(self.numbers)


def read_components(graph: Path, rows: int) -> Components:
    """Find the connected components of a graph of ``rows`` rows that is stored in the folder ``graph``."""
    index = index_type(rows)
    stored = StoredRows(graph)
    if stored.source.shape != (rows, rows):
        raise DataError(
            f"{graph} is a graph of {' x '.join(map(str, stored.source.shape))}, not of {rows} rows"
        )
    pointers = stored.pointers
    neighbors, order, labels = (
        np.empty(int(pointers[-1]), index),
        np.empty(rows, index),
        np.empty(rows, index),
    )
    for some in stored.chunks():
        neighbors[some] = stored.columns(some)
    search_breadth_first(pointers, neighbors, order=order, labels=labels)
    return Components(order, labels)


def read_graph(
    graph: Path, order: Array, dtype: np.dtype[Any], bridges: Bridges = NO_BRIDGES
) -> NumberedGraph:
    """Read a stored graph into memory, and add the bridges.

    Parameters
    ----------
    graph : Path
        Folder of the stored graph.
    order : (rows,) integers
        Rows in the order of their vertices.
    dtype : dtype
        Type of lengths in memory.
    bridges : Bridges
        Edges that join components, by row numbers.
    """
    rows = len(order)
    stored = StoredRows(graph)
    pointers, numbers = stored.pointers, np.empty_like(order)
    numbers[order] = np.arange(rows, dtype=order.dtype)
    starts, ends, lengths = bridges.both_ways()
    degrees = np.diff(pointers)
    fresh = np.zeros(rows + 1, np.int64)
    np.cumsum((degrees + np.bincount(starts, minlength=rows))[order], out=fresh[1:])
    edges = Graph(fresh, np.empty(int(fresh[-1]), order.dtype), np.empty(int(fresh[-1]), dtype))
    for some in stored.chunks():
        where = np.arange(some.start, some.stop)
        row = np.searchsorted(pointers, where, side="right") - 1
        where += fresh[numbers[row]] - pointers[row]
        values = stored.source.data.take(some.start, some.stop)
        _require_distances(values, row)
        edges.neighbors[where] = numbers[stored.columns(some)]
        edges.lengths[where] = values
    if len(starts):
        before = np.arange(len(starts)) - np.searchsorted(starts, starts)
        where = fresh[numbers[starts]] + degrees[starts] + before
        edges.neighbors[where], edges.lengths[where] = numbers[ends], lengths
    return NumberedGraph(edges, numbers)


def _require_distances(values: Array, rows: Int64) -> None:
    """Raise ``DataError`` for distances that are negative, NaN or above ``LARGEST``.

    ``values`` and ``rows`` (edges,) are distances, and rows that they begin at.
    """
    bad = ~((values >= 0) & (values <= LARGEST))
    if bad.any():
        place = int(bad.argmax())
        raise DataError(
            f"row {rows[place]} has a neighbor at the distance {values[place]}: paths are made of distances "
            f"between 0 and {LARGEST:.1e}"
        )


Float64 = npt.NDArray[np.float64]

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
"""Metrics by which rows of different components are compared, with their names in SciPy."""

MOST_COMPONENTS = 1024
"""Largest number of components that are joined: any two get an edge, and more components would have too many
of these."""

ROW_BLOCK_BYTES = 16 * 2**20
"""Largest number of bytes, in float64, of a block of rows that is compared with another."""

BLOCK_ROWS = 2048
"""Largest number of rows of a block that is compared with another."""

BRIDGE_BYTES = 4 * ROW_BLOCK_BYTES + 3 * 8 * BLOCK_ROWS**2 + 24 * MOST_COMPONENTS**2
"""Bytes of memory that finding bridges (edges between components) takes."""


def require_rows(result: Result, x: Source | None) -> Source:
    """Check that ``x`` is the matrix whose rows ``result`` has neighbors of, and return it.

    Raises ``ArgumentError`` if it is None, ``InputError`` for another matrix, or a metric not in ``METRICS``.
    """
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
    """Find the shortest edge between any two components of a graph, by the distances of their rows.

    ``x`` are the rows, ``labels`` (rows,) their components. The order of rows decides between equal
    distances.
    """
    count, largest = int(labels.max()) + 1, int(np.bincount(labels).argmax())
    if count > MOST_COMPONENTS:
        raise DataError(
            f"the graph of neighbors has {count} components, and at most {MOST_COMPONENTS} are joined: "
            "search for more neighbors"
        )
    lengths, pairs = np.full((count, count), np.inf), np.zeros((count, count, 2), np.int64)
    step = max(1, min(BLOCK_ROWS, ROW_BLOCK_BYTES // (8 * x.shape[1])))
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
    """Update shortest edges by the distances between two blocks of rows.

    Parameters
    ----------
    some, others : ((r, d), (r,)) arrays
        Rows of a block, and their row numbers.
    metric : str
        One of ``METRICS``.
    labels : (m,) integers
        Component of each row.
    largest : int
        Label of the largest component, whose rows are never in ``some``.
    lengths : (c, c) float64, updated
        Shortest distance between any two of c components.
    pairs : (c, c, 2) int64, updated
        The two rows at that distance. Each pair of components is compared once.
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
    """(r, d) rows of ``x`` with the ascending row numbers ``names`` (r,); consecutive ones in one read."""
    runs = np.split(names, np.flatnonzero(np.diff(names) > 1) + 1)
    return np.concatenate([_read(x, int(run[0]), len(run)) for run in runs])


def _comparable(rows: Array, metric: str) -> Array:
    """Convert rows (r, d) to the type that the metric is measured in: bool for jaccard, else float64."""
    return rows != 0 if metric == "jaccard" else rows.astype(np.float64)
