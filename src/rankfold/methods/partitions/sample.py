"""Random rows from which partitions are made, and rows whose true neighbors are found, collected in one read.

The drawn rows follow from the seed and the number of rows. Centers come from a few steps of k-means on the
sample. Each round starts from other rows of it, so that no two rounds separate the same neighbors. A fold is
the work of a sweep (one run through the rows) on each panel (rows read at a time).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import Metric
from rankfold.methods.kmeans.start import Sample, nearest, refine
from rankfold.methods.knn.row_blocks import BlockReader
from rankfold.methods.partitions.layout import Layout
from rankfold.methods.random_keys import Purpose
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import DeclaredFold, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

STEPS = 4
"""Number of steps of k-means on the sample: partitions need not be good clusters, but near rows must stay
together."""

LEAST_SEEN = 4
"""Least number of rows of a partition, as estimated from the sample, in multiples of k + 1."""

ROWS_PER_GROUP = 10
"""Number of centers that share a distance bound in the steps of k-means."""


def drawn(rows: int, count: int, seed: int, purpose: Purpose) -> Int64:
    """Numbers (count,), ascending, of random rows out of ``rows``: a function of these arguments."""
    generator = np.random.Generator(np.random.Philox(key=np.array([seed, purpose], np.uint64)))
    chosen: Int64 = np.sort(generator.choice(rows, count, replace=False)).astype(np.int64)
    return chosen


@dataclass(frozen=True, slots=True)
class CollectRows(DeclaredFold):
    """Fold that copies chosen rows of a matrix to intermediate files, one for each set of rows."""

    reader: BlockReader
    cut: Cut
    chosen: tuple[Int64, ...]
    """Row numbers, ascending, of each set of rows to copy."""

    into: tuple[ScratchMatrix, ...]
    """File of each set of rows, in the type that they have in memory."""

    slots: int = 1
    row_seconds: float = 1e-6

    def sums(self) -> Mapping[str, Sum]:
        """``rows`` (1,), the number of rows written."""
        return {"rows": Sum((1,), np.dtype(np.int64))}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step: a panel (rows read at a time), and its chosen rows."""
        rows = self.cut.panel_rows
        most = max(len(each) for each in self.chosen)
        chosen = min(rows, most) * self.reader.columns * self.reader.dtype.itemsize
        return self.reader.memory_bytes(rows) + self.reader.read_bytes(rows) + chosen

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate a panel (rows read at a time)."""
        work = DeclaredFold.workspace(self, device)
        work.panel = self.reader.buffer(self.cut.panel_rows)
        return work

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Read rows ``start:stop``, check that they are finite, and write the chosen ones."""
        # Also read panels without chosen rows: NaN and Inf must be found before partitions are made.
        panel = self.reader.read(work.panel, start, stop, 0)
        for chosen, into in zip(self.chosen, self.into, strict=True):
            first, last = np.searchsorted(chosen, [start, stop]).tolist()
            if last > first:
                _write_rows(into, first, panel.raw, chosen[first:last] - start)
                state["rows"] += last - first


def _write_rows(into: ScratchMatrix, first: int, rows: Array, some: Int64) -> None:
    """Write rows ``rows[some]`` to a file from its row ``first`` on; they are made contiguous.

    Matrices in memory may be stored by columns.
    """
    into.write(first, np.ascontiguousarray(rows[some]))


def centers_of(sample: Array, layout: Layout, metric: int, seed: int, round_index: int) -> Array:
    """Centers of the partitions of round ``round_index``, from 0, made from a ``sample`` (rows, n).

    The sample is split into groups, each of which gets centers in proportion to its rows. Centers of few rows
    are left out, since their partitions could hold fewer rows than a list takes. ``layout`` has the number of
    partitions that is aimed at.

    Returns
    -------
    (partitions, n) in the type of the rows
    """
    key = np.array([seed, Purpose.PARTITION_CENTERS], np.uint64)
    generator = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, round_index]))
    rows: Array = sample.astype(np.float32 if sample.dtype != np.float64 else np.float64)
    if metric == Metric.COSINE:
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
        # Scaled to the mean length of rows, so that integer centers resolve directions as well as rows do.
        factors = np.divide(norms.mean(), norms, out=np.zeros_like(norms), where=norms > 0)
        rows *= factors[:, None].astype(rows.dtype)
    least = LEAST_SEEN * (layout.k + 1) * len(rows) / layout.rows
    heads, labels = _cluster(rows, layout.groups, generator)
    parts = []
    for group in range(len(heads)):
        members = rows[labels == group]
        count = max(1, layout.count * len(members) // len(rows))
        centers, own = _cluster(members, count, generator) if len(members) else (heads[[group]], labels[:0])
        seen = np.bincount(own, minlength=len(centers))
        keep = seen >= min(max(least, 2), seen.max(initial=0))
        parts.append(centers[keep])
    return _as_rows(np.concatenate(parts), sample.dtype)


def _cluster(rows: Array, count: int, generator: np.random.Generator) -> tuple[Float64, Int64]:
    """Centers after a few steps of k-means from ``count`` random rows, (count, n), and the label of each row.

    There are fewer centers if there are fewer rows.
    """
    first = rows[np.sort(generator.choice(len(rows), min(count, len(rows)), replace=False))].astype(
        np.float64
    )
    if len(first) == 1:
        return rows.mean(axis=0, dtype=np.float64)[None], np.zeros(len(rows), np.int64)
    shift = rows.mean(axis=0, dtype=np.float64).astype(rows.dtype)
    groups = max(1, min(len(first) // ROWS_PER_GROUP, rows.shape[1] // 16))
    centers, _ = refine(Sample(rows, np.ones(len(rows)), shift), first, groups, STEPS)
    return centers, nearest(rows, centers, shift)[0].astype(np.int64)


def _as_rows(centers: Float64, dtype: np.dtype[Any]) -> Array:
    """Convert centers to the type that rows are compared in, rounded for integers."""
    if dtype.kind == "u":
        centers = np.clip(np.rint(centers), 0, np.iinfo(dtype).max)
    return centers.astype(dtype)
