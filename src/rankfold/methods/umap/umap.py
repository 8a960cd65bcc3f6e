"""The task of UMAP: rows laid out by the graph of their neighbors. An edge takes 8 bytes of memory, a row
more."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.argument import is_word
from rankfold.methods.chain import Chain, Link
from rankfold.methods.embedding.arguments import INITS, SPECTRAL
from rankfold.methods.embedding.components import matrix_to_begin_at, require_matrix, start_at_components
from rankfold.methods.embedding.quality_chain import measured_task
from rankfold.methods.embedding.searched import matrix_in, require_unsaid, search_of, searched_task
from rankfold.methods.fuzzy_graph.arguments import NEIGHBORS, ONE_SIDED
from rankfold.methods.fuzzy_graph.combination import most_edges
from rankfold.methods.fuzzy_graph.fuzzy_graph import CHUNK_ROWS as RADIUS_ROWS
from rankfold.methods.fuzzy_graph.fuzzy_graph import RADII, FuzzyGraph
from rankfold.methods.fuzzy_graph.lists import StoredLists
from rankfold.methods.fuzzy_graph.new_rows import facts_of_distances
from rankfold.methods.knn.graph import NAME
from rankfold.methods.parts.outputs import create_output
from rankfold.methods.spectral.spectral import start_task
from rankfold.methods.task import Output, Task, count
from rankfold.methods.umap.arguments import UMAP, UmapArguments
from rankfold.methods.umap.density import ROW_BYTES, DensityGoal, require_radii, write_radii
from rankfold.methods.umap.edges import BLOCK, PullingEdges, edge_loss, edges_bytes, pair_loss
from rankfold.methods.umap.start import (
    anywhere,
    digest,
    extend_positions,
    given_positions,
    spectral_positions,
    start_positions,
)
from rankfold.methods.umap.work import lay_out
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

PAIR_FLOPS = 150.0
"""Operations, in equivalent time, for each force that an edge causes in an epoch."""

MOST_ROWS = 2**32
"""Number of rows that random numbers of 32 bits can tell apart."""


PENDING_START = object()
"""Placeholder for initial positions that are not there yet when a plan is made."""


@dataclass(frozen=True, slots=True)
class UmapTask:
    """Task of a layout by UMAP, from the graph of the neighbors of its rows."""

    source: Source
    """Distances of neighbor lists, of which the graph is made, or the weights of the graph."""

    edges: int
    """Number of edges of the graph, at most."""

    parameters: UmapArguments
    given: Float64 | None = None
    """Initial positions given by the caller; None if there are none."""

    graph: Path | None = None
    """Path of the graph; None before it is made."""

    made_by: Mapping[str, Any] | None = None
    """Request of the task that makes the graph; None if the graph is given."""

    start: Path | None = None
    """Path of a result to begin at: eigenvectors of the graph, or principal components; else None."""

    matrix: str = ""
    """Fingerprint of the matrix of the principal components; empty without these."""

    @property
    def rows(self) -> int:
        """Number of vertices."""
        return self.source.shape[0]

    @property
    def epochs(self) -> int:
        """Number of epochs."""
        return self.parameters.epochs(self.rows)

    def request(self) -> dict[str, Any]:
        """Everything besides the matrix that decides the positions, for JSON."""
        made_by = None if self.made_by is None else dict(self.made_by)
        of = {"matrix": self.matrix} if self.matrix else {}
        return {**self.parameters.as_dict(), "positions": digest(self.given), "graph": made_by, **of}

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk of the result."""
        return min(self.rows, max(CHUNK_ROWS, self.rows // TARGET_CHUNKS))

    @property
    def is_spectral(self) -> bool:
        """True if rows begin at eigenvectors: these are asked for, and rows are enough to have some."""
        return self.parameters.init == SPECTRAL and self.parameters.n_components < self.rows

    def outputs(self) -> tuple[Output, ...]:
        """Arrays of the result: the embedding, and radii if density counts or is measured."""
        single, rows = np.dtype(np.float32), self.rows
        shape, chunks = (rows, self.parameters.n_components), count(rows, self.chunk_rows)
        embedding = Output("embedding", shape, single, chunks)
        if self.parameters.density is None:
            return (embedding,)
        in_data = Output(RADII, (rows,), single, count(rows, RADIUS_ROWS))
        return embedding, in_data, Output("radius_embedding", (rows,), single, chunks)

    # Plan -----------------------------------------------------------------------------------------

    def plan(self, budget: Budget) -> Plan:
        """Plan of the layout, for the processes that it is split among."""
        width = self.parameters.n_components
        task_facts = TaskFacts(
            "umap",
            "sgd",
            self.source,
            np.dtype(np.float32),
            f"{width} dimensions, {self.epochs} epochs",
            width,
            result_bytes=4 * self.rows * (width + 2 * self._is_spread),
            scratch_bytes=4 * self.rows * (width + 2 * self._is_spread),
            subject=f"umap of {self.rows} rows and {self.edges} edges",
            details=self._details(self.parts(budget.workers)),
        )
        return plan_task(task_facts, self, budget)

    def arrange(self, budget: Budget) -> FittedSweeps:
        """Arrange one pass, by processes that share the edges, each with all of its threads."""
        parts = self.parts(budget.workers)
        memory, lanes = self._memory_bytes(parts), budget.threads * parts
        work = PAIR_FLOPS * self.edges * self.epochs * (2 + self.parameters.negative_sample_rate)
        work *= 1 + 0.5 * self._is_spread
        reads, writes = 12 * self.edges, 4 * self.rows * self.parameters.n_components
        sweep = Pass(
            "layout",
            "matrix",
            reads,
            writes,
            work,
            memory,
            parts,
            lanes,
            blas_bytes=0,
            numbers=self.edges,
            exchange_bytes=self._exchange_bytes(parts) * self.epochs,
        )
        each = RESERVE_BYTES + memory, memory, writes
        return FittedSweeps((sweep,), budget.threads, *each, lanes, self.rows, self.rows, 1, 1)

    def parts(self, workers: int) -> int:
        """Number of processes that the layout is split among, of ``workers`` available."""
        return max(1, min(workers, self.rows // PART_ROWS))

    def _memory_bytes(self, parts: int = 1) -> int:
        """Memory of each of ``parts`` processes that share the work."""
        rows, width = self.rows, self.parameters.n_components
        chunk = chunk_length(self.edges)
        reading = 56 * (rows + 1) + chunk * 96
        return self._edges_bytes(parts) + self._positions_bytes + reading + BLOCK * 8 * (6 * width + 12)

    def _edges_bytes(self, parts: int) -> int:
        """Bytes of edges in one of ``parts`` processes: its share, and at most one more row at its border."""
        return edges_bytes(self.rows, min(self.edges, self.edges // parts + self.rows * (parts > 1)))

    @property
    def _positions_bytes(self) -> int:
        """Bytes of positions as given, before and after, and in a checkpoint, and of groups."""
        row = self.parameters.n_components * (4 + 4 + 4 + 8 * 3) + 8 * 4 + ROW_BYTES * self._is_spread
        return self.rows * row

    @property
    def _is_spread(self) -> bool:
        """True if density counts, or is measured."""
        return self.parameters.density is not None

    def _exchange_bytes(self, parts: int) -> int:
        """Bytes of positions that a process receives from the others in an epoch."""
        columns = self.parameters.n_components + 2 * bool(self.parameters.density)
        return 4 * self.rows * columns * (parts - 1) // parts

    def _details(self, parts: int) -> tuple[tuple[str, str], ...]:
        """Lines of the plan: memory of a process, and bytes exchanged between processes."""
        edges, positions = format_bytes(self._edges_bytes(parts)), format_bytes(self._positions_bytes)
        share = f" in each of {parts} processes" * (parts > 1)
        memory = f"edges {edges}{share}, positions and groups of all rows {positions}"
        exchange = (
            f"{format_bytes(self._exchange_bytes(parts))} to each process in each of {self.epochs} epochs"
        )
        return ("memory", memory), *((("exchange", exchange),) if parts > 1 else ())

    # Run ------------------------------------------------------------------------------------------

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Lay out all rows, and write the embedding and radii; returns the facts (metadata) of the result.

        Radii are written if density is asked for, or measured.
        """
        assert self.graph is not None  # noqa: S101 - only a plan is made without
        stored = Result(self.graph)
        stored.require_whole()
        graph = stored.attrs
        parameters = self.parameters
        edges = PullingEdges.of(stored, self.epochs)
        first, more = self._first_positions()
        if parameters.init == SPECTRAL and not self.is_spectral:
            run.warnings.append(
                f"a graph of {self.rows} rows has no {parameters.n_components} eigenvectors to begin at: "
                "rows begin at random"
            )
        goal = DensityGoal.of(self.graph, edges, parameters)
        positions = lay_out(run, edges, parameters, lambda: first, self._processes(run), goal)
        if not np.isfinite(positions).all():
            raise InputError(
                "forces have thrown rows out of the range of float32: ask for a smaller learning_rate, now "
                f"{parameters.learning_rate:g}, or repulsion_strength, {parameters.repulsion_strength:g}"
            )
        shape, chunk = positions.shape, (self.chunk_rows, parameters.n_components)
        array = create_output(run.result, "embedding", shape, np.float32, chunk)
        write_whole_chunks(array, positions, (0, shape[0]), (0, shape[1]))
        run.passes += 1
        curve = parameters.curve()
        loss, count = edge_loss(positions, edges, *curve)
        if self._is_spread:
            more |= write_radii(run.result, self.graph, positions, edges, curve, self.chunk_rows)
        facts = {
            **run.facts(self.request(), "sgd", self.source, fingerprint),
            "epochs": self.epochs,
            "edges_that_pull": count,
            "curve": list(curve),
            **facts_of_distances(graph),
            "edge_loss": loss,
            "pair_loss": pair_loss(positions, *curve, parameters.seed),
            **more,
        }
        run.describe(facts)
        return facts

    def _first_positions(self) -> tuple[Float32, dict[str, Any]]:
        """(rows, dimensions) initial positions of all vertices, and facts on them."""
        columns, seed, given = self.parameters.n_components, self.parameters.seed, self.given
        if self.start is not None and self.parameters.init == SPECTRAL:
            start = Result(self.start)
            positions, at_random = spectral_positions(start, seed)
            components = start.attrs["connected_components"]
            return positions, {"rows_at_random": at_random, "connected_components": components}
        if self.start is not None:
            given = given_positions(self.start, self.rows, columns)
        count = self.rows if given is None else len(given)
        first = start_positions(given, count, columns, seed)
        if count == self.rows:
            return first, {"rows_at_random": count} if self.parameters.init == SPECTRAL else {}
        assert self.graph is not None  # noqa: S101 - only a plan is made without
        everywhere = anywhere(self.rows, columns, seed)
        return extend_positions(first, everywhere, self.graph / NAME, seed), {"rows_added": self.rows - count}

    def _processes(self, run: Run) -> range:
        """Numbers of processes to split among: from the fewest with enough memory to the most of any use."""
        most = self.parts(run.at_once // run.concurrency)
        enough = (n for n in range(1, most) if RESERVE_BYTES + self._memory_bytes(n) <= run.memory_bytes)
        return range(next(enough, most), most + 1)


# Tasks --------------------------------------------------------------------------------------------


def umap_task(neighbors: Result | str | Path, arguments: UmapArguments) -> Task:
    """Task that lays out a graph, lists of neighbors, or a matrix; its quality is measured if asked for."""
    if (source := matrix_in(neighbors)) is not None:
        k = NEIGHBORS if arguments.n_neighbors is None else arguments.n_neighbors
        search = search_of(k - 1, arguments)
        beside = matrix_to_begin_at(arguments.init, arguments.matrix, source, arguments.metric)
        make = functools.partial(_layout_task, matrix=beside, arguments=arguments)
        return searched_task(source, search, arguments.seed, make, arguments.quality)
    require_unsaid(neighbors, arguments)
    result = result_of(
        "umap", neighbors, "a matrix, or a result of knn or fuzzy_graph, as of rf.knn(x, k=14)"
    )
    return measured_task(_layout_task(result, arguments.matrix, arguments), result, arguments.quality)


def _layout_task(result: Result, matrix: object, arguments: UmapArguments) -> Task:
    """Task that lays out a graph, or lists of neighbors, which become a graph first."""
    kind = result.attrs["kind"]
    if kind not in UMAP.results:
        raise InputError(
            f"{result.path} is the result of {kind}: umap lays out one of fuzzy_graph or knn, or a matrix"
            f"{coordinates_hint(result)}"
        )
    init: object = arguments.init
    is_name = is_word(init, INITS)
    # Workers get the parameters: no matrix is among them.
    parameters = dataclasses.replace(
        arguments, init=str(init) if is_name else "custom", matrix=None, quality=None
    )
    parameters.check()
    if is_name and init == INITS[-1]:
        raise InputError("init custom has no name: give positions, or a result of pca or umap")
    require_matrix(parameters.init, matrix)
    rows = result.matrix("indices" if kind == "knn" else "graph").shape[0]
    if rows >= MOST_ROWS:
        raise InputError(f"umap lays out fewer than 2**32 rows, not {rows}")
    given = None
    if not is_name and init is not PENDING_START:
        names = names_of_result(result.path, result.attrs, 0)
        given = given_positions(init, rows, parameters.n_components, names)
    if kind == "knn":
        is_spread = parameters.density is not None
        graph = FuzzyGraph.of(StoredLists.of(result, None), ONE_SIDED, 1.0, radii=is_spread)
        layout = UmapTask(graph.source, graph.most_edges, parameters, given, None, graph.request())
        return _chain(graph, layout, matrix)
    if parameters.density is not None:
        require_radii(result)
    layout = UmapTask(result.matrix("graph"), most_edges(result), parameters, given, result.path)
    return _chain(result, layout, matrix) if layout.is_spectral or matrix is not None else layout


def _chain(graph: FuzzyGraph | Result, layout: UmapTask, matrix: object) -> Chain:
    """Chain of tasks: make the graph and find initial positions, each if needed, and lay out."""
    links: list[Link] = [] if isinstance(graph, Result) else [Link("graph", graph)]
    if layout.is_spectral:
        start = start_task(graph, layout.parameters.n_components, layout.parameters.seed)
        links.append(Link("start", start, start.when_made if links else None))
    if matrix is not None:
        asked = layout.parameters
        link, of = start_at_components(matrix, layout.rows, asked.n_components, asked.seed)
        links, layout = [*links, link], dataclasses.replace(layout, matrix=of)

    def ready(results: Mapping[str, Path]) -> UmapTask:
        made = dataclasses.replace(layout, start=results.get("start"))
        if "graph" not in results:
            return made
        edges = int(Result(results["graph"]).attrs["weights"])
        return dataclasses.replace(made, edges=edges, graph=results["graph"])

    return Chain(layout.request(), (*links, Link("layout", layout, ready)))


def pending_task(inputs: Sequence[object], arguments: Mapping[str, Any], start: object) -> Task:
    """Make a task that begins at a result still to be made: see ``Method.pending_task``."""
    return UMAP.task(*inputs, init=PENDING_START, **arguments)
