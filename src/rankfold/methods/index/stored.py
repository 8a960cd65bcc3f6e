"""An existing index, opened: its rows, their numbers, and its partitions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rankfold.methods.index.arguments import NAMES
from rankfold.methods.knn.arguments import ALIASES
from rankfold.methods.knn.request import compared_rows
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats.open_like import open_like
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.result import Result, result_of
from rankfold.pipeline.storage.run_directory import digest
from rankfold.pipeline.wording import argument

Int64 = npt.NDArray[np.int64]

SAME = {"sqeuclidean": "euclidean"}
"""Metrics that order rows as another metric does: that metric, by name."""


@dataclass(frozen=True, slots=True)
class StoredIndex:
    """An opened result of ``index``: rows sorted by partition, and their numbers."""

    result: Result
    """The result, kept open here: a temporary store is deleted with the last reference to its result."""

    rows: Source
    """(m, n) rows, sorted by partition."""

    ids: Source
    """(m, 1) number of each of these rows in the matrix."""

    partitions: int

    @classmethod
    def of(cls, result: Result | str | Path) -> StoredIndex:
        """Open a result; raises ``InputError`` if it is not one of ``index``. Checks that it is complete."""
        result = result_of("index", result, "a result of index, as of rf.index(x)")
        if result.attrs["kind"] != "index":
            raise InputError(
                f"{result.path} is the result of {result.attrs['kind']}: give one of index. Make it "
                "from the rows that neighbors are looked for among, `rankfold index STORE --out INDEX`"
            )
        result.require_whole()
        partitions = int(result.matrix("centers").shape[0])
        return cls(result, result.matrix("rows"), result.matrix("ids"), partitions)

    @property
    def name(self) -> str:
        """Name of the index in messages."""
        rows, columns = self.rows.shape
        return f"{self.result.path} (index of {rows} x {columns})"

    def queries(self, x: object) -> Source:
        """Open queries; raw ones go through the same preparation as the rows of the index."""
        source = open_like(x, self.result, self.name)
        if source.shape[1] != self.rows.shape[1]:
            raise InputError(
                f"{source.name} has {source.shape[1]} columns, but {self.name} has {self.rows.shape[1]}. "
                "Give rows of the same columns, in the same order"
            )
        return compared_rows(source, str(self.result.attrs["request"]["metric"]))

    def require_metric(self, metric: str) -> None:
        """Raise ``InputError`` if the index was made by another metric."""
        own = str(self.result.attrs["request"]["metric"])
        asked = ALIASES.get(metric, metric)
        if SAME.get(asked, asked) != SAME.get(own, own):
            other = (
                f"make an index by {metric}"
                if asked in NAMES
                else "give queries= of the matrix, and no index"
            )
            raise InputError(
                f"{self.name} is by {own}, and neighbors by {metric} were asked for. Say "
                f"{argument('metric', own)}, or {other}"
            )

    def arrays(self) -> State:
        """Load ``centers``, ``edges`` and ``radii`` of the partitions."""
        names = ("centers", "edges", "radii")
        return {name: np.asarray(self.result[name][...]) for name in names}

    def edges(self) -> Int64:
        """(partitions + 1,) first row of each partition; equal sizes are assumed for a future index."""
        stored = getattr(self.result, "edges", None)
        if stored is None:
            return np.arange(self.partitions + 1) * self.rows.shape[0] // self.partitions
        return np.asarray(stored[...], np.int64)

    def digest(self) -> str:
        """Digest of the request and the matrix that the index was made from."""
        return digest([self.result.attrs["request"], self.result.attrs["input"]["fingerprint"]])
