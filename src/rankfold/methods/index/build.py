"""Build an index in two reads of the matrix; the first collects rows that centers are made from.

The second read writes rows by partition to scratch, panel by panel; the panels are then merged. See
``methods/partitions``.

The merge writes rows into the result, sorted by partition, and finds the radius of each partition. Rows are
read from runs: the rows of each panel of the matrix (rows read at a time), sorted by partition on scratch. A
panel of the result is whole chunks; it takes its part of every run. Rows of a partition are in order of their
numbers, since runs are, and each run keeps that order. So what is written is a function of the rows and the
centers alone. A fold is the work of a sweep (one run through the result) on each panel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.index.arguments import IndexArguments
from rankfold.methods.index.layout import MEASURED, IndexLayout, most_together, reach
from rankfold.methods.index.request import IndexRequest
from rankfold.methods.knn.pair_fold import BufferPool, warm_lists, way_of
from rankfold.methods.knn.plan import SCAN_FLOPS
from rankfold.methods.knn.request import compared_rows
from rankfold.methods.knn.row_blocks import BlockReader, choose_shift
from rankfold.methods.partitions.assign import AssignRows
from rankfold.methods.partitions.files import ID, PARTITION, Runs
from rankfold.methods.partitions.layout import FEW_CENTERS, edges_of, pieces_of
from rankfold.methods.partitions.rounds import warm_partitions
from rankfold.methods.partitions.sample import CollectRows, centers_of, drawn
from rankfold.methods.partitions.search import gather_rows
from rankfold.methods.parts.outputs import create_output, write_outputs
from rankfold.methods.random_keys import Purpose
from rankfold.methods.task import Output, count
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, Constant, DeclaredFold, ScratchConstant, Sum, Workspace
from rankfold.pipeline.engine.run import Run, values_in
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.machine import one_blas_thread
from rankfold.pipeline.planning.passes import Pass, numbers_of
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import PanelSweeps, TaskFacts, plan_task
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.scratch import NOWHERE, ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

WIDE = np.dtype(np.float64)


@dataclass(frozen=True, slots=True)
class IndexRows:
    """Task of building an index: a matrix and parameters."""

    source: Source
    parameters: IndexRequest

    @property
    def layout(self) -> IndexLayout:
        """Number and size of the partitions, and cuts of the matrix for the sweeps through it."""
        return IndexLayout.of_index(self.source, self.parameters.partition_rows)

    def request(self) -> dict[str, Any]:
        """Everything besides the matrix that determines the result, for JSON."""
        return self.parameters.as_dict()

    def outputs(self) -> tuple[Output, ...]:
        """Names, shapes, types and numbers of chunks of the results: rows and ids by partition; centers,
        edges and radii of partitions."""
        (rows, columns), layout, reader = self.source.shape, self.layout, self._reader(None)
        chunks, most = count(rows, layout.stored_chunk), layout.most_count
        return (
            Output("rows", (rows, columns), reader.dtype, chunks),
            Output("ids", (rows, 1), ID, chunks),
            Output("centers", (most, columns), reader.dtype),
            Output("edges", (most + 1,), ID),
            Output("radii", (most,), WIDE),
        )

    # Plan -----------------------------------------------------------------------------------------

    def plan(self, budget: Budget) -> Plan:
        """Plan the three sweeps within a budget: sample, assign, sort."""
        layout, (rows, columns) = self.layout, self.source.shape
        stored = rows * (layout.row_bytes + 8)
        task_facts = TaskFacts(
            kind="index",
            method="partitions",
            source=self.source,
            dtype=self._reader(None).dtype,
            orientation=f"{layout.count} partitions",
            rank=layout.count,
            result_bytes=stored + layout.most_count * (layout.row_bytes + 16),
            scratch_bytes=stored + rows * PARTITION.itemsize + layout.sample_rows * layout.row_bytes,
            subject=f"index of this {rows} x {columns} matrix",
        )
        sweeps = PanelSweeps(self._sweeps, layout.cut, self._driver_bytes(), 0)
        return plan_task(task_facts, sweeps, budget)

    def _sweeps(self, slots: int) -> list[Pass]:
        layout, (rows, columns) = self.layout, self.source.shape
        reads, stored = rows * columns * self.source.dtype.itemsize, rows * (layout.row_bytes + 8)
        # Planned as if rows were centered, which takes a copy: a sample of rows decides that later.
        reader = self._reader(np.zeros(columns))
        sample = ScratchMatrix(NOWHERE, layout.sample_rows, columns, reader.dtype)
        collect = CollectRows(reader, layout.cut, (np.arange(layout.sample_rows),), (sample,))
        runs = Runs.of(layout, NOWHERE, 0, layout.most_count)
        assign = self._assign(reader, (NOWHERE, layout.most_count, runs))
        edges = np.arange(layout.most_count + 1) * rows // layout.most_count
        near = rows * layout.count * (2.0 * columns + SCAN_FLOPS)
        return [
            numbers_of("sample", collect, reads, 0, 2.0 * rows * columns),
            numbers_of("assign", assign, reads, stored, near),
            numbers_of(
                "sort", self._sort(edges, runs, NOWHERE, NOWHERE), stored, stored, 3.0 * rows * columns,
                over="scratch",
            ),
        ]  # fmt: skip

    def _driver_bytes(self) -> int:
        """Bytes in the leading process: the sample twice, centers and steps of k-means."""
        layout, columns = self.layout, self.source.shape[1]
        # Centers are made in groups, of about as many as there are groups: see ``centers_of``.
        bounds = 2 * (layout.groups + FEW_CENTERS)
        sample = layout.sample_rows * (3 * 4 * columns + layout.row_bytes + 8 * 8 + bounds)
        drawing = 2 * 8 * layout.rows if layout.sample_rows * 50 > layout.rows else 0
        return max(sample + layout.count * columns * 8 * 8 + 2**20, drawing)

    # Run ------------------------------------------------------------------------------------------

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Build the index in ``run.result``, and return the facts."""
        with one_blas_thread():
            reader = self._reader(choose_shift(self.source, self.parameters.code)[0])
            centers, part, runs, edges = self._assign_rows(run, reader)
            self._write(run, (centers, part), runs, edges)
            sizes = np.diff(edges)
            facts = {
                **run.facts(self.request(), "partitions", self.source, fingerprint),
                "partitions": len(sizes),
                "largest_partition": int(sizes.max()),
            }
            run.describe(facts)
        return facts

    def _assign_rows(self, run: Run, reader: BlockReader) -> tuple[Array, Path, Runs, Int64]:
        """Put rows into partitions, in two passes.

        Returns centers (partitions, n), the path of their checkpoint file, the files of the rows, sorted by
        partition within each panel (rows read at a time), and the edges (partitions + 1,) of the partitions.
        """
        layout, seed = self.layout, self.parameters.seed
        ids = drawn(layout.rows, layout.sample_rows, seed, Purpose.PARTITION_SAMPLE)
        sample = ScratchMatrix(run.scratch / "sample.bin", len(ids), reader.columns, reader.dtype)
        run.pass_over_data("sample", CollectRows(reader, layout.cut, (ids,), (sample,)))

        def make() -> State:
            return {"centers": centers_of(run.load(sample), layout, reader.metric, seed, 0)}

        part = run.part("assign", "centers.part")
        centers = run.prepare(part, make)["centers"]
        runs = Runs.of(layout, run.scratch, 0, len(centers))
        state = run.pass_over_data("assign", self._assign(reader, (part, len(centers), runs)))
        return centers, part, runs, edges_of(state["counts"])

    def _write(self, run: Run, centers: tuple[Array, Path], runs: Runs, edges: Int64) -> None:
        """Write the arrays of the result from ``runs``, the files of rows by panel and partition; free these.

        ``centers`` are the array (partitions, n) and the path of its checkpoint file, ``edges`` (partitions +
        1,) those of the partitions.
        """
        (rows, columns), chunk = self.source.shape, self.layout.stored_chunk
        create_output(run.result, "rows", (rows, columns), runs.rows.dtype, (chunk, columns))
        create_output(run.result, "ids", (rows, 1), np.int64, (chunk, 1))
        state = run.sweep("sort", self._sort(edges, runs, centers[1], run.result))
        write_outputs(run.result, {"edges": edges, "radii": state["radii"], "centers": centers[0]})
        for narrow in values_in(runs, ScratchMatrix):
            run.release(narrow)

    def _reader(self, shift: Float64 | None) -> BlockReader:
        return BlockReader(self.source, self.parameters.code, shift, bounded=True)

    def _assign(self, reader: BlockReader, files: tuple[Path, int, Runs]) -> AssignRows:
        (centers, partitions, runs), layout = files, self.layout
        seconds = 1e-6 + 4e-11 * reader.columns * partitions
        shape = partitions, layout.spill
        return AssignRows(reader, layout.cut, centers, *shape, runs, None, None, row_seconds=seconds)

    def _sort(self, edges: Int64, runs: Runs, centers: Path, result: Path) -> SortRows:
        layout = self.layout
        places = edges, layout.cut.panels * layout.spill
        return SortRows(layout.stored, *places, runs, centers, self.parameters.code, result)


def index_task(x: object, arguments: IndexArguments) -> IndexRows:
    """Make the task of an index of the rows of a matrix."""
    source, request = open_source(x), IndexRequest.of(arguments)
    request.check(source)
    return IndexRows(compared_rows(source, request.metric), request)


def warm_index(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the compiled loops that build an index of a matrix of this type and shape once."""
    warm_partitions(dtype)
    warm_lists(dtype, way_of(request["metric"], shape[1]), dtype)


@dataclass(frozen=True, slots=True)
class SortRows(DeclaredFold):
    """Fold that writes rows by partition, and finds the radius of each partition."""

    cut: Cut
    """Cut of the rows in their new order into whole chunks."""

    edges: Int64
    """(partitions + 1,) where each partition begins among the rows in their new order."""

    run_starts: Int64
    """(panels + 1,) position in the files ``runs`` at which the rows of each panel of the matrix begin."""

    runs: Runs
    centers: Path
    """Checkpoint file with ``centers`` (partitions, n)."""

    metric: int
    result: Path
    slots: int = 1
    row_seconds: float = 1e-6

    def buffers(self) -> Mapping[str, Buffer]:
        """Rows and their numbers, centers, and where partitions begin in each run.

        ``rows`` (rows, n), ``ids`` (rows, 1), ``centers`` (partitions, n), ``index`` (panels, partitions +
        1).
        """
        rows, columns, dtype = self.cut.panel_rows, self.runs.rows.columns, self.runs.rows.dtype
        return {
            "rows": Buffer((rows, columns), dtype),
            "ids": Buffer((rows, 1), ID),
            "index": ScratchConstant.of(self.runs.index),
            "centers": Constant((len(self.edges) - 1, columns), dtype, self.centers),
        }

    def sums(self) -> Mapping[str, Sum]:
        """``rows`` (1,) written; ``radii`` (partitions,), the largest distance of a row from its center."""
        radii = Sum((len(self.edges) - 1,), join=np.maximum)
        return {"rows": Sum((1,), ID), "radii": radii}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides its buffers: reading a run, writing a chunk, measuring rows, positions."""
        panel, row = self.cut.panel_rows, self.runs.rows.row_bytes + 8
        measured = 4 * max(MEASURED, 8 * self.runs.rows.columns)
        # Partitions that a panel has on average, with room for more where some are small.
        some = min(len(self.edges), 16 + 4 * most_together(self.cut.panels, self.edges))
        return 2 * panel * row + measured + 10 * some * 8

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate the buffers, and ``room``, reusable memory for reading runs."""
        work = DeclaredFold.workspace(self, device)
        work.room = BufferPool()
        return work

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Read rows ``start:stop`` of the new order, measure their distances from centers, and write them."""
        count, columns = stop - start, self.runs.rows.columns
        pieces = [(work.rows, self.runs.rows), (work.ids, self.runs.ids)]
        gather_rows(work.room, pieces, work.index, self.edges, (start, stop), self.run_starts)
        for partition, places in pieces_of(self.edges, start, stop):
            if places.stop > places.start:
                own = work.rows[places.start - start : places.stop - start]
                radius = reach(own, work.centers[partition], self.metric)
                state["radii"][partition] = max(state["radii"][partition], radius)
        write_whole_chunks(self.result / "rows", work.rows[:count], (start, stop), (0, columns))
        write_whole_chunks(self.result / "ids", work.ids[:count], (start, stop), (0, 1))
        state["rows"] += count
