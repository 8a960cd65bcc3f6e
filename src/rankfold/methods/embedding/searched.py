"""Tasks on lists of neighbors, for a matrix whose neighbors are searched for first: one chain, one result.

The search is the first link, and its lists stay until the result is complete. Later links are planned with
lists of the same shape, and made once the lists are known. The result names the matrix as its input.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rankfold.methods.chain import Chain, Link
from rankfold.methods.embedding.arguments import EUCLIDEAN
from rankfold.methods.embedding.quality_chain import with_quality
from rankfold.methods.fuzzy_graph.lists import imagined_lists
from rankfold.methods.knn.arguments import PRECOMPUTED
from rankfold.methods.registry import METHODS
from rankfold.methods.task import Output, Task
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.formats.locate import is_address, split_location
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.storage.result import Result

EXACT_ROWS, EXACT_COLUMNS = 20_000, 15
"""A search finds exact neighbors by default in matrices of at most so many rows, or at most so many
columns."""

RECALL = 0.95
"""Default recall of a search in matrices with more rows and more columns than that."""


@dataclass(frozen=True, slots=True)
class Search:
    """Parameters of the search for neighbors in a matrix; ``min_recall`` is None for the default."""

    k: int
    """Number of neighbors of each row, itself not counted."""

    metric: str = EUCLIDEAN
    min_recall: float | None = None

    def task(self, source: Source, seed: int) -> Task:
        """Check the search in ``source`` and make its task; ``seed`` is used if it is approximate."""
        rows, columns = source.shape
        if rows < 2:
            raise InputError(f"{source.name} has one row, which has no neighbors")
        recall = self.min_recall
        if recall is None and self.metric != PRECOMPUTED and rows > EXACT_ROWS and columns > EXACT_COLUMNS:
            recall = RECALL
        how = {} if not recall else {"min_recall": recall, "seed": seed}
        return METHODS["knn"].task(source, k=min(self.k, rows - 1), metric=self.metric, **how)


def is_result(neighbors: object) -> bool:
    """True for a result, or the path of one; False for a matrix."""
    if not isinstance(neighbors, str | os.PathLike):
        return isinstance(neighbors, Result)
    store, array = split_location(os.fsdecode(neighbors))
    if is_address(store) or array or not os.path.isdir(store):
        return False
    try:
        Result(Path(store))
    except InputError:
        return False
    return True


def matrix_in(neighbors: object) -> Source | None:
    """Open the matrix ``neighbors``, given in place of a result; None for a result, or the path of one."""
    return None if is_result(neighbors) else open_source(neighbors)


@dataclass(frozen=True, slots=True)
class OfMatrix:
    """Task on lists of neighbors, or on their graph, whose result names the matrix ``source`` as its input.

    It wraps ``task``. ``identity`` is the request of the whole chain.
    """

    task: Task
    source: Source
    identity: dict[str, Any]

    def request(self) -> dict[str, Any]:
        """Return ``identity``: everything that determines the result, the search included, as JSON types."""
        return self.identity

    def outputs(self) -> tuple[Output, ...]:
        """Declare the arrays of the result: those of the wrapped task."""
        return self.task.outputs()

    def plan(self, budget: Budget) -> Plan:
        """Plan of the wrapped task, with shape and type of the matrix."""
        plan = self.task.plan(budget)
        return dataclasses.replace(plan, shape=self.source.shape, dtype=self.source.dtype.name)

    def loops(self) -> dict[str, Any]:
        """Facts besides the request that decide which loops are compiled: those of the wrapped task."""
        return self.task.loops() if hasattr(self.task, "loops") else {}

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Run the wrapped task, with the matrix as its input."""
        run.request, run.matrix = self.identity, self.source
        return self.task.work(run, fingerprint)


def searched_task(
    source: Source, search: Search, seed: int, make: Callable[[Result], Task], quality: object = None
) -> Chain:
    """Make a chain of a search for neighbors, and of the task that a function makes of their lists.

    Parameters
    ----------
    source : Source
    search : Search
    seed : int
        Key of the partitions, if neighbors are approximate.
    make : callable
        Makes a task or a chain from the result of the search, or from an imagined result for plans.
    quality : matrix, optional
        Matrix by which the embedding is measured.
    """
    first = search.task(source, seed)
    imagined = make(imagined_lists(source.shape[0], min(search.k, source.shape[0] - 1), search.metric))
    identity = {**imagined.request(), "neighbors": first.request()}

    def made(results: Mapping[str, Path]) -> Task:
        return _of_matrix(make(Result(results[NEIGHBORS])), source, identity)

    last = Link("layout", _of_matrix(imagined, source, identity), made)
    chain = Chain(identity, (Link(NEIGHBORS, first), last))
    return chain if quality is None else with_quality(chain, quality, search.metric, seed)


NEIGHBORS = "neighbors"


def _of_matrix(task: Task, source: Source, identity: dict[str, Any]) -> Task:
    """Wrap a task, or the last link of a chain, so that its result names ``source`` as its input.

    ``identity`` is the request of the whole chain.
    """
    if not isinstance(task, Chain):
        return OfMatrix(task, source, identity)
    *before, last = task.links

    def ready(results: Mapping[str, Path]) -> Task:
        return OfMatrix(last.ready(results), source, identity)

    named = dataclasses.replace(last, task=OfMatrix(last.task, source, identity), make_task=ready)
    return Chain(identity, (*before, named))


class SearchArguments(Protocol):
    """Arguments of a method that searches a matrix for neighbors first."""

    @property
    def metric(self) -> str | None:
        """Metric of the search; None for the default."""

    @property
    def min_recall(self) -> float | None:
        """Share of true neighbors that is enough; None for the default."""


def search_of(k: int, arguments: SearchArguments) -> Search:
    """Make the parameters of a search for ``k`` neighbors of each row, itself not counted, from arguments."""
    if k < 1:
        raise InputError(f"n_neighbors={k + 1} counts each row itself: ask for 2 at least")
    metric = EUCLIDEAN if arguments.metric is None else str(arguments.metric)
    return Search(k, metric, arguments.min_recall)


def require_unsaid(neighbors: object, arguments: SearchArguments) -> None:
    """Raise ``InputError`` if arguments of a search are given although ``neighbors`` is the result of one."""
    names = ("n_neighbors", "metric", "min_recall")
    given = [name for name in names if getattr(arguments, name, None) is not None]
    if given:
        name = neighbors.path if isinstance(neighbors, Result) else neighbors
        raise InputError(
            f"{given[0]} is of a search in a matrix, but {name} is what a search has found: leave it out, or "
            "give the matrix"
        )
