"""Nearest neighbors by given distances: all of them, or those that a sparse matrix stores.

The matrix is read once, row by row. The neighbors of a row are its smallest entries by (distance, column),
except the one on the diagonal. Zeros that a sparse matrix stores are distances, as in scikit-learn's graphs
of neighbors, in which a row may be its own neighbor or not. A fold is the work of a sweep (one run through
the rows) on each panel (rows read at a time).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.knn.graph import SORT_BYTES
from rankfold.methods.partitions.files import Lists
from rankfold.methods.partitions.merge import WriteMerged
from rankfold.pipeline.data.origin import names_of, place_of
from rankfold.pipeline.data.source import Source, compressed, stored_size, sum_places
from rankfold.pipeline.engine.blocks import Cut, own_streams, panel_edges
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import DeclaredFold, Sum, Workspace
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import DataError, InputError, NonFiniteError
from rankfold.pipeline.planning.passes import Pass, numbers_of
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import PanelSweeps, TaskFacts, plan_task
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import NOWHERE

if TYPE_CHECKING:
    from rankfold.methods.knn.knn import Neighbors
    from rankfold.methods.knn.request import NeighborRequest

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

PANEL_BYTES = 4 * 2**20
"""Bytes of the rows that are read at a time, unless a chunk has more."""

CHOOSING_BYTES = 5
"""Number of temporary float64 arrays, each as long as a row, that choosing the nearest takes."""


def require_distances(request: NeighborRequest, source: Source, said: Mapping[str, bool]) -> None:
    """Raise ``InputError`` for a matrix that cannot hold distances, and for arguments that exclude these.

    ``said`` says, by name, whether other arguments than those in the request were given.
    """
    rows, columns = source.shape
    if rows != columns:
        raise InputError(
            f"metric precomputed takes the distances of all rows from each other, a square matrix, but "
            f"{source.name} is {rows} x {columns}. Leave metric out if it has rows of numbers"
        )
    lines, across = names_of(source, 0), names_of(source, 1)
    if lines is not None and across is not None and not lines.is_like(across):
        pairs = zip(
            lines.along_axes(0, rows)[0].tolist(), across.along_axes(0, rows)[0].tolist(), strict=True
        )
        first = next((at for at, (one, other) in enumerate(pairs) if one != other), 0)
        raise InputError(
            f"rows and columns of distances are the same points in one order, but row {first} (from 0) of "
            f"{source.name} is {lines.word(first)}, and column {first} {across.word(first)}. Put them in one "
            "order, as x.loc[names, names] of a DataFrame"
        )
    if source.dtype.kind == "c":
        raise InputError(f"{source.name} holds {source.dtype}, and distances are real numbers")
    refused = {
        **said,
        "box": request.box is not None,
        f"solver={request.solver}": request.solver != "auto",
        "min_recall": request.min_recall is not None,
    }
    for name, is_said in refused.items():
        if is_said:
            raise InputError(f"{name} has no place beside distances that are given: leave it out")


@dataclass(frozen=True, slots=True)
class ChooseNearest(DeclaredFold):
    """Fold that writes the ``k`` smallest distances of each row, and their columns, to files (``lists``)."""

    source: Source
    cut: Cut
    lists: Lists
    k: int
    slots: int = 1
    row_seconds: float = 1e-5

    kernels = ()

    def sums(self) -> Mapping[str, Sum]:
        """``rows`` (1,), the number of rows whose nearest were written."""
        return {"rows": Sum((1,), np.dtype(np.int64))}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step: a panel (rows read at a time), its lists, and choosing the nearest of a row."""
        rows, columns = self.cut.panel_rows, self.source.shape[1]
        return self._panel_bytes(rows) + rows * 16 * self.k + CHOOSING_BYTES * 8 * columns

    def _panel_bytes(self, rows: int) -> int:
        stored, columns = compressed(self.source), self.source.shape[1]
        if stored is None:
            return rows * columns * self.source.dtype.itemsize + self.source.read_bytes(rows, columns)
        numbers = fullest_panel(self.source, self.cut)
        return 2 * numbers * (16 + self.source.dtype.itemsize) + stored.sparse_bytes(numbers)

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate ``panel``, dense rows of the matrix that are read at a time; empty for a sparse matrix."""
        work = DeclaredFold.workspace(self, device)
        dense = compressed(self.source) is None
        rows = self.cut.panel_rows if dense else 0
        work.panel = np.empty((rows, self.source.shape[1]), self.source.dtype)
        return work

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Choose the k nearest of each of rows ``start:stop``, and write their distances and columns."""
        keys, ids = np.empty((stop - start, self.k)), np.empty((stop - start, self.k), np.int64)
        for row, columns, distances in self._rows(work, start, stop):
            keys[row - start], ids[row - start] = self._nearest(row, columns, distances)
        self.lists.write(start, keys, ids)
        state["rows"] += stop - start

    def _rows(self, work: Workspace, start: int, stop: int) -> Iterator[tuple[int, Int64, Float64]]:
        """Yield for each row its number, the columns with a distance, in order, and these distances."""
        stored = compressed(self.source)
        if stored is None:
            panel = work.panel[: stop - start]
            self.source.read_into(panel, (start, stop), (0, self.source.shape[1]))
            columns = np.arange(self.source.shape[1])
            for row in range(start, stop):
                yield row, columns, panel[row - start].astype(np.float64)
            return
        lines = sum_places(stored.read_sparse((start, stop)), self.source.shape[1])
        for row in range(start, stop):
            own = slice(lines.indptr[row - start], lines.indptr[row - start + 1])
            yield row, lines.indices[own].astype(np.int64), lines.data[own].astype(np.float64)

    def _nearest(self, row: int, columns: Int64, distances: Float64) -> tuple[Float64, Int64]:
        """The k smallest distances (k,) of a row by (distance, column), and their columns (k,).

        ``columns`` (c,) and ``distances`` (c,) are all that are known of the row; itself is left out.
        """
        self._require_distances(row, columns, distances)
        others = columns != row
        columns, distances = columns[others], distances[others]
        if len(columns) < self.k:
            way_out = f"Ask for {len(columns)} at most, or give more" if len(columns) else "Give more"
            raise DataError(
                f"row {row} (from 0) of {self.source.name} has distances from {len(columns)} others, and "
                f"{self.k} neighbors were asked for. {way_out}"
            )
        farthest = np.partition(distances, self.k - 1)[self.k - 1]
        near = np.flatnonzero(distances <= farthest)
        near = near[np.argsort(distances[near], kind="stable")[: self.k]]
        return distances[near], columns[near]

    def _require_distances(self, row: int, columns: Int64, distances: Float64) -> None:
        """Raise for values that are no distances (NaN, infinite, negative); the message names one."""
        if not np.isfinite(distances).all():
            at = int((~np.isfinite(distances)).argmax())
            raise NonFiniteError(
                f"{place_of(self.source, row, int(columns[at]))} of {self.source.name} is {distances[at]}, "
                "but distances are finite numbers. Give a sparse matrix (CSR) of those that are known"
            )
        if (distances < 0).any():
            at = int(distances.argmin())
            raise DataError(
                f"{place_of(self.source, row, int(columns[at]))} of {self.source.name} is "
                f"{distances[at]:.6g}, but distances are at least 0. If these are similarities, give "
                "distances, such as one less a similarity"
            )


def fullest_panel(source: Source, cut: Cut) -> int:
    """Largest number of stored entries in a panel (rows read at a time) of a sparse matrix."""
    stored = compressed(source)
    assert stored is not None  # noqa: S101 - asked of such a matrix alone
    most, step = 0, 2**20
    for top in range(0, len(cut.panels) - 1, step):
        edges = cut.panels[top : top + step + 1]
        first = int(edges[0])
        pointers = stored.pointers(first, int(edges[-1]))
        most = max(most, int(np.diff(pointers[edges - first]).max()))
    return most


# Plan and run -------------------------------------------------------------------------------------


def _cut(source: Source) -> Cut:
    """Cut of the rows into panels, which are read at a time."""
    stored, rows = compressed(source), source.shape[0]
    each = 8 * source.shape[1] if stored is None else max(1, stored_size(stored)[1] // rows)
    edges = panel_edges(source.row_grid, max(1, PANEL_BYTES // each))
    return own_streams(edges, int(np.diff(edges).max()))


def _choose(task: Neighbors, scratch: Path) -> ChooseNearest:
    k = task.parameters.k
    return ChooseNearest(
        task.source, _cut(task.source), Lists.of(scratch / "near", "near", task.source.shape[0], k), k
    )


def _write(task: Neighbors, lists: Lists, result: Path) -> WriteMerged:
    graph = task.parameters.symmetric is None
    return WriteMerged(task.lists_cut(), lists, None, result, task.parameters.k, graph)


def plan_precomputed(task: Neighbors, budget: Budget) -> Plan:
    """Plan a search in given distances."""
    source, k, symmetric = task.source, task.parameters.k, task.parameters.symmetric is not None
    rows, stored = source.shape[0], compressed(source)
    lists = rows * 16 * k
    task_facts = TaskFacts(
        kind="knn",
        method="precomputed",
        source=source,
        dtype=np.dtype(np.float64),
        orientation="rows of distances",
        rank=k,
        result_bytes=lists * (2 + 2 * symmetric),
        scratch_bytes=lists + 2 * 24 * rows * k * symmetric,
        subject=f"knn by the {rows} x {rows} distances that are given",
    )
    reads = rows * rows * source.dtype.itemsize if stored is None else stored_size(stored)[1]

    def sweeps(slots: int) -> list[Pass]:
        choose = _choose(task, NOWHERE)
        return [
            numbers_of("choose", choose, reads, lists, 4.0 * reads),
            numbers_of("write", _write(task, choose.lists, NOWHERE), lists, 2 * lists, 0.0, over="scratch"),
        ]

    return plan_task(task_facts, PanelSweeps(sweeps, _cut(source), 2 * SORT_BYTES * symmetric, 0), budget)


def search_precomputed(task: Neighbors, run: Run) -> None:
    """Read the distances, choose the nearest, and write the lists."""
    choose = _choose(task, run.scratch)
    run.pass_over_data("choose", choose)
    task.create_outputs(run)
    run.sweep("write", _write(task, choose.lists, run.result))
