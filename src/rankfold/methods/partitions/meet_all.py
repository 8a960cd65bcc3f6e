"""A few rows that meet all others: their true neighbors, from one read.

The rows to find are in memory, with lists that every stream keeps for itself. A row is met by itself too,
at distance 0; lists have a place more for that, and it is taken out at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.bounds import TERMS
from rankfold.kernels.neighbors.lists import EMPTY, merge_lists, sort_lists
from rankfold.kernels.neighbors.meeting import (
    PRECISE_TILE,
    TILE,
    Lists,
    Rows,
    doubles_bytes,
    meet_rows,
    shortlist_length,
)
from rankfold.methods.knn.pair_fold import Room
from rankfold.methods.knn.row_blocks import LARGEST_SQUARE, SMALLEST_SQUARE, BlockReader
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, DeclaredFold, ScratchConstant, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

KEYS, IDS, UNCERTAIN = "true_keys", "true_ids", "true_uncertain"
"""What a stream keeps."""


@dataclass(frozen=True, slots=True)
class FewRows:
    """Rows that meet all others."""

    reader: BlockReader
    rows: ScratchMatrix
    k: int

    @property
    def count(self) -> int:
        """How many."""
        return self.rows.rows

    def buffer(self) -> ScratchConstant:
        """Room for them."""
        return ScratchConstant.of(self.rows)

    def sums(self) -> dict[str, Sum]:
        """Their lists."""
        shape = self.count, self.k + 1
        return {
            KEYS: Sum(shape, empty=self._no_keys),
            IDS: Sum(shape, np.dtype(np.int64), self._no_ids),
            UNCERTAIN: Sum((1,), np.dtype(np.int64)),
        }

    def _no_keys(self) -> Float64:
        return np.full((self.count, self.k + 1), np.inf)

    def _no_ids(self) -> Int64:
        return np.full((self.count, self.k + 1), EMPTY)

    def memory_bytes(self, rows: int) -> int:
        """What meeting a panel of so many rows takes."""
        return self.reader.memory_bytes(self.count) + meeting_room(
            self.count, rows, self.reader.columns, self.k + 1
        )

    def meet(self, state: State, work: Workspace, panel: Rows) -> None:
        """Take a panel into the lists; ``work`` has the rows as they are compared, ``few_rows``."""
        let_meet(self.reader, work, work.few_rows, panel, Lists(state[KEYS], state[IDS], state[UNCERTAIN]))

    def join(self, total: State, other: State) -> None:
        """Merge the lists of two streams."""
        merge_lists(total[KEYS], total[IDS], other_keys=other[KEYS], other_ids=other[IDS])
        total[UNCERTAIN] += other[UNCERTAIN]


def let_meet(
    reader: BlockReader, work: Workspace, x: Rows, y: Rows, lists: Lists, *, same: bool = False
) -> None:
    """Take pairs of two sets of rows into the lists of the first; ``work`` has ``room`` and ``precise``."""
    work.precise |= meet_rows(
        x,
        y,
        lists_i=lists,
        lists_j=None,
        metric=reader.metric,
        shift=reader.shift,
        same=same,
        precise=work.precise or is_wild(x, y),
        room=work.room.array,
    )


def meeting_room(rows: int, others: int, columns: int, k: int) -> int:
    """Bytes of tiles and shortlists, where ``rows`` have lists of ``k``."""
    most = shortlist_length(k)
    sides = (TILE, 4), (PRECISE_TILE, 8)
    tiles = sum(min(tile, rows) * min(tile, others) * item for tile, item in sides)
    doubles = doubles_bytes(max(rows, others), columns, k)
    shortlists = rows * (16 * most + 8 * 12) + others * 8 * 12
    return tiles * (1 + (columns > TERMS)) + doubles + shortlists


def is_wild(x: Rows, y: Rows) -> bool:
    """Whether norms leave the range in which float32 multiplies."""
    largest = max(float(x.norms.max(initial=0.0)), float(y.norms.max(initial=0.0)))
    return not SMALLEST_SQUARE < largest < LARGEST_SQUARE


def without_themselves(state: State, own: Int64) -> tuple[Float64, Int64]:
    """Sorted lists of a state, each without the row that it is of, which is among all that it has met."""
    keys, ids = state[KEYS].copy(), state[IDS].copy()
    sort_lists(keys, ids)
    k = keys.shape[1] - 1
    # Where it is not in its list, more than k others are no farther: the last of these makes room.
    hit = ids == own[:, None]
    out = np.where(hit.any(axis=1), hit.argmax(axis=1), k)
    keep = np.arange(k + 1) != out[:, None]
    return keys[keep].reshape(-1, k), ids[keep].reshape(-1, k)


@dataclass(frozen=True, slots=True)
class MeetAll(DeclaredFold):
    """Fold that lets a few rows meet all others."""

    cut: Cut
    few: FewRows
    slots: int = 1
    row_seconds: float = 1e-5

    kernels = (merge_lists, sort_lists)

    def buffers(self) -> Mapping[str, Buffer]:
        """The few rows."""
        return {"few": self.few.buffer()}

    def sums(self) -> Mapping[str, Sum]:
        """Their lists."""
        return self.few.sums()

    @property
    def beside_bytes(self) -> int:
        """A panel, and what meeting it takes."""
        rows, reader = self.cut.panel_rows, self.few.reader
        return reader.memory_bytes(rows) + reader.read_bytes(rows) + self.few.memory_bytes(rows)

    def workspace(self, device: Device = HOST) -> Workspace:
        """A panel, and the few rows as they are compared."""
        work = DeclaredFold.workspace(self, device)
        work.panel, work.room = self.few.reader.buffer(self.cut.panel_rows), Room()
        work.few_rows, work.precise = self.few.reader.ready(work.few), False
        return work

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Let them meet a panel."""
        panel = self.few.reader.read(work.panel, start, stop, 0)
        self.few.meet(state, work, panel)

    def merge(self, total: State, other: State) -> None:
        """Merge the lists of two streams."""
        self.few.join(total, other)
