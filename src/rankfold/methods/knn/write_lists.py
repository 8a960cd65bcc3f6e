"""Write finished lists into the chunks of a result: sorted, checked, each chunk once and by one task.

A fold is the work of a sweep (one run through the rows) on each panel (rows read at a time).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import merge_lists, sort_lists
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, DeclaredFold, Sum, Workspace
from rankfold.pipeline.engine.pair_sweep import finished_lists
from rankfold.pipeline.engine.pairs import Pairs
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks

Array = npt.NDArray[Any]

Lists = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class WriteLists(DeclaredFold):
    """Fold that writes ``indices`` and ``distances``, and both once more as the graph of a sparse matrix."""

    cut: Cut
    """Cut of the rows into panels (rows written at a time), each of which is whole chunks."""

    pairs: Pairs
    lists: Path
    """Folder of the accumulators: files with the lists of each block of rows."""

    result: Path
    k: int
    itself: bool
    """True if rows are searched among themselves: none may be in its own list."""

    graph: bool
    slots: int = 1
    row_seconds: float = 1e-6

    kernels = (merge_lists, sort_lists)

    def buffers(self) -> Mapping[str, Buffer]:
        """Lists of a panel: ``keys`` and ``ids``, (panel rows, k)."""
        shape = (self.cut.panel_rows, self.k)
        return {"keys": Buffer(shape), "ids": Buffer(shape, np.dtype(np.int64))}

    def sums(self) -> Mapping[str, Sum]:
        """``rows`` (1,), the number of rows whose lists were written."""
        return {"rows": Sum((1,), np.dtype(np.int64))}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides its buffers: padded chunks, and the lists of three blocks of rows.

        These are the block that was read last, the next one, and lists that are merged into it.
        """
        return 16 * self.k * (2 * self.cut.panel_rows + 3 * int(np.diff(self.pairs.rows).max()))

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate the lists of a panel; ``block`` will keep the lists that were read last.

        These are of a block of rows, which may reach into the next panel.
        """
        work = DeclaredFold.workspace(self, device)
        work.block = None
        return work

    def read(self, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Read the lists of rows ``start:stop`` into ``work``, from the files of blocks with these rows."""
        edges = self.pairs.rows
        first = int(np.searchsorted(edges, start, side="right")) - 1
        for block in range(first, int(np.searchsorted(edges, stop, side="left"))):
            if work.block is None or work.block[0] != block:
                work.block = block, self._load_sorted(block)
            begin = int(edges[block])
            low, high = max(start, begin), min(stop, int(edges[block + 1]))
            for into, lists in zip((work.keys, work.ids), work.block[1], strict=True):
                into[low - start : high - start] = lists[low - begin : high - begin]

    def _load_sorted(self, block: int) -> Lists:
        """Load the lists of a block of rows, merged from its accumulators and sorted, nearest first."""
        state = finished_lists(self.lists, self.pairs, block)
        keys, ids = state["keys"], state["ids"]
        for accumulator in range(1, self.pairs.accumulators):
            other = finished_lists(self.lists, self.pairs, block, accumulator)
            merge_lists(keys, ids, other_keys=other["keys"], other_ids=other["ids"])
        sort_lists(keys, ids)
        return keys, ids

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Check the lists of rows ``start:stop`` in ``work``, and write them into the result."""
        keys, ids = work.keys[: stop - start], work.ids[: stop - start]
        require_sound(keys, ids, start, others=int(self.pairs.met[-1]), itself=self.itself)
        state["rows"] += stop - start
        write_lists(self.result, keys, ids, (start, stop), graph=self.graph)


def write_lists(result: Path, keys: Array, ids: Array, rows: tuple[int, int], *, graph: bool) -> None:
    """Write the lists of rows ``rows[0]`` up to ``rows[1]``, which are whole chunks, into a result.

    ``keys`` and ``ids`` (rows, k); with ``graph`` they are also written as the entries of a sparse matrix.
    """
    (start, stop), k = rows, keys.shape[1]
    for name, values in (("distances", keys), ("indices", ids)):
        write_whole_chunks(result / name, values, rows, (0, k))
    if graph:
        for name, values in (("data", keys), ("indices", ids)):
            write_whole_chunks(result / "graph" / name, values.reshape(-1), (start * k, stop * k))


def require_sound(keys: Array, ids: Array, start: int, *, others: int, itself: bool) -> None:
    """Raise unless each row has k finite distances in order, and k different ids, all below ``others``.

    ``keys`` and ``ids`` are (rows, k), of rows from ``start`` on; with ``itself`` no row may have its own id.
    Distances that are not finite raise ``DataError``, all else raises ``AssertionError``.
    """
    if not np.isfinite(keys).all():
        row = start + int((~np.isfinite(keys)).any(axis=1).argmax())
        raise DataError(
            f"row {row} has fewer than {keys.shape[1]} neighbors at a distance that is a finite number: "
            "distances overflow float64 (of numbers above 1e153 squares do: store them in other units), or "
            "the metric gives NaN for some pairs"
        )
    wrong = (ids < 0).any(axis=1)
    wrong |= (ids >= others).any(axis=1) | (np.diff(keys, axis=1) < 0).any(axis=1)
    sorted_ids = np.sort(ids, axis=1)
    wrong |= (np.diff(sorted_ids, axis=1) == 0).any(axis=1)
    if itself:
        wrong |= (ids == np.arange(start, start + len(ids))[:, None]).any(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        raise AssertionError(f"the list of row {start + row} is not sound: {ids[row]}, {keys[row]}")
