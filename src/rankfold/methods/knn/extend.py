"""Lists of an earlier search, reused after rows were added: pairs of old rows are not compared again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rankfold.methods.knn.plan import NeighborFold
from rankfold.methods.knn.request import NeighborRequest
from rankfold.pipeline.data.source import Source, compressed
from rankfold.pipeline.engine.pair_sweep import has_lists, save_lists
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.storage.run_directory import digest

CHECK_COUNTS = (16, 4)
"""Number of rows of which some distances are measured again, and number of distances of each."""


SPARSE_TOLERANCE = 2.0**-40
"""Allowed difference from an earlier distance, relative where that is above 1, for sparse rows: one of the
two searches may have made them dense."""


@dataclass(frozen=True, slots=True)
class EarlierLists:
    """A result of knn whose rows are the first ones of a matrix."""

    result: Result
    """The result, kept open here: a temporary store is deleted with the last reference to its result."""

    @classmethod
    def of(cls, result: Result, source: Source, request: NeighborRequest) -> EarlierLists:
        """Check that a result has lists of the first rows of a matrix, and that a request can use them."""
        facts = result.attrs
        if facts["kind"] != "knn" or facts["request"]["queries"] is not None:
            raise InputError(
                f"{result.path} has no lists of rows among themselves: base must be a result of knn"
            )
        if "min_recall" in facts["request"]:  # which exact lists do not depend on
            raise InputError(
                f"{result.path} has approximate lists: base must be exact, since pairs of its rows are not "
                "compared again"
            )
        base_request = facts["request"]
        if base_request["metric"] != request.metric or base_request["k"] < request.k:
            raise InputError(
                f"{result.path} has lists of {base_request['k']} by {base_request['metric']}, too few for "
                f"k={request.k} by {request.metric}. Ask for the same metric and at most as many, or "
                "leave base out"
            )
        rows, columns = facts["input"]["shape"]
        if columns != source.shape[1] or rows > source.shape[0]:
            raise InputError(
                f"{result.path} has lists of {rows} rows of {columns} numbers, but {source.name} has "
                f"{source.shape[0]} of {source.shape[1]}: give all rows, those of base first"
            )
        return cls(result)

    @property
    def rows(self) -> int:
        """Number of rows whose neighbors the result has."""
        return int(self.result.attrs["input"]["shape"][0])

    def digest(self) -> str:
        """Hash that identifies the request and the matrix that the result was made from."""
        return digest([self.result.attrs["request"], self.result.attrs["input"]["fingerprint"]])

    def plant(self, fold: NeighborFold, folder: Path) -> None:
        """Write the earlier lists as files of a search that has compared all pairs of the old rows.

        ``fold`` is that of the new search. ``folder`` holds one file (accumulator) for each block of rows: a
        sweep continues from these.
        """
        self._require_same_rows(fold)
        edges, k = fold.pairs.rows, fold.k
        old = int(np.searchsorted(edges, self.rows))
        old_blocks = np.arange(len(edges) - 1) < old
        for block in range(old):
            if not has_lists(folder, block):
                start, stop = int(edges[block]), int(edges[block + 1])
                # A list sorted nearest first, reversed, is a heap.
                keys = np.asarray(self.result.distances[start:stop, :k])[:, ::-1]
                ids = np.asarray(self.result.indices[start:stop, :k])[:, ::-1]
                save_lists(
                    folder, block, {**fold.start(block), "keys": keys.copy(), "ids": ids.copy()}, old_blocks
                )

    def _require_same_rows(self, fold: NeighborFold) -> None:
        """Measure some distances again; raises ``InputError`` if they differ, since then the rows do."""
        rows, each = CHECK_COUNTS
        tolerance = 0.0 if compressed(fold.left.source) is None else SPARSE_TOLERANCE
        for row in np.unique(np.linspace(0, self.rows - 1, rows).astype(np.int64)).tolist():
            names = np.asarray(self.result.indices[row : row + 1, :each])[0].tolist()
            keys = np.asarray(self.result.distances[row : row + 1, :each])[0].tolist()
            for name, key in zip(names, keys, strict=True):
                separation = fold.measure(row, name)
                if abs(separation - key) > tolerance * max(1.0, abs(key)):
                    raise InputError(
                        f"rows {row} and {name} of {fold.left.source.name} are {separation} apart, but base "
                        f"says {key}: its first {self.rows} rows are not those that {self.result.path} was "
                        "made of"
                    )
