"""The task of t-SNE: gradient descent of all rows in memory. An edge takes 8 bytes, a row some more."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.knn.graph import NAME
from rankfold.methods.parts.outputs import create_output, write_outputs
from rankfold.methods.task import Output, count
from rankfold.methods.tsne.arguments import TsneArguments
from rankfold.methods.tsne.descent import State
from rankfold.methods.tsne.edges import StoredAffinities, pulls_bytes
from rankfold.methods.tsne.grid import NODE_BYTES, SPACING, GridRepulsion, most_nodes
from rankfold.methods.tsne.repulsion import by_grid, by_tree, error_of, pushing_bytes, repulsion_of
from rankfold.methods.tsne.start import start_positions
from rankfold.methods.tsne.work import optimize
from rankfold.methods.umap.start import digest, given_positions, spectral_positions
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.importing.csr_writer import chunk_length
from rankfold.pipeline.planning.passes import Pass
from rankfold.pipeline.planning.peak_memory import RESERVE_BYTES
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import FittedSweeps, TaskFacts, plan_task
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.units import format_bytes

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

CHUNK_ROWS = 2**18
"""Fewest rows of a chunk of the result; larger results have ``TARGET_CHUNKS`` chunks."""

TARGET_CHUNKS = 8192

PART_ROWS = 1000
"""Fewest rows for each process: with fewer, exchanging positions takes longer than moving them."""

EDGE_FLOPS, ROW_FLOPS, NODE_FLOPS, TREE_FLOPS, PAIR_FLOPS = 45.0, 1000.0, 5000.0, 25_000.0, 6.0
"""Operations, in equivalent time, that a step takes for each edge; each row; each row's repulsion by a grid,
and by a tree; and each pair."""


@dataclass(frozen=True, slots=True)
class TsneTask:
    """Task of an embedding by t-SNE, from the graph of affinities of its rows."""

    source: Source
    """Distances of neighbor lists, of which the graph is made."""

    edges: int
    """Number of edges of the graph, at most."""

    parameters: TsneArguments
    made_by: Mapping[str, Any]
    """Request that the graph is made by."""

    given: Float64 | None = None
    """Initial positions given by the caller; None if there are none."""

    graph: Path | None = None
    """Path of the graph; None before it is made."""

    start: Path | None = None
    """Path of a result to begin at: eigenvectors of the graph, or principal components; else None."""

    matrix: str = ""
    """Fingerprint of the matrix of the principal components; empty without these."""

    @property
    def rows(self) -> int:
        """Number of vertices."""
        return self.source.shape[0]

    @property
    def width(self) -> int:
        """Number of dimensions."""
        return self.parameters.n_components

    def request(self) -> dict[str, Any]:
        """Everything besides the matrix that decides the positions, for JSON."""
        more = {"positions": digest(self.given), "graph": dict(self.made_by), "matrix": self.matrix}
        return {**self.parameters.as_dict(), **more}

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk of the result."""
        return min(self.rows, max(CHUNK_ROWS, self.rows // TARGET_CHUNKS))

    def outputs(self) -> tuple[Output, ...]:
        """Arrays of the result: the embedding, and the history of the divergence."""
        chunks, double = count(self.rows, self.chunk_rows), np.dtype(np.float64)
        embedding = Output("embedding", (self.rows, self.width), np.dtype(np.float32), chunks)
        return embedding, Output("history", (self.parameters.measures, 3), double)

    # Plan -----------------------------------------------------------------------------------------

    def plan(self, budget: Budget) -> Plan:
        """Plan of the descent, for the processes that it is split among."""
        outline = TaskFacts(
            "tsne",
            self._method,
            self.source,
            np.dtype(np.float32),
            f"{self.width} dimensions, {self.parameters.steps} steps",
            self.width,
            result_bytes=4 * self.rows * self.width,
            scratch_bytes=12 * self.rows * self.width,
            subject=f"tsne of {self.rows} rows and {self.edges} edges",
            details=self._details(self.parts(budget.workers)),
        )
        return plan_task(outline, self, budget)

    @property
    def _method(self) -> str:
        if by_tree(self.rows, self.width):
            return "tree"
        return "grid" if by_grid(self.rows, self.width) else "pairs"

    def arrange(self, budget: Budget) -> FittedSweeps:
        """Arrange one pass, by processes that share the edges, each with all of its threads."""
        parts = self.parts(budget.workers)
        memory, lanes = self._memory_bytes(parts), budget.threads * parts
        costs = {"grid": NODE_FLOPS, "tree": TREE_FLOPS, "pairs": PAIR_FLOPS * self.rows}
        repeats = 1 if self._method == "pairs" else parts  # a grid or a tree is made by each
        push = costs[self._method] * self.rows * repeats
        work = self.parameters.steps * (EDGE_FLOPS * self.edges + ROW_FLOPS * self.rows + push)
        reads, writes = 12 * self.edges, 4 * self.rows * self.width
        sweep = Pass(
            "descent",
            "matrix",
            reads,
            writes,
            work,
            memory,
            parts,
            lanes,
            blas_bytes=0,
            numbers=self.edges,
            exchange_bytes=self._exchange_bytes(parts) * self.parameters.steps,
        )
        each = RESERVE_BYTES + memory, memory, 3 * writes
        return FittedSweeps((sweep,), budget.threads, *each, lanes, self.rows, self.rows, 1, 1)

    def parts(self, workers: int) -> int:
        """Number of processes that the descent is split among, of ``workers`` available."""
        return max(1, min(workers, self.rows // PART_ROWS))

    def _memory_bytes(self, parts: int = 1) -> int:
        """Memory of each of ``parts`` processes that share the work."""
        chunk = chunk_length(self.edges)
        return self._edges_bytes(parts) + self._positions_bytes + self._grid_bytes + chunk * 24

    def _edges_bytes(self, parts: int) -> int:
        """Bytes of edges in one of ``parts`` processes: its share, and at most one more row at its border."""
        edges = min(self.edges, self.edges // parts + self.rows * (parts > 1))
        return pulls_bytes(self.rows, self.rows, edges)

    @property
    def _positions_bytes(self) -> int:
        """Bytes of positions before and after, velocities, gains, forces, a checkpoint, and sums of rows."""
        return self.rows * (self.width * (4 * 9 + 8 * 4) + 48)

    @property
    def _grid_bytes(self) -> int:
        """Most bytes of the nodes and waves of a grid, or of the nodes of a tree."""
        if self._method == "tree":
            return pushing_bytes(self.rows, self.width)
        return NODE_BYTES * most_nodes(self.rows) if self._method == "grid" else 2**20

    def _exchange_bytes(self, parts: int) -> int:
        """Bytes of positions that a process receives from the others in a step."""
        return 4 * self.rows * self.width * (parts - 1) // parts

    def _details(self, parts: int) -> tuple[tuple[str, str], ...]:
        """Lines of the plan: memory of a process, and bytes exchanged between processes."""
        edges, positions = format_bytes(self._edges_bytes(parts)), format_bytes(self._positions_bytes)
        share = f" in each of {parts} processes" * (parts > 1)
        memory = f"edges {edges}{share}, positions and motions of all rows {positions}"
        if self._method == "grid":
            memory += f", a grid of up to {most_nodes(self.rows)} nodes {format_bytes(self._grid_bytes)}"
        if self._method == "tree":
            memory += f", a tree {format_bytes(self._grid_bytes)}"
        exchange = (
            f"{format_bytes(self._exchange_bytes(parts))} to each process in each of "
            f"{self.parameters.steps} steps"
        )
        return ("memory", memory), *((("exchange", exchange),) if parts > 1 else ())

    # Run ------------------------------------------------------------------------------------------

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Run the descent, and write embedding and history; returns the facts (metadata) of the result."""
        assert self.graph is not None  # noqa: S101 - only a plan is made without
        graph = Result(self.graph)
        graph.require_whole()
        state = optimize(
            run, StoredAffinities.of(graph), self.parameters, self._first_positions, self._parts(run)
        )
        positions = state.positions
        chunk = (self.chunk_rows, self.width)
        array = create_output(run.result, "embedding", positions.shape, np.float32, chunk)
        write_whole_chunks(array, positions, (0, self.rows), (0, self.width))
        write_outputs(run.result, {"history": np.array(state.history)})
        run.passes += 1
        steps, divergence, norm = state.history[-1]
        facts = {
            **run.facts(self.request(), self._method, self.source, fingerprint),
            "steps": int(steps),
            "kl_divergence": divergence,
            "gradient_norm": norm,
            **self._of_pushes(run, state),
            "affinities": int(graph.attrs["weights"]),
            "metric": graph.attrs["metric"],
            "matrix": graph.attrs["matrix"],
        }
        run.describe(facts)
        return facts

    def _of_pushes(self, run: Run, state: State) -> dict[str, Any]:
        """Facts on the error of repulsive forces at the final positions.

        Warns if nodes of the grid are far apart.
        """
        with ThreadPoolExecutor(run.concurrency, "rankfold-tsne") as pool:
            repulsion = repulsion_of(self.rows, self.width, pool, run.concurrency)
            repulsion.prepare(state.positions)
            error = error_of(repulsion, state.positions, self.parameters.seed)
        if not isinstance(repulsion, GridRepulsion):
            return {"repulsion_error": error}
        spacing = repulsion.lattice.spacing
        if spacing > SPACING:
            run.warnings.append(
                f"the embedding spans more than a grid of {most_nodes(self.rows)} nodes at a distance of "
                f"{SPACING:g}: they lie {spacing:g} apart, and repulsion is off by {100 * error:.2g} %"
            )
        return {"repulsion_error": error, "grid_spacing": spacing}

    def _first_positions(self) -> Float32:
        """Initial positions of all vertices, (rows, width)."""
        assert self.graph is not None  # noqa: S101 - only a plan is made without
        given, seed = self.given, self.parameters.seed
        if self.start is not None:
            start = Result(self.start)
            if start.attrs["kind"] == "pca":
                given = given_positions(start, self.rows, self.width)
            else:
                given = spectral_positions(start, seed)[0].astype(np.float64)
        return start_positions(given, self.rows, self.width, seed, self.graph / NAME)

    def _parts(self, run: Run) -> range:
        """Numbers of processes to split among: from the fewest with enough memory to the most of any use."""
        most = self.parts(run.at_once // run.concurrency)
        enough = (n for n in range(1, most) if RESERVE_BYTES + self._memory_bytes(n) <= run.memory_bytes)
        return range(next(enough, most), most + 1)
