"""The task of t-SNE: gradient descent of all rows in memory. An edge takes 8 bytes, a row some more.

Initial positions of rows, close together: from an array, from a result, or random.

Tasks of an embedding from the arguments of a caller: affinities, initial positions, and descent.
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
"""Floating-point operations that take as long as a step does for each edge; for each row; for the repulsion
of each row by a grid, and by a tree; and for each pair of rows, if there is neither."""


@dataclass(frozen=True, slots=True)
class TsneTask(MovingRows):
    """Task of an embedding by t-SNE, from lists of neighbors with distances, of which its graph is made."""

    parameters: TsneArguments

    kind = "tsne"
    phase = "descent"
    round_word = "step"

    def request(self) -> dict[str, Any]:
        """Everything besides the numbers in ``source`` that determines the positions, as JSON types."""
        more = {"positions": digest(self.given), "graph": dict(self.made_by or {}), "matrix": self.matrix}
        return {**self.parameters.as_dict(), **more}

    def outputs(self) -> tuple[Output, ...]:
        """Declare the arrays of the result: ``embedding`` (rows, d), and ``history`` (measurements, 3)."""
        return self.embedding(), Output("history", (self.parameters.measures, 3), np.dtype(np.float64))

    # Plan -----------------------------------------------------------------------------------------

    @property
    def rounds(self) -> int:
        """Number of steps, early ones included."""
        return self.parameters.steps

    @property
    def method(self) -> str:
        """Way to compute the repulsion of all pairs: ``"tree"``, ``"grid"`` or ``"pairs"``."""
        if by_tree(self.rows, self.width):
            return "tree"
        return "grid" if by_grid(self.rows, self.width) else "pairs"

    @property
    def checkpoint_columns(self) -> int:
        """Values per row of a checkpoint: coordinates, velocities and gains."""
        return 3 * self.width

    def flops(self, parts: int) -> float:
        """Estimated floating-point operations that take as long as all steps, in all processes together.

        Each of the ``parts`` processes makes the whole grid or tree.
        """
        costs = {"grid": NODE_FLOPS, "tree": TREE_FLOPS, "pairs": PAIR_FLOPS * self.rows}
        push = costs[self.method] * self.rows * (1 if self.method == "pairs" else parts)
        return self.rounds * (EDGE_FLOPS * self.edges + ROW_FLOPS * self.rows + push)

    def memory_bytes(self, parts: int) -> int:
        """Bytes planned for each of ``parts`` processes that share the rows."""
        reading = chunk_length(self.edges) * 24
        return self._edges_bytes(parts) + self._positions_bytes + self._grid_bytes + reading

    def memory_details(self, share: str, parts: int) -> str:
        """Return text for the plan: what the memory of each process is for, with the bytes of each use.

        ``parts`` is the number of processes. ``share`` is text that is put behind the bytes of edges, such as
        ``" in each of 3 processes"``; empty for a single one.
        """
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
        """Upper bound on the bytes of a grid with its waves, or of a tree; 1 MiB for pairs."""
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
        """Facts on repulsion at the final positions: relative error, and spacing of nodes if it is by a grid.

        Adds a warning to ``run`` if nodes of the grid lie far apart.
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
        """Arrays of a checkpoint before the first step."""
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
"""Standard deviation of the first coordinate of initial positions: at such small distances all rows repel
each other alike."""

NOISE = 0.01
"""Standard deviation of noise added to given coordinates, as a share of ``WIDTH``: vertices in one place
would stay together."""


def start_positions(given: Float64 | None, rows: int, columns: int, seed: int, graph: Path) -> Float32:
    """(rows, columns) initial positions: each a function of seed, row, and all that are given.

    Parameters
    ----------
    given : (g, columns) float64, or None
        Positions from a caller, of all rows or of the first; None for random ones.
    rows, columns : int
    seed : int
        Key of random positions and of noise.
    graph : Path
        Stored graph, among whose neighbors rows beyond the given ones begin.
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
    """(g, d) positions less their mean, over the standard deviation of the first coordinate that varies."""
    largest = float(np.abs(given).max(initial=0.0))
    centered = given / largest if largest > 0 else given.copy()
    centered -= centered.mean(axis=0)
    deviations = centered.std(axis=0)
    varied = deviations > 0
    if varied.any():
        centered /= deviations[varied.argmax()]
    return centered


def tsne_task(neighbors: Result | str | Path, arguments: TsneArguments) -> Task:
    """Task that embeds lists of neighbors, or a matrix, whose neighbors are found first.

    ``neighbors`` is a result of knn, the path of one, or a matrix.
    """
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
    """Task that embeds the lists of neighbors in ``result``.

    ``matrix`` is that of the principal components to begin at; None without these.
    """
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
    """Chain of tasks: make the graph of affinities, find initial positions if needed, and descend.

    ``graph`` is the task that makes the graph, ``matrix`` that of the principal components to begin at, or
    None.
    """
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
