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
from rankfold.methods.chain import Chain, Link
from rankfold.methods.embedding.arguments import PCA, SPECTRAL
from rankfold.methods.embedding.components import matrix_to_begin_at, start_at_components
from rankfold.methods.embedding.moving_rows import PENDING_START, MovingRows, named_start
from rankfold.methods.embedding.quality_chain import measured_task
from rankfold.methods.embedding.searched import matrix_in, require_unsaid, search_of, searched_task
from rankfold.methods.embedding.start import (
    anywhere,
    digest,
    extend_positions,
    given_positions,
    spectral_positions,
)
from rankfold.methods.fuzzy_graph.fuzzy_graph import AffinitySides, FuzzyGraph
from rankfold.methods.fuzzy_graph.lists import StoredLists
from rankfold.methods.knn.graph import NAME
from rankfold.methods.parts.outputs import write_outputs
from rankfold.methods.random_keys import Purpose
from rankfold.methods.spectral.spectral import start_task
from rankfold.methods.task import Output, Task
from rankfold.methods.tsne.arguments import TSNE, TsneArguments
from rankfold.methods.tsne.descent import DescentRounds, DescentState, StoredAffinities, pulls_bytes
from rankfold.methods.tsne.grid import NODE_BYTES, SPACING, GridRepulsion, most_nodes
from rankfold.methods.tsne.repulsion import by_grid, by_tree, error_of, pushing_bytes, repulsion_of
from rankfold.pipeline.engine.rounds import make_rounds
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.importing.csr_writer import chunk_length
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.result import Result, coordinates_hint, result_of
from rankfold.pipeline.units import format_bytes

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

EDGE_FLOPS, ROW_FLOPS, NODE_FLOPS, TREE_FLOPS, PAIR_FLOPS = 45.0, 1000.0, 5000.0, 25_000.0, 6.0
"""Operations, in equivalent time, that a step takes for each edge; each row; each row's repulsion by a grid,
and by a tree; and each pair."""


@dataclass(frozen=True, slots=True)
class TsneTask(MovingRows):
    """Task of an embedding by t-SNE, from distances of neighbor lists, of which its graph is made."""

    parameters: TsneArguments

    kind = "tsne"
    phase = "descent"
    round_word = "step"

    def request(self) -> dict[str, Any]:
        """Everything besides the matrix that decides the positions, for JSON."""
        more = {"positions": digest(self.given), "graph": dict(self.made_by or {}), "matrix": self.matrix}
        return {**self.parameters.as_dict(), **more}

    def outputs(self) -> tuple[Output, ...]:
        """Arrays of the result: the embedding, and the history of the divergence."""
        return self.embedding(), Output("history", (self.parameters.measures, 3), np.dtype(np.float64))

    # Plan -----------------------------------------------------------------------------------------

    @property
    def rounds(self) -> int:
        """Number of steps."""
        return self.parameters.steps

    @property
    def method(self) -> str:
        """Name of what finds the repulsion of all pairs."""
        if by_tree(self.rows, self.width):
            return "tree"
        return "grid" if by_grid(self.rows, self.width) else "pairs"

    @property
    def checkpoint_columns(self) -> int:
        """Numbers of a row in a checkpoint: coordinates, velocities and gains."""
        return 3 * self.width

    def flops(self, parts: int) -> float:
        """Operations, in equivalent time, of all steps; each process makes the whole grid or tree."""
        costs = {"grid": NODE_FLOPS, "tree": TREE_FLOPS, "pairs": PAIR_FLOPS * self.rows}
        push = costs[self.method] * self.rows * (1 if self.method == "pairs" else parts)
        return self.rounds * (EDGE_FLOPS * self.edges + ROW_FLOPS * self.rows + push)

    def memory_bytes(self, parts: int) -> int:
        """Memory of each of ``parts`` processes that share the work."""
        reading = chunk_length(self.edges) * 24
        return self._edges_bytes(parts) + self._positions_bytes + self._grid_bytes + reading

    def memory_details(self, share: str, parts: int) -> str:
        """Return what the memory of a process is for."""
        edges, positions = format_bytes(self._edges_bytes(parts)), format_bytes(self._positions_bytes)
        memory = f"edges {edges}{share}, positions and motions of all rows {positions}"
        if self.method == "grid":
            memory += f", a grid of up to {most_nodes(self.rows)} nodes {format_bytes(self._grid_bytes)}"
        if self.method == "tree":
            memory += f", a tree {format_bytes(self._grid_bytes)}"
        return memory

    def _edges_bytes(self, parts: int) -> int:
        return pulls_bytes(self.rows, self.rows, self.share_of_edges(parts))

    @property
    def _positions_bytes(self) -> int:
        """Bytes of positions before and after, velocities, gains, forces, a checkpoint, and sums of rows."""
        return self.rows * (self.width * (4 * 9 + 8 * 4) + 48)

    @property
    def _grid_bytes(self) -> int:
        """Upper bound on the bytes of the nodes and waves of a grid, or of the nodes of a tree."""
        if self.method == "tree":
            return pushing_bytes(self.rows, self.width)
        return NODE_BYTES * most_nodes(self.rows) if self.method == "grid" else 2**20

    # Run ------------------------------------------------------------------------------------------

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Run the descent, and write embedding and history; returns the facts (metadata) of the result."""
        assert self.graph is not None  # noqa: S101 - only a plan is made without
        graph = Result(self.graph)
        graph.require_whole()
        rounds = DescentRounds(StoredAffinities.of(graph), self.parameters, self.rows)
        state = DescentState.load(make_rounds(run, rounds, self._first_state, self.processes(run)))
        positions = state.positions
        self.write_embedding(run, positions)
        write_outputs(run.result, {"history": np.array(state.history)})
        steps, divergence, norm = state.history[-1]
        facts = {
            **run.facts(self.request(), self.method, self.source, fingerprint),
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

    def _of_pushes(self, run: Run, state: DescentState) -> dict[str, Any]:
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

    def _first_state(self) -> State:
        """Arrays of the state before the first step."""
        assert self.graph is not None  # noqa: S101 - only a plan is made without
        given, seed = self.given, self.parameters.seed
        if self.start is not None:
            start = Result(self.start)
            if start.attrs["kind"] == "pca":
                given = given_positions(start, self.rows, self.width)
            else:
                given = spectral_positions(start, seed)[0].astype(np.float64)
        first = start_positions(given, self.rows, self.width, seed, self.graph / NAME)
        return DescentState.start(first).arrays()


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
    rows, most = result.matrix("indices").shape
    parameters, given = named_start(arguments, matrix, result, rows, "pca or spectral")
    lists = StoredLists.of(result, parameters.neighbors(rows, most))
    graph = FuzzyGraph(lists, AffinitySides(parameters.perplexities, rows))
    task = TsneTask(graph.source, graph.most_edges, parameters, given, made_by=graph.request())
    return _chain(graph, task, matrix)


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
