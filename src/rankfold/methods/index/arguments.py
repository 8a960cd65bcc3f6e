"""Arguments of an index: types, defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rankfold.methods.argument import Argument
from rankfold.methods.headline import Facts
from rankfold.methods.knn.arguments import CORRELATION
from rankfold.methods.registry import SEARCH, Method
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
    """One line of text on the partitions of an index, from its ``facts``; ``attempt`` is not used."""
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
