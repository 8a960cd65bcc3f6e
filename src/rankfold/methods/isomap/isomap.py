"""Rows in few dimensions by shortest paths: the graph in memory, distances from landmarks in the result.

First the graph is made from lists of neighbors by a sort on scratch. Then paths are followed from one group
of landmarks after the other to all rows, which takes most of the time. Scaling reads their distances once.

References
----------
Tenenbaum, de Silva, Langford, A global geometric framework for nonlinear dimensionality reduction, Science
290, 2000; for landmarks see ``geodesics.py`` and ``scaling.py``.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.graph.paths import Graph, lower_distances, search_breadth_first
from rankfold.methods.embedding.quality_chain import measured_task
from rankfold.methods.embedding.searched import matrix_in, require_unsaid, search_of, searched_task
from rankfold.methods.fuzzy_graph.lists import StoredLists
from rankfold.methods.isomap.arguments import (
    DEFAULT_K,
    DISCONNECTED,
    ISOMAP,
    LANDMARKS,
    IsomapArguments,
    IsomapRequest,
)
from rankfold.methods.isomap.geodesics import NAME, Geodesics, any_rows, farthest_rows, random_numbers
from rankfold.methods.isomap.graph import (
    BRIDGE_BYTES,
    NO_BRIDGES,
    RECORD_BYTES,
    Components,
    NumberedGraph,
    find_bridges,
    graph_bytes,
    index_type,
    read_components,
    read_graph,
    reading_bytes,
    require_rows,
    sorting_bytes,
    write_graph,
)
from rankfold.methods.isomap.scaling import Scaling, distances_between, residual_variance, scaling_bytes
from rankfold.methods.knn.graph import NAME as GRAPH
from rankfold.methods.parts.outputs import create_output, write_outputs
from rankfold.methods.random_keys import Purpose
from rankfold.methods.task import Output, Task, count
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import working_dtype
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.machine import one_blas_thread
from rankfold.pipeline.planning.passes import RESERVE_BYTES, Pass
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import FittedSweeps, TaskFacts, plan_task
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.result import Result, coordinates_hint, result_of

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

SAMPLE_ROWS = (64, 1000)
"""Fewest and most rows of the sample, whose distances to landmarks in the embedding are compared with
paths."""

SAMPLE_PAIRS = 2**20
"""Wanted number of pairs of a sampled row and a landmark, within the limits of ``SAMPLE_ROWS``."""

STEP_FLOPS = 40.0
"""Floating-point operations that take as long as following one edge of a path."""


@dataclass(frozen=True, slots=True)
class IsomapTask:
    """Task of an embedding by shortest paths (isomap), from a result of a search for neighbors."""

    result: Result
    """Result of a search for neighbors, by knn or radius_neighbors."""

    rows: int
    edges: int
    """Upper bound on the number of edges of the graph, each counted from both of its ends."""

    parameters: IsomapRequest
    lists: StoredLists | None
    """Neighbor lists from which the graph is made first; None if ``result`` holds a graph."""

    matrix: Source | None = None
    """Matrix whose rows neighbors were searched in, if components are to be joined; else None."""

    @property
    def source(self) -> Source:
        """Matrix by which the graph is identified: the stored graph, or the distances of neighbor lists."""
        return self.result.matrix(GRAPH) if self.lists is None else self.lists.distances

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of distances and coordinates: float64, unless the rows searched have less precision."""
        return working_dtype(np.dtype(self.result.attrs["input"].get("dtype", "float64")))

    @property
    def geodesics(self) -> Geodesics:
        """Sizes, chunks and memory of the stored distances of all rows from landmarks."""
        return Geodesics(self.rows, self.parameters.n_landmarks, self.dtype)

    def request(self) -> dict[str, Any]:
        """Everything besides the numbers in ``source`` that determines the coordinates, as JSON types."""
        lists = None if self.lists is None else self.lists.indices.fingerprint()
        return {**self.parameters.as_dict(), "indices": lists, "dtype": self.dtype.name}

    def loops(self) -> dict[str, Any]:
        """Type of the lengths of edges: facts besides the request on which compiled loops depend."""
        return {"dtype": self.dtype.name}

    def outputs(self) -> tuple[Output, ...]:
        """Declare the arrays of the result: embedding, distances from landmarks, and those for new rows."""
        geodesics, width, double = self.geodesics, self.parameters.n_components, np.dtype(np.float64)
        marks, rows = geodesics.landmarks, geodesics.rows
        tall = count(rows, geodesics.chunk_rows)
        return (
            Output("embedding", (rows, width), self.dtype, tall),
            Output(NAME, (rows, marks), self.dtype, tall * count(marks, geodesics.group)),
            Output("landmarks", (marks,), np.dtype(np.int64)),
            Output("landmark_eigenvalues", (marks,), double),
            Output("projection", (marks, width), double),
            Output("mean_squares", (marks,), double),
        )

    # Plan -----------------------------------------------------------------------------------------

    def plan(self, budget: Budget) -> Plan:
        """Plan the graph, the paths and scaling within a budget."""
        marks, width = self.parameters.n_landmarks, self.parameters.n_components
        task_facts = TaskFacts(
            "isomap",
            "exact" if marks == self.rows else "landmarks",
            self.source,
            self.dtype,
            "vertices",
            width,
            result_bytes=self.dtype.itemsize * self.rows * (marks + width) + 8 * marks * (width + 3),
            scratch_bytes=8 * marks**2 + (0 if self.lists is None else (RECORD_BYTES + 16) * self.edges),
            subject=f"isomap of {self.rows} rows, {self.edges} edges and {marks} landmarks",
        )
        return plan_task(task_facts, self, budget)

    def arrange(self, budget: Budget) -> FittedSweeps:
        """Choose one process with as many threads as fit into memory together with the graph."""
        geodesics, edges, marks = self.geodesics, self.edges, self.parameters.n_landmarks
        item, among = self.dtype.itemsize, 8 * marks**2
        graph = graph_bytes(self.rows, edges, item)
        read = graph + reading_bytes(self.rows, edges) + (self.matrix is not None) * BRIDGE_BYTES
        made = 0 if self.lists is None else sorting_bytes(self.lists)
        paths = graph + among + geodesics.group_bytes
        sample = 4 * 8 * self.sample_rows * marks
        scaled = max(scaling_bytes(marks), among + geodesics.block_bytes) + sample
        rest = max(made, read, paths + geodesics.thread_bytes, scaled)
        room = budget.memory_bytes - RESERVE_BYTES - paths
        threads = max(1, min(budget.threads, geodesics.group, room // geodesics.thread_bytes))
        memory = max(rest, paths + threads * geodesics.thread_bytes)
        writes = item * self.rows * marks
        sweeps = (
            Pass("graph", "matrix", 16 * edges, RECORD_BYTES * edges, 20.0 * edges, made, 1, 1, blas_bytes=0),
            Pass(
                "paths", "scratch", 12 * edges, writes, STEP_FLOPS * edges * marks, memory, 1, 1, blas_bytes=0
            ),
            Pass("scaling", "scratch", writes, 8 * self.rows, 4.0 * self.rows * marks, scaled, 1, 1),
        )
        each = RESERVE_BYTES + memory, scaled, 8 * marks**2
        return FittedSweeps(sweeps, threads, *each, threads, self.rows, geodesics.chunk_rows, 1, 1)

    @property
    def sample_rows(self) -> int:
        """Number of rows of the sample, whose distances in the embedding are compared with paths."""
        few, most = SAMPLE_ROWS
        return min(self.rows, max(few, min(most, SAMPLE_PAIRS // self.parameters.n_landmarks)))

    # Run ------------------------------------------------------------------------------------------

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Follow the paths, scale, and write all arrays; returns the facts (metadata) of the result."""
        self.result.require_whole()
        landmarks, among, components = self._follow_paths(run)
        run.require(run.result / NAME)
        rows, radius = np.ones(self.rows, int), 0.0
        if len(landmarks) < self.rows:
            rows, radius = self.geodesics.nearest(run)
        with one_blas_thread():
            scaling = Scaling.of(among, rows, self.parameters.n_components)
        del among
        measures = self._embed(run, scaling, landmarks)
        vectors = {"landmarks": landmarks, "landmark_eigenvalues": scaling.eigenvalues}
        write_outputs(
            run.result, {**vectors, "projection": scaling.projection, "mean_squares": scaling.means}
        )
        run.passes += 1
        self._warn(run, scaling)
        negative, share = scaling.negative()
        method = "exact" if len(landmarks) == self.rows else "landmarks"
        facts = {
            **run.facts(self.request(), method, self.source, fingerprint),
            "matrix": self._searched(),
            "components": components,
            **measures,
            "covering_radius": radius,
            "reconstruction_error": scaling.reconstruction_error,
            "negative_eigenvalues": negative,
            "negative_share": share,
        }
        run.describe(facts)
        return facts

    def _follow_paths(self, run: Run) -> tuple[Int64, Float64, int]:
        """Choose landmarks and write the distances of all rows from them into the result.

        Returns (l,) landmarks, (l, l) distances among them, and the number of components of the graph.
        """
        graph, components = self._graph(run)
        chosen = run.prepare(run.part("landmarks.part"), lambda: self._landmarks(run, graph))
        return chosen["landmarks"], self.geodesics.write(run, graph, chosen["landmarks"]), components

    def _searched(self) -> dict[str, Any]:
        """Name and fingerprint of the matrix whose rows neighbors were searched in, and the metric."""
        facts, metric = self.result.attrs["input"], self.result.attrs["request"]["metric"]
        return {"name": facts["name"], "fingerprint": facts["fingerprint"], "metric": metric}

    def _graph(self, run: Run) -> tuple[NumberedGraph, int]:
        """Read the graph into memory, with its components joined.

        Returns it with the number of components that it had.
        """
        place = self.result.path / GRAPH
        if self.lists is not None:
            place = run.scratch / GRAPH
            write_graph(self.lists, place, run.scratch / "edges")
        parts = read_components(place, self.rows)
        sizes, bridges = parts.sizes, NO_BRIDGES
        if len(sizes) > 1:
            self._require_joined(parts)
            assert self.matrix is not None  # noqa: S101 - checked with the request
            metric = self.result.attrs["request"]["metric"]
            bridges = find_bridges(self.matrix, metric, parts.labels)
            run.warnings.append(
                f"the graph of neighbors had {len(sizes)} components, the largest of {sizes.max()} rows: "
                f"{len(bridges.starts)} edges between the nearest rows of any two join them, and distances "
                "between components are those along these edges"
            )
        graph = read_graph(place, parts.order, self.dtype, bridges)
        if run.progress:
            run.progress("graph", self.rows, self.rows)
        return graph, len(sizes)

    def _require_joined(self, parts: Components) -> None:
        if self.parameters.disconnected == DISCONNECTED[1]:
            return
        sizes, asked = parts.sizes, self.result.attrs["request"]
        name = "k" if "k" in asked else "radius"
        raise DataError(
            f"the graph of neighbors with {name} {asked[name]:g} has {len(sizes)} components, the largest of "
            f"{sizes.max()} of {self.rows} rows, so that no path leads from some rows to others. Search with "
            f"a larger {name}, embed the rows of a component by themselves, or say disconnected='join' "
            "and give the matrix"
        )

    def _landmarks(self, run: Run, graph: NumberedGraph) -> State:
        """Choose the rows that paths begin at; returns {``landmarks``: (l,) their row numbers}."""
        wanted, seed = self.parameters.n_landmarks, self.parameters.seed
        if wanted == self.rows:
            return {"landmarks": np.arange(self.rows)}
        if self.parameters.landmarks != LANDMARKS[0]:
            return {"landmarks": any_rows(self.rows, wanted, seed)}

        def tell(done: int) -> None:
            if run.progress:
                run.progress("landmarks", self.rows * done // wanted, self.rows)

        return {"landmarks": farthest_rows(graph, wanted, seed, tell)}

    def _embed(self, run: Run, scaling: Scaling, landmarks: Int64) -> dict[str, float]:
        """Write coordinates of all rows; returns measures of how well they keep distances, as facts.

        ``landmarks`` (l,) are row numbers.
        """
        from rankfold.pipeline.chunks.regular_store import zarr_array

        geodesics, width = self.geodesics, self.parameters.n_components
        array = zarr_array(run.result / NAME)
        shape, chunk = (self.rows, width), (geodesics.chunk_rows, width)
        path = create_output(run.result, "embedding", shape, self.dtype, chunk)
        sample, in_order = self._sample(), np.sort(landmarks)
        kept = np.empty((len(sample), len(landmarks)))
        places, marks = (np.empty((len(rows), width)) for rows in (sample, landmarks))
        for start, stop in geodesics.blocks():
            distances = np.asarray(array[start:stop])
            coordinates = scaling.coordinates(distances)
            write_whole_chunks(path, coordinates.astype(self.dtype), (start, stop), (0, width))
            some = slice(*np.searchsorted(sample, (start, stop)))
            kept[some] = distances[sample[some] - start]
            places[some] = coordinates[sample[some] - start]
            own = slice(*np.searchsorted(in_order, (start, stop)))
            marks[own] = coordinates[in_order[own] - start]
            if run.progress:
                run.progress("scaling", stop, self.rows)
        marks = marks[np.searchsorted(in_order, landmarks)]
        value, error = residual_variance(kept, distances_between(places, marks), self.rows)
        return {
            "residual_variance": value,
            "standard_error": error,
            "sample_rows": len(sample),
        }

    def _sample(self) -> Int64:
        """(s,) row numbers of the sample, ascending."""
        if self.sample_rows == self.rows:
            return np.arange(self.rows)
        drawn = random_numbers(self.parameters.seed, Purpose.PATH_ROWS)
        return np.sort(drawn.choice(self.rows, self.sample_rows, replace=False))

    def _warn(self, run: Run, scaling: Scaling) -> None:
        wanted = self.parameters.n_components
        if scaling.rank < wanted:
            run.warnings.append(
                f"distances spread in {scaling.rank} dimensions, fewer than the {wanted} asked for: "
                "coordinates in the others are zero"
            )


# Tasks --------------------------------------------------------------------------------------------


def isomap_task(neighbors: Result | str | Path, arguments: IsomapArguments) -> Task:
    """Make the task for ``neighbors``: a result of knn or radius_neighbors, the path of one, or a matrix."""
    if (source := matrix_in(neighbors)) is not None:
        joins = arguments.matrix is None and arguments.disconnected == DISCONNECTED[1]
        make = functools.partial(
            _of_result, matrix=source if joins else arguments.matrix, arguments=arguments
        )
        k = DEFAULT_K if arguments.n_neighbors is None else arguments.n_neighbors
        search = search_of(k, arguments)
        return searched_task(source, search, arguments.seed, make, arguments.quality)
    require_unsaid(neighbors, arguments)
    wanted = "a matrix, or a result of knn or radius_neighbors, as of rf.knn(x, k=12)"
    result = result_of("isomap", neighbors, wanted)
    return measured_task(_of_result(result, arguments.matrix, arguments), result, arguments.quality)


def _of_result(result: Result, matrix: object, arguments: IsomapArguments) -> IsomapTask:
    """Check a result of a search for neighbors, and make the task of embedding its rows.

    ``matrix`` is that of the rows, to join components by; None if it is not given.
    """
    kind, asked = result.attrs["kind"], result.attrs["request"]
    if kind not in ISOMAP.results:
        raise InputError(
            f"{result.path} is the result of {kind}: isomap takes one of knn or radius_neighbors, or a matrix"
            f"{coordinates_hint(result)}"
        )
    if kind == "knn":
        lists = StoredLists.of(result, None)
        rows, edges = lists.rows, 2 * lists.rows * lists.k
    else:
        if asked.get("queries") is not None:
            raise InputError(
                f"{result.path} has neighbors of queries among other rows, which are no graph: give a result "
                "of radius_neighbors without queries"
            )
        graph: Any = result.matrix(GRAPH)
        rows, edges, lists = graph.shape[0], int(graph.nnz), None
    parameters = IsomapRequest.of(rows, arguments)
    task = IsomapTask(result, rows, edges, parameters, lists)
    if parameters.disconnected == DISCONNECTED[0]:
        return task
    return dataclasses.replace(
        task, matrix=require_rows(result, None if matrix is None else open_source(matrix))
    )


def warm_paths(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the compiled loops that find components and follow paths once, and load the eigensolver.

    ``request`` has the type of lengths (``IsomapTask.loops``), ``shape[0]`` is the number of rows.
    """
    _warm_paths(np.dtype(request["dtype"]), index_type(shape[0]))


@functools.cache
def _warm_paths(dtype: np.dtype[Any], index: np.dtype[Any]) -> None:
    import scipy.linalg

    graph = Graph(np.arange(3), np.array([1, 0], index), np.ones(2, dtype))
    lower_distances(graph, 0, near=np.full(2, np.inf))
    search_breadth_first(*graph[:2], order=np.empty(2, index), labels=np.empty(2, index))
    scipy.linalg.eigvalsh(np.eye(2))
