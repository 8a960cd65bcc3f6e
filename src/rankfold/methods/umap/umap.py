"""The task of UMAP: rows laid out by the graph of their neighbors.

All edges and positions are in memory: an edge takes 8 bytes, a row more.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.chain import Chain, Link
from rankfold.methods.embedding.arguments import SPECTRAL
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
    start_positions,
)
from rankfold.methods.fuzzy_graph.arguments import NEIGHBORS, ONE_SIDED
from rankfold.methods.fuzzy_graph.combination import most_edges
from rankfold.methods.fuzzy_graph.fuzzy_graph import CHUNK_ROWS as RADIUS_ROWS
from rankfold.methods.fuzzy_graph.fuzzy_graph import RADII, FuzzyGraph
from rankfold.methods.fuzzy_graph.lists import StoredLists
from rankfold.methods.fuzzy_graph.new_rows import facts_of_distances
from rankfold.methods.knn.graph import NAME
from rankfold.methods.spectral.spectral import start_task
from rankfold.methods.task import Output, Task, count
from rankfold.methods.umap.arguments import UMAP, UmapArguments
from rankfold.methods.umap.density import ROW_BYTES, DensityGoal, require_radii, write_radii
from rankfold.methods.umap.edges import BLOCK, PullingEdges, edge_loss, edges_bytes, pair_loss
from rankfold.methods.umap.layout import POSITIONS, LayoutRounds
from rankfold.pipeline.engine.rounds import make_rounds
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.importing.csr_writer import chunk_length
from rankfold.pipeline.storage.result import Result, coordinates_hint, result_of
from rankfold.pipeline.units import format_bytes

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

PAIR_FLOPS = 150.0
"""Floating-point operations that take as long as one force that an edge causes in an epoch."""

MOST_ROWS = 2**32
"""Rows must be fewer than this, since random vertices are drawn by numbers of 32 bits."""


@dataclass(frozen=True, slots=True)
class UmapTask(MovingRows):
    """Task of a layout by UMAP, from lists of neighbors with distances, or from a weighted graph."""

    parameters: UmapArguments

    kind = "umap"
    phase = "layout"
    round_word = "epoch"
    method = "sgd"

    @property
    def rounds(self) -> int:
        """Number of epochs."""
        return self.parameters.epochs(self.rows)

    def request(self) -> dict[str, Any]:
        """Everything besides the numbers in ``source`` that determines the positions, as JSON types."""
        made_by = None if self.made_by is None else dict(self.made_by)
        of = {"matrix": self.matrix} if self.matrix else {}
        return {**self.parameters.as_dict(), "positions": digest(self.given), "graph": made_by, **of}

    @property
    def is_spectral(self) -> bool:
        """True if rows begin at eigenvectors: ``init`` asks for them, and the graph has enough rows."""
        return self.parameters.init == SPECTRAL and self.parameters.n_components < self.rows

    def outputs(self) -> tuple[Output, ...]:
        """Declare the arrays of the result: the embedding, and two of radii if ``density`` is given."""
        embedding, single = self.embedding(), np.dtype(np.float32)
        if not self._is_spread:
            return (embedding,)
        in_data = Output(RADII, (self.rows,), single, count(self.rows, RADIUS_ROWS))
        return embedding, in_data, Output("radius_embedding", (self.rows,), single, embedding.chunks)

    # Plan -----------------------------------------------------------------------------------------

    @property
    def written_columns(self) -> int:
        """Values per row of the result: coordinates, and 2 radii if density counts or is measured."""
        return self.width + 2 * self._is_spread

    @property
    def checkpoint_columns(self) -> int:
        """Values per row of a checkpoint: coordinates, and 2 for radii if density counts or is measured."""
        return self.written_columns

    @property
    def moved_columns(self) -> int:
        """Values per row that processes exchange in an epoch: coordinates, and 2 if density counts."""
        return self.width + 2 * bool(self.parameters.density)

    def flops(self, parts: int) -> float:
        """Estimated floating-point operations that take as long as all epochs, in all processes together."""
        work = PAIR_FLOPS * self.edges * self.rounds * (2 + self.parameters.negative_sample_rate)
        return work * (1 + 0.5 * self._is_spread)

    def memory_bytes(self, parts: int) -> int:
        """Bytes planned for each of ``parts`` processes that share the rows."""
        reading = 56 * (self.rows + 1) + chunk_length(self.edges) * 96
        losses = BLOCK * 8 * (6 * self.width + 12)
        return self._edges_bytes(parts) + self._positions_bytes + reading + losses

    def memory_details(self, share: str, parts: int) -> str:
        """Return text for the plan: what the memory of each process is for, with the bytes of each use.

        ``parts`` is the number of processes. ``share`` is text that is put behind the bytes of edges, such as
        ``" in each of 3 processes"``; empty for a single one.
        """
        edges, positions = format_bytes(self._edges_bytes(parts)), format_bytes(self._positions_bytes)
        return f"edges {edges}{share}, positions and groups of all rows {positions}"

    def _edges_bytes(self, parts: int) -> int:
        return edges_bytes(self.rows, self.share_of_edges(parts))

    @property
    def _positions_bytes(self) -> int:
        """Bytes in a process for groups, and positions: given, before and after a move, as saved."""
        row = self.width * (4 + 4 + 4 + 8 * 3) + 8 * 4 + ROW_BYTES * self._is_spread
        return self.rows * row

    @property
    def _is_spread(self) -> bool:
        """True if ``density`` is given, also if it is 0: radii are then written to the result."""
        return self.parameters.density is not None

    # Run ------------------------------------------------------------------------------------------

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Lay out all rows, and write the embedding and radii; returns the facts (metadata) of the result.

        Radii are written if ``density`` is given, 0 included.
        """
        assert self.graph is not None  # noqa: S101 - only a plan is made without
        stored = Result(self.graph)
        stored.require_whole()
        graph = stored.attrs
        parameters = self.parameters
        edges = PullingEdges.of(stored, self.rounds)
        first, more = self._first_positions()
        if parameters.init == SPECTRAL and not self.is_spectral:
            run.warnings.append(
                f"a graph of {self.rows} rows has no {parameters.n_components} eigenvectors to begin at: "
                "rows begin at random"
            )
        goal = DensityGoal.of(self.graph, edges, parameters)
        rounds = LayoutRounds(edges, parameters, self.rows, goal)
        positions = make_rounds(run, rounds, lambda: rounds.start(first), self.processes(run))[POSITIONS]
        if not np.isfinite(positions).all():
            raise InputError(
                "forces have thrown rows out of the range of float32: ask for a smaller learning_rate, now "
                f"{parameters.learning_rate:g}, or repulsion_strength, {parameters.repulsion_strength:g}"
            )
        self.write_embedding(run, positions)
        curve = parameters.curve()
        loss, count = edge_loss(positions, edges, *curve)
        if self._is_spread:
            more |= write_radii(run.result, self.graph, positions, edges, curve, self.chunk_rows)
        facts = {
            **run.facts(self.request(), "sgd", self.source, fingerprint),
            "epochs": self.rounds,
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
        """(rows, dimensions) initial positions of all vertices, and facts on them for the result."""
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


# Tasks --------------------------------------------------------------------------------------------


def umap_task(neighbors: Result | str | Path, arguments: UmapArguments) -> Task:
    """Task that lays out a graph, lists of neighbors, or a matrix; its quality is measured if asked for.

    ``neighbors`` is a result of fuzzy_graph, combine_graphs or knn, the path of one, or a matrix.
    """
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
    """Task that lays out the graph in ``result``, or its lists of neighbors, which become a graph first.

    ``matrix`` is that of the principal components to begin at; None without these.
    """
    kind = result.attrs["kind"]
    if kind not in UMAP.results:
        raise InputError(
            f"{result.path} is the result of {kind}: umap lays out one of fuzzy_graph or knn, or a matrix"
            f"{coordinates_hint(result)}"
        )
    rows = result.matrix("indices" if kind == "knn" else "graph").shape[0]
    parameters, given = named_start(arguments, matrix, result, rows, "pca or umap")
    if rows >= MOST_ROWS:
        raise InputError(f"umap lays out fewer than 2**32 rows, not {rows}")
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
    """Chain of tasks: make the graph and find initial positions, each if needed, and lay out.

    ``graph`` is the task that makes the graph, or a result that has it. ``matrix`` is that of the principal
    components to begin at; None without these.
    """
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
    """Make a task whose ``init`` is a result still to be made: see ``Method.pending_task``."""
    return UMAP.task(*inputs, init=PENDING_START, **arguments)
