"""Combine two graphs, or one graph and labels of its vertices, in two reads.

Both graphs are symmetric and stored by rows, in order of columns, so that the same rows are read together.
Each row is scaled so that its strongest edge has weight 1. The weight of an edge is the fuzzy union of its
weights from both rows. The first read finds scales, one or two for each row, and the second writes.

Scales and exponents of rows, for which each row has an edge of weight 1 and all have one sum of weights.

References
----------
McInnes, Healy, Melville, UMAP, arXiv:1802.03426, section 3.1; ``reset_local_connectivity`` of umap-learn 0.5.
The same bisection steps are made, since the result depends on where the search for an exponent stops: at a
sum within 1e-5 of its target.

Rules for the weight of an edge in two graphs, or in a graph whose vertices have labels.

References
----------
McInnes, Healy, Melville, UMAP, arXiv:1802.03426, for unions and intersections of fuzzy sets. Numbers are
those of ``general_simplicial_set_union``, ``general_simplicial_set_intersection`` and
``discrete_metric_simplicial_set_intersection`` of umap-learn 0.5.

Targets of rows (supervision): a label for each, or numbers, of which near ones are similar.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.methods.fuzzy_graph.fuzzy_graph import CHUNK_ROWS, RADII, copy_radii
from rankfold.methods.fuzzy_graph.stored_rows import BLOCK, Edges, StoredRows, row_spans
from rankfold.methods.knn.graph import NAME, POINTERS
from rankfold.methods.task import Output, count
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.formats.npy import map_npy
from rankfold.pipeline.importing.csr_writer import CsrWriter, chunk_length
from rankfold.pipeline.importing.readers.reader import Entries
from rankfold.pipeline.planning.passes import RESERVE_BYTES, Pass
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import FittedSweeps, FixedSweeps, TaskFacts, plan_task
from rankfold.pipeline.regular import is_regular
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.result import Result

Float64 = npt.NDArray[np.float64]

EDGE_BYTES = 160
"""Bytes for each edge of the rows combined at a time: in both graphs, in their sorted union, and in
copies."""


@dataclass(frozen=True, slots=True)
class CombinedGraph:
    """Task that combines two graphs, or a graph and labels, by a rule for the new weights of edges."""

    source: Source
    """Distances that the first graph is made from, or the first graph itself."""

    edges: int
    """Upper bound on the number of edges in both graphs together, counted in both directions."""

    identity: Mapping[str, Any]
    make_rule: Callable[[list[StoredRows]], Rule]
    resized: bool = False
    """True to raise the weights of each row to a power, so that all rows have the same sum of weights."""

    graphs: tuple[Path, ...] = ()
    """Paths of the results that hold the graphs; empty before these are made."""

    facts: Mapping[str, Any] | None = None
    """Facts (metadata) of the first graph that the result repeats; None for none."""

    radii: bool = False
    """True to copy the local radii of the first graph into the result."""

    def request(self) -> dict[str, Any]:
        """Return ``identity``: parameters that determine the weights, as JSON types."""
        return dict(self.identity)

    def outputs(self) -> tuple[Output, ...]:
        """Declare the arrays of the result: sparse graph (rows, rows), and radii (rows,) if copied."""
        rows, edges = self.source.shape[0], self.edges
        files = 2 * count(edges, chunk_length(edges)) + count(rows + 1, POINTERS)
        shape, dtype = (rows, rows), np.dtype(np.float32)
        graph = Output(NAME, shape, dtype, files, sparse=True, stored=edges, compressed=True)
        radii = Output(RADII, (rows,), np.dtype(np.float32), count(rows, CHUNK_ROWS))
        return (graph, radii) if self.radii else (graph,)

    # Plan -----------------------------------------------------------------------------------------

    def plan(self, budget: Budget) -> Plan:
        """Plan two reads of the graphs, with memory for a row that has an edge to every other row."""
        rows, edges = self.source.shape[0], self.edges
        memory = EDGE_BYTES * (BLOCK + min(rows, edges)) + 5 * 8 * chunk_length(edges) + 40 * (rows + 1)
        sweeps = tuple(
            Pass(name, "matrix", 8 * edges, writes, 30.0 * edges, memory, 1, 1, blas_bytes=0)
            for name, writes in (("strongest", 0), ("weights", 8 * edges))
        )
        peak = RESERVE_BYTES + memory
        fitted = FittedSweeps(sweeps, 1, peak, memory, 0, 1, rows, rows, 2, 2)
        task_facts = TaskFacts(
            str(self.identity["kind"]),
            "exact",
            self.source,
            np.dtype(np.float32),
            f"at most {edges} edges",
            0,
            result_bytes=8 * edges + 8 * rows,
            subject=f"{self.identity['kind']} of {rows} rows and at most {edges} edges",
        )
        return plan_task(task_facts, FixedSweeps(fitted), budget)

    # Run ------------------------------------------------------------------------------------------

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Write the combined graph and return its facts (metadata); an interrupted run starts over."""
        for each in self.graphs:
            Result(each).require_whole()
        graphs = [StoredRows(each / NAME) for each in self.graphs]
        rule, rows = self.make_rule(graphs), self.source.shape[0]
        scales = RowScales.ones(rows, resized=self.resized)
        for block in self._blocks(run, "strongest", rule, graphs):
            scales.measure(block)
        remove(run.result / NAME)
        shape, edges = (rows, rows), sum(graph.count for graph in graphs)
        writer = CsrWriter(run.result / NAME, shape, np.dtype(np.float32), edges, str(run.result))
        count, largest = 0, 0.0
        for block in self._blocks(run, "weights", rule, graphs):
            weights = scales.union(block)
            keep = weights > 0
            if keep.any():
                writer.append(Entries(block.rows[keep], block.columns[keep], weights[keep]))
                count, largest = count + int(keep.sum()), max(largest, float(weights.max()))
        writer.finish()
        if self.radii:
            copy_radii(Result(self.graphs[0]), run.result)
        facts = {
            **run.facts(self.request(), "exact", self.source, fingerprint),
            **(self.facts or {}),
            "weights": count,
            "largest_weight": largest,
        }
        run.describe(facts)
        return facts

    def _blocks(self, run: Run, name: str, rule: Rule, graphs: list[StoredRows]) -> Iterator[Edges]:
        """Yield edges of blocks of rows with their new weights by ``rule``, in one read of all graphs.

        ``name`` is that of the pass, for progress.
        """
        rows = self.source.shape[0]
        for top, bottom in row_spans(graphs):
            edges, theirs = graphs[0].between(top, bottom), None
            if len(graphs) > 1:
                edges, theirs = aligned(edges, graphs[1].between(top, bottom), rows)
            yield Edges(edges.rows, edges.columns, rule.weigh(edges, theirs))
            if run.progress:
                run.progress(name, bottom, rows)
        run.passes += 1


def aligned(first: Edges, second: Edges, rows: int) -> tuple[Edges, Float64]:
    """Union of the edges of two graphs of ``rows`` rows, with their weights in either.

    Returns the edges in order, with weights in the first graph, and (edges,) weights in the second. A weight
    is 0 where a graph lacks the edge.
    """
    one, two = (each.rows * rows + each.columns for each in (first, second))
    places = np.union1d(one, two)
    a, b = np.zeros(len(places)), np.zeros(len(places))
    a[np.searchsorted(places, one)] = first.weights
    b[np.searchsorted(places, two)] = second.weights
    return Edges(places // rows, places % rows, a), b


def most_edges(result: Result) -> int:
    """Number of edges in a result that holds a graph, or an upper bound if it is not made yet."""
    facts, graph = result.attrs, result.matrix(NAME)
    if "weights" in facts:
        return int(facts["weights"])
    return int(getattr(graph, "nnz", 2 * graph.shape[0] * int(facts["request"].get("k", graph.shape[0]))))


Float32 = npt.NDArray[np.float32]

NEIGHBORHOOD = np.log2(15)
"""Sum of the weights of each row that ``RowScales`` with exponents aims at."""

STEPS = 32
"""Largest number of bisection steps for an exponent."""

CLOSE = 1e-5


@dataclass(frozen=True, slots=True)
class RowScales:
    """Scales of rows: from its row i, an edge of weight w has ``(w / strongest[i]) ** exponents[i]``.

    ``strongest`` (rows,) is the largest weight of each row; 0 before ``measure``, and for rows without edges.
    """

    strongest: Float32
    exponents: Float64 | None
    """(rows,) exponents of relative weights; None if all are 1."""

    @classmethod
    def ones(cls, rows: int, *, resized: bool) -> RowScales:
        """Scales before ``measure``, for ``rows`` rows; with ``resized``, exponents will be measured too."""
        return cls(np.zeros(rows, np.float32), np.ones(rows) if resized else None)

    def measure(self, edges: Edges) -> None:
        """Set strongest weight and exponent of the rows in ``edges``, which has all edges of these."""
        if not len(edges.rows):
            return
        rows, starts = np.unique(edges.rows, return_index=True)
        weights = edges.weights.astype(np.float32)
        self.strongest[rows] = np.maximum.reduceat(weights, starts)
        if self.exponents is not None:
            counts = np.diff(np.append(starts, len(weights)))
            relative = weights / np.repeat(self._above_zero(rows), counts)
            self.exponents[rows] = _exponents(relative.astype(np.float64), counts)

    def union(self, edges: Edges) -> Float32:
        """(edges,) fuzzy union ``a + b - a b`` of the scaled weights of each edge from its two rows."""
        own, their = self._at(edges.rows, edges.weights), self._at(edges.columns, edges.weights)
        return own + their - own * their

    def _at(self, rows: npt.NDArray[np.int64], weights: npt.NDArray[np.floating]) -> Float32:
        relative = weights.astype(np.float32) / self._above_zero(rows)
        if self.exponents is None:
            return relative
        return (relative.astype(np.float64) ** self.exponents[rows]).astype(np.float32)

    def _above_zero(self, rows: npt.NDArray[np.int64]) -> Float32:
        strongest = self.strongest[rows]
        return np.where(strongest > 0, strongest, np.float32(1))


def _exponents(values: Float64, counts: npt.NDArray[np.int64]) -> Float64:
    """(rows,) exponents for which the weights of each row sum to ``NEIGHBORHOOD``, as far as bisection gets.

    ``values`` (edges,) are weights relative to the strongest of their row, row after row; ``counts`` (rows,)
    are numbers of edges of each row.
    """
    low, high = np.zeros(len(counts)), np.full(len(counts), np.inf)
    middle, still = np.ones(len(counts)), np.arange(len(counts))
    for _ in range(STEPS):
        starts = np.concatenate([[0], np.cumsum(counts[still])[:-1]])
        total = np.add.reduceat(values ** np.repeat(middle[still], counts[still]), starts)
        open_ = np.abs(total - NEIGHBORHOOD) >= CLOSE
        values, still, total = values[np.repeat(open_, counts[still])], still[open_], total[open_]
        if not len(still):
            break
        few, many = still[total < NEIGHBORHOOD], still[total >= NEIGHBORHOOD]
        high[few], low[many] = middle[few], middle[many]
        bounded = np.isfinite(high[still])
        middle[still] = np.where(bounded, (low[still] + high[still]) / 2, 2 * middle[still])
    return middle


Int64 = npt.NDArray[np.int64]

SMALLEST = 1e-8
"""Lower bound of the weight assumed for an edge that a graph lacks, which is half of the smallest weight
there."""

MOST_RIGHT = 1e-4
"""Upper bound of the weight assumed for an edge that the second graph of an intersection lacks."""

UNKNOWN = -1
"""Code that stands for the label of a row whose label is unknown."""

UNKNOWN_DISTANCE = 1.0
FARTHEST = 1e12
"""Distance d of rows of different labels, if only labels count (a weight of 1)."""


class Rule(Protocol):
    """Protocol of a rule for the new weight of an edge, from its weights in two graphs or from labels."""

    def weigh(self, edges: Edges, others: Float64 | None) -> Float64:
        """(edges,) new weights of ``edges``, which have their weights in the first graph.

        ``others`` (edges,) are weights of the same edges in the second graph; None without one. Edges that a
        graph lacks have weight 0 there.
        """


def least_weight(graph: StoredRows) -> float:
    """Weight assumed for edges that a graph lacks: half of its smallest weight, at least ``SMALLEST``."""
    return max(graph.smallest() / 2, SMALLEST)


@dataclass(frozen=True, slots=True)
class Union:
    """Fuzzy union ``a + b - a b`` of the weights in two graphs.

    ``left`` and ``right`` are weights assumed for edges absent from the first and from the second graph.
    """

    left: float
    right: float

    def weigh(self, edges: Edges, others: Float64 | None) -> Float64:
        """(edges,) fuzzy union of the weights in the first graph and those in the second, ``others``."""
        assert others is not None  # noqa: S101
        a = np.where(edges.weights > 0, edges.weights, self.left).astype(np.float64)
        b = np.where(others > 0, others, self.right)
        return a + b - a * b


@dataclass(frozen=True, slots=True)
class Intersection:
    """Intersection ``a b`` of the weights in two graphs, one to a power that lowers its influence.

    ``left`` and ``right`` are weights assumed for edges absent from the first and from the second graph.
    """

    left: float
    right: float
    weight: float
    """Weight of the second graph relative to the first, between 0 and 1; at 0.5 both count alike."""

    def weigh(self, edges: Edges, others: Float64 | None) -> Float64:
        """(edges,) weighted product of the weights in the first graph and those in the second, ``others``."""
        assert others is not None  # noqa: S101
        a = np.where(edges.weights > 0, edges.weights, self.left).astype(np.float64)
        b = np.where(others > 0, others, self.right)
        joined: Float64 = a + b
        known = (a > self.left) | (b > self.right)
        w = self.weight
        product = a * b ** (w / (1 - w)) if w < 0.5 else a ** ((1 - w) / w) * b
        return np.where(known, product, joined)


@dataclass(frozen=True, slots=True)
class SameLabel:
    """Rule that lowers weights of edges between rows of different or unknown labels."""

    labels: Int64
    """(rows,) integer code of the label of each row, or ``UNKNOWN``."""

    weight: float
    """Weight of the labels relative to the graph, between 0 and 1."""

    def weigh(self, edges: Edges, others: Float64 | None) -> Float64:
        """(edges,) weights of the graph times a factor for equal, different or unknown labels of both rows.

        ``others`` is not used.
        """
        far = 2.5 / (1 - self.weight) if self.weight < 1 else FARTHEST
        own, their = self.labels[edges.rows], self.labels[edges.columns]
        unknown = (own == UNKNOWN) | (their == UNKNOWN)
        factor = np.where(unknown, np.exp(-UNKNOWN_DISTANCE), np.where(own == their, 1.0, np.exp(-far)))
        return np.asarray(edges.weights * factor)


BLOCK_ROWS = 2**20


def target_matrix(targets: object, rows: int) -> Source:
    """Open numeric targets, (rows, d); ``InputError`` if there are not ``rows`` of them."""
    source = open_source(_opened(targets))
    if source.shape[0] != rows:
        raise InputError(f"there are {source.shape[0]} targets for {rows} rows: give one for each")
    return source


def label_codes(targets: object, rows: int) -> Int64:
    """Encode labels as integers from 0 on, (rows,); ``UNKNOWN`` for -1, None and NaN.

    Parameters
    ----------
    targets : sequence of words or numbers, or a matrix of one column
        A label for each row.
    rows : int
        Required number of labels.
    """
    targets = _opened(targets)
    if isinstance(targets, np.ndarray) and targets.ndim != 2:
        values = targets
    else:
        values = _column(target_matrix(targets, rows))
    if values.ndim != 1 or len(values) != rows:
        raise InputError(
            f"targets have shape {values.shape}, but there are {rows} rows: give a label for each"
        )
    if values.dtype.kind == "O":
        return _codes_of_words(values.tolist())
    if values.dtype.kind not in "iufbUS":
        raise InputError(f"targets of type {values.dtype} are no labels: give words or numbers")
    found, codes = np.unique(values, return_inverse=True)
    unknown = np.zeros(len(found), np.bool_)
    if found.dtype.kind in "iuf":
        unknown = (found == UNKNOWN) | (np.isnan(found) if found.dtype.kind == "f" else False)
    labels: Int64 = codes.reshape(-1).astype(np.int64)
    labels[unknown[labels]] = UNKNOWN
    return labels


def _opened(targets: object) -> object:
    """Load targets from a ``.npy`` file or a frame as an array; return other stores and sources unchanged."""
    if isinstance(targets, str | os.PathLike) and str(targets).endswith(".npy") and is_regular(targets):
        targets = map_npy(targets)
    if isinstance(targets, str | os.PathLike | Source) or hasattr(targets, "chunks"):
        return targets
    values = np.asarray(targets.to_numpy() if hasattr(targets, "to_numpy") else targets)
    return values.reshape(-1, 1) if values.ndim == 1 and values.dtype.kind in "iufb" else values


def _column(source: Source) -> npt.NDArray[Any]:
    if source.shape[1] != 1:
        raise InputError(f"{source.name} has {source.shape[1]} columns: labels are a single one")
    values = np.empty((source.shape[0], 1), source.dtype)
    for start in range(0, len(values), BLOCK_ROWS):
        stop = min(len(values), start + BLOCK_ROWS)
        source.read_into(values[start:stop], (start, stop), (0, 1))
    return values[:, 0]


def _codes_of_words(words: Sequence[Any]) -> Int64:
    """(words,) integers from 0 on for labels that are Python objects: words, numbers, None for unknown."""
    unknown = [word is None or word == UNKNOWN or word != word for word in words]
    known = sorted({str(word) for word, missing in zip(words, unknown, strict=True) if not missing})
    codes = {word: code for code, word in enumerate(known)}
    labels = (UNKNOWN if missing else codes[str(word)] for word, missing in zip(words, unknown, strict=True))
    return np.fromiter(labels, np.int64, len(words))


def digest_of(labels: Int64) -> str:
    """Hash, in hexadecimal, that identifies labels (rows,)."""
    return hashlib.blake2b(np.ascontiguousarray(labels).data, digest_size=16).hexdigest()
