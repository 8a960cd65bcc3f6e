"""New rows in a spectral embedding by Nystrom's formula: a step of the walk on the graph.

An eigenvector of a walk is at every vertex the mean over its neighbors, divided by the eigenvalue. The
coordinates of a new row are that mean over its neighbors: those of a vertex that has these neighbors and is a
neighbor of none. A row at distance 0 from one of the graph takes its coordinates.

References
----------
Bengio, Paiement, Vincent, Delalleau, Le Roux, Ouimet, Out-of-sample extensions for LLE, Isomap, MDS,
eigenmaps, and spectral clustering, NIPS 16, 2003. Coifman, Lafon, Diffusion maps, Applied and Computational
Harmonic Analysis 21, 2006, for weights that are divided by densities.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.fuzzy_graph.lists import BLOCK_BYTES
from rankfold.methods.fuzzy_graph.new_rows import NewNeighbors, in_chunks, means_of_neighbors
from rankfold.methods.parts.outputs import create_output
from rankfold.methods.task import Output, count
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.planning.passes import RESERVE_BYTES, Pass
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import FittedSweeps, FixedSweeps, TaskFacts, plan_task
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.storage.run_directory import digest

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Extension:
    """Task of placing new rows in the spectral embedding of ``result``, by their neighbors among its rows."""

    result: Result
    neighbors: NewNeighbors

    @property
    def source(self) -> Source:
        """(new rows, k) distances of new rows to their neighbors."""
        return self.neighbors.lists.distances

    @property
    def width(self) -> int:
        """Number of dimensions of the embedding."""
        return int(self.result.attrs["request"]["n_components"])

    @property
    def is_divided(self) -> bool:
        """True if weights of the graph are divided by densities: ``alpha`` is not 0."""
        return bool(self.result.attrs["request"].get("alpha", 0))

    def request(self) -> dict[str, Any]:
        """Everything besides the distances in ``source`` that determines the coordinates, as JSON types."""
        facts = self.result.attrs
        made_by = digest([facts["request"], facts["input"]["fingerprint"]])
        what = {"kind": "transform", "of": facts["kind"], "rank": self.width, "result": made_by}
        return {**what, **self.neighbors.request()}

    def outputs(self) -> tuple[Output, ...]:
        """Declare the one array of the result, ``embedding``: coordinates (new rows, d) in float64."""
        rows = self.neighbors.lists.rows
        chunks = count(rows, self.neighbors.chunk_rows)
        return (Output("embedding", (rows, self.width), np.dtype(np.float64), chunks),)

    def plan(self, budget: Budget) -> Plan:
        """Plan of one pass over the new rows."""
        rows, new, lists = (
            self.result.matrix("embedding").shape[0],
            self.source.shape[0],
            self.neighbors.lists,
        )
        block = BLOCK_BYTES // 8 * (40 + 24 * 8 * self.width // lists.k)
        written = 3 * 8 * (self.neighbors.chunk_rows + BLOCK_BYTES // (8 * lists.k)) * self.width
        memory = 8 * rows * (self.width + 1) + 4 * lists.chunk_bytes + block + written
        reads, writes = 16 * new * lists.k, 8 * new * self.width
        work = float(new * lists.k * (600 + 4 * self.width))
        sweep = Pass("transform", "matrix", reads, writes, work, memory, 1, 1, blas_bytes=0)
        kind = self.result.attrs["kind"]
        task_facts = TaskFacts(
            "transform",
            "nystrom",
            self.source,
            np.dtype(np.float64),
            "rows",
            self.width,
            result_bytes=writes,
            subject=f"transform of {new} rows by {kind} of {rows}",
            details=(("neighbors", f"{lists.k} of each row"),),
        )
        fitted = FittedSweeps((sweep,), 1, RESERVE_BYTES + memory, memory, 0, 1, new, new, 1, 1)
        return plan_task(task_facts, FixedSweeps(fitted), budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Compute and write coordinates of new rows; returns the facts (metadata) of the result.

        An interrupted run starts over.
        """
        rows, width, chunk_rows = self.source.shape[0], self.width, self.neighbors.chunk_rows
        embedding = np.asarray(self.result["embedding"][:], np.float64)
        density = np.asarray(self.result["density"][:]) if self.is_divided else np.ones(1)
        path = create_output(run.result, "embedding", (rows, width), np.float64, (chunk_rows, width))
        spread = np.zeros(2)
        for first, places in in_chunks(self._places(embedding, density, spread), chunk_rows):
            write_whole_chunks(path, places, (first, first + len(places)), (0, width))
            if run.progress:
                run.progress("transform", first + len(places), rows)
        run.passes += 1
        if self.neighbors.doubt:
            run.warnings.append(self.neighbors.doubt)
        with np.errstate(over="ignore"):
            scale = float((embedding * embedding).mean())
        if not np.isfinite(scale):
            raise DataError(
                f"{self.result.path} is damaged: squares of its embedding leave the range of float64. Make "
                "it again"
            )
        error = math.sqrt(spread[0] / (rows * width * scale)) if scale else 0.0
        facts = {
            **run.facts(self.request(), "nystrom", self.source, fingerprint),
            "standard_error": error,
            "rows_of_the_fit": len(embedding),
            "rows_of_the_graph": int(spread[1]),
        }
        run.describe(facts)
        return facts

    def _places(self, embedding: Float64, density: Float64, spread: Float64) -> Iterator[Float64]:
        """Yield coordinates of new rows, (r, d), a block of rows at a time.

        Parameters
        ----------
        embedding : (n, d) float64
            Coordinates of the rows of the graph.
        density : (n,) float64
            Divisors of weights; not used if weights are not divided.
        spread : (2,) float64, added to
            Sum of squares of standard errors of coordinates, as means over neighbors; and number of new rows
            that are rows of the graph.
        """
        values = self._eigenvalues()
        for indices, weights, is_there in self.neighbors.blocks():
            shares = weights.astype(np.float64)
            shares[shares.sum(axis=1) == 0, 0] = 1  # too far from all for any weight: take the nearest alone
            if self.is_divided:
                shares /= density[indices]
            shares /= shares.sum(axis=1)[:, None]
            shares[is_there] = np.eye(1, shares.shape[1])
            places = means_of_neighbors(embedding, indices, shares)
            for column in range(indices.shape[1]):
                apart = shares[:, column, None] * (embedding[indices[:, column]] - places)
                spread[0] += float(((apart / values) ** 2).sum())
            places /= np.where(is_there[:, None], 1.0, values)
            spread[1] += is_there.sum()
            yield places

    def _eigenvalues(self) -> Float64:
        """(d,) eigenvalues of the walk; ``InputError`` if one is no larger than its possible error."""
        facts, values = self.result.attrs, np.asarray(self.result["eigenvalues"], np.float64)
        if facts["kind"] == "spectral":
            values = 1 - values
        unusable = values <= np.asarray(self.result["error_estimates"])
        if unusable.any():
            most = int(unusable.argmax())
            raise InputError(
                f"component {most + 1} of {self.result.path} belongs to an eigenvalue of the walk of "
                f"{values[most]:.2g}: a step forgets it, and new rows have no coordinate in it. Make "
                f"{facts['kind']} with n_components {most}"
                if most
                else f"no component of {self.result.path} belongs to a positive eigenvalue of the walk: its "
                "graph says nothing of new rows"
            )
        return values


def extension_task(result: Result, neighbors: object) -> Extension:
    """Task that places new rows in the embedding of ``result``, of spectral or diffusion_map.

    ``neighbors`` is a result of knn, or its path, with the neighbors of the new rows among the embedded rows.
    """
    rows = result.matrix("embedding").shape[0]
    return Extension(result, NewNeighbors.of(result, rows, neighbors))  # type: ignore[arg-type]
