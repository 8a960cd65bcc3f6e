"""Rows whose partitions were too small for a list: they are compared with all others.

Such rows are few: partitions are made from samples that show rows enough for a list. The neighbors of those
that remain are found exactly, ``AT_ONCE`` rows at a time, by two reads each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rankfold.methods.knn.row_blocks import BlockReader
from rankfold.methods.partitions.files import Lists
from rankfold.methods.partitions.layout import Layout
from rankfold.methods.partitions.meet_all import FewRows, MeetAll, without_themselves
from rankfold.methods.partitions.sample import CollectRows
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

AT_ONCE = 400
"""Number of rows that are completed at once, as many as the plan has room for."""

SCANNED = 2**16
"""Number of lists that are checked at a time."""


@dataclass(frozen=True, slots=True)
class Completed:
    """Exact lists of some rows, which replace lists with fewer than k neighbors."""

    rows: Int64
    """(r,) numbers, ascending, of the rows that have these lists."""

    lists: Lists
    """Files of the lists of these rows, in the same order."""

    def overlay(self, keys: Float64, neighbors: Int64, start: int) -> None:
        """Replace lists of a panel, whose first row is ``start``, by completed ones, in place.

        ``keys`` and ``neighbors`` (rows, k) are the lists of all rows of the panel.
        """
        first, last = np.searchsorted(self.rows, [start, start + len(keys)]).tolist()
        if last > first:
            own, others = (
                np.empty((last - first, keys.shape[1])),
                np.empty((last - first, keys.shape[1]), np.int64),
            )
            self.lists.read_into(own, others, first)
            places = self.rows[first:last] - start
            keys[places], neighbors[places] = own, others


def complete_lists(run: Run, reader: BlockReader, layout: Layout, lists: Lists) -> Completed:
    """Compare rows that have fewer than k neighbors in their lists with all others.

    Returns new lists of these rows; ``lists``, those of all rows, stay as they are.
    """
    ids = run.prepare(run.part("short", "ids.part"), lambda: {"ids": _short_rows(layout, lists)})["ids"]
    run.notes["completed_rows"] = len(ids)
    completed = Completed(ids, Lists.of(run.scratch / "completed", "lists", len(ids), layout.k))
    for top in range(0, len(ids), AT_ONCE):
        some, name = ids[top : top + AT_ONCE], f"complete-{top // AT_ONCE:04d}"
        matrix = ScratchMatrix(run.scratch / f"{name}.bin", len(some), layout.source.shape[1], reader.dtype)
        run.pass_over_data(f"{name}-rows", CollectRows(reader, layout.cut, (some,), (matrix,)))
        state = run.pass_over_data(name, MeetAll(layout.cut, FewRows(reader, matrix, layout.k)))

        def write(top: int = top, some: Int64 = some, state: State = state) -> State:
            completed.lists.write(top, *without_themselves(state, some))
            return {"rows": some}

        run.prepare(run.part(name, "written.part"), write)
    return completed


def _short_rows(layout: Layout, lists: Lists) -> Int64:
    """Numbers, ascending, of the rows whose lists have fewer than k neighbors."""
    parts = []
    for start in range(0, layout.rows, SCANNED):
        keys = np.empty((min(SCANNED, layout.rows - start), layout.k))
        lists.keys.read_into(keys, start)
        parts.append(start + np.flatnonzero(np.isinf(keys[:, 0])))
    return np.concatenate(parts).astype(np.int64)
