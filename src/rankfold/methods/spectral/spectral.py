"""Rows in few dimensions by leading eigenvectors of a random walk on the graph of their neighbors.

Vectors are in memory. The graph is as well if there is room for it; else it is read in each sweep.

Memory of a spectral embedding, and whether the graph stays in it.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankfold.methods.chain import Chain, Link
from rankfold.methods.claims import claim, in_words
from rankfold.methods.embedding.quality_chain import measured_task
from rankfold.methods.embedding.searched import matrix_in, require_unsaid, search_of, searched_task
from rankfold.methods.fuzzy_graph.arguments import GRAPHS, NEIGHBORS, ONE_SIDED
from rankfold.methods.fuzzy_graph.fuzzy_graph import FuzzyGraph
from rankfold.methods.fuzzy_graph.lists import StoredLists
from rankfold.methods.fuzzy_graph.new_rows import facts_of_distances
from rankfold.methods.knn.arguments import PRECOMPUTED
from rankfold.methods.parts.outputs import create_output, write_outputs
from rankfold.methods.spectral.arguments import (
    MOST_PASSES,
    SPECTRAL,
    DiffusionArguments,
    SpectralArguments,
    SpectralRequest,
)
from rankfold.methods.spectral.coordinates import coordinates
from rankfold.methods.spectral.walk.blocks import AHEAD, BLOCK_NUMBERS, GraphBlocks
from rankfold.methods.spectral.walk.filter import block_width
from rankfold.methods.spectral.walk.solve import Eigenvectors, dense_bytes, is_dense, leading_eigenvectors
from rankfold.methods.spectral.walk.vertices import Vertices, read_vertices
from rankfold.methods.task import Output, Task, count, vectors
from rankfold.pipeline.data.source import Source, compressed, require_compressed
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import DataError, InputError, argument
from rankfold.pipeline.formats.csr import entry_bytes
from rankfold.pipeline.importing.csr_writer import chunk_length
from rankfold.pipeline.planning.passes import RESERVE_BYTES, Pass
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import FittedSweeps, TaskFacts, plan_task
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.result import Result, coordinates_hint, result_of

CHUNK_ROWS = 2**18
"""Fewest rows of a chunk of the embedding; larger embeddings have ``TARGET_CHUNKS`` chunks."""

TARGET_CHUNKS = 8192

START_TOL = 1e-2
"""Tolerance of eigenvectors that are the initial positions of a layout, where forces move all rows."""

WANTED = "a result of knn or fuzzy_graph, as of rf.knn(x, k=14)"


@dataclass(frozen=True, slots=True)
class Spectral:
    """Task of an embedding by eigenvectors of a graph, whether the graph exists or is to be made first."""

    source: Source
    """The graph, or the matrix of distances that it is made of."""

    numbers: int
    """Upper bound on the number of stored weights of the graph."""

    parameters: SpectralRequest
    graph: Result | Source | None = None
    """Result that has the graph, or the graph itself; None before it is made."""

    made_by: Mapping[str, Any] | None = None
    """Request of the task that makes the graph; None if the graph is given."""

    def when_made(self, results: Mapping[str, Path]) -> Spectral:
        """Copy of the task with the graph from ``results``: paths of results by the name of their link."""
        graph = Result(results["graph"])
        return dataclasses.replace(self, graph=graph, numbers=int(graph.attrs["weights"]))

    @property
    def rows(self) -> int:
        """Number of vertices."""
        return self.source.shape[0]

    def request(self) -> dict[str, Any]:
        """Everything besides the numbers in ``source`` that determines the coordinates, as JSON types."""
        return {**self.parameters.as_dict(), "graph": None if self.made_by is None else dict(self.made_by)}

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk of the embedding."""
        return min(self.rows, max(CHUNK_ROWS, self.rows // TARGET_CHUNKS))

    def outputs(self) -> tuple[Output, ...]:
        """Declare the arrays of the result, without values.

        These are ``embedding`` (rows, d); ``labels`` (rows,) of components; ``density`` (rows,) if weights
        are divided by densities; and ``eigenvalues``, ``residuals`` and ``error_estimates``, (d,) each.
        """
        width, chunks = self.parameters.n_components, count(self.rows, self.chunk_rows)
        density = (Output("density", (self.rows,), np.dtype(np.float64), chunks),) * bool(
            self.parameters.alpha
        )
        return (
            Output("embedding", (self.rows, width), np.dtype(np.float64), chunks),
            Output("labels", (self.rows,), np.dtype(np.int64), chunks),
            *density,
            *vectors(width, "eigenvalues", "residuals", "error_estimates"),
        )

    # Plan -----------------------------------------------------------------------------------------

    def plan(self, budget: Budget) -> Plan:
        """Plan of eigenvectors by filters, with the graph in memory if it fits."""
        kind, width = self.parameters.kind, self.parameters.n_components
        block = 8 * self.rows * block_width(width)
        subject = "a start at eigenvectors" if self.parameters.apart else kind
        task_facts = TaskFacts(
            kind,
            "filters",
            self.source,
            np.dtype(np.float64),
            "vertices",
            width,
            result_bytes=8 * self.rows * (width + 1 + bool(self.parameters.alpha)),
            scratch_bytes=2 * block,
            subject=f"{subject} of {self.rows} rows and {self.numbers} edges",
        )
        way_out = (
            f", or {argument('init', 'random')}, which needs no eigenvectors" if self.parameters.apart else ""
        )
        return plan_task(task_facts, self, budget, lambda: way_out)

    def arrange(self, budget: Budget) -> FittedSweeps:
        """Arrange the passes in one process with all its threads; the graph stays in memory if it fits."""
        return arrange(self.source, self.numbers, self.parameters, budget)

    # Run ------------------------------------------------------------------------------------------

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Compute the eigenvectors and write the embedding; returns the facts (metadata) of the result."""
        asked = self.parameters
        graph, distances = self.graph, dict[str, Any]()
        assert graph is not None  # noqa: S101 - only a plan is made without
        if isinstance(graph, Result):
            graph.require_whole()
            distances, graph = facts_of_distances(graph.attrs), graph.matrix("graph")
        blocks = GraphBlocks.of(require_compressed(graph), stay=run.slots == IN_MEMORY)
        vertices = read_vertices(blocks, asked.alpha, asked.seed, run.concurrency)
        most = self.rows - vertices.isolated - 1
        if most < 0 and not asked.apart:
            raise DataError(f"{graph.name} has no edges: no row has a place among others")
        if asked.n_components > most and not asked.apart:
            raise InputError(
                f"n_components {asked.n_components} was asked for, but {vertices.isolated} of "
                f"{self.rows} rows have no edges, and the others have {most} dimensions: ask for fewer"
            )
        began = time.perf_counter()
        part = run.part("filters", "block.part") if run.file_policy.resumable else None
        found = leading_eigenvectors(blocks, vertices, asked, run.concurrency, part, _teller(run, self.rows))
        run.seconds["filters"] = time.perf_counter() - began
        run.passes = found.reads
        self._write(run, vertices, found)
        facts = {
            **run.facts(self.request(), "filters", self.source, fingerprint),
            "connected_components": len(vertices.sizes),
            "largest_component": int(vertices.sizes.max(initial=0)),
            "isolated": vertices.isolated,
            **claim(found.largest_error(asked.tol), asked.tol),
            **distances,
        }
        facts["warnings"] += _warnings(facts, asked)
        run.describe(facts)
        return facts

    def _write(self, run: Run, vertices: Vertices, found: Eigenvectors) -> None:
        """Write embedding, labels, densities if any, and eigenvalues with errors into the result."""
        asked, is_walk = self.parameters, self.parameters.kind == "diffusion_map"
        rows = {
            "embedding": coordinates(vertices, found.vectors, found.values**asked.t, unit=is_walk),
            "labels": vertices.labels,
        }
        if asked.alpha:
            rows["density"] = vertices.density
        for name, array in rows.items():
            chunk = self.chunk_rows, *array.shape[1:]
            path = create_output(run.result, name, array.shape, array.dtype, chunk)
            write_whole_chunks(path, array, *((0, n) for n in array.shape))
        values = found.values if is_walk else 1 - found.values
        small = {"eigenvalues": values, "residuals": found.residuals, "error_estimates": found.errors}
        write_outputs(run.result, small)


def _teller(run: Run, rows: int) -> Callable[[float], None]:
    """Make the function that shows progress, from the largest error relative to its target.

    Progress is the share of the digits by which the error has to shrink that it has shrunk, times ``rows``.
    """
    first: list[float] = []

    def tell(excess: float) -> None:
        first.append(max(excess, math.e))
        if run.progress:
            run.progress("filters", int(rows * (1 - math.log(max(excess, 1)) / math.log(max(first)))), rows)

    return tell


def _warnings(facts: Mapping[str, Any], asked: SpectralRequest) -> list[str]:
    """Warnings for a caller about the components of the graph and the accuracy that was reached."""
    parts, said = facts["connected_components"], []
    if parts > 1 and not asked.apart:
        known = min(parts - 1, asked.n_components)
        said.append(
            f"the graph has {parts} components, the largest of {facts['largest_component']} rows: the first "
            f"{known} of {asked.n_components} coordinates only tell these apart. Ask knn for more "
            "neighbors, or embed the rows of one label alone"
        )
    if facts["isolated"] and not asked.apart:
        said.append(f"{facts['isolated']} rows have no edges: their coordinates are 0")
    if not facts["converged"]:
        error, allowed = in_words(facts["largest_error_estimate"], asked.tol)
        said.append(
            f"eigenvalues are off by up to {error} of themselves after {asked.passes} products with the "
            f"graph, above what tol {allowed} asks for: allow more passes, or a larger tol"
        )
    return said


# Tasks --------------------------------------------------------------------------------------------


def spectral_task(neighbors: object, arguments: SpectralArguments) -> Task:
    """Task of Laplacian eigenmaps.

    ``neighbors`` is a result with a graph or with lists of neighbors, its path, a sparse matrix of weights,
    or a matrix whose neighbors are found first.
    """
    asked = SpectralRequest(
        "spectral", arguments.n_components, arguments.tol, arguments.passes, arguments.seed
    )
    return _task(neighbors, asked, arguments)


def diffusion_task(neighbors: object, arguments: DiffusionArguments) -> Task:
    """Task of a diffusion map; ``neighbors`` as for ``spectral_task``."""
    asked = SpectralRequest(
        "diffusion_map",
        arguments.n_components,
        arguments.tol,
        arguments.passes,
        arguments.seed,
        alpha=arguments.alpha,
        t=arguments.t,
    )
    return _task(neighbors, asked, arguments)


def start_task(graph: Result | FuzzyGraph, n_components: int, seed: int) -> Spectral:
    """Task of the eigenvectors that a layout begins at: each component by itself, to a coarse tolerance.

    ``graph`` is a result that has a graph, or the task that makes one: see ``Spectral.when_made``.
    """
    asked = SpectralRequest("spectral", n_components, START_TOL, MOST_PASSES, seed, apart=True)
    return _of_weights(graph, asked) if isinstance(graph, FuzzyGraph) else _of_graph(graph, asked)


def _task(
    neighbors: object, asked: SpectralRequest, arguments: SpectralArguments | DiffusionArguments
) -> Task:
    """Task for weights, for a result, or for a matrix whose neighbors are found first."""
    quality = arguments.quality
    if (source := matrix_in(neighbors)) is not None:
        # A square matrix holds weights; if it is dense, perhaps samples.
        if source.shape[0] == source.shape[1] and arguments.metric != PRECOMPUTED:
            require_unsaid(source.name, arguments)
            return measured_task(_of_matrix(source, asked), None, quality)
        k = NEIGHBORS if arguments.n_neighbors is None else arguments.n_neighbors
        search = search_of(k - 1, arguments)
        return searched_task(source, search, asked.seed, lambda lists: _of_result(lists, asked), quality)
    require_unsaid(neighbors, arguments)
    result = result_of(asked.kind, neighbors, WANTED + ", or a sparse matrix of weights")
    return measured_task(_of_result(result, asked), result, quality)


def _of_result(result: Result, asked: SpectralRequest) -> Task:
    """Task for the graph in a result, or for lists of neighbors that become a graph first."""
    kind = result.attrs["kind"]
    if kind not in SPECTRAL.results:
        raise InputError(
            f"{result.path} is the result of {kind}: {asked.kind} is of one of fuzzy_graph or knn, or of a "
            f"matrix{coordinates_hint(result)}"
        )
    if kind in GRAPHS:
        return _of_graph(result, asked)
    graph = FuzzyGraph.of(StoredLists.of(result, None), ONE_SIDED, 1.0)
    task = _of_weights(graph, asked)
    return Chain(task.request(), (Link("graph", graph), Link("embedding", task, task.when_made)))


def _of_matrix(source: Source, asked: SpectralRequest) -> Spectral:
    """Task for the graph whose weights are the symmetric sparse matrix ``source``."""
    stored, (rows, columns) = compressed(source), source.shape
    if stored is None or rows != columns:
        what = f"{rows} x {columns}" if rows != columns else "square and dense"
        raise InputError(
            f"{asked.kind} is of neighbors, of samples, or of a symmetric sparse matrix of weights, but "
            f"{source.name} is {what}. Give weights as a SciPy sparse array, and neighbors of samples as "
            "rf.knn(x, k=14)"
        )
    asked.check_rows(rows)
    return Spectral(source, stored.nnz, asked, source)


def _of_graph(result: Result, asked: SpectralRequest) -> Spectral:
    return dataclasses.replace(_of_matrix(result.matrix("graph"), asked), graph=result)


def _of_weights(graph: FuzzyGraph, asked: SpectralRequest) -> Spectral:
    """Task for the graph that the task ``graph``, an earlier link, makes of lists of neighbors."""
    asked.check_rows(graph.lists.rows)
    return Spectral(graph.source, graph.most_edges, asked, None, graph.request())


IN_MEMORY = 1
"""Value of ``slots`` in a plan where the graph stays in memory; with other values it is read in each
sweep."""

VECTORS = 6
"""Largest number of blocks of vectors in memory at once: in a filter, or in a Rayleigh-Ritz step with the
copies of LAPACK."""

OF_ROW = 12
"""Number of other float64 values for each vertex: degrees, factors, components, coefficients of steps."""

OF_EDGE = 48
"""Bytes for each edge of a block of rows while degrees are summed."""

LIKELY_READS = 200


def arrange(source: Source, numbers: int, asked: SpectralRequest, budget: Budget) -> FittedSweeps:
    """Arrange the passes in one process with all its threads; the graph stays in memory if it fits.

    ``source`` is the graph or what it is made of, ``numbers`` an upper bound on its stored weights.
    """
    rows, width = source.shape[0], block_width(asked.n_components)
    vectors = 8 * rows * (VECTORS * width + OF_ROW + 3 * asked.n_components)
    if is_dense(rows, asked.n_components):
        vectors += dense_bytes(rows)
    in_memory, streamed = (vectors + _graph_bytes(source, numbers, stay=stay) for stay in (True, False))
    stays = RESERVE_BYTES + in_memory <= budget.memory_bytes
    memory = in_memory if stays else streamed
    item = 4 + (4 if max(rows, numbers) < 2**31 else 8)
    reads, block = numbers * item, 16 * rows * width
    sweeps = (
        Pass("degrees", "matrix", reads, 0, 20.0 * numbers, memory, 1, 1, blas_bytes=0),
        Pass(
            "filters",
            "matrix",
            reads,
            block,
            2.0 * numbers * width * LIKELY_READS,
            memory,
            1,
            1,
            blas_bytes=0,
        ),
    )
    most, likely = asked.passes + 2, min(asked.passes, LIKELY_READS) + 2
    each = RESERVE_BYTES + memory, memory, block
    where = budget.threads, rows, rows, most, likely, IN_MEMORY if stays else AHEAD
    return FittedSweeps(sweeps, budget.threads, *each, *where)


def _graph_bytes(source: Source, numbers: int, *, stay: bool) -> int:
    """Bytes of the whole graph if it is to ``stay`` in memory, else of the blocks of rows held at once.

    Includes reading a block, and summing its degrees. ``numbers`` is the count of stored weights.
    """
    rows = source.shape[0]
    block = min(numbers, BLOCK_NUMBERS + rows)
    item = 4 + (4 if max(rows, numbers) < 2**31 else 8)
    stored = compressed(source)
    if stored is not None:
        item = source.dtype.itemsize + item - 4
        reading = stored.sparse_bytes(block)
    else:
        chunk = chunk_length(numbers)
        reading = 16 * chunk + entry_bytes(rows, block)
    at_once = numbers if stay else min(numbers, AHEAD * block)
    return at_once * item + 8 * rows + reading + OF_EDGE * block
