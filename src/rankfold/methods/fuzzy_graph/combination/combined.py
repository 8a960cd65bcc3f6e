"""Combine two graphs, or one graph and labels of its vertices, in two reads.

Both graphs are symmetric and stored by rows, in order of columns, so that the same rows are read together.
Each row is scaled so that its strongest edge has weight 1. The weight of an edge is the fuzzy union of its
weights from both rows. The first read finds scales, one or two for each row, and the second writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.fuzzy_graph.combination.row_scales import RowScales
from rankfold.methods.fuzzy_graph.combination.rules import Rule
from rankfold.methods.fuzzy_graph.radii import CHUNK_ROWS, RADII, copy_radii
from rankfold.methods.fuzzy_graph.stored_rows import BLOCK, Edges, StoredRows, row_spans
from rankfold.methods.knn.graph import NAME, POINTERS
from rankfold.methods.task import Output, count
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.importing.csr_writer import CsrWriter, chunk_length
from rankfold.pipeline.importing.readers.reader import Entries
from rankfold.pipeline.planning.passes import Pass
from rankfold.pipeline.planning.peak_memory import RESERVE_BYTES
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import FittedSweeps, FixedSweeps, TaskFacts, plan_task
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.result import Result

Float64 = npt.NDArray[np.float64]

EDGE_BYTES = 160
"""Bytes for each edge of the rows combined at a time: in both graphs, their sorted union, and copies."""


@dataclass(frozen=True, slots=True)
class CombinedGraph:
    """Task that combines graphs by a rule for the weights of edges."""

    source: Source
    """Distances that the first graph is made from, or the first graph itself."""

    edges: int
    """Largest number of edges in both graphs together."""

    identity: Mapping[str, Any]
    make_rule: Callable[[list[StoredRows]], Rule]
    resized: bool = False
    """True to raise weights to powers so that all rows have the same sum."""

    graphs: tuple[Path, ...] = ()
    """Paths of the results with the graphs; empty before they are made."""

    facts: Mapping[str, Any] | None = None
    """Facts of the first graph that the result keeps."""

    radii: bool = False
    """True to copy the radii of the first graph."""

    def request(self) -> dict[str, Any]:
        """Return ``identity``: parameters that determine the weights."""
        return dict(self.identity)

    def outputs(self) -> tuple[Output, ...]:
        """Arrays of the result: the graph (rows, rows), sparse, and radii (rows,) if these are copied."""
        rows, edges = self.source.shape[0], self.edges
        files = 2 * count(edges, chunk_length(edges)) + count(rows + 1, POINTERS)
        shape, dtype = (rows, rows), np.dtype(np.float32)
        graph = Output(NAME, shape, dtype, files, sparse=True, stored=edges, compressed=True)
        radii = Output(RADII, (rows,), np.dtype(np.float32), count(rows, CHUNK_ROWS))
        return (graph, radii) if self.radii else (graph,)

    # Plan -----------------------------------------------------------------------------------------

    def plan(self, budget: Budget) -> Plan:
        """Plan two reads of the graphs, with memory for a row that has an edge to every other."""
        rows, edges = self.source.shape[0], self.edges
        memory = EDGE_BYTES * (BLOCK + min(rows, edges)) + 5 * 8 * chunk_length(edges) + 40 * (rows + 1)
        sweeps = tuple(
            Pass(name, "matrix", 8 * edges, writes, 30.0 * edges, memory, 1, 1, blas_bytes=0)
            for name, writes in (("strongest", 0), ("weights", 8 * edges))
        )
        peak = RESERVE_BYTES + memory
        arrangement = FittedSweeps(sweeps, 1, peak, memory, 0, 1, rows, rows, 2, 2)
        outline = TaskFacts(
            str(self.identity["kind"]),
            "exact",
            self.source,
            np.dtype(np.float32),
            f"at most {edges} edges",
            0,
            result_bytes=8 * edges + 8 * rows,
            subject=f"{self.identity['kind']} of {rows} rows and at most {edges} edges",
        )
        return plan_task(outline, FixedSweeps(arrangement), budget)

    # Run ------------------------------------------------------------------------------------------

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Write the combined graph and return its facts; an interrupted run starts over."""
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
        """Yield edges of blocks of rows with their new weights, in one read of all graphs."""
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
    """Union of the edges of two graphs, in order, with weights in the first, and (edges,) in the second.

    Weights are 0 where a graph lacks the edge.
    """
    one, two = (each.rows * rows + each.columns for each in (first, second))
    places = np.union1d(one, two)
    a, b = np.zeros(len(places)), np.zeros(len(places))
    a[np.searchsorted(places, one)] = first.weights
    b[np.searchsorted(places, two)] = second.weights
    return Edges(places // rows, places % rows, a), b


def most_edges(result: Result) -> int:
    """Number of edges of a stored graph, or an upper bound for a future one."""
    facts, graph = result.attrs, result.matrix(NAME)
    if "weights" in facts:
        return int(facts["weights"])
    return int(getattr(graph, "nnz", 2 * graph.shape[0] * int(facts["request"].get("k", graph.shape[0]))))
