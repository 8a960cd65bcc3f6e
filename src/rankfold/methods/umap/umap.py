"""Rows laid out by the graph of their neighbors, in memory: an edge takes 8 bytes, a row some more."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.chain import Chain, Link
from rankfold.methods.fuzzy_graph.fuzzy_graph import FuzzyGraph, fuzzy_graph_task
from rankfold.methods.knn.graph import NAME
from rankfold.methods.parts.outputs import create_output
from rankfold.methods.spectral.spectral import start_task
from rankfold.methods.task import Output, Task, count
from rankfold.methods.umap.arguments import INITS, SPECTRAL
from rankfold.methods.umap.edges import edges_bytes, read_edges
from rankfold.methods.umap.layout import Layout
from rankfold.methods.umap.losses import BLOCK, edge_loss, pair_loss
from rankfold.methods.umap.request import LayoutRequest
from rankfold.methods.umap.start import digest, given_positions, spectral_positions, start_positions
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.importing.csr_writer import CHUNK_LENGTHS
from rankfold.pipeline.planning.passes import Pass
from rankfold.pipeline.planning.peak_memory import RESERVE_BYTES
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import Arrangement, Outline, plan_task
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.result import Result, result_of

Float64 = npt.NDArray[np.float64]

CHUNK_ROWS = 2**18
"""Fewest rows of a chunk of the result, of which there are ``TARGET_CHUNKS`` beyond."""

TARGET_CHUNKS = 8192

PAIR_FLOPS = 60.0
"""Operations that take as long as one force does, in an edge's share of all epochs."""

MOST_ROWS = 2**32
"""Rows that random numbers of 32 bits tell apart."""


TO_COME = object()
"""Positions to begin at that a plan is made without."""


@dataclass(frozen=True, slots=True)
class UmapTask:
    """A graph and how it is laid out, as ``execute`` takes them."""

    source: Source
    """What the graph was made of, or its weights."""

    edges: int
    """Of the graph, at most."""

    parameters: LayoutRequest
    given: Float64 | None = None
    """Positions to begin at."""

    graph: Path | None = None
    """Where it lies; nothing before it is made."""

    made_by: Mapping[str, Any] | None = None
    """What the graph is asked, where it is made before."""

    start: Path | None = None
    """Eigenvectors of the graph to begin at."""

    @property
    def rows(self) -> int:
        """Vertices."""
        return self.source.shape[0]

    @property
    def epochs(self) -> int:
        """Epochs."""
        return self.parameters.epochs(self.rows)

    def request(self) -> dict[str, Any]:
        """See the protocol."""
        made_by = None if self.made_by is None else dict(self.made_by)
        return {**self.parameters.as_dict(), "positions": digest(self.given), "graph": made_by}

    @property
    def chunk_rows(self) -> int:
        """Of the result."""
        return min(self.rows, max(CHUNK_ROWS, self.rows // TARGET_CHUNKS))

    def outputs(self) -> tuple[Output, ...]:
        """See the protocol."""
        shape, chunks = (self.rows, self.parameters.n_components), count(self.rows, self.chunk_rows)
        return (Output("embedding", shape, np.dtype(np.float32), chunks),)

    # Plan -----------------------------------------------------------------------------------------

    def plan(self, budget: Budget) -> Plan:
        """See the protocol."""
        width = self.parameters.n_components
        outline = Outline(
            "umap",
            "sgd",
            self.source,
            np.dtype(np.float32),
            "vertices",
            width,
            result_bytes=4 * self.rows * width,
            scratch_bytes=4 * self.rows * width,
            subject=f"umap of {self.rows} rows and {self.edges} edges",
        )
        return plan_task(outline, self, budget)

    def arrange(self, budget: Budget) -> Arrangement:
        """One process with all of its threads."""
        memory = self._memory_bytes()
        work = PAIR_FLOPS * self.edges * self.epochs * (2 + self.parameters.negative_sample_rate)
        reads, writes = 12 * self.edges, 4 * self.rows * self.parameters.n_components
        sweep = Pass("layout", "matrix", reads, writes, work, memory, 1, 1, blas_bytes=0)
        each = RESERVE_BYTES + memory, memory, writes
        return Arrangement((sweep,), budget.threads, *each, budget.threads, self.rows, self.rows, 1, 1)

    def _memory_bytes(self) -> int:
        """Edges and what reads them; positions as given, before and after, and in a checkpoint; groups."""
        rows, width = self.rows, self.parameters.n_components
        chunk = min(max(self.edges // TARGET_CHUNKS, CHUNK_LENGTHS[0]), CHUNK_LENGTHS[1])
        reading = 16 * (rows + 1) + chunk * 64
        positions = rows * width * (4 + 4 + 4 + 8 * 3) + 8 * 4 * rows
        return edges_bytes(rows, self.edges) + reading + positions + BLOCK * 8 * (6 * width + 12)

    # Run ------------------------------------------------------------------------------------------

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """See the protocol."""
        assert self.graph is not None  # noqa: S101 - only a plan is made without
        Result(self.graph).require_whole()
        parameters, rows = self.parameters, self.rows
        edges = read_edges(self.graph / NAME, self.epochs)
        more: dict[str, Any] = {}
        if self.start is not None:
            start = Result(self.start)
            positions, more["rows_at_random"] = spectral_positions(start, parameters.seed)
            more["connected_components"] = start.attrs["connected_components"]
        else:
            positions = start_positions(self.given, rows, parameters.n_components, parameters.seed)
        layout = Layout(positions, edges, parameters, self.epochs)
        layout.run(run)
        positions = layout.positions
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
        facts = {
            **run.facts(self.request(), "sgd", self.source, fingerprint),
            "epochs": self.epochs,
            "edges_that_pull": len(edges.neighbors),
            "curve": list(curve),
            "edge_loss": edge_loss(positions, edges, *curve),
            "pair_loss": pair_loss(positions, *curve, parameters.seed),
            **more,
        }
        run.describe(facts)
        return facts


# Tasks --------------------------------------------------------------------------------------------


def umap_task(neighbors: Result | str | Path, *, init: object = INITS[0], **arguments: object) -> Task:
    """A graph that is to be laid out, checked; or lists of neighbors, which become one first."""
    result = result_of("umap", neighbors, "a result of knn or fuzzy_graph, as of rf.knn(x, k=14)")
    kind = result.attrs["kind"]
    if kind not in ("knn", "fuzzy_graph"):
        raise InputError(f"{result.path} is the result of {kind}: umap lays out one of fuzzy_graph or knn")
    is_name = isinstance(init, str) and (init in INITS or not Path(init).exists())
    parameters = LayoutRequest.of(init=str(init) if is_name else "custom", **arguments)
    if is_name and init == INITS[-1]:
        raise InputError("init custom has no name: give positions, or a result of pca or umap")
    rows = result.matrix("graph" if kind == "fuzzy_graph" else "indices").shape[0]
    if rows >= MOST_ROWS:
        raise InputError(f"umap lays out fewer than 2**32 rows, not {rows}")
    given = None if is_name or init is TO_COME else given_positions(init, rows, parameters.n_components)
    if kind == "knn":
        graph = fuzzy_graph_task(result)
        layout = UmapTask(graph.source, graph.most_edges, parameters, given, None, graph.request())
        return _chain(graph, layout)
    most = 2 * rows * int(result.attrs["request"]["k"])
    edges = int(result.attrs.get("weights", most))
    layout = UmapTask(result.matrix("graph"), edges, parameters, given, result.path)
    return _chain(result, layout) if parameters.init == SPECTRAL else layout


def _chain(graph: FuzzyGraph | Result, layout: UmapTask) -> Chain:
    """Lists into a graph, eigenvectors of that where it is to begin at these, and its layout."""
    links: list[Link] = [] if isinstance(graph, Result) else [Link("graph", graph)]
    if layout.parameters.init == SPECTRAL:
        start = start_task(graph, layout.parameters.n_components, layout.parameters.seed)
        links.append(Link("start", start, start.when_made if links else None))

    def ready(results: Mapping[str, Path]) -> UmapTask:
        made = dataclasses.replace(layout, start=results.get("start"))
        if "graph" not in results:
            return made
        edges = int(Result(results["graph"]).attrs["weights"])
        return dataclasses.replace(made, edges=edges, graph=results["graph"])

    return Chain(layout.request(), (*links, Link("layout", layout, ready)))
