"""Finished lists into the chunks of a result: sorted, checked, each chunk once and by one task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import merge_lists, sort_lists
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.pair_sweep import finished_lists
from rankfold.pipeline.engine.pairs import Pairs
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks

Array = npt.NDArray[Any]

Lists = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]


@dataclass(slots=True)
class Work:
    """The lists of one panel."""

    keys: npt.NDArray[np.float64]
    ids: npt.NDArray[np.int64]
    block: tuple[int, Lists] | None = None
    """The block that was read last: panels and blocks are cut on their own."""


@dataclass(frozen=True, slots=True)
class WriteLists:
    """Fold that writes ``indices`` and ``distances``, and both once more as the graph of a sparse matrix."""

    cut: Cut
    """Panels are whole chunks."""

    pairs: Pairs
    lists: Path
    """Folder of the accumulators."""

    result: Path
    k: int
    itself: bool
    """Whether rows are among those that they are near to, and must not be in their own list."""

    graph: bool
    slots: int = 1
    row_seconds: float = 1e-6

    @property
    def memory_bytes(self) -> int:
        """Of one segment: a panel and its chunks, and the lists of a block twice."""
        return 16 * self.k * (3 * self.cut.panel_rows + 3 * int(np.diff(self.pairs.rows).max()))

    def start(self) -> State:
        """No row yet."""
        return {"rows": np.zeros(1, np.int64)}

    def workspace(self) -> Work:
        """Allocate the lists of a panel."""
        rows = self.cut.panel_rows
        return Work(np.empty((rows, self.k)), np.empty((rows, self.k), np.int64))

    def read(self, work: Work, start: int, stop: int, slot: int) -> None:
        """Gather the lists of some rows from the blocks that have them."""
        edges = self.pairs.rows
        first = int(np.searchsorted(edges, start, side="right")) - 1
        for block in range(first, int(np.searchsorted(edges, stop, side="left"))):
            if work.block is None or work.block[0] != block:
                work.block = block, self._finished(block)
            begin = int(edges[block])
            low, high = max(start, begin), min(stop, int(edges[block + 1]))
            for into, found in zip((work.keys, work.ids), work.block[1], strict=True):
                into[low - start : high - start] = found[low - begin : high - begin]

    def _finished(self, block: int) -> Lists:
        """Sorted lists of a block, its lanes merged."""
        state = finished_lists(self.lists, self.pairs, block)
        keys, ids = state["keys"], state["ids"]
        for lane in range(1, self.pairs.lanes):
            other = finished_lists(self.lists, self.pairs, block, lane)
            merge_lists(keys, ids, other_keys=other["keys"], other_ids=other["ids"])
        sort_lists(keys, ids)
        return keys, ids

    def step(self, state: State, work: Work, start: int, stop: int, slot: int) -> None:
        """Check the lists of some rows, and write them."""
        keys, ids = work.keys[: stop - start], work.ids[: stop - start]
        self._require_sound(keys, ids, start)
        state["rows"] += stop - start
        for name, values in (("distances", keys), ("indices", ids)):
            write_whole_chunks(self.result / name, values, (start, stop), (0, self.k))
        if self.graph:
            graph = self.result / "graph"
            for name, values in (("data", keys), ("indices", ids)):
                write_whole_chunks(graph / name, values.reshape(-1), (start * self.k, stop * self.k))

    def _require_sound(self, keys: Array, ids: Array, start: int) -> None:
        """Each row has k others, none twice, none itself, sorted by (distance, id)."""
        if not np.isfinite(keys).all():
            row = start + int((~np.isfinite(keys)).any(axis=1).argmax())
            raise DataError(
                f"row {row} has fewer than {self.k} neighbors at a distance that is a finite number: "
                "distances overflow float64, or the metric gives NaN for some pairs"
            )
        wrong = (ids < 0).any(axis=1)
        wrong |= (ids >= int(self.pairs.met[-1])).any(axis=1) | (np.diff(keys, axis=1) < 0).any(axis=1)
        ordered = np.sort(ids, axis=1)
        wrong |= (np.diff(ordered, axis=1) == 0).any(axis=1)
        if self.itself:
            wrong |= (ids == np.arange(start, start + len(ids))[:, None]).any(axis=1)
        if wrong.any():
            row = int(wrong.argmax())
            raise AssertionError(f"the list of row {start + row} is not sound: {ids[row]}, {keys[row]}")

    def merge(self, total: State, other: State) -> None:
        """Add up."""
        total["rows"] += other["rows"]
