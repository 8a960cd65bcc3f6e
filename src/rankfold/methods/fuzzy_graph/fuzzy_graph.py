"""From lists of neighbors to a weighted graph, in two reads of the lists and a sort of the edges.

Each row assigns weights to its neighbors, and an edge combines the weights from its two rows: see
``EdgeWeighting``. Sorting brings both together: every edge is written twice, once from each row, with its
weight in the real or the imaginary part of a complex number, and values of the same row and column are
summed. Radii need distances of the edges, which are sorted in the same way. Memory of a process does not grow
with the rows.

References
----------
McInnes, Healy, Melville, UMAP, arXiv:1802.03426, sections 3.1 and 4.1; ``fuzzy_simplicial_set`` of umap-learn
for the mix of union and intersection.

Weights that a row assigns to its neighbors, and the weight of an edge from both of its rows.

Local radii of rows: the logarithm of the mean squared distance to neighbors, weighted by a graph.

Edges arrive in order of rows, so that sums of a chunk of rows are written as soon as a later row arrives.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.kernels.graph.fuzzy import membership, units_of
from rankfold.kernels.graph.perplexity import affinities
from rankfold.methods.fuzzy_graph.arguments import FUZZY_GRAPH
from rankfold.methods.fuzzy_graph.lists import BLOCK_BYTES, StoredLists, matrix_of, metric_of
from rankfold.methods.knn.graph import NAME, POINTERS, SORT_BYTES
from rankfold.methods.parts.outputs import create_output
from rankfold.methods.task import Output, count
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.importing.csr_writer import CsrWriter, chunk_length, sorted_entries
from rankfold.pipeline.importing.readers.reader import Entries
from rankfold.pipeline.planning.passes import RESERVE_BYTES, Pass
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import FittedSweeps, FixedSweeps, TaskFacts, plan_task
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.units import format_bytes

Float32 = npt.NDArray[np.float32]

BOTH = np.dtype(np.complex64)
"""Type of the value of an edge: the weights that its two rows assign, as real and as imaginary part."""

RECORD_BYTES = 16
"""Bytes of an edge in an intermediate file: its complex value, with row and column."""

EDGE_BYTES = 16
"""Bytes for each neighbor of the rows processed at a time: copies made to compute weights and to sort."""


@dataclass(frozen=True, slots=True)
class FuzzyGraph:
    """Task that makes a weighted graph from stored lists of neighbors.

    ``sides`` are rules for weights, those of UMAP or of t-SNE. With ``radii``, local radii of rows are
    written too.
    """

    lists: StoredLists
    sides: EdgeWeighting
    radii: bool = False

    @classmethod
    def of(
        cls, lists: StoredLists, set_op_mix_ratio: float, local_connectivity: float, *, radii: bool = False
    ) -> FuzzyGraph:
        """Make the task of a graph as UMAP weights it.

        Parameters
        ----------
        lists : StoredLists
        set_op_mix_ratio : float
            1 for the fuzzy union of the weights from both rows of an edge, 0 for their intersection.
        local_connectivity : float
            Number of nearest neighbors of each row that get weight 1.
        radii : bool
            True to write local radii of rows too.

        Raises
        ------
        InputError
            A parameter is out of bounds.
        """
        if not 0 <= set_op_mix_ratio <= 1:
            raise InputError(
                f"set_op_mix_ratio must lie between 0 (intersection) and 1 (union), not {set_op_mix_ratio}"
            )
        if not 0 <= local_connectivity <= lists.k:
            raise InputError(
                f"local_connectivity must lie between 0 and the {lists.k} neighbors that there are, not "
                f"{local_connectivity}"
            )
        return cls(lists, FuzzySides(set_op_mix_ratio, local_connectivity), radii)

    @property
    def source(self) -> Source:
        """(rows, k) distances of rows to their neighbors."""
        return self.lists.distances

    def request(self) -> dict[str, Any]:
        """Parameters and the fingerprint of the neighbors, which determine the graph, as JSON types."""
        return {
            "kind": self.sides.kind,
            "k": self.lists.k,
            **self.sides.request(),
            "radii": self.radii,
            "indices": self.lists.indices.fingerprint(),
        }

    def loops(self) -> dict[str, Any]:
        """Name of the method whose loops make this graph, as affinities are no method's result."""
        return {"loops_of": FUZZY_GRAPH.name}

    @property
    def most_edges(self) -> int:
        """Upper bound on edges in both directions, reached if no two rows are neighbors of each other."""
        return 2 * self.lists.rows * self.lists.k

    @property
    def chunk_edges(self) -> int:
        """Number of edges in a chunk of the result: see ``CsrWriter``."""
        return chunk_length(self.most_edges)

    def outputs(self) -> tuple[Output, ...]:
        """Declare the arrays of the result: sparse graph (rows, rows), and radii (rows,) if requested."""
        rows, edges = self.lists.rows, self.most_edges
        files = 2 * count(edges, self.chunk_edges) + count(rows + 1, POINTERS)
        shape, dtype = (rows, rows), np.dtype(np.float32)
        graph = Output(NAME, shape, dtype, files, sparse=True, stored=edges, compressed=True)
        radii = Output(RADII, (rows,), np.dtype(np.float32), count(rows, CHUNK_ROWS))
        return (graph, radii) if self.radii else (graph,)

    # Plan -----------------------------------------------------------------------------------------

    def plan(self, budget: Budget) -> Plan:
        """Plan the reads of the lists, and the sort of edges."""
        rows, edges, k = self.lists.rows, self.most_edges, self.lists.k
        source, stored = self.source, 8 * rows * self.source.shape[1]
        held = 4 * self.lists.chunk_bytes + BLOCK_BYTES // 8 * EDGE_BYTES * 4
        sort = 2 * SORT_BYTES * self._sorts + 3 * self.chunk_edges * 8 + 4 * 8 * POINTERS
        memory = held * self._sorts + sort + self.radii * 10 * 8 * CHUNK_ROWS
        work = 600.0 * rows * k * self._sorts
        sweeps = (
            Pass("distances", "matrix", stored, 0, float(rows * k), held, 1, 1, blas_bytes=0),
            Pass("weights", "matrix", 2 * stored * self._sorts, 8 * edges, work, memory, 1, 1, blas_bytes=0),
        )[not self.sides.by_mean_distance :]
        peak = RESERVE_BYTES + memory
        fitted = FittedSweeps(sweeps, 1, peak, memory, 0, 1, rows, rows, 2, 2)
        task_facts = TaskFacts(
            self.sides.kind,
            "exact",
            source,
            np.dtype(np.float32),
            f"at most {edges} edges",
            k,
            result_bytes=8 * edges + 8 * rows,
            scratch_bytes=RECORD_BYTES * edges * self._sorts,
            details=(
                ("sort of edges", f"{RECORD_BYTES} bytes each on scratch, {format_bytes(sort)} in memory"),
            ),
            subject=f"{self.sides.kind} of {rows} rows of {k} neighbors",
        )
        return plan_task(task_facts, FixedSweeps(fitted), budget)

    @property
    def _sorts(self) -> int:
        """Number of sorts of all edges: with weights, and once more with distances for radii."""
        return 1 + self.radii

    # Run ------------------------------------------------------------------------------------------

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Write the graph and return its facts (metadata); an interrupted run starts over."""
        by_mean = self.sides.by_mean_distance
        mean = self._mean_distance(run) if by_mean else 0.0
        folder = run.result / NAME
        remove(folder)
        rows = self.lists.rows
        writer = CsrWriter(folder, (rows, rows), np.dtype(np.float32), self.most_edges, str(run.result))
        radii = RadiusWriter(run.result, rows, distance_unit(mean)) if self.radii else None
        edges, largest = 0, 0.0
        for entries, distances in self._edges(run, mean):
            weights = self.sides.join(entries.values.real, entries.values.imag)
            keep = weights > 0
            if keep.any():
                writer.append(Entries(entries.rows[keep], entries.columns[keep], weights[keep]))
                edges, largest = edges + int(keep.sum()), max(largest, float(weights.max()))
            if radii is not None:
                radii.append(entries.rows, weights, distances)
        writer.finish()
        if radii is not None:
            radii.finish()
        run.passes += by_mean + self._sorts
        facts = {
            **run.facts(self.request(), "exact", self.source, fingerprint),
            "weights": edges,
            "largest_weight": largest,
            **({"mean_distance": mean} if by_mean else {}),
            "metric": metric_of(self.lists.result),
            "matrix": matrix_of(self.lists.result),
        }
        run.describe(facts)
        return facts

    def _mean_distance(self, run: Run) -> float:
        """Mean distance over all neighbors and rows, each row counted with its distance of 0 from itself."""
        total, rows, k = 0.0, self.lists.rows, self.lists.k
        for first, distances in self.lists.distance_blocks():
            unit = float(units_of(distances.mean(dtype=np.float64, keepdims=True)).max())
            total += float((distances / unit).astype(np.float32).sum(dtype=np.float64)) * unit
            _tell(run, "distances", first + len(distances), rows)
        return total / (rows * (k + 1))

    def _edges(self, run: Run, mean: float) -> Iterator[tuple[Entries, Float32]]:
        """Yield edges sorted by row, with weights from both of their rows, and (edges,) distances.

        ``mean`` is the mean of all distances. Distances are in the unit of ``distance_unit``, and empty
        without radii.
        """
        sorts, shape = [], (self.lists.rows, self.lists.rows)
        for number in range(self._sorts):
            folder = run.scratch / f"edges{number}"
            remove(folder)
            folder.mkdir()
            values = self._both_ways(run, mean, distance_unit(mean) if number else None)
            sorts.append(sorted_entries(values, shape, BOTH, folder, SORT_BYTES))
        # Both sorts have the same places in the same order, and so the same blocks.
        for entries, *others in zip(*sorts, strict=True):
            distances = [np.maximum(other.values.real, other.values.imag) for other in others]
            yield entries, distances[0] if distances else np.empty(0, np.float32)
        for number in range(self._sorts):
            remove(run.scratch / f"edges{number}")

    def _both_ways(self, run: Run, mean: float, unit: float | None) -> Iterator[Entries]:
        """Yield every edge with its value in the real part, and its reverse with it in the imaginary part.

        Values are weights, or distances over ``unit`` if that is given. ``mean`` is the mean of all
        distances.
        """
        k, rows = self.lists.k, self.lists.rows
        for first, distances, indices in self.lists.blocks():
            weights = np.empty(distances.shape, np.float32)
            self.sides.weigh(distances, mean, weights)
            ends, starts = indices.reshape(-1), np.repeat(np.arange(first, first + len(indices)), k)
            values = (weights if unit is None else (distances / unit).astype(np.float32)).reshape(-1)
            some = (weights.reshape(-1) > 0) & (ends != starts)
            ends, starts, values = ends[some], starts[some], values[some]
            if len(values):
                yield Entries(starts, ends, values.astype(BOTH))
                yield Entries(ends, starts, values * BOTH.type(1j))
            _tell(run, "weights", first + len(indices), rows)


def _tell(run: Run, name: str, done: int, total: int) -> None:
    if run.progress:
        run.progress(name, done, total)


Array = npt.NDArray[Any]


class EdgeWeighting(Protocol):
    """Rules for weights: of the neighbors of a row, and of an edge from both of its rows. Picklable."""

    @property
    def kind(self) -> str:
        """Kind of the graph: ``"fuzzy_graph"`` or ``"affinities"``."""

    @property
    def by_mean_distance(self) -> bool:
        """True if weights depend on the mean of all distances, which is then computed first."""

    def request(self) -> dict[str, Any]:
        """Parameters that determine the weights, by name, as JSON types."""

    def weigh(self, distances: Array, mean: float, out: Float32) -> None:
        """Write weights of neighbors at ``distances`` (r, k) to ``out`` (r, k).

        ``mean`` is the mean distance over all rows, not these alone.
        """

    def join(self, one: Float32, other: Float32) -> Float32:
        """(edges,) weights of edges, from the weights (edges,) ``one`` and ``other`` that their rows assign.

        The weight from a row is 0 if it does not have the other row as neighbor.
        """


@dataclass(frozen=True, slots=True)
class FuzzySides:
    """Rules of UMAP: an edge has weight ``mix (a + b - a b) + (1 - mix) a b``, from weights a, b of its rows.

    See ``rankfold.kernels.graph.fuzzy``.
    """

    set_op_mix_ratio: float
    local_connectivity: float
    kind: str = "fuzzy_graph"
    by_mean_distance: bool = True

    def request(self) -> dict[str, Any]:
        """Parameters that determine the weights: ``set_op_mix_ratio`` and ``local_connectivity``."""
        return {"set_op_mix_ratio": self.set_op_mix_ratio, "local_connectivity": self.local_connectivity}

    def weigh(self, distances: Array, mean: float, out: Float32) -> None:
        """Write fuzzy memberships of neighbors at ``distances`` (r, k) to ``out`` (r, k).

        ``mean`` is the mean distance over all rows.
        """
        membership(distances, mean, local_connectivity=self.local_connectivity, out=out)

    def join(self, one: Float32, other: Float32) -> Float32:
        """(edges,) mix of fuzzy union and intersection of weights ``one`` and ``other`` from both rows."""
        mix = np.float32(self.set_op_mix_ratio)
        product = one * other
        return mix * (one + other - product) + (np.float32(1) - mix) * product


@dataclass(frozen=True, slots=True)
class AffinitySides:
    """Rules of t-SNE: an edge has weight ``(a + b) / (2 m)``, from affinities a, b of its rows, m in all.

    These weights sum to 1 over all pairs. See ``rankfold.kernels.graph.perplexity``.
    """

    perplexities: tuple[float, ...]
    rows: int
    kind: str = "affinities"
    by_mean_distance: bool = False

    def request(self) -> dict[str, Any]:
        """Parameters that determine the weights: the perplexities."""
        return {"perplexities": list(self.perplexities)}

    def weigh(self, distances: Array, mean: float, out: Float32) -> None:
        """Write affinities of neighbors at ``distances`` (r, k) to ``out`` (r, k); those of a row sum to 1.

        ``mean`` is not used.
        """
        affinities(distances, np.array(self.perplexities, np.float64), out=out)

    def join(self, one: Float32, other: Float32) -> Float32:
        """(edges,) mean of the affinities ``one`` and ``other`` from both rows, over the number of rows."""
        return np.asarray((one + other) * np.float32(0.5 / self.rows))


def warm_weights(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the compiled loop for weights of neighbors once: of affinities if ``request`` has perplexities."""
    warm_affinities() if "perplexities" in request else _warm_membership()


@functools.cache
def _warm_membership() -> None:
    for wide in (np.zeros((2, 2)), np.zeros((2, 4))[:, :2]):
        membership(wide, 0.0, out=np.empty((2, 2), np.float32))


@functools.cache
def warm_affinities() -> None:
    """Run the compiled loop for affinities once, on lists in either order of memory."""
    for wide in (np.ones((2, 2)), np.ones((2, 4))[:, :2]):
        affinities(wide, np.ones(1), out=np.empty((2, 2), np.float32))


RADII = "radius_data"

LEAST = 1e-8
"""Added to mean squared distances, in squares of ``distance_unit``, since these are 0 for equal rows."""

PLAIN = (2.0**-10, 2.0**60)
"""Range of mean distances whose squares are far above ``LEAST``, and within the range of float32."""

CHUNK_ROWS = 2**17
"""Number of rows whose sums are in memory at a time, and largest number of rows of a chunk of radii."""


def distance_unit(mean: float) -> float:
    """Power of two used as unit of distances whose mean is ``mean``, so that squares stay in range.

    >>> distance_unit(3.0), distance_unit(0.0), distance_unit(3 * 2.0**-300) == 2.0**-299
    (1.0, 1.0, True)
    """
    if mean == 0 or PLAIN[0] <= mean <= PLAIN[1]:
        return 1.0
    return math.ldexp(1.0, math.frexp(mean)[1] - 1)


def log_radii(squares: Array, weights: Array) -> npt.NDArray[np.float64]:
    """(m,) local radii, the logarithms of ``LEAST`` plus ``squares / weights``; NaN where weights are 0.

    ``squares`` (m,) are sums of weighted squared distances of the neighbors of each row, ``weights`` (m,) of
    weights.
    """
    means = np.divide(squares, weights, out=np.full(len(weights), np.nan), where=weights > 0)
    radii: npt.NDArray[np.float64] = np.log(LEAST + means)
    return radii


def copy_radii(stored: Result, result: Path) -> None:
    """Copy local radii from ``stored`` to the result at path ``result``, chunk by chunk."""
    rows = stored[RADII].shape[0]
    path = create_output(result, RADII, (rows,), np.float32, (min(rows, CHUNK_ROWS),))
    for top in range(0, rows, CHUNK_ROWS):
        bottom = min(rows, top + CHUNK_ROWS)
        write_whole_chunks(path, np.asarray(stored[RADII][top:bottom]), (top, bottom))


class RadiusWriter:
    """Computes local radii of rows from edges, added in order of rows, and writes them into a result."""

    def __init__(self, result: Path, rows: int, unit: float) -> None:
        self.rows, self.top = rows, 0
        self.path = create_output(result, RADII, (rows,), np.float32, (min(rows, CHUNK_ROWS),))
        self.sums, self.log_unit = np.zeros((2, CHUNK_ROWS)), math.log(unit)

    def append(self, rows: Array, weights: Array, distances: Array) -> None:
        """Add edges: their row, weight and distance, each (edges,), in order of rows.

        Distances are in units of ``unit``. A row may continue in the next call. The radii of a chunk of rows
        are written once a row beyond it arrives.
        """
        shares = weights.astype(np.float64)
        squares = shares * distances.astype(np.float64) ** 2
        while len(rows):
            cut = int(np.searchsorted(rows, self.top + CHUNK_ROWS))
            for sums, values in zip(self.sums, (squares, shares), strict=True):
                sums += np.bincount(rows[:cut] - self.top, values[:cut], CHUNK_ROWS)
            rows, squares, shares = rows[cut:], squares[cut:], shares[cut:]
            if len(rows):
                self._write()

    def finish(self) -> None:
        """Write the radii of all rows that are not written yet."""
        while self.top < self.rows:
            self._write()

    def _write(self) -> None:
        bottom = min(self.rows, self.top + CHUNK_ROWS)
        radii = log_radii(*self.sums)[: bottom - self.top] + 2 * self.log_unit
        write_whole_chunks(self.path, radii.astype(np.float32), (self.top, bottom))
        self.top = bottom
        self.sums[:] = 0
