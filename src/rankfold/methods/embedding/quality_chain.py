"""An embedding and measures of how well it keeps neighborhoods: one chain, one result.

Neighbors of a sample of rows are searched for in the matrix and in the embedding. Trustworthiness and
continuity follow from the ranks of either in the other. Preservation is the share that both have in common.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.chain import Chain, Link
from rankfold.methods.embedding.arguments import EUCLIDEAN
from rankfold.methods.embedding.preservation import count_common, share_of
from rankfold.methods.embedding.quality_request import EmbeddingQualityRequest
from rankfold.methods.embedding.trustworthiness import EmbeddingQuality, read_neighbors, with_lists
from rankfold.methods.fuzzy_graph.lists import metric_of
from rankfold.methods.knn.arguments import PRECOMPUTED
from rankfold.methods.parts.outputs import create_output
from rankfold.methods.task import Output, Task
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.planning.passes import RESERVE_BYTES, Pass
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import FittedSweeps, FixedSweeps, TaskFacts, plan_task
from rankfold.pipeline.planning.shape_only import ShapeOnly
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.result import Result

Int64 = npt.NDArray[np.int64]

EMBEDDING = "embedding"
"""Name of the array of a result that is measured."""

K = 15
"""Number of neighbors of each row that the measures compare, if there are enough rows."""

BLOCK = 2**18
"""Number of neighbors that are compared at a time, counted in both lists of some rows."""

MADE, NEAR_IN_PICTURE, NEAR_IN_DATA = "made", "near-in-embedding", "near-in-data"
RANKS = ("trustworthiness", "continuity")


@dataclass(frozen=True, slots=True)
class MeasuredEmbedding:
    """Last task of a chain: copies an embedding into the result, and adds the measures of its quality.

    ``made`` is the task that makes the embedding.
    """

    made: Task
    identity: dict[str, Any]
    measures: tuple[EmbeddingQuality, EmbeddingQuality]
    """Tasks of trustworthiness and continuity; they have neighbor lists once the searches have run."""

    results: Mapping[str, Path] | None = None
    """Paths of the results of earlier links of the chain, by name; None before they have run."""

    @property
    def source(self) -> Source:
        """The matrix that the embedding is made of."""
        return self.made.source

    def request(self) -> dict[str, Any]:
        """Return ``identity``: everything that determines embedding and measures, as JSON types."""
        return self.identity

    def outputs(self) -> tuple[Output, ...]:
        """Declare the arrays of the result: those of the embedding."""
        return self.made.outputs()

    def plan(self, budget: Budget) -> Plan:
        """Plan the last step: arrays are copied a chunk at a time, and neighbor lists are compared."""
        written = sum(math.prod(each.shape) * each.dtype.itemsize for each in self.outputs())
        largest = max(math.prod(each.shape) * each.dtype.itemsize // each.chunks for each in self.outputs())
        parameters = self.measures[0].parameters
        memory = 4 * largest + 64 * BLOCK
        sweep = Pass("measures", "matrix", written, written, 20.0 * parameters.rows * K, memory, 1, 1)
        rows = self.source.shape[0]
        fitted = FittedSweeps((sweep,), 1, RESERVE_BYTES + memory, memory, 0, 1, rows, rows, 1, 1)
        kind, dtype = self.identity["kind"], self.outputs()[0].dtype
        task_facts = TaskFacts(kind, "measured", self.source, dtype, "rows", parameters.k, written)
        return plan_task(task_facts, FixedSweeps(fitted), budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Copy the embedding into ``run.result``; returns its facts (metadata) with the measures."""
        assert self.results is not None  # noqa: S101 - only a plan is made without
        made = Result(self.results[MADE])
        made.require_whole(sums=True)
        for output in self.outputs():
            _copy(made, output.name, run.result)
        facts = {**made.attrs, "request": self.identity, **self._qualities()}
        run.describe({name: fact for name, fact in facts.items() if name != "schema"})
        return facts

    def _qualities(self) -> dict[str, Any]:
        """Measures by name, with their standard errors, which are 0 if all rows were used."""
        assert self.results is not None  # noqa: S101
        parameters, found = self.measures[0].parameters, dict[str, Any]()
        for name in RANKS:
            ranks = Result(self.results[name]).attrs
            found |= {name: ranks["value"], f"{name}_error": ranks["standard_error"]}
        share, error = share_in_common(*self.measures)
        found |= {"preservation": share, "preservation_error": error}
        return found | {"quality_rows": parameters.rows, "quality_k": parameters.k}


def share_in_common(first: EmbeddingQuality, second: EmbeddingQuality) -> tuple[float, float]:
    """Share of neighbors in the embedding that are neighbors in the data, a mean over the sampled rows.

    Parameters
    ----------
    first, second : EmbeddingQuality
        Trustworthiness and continuity, with lists of neighbors in the embedding and in the data.

    Returns
    -------
    share, standard_error : float
        The error is that of a sample without replacement; 0 if all rows are used.
    """
    k, rows, of_rows = first.k, first.parameters.rows, first.parameters.of_rows
    total = squares = 0
    for start in range(0, rows, step := max(1, BLOCK // (2 * k))):
        own = np.arange(start, min(rows, start + step)) if first.sample is None else first.sample[start:]
        common = count_common(*(read_neighbors(each, start, own[:step]) for each in (first, second)))
        total, squares = total + int(common.sum()), squares + int(np.square(common).sum())
    share, error = share_of(total, squares, rows, k)
    return share, error * math.sqrt(1 - rows / of_rows)


def _copy(made: Result, name: str, result: Path) -> None:
    """Copy the array ``name`` of ``made`` into the result at path ``result``, a chunk of rows at a time."""
    array = made[name]
    chunk = tuple(getattr(array, "chunks", array.shape))
    path = create_output(result, name, array.shape, array.dtype, chunk)
    rest = tuple((0, length) for length in array.shape[1:])
    for start in range(0, array.shape[0], chunk[0]):
        stop = min(array.shape[0], start + chunk[0])
        write_whole_chunks(path, np.asarray(array[start:stop]), (start, stop), *rest)


@dataclass(frozen=True, slots=True)
class Measures:
    """Tasks of trustworthiness and continuity, for an embedding that is not made yet.

    ``data`` is the matrix that was embedded, ``metric`` the one by which its rows are neighbors.
    """

    trustworthiness: EmbeddingQuality
    continuity: EmbeddingQuality
    data: Source
    metric: str

    @classmethod
    def of(cls, data: Source, embedding: Source, metric: str, seed: int) -> Measures:
        """Make the tasks for a matrix and its embedding, with the default number of rows drawn by ``seed``.

        If ``metric`` is ``"precomputed"``, rows of the matrix are compared by Euclidean distances.
        """
        metric = EUCLIDEAN if metric == PRECOMPUTED else metric
        k = max(1, min(K, (data.shape[0] - 1) // 2))

        def ranks(kind: str, of: Source, others: Source, by: str) -> EmbeddingQuality:
            options = {"k": k, "sample_rows": None, "seed": seed}
            return EmbeddingQuality.of(of, EmbeddingQualityRequest.of(kind, of, others, metric=by, **options))

        trust = ranks(RANKS[0], data, embedding, metric)
        return cls(trust, ranks(RANKS[1], embedding, data, EUCLIDEAN), data, metric)

    def identity(self) -> list[Any]:
        """Parameters that determine the measures, in a fixed order, as JSON types."""
        asked = self.trustworthiness.parameters
        return [self.data.fingerprint(), asked.rows, asked.k, self.metric, asked.seed]

    def search(self, embedding: Source) -> Task:
        """Task that searches for the neighbors of the sampled rows in the embedding."""
        return self.trustworthiness.search(embedding, EUCLIDEAN)

    def trust(self, results: Mapping[str, Path]) -> EmbeddingQuality:
        """Task of trustworthiness, with the neighbors that were found in the embedding.

        ``results`` are paths of the results of earlier links, by name.
        """
        return with_lists(self.trustworthiness, results[NEAR_IN_PICTURE])

    def goes_on(self, results: Mapping[str, Path]) -> EmbeddingQuality:
        """Task of continuity, with the neighbors that were found in the data.

        ``results`` are paths of the results of earlier links, by name.
        """
        there = dataclasses.replace(self.continuity, source=embedding_of(results))
        return with_lists(there, results[NEAR_IN_DATA])

    def links(self) -> tuple[Link, ...]:
        """Links that follow the one that makes the embedding: two searches, each followed by its ranks."""
        in_picture = self.search(self.continuity.source)
        in_data = self.continuity.search(self.data, self.metric)
        return (
            Link(NEAR_IN_PICTURE, in_picture, lambda results: self.search(embedding_of(results))),
            Link(RANKS[0], self.trustworthiness, self.trust),
            Link(NEAR_IN_DATA, in_data),
            Link(RANKS[1], self.continuity, self.goes_on),
        )


def embedding_of(results: Mapping[str, Path]) -> Source:
    """Open the embedding that was made; ``results`` are paths of results by name of link."""
    return open_source(f"{results[MADE]}::{EMBEDDING}")


def measured_task(task: Task, neighbors: Result | None, x: object) -> Task:
    """Add measures to the task of an embedding, by the matrix ``x``; the task as it is if ``x`` is None.

    ``neighbors`` is a result of knn or a graph, whose metric is used; None for the Euclidean one.
    """
    if x is None:
        return task
    metric = EUCLIDEAN if neighbors is None else metric_of(neighbors)
    return with_quality(task, x, metric, int(task.request()["seed"]))


def with_quality(task: Task, x: object, metric: str, seed: int) -> Chain:
    """Make a chain that embeds the rows of a matrix, and then measures the embedding.

    Parameters
    ----------
    task : Task
        Task whose result has ``embedding``, or a chain that ends in such a task.
    x : matrix
        Matrix whose rows are embedded, in the same order: anything ``svd`` takes.
    metric : str
        Metric by which rows of ``x`` are neighbors.
    seed : int
        Key of the sample of rows.
    """
    *before, last = task.links if isinstance(task, Chain) else (Link(MADE, task),)
    made = dataclasses.replace(last, name=MADE)
    measures = Measures.of(open_source(x), _to_come(made.task), metric, seed)
    identity = {**task.request(), "quality": measures.identity()}
    measured = MeasuredEmbedding(made.task, identity, (measures.trustworthiness, measures.continuity))

    def ready(results: Mapping[str, Path]) -> MeasuredEmbedding:
        both = measures.trust(results), measures.goes_on(results)
        return dataclasses.replace(measured, measures=both, results=dict(results))

    links = (*before, made, *measures.links(), Link("measured", measured, ready))
    return Chain(identity, links)


def _to_come(task: Task) -> Source:
    """Shape and type of the embedding that a task will make, as a source without values, for plans."""
    output = next(each for each in task.outputs() if each.name == EMBEDDING)
    rows, columns = output.shape
    return ShapeOnly.plain((rows, columns), output.dtype, EMBEDDING, decoded=False)
