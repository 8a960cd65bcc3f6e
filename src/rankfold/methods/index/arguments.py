"""Arguments of an index: types, defaults and limits.

Parameters of an index, checked before anything is read.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any

from rankfold.methods.argument import Argument
from rankfold.methods.headline import Facts
from rankfold.methods.knn.arguments import ALIASES, CORRELATION, METRICS
from rankfold.methods.knn.pair_fold import has_bounds
from rankfold.methods.registry import SEARCH, Method
from rankfold.pipeline.data.source import Source, require_rows
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.presentation import Presentation

NAMES = ("euclidean", "sqeuclidean", "cosine", CORRELATION)
"""Metrics that an index can be made by: near rows share a partition."""


@dataclass(frozen=True, slots=True)
class IndexArguments:
    """Arguments of ``rankfold.index``."""

    metric: Annotated[
        str, Argument("euclidean, sqeuclidean, cosine or correlation", choices=(*NAMES, "l2"))
    ] = "euclidean"
    partition_rows: Annotated[int | None, Argument("rows of a partition on average", least=2)] = None
    seed: Annotated[int, Argument("key of the partitions", least=0, below=2**64)] = 0


def headline(facts: Facts, attempt: Facts) -> str:
    """Line on the partitions of an index."""
    largest = f"the largest of {facts['largest_partition']} rows"
    line = f"index by {facts['method']}, {facts['request']['metric']}"
    return f"{line}; {facts['partitions']} partitions, {largest}"


INDEX = Method(
    "index",
    "Rows sorted by partition, in which knn finds neighbors of other rows.",
    IndexArguments,
    "rankfold.methods.index.build:index_task",
    topic=SEARCH,
    matrices=("rows", "ids", "centers"),
    arrays=("rows", "ids", "edges", "radii", "centers"),
    loops="rankfold.methods.index.build:warm_index",
    headline=headline,
    presentation=Presentation(size="{orientation}"),
)


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """Parameters of ``index`` that a result depends on."""

    metric: str
    partition_rows: int | None
    seed: int

    @classmethod
    def of(cls, arguments: IndexArguments) -> IndexRequest:
        """Make a request from a caller's arguments."""
        metric = ALIASES.get(arguments.metric, arguments.metric)
        return cls(metric, arguments.partition_rows, arguments.seed)

    @property
    def code(self) -> int:
        """Code of the metric in kernels."""
        return int(METRICS[self.metric])

    def check(self, source: Source) -> None:
        """Raise ``InputError`` for a matrix that cannot be indexed."""
        rows, columns = source.shape
        require_rows(source)
        if rows < 1:
            raise InputError(f"{source.name} has no rows: there is nothing to index")
        if not has_bounds(self.code, columns):
            raise InputError(
                f"an index is for rows of 16 columns or more, of which {source.name} has {columns}: knn "
                "searches points of few columns in a tree, queries= too"
            )

    def as_dict(self) -> dict[str, Any]:
        """Parameters that identify the request, for JSON; also written to the facts of a result."""
        return {"kind": "index", **dataclasses.asdict(self)}
