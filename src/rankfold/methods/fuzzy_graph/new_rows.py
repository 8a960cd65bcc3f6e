"""Weights of the neighbors of new rows among the rows of a graph, computed as in the graph.

A new row has the same weights as in umap-learn. They follow from its own list, since no row of the graph has
it among its neighbors. They are relative to the mean distance in the graph, so they do not depend on other
new rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.graph.fuzzy import membership
from rankfold.methods.fuzzy_graph.lists import StoredLists, mismatch
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.planning.shape_only import ImaginedResult
from rankfold.pipeline.storage.result import Result, result_of

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

CHUNK_ROWS = 2**16
"""Largest number of rows in a chunk of the array that is written for new rows."""


@dataclass(frozen=True, slots=True)
class NewNeighbors:
    """Lists of neighbors of new rows among the rows of a graph, and parameters of the graph for weights."""

    lists: StoredLists
    mean_distance: float
    local_connectivity: float
    doubt: str = ""
    """Warning that neighbors may be of another matrix; empty if there is none."""

    @classmethod
    def of(cls, embedding: Result, rows: int, neighbors: Result | str | Path) -> NewNeighbors:
        """Check a result of knn, ``neighbors``, of new rows among the ``rows`` rows of ``embedding``."""
        stored = result_of(
            "transform", neighbors, "neighbors of new rows, as of rf.knn(x, k=15, queries=new)"
        )
        lists, facts = StoredLists.of_queries(stored, rows), embedding.attrs
        if isinstance(embedding, ImaginedResult):
            return cls(lists, 0.0, 1.0)
        embedding.require_whole()
        if not {"mean_distance", "local_connectivity"} & facts.keys():
            raise InputError(
                f"{embedding.path} says nothing of the distances in its graph, so that neighbors of new rows "
                f"have no weights: make {facts['kind']} anew, of a result of knn or fuzzy_graph"
            )
        doubt = mismatch(lists.result, facts["metric"], facts.get("matrix"))
        return cls(lists, facts["mean_distance"], facts["local_connectivity"], doubt)

    @property
    def chunk_rows(self) -> int:
        """Number of rows in a chunk of the array that is written for new rows."""
        return min(self.lists.rows, CHUNK_ROWS)

    def request(self) -> dict[str, Any]:
        """Parameters that determine neighbors and weights: k, those of the graph, and a fingerprint."""
        graph = [self.mean_distance, self.local_connectivity]
        return {"k": self.lists.k, "graph": graph, "indices": self.lists.indices.fingerprint()}

    def blocks(self) -> Iterator[tuple[Array, Float32, npt.NDArray[np.bool_]]]:
        """Yield, for each block of r new rows: (r, k) neighbors, (r, k) weights of these, and a mask (r,).

        The mask is True for rows whose first neighbor is at distance 0.
        """
        for _, distances, indices in self.lists.blocks():
            weights = np.empty(distances.shape, np.float32)
            connectivity = float(min(max(0.0, self.local_connectivity - 1), self.lists.k))
            membership(distances, self.mean_distance, local_connectivity=connectivity, first=1, out=weights)
            yield np.ascontiguousarray(indices), weights, distances[:, 0] == 0


def means_of_neighbors(places: Array, indices: Array, shares: Float64) -> Float64:
    """(r, d) weighted mean coordinates of the neighbors of each row.

    ``places`` (n, d) are coordinates, ``indices`` (r, k) the neighbors, and ``shares`` (r, k) weights that
    sum to 1 in each row. Terms are added in order of the columns of ``indices``.
    """
    means = np.zeros((len(indices), places.shape[1]))
    for column in range(indices.shape[1]):
        means += shares[:, column, None] * places[indices[:, column]]
    return means


def in_chunks(blocks: Iterator[Array], chunk_rows: int) -> Iterator[tuple[int, Array]]:
    """Regroup blocks of any heights into whole chunks; yields the first row of each piece, and its rows.

    Each piece has a multiple of ``chunk_rows`` rows, and the last one what remains.
    """
    waiting, height, first = list[Array](), 0, 0
    for block in blocks:
        waiting.append(block)
        height += len(block)
        if height >= chunk_rows:
            together = np.concatenate(waiting)
            whole = height - height % chunk_rows
            yield first, together[:whole]
            waiting, height, first = [together[whole:]], height - whole, first + whole
    if height:
        yield first, np.concatenate(waiting)


def facts_of_distances(graph: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a graph that weights of new rows depend on; {} if the graph was not made from distances.

    ``graph`` are all facts (metadata) of its result.
    """
    if "mean_distance" not in graph:
        return {}
    local = graph["request"]["local_connectivity"]
    same = {name: graph[name] for name in ("mean_distance", "metric", "matrix") if name in graph}
    return {**same, "local_connectivity": local}
