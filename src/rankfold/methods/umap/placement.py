"""New rows in a layout that stays: each by its neighbors among the rows of the layout, whatever its company.

A row begins at the mean of its neighbors by weight, and goes through a third of the epochs of the layout at a
quarter of its rate, as in umap-learn. There the largest weight of a batch decides how often an edge pulls,
and the size of a batch how many epochs there are; here neither does, so that rows come to the same places in
any batches. A row at no distance from one of the layout is that row, and has its place.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.graph.fuzzy import membership
from rankfold.kernels.layout.forces import epoch_key, forces_of, phases_of
from rankfold.kernels.layout.rows import NewRows, place_rows, row_keys
from rankfold.methods.fuzzy_graph.lists import BLOCK_BYTES, StoredLists
from rankfold.methods.parts.outputs import create_output
from rankfold.methods.random_keys import Purpose
from rankfold.methods.task import Output, count
from rankfold.methods.umap.layout import PIECES
from rankfold.methods.umap.request import LayoutRequest
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.planning.passes import Pass
from rankfold.pipeline.planning.peak_memory import RESERVE_BYTES
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import Arrangement, FixedSweeps, Outline, plan_task
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.result import Result, result_of

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]

SHARE_OF_EPOCHS, SHARE_OF_RATE = 3, 4
"""Of a layout, what its new rows have."""

CHUNK_ROWS = 2**16
"""Of the result, which are placed at a time."""

ROW_FLOPS = 30.0
"""Operations that take as long as one force does."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Neighbors of new rows, and the layout they are in, as ``execute`` takes them."""

    lists: StoredLists
    embedding: Source
    parameters: LayoutRequest
    """Of the layout."""

    epochs: int
    """Of the layout."""

    mean_distance: float
    """Of neighbors, of its rows."""

    local_connectivity: float

    @classmethod
    def of(cls, lists: StoredLists, embedding: Source, facts: Mapping[str, Any]) -> Placement:
        """Rows with some neighbors in an embedding of which these facts are known."""
        if "mean_distance" not in facts:
            raise InputError("this layout says nothing of the distances in its graph: lay it out anew")
        names = {each.name for each in fields(LayoutRequest)}
        request = {name: value for name, value in facts["request"].items() if name in names}
        graph = facts["mean_distance"], facts["local_connectivity"]
        return cls(lists, embedding, LayoutRequest(**request), facts["epochs"], *graph)

    @property
    def source(self) -> Source:
        """Distances of new rows."""
        return self.lists.distances

    @property
    def own_epochs(self) -> int:
        """Epochs that new rows go through."""
        return max(1, self.epochs // SHARE_OF_EPOCHS)

    def request(self) -> dict[str, Any]:
        """See the protocol."""
        return {
            "kind": "transform",
            "of": "umap",
            "n_components": self.parameters.n_components,
            "k": self.lists.k,
            "result": self.embedding.fingerprint(),
            "layout": {**self.parameters.as_dict(), "n_epochs": self.epochs},
            "graph": [self.mean_distance, self.local_connectivity],
            "indices": self.lists.indices.fingerprint(),
        }

    @property
    def chunk_rows(self) -> int:
        """Of the result."""
        return min(self.lists.rows, CHUNK_ROWS)

    def outputs(self) -> tuple[Output, ...]:
        """See the protocol."""
        shape, chunks = (self.lists.rows, self.parameters.n_components), count(self.lists.rows, CHUNK_ROWS)
        return (Output("embedding", shape, np.dtype(np.float32), chunks),)

    def plan(self, budget: Budget) -> Plan:
        """See the protocol."""
        rows, k, width = self.lists.rows, self.lists.k, self.parameters.n_components
        positions = 2 * 4 * self.embedding.shape[0] * width
        block = BLOCK_BYTES // 8 * 80 + (CHUNK_ROWS + BLOCK_BYTES // (8 * k)) * width * 32
        memory = positions + 4 * self.lists.chunk_bytes + block
        forces = 1 + self.parameters.negative_sample_rate
        work = ROW_FLOPS * rows * np.log2(k + 1) * self.own_epochs * forces
        reads, writes, lanes = 16 * rows * self.source.shape[1], 4 * rows * width, budget.threads
        sweep = Pass("placement", "matrix", reads, writes, float(work), memory, 1, lanes, blas_bytes=0)
        peak = RESERVE_BYTES + memory
        arrangement = Arrangement((sweep,), lanes, peak, memory, 0, lanes, rows, rows, 1, 1)
        outline = Outline(
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
        return plan_task(outline, FixedSweeps(arrangement), budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """See the protocol; what was interrupted is made again."""
        rows, width = self.lists.rows, self.parameters.n_components
        positions = np.empty(self.embedding.shape, np.float32)
        self.embedding.read_into(positions, (0, len(positions)), (0, width))
        array = create_output(run.result, "embedding", (rows, width), np.float32, (self.chunk_rows, width))
        same = 0
        with ThreadPoolExecutor(run.concurrency, "rankfold-placement") as pool:
            for first, places, found in self._chunks(positions, pool, run.concurrency):
                write_whole_chunks(array, places, (first, first + len(places)), (0, width))
                same += found
                if run.progress:
                    run.progress("placement", first + len(places), rows)
        run.passes += 1
        facts = {
            **run.facts(self.request(), "sgd", self.source, fingerprint),
            "epochs": self.own_epochs,
            "rows_of_the_layout": same,
        }
        run.describe(facts)
        return facts

    def _chunks(
        self, positions: Float32, pool: ThreadPoolExecutor, threads: int
    ) -> Iterator[tuple[int, Float32, int]]:
        """First row, places, and how many have that of a row of the layout, of rows that fill a chunk."""
        places, same, first = [], 0, 0
        held = 0
        for _, distances, indices in self.lists.blocks():
            placed, found = self._place(positions, distances, indices, pool, threads)
            places.append(placed)
            held, same = held + len(placed), same + found
            if held >= self.chunk_rows:
                together = np.concatenate(places)
                whole = held - held % self.chunk_rows
                yield first, together[:whole], same
                places, first, held, same = [together[whole:]], first + whole, held - whole, 0
        if held:
            yield first, np.concatenate(places), same

    def _place(
        self, positions: Float32, distances: Array, indices: Array, pool: ThreadPoolExecutor, threads: int
    ) -> tuple[Float32, int]:
        """Where rows with these neighbors come to."""
        weights, is_there = np.empty(distances.shape, np.float32), distances[:, 0] == 0
        connectivity = max(0.0, self.local_connectivity - 1)
        membership(
            distances, self.mean_distance, local_connectivity=min(connectivity, self.lists.k), first=1,
            out=weights,
        )  # fmt: skip
        start, epochs = _means(positions, indices, weights), self.own_epochs
        start[is_there] = positions[indices[is_there, 0]]
        phases = phases_of(np.where(weights >= np.float32(1 / epochs), weights, np.float32(0)), 1.0)
        phases[is_there] = 0
        keys = row_keys(indices, epoch_key(self.parameters.seed, Purpose.PLACED_ROWS, 0))
        rate = self.parameters.learning_rate / SHARE_OF_RATE
        rates = (rate * (1 - np.arange(epochs) / epochs)).astype(np.float32)
        forces = forces_of(*self.parameters.curve(), self.parameters.repulsion_strength)
        out, neighbors = np.empty_like(start), np.ascontiguousarray(indices)
        negatives = self.parameters.negative_sample_rate

        def place(ends: tuple[int, int]) -> None:
            some = slice(*ends)
            part = NewRows(neighbors[some], phases[some], keys[some], start[some])
            place_rows(positions, part, forces=forces, rates=rates, negatives=negatives, out=out[some])

        pieces = 1 if threads == 1 else PIECES * threads
        for _ in pool.map(place, itertools.pairwise(len(out) * i // pieces for i in range(pieces + 1))):
            pass
        return out, int(is_there.sum())


def _means(positions: Float32, indices: Array, weights: Float32) -> Float32:
    """Of neighbors by weight; of those that weigh 1 alone, where there are any."""
    shares = weights.astype(np.float64)
    sure = weights == 1
    shares[sure.any(axis=1)] = sure[sure.any(axis=1)]
    shares /= np.maximum(shares.sum(axis=1), np.finfo(np.float64).tiny)[:, None]
    means = np.zeros((len(indices), positions.shape[1]))
    for column in range(indices.shape[1]):
        means += shares[:, column, None] * positions[indices[:, column]]
    return means.astype(np.float32)


def placement_task(layout: Result, neighbors: Result | str | Path) -> Placement:
    """New rows by their neighbors, checked; arguments of ``rankfold.transform`` for a result of umap."""
    lists = result_of("transform", neighbors, "neighbors of new rows, as of rf.knn(x, k=15, queries=new)")
    embedding = layout.matrix("embedding")
    layout.require_whole()
    return Placement.of(StoredLists.of_queries(lists, embedding.shape[0]), embedding, layout.attrs)
