"""New rows placed in a layout that stays fixed, each by its neighbors there and independent of the others.

A row begins at the mean of its neighbors by weight, and moves for a third of the epochs of the layout at a
quarter of its rate, as in umap-learn. There the largest weight of a batch decides how often an edge pulls,
and the size of a batch how many epochs there are; here neither does, so that rows get the same positions in
any batches. A row at distance 0 from one of the layout takes its position.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.layout.forces import epoch_key, forces_of, phases_of
from rankfold.kernels.layout.rows import NewRows, place_rows, row_keys
from rankfold.methods.fuzzy_graph.fuzzy_graph import warm_weights
from rankfold.methods.fuzzy_graph.lists import BLOCK_BYTES, StoredLists
from rankfold.methods.fuzzy_graph.new_rows import CHUNK_ROWS, NewNeighbors, in_chunks, means_of_neighbors
from rankfold.methods.parts.outputs import create_output
from rankfold.methods.random_keys import Purpose
from rankfold.methods.task import Output, count
from rankfold.methods.umap.arguments import UmapArguments
from rankfold.methods.umap.layout import PIECES
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.planning.passes import RESERVE_BYTES, Pass
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import FittedSweeps, FixedSweeps, TaskFacts, plan_task
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.result import Result

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]

SHARE_OF_EPOCHS, SHARE_OF_RATE = 3, 4
"""Divisors of the number of epochs and of the learning rate of a layout, which give those of new rows."""

ROW_FLOPS = 30.0
"""Floating-point operations that take as long as one force on a new row."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Task of placing new rows in a layout that stays fixed, by their neighbors there."""

    neighbors: NewNeighbors
    embedding: Source
    parameters: UmapArguments
    """Parameters by which the layout was made."""

    epochs: int
    """Number of epochs by which the layout was made."""

    @classmethod
    def of(cls, neighbors: NewNeighbors, embedding: Source, facts: Mapping[str, Any]) -> Placement:
        """Task for new rows with these neighbors in ``embedding``, whose result has the facts ``facts``."""
        names = {each.name for each in fields(UmapArguments)}
        request = {name: value for name, value in facts["request"].items() if name in names}
        parameters = UmapArguments(**request)
        return cls(neighbors, embedding, parameters, parameters.epochs(embedding.shape[0]))

    @property
    def lists(self) -> StoredLists:
        """Neighbor lists of new rows."""
        return self.neighbors.lists

    @property
    def source(self) -> Source:
        """(new rows, k) distances of new rows to their neighbors."""
        return self.lists.distances

    @property
    def own_epochs(self) -> int:
        """Number of epochs in which new rows move."""
        return max(1, self.epochs // SHARE_OF_EPOCHS)

    def request(self) -> dict[str, Any]:
        """Everything besides the distances in ``source`` that determines the positions, as JSON types."""
        return {
            "kind": "transform",
            "of": "umap",
            "n_components": self.parameters.n_components,
            "result": self.embedding.fingerprint(),
            "layout": {**self.parameters.as_dict(), "n_epochs": self.epochs},
            **self.neighbors.request(),
        }

    def outputs(self) -> tuple[Output, ...]:
        """Declare the one array of the result, ``embedding``: positions (new rows, d) in float32."""
        shape, chunks = (self.lists.rows, self.parameters.n_components), count(self.lists.rows, CHUNK_ROWS)
        return (Output("embedding", shape, np.dtype(np.float32), chunks),)

    def plan(self, budget: Budget) -> Plan:
        """Plan of one pass over the new rows."""
        rows, k, width = self.lists.rows, self.lists.k, self.parameters.n_components
        positions = 2 * 4 * self.embedding.shape[0] * width
        block = BLOCK_BYTES // 8 * 80 + (CHUNK_ROWS + BLOCK_BYTES // (8 * k)) * width * 32
        memory = positions + 4 * self.lists.chunk_bytes + block
        forces = 1 + self.parameters.negative_sample_rate
        work = ROW_FLOPS * rows * np.log2(k + 1) * self.own_epochs * forces
        reads, writes, lanes = 16 * rows * self.source.shape[1], 4 * rows * width, budget.threads
        sweep = Pass("placement", "matrix", reads, writes, float(work), memory, 1, lanes, blas_bytes=0)
        peak = RESERVE_BYTES + memory
        fitted = FittedSweeps((sweep,), lanes, peak, memory, 0, lanes, rows, rows, 1, 1)
        task_facts = TaskFacts(
            "transform",
            "sgd",
            self.source,
            np.dtype(np.float32),
            f"{width} dimensions, {self.own_epochs} epochs",
            width,
            result_bytes=writes,
            subject=f"transform of {rows} rows in a layout of {self.embedding.shape[0]}",
            details=(("neighbors", f"{k} of each row"),),
        )
        return plan_task(task_facts, FixedSweeps(fitted), budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Place all new rows and write them; returns the facts (metadata) of the result.

        An interrupted run starts over.
        """
        rows, width = self.lists.rows, self.parameters.n_components
        positions = np.empty(self.embedding.shape, np.float32)
        self.embedding.read_into(positions, (0, len(positions)), (0, width))
        chunk_rows = self.neighbors.chunk_rows
        array = create_output(run.result, "embedding", (rows, width), np.float32, (chunk_rows, width))
        same = list[int]()
        with ThreadPoolExecutor(run.concurrency, "rankfold-placement") as pool:
            for first, places in in_chunks(self._placed(positions, same, pool, run.concurrency), chunk_rows):
                write_whole_chunks(array, places, (first, first + len(places)), (0, width))
                if run.progress:
                    run.progress("placement", first + len(places), rows)
        run.passes += 1
        if self.neighbors.doubt:
            run.warnings.append(self.neighbors.doubt)
        facts = {
            **run.facts(self.request(), "sgd", self.source, fingerprint),
            "epochs": self.own_epochs,
            "rows_of_the_layout": sum(same),
        }
        run.describe(facts)
        return facts

    def _placed(
        self, positions: Float32, same: list[int], pool: ThreadPoolExecutor, threads: int
    ) -> Iterator[Float32]:
        """Yield positions (r, d) of new rows, block by block.

        Appends to ``same`` how many rows of each block are at distance 0 from a row of the layout.
        ``positions`` (n, d) are those of the layout.
        """
        for indices, weights, is_there in self.neighbors.blocks():
            same.append(int(is_there.sum()))
            yield self._place(positions, (indices, weights, is_there), pool, threads)

    def _place(
        self,
        positions: Float32,
        block: tuple[Array, Float32, npt.NDArray[np.bool_]],
        pool: ThreadPoolExecutor,
        threads: int,
    ) -> Float32:
        """(m, d) final positions of new rows among the fixed ``positions`` (n, d) of a layout.

        ``block`` is their neighbors (m, k), the weights of these (m, k), and a mask (m,) of new rows that are
        rows of the layout.
        """
        indices, weights, is_there = block
        start, epochs = _means(positions, indices, weights), self.own_epochs
        start[is_there] = positions[indices[is_there, 0]]
        phases = phases_of(np.where(weights >= np.float32(1 / epochs), weights, np.float32(0)), 1.0)
        phases[is_there] = 0
        keys = row_keys(indices, epoch_key(self.parameters.seed, Purpose.PLACED_ROWS, 0))
        rate = self.parameters.learning_rate / SHARE_OF_RATE
        rates = (rate * (1 - np.arange(epochs) / epochs)).astype(np.float32)
        forces = forces_of(*self.parameters.curve(), self.parameters.repulsion_strength)
        out, negatives = np.empty_like(start), self.parameters.negative_sample_rate

        def place(ends: tuple[int, int]) -> None:
            some = slice(*ends)
            part = NewRows(indices[some], phases[some], keys[some], start[some])
            place_rows(positions, part, forces=forces, rates=rates, negatives=negatives, out=out[some])

        pieces = 1 if threads == 1 else PIECES * threads
        for _ in pool.map(place, itertools.pairwise(len(out) * i // pieces for i in range(pieces + 1))):
            pass
        return out


def _means(positions: Float32, indices: Array, weights: Float32) -> Float32:
    """(m, d) means of the positions of neighbors by weight; of those of weight 1 alone where a row has any.

    ``positions`` (n, d), ``indices`` and ``weights`` (m, k) of the neighbors of each row.
    """
    shares = weights.astype(np.float64)
    sure = weights == 1
    shares[sure.any(axis=1)] = sure[sure.any(axis=1)]
    shares /= np.maximum(shares.sum(axis=1), np.finfo(np.float64).tiny)[:, None]
    return means_of_neighbors(positions, indices, shares).astype(np.float32)


def placement_task(layout: Result, neighbors: Result | str | Path) -> Placement:
    """Task that places new rows in ``layout``, a result of umap.

    ``neighbors`` is a result of knn, or its path, with the neighbors of the new rows among the rows of the
    layout.
    """
    embedding = layout.matrix("embedding")
    new = NewNeighbors.of(layout, embedding.shape[0], neighbors)
    return Placement.of(new, embedding, layout.attrs)


def warm_placement(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the compiled loops that weigh the neighbors of new rows and place these rows once."""
    warm_weights(dtype, request, shape)
    _warm_placement(min(3, request["n_components"]))


@functools.cache
def _warm_placement(width: int) -> None:
    start, indices = np.zeros((2, width), np.float32), np.zeros((2, 2), np.int64)
    rows = NewRows(indices, np.ones((2, 2), np.uint32), row_keys(indices, 0), start)
    forces, rates = forces_of(1.0, 1.0, 1.0), np.ones(1, np.float32)
    place_rows(start, rows, forces=forces, rates=rates, negatives=1, out=start.copy())
