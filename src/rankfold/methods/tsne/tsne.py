"""The task of t-SNE: gradient descent of all rows in memory. An edge takes 8 bytes, a row some more.

Initial positions, close together: from an array, from a result, or random.

The task of an embedding from the arguments of a caller: affinities, initial positions, and descent.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.gaussian import gaussian_rows
from rankfold.methods.argument import is_word
from rankfold.methods.chain import Chain, Link
from rankfold.methods.embedding.arguments import INITS, PCA, SPECTRAL
from rankfold.methods.embedding.components import matrix_to_begin_at, require_matrix, start_at_components
from rankfold.methods.embedding.quality_chain import measured_task
from rankfold.methods.embedding.searched import matrix_in, require_unsaid, search_of, searched_task
from rankfold.methods.fuzzy_graph.fuzzy_graph import AffinitySides, FuzzyGraph
from rankfold.methods.fuzzy_graph.lists import StoredLists
from rankfold.methods.knn.graph import NAME
from rankfold.methods.parts.outputs import create_output, write_outputs
from rankfold.methods.random_keys import Purpose
from rankfold.methods.spectral.spectral import start_task
from rankfold.methods.task import Output, Task, count
from rankfold.methods.tsne.arguments import TSNE, TsneArguments
from rankfold.methods.tsne.descent import State, StoredAffinities, pulls_bytes
from rankfold.methods.tsne.grid import NODE_BYTES, SPACING, GridRepulsion, most_nodes
from rankfold.methods.tsne.repulsion import by_grid, by_tree, error_of, pushing_bytes, repulsion_of
from rankfold.methods.tsne.work import optimize
from rankfold.methods.umap.start import (
    anywhere,
    digest,
    extend_positions,
    given_positions,
    spectral_positions,
)
from rankfold.methods.umap.umap import PENDING_START
from rankfold.pipeline.data.names import names_of_result
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.importing.csr_writer import chunk_length
from rankfold.pipeline.planning.passes import RESERVE_BYTES, Pass
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import FittedSweeps, TaskFacts, plan_task
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.result import Result, coordinates_hint, result_of
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
        task_facts = TaskFacts(
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
        return plan_task(task_facts, self, budget)

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
        """Upper bound on the bytes of the nodes and waves of a grid, or of the nodes of a tree."""
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


WIDTH = 1e-4
"""Standard deviation of the first coordinate of initial positions: so close, all repel each other alike."""

NOISE = 0.01
"""Noise added to given coordinates, as a share of ``WIDTH``: vertices in one place would stay together."""


def start_positions(given: Float64 | None, rows: int, columns: int, seed: int, graph: Path) -> Float32:
    """Initial positions, (rows, columns): each a function of seed, row, and all that are given.

    Rows beyond the given ones begin among their neighbors in the graph.
    """
    noise = gaussian_rows(seed, Purpose.LAYOUT_START, (0, rows), columns)
    if given is None:
        return np.asarray(WIDTH * noise, np.float32)
    places: Any = _unit(given)
    if len(given) < rows:
        placed = extend_positions(places.astype(np.float32), anywhere(rows, columns, seed), graph, seed)
        places = _unit(placed.astype(np.float64))
    return np.asarray(WIDTH * (places + NOISE * noise), np.float32)


def _unit(given: Float64) -> Float64:
    """Positions centered at 0 and scaled: the first coordinate that varies has a standard deviation of 1."""
    largest = float(np.abs(given).max(initial=0.0))
    centered = given / largest if largest > 0 else given.copy()
    centered -= centered.mean(axis=0)
    deviations = centered.std(axis=0)
    varied = deviations > 0
    if varied.any():
        centered /= deviations[varied.argmax()]
    return centered


def tsne_task(neighbors: Result | str | Path, arguments: TsneArguments) -> Task:
    """Task that embeds lists of neighbors, or a matrix, whose neighbors are found first."""
    if (source := matrix_in(neighbors)) is not None:
        rows = source.shape[0]
        search = search_of(arguments.neighbors(rows, rows), arguments)
        beside = matrix_to_begin_at(arguments.init, arguments.matrix, source, arguments.metric)
        make = functools.partial(_descent_task, matrix=beside, arguments=arguments)
        return searched_task(source, search, arguments.seed, make, arguments.quality)
    require_unsaid(neighbors, arguments)
    result = result_of("tsne", neighbors, "a matrix, or a result of knn, as of rf.knn(x, k=90)")
    return measured_task(_descent_task(result, arguments.matrix, arguments), result, arguments.quality)


def _descent_task(result: Result, matrix: object, arguments: TsneArguments) -> Task:
    """Task that embeds the lists of neighbors of a result."""
    if result.attrs["kind"] not in TSNE.results:
        raise InputError(
            f"{result.path} is the result of {result.attrs['kind']}: tsne is of one of knn, or of a matrix"
            f"{coordinates_hint(result)}"
        )
    init: object = arguments.init
    is_name = is_word(init, INITS)
    name = str(init) if is_name else INITS[-1]
    # Workers get the parameters: no matrix is among them.
    parameters = dataclasses.replace(arguments, init=name, matrix=None, quality=None)
    parameters.check()
    if is_name and name == INITS[-1]:
        raise InputError("init custom has no name: give positions, or a result of pca or spectral")
    require_matrix(name, matrix)
    graph = _affinities(result, parameters)
    given = None
    if not is_name and init is not PENDING_START:
        names = names_of_result(result.path, result.attrs, 0)
        given = given_positions(init, graph.lists.rows, parameters.n_components, names)
    task = TsneTask(graph.source, graph.most_edges, parameters, graph.request(), given)
    return _chain(graph, task, matrix)


def _affinities(result: Result, parameters: TsneArguments) -> FuzzyGraph:
    """Task that makes the affinity graph of as many neighbors as the perplexity needs."""
    rows, most = result.matrix("indices").shape
    lists = StoredLists.of(result, parameters.neighbors(rows, most))
    return FuzzyGraph(lists, AffinitySides(parameters.perplexities, rows))


def _chain(graph: FuzzyGraph, task: TsneTask, matrix: object) -> Chain:
    """Chain of tasks: make the graph of affinities, find initial positions if needed, and descend."""
    links, parameters = [Link("graph", graph)], task.parameters
    if parameters.init == SPECTRAL:
        start = start_task(graph, parameters.n_components, parameters.seed)
        links.append(Link("start", start, start.when_made))
    if parameters.init == PCA:
        link, of = start_at_components(matrix, task.rows, parameters.n_components, parameters.seed)
        links, task = [*links, link], dataclasses.replace(task, matrix=of)

    def ready(results: Mapping[str, Path]) -> TsneTask:
        edges = int(Result(results["graph"]).attrs["weights"])
        return dataclasses.replace(task, edges=edges, graph=results["graph"], start=results.get("start"))

    return Chain(task.request(), (*links, Link("descent", task, ready)))


def pending_task(inputs: Sequence[object], arguments: Mapping[str, Any], start: object) -> Task:
    """Make a task that begins at a result still to be made: see ``Method.pending_task``."""
    return TSNE.task(*inputs, init=PENDING_START, **arguments)
