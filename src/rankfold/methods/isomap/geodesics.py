"""Shortest paths from landmarks to all rows, one group of landmarks after the other.

Threads work on landmarks of a group, each with a heap of its own. The size of a group follows from the shape
alone, and so do the chunks that it writes: none has to be made again after a kill.

Choice of the landmarks, the rows that paths begin at: each the farthest from those before, or random ones.

A smaller number of landmarks gives the first of a larger number. The farthest row is exact, though paths are
not followed where other landmarks are nearer: see ``lower_distances``.

References
----------
De Silva, Tenenbaum, Sparse multidimensional scaling using landmark points, Stanford, 2004, section 2.3, for
both ways; Gonzalez, Clustering to minimize the maximum intercluster distance, Theoretical Computer Science
38, 1985: for any choice of as many rows, the largest distance of a row from its nearest is at least half of
that here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.graph.paths import lower_distances
from rankfold.methods.isomap.graph import NumberedGraph, index_type
from rankfold.methods.parts.outputs import create_output
from rankfold.methods.random_keys import Purpose
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

NAME = "geodesics"

GROUPS = 64
"""Number of groups of landmarks, if their sizes are then within ``GROUP``; a chunk is as wide as a group."""

GROUP = (16, 256)
"""Fewest and most landmarks of a group."""

CHUNK_ROWS = 2**14
"""Largest number of rows of a chunk of distances, unless there would be more than ``TARGET_CHUNKS`` such
chunks."""

BLOCK_NUMBERS = 2**22
"""Largest number of distances that are read together: those of the rows of a chunk from all landmarks."""

TARGET_CHUNKS = 2048


@dataclass(frozen=True, slots=True)
class Geodesics:
    """Distances of all m rows from l landmarks, (m, l), as they are stored in a result."""

    rows: int
    landmarks: int
    dtype: np.dtype[Any]

    @property
    def group(self) -> int:
        """Number of landmarks whose paths are followed together, and columns of a chunk."""
        return min(self.landmarks, max(GROUP[0], min(self.landmarks // GROUPS, GROUP[1])))

    @property
    def chunk_rows(self) -> int:
        """Number of rows of a chunk of the stored distances."""
        few = max(1, min(CHUNK_ROWS, BLOCK_NUMBERS // self.landmarks))
        return min(self.rows, max(few, self.rows // TARGET_CHUNKS))

    @property
    def thread_bytes(self) -> int:
        """Bytes of a thread that follows paths from one landmark.

        These are distances, a heap with its keys, and positions of vertices in it.
        """
        return self.rows * (8 + 8 + 2 * index_type(self.rows).itemsize)

    @property
    def group_bytes(self) -> int:
        """Bytes of the distances from a group of landmarks, and of a chunk as it is written."""
        return self.group * self.dtype.itemsize * (self.rows + 2 * self.chunk_rows)

    @property
    def block_bytes(self) -> int:
        """Bytes of a block (see ``blocks``) as it is read, in float64, and of arrays made from it."""
        return self.chunk_rows * self.landmarks * (2 * self.dtype.itemsize + 3 * 8)

    def blocks(self) -> list[tuple[int, int]]:
        """Row ranges (start, stop) of the blocks in which distances are read, from all landmarks at once."""
        step = self.chunk_rows
        return [(start, min(self.rows, start + step)) for start in range(0, self.rows, step)]

    def write(self, run: Run, graph: NumberedGraph, landmarks: Int64) -> Float64:
        """Find the distances of all rows from ``landmarks`` (l,) and write them into the result of ``run``.

        Returns the distances among landmarks, (l, l). Groups that an earlier attempt has finished are kept.
        """
        began, group = time.perf_counter(), self.group
        shape, chunks = (self.rows, self.landmarks), (self.chunk_rows, group)
        path = create_output(run.result, NAME, shape, self.dtype, chunks)
        vertices = graph.numbers[landmarks]
        among = np.empty((self.landmarks, self.landmarks))
        with ThreadPoolExecutor(run.concurrency, "rankfold-paths") as pool:
            for start in range(0, self.landmarks, group):
                stop = min(self.landmarks, start + group)

                def make(start: int = start, stop: int = stop) -> State:
                    return {"among": self._write_group(path, graph, vertices, (start, stop), pool)}

                among[start:stop] = run.prepare(run.part("paths", f"{start}.part"), make)["among"]
                if run.progress:
                    run.progress("paths", self.rows * stop // self.landmarks, self.rows)
        run.seconds["paths"] = time.perf_counter() - began
        return among

    def _write_group(
        self, path: Path, graph: NumberedGraph, vertices: Any, span: tuple[int, int], pool: ThreadPoolExecutor
    ) -> Float64:
        """Find and write the distances of all rows from landmarks ``start:stop``, given as ``span``.

        ``path`` is the array that is written, ``vertices`` (l,) are the vertices of all landmarks in
        ``graph``. Returns the distances from this group to all landmarks, (stop - start, l).
        """
        start, stop = span
        distances = np.empty((stop - start, self.rows), self.dtype)
        among = np.empty((stop - start, self.landmarks))

        def follow(place: int) -> None:
            near = np.full(self.rows, np.inf)
            lower_distances(graph.edges, int(vertices[start + place]), near=near)
            among[place] = near[vertices]
            distances[place] = near[graph.numbers]

        for _ in pool.map(follow, range(stop - start)):
            pass
        for first, last in self.blocks():
            write_whole_chunks(path, distances[:, first:last].T, (first, last), span)
        return among

    def nearest(self, run: Run) -> tuple[Int64, float]:
        """(l,) number of rows nearest to each landmark; and largest distance of a row from its nearest one.

        Both from the distances that ``write`` has written into the result of ``run``.
        """
        from rankfold.pipeline.chunks.regular_store import zarr_array

        array, counts, radius = (
            zarr_array(run.result / NAME),
            np.zeros(self.landmarks, int),
            0.0,
        )
        for start, stop in self.blocks():
            distances = np.asarray(array[start:stop])
            counts += np.bincount(distances.argmin(axis=1), minlength=self.landmarks)
            radius = max(radius, float(distances.min(axis=1).max()))
        return counts, radius


def random_numbers(seed: int, purpose: Purpose) -> np.random.Generator:
    """Generator of random numbers for a seed and a purpose."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, purpose], np.uint64)))


def any_rows(rows: int, count: int, seed: int) -> Int64:
    """(count,) row numbers of landmarks, out of ``rows`` rows, drawn at random, in random order."""
    return random_numbers(seed, Purpose.PATH_LANDMARKS).permutation(rows)[:count]


def farthest_rows(graph: NumberedGraph, count: int, seed: int, tell: Callable[[int], Any]) -> Int64:
    """(count,) row numbers of landmarks: the first random, each other the farthest from those before.

    Of equally far rows it is that of the first vertex. ``tell`` is called with the number chosen so far.
    """
    near = np.full(graph.rows, np.inf)
    first = int(random_numbers(seed, Purpose.PATH_LANDMARKS).integers(graph.rows))
    vertex, chosen = int(graph.numbers[first]), np.empty(count, np.int64)
    for place in range(count):
        chosen[place] = vertex
        lower_distances(graph.edges, vertex, near=near)
        near[vertex] = -1  # not chosen again, even if all other rows are at distance 0
        vertex = int(near.argmax())
        tell(place + 1)
    rows = np.empty(graph.rows, np.int64)
    rows[graph.numbers] = np.arange(graph.rows)
    return rows[chosen]
