"""All neighbors within a radius, exactly: points in a tree, a sweep that counts, and one that lists.

The graph is a function of the rows alone: each row has its neighbors by (distance, index). Its size depends
on the number of edges. So a sample estimates this number for the plan, and the exact count is checked before
any edge is listed.

For the estimate, all ordered pairs within the radius are counted among ``s`` rows out of ``m``. Their number
times ``m (m - 1) / (s (s - 1))`` is unbiased, since all pairs are drawn with the same probability. If all
rows are drawn it is the exact number.

Two sweeps count the neighbors of each row, and list them; the second one is over chunks of edges. A chunk of
edges may begin and end anywhere in a row. Rows that two chunks share are searched twice, so that
chunks are written whole, by one task each, however many neighbors a row has. A fold is the work of a sweep
(one run through the rows) on each panel (rows read at a time).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.tree import LEAF, count_within, list_within
from rankfold.methods.knn.graph import NAME, POINTERS, create_group
from rankfold.methods.knn.request import compared_rows
from rankfold.methods.parts.outputs import create_output
from rankfold.methods.parts.square_range import require_squares
from rankfold.methods.radius.arguments import RadiusArguments
from rankfold.methods.radius.request import RadiusRequest
from rankfold.methods.random_keys import Purpose
from rankfold.methods.task import Output, count
from rankfold.methods.tree.coordinates import FAR, OF_DIRECTIONS, PointReader
from rankfold.methods.tree.plan import TreeSweeps
from rankfold.methods.tree.points import PointTree, Queries, few_points
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.selection import select
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.blocks import Cut, cut, own_streams
from rankfold.pipeline.engine.fold import DeclaredFold, Sum, Workspace
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import DataError, PlanError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.formats.open_like import open_beside, require_comparable
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import TaskFacts, plan_task
from rankfold.pipeline.planning.shape_only import ShapeOnly
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.chunk_writer import create_array, create_vector, read_array, write_whole_chunks
from rankfold.pipeline.storage.scratch import NOWHERE

Int64 = npt.NDArray[np.int64]

COUNT_ROWS = (2**12, 2**16)
"""Fewest and most rows whose neighbors are counted together; in between, a 64th of all rows."""

EDGES = 2**18
"""Number of edges in a chunk: 2 MiB each of indices and distances."""


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
        """Names, shapes, types and numbers of files of the results: graph, and degrees (rows,)."""
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
        task_facts = TaskFacts(
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
        return plan_task(task_facts, sweeps, budget)

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
        """Raise ``PlanError`` if ``edges`` are too many; ``about`` precedes their number in the message."""
        if edges > self.parameters.max_edges:
            radius, name = self.parameters.radius, self.source.name
            raise PlanError(
                f"radius {radius:g} joins {about}{edges} pairs of rows of {name}, {16 * edges / 2**30:.3g} "
                f"GiB, but max_edges allows {self.parameters.max_edges}. Give a smaller radius, or a larger "
                "max_edges"
            )

    def _require_directions(self, points: PointTree, queries: npt.NDArray[np.float64] | None) -> None:
        """Raise ``DataError`` if rows of zeros, which are at distance 1 from all, are within the radius.

        ``queries`` are the points of queries, None if the rows are the queries.
        """
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
    require_comparable(source, others, "queries")
    request = RadiusRequest.of(source, arguments)
    source = compared_rows(source, request.metric)
    reader, other_reader = PointReader(source, request.metric, request.box), None
    if others is not None:
        others = compared_rows(others, request.metric)
        other_reader = PointReader(others, request.metric, request.box, side=-1)
    return RadiusNeighbors(source, others, request, EdgeEstimate.of(reader, other_reader, request.radius))


SAMPLE_ROWS = 2**15
"""Number of rows in the sample: a hundredth of a second to read, a tenth to count."""

DEVIATIONS = 4
"""Number of standard deviations of the count of edges, as if pairs were independent, by which ``most`` of an
estimate exceeds it."""


@dataclass(frozen=True, slots=True)
class EdgeEstimate:
    """Estimated number of edges, and an upper bound."""

    edges: int
    most: int
    """Upper bound that is very unlikely to be exceeded; equal to ``edges`` where all rows were counted."""

    @classmethod
    def of(cls, reader: PointReader, queries: PointReader | None, radius: float) -> EdgeEstimate:
        """Estimate the number of edges from those within ``radius`` among a sample of rows.

        ``reader`` reads the points, ``queries`` the queries, None if these are the points. The estimate is
        zero for a matrix of which only the shape exists yet.
        """
        if any(_is_imagined(each.source) for each in (reader, queries) if each is not None):
            return cls(0, 0)
        points, all_pairs = _sample(reader), reader.source.shape[0]
        some = points if queries is None else _sample(queries)
        count = _count(points, some, radius, itself=queries is None)
        if queries is None:
            pairs, drawn = all_pairs * (all_pairs - 1), _pairs(points.source.shape[0])
        else:
            pairs = all_pairs * queries.source.shape[0]
            drawn = points.source.shape[0] * some.source.shape[0]
        if drawn >= pairs:
            return cls(count, count)
        # Each pair is counted from both sides: the count has twice the variance.
        upper = count + DEVIATIONS * math.sqrt(2 * count) + DEVIATIONS
        return cls(round(count * pairs / drawn), min(pairs, round(upper * pairs / drawn)))


def _is_imagined(source: object) -> bool:
    """True if a source, beneath its preparation (``prepare=``) and selections, has only a shape."""
    while hasattr(source, "inner"):
        source = source.inner
    return isinstance(source, ShapeOnly)


def _pairs(rows: int) -> int:
    return max(1, rows * (rows - 1))


def _sample(reader: PointReader) -> PointReader:
    """Reader of a random sample of rows, in order; of all rows if they are few."""
    rows = reader.source.shape[0]
    if rows <= SAMPLE_ROWS:
        return reader
    key = np.array([0, Purpose.RADIUS_ROWS], np.uint64)
    drawn = np.random.Generator(np.random.Philox(key=key)).choice(rows, SAMPLE_ROWS, replace=False)
    source: Source = select(reader.source, rows=np.sort(drawn), columns=None)
    return dataclasses.replace(reader, source=source)


def _count(points: PointReader, some: PointReader, radius: float, *, itself: bool) -> int:
    """Number of pairs of a point of ``points`` and a query of ``some`` within the radius.

    ``itself`` is True if queries are the points: a point has no pair with itself.
    """
    tree = PointTree.read(points, 1)
    rows = some.source.shape[0]
    x = some.read(0, rows)
    _, x, own = Queries(tree, some, itself, None if itself else x).take(np.arange(rows))
    counts = np.zeros(rows, np.int64)
    where = {"metric": points.code, "radius": points.reach_of(radius), "counts": counts}
    count_within(tree.tree, x, own, points.period, **where)  # type: ignore[arg-type]
    return int(counts.sum())


@dataclass(frozen=True, slots=True)
class CountNeighbors(DeclaredFold):
    """Fold (work on each panel, the rows at a time) that counts neighbors of rows, and writes the counts."""

    cut: Cut
    """Cut of the rows into panels, each of which is whole chunks of the counts."""

    queries: Queries
    radius: float
    """Radius that the tree is searched by: see ``PointReader.reach_of``."""

    result: Path
    slots: int = 1
    row_seconds: float = 1e-5

    kernels = (count_within,)

    def sums(self) -> Mapping[str, Sum]:
        """``edges`` (1,), the number of neighbors of all rows together; ``most`` (1,), the most of a row."""
        most = Sum((1,), np.dtype(np.int64), join=np.maximum)
        return {"edges": Sum((1,), np.dtype(np.int64)), "most": most}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step: the queries of a panel, and their counts."""
        rows = self.cut.panel_rows
        return self.queries.panel_bytes(rows) + 2 * 8 * rows

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Count the neighbors of rows ``start:stop``, and write the counts to ``degrees`` of the result."""
        counts = self._count(start, stop)
        state["edges"] += counts.sum()
        np.maximum(state["most"], counts.max(), out=state["most"])
        write_whole_chunks(self.result / "degrees", counts, (start, stop))

    def _count(self, start: int, stop: int) -> Int64:
        points, reader = self.queries.points, self.queries.reader
        assert points is not None  # noqa: S101 - there is no run without
        order, x, own = self.queries.take(np.arange(start, stop))
        counts, by_row = np.empty(len(x), np.int64), np.empty(len(x), np.int64)
        where: dict[str, Any] = {"metric": reader.code, "radius": self.radius}
        count_within(points.tree, x, own, reader.period, **where, counts=counts)
        by_row[order] = counts
        return by_row


@dataclass(frozen=True, slots=True)
class ListNeighbors(DeclaredFold):
    """Fold that lists the neighbors of rows, and writes them as chunks of edges of a sparse graph."""

    cut: Cut
    """Cut of the edges, in order of rows, into panels, each of which is a whole chunk."""

    queries: Queries
    radius: float
    """Radius that the tree is searched by: see ``PointReader.reach_of``."""

    starts: Int64
    """(rows + 1,) first edge of each row."""

    most: int
    """Largest number of edges of a row."""

    result: Path
    slots: int = 1
    row_seconds: float = 1e-6

    kernels = (list_within,)

    def sums(self) -> Mapping[str, Sum]:
        """``edges`` (1,), the number of edges written."""
        return {"edges": Sum((1,), np.dtype(np.int64))}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step: a chunk of edges, the lists of its rows, and the positions where lists begin."""
        return list_bytes(self.queries, self.cut.panel_rows, self.most, len(self.starts))

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Find and write edges ``start:stop``: of the first row, of the rows in between, and of the last."""
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        last = int(np.searchsorted(self.starts, stop, side="left"))
        rows = first + np.flatnonzero(np.diff(self.starts[first : last + 1]))
        keys, ids = np.empty(stop - start), np.empty(stop - start, np.int64)
        for some in (rows[:1], rows[1:-1], rows[1:][-1:]):
            if len(some):
                self._list(some, start, keys, ids)
        state["edges"] += stop - start
        graph = self.result / "graph"
        write_whole_chunks(graph / "data", self.queries.reader.keys_of(keys), (start, stop))
        write_whole_chunks(graph / "indices", ids, (start, stop))

    def _list(self, rows: Int64, start: int, keys: npt.NDArray[np.float64], ids: Int64) -> None:
        """List the edges of successive ``rows``, and copy those of a chunk into ``keys`` and ``ids``.

        Both are (edges of the chunk,), distances and indices; ``start`` is the number of its first edge.
        """
        points, reader = self.queries.points, self.queries.reader
        assert points is not None  # noqa: S101 - there is no run without
        order, x, own = self.queries.take(rows)
        first, last = int(self.starts[rows[0]]), int(self.starts[rows[-1] + 1])
        lists = np.empty(last - first), np.empty(last - first, np.int64)
        where: dict[str, Any] = {"metric": reader.code, "radius": self.radius}
        where["starts"] = self.starts[rows[order]] - first
        list_within(points.tree, x, own, reader.period, **where, keys=lists[0], ids=lists[1])
        low, high = max(first, start), min(last, start + len(keys))
        for into, values in zip((keys, ids), lists, strict=True):
            into[low - start : high - start] = values[low - first : high - first]


def list_bytes(queries: Queries, chunk: int, most: int, rows: int) -> int:
    """Bytes of a step of ``ListNeighbors``: ``chunk`` edges, of ``rows`` rows with at most ``most`` each."""
    some = min(rows, chunk + 2)
    return 16 * (2 * chunk + max(chunk, most)) + queries.panel_bytes(some) + 9 * rows + 16 * some


def warm_radius(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the compiled loops of a search once, for a periodic box or without, as ``request`` says.

    Points are float64 for any type and shape of the matrix.
    """
    _warm_within(periodic=request.get("box") is not None)


@functools.cache
def _warm_within(*, periodic: bool) -> None:
    period, counts = np.ones(2) if periodic else None, np.zeros(1, np.int64)
    tree, one = few_points(), (np.zeros((1, 2)), np.zeros(1, np.int64))
    count_within(tree, *one, period, metric=0, radius=1.0, counts=counts)
    keys, ids = np.zeros(2 * LEAF), np.zeros(2 * LEAF, np.int64)
    starts = np.zeros(1, np.int64)
    list_within(tree, *one, period, metric=0, radius=1.0, starts=starts, keys=keys, ids=ids)
