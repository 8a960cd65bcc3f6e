"""New rows in an embedding that stays fixed, each placed by its neighbors there, whatever other rows are new.

A row has affinities to its neighbors. Their perplexity is a third of the number of neighbors, or that of the
embedding if it is less. The row begins at the median of its neighbors and descends its own divergence. This
is as in openTSNE, except that there all new rows are normalized together. A row at distance 0 from one of the
embedding takes its position.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.graph.perplexity import affinities
from rankfold.kernels.grid.nodes import Lattice
from rankfold.kernels.layout.settling import NewPoints, PlacementOptions, settle_by_nodes, settle_by_pairs
from rankfold.methods.fuzzy_graph.fuzzy_graph import warm_affinities
from rankfold.methods.fuzzy_graph.lists import BLOCK_BYTES, StoredLists, mismatch
from rankfold.methods.fuzzy_graph.new_rows import CHUNK_ROWS, in_chunks
from rankfold.methods.parts.outputs import create_output
from rankfold.methods.task import Output, count
from rankfold.methods.tsne.arguments import NEIGHBORS_OF_PERPLEXITY
from rankfold.methods.tsne.grid import NODE_BYTES, GridRepulsion, most_nodes, warm_grid
from rankfold.methods.tsne.repulsion import WIDEST
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.planning.passes import RESERVE_BYTES, Pass
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import FittedSweeps, FixedSweeps, TaskFacts, plan_task
from rankfold.pipeline.planning.shape_only import ImaginedResult
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.result import Result, result_of

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]

SETTLING = PlacementOptions(steps=250, rate=0.1, momentum=0.8, exaggeration=1.5, longest=0.25)
"""Parameters of the gradient descent that places new rows, as in openTSNE."""

PIECES = 4
"""Pieces for each thread into which a block of new rows is cut."""

Settle = Callable[[NewPoints, Float32], None]


@dataclass(frozen=True, slots=True)
class NewRows:
    """Task of placing new rows in an embedding by t-SNE that stays fixed, by their neighbors there."""

    lists: StoredLists
    embedding: Source
    perplexities: tuple[float, ...]
    """Perplexities by which the embedding was made."""

    doubt: str = ""
    """Warning that neighbors may be of another matrix; empty if there is none."""

    @classmethod
    def of(cls, lists: StoredLists, embedding: Source, facts: Mapping[str, Any]) -> NewRows:
        """Task for new rows with these neighbors in ``embedding``, whose result has the facts ``facts``."""
        perplexities = tuple(facts["request"]["perplexities"])
        if isinstance(lists.result, ImaginedResult) or "metric" not in facts:  # only planned so far
            return cls(lists, embedding, perplexities)
        doubt = mismatch(lists.result, facts["metric"], facts.get("matrix"))
        return cls(lists, embedding, perplexities, doubt)

    @property
    def source(self) -> Source:
        """(new rows, k) distances of new rows to their neighbors."""
        return self.lists.distances

    @property
    def width(self) -> int:
        """Number of dimensions of the embedding."""
        return self.embedding.shape[1]

    @property
    def perplexity(self) -> float:
        """Perplexity of the affinities of new rows to their neighbors."""
        return max(1.0, min(*self.perplexities, self.lists.k / NEIGHBORS_OF_PERPLEXITY))

    def request(self) -> dict[str, Any]:
        """Everything besides the distances in ``source`` that determines the positions, as JSON types."""
        return {
            "kind": "transform",
            "of": "tsne",
            "n_components": self.width,
            "k": self.lists.k,
            "perplexity": self.perplexity,
            "result": self.embedding.fingerprint(),
            "indices": self.lists.indices.fingerprint(),
        }

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk of the result, ``embedding``."""
        return min(self.lists.rows, CHUNK_ROWS)

    def outputs(self) -> tuple[Output, ...]:
        """Declare the one array of the result, ``embedding``: positions (new rows, d) in float32."""
        shape, chunks = (self.lists.rows, self.width), count(self.lists.rows, CHUNK_ROWS)
        return (Output("embedding", shape, np.dtype(np.float32), chunks),)

    def plan(self, budget: Budget) -> Plan:
        """Plan of one pass over the new rows."""
        rows, k, width, vertices = self.lists.rows, self.lists.k, self.width, self.embedding.shape[0]
        by_nodes = width <= WIDEST
        positions = 4 * 4 * vertices * max(2, width)
        block = BLOCK_BYTES // 8 * 80 + (CHUNK_ROWS + BLOCK_BYTES // (8 * k)) * width * 32
        nodes = 2 * NODE_BYTES * most_nodes(vertices) if by_nodes else 0
        memory = positions + 4 * self.lists.chunk_bytes + block + nodes
        work = SETTLING.steps * rows * (10.0 * k + (200 if by_nodes else 3.0 * vertices))
        reads, writes, lanes = 16 * rows * self.source.shape[1], 4 * rows * width, budget.threads
        sweep = Pass("settling", "matrix", reads, writes, work, memory, 1, lanes, blas_bytes=0)
        peak = RESERVE_BYTES + memory
        fitted = FittedSweeps((sweep,), lanes, peak, memory, 0, lanes, rows, rows, 1, 1)
        task_facts = TaskFacts(
            "transform",
            "grid" if by_nodes else "pairs",
            self.source,
            np.dtype(np.float32),
            f"{width} dimensions, {SETTLING.steps} steps",
            width,
            result_bytes=writes,
            subject=f"transform of {rows} rows in an embedding of {vertices}",
            details=(("neighbors", f"{k} of each row"),),
        )
        return plan_task(task_facts, FixedSweeps(fitted), budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Place all new rows and write them; returns the facts (metadata) of the result.

        An interrupted run starts over.
        """
        rows, width = self.lists.rows, self.width
        positions = np.empty(self.embedding.shape, np.float32)
        self.embedding.read_into(positions, (0, len(positions)), (0, width))
        array = create_output(run.result, "embedding", (rows, width), np.float32, (self.chunk_rows, width))
        same = list[int]()
        with ThreadPoolExecutor(run.concurrency, "rankfold-settling") as pool:
            settle = _settle_among(positions, pool, run.concurrency)
            for first, places in in_chunks(self._places(positions, same, settle), self.chunk_rows):
                write_whole_chunks(array, places, (first, first + len(places)), (0, width))
                if run.progress:
                    run.progress("settling", first + len(places), rows)
        run.passes += 1
        if self.doubt:
            run.warnings.append(self.doubt)
        method = "grid" if width <= WIDEST else "pairs"
        facts = {
            **run.facts(self.request(), method, self.source, fingerprint),
            "epochs": SETTLING.steps,
            "rows_of_the_layout": sum(same),
        }
        run.describe(facts)
        return facts

    def _places(self, positions: Float32, same: list[int], settle: Settle) -> Iterator[Float32]:
        """Yield positions (r, width) of new rows, block by block.

        Appends to ``same`` how many rows of each block are at distance 0 from a row of the embedding.
        ``positions`` (n, width) are those of the embedding.
        """
        for _, distances, indices in self.lists.blocks():
            same.append(int((distances[:, 0] == 0).sum()))
            yield self._place(positions, distances, indices, settle)

    def _place(self, positions: Float32, distances: Array, indices: Array, settle: Settle) -> Float32:
        """(m, width) final positions of new rows, from distances and indices (m, k) of their neighbors.

        ``positions`` (n, width) are those of the embedding; ``settle`` moves the rows from their start.
        """
        weights, is_there = np.empty(distances.shape, np.float32), distances[:, 0] == 0
        affinities(distances, np.array([self.perplexity]), out=weights)
        start = np.stack([np.median(line[indices], axis=1) for line in positions.T], axis=1)
        rows = NewPoints(np.ascontiguousarray(indices), weights, start.astype(np.float32))
        out = np.empty_like(rows.start)
        settle(rows, out)
        out[is_there] = positions[indices[is_there, 0]]
        return out


def _settle_among(positions: Float32, pool: ThreadPoolExecutor, threads: int) -> Settle:
    """Make the function that moves new rows from their start, among vertices fixed at ``positions`` (n, d).

    It takes the rows, and an array (m, d) that it writes their final positions to.
    """
    width = positions.shape[1]
    grid = GridRepulsion(len(positions), pool, threads)
    if width <= WIDEST:
        grid.prepare(positions, with_near=True)
    sources = np.ascontiguousarray(positions.T)

    def settle_some(rows: NewPoints, out: Float32) -> None:
        if width > WIDEST:
            settle_by_pairs(positions, rows, sources, options=SETTLING, out=out)
            return
        start = np.zeros((len(out), 2), np.float32)
        start[:, :width] = rows.start
        places, plane = np.empty_like(start), NewPoints(rows.neighbors, rows.weights, start)
        settle_by_nodes(grid.positions, plane, grid.lattice, grid.nodes, options=SETTLING, out=places)
        out[...] = places[:, :width]

    def settle(rows: NewPoints, out: Float32) -> None:
        pieces = 1 if threads == 1 else PIECES * threads
        cuts = [len(out) * i // pieces for i in range(pieces + 1)]

        def one(ends: tuple[int, int]) -> None:
            settle_some(rows.part(*ends), out[slice(*ends)])

        for _ in pool.map(one, itertools.pairwise(cuts)):
            pass

    return settle


def new_rows_task(result: Result, neighbors: Result | str | Path) -> NewRows:
    """Task that places new rows in the embedding of ``result``, which is one of tsne.

    ``neighbors`` is a result of knn, or its path, with the neighbors of the new rows among the embedded rows.
    """
    lists = result_of("transform", neighbors, "neighbors of new rows, as of rf.knn(x, k=30, queries=new)")
    embedding = result.matrix("embedding")
    result.require_whole()
    return NewRows.of(StoredLists.of_queries(lists, embedding.shape[0]), embedding, result.attrs)


def warm_new_rows(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the compiled loops that weigh the neighbors of new rows and place these rows once."""
    warm_affinities()
    _warm_settling(max(2, min(3, request["n_components"])))


@functools.cache
def _warm_settling(width: int) -> None:
    points, options = np.zeros((2, width), np.float32), PlacementOptions(1, 0.1, 0.8, 1.5, 0.25)
    rows = NewPoints(np.zeros((2, 2), np.int64), np.full((2, 2), 0.5, np.float32), points)
    if width > WIDEST:
        settle_by_pairs(points, rows, points.T.copy(), options=options, out=points.copy())
    else:
        warm_grid()
        lattice, nodes = Lattice(-2.0, -2.0, 1.0), np.ones((5, 5, 3), np.float32)
        settle_by_nodes(points, rows, lattice, nodes, options=options, out=points.copy())
