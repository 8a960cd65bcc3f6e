"""Build an index in two reads of the matrix; the first collects rows that centers are made from.

The second read writes rows by partition to scratch, panel by panel; the panels are then merged. See
``methods/partitions``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.index.arguments import IndexArguments
from rankfold.methods.index.layout import IndexLayout
from rankfold.methods.index.request import IndexRequest
from rankfold.methods.index.sort_rows import SortRows
from rankfold.methods.knn.pair_fold import warm_lists, way_of
from rankfold.methods.knn.plan import SCAN_FLOPS
from rankfold.methods.knn.request import compared_rows
from rankfold.methods.knn.row_blocks import BlockReader, choose_shift
from rankfold.methods.partitions.assign import AssignRows
from rankfold.methods.partitions.files import ID, PARTITION, Runs
from rankfold.methods.partitions.layout import FEW_CENTERS, edges_of
from rankfold.methods.partitions.rounds import warm_partitions
from rankfold.methods.partitions.sample import CollectRows, centers_of, drawn
from rankfold.methods.parts.outputs import create_output, write_outputs
from rankfold.methods.random_keys import Purpose
from rankfold.methods.task import Output, count
from rankfold.pipeline.blas import one_blas_thread
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.run import Run, values_in
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.planning.passes import Pass, numbers_of
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import PanelSweeps, TaskFacts, plan_task
from rankfold.pipeline.storage.checkpoint import State
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
        """Arrays of the result: rows and ids by partition; centers, edges and radii of partitions."""
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
        outline = TaskFacts(
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
        return plan_task(outline, sweeps, budget)

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
        """Write the arrays of the result from the rows by panel and partition, ``runs``, and free these."""
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
