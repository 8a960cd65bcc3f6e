"""A few rows that are compared with all others: their true neighbors, from one read.

These rows are in memory. Their lists are among the sums of a fold: each stream (rows of the matrix that are
processed in order) has its own, and they are merged. A row is also compared with itself, at distance 0; lists
have one entry more for that, which is removed at the end. A fold is the work of a sweep (one run through the
matrix) on each panel (rows read at a time).
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
from rankfold.methods.knn.pair_fold import BufferPool
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
"""Names of sums of a fold: distances (keys) and ids of lists, and how often a row was uncertain. See
``FewRows.sums``."""


@dataclass(frozen=True, slots=True)
class FewRows:
    """A few rows, in an intermediate file ``rows`` (count, n), that are compared with all others.

    ``k`` is the number of neighbors that are found of each.
    """

    reader: BlockReader
    rows: ScratchMatrix
    k: int

    @property
    def count(self) -> int:
        """Number of these rows."""
        return self.rows.rows

    def buffer(self) -> ScratchConstant:
        """Buffer of a fold for these rows, (count, n), loaded from their intermediate file."""
        return ScratchConstant.of(self.rows)

    def sums(self) -> dict[str, Sum]:
        """Lists of these rows, as sums of a fold: keys and ids (count, k + 1), and uncertain (1,).

        The last counts how often a row had too few candidates in a panel to be certain, so that its distances
        from all rows there were computed.
        """
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
        """Bytes of these rows, and of comparing them with ``rows`` other rows at a time."""
        return self.reader.memory_bytes(self.count) + meeting_room(
            self.count, rows, self.reader.columns, self.k + 1
        )

    def meet(self, state: State, work: Workspace, panel: Rows) -> None:
        """Compare the few rows, ``work.few_rows``, with rows ``panel``, and update the lists in ``state``."""
        let_meet(self.reader, work, work.few_rows, panel, Lists(state[KEYS], state[IDS], state[UNCERTAIN]))

    def join(self, total: State, other: State) -> None:
        """Merge the lists ``other``, from other rows of the matrix, into ``total``, in place."""
        merge_lists(total[KEYS], total[IDS], other_keys=other[KEYS], other_ids=other[IDS])
        total[UNCERTAIN] += other[UNCERTAIN]


def let_meet(
    reader: BlockReader, work: Workspace, x: Rows, y: Rows, lists: Lists, *, same: bool = False
) -> None:
    """Compare rows ``x`` with rows ``y``, and update ``lists``, the nearest of each row of ``x``, in place.

    ``work.room`` gives buffers, ``work.precise`` becomes True if products need float64. ``same`` is True if
    ``x`` is ``y``: no row is then compared with itself.
    """
    work.precise |= meet_rows(
        x,
        y,
        lists_i=lists,
        lists_j=None,
        metric=reader.metric,
        shift=reader.shift,
        same=same,
        precise=work.precise or exceeds_float32(x, y),
        room=work.room.array,
    )


def meeting_room(rows: int, others: int, columns: int, k: int) -> int:
    """Bytes of tiles and shortlists for comparing ``rows`` rows, which have lists of ``k``, with ``others``
    rows that have none."""
    most = shortlist_length(k)
    sides = (TILE, 4), (PRECISE_TILE, 8)
    tiles = sum(min(tile, rows) * min(tile, others) * item for tile, item in sides)
    doubles = doubles_bytes(max(rows, others), columns, k)
    shortlists = rows * (16 * most + 8 * 12) + others * 8 * 12
    return tiles * (1 + (columns > TERMS)) + doubles + shortlists


def exceeds_float32(x: Rows, y: Rows) -> bool:
    """True if squared norms leave the range in which products are made in float32."""
    largest = max(float(x.norms.max(initial=0.0)), float(y.norms.max(initial=0.0)))
    return not SMALLEST_SQUARE < largest < LARGEST_SQUARE


def without_themselves(state: State, own: Int64) -> tuple[Float64, Int64]:
    """Keys and ids (rows, k) of the lists in ``state``, sorted, each without its own row.

    ``own`` (rows,) are the numbers of the rows that have the lists.
    """
    keys, ids = state[KEYS].copy(), state[IDS].copy()
    sort_lists(keys, ids)
    k = keys.shape[1] - 1
    # A row that is not in its own list has more than k others no farther: the last of these is dropped.
    hit = ids == own[:, None]
    out = np.where(hit.any(axis=1), hit.argmax(axis=1), k)
    keep = np.arange(k + 1) != out[:, None]
    return keys[keep].reshape(-1, k), ids[keep].reshape(-1, k)


@dataclass(frozen=True, slots=True)
class MeetAll(DeclaredFold):
    """Fold that compares a few rows with all others."""

    cut: Cut
    few: FewRows
    slots: int = 1
    row_seconds: float = 1e-5

    kernels = (merge_lists, sort_lists)

    def buffers(self) -> Mapping[str, Buffer]:
        """Declare ``few``, which holds the few rows that are compared with all rows of the matrix."""
        return {"few": self.few.buffer()}

    def sums(self) -> Mapping[str, Sum]:
        """Lists of the few rows: see ``FewRows.sums``."""
        return self.few.sums()

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step: a panel (rows read at a time), and its comparison with the few rows."""
        rows, reader = self.cut.panel_rows, self.few.reader
        return reader.memory_bytes(rows) + reader.read_bytes(rows) + self.few.memory_bytes(rows)

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate a panel (rows read at a time), and prepare the few rows for comparison."""
        work = DeclaredFold.workspace(self, device)
        work.panel, work.room = self.few.reader.buffer(self.cut.panel_rows), BufferPool()
        work.few_rows, work.precise = self.few.reader.ready(work.few), False
        return work

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Read rows ``start:stop``, and compare the few rows with them."""
        panel = self.few.reader.read(work.panel, start, stop, 0)
        self.few.meet(state, work, panel)

    def merge(self, total: State, other: State) -> None:
        """Merge the lists ``other``, from other rows of the matrix, into ``total``, in place."""
        self.few.join(total, other)
