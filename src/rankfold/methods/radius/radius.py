"""All neighbors within a radius, exactly: points in a tree, a sweep that counts, and one that lists.

The graph is a function of the rows alone: each row has its neighbors by (distance, index). Its size depends
on the number of edges. So a sample estimates this number for the plan, and the exact count is checked before
any edge is listed.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.tree import LEAF
from rankfold.methods.knn.graph import NAME, POINTERS, create_group
from rankfold.methods.knn.request import compared_rows
from rankfold.methods.parts.outputs import create_output
from rankfold.methods.parts.square_range import require_squares
from rankfold.methods.radius.arguments import RadiusArguments
from rankfold.methods.radius.estimate import EdgeEstimate
from rankfold.methods.radius.folds import CountNeighbors, ListNeighbors
from rankfold.methods.radius.request import RadiusRequest
from rankfold.methods.task import Output, count
from rankfold.methods.tree.coordinates import FAR, OF_DIRECTIONS, PointReader
from rankfold.methods.tree.plan import TreeSweeps
from rankfold.methods.tree.points import PointTree
from rankfold.methods.tree.queries import Queries
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.source import Source, require_rows
from rankfold.pipeline.engine.blocks import Cut, cut, own_streams
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import DataError, InputError, PlanError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.formats.open_like import open_beside
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import TaskFacts, plan_task
from rankfold.pipeline.storage.chunk_writer import create_array, create_vector, read_array, write_whole_chunks
from rankfold.pipeline.storage.scratch import NOWHERE

Int64 = npt.NDArray[np.int64]

COUNT_ROWS = (2**12, 2**16)
"""Fewest and most rows that are counted together, a 64th of all in between."""

EDGES = 2**18
"""Edges of a chunk: 2 MiB each of indices and distances."""


@dataclass(frozen=True, slots=True)
class RadiusNeighbors:
    """Task of a search within a radius: rows, perhaps queries, parameters, and an estimate of the edges."""

    source: Source
    queries: Source | None
    parameters: RadiusRequest
    estimate: EdgeEstimate

    @property
    def left(self) -> Source:
        """Rows whose neighbors are searched for."""
        return self.source if self.queries is None else self.queries

    def request(self) -> dict[str, Any]:
        """Everything besides the matrix that determines the result, for JSON."""
        identity = None if self.queries is None else [self.queries.fingerprint(), list(self.queries.shape)]
        return {**self.parameters.as_dict(), "queries": identity}

    def outputs(self) -> tuple[Output, ...]:
        """Arrays of the result: graph and degrees."""
        (rows, others), most = (self.left.shape[0], self.source.shape[0]), self.estimate.most
        files = 2 * count(most, EDGES) + count(rows + 1, POINTERS)
        integer = np.dtype(np.int64)
        return (
            Output("graph", (rows, others), np.dtype(np.float64), files, sparse=True, stored=most),
            Output("degrees", (rows,), integer, len(self._rows_cut().panels) - 1),
        )

    def plan(self, budget: Budget) -> Plan:
        """Plan the search within a budget; raises ``PlanError`` for a graph with too many edges."""
        self._require_few(self.estimate.edges, "about ")
        rows, edges = self.left.shape[0], self.estimate.most
        starts = np.broadcast_to(np.int64(0), (rows + 1,))  # same length without its memory
        count_fold = self._count_fold(None, None, NOWHERE)
        list_fold = self._list_fold(count_fold.queries, starts, max(1, edges), self.source.shape[0], NOWHERE)
        each = 4 * LEAF + 4 * edges / max(1, rows) + 20 * math.log2(self.source.shape[0] + 1)
        sweeps = TreeSweeps(
            self._reader(self.source),
            self.left,
            (("counts", count_fold, each, 8 * rows), ("edges", list_fold, each, 16 * edges)),
            2 * 8 * (rows + 1),
            8 * (rows + 1) + (self.queries is not None) * rows * 8 * count_fold.queries.reader.columns,
        )
        outline = TaskFacts(
            kind="radius_neighbors",
            method="tree",
            source=self.left,
            dtype=self.source.dtype,
            orientation="points in a tree",
            rank=0,
            width=max(1, edges // max(1, rows)),
            result_bytes=16 * edges + 16 * (rows + 1),
            subject=f"radius_neighbors of this {rows} x {self.left.shape[1]} matrix, which holds all points,",
        )
        return plan_task(outline, sweeps, budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Build the tree, count neighbors, list them, write the graph, and return the facts."""
        reader = self._reader(self.source)
        points = PointTree.read(reader, run.concurrency)
        run.passes += 1
        require_squares(points.tree.boxes[0], reader.code, self.source)
        queries = None if self.queries is None else self._left_reader.read(0, self.left.shape[0])
        self._require_directions(points, queries)
        count_fold = self._count_fold(points, queries, run.result)
        create_output(run.result, "degrees", (self.left.shape[0],), np.int64, (count_fold.cut.panel_rows,))
        total = run.sweep("counts", count_fold)
        edges, most = int(total["edges"][0]), int(total["most"][0])
        self._require_few(edges, "")
        run.require(run.result / "degrees")
        starts = np.zeros(self.left.shape[0] + 1, np.int64)
        np.cumsum(read_array(run.result / "degrees"), out=starts[1:])
        _create_graph(run.result, (self.left.shape[0], self.source.shape[0]), starts)
        if edges:
            run.sweep("edges", self._list_fold(count_fold.queries, starts, edges, most, run.result))
        facts = run.facts(self.request(), "exact", self.source, fingerprint)
        facts |= {"edges": edges, "most_neighbors": most}
        run.describe(facts)
        return facts

    def _require_few(self, edges: int, about: str) -> None:
        """Raise ``PlanError`` for a graph that is too large."""
        if edges > self.parameters.max_edges:
            radius, name = self.parameters.radius, self.source.name
            raise PlanError(
                f"radius {radius:g} joins {about}{edges} pairs of rows of {name}, {16 * edges / 2**30:.3g} "
                f"GiB, but max_edges allows {self.parameters.max_edges}. Give a smaller radius, or a larger "
                "max_edges"
            )

    def _require_directions(self, points: PointTree, queries: npt.NDArray[np.float64] | None) -> None:
        """Raise ``DataError`` for rows of zeros that are at distance 1 from all, and within the radius."""
        if self.parameters.metric not in OF_DIRECTIONS or self.parameters.radius < 1:
            return
        for matrix, largest in (
            (self.source, float(points.tree.boxes[0].max())),
            (self.left, 0.0 if queries is None else -float(queries.min(initial=0.0))),
        ):
            if largest >= FAR:
                raise DataError(
                    f"{matrix.name} has rows without a direction (zeros, or by correlation constant ones), "
                    "which are at distance 1 from all others, within radius "
                    f"{self.parameters.radius:g}. Leave them out, or give a radius below 1"
                )

    def _reader(self, source: Source) -> PointReader:
        return PointReader(source, self.parameters.metric, self.parameters.box)

    @property
    def _left_reader(self) -> PointReader:
        """Reader of the rows whose neighbors are searched for."""
        return dataclasses.replace(self._reader(self.left), side=1 if self.queries is None else -1)

    @property
    def _reach(self) -> float:
        return self._reader(self.source).reach_of(self.parameters.radius)

    def _rows_cut(self) -> Cut:
        """Cut of the rows into panels; neighbors of the rows of a panel are counted together."""
        rows = self.left.shape[0]
        chunk = min(rows, max(COUNT_ROWS[0], min(rows // 64, COUNT_ROWS[1])))
        edges = np.append(np.arange(0, rows, chunk), rows)
        return own_streams(edges, chunk)

    def _count_fold(
        self, points: PointTree | None, queries: npt.NDArray[np.float64] | None, result: Path
    ) -> CountNeighbors:
        itself = self.queries is None
        some = Queries(points, self._left_reader, itself, queries)
        return CountNeighbors(self._rows_cut(), some, self._reach, result)

    def _list_fold(
        self, queries: Queries, starts: Int64, edges: int, most: int, result: Path
    ) -> ListNeighbors:
        chunks = cut(Grid.regular(edges, min(edges, EDGES), splittable=False), 8 * 2**20 // EDGES, 8)
        return ListNeighbors(
            own_streams(chunks.panels, chunks.grain_rows), queries, self._reach, starts, most, result
        )


def _create_graph(result: Path, shape: tuple[int, int], starts: Int64) -> None:
    """Create the Zarr group of the graph (CSR) with room for all edges, and write ``indptr``.

    ``starts`` (rows + 1,) is the first edge of each row, which is ``indptr``.
    """
    folder, edges = result / NAME, int(starts[-1])
    create_group(folder, shape)
    for name, dtype in (("data", np.float64), ("indices", np.int64)):
        if edges:
            create_vector(folder / name, edges, dtype, EDGES)
        else:
            create_array(folder, name, (0,), dtype, (1,), ("edge",))
    create_vector(folder / "indptr", len(starts), np.int64, POINTERS)
    for start in range(0, len(starts), POINTERS):
        stop = min(len(starts), start + POINTERS)
        write_whole_chunks(folder / "indptr", starts[start:stop], (start, stop))


def radius_task(x: object, arguments: RadiusArguments) -> RadiusNeighbors:
    """Estimate the edges of a search within a radius, and make its task."""
    queries = arguments.queries
    source = open_source(x)
    others = None if queries is None else open_beside(queries, source)
    for matrix in (source, others):
        if matrix is not None:
            require_rows(matrix)
    if others is not None and others.shape[1] != source.shape[1]:
        raise InputError(
            f"queries {others.name} have {others.shape[1]} columns, but {source.name} has {source.shape[1]}. "
            "Give rows of the same columns, in the same order"
        )
    request = RadiusRequest.of(source, arguments)
    source = compared_rows(source, request.metric)
    reader, other_reader = PointReader(source, request.metric, request.box), None
    if others is not None:
        others = compared_rows(others, request.metric)
        other_reader = PointReader(others, request.metric, request.box, side=-1)
    return RadiusNeighbors(source, others, request, EdgeEstimate.of(reader, other_reader, request.radius))
