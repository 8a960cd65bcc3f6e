"""Stored lists of neighbors, read a block of rows at a time and checked as they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.argument import integer
from rankfold.methods.fuzzy_graph.arguments import FUZZY_GRAPH
from rankfold.methods.knn.graph import chunk_rows
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.planning.shape_only import ImaginedResult, ShapeOnly
from rankfold.pipeline.storage.result import Result

BLOCK_BYTES = 2 * 2**20
"""Bytes of the distances, or of the indices, of neighbors that are processed at a time."""

LARGEST = 2.0**500
"""Largest distance that is accepted: its square, and a sum of many squares, do not overflow."""

EUCLIDEAN = "euclidean"

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class StoredLists:
    """A result of ``knn``, of which the first k neighbors of each row are used."""

    result: Result
    k: int
    among: int = 0
    """Number of rows among which neighbors were searched; 0 if these are the rows of the lists themselves."""

    @classmethod
    def of(cls, result: Result, k: object) -> StoredLists:
        """Check that a result has neighbors of rows among themselves; uses ``k`` of each, all for None."""
        if _require_lists(result)["request"].get("queries") is not None:
            raise InputError(
                f"{result.path} has neighbors of queries among other rows, which are no graph: give a result "
                "of knn without queries"
            )
        most = result.matrix("indices").shape[1]
        count = most if k is None else integer("k", k)
        if not 1 <= count <= most:
            raise InputError(f"k {count} was asked for, but {result.path} has {most}: ask for 1 to {most}")
        return cls(result, count)

    @classmethod
    def of_queries(cls, result: Result, among: int) -> StoredLists:
        """Check that a result has neighbors of other rows (queries) among ``among`` rows; all are used."""
        request, (rows, _) = _require_lists(result)["request"], result.attrs["input"]["shape"]
        if request.get("queries") is None:
            raise InputError(
                f"{result.path} has neighbors of rows among themselves: new rows are looked up among those "
                "of the layout, rf.knn(x, k, queries=new)"
            )
        if request["queries"] != "input" and rows != among:  # "input": in an index
            raise InputError(f"{result.path} has neighbors among {rows} rows, but {among} are laid out")
        return cls(result, result.matrix("indices").shape[1], among)

    @property
    def distances(self) -> Source:
        """Distances of neighbors, (rows, k) or wider, as a source."""
        return self.result.matrix("distances")

    @property
    def indices(self) -> Source:
        """Row numbers of neighbors, (rows, k) or wider, as a source."""
        return self.result.matrix("indices")

    @property
    def rows(self) -> int:
        """Number of rows whose neighbors are stored."""
        return self.distances.shape[0]

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk of distances, or of indices: chunks are read whole."""
        source = self.distances
        longest = source.row_grid.longest
        if isinstance(source, ShapeOnly):
            longest = chunk_rows(*source.shape)
        return min(longest, self.rows) * source.shape[1] * 8

    def distance_blocks(self) -> Iterator[tuple[int, Array]]:
        """Yield, for each block of r rows, the first row and the checked distances (r, k)."""
        for first, (distances,) in self._blocks("distances"):
            _require_distances(distances, first)
            yield first, distances

    def blocks(self) -> Iterator[tuple[int, Array, Array]]:
        """Yield, for each block of r rows: first row, checked distances (r, k), checked neighbors (r, k)."""
        for first, (distances, indices) in self._blocks("distances", "indices"):
            _require_distances(distances, first)
            among = self.among or self.rows
            if (indices < 0).any() or (indices >= among).any():
                row = first + int(((indices < 0) | (indices >= among)).any(axis=1).argmax())
                raise DataError(f"row {row} has neighbors that are none of {among} rows")
            yield first, distances, indices

    def _blocks(self, *names: str) -> Iterator[tuple[int, tuple[Array, ...]]]:
        """Yield, for each block of r rows, the first row and its part (r, k) of each array in ``names``.

        Every chunk is read once.
        """
        height, step = self.distances.row_grid.longest, max(1, BLOCK_BYTES // (8 * self.k))
        arrays = [self.result[name] for name in names]
        for start in range(0, self.rows, height):
            chunks = [np.asarray(each[start : start + height]) for each in arrays]
            for top in range(0, len(chunks[0]), step):
                yield start + top, tuple(each[top : top + step, : self.k] for each in chunks)


def metric_of(result: Result) -> str:
    """Name of the metric by which neighbors were searched, from a result of knn or of a graph."""
    return str(result.attrs["request"].get("metric") or result.attrs.get("metric", EUCLIDEAN))


def matrix_of(result: Result) -> dict[str, str]:
    """Name and fingerprint of the matrix whose rows the neighbors in a result of knn are."""
    facts = result.attrs["input"]
    return {name: str(facts.get(name, "")) for name in ("name", "fingerprint")}


def mismatch(lists: Result, metric: str, matrix: Mapping[str, str] | None) -> str:
    """Warning if new rows have neighbors in another matrix than the embedded one; empty if none is due.

    An index does not know its matrix, and earlier results may not have stored theirs.

    Parameters
    ----------
    lists : Result
        Result of knn with the neighbors of new rows.
    metric : str
        Metric by which the embedding was made.
    matrix : mapping or None
        Name and fingerprint of the embedded matrix; None if they were not stored.

    Raises
    ------
    InputError
        The lists were searched by another metric.
    """
    if metric_of(lists) != metric:
        raise InputError(
            f"{lists.path} has neighbors by {metric_of(lists)}, but those of the embedding are by {metric}: "
            "search by that metric"
        )
    here, is_index = matrix_of(lists), lists.attrs["request"].get("queries") == "input"
    if matrix is None or is_index or here["fingerprint"] == matrix["fingerprint"]:
        return ""
    return (
        f"neighbors are rows of {here['name']}, which is another matrix than {matrix['name']}, of which the "
        "embedding was made, or has been written anew: places are right if it has the same rows in the same "
        "order"
    )


def _require_lists(result: Result) -> dict[str, Any]:
    """Facts (metadata) of a result of knn; ``InputError`` for other results, and without distances."""
    facts = result.attrs
    if facts["kind"] not in FUZZY_GRAPH.results:
        raise InputError(f"{result.path} is the result of {facts['kind']}: give one of knn")
    if facts["request"].get("metric") == "inner_product":
        raise InputError(f"{result.path} has inner products, which are no distances: search by cosine, say")
    return facts


def _require_distances(distances: Array, first: int) -> None:
    """Raise ``DataError`` for a distance that is negative, NaN or above ``LARGEST``.

    ``distances`` (r, k) are those of rows from ``first`` on.
    """
    bad = ~((distances >= 0) & (distances <= LARGEST))
    if bad.any():
        row, place = np.argwhere(bad)[0]
        raise DataError(
            f"row {first + row} has a neighbor at the distance {distances[row, place]}: weights are made of "
            f"distances between 0 and {LARGEST:.1e}"
        )


def imagined_lists(rows: int, k: int, metric: str = EUCLIDEAN) -> Result:
    """Stand-in for a result of ``knn`` that does not exist yet, without values, to make plans with."""
    shape = integer("rows", rows), integer("k", k)
    if not 1 <= shape[1] < shape[0]:
        raise InputError(f"{shape[0]} rows have no {shape[1]} neighbors each among themselves")
    matrices = {
        name: ShapeOnly.plain(shape, np.dtype(dtype), name, decoded=False)
        for name, dtype in (("distances", np.float64), ("indices", np.int64))
    }
    request = {"kind": "knn", "k": shape[1], "metric": metric}
    facts = {
        "kind": "knn",
        "request": request,
        "input": {"name": "", "shape": list(shape), "fingerprint": ""},
    }
    return ImaginedResult(Path("neighbors.zarr"), facts, matrices)
