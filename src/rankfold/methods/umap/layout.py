"""Epochs that move all vertices, a group after the other.

Vertices of a group move at once, each by its own edges, from where all were before: any threads may move any
of them, to the same bytes. Groups are drawn by a hash of the vertex, so that few neighbors move together;
were all of them to move together, each would jump to where the other has been, and back.
"""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.layout.forces import FIRST_FACTOR, STEP, Edges, Epoch, Forces, epoch_key, forces_of
from rankfold.kernels.layout.vertices import move_vertices
from rankfold.methods.random_keys import Purpose
from rankfold.methods.umap.request import LayoutRequest
from rankfold.pipeline.engine import sweep
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.storage.checkpoint import load_if_whole, save_arrays

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

GROUPS = 8
"""Of vertices. With one, neighbors move together, and trustworthiness falls; with more than eight it rises no
further."""

PIECES = 4
"""Of a group for each thread: vertices have different numbers of edges."""


@dataclass(slots=True)
class Layout:
    """A layout under way."""

    positions: Float32
    edges: Edges
    request: LayoutRequest
    epochs: int

    def run(self, run: Run) -> None:
        """All epochs that are left, with a checkpoint after as many seconds as a segment takes."""
        part, began = run.part("layout", "positions.part"), time.perf_counter()
        first = self._resume(part)
        forces = forces_of(*self.request.curve(), self.request.repulsion_strength)
        rows, last_save = len(self.positions), time.monotonic()
        groups = vertex_groups(rows)
        with ThreadPoolExecutor(run.concurrency, "rankfold-layout") as pool:
            for epoch in range(first, self.epochs):
                for group in groups:
                    self._move(group, epoch, forces, pool, run.concurrency)
                if run.keeping.resumable and time.monotonic() - last_save > sweep.SEGMENT_SECONDS:
                    save_arrays(part, {"positions": self.positions, "epoch": np.array([epoch + 1])})
                    last_save = time.monotonic()
                if run.progress:
                    run.progress("layout", rows * (epoch + 1) // self.epochs, rows)
        run.seconds["layout"] = time.perf_counter() - began

    def _resume(self, part: Path) -> int:
        """The next epoch, from where an earlier attempt has left the vertices."""
        state = load_if_whole(part)
        if state is None:
            return 0
        self.positions = state["positions"]
        return int(state["epoch"][0])

    def _move(self, group: Int64, epoch: int, forces: Forces, pool: ThreadPoolExecutor, threads: int) -> None:
        """Move the vertices of a group."""
        after = np.empty((len(group), self.positions.shape[1]), np.float32)
        rate = self.request.learning_rate * (1 - epoch / self.epochs)
        key = epoch_key(self.request.seed, Purpose.LAYOUT_SAMPLES, epoch)
        now = Epoch(epoch + 1, key, rate, self.request.negative_sample_rate)

        def move(ends: tuple[int, int]) -> None:
            some = slice(*ends)
            where = self.positions, group[some], self.edges
            move_vertices(*where, forces=forces, epoch=now, out=after[some])

        pieces = 1 if threads == 1 else PIECES * threads
        edges = [len(group) * i // pieces for i in range(pieces + 1)]
        for _ in pool.map(move, itertools.pairwise(edges)):
            pass
        self.positions[group] = after


def vertex_groups(rows: int) -> list[Int64]:
    """Vertices that move together, in order; each vertex is in one group."""
    words: npt.NDArray[Any] = np.arange(1, rows + 1, dtype=np.uint64) * np.uint64(STEP)
    words ^= words >> np.uint64(30)
    words *= np.uint64(FIRST_FACTOR)
    groups = (words >> np.uint64(32)) % np.uint64(GROUPS)
    members = [np.flatnonzero(groups == np.uint64(group)) for group in range(GROUPS)]
    return [each for each in members if len(each)]
