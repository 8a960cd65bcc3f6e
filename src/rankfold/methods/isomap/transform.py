"""Place new rows in an embedding: paths lead to them by way of their neighbors there.

The distance of a new row from a landmark is the least sum of the distance to a neighbor and from there to the
landmark. Stored distances are read one block after the other for each block of new rows: a minimum does not
depend on the order. Coordinates are summed row by row, so that a row has the same ones among any others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.fuzzy_graph.lists import StoredLists
from rankfold.methods.isomap.geodesics import BLOCK_NUMBERS, NAME, TARGET_CHUNKS, random_numbers
from rankfold.methods.isomap.scaling import Scaling, distances_between, residual_variance
from rankfold.methods.parts.outputs import create_output
from rankfold.methods.random_keys import Purpose
from rankfold.methods.task import Output, count
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.law import REMEDY
from rankfold.pipeline.planning.passes import RESERVE_BYTES, Pass
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import FittedSweeps, FixedSweeps, TaskFacts, plan_task
from rankfold.pipeline.planning.shape_only import ImaginedResult
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.result import Result, result_of
from rankfold.pipeline.storage.run_directory import digest

Float64 = npt.NDArray[np.float64]

SAMPLE_ROWS = 1000
"""Largest number of new rows in the sample, whose distances to landmarks in the embedding are compared with
paths."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Task of placing new rows in the embedding of ``result``, by their neighbors among its rows."""

    result: Result
    lists: StoredLists

    @property
    def source(self) -> Source:
        """(new rows, k) distances of new rows from their neighbors."""
        return self.lists.distances

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows of the embedding, and number of landmarks."""
        rows, landmarks = self.result.matrix(NAME).shape
        return rows, landmarks

    @property
    def width(self) -> int:
        """Number of dimensions of the embedding."""
        return int(self.result.attrs["request"]["n_components"])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the coordinates of new rows: that of the embedding."""
        return self.result.matrix("embedding").dtype

    @property
    def block_rows(self) -> int:
        """Number of new rows that are placed together."""
        rows = self.lists.rows
        return min(rows, max(1, BLOCK_NUMBERS // self.shape[1], rows // TARGET_CHUNKS))

    def request(self) -> dict[str, Any]:
        """Everything besides the distances in ``source`` that determines the coordinates, as JSON types."""
        facts = self.result.attrs
        made_by = digest([facts["request"], facts["input"]["fingerprint"]])
        what = {"kind": "transform", "of": "isomap", "rank": self.width, "result": made_by}
        return {**what, "indices": self.lists.indices.fingerprint()}

    def outputs(self) -> tuple[Output, ...]:
        """Declare the one array of the result, ``embedding``: coordinates (new rows, d)."""
        rows = self.lists.rows
        return (Output("embedding", (rows, self.width), self.dtype, count(rows, self.block_rows)),)

    def plan(self, budget: Budget) -> Plan:
        """Plan the sweep over blocks of new rows within a budget."""
        (rows, landmarks), new = self.shape, self.lists.rows
        paths, times = self.result.matrix(NAME), count(new, self.block_rows)
        stored = paths.row_grid.longest * landmarks * (2 * paths.dtype.itemsize + 8)
        block = self.block_rows * (landmarks * 5 * 8 + self.lists.k * 4 * 8)
        sample = 4 * 8 * min(new, SAMPLE_ROWS) * landmarks
        memory = stored + block + sample + 4 * self.lists.chunk_bytes + 8 * rows
        reads = 16 * new * self.lists.k + times * rows * landmarks * paths.dtype.itemsize
        writes = new * self.width * self.dtype.itemsize
        work = 3.0 * new * landmarks * (self.lists.k + self.width)
        sweep = Pass("transform", "matrix", reads, writes, work, memory, 1, 1, blas_bytes=0)
        task_facts = TaskFacts(
            "transform", "paths", self.source, self.dtype, "rows", self.width, result_bytes=writes
        )
        peak = RESERVE_BYTES + memory
        fitted = FittedSweeps((sweep,), 1, peak, memory, 0, 1, new, self.block_rows, 1, 1)
        return plan_task(task_facts, FixedSweeps(fitted), budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Place the new rows and write their coordinates; returns the facts (metadata) of the result."""
        self.result.require_whole()
        rows, scaling, sample = self.lists.rows, self._scaling(), self._sample()
        shape, chunk = (rows, self.width), (self.block_rows, self.width)
        path = create_output(run.result, "embedding", shape, self.dtype, chunk)
        kept, places = np.empty((len(sample), self.shape[1])), np.empty((len(sample), self.width))
        for start in range(0, rows, self.block_rows):
            stop = min(rows, start + self.block_rows)
            distances = self._paths(start, stop)
            coordinates = scaling.coordinates(distances)
            write_whole_chunks(path, coordinates.astype(self.dtype), (start, stop), (0, self.width))
            some = slice(*np.searchsorted(sample, (start, stop)))
            kept[some] = distances[sample[some] - start]
            places[some] = coordinates[sample[some] - start]
            if run.progress:
                run.progress("transform", stop, rows)
        value, error = residual_variance(kept, distances_between(places, self._marks()), rows)
        if not np.isfinite([value, error]).all():
            raise DataError(
                f"rows in the coordinates of {self.result.path} are beyond what floating point holds: its "
                f"projection or mean_squares are damaged. {REMEDY}"
            )
        run.passes += 1
        facts = {
            **run.facts(self.request(), "paths", self.source, fingerprint),
            "residual_variance": value,
            "standard_error": error,
            "sample_rows": len(sample),
        }
        run.describe(facts)
        return facts

    def _scaling(self) -> Scaling:
        projection, means = (np.asarray(self.result[name]) for name in ("projection", "mean_squares"))
        return Scaling(np.asarray(self.result["landmark_eigenvalues"]), projection, means, 0.0)

    def _paths(self, start: int, stop: int) -> Float64:
        """Return the geodesic distances (r, l) of new rows ``start:stop`` from the landmarks.

        The shortest path leads through one of the neighbors of a row; it is infinite if there is none.
        """
        lists, paths = self.lists.result, self.result[NAME]
        indices = np.asarray(lists["indices"][start:stop])
        lengths = np.asarray(lists["distances"][start:stop], np.float64)
        near, step = np.full((stop - start, self.shape[1]), np.inf), self.result.matrix(NAME).row_grid.longest
        for first in range(0, self.shape[0], step):
            here = (indices >= first) & (indices < first + step)
            if not here.any():
                continue
            block = np.asarray(paths[first : first + step], np.float64)
            for place in np.flatnonzero(here.any(axis=0)).tolist():
                rows = np.flatnonzero(here[:, place])
                reach = block[indices[rows, place] - first]
                reach += lengths[rows, place, None]
                near[rows] = np.minimum(near[rows], reach)
        return near

    def _sample(self) -> npt.NDArray[np.int64]:
        rows = self.lists.rows
        if rows <= SAMPLE_ROWS:
            return np.arange(rows)
        drawn = random_numbers(int(self.result.attrs["request"]["seed"]), Purpose.PATH_ROWS)
        return np.sort(drawn.choice(rows, SAMPLE_ROWS, replace=False))

    def _marks(self) -> Float64:
        """(l, d) coordinates of landmarks."""
        landmarks, step = np.asarray(self.result["landmarks"]), self.result.matrix(NAME).row_grid.longest
        marks = np.empty((len(landmarks), self.width))
        for first in range(0, self.shape[0], step):
            here = (landmarks >= first) & (landmarks < first + step)
            if here.any():
                marks[here] = np.asarray(self.result["embedding"][first : first + step])[
                    landmarks[here] - first
                ]
        return marks


def place_task(result: Result, neighbors: object) -> Placement:
    """Check an embedding by isomap and the neighbors of new rows among its rows, and make the task.

    ``neighbors`` is a result of knn, or its path.
    """
    wanted = "the neighbors of new rows where the result is of isomap, as of rf.knn(x, k, queries=new)"
    found = result_of("transform", neighbors, wanted)
    facts, fit = found.attrs, result.attrs
    if facts["kind"] != "knn" or facts["request"].get("queries") is None:
        raise InputError(f"{found.path} has no neighbors of queries: transform takes {wanted}")
    if isinstance(found, ImaginedResult) or isinstance(result, ImaginedResult):
        return Placement(result, StoredLists(found, found.matrix("indices").shape[1]))
    matrix = fit["matrix"]
    if lost := {"name", "fingerprint", "metric"}.difference(matrix):
        raise DataError(f"{result.path} is damaged: its facts lack matrix.{min(lost)}. {REMEDY}")
    if (
        facts["input"]["fingerprint"] != matrix["fingerprint"]
        or facts["request"]["metric"] != matrix["metric"]
    ):
        raise InputError(
            f"{found.path} has neighbors by {facts['request']['metric']} among rows of "
            f"{facts['input']['name']}, but {result.path} is of neighbors by {matrix['metric']} among those "
            f"of {matrix['name']}: search there, by that metric"
        )
    return Placement(result, StoredLists(found, found.matrix("indices").shape[1]))
