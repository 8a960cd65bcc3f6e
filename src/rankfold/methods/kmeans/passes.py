"""The folds of a clustering: rows that a start is made from, a step of Lloyd's, labels into the result."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rankfold.kernels.clustering.far_rows import own_distances
from rankfold.kernels.clustering.nearest_centers import assign_rows, centers_of
from rankfold.methods.kmeans.kept_rows import KeptRows, exponentials
from rankfold.methods.parts.finite import BAD
from rankfold.methods.parts.panels import Grain, OverPanels, Panels, numbers
from rankfold.methods.parts.row_weights import RowWeights
from rankfold.methods.random_keys import Purpose
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, Constant, DeclaredFold, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

TILE_ROWS = 256
"""Rows that the tuned body of ``assign_rows`` takes at a time."""

INT32, FLOAT32 = np.dtype(np.int32), np.dtype(np.float32)


class OverClusters(OverPanels):
    """What both folds over the matrix share: constants, labels, what kernels take besides."""

    __slots__ = ()
    constants: Path
    k: int
    groups: int
    dtype: np.dtype[Any]
    kept: tuple[KeptRows, ...]
    weights: RowWeights | None
    copies: ClassVar[int] = 6
    """Of the centers, as they are packed and in between."""

    kernels = (assign_rows, own_distances)

    def buffers(self) -> Mapping[str, Buffer]:
        """Centers, and what is known of the rows of a grain."""
        k, n, rows, part = self.k, self.panels.view.short, self.panels.grain_rows, self.constants
        return {
            "exact": Constant((k, n), part=part),
            "before": Constant((k, n), part=part),
            "groups": Constant((k,), np.dtype(np.int64), part),
            "shift": Constant((n,), self.dtype, part),
            "labels": Buffer((rows, 1), INT32),
            "bounds": Buffer((rows, 1 + self.groups), FLOAT32),
            "distances": Buffer((rows,)),
        }

    def sums(self) -> Mapping[str, Sum]:
        """Of clusters; rows that are kept; what has no place."""
        k, n = self.k, self.panels.view.short
        sums = {"sums": Sum((k, n)), "counts": Sum((k,)), "squares": Sum((1,)), "moved": Sum((1,))}
        rows = {name: each for kept in self.kept for name, each in kept.sums().items()}
        return {**sums, "bad": BAD, **rows}

    @property
    def beside_bytes(self) -> int:
        """Centers as they are packed and in between, tiles, and a grain in other types or kept from."""
        n, rows = self.panels.view.short, self.panels.grain_rows
        tiles = 8 * min(TILE_ROWS, rows) * (n + self.k + 8 + 2 * self.groups)
        lent = self.panels.view.lend(0, 1)
        copied = lent is not None and not lent.flags.c_contiguous
        grain = rows * (n * max(4, self.panels.view.source.dtype.itemsize) * copied + 6 * 8)
        keeping = sum(each.count * (2 * n * each.dtype.itemsize + 10 * 8) for each in self.kept)
        weighing = 0 if self.weights is None else self.weights.read_bytes(rows) + 2 * 8 * rows
        return 8 * self.copies * self.k * (n + 4) + tiles + grain + keeping + weighing

    @property
    def operand_bytes(self) -> int:
        """Largest operand of a product: rows, or centers."""
        return 8 * max(self.longest_side, self.k) * self.panels.view.short

    def workspace(self, device: Device = HOST) -> Workspace:
        """Buffers and panels, and centers as the kernel takes them."""
        work = OverPanels.workspace(self, device)
        work.centers = centers_of(work.exact, work.shift, work.groups, work.before)
        return work

    def merge(self, total: State, other: State) -> None:
        """Join the sums of two streams, and the rows that both have kept."""
        rows = {name for kept in self.kept for name in kept.names}
        for kept in self.kept:
            kept.join(total, other)
        for name, each in self.sums().items():
            if name not in rows:
                total[name] = each.combine(total[name], other[name])

    def weights_of(self, grain: Grain) -> Float64 | None:
        """What the rows of a grain count."""
        return None if self.weights is None else self.weights.read(grain.first, grain.last)

    def assign(
        self, state: State, work: Workspace, x: Array, weights: Float64 | None, *, whole: bool
    ) -> None:
        """Label the rows of a grain, from the labels and bounds in the buffers."""
        rows = len(x)
        squares = np.zeros(1)
        state["moved"] += assign_rows(
            x,
            work.centers,
            labels=work.labels[:rows, 0],
            bounds=work.bounds[:rows],
            sums=state["sums"],
            counts=state["counts"],
            squares=squares,
            weights=weights,
            whole=whole,
        )
        state["squares"] += squares


@dataclass(frozen=True, slots=True)
class SamplePass(OverClusters):
    """Fold that samples rows twice: any, likelier of clusters of few; and the likelier the farther they are
    from some first centers.

    Either alone may miss what the other finds, and how many rows either is to have does not depend on what
    is known of the matrix before.

    References
    ----------
    Feldman, Langberg, A unified framework for approximating and clustering data, STOC 2011: what a row may
    add to the cost of any centers is bounded by its share in that of some first ones, and in its cluster.
    """

    panels: Panels
    constants: Path
    """A part with the first centers ``exact``, once more as ``before``, their ``groups``, and ``shift``;
    and the ``rarity`` of each, the rows of an even share over those that it is thought to have."""

    k: int
    """First centers."""

    groups: int
    dtype: np.dtype[Any]
    """Working type."""

    kept: tuple[KeptRows, ...]
    """Rows anywhere, and far ones."""

    seed: int
    row_seconds: float
    weights: RowWeights | None = None

    def buffers(self) -> Mapping[str, Buffer]:
        """How rare each cluster is, besides."""
        return {**OverClusters.buffers(self), "rarity": Constant((self.k,), part=self.constants)}

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Take in a panel, grain by grain."""
        for grain in self.panels.grains(work.panels, start, stop, slot):
            x, rows, first = numbers(grain.raw), grain.last - grain.first, grain.first
            labels, squares, own = work.labels[:rows], work.distances[:rows], self.weights_of(grain)
            labels[...] = -1
            self.assign(state, work, x, own, whole=True)
            own_distances(x, work.exact, labels[:, 0], out=squares)
            if not self.is_finite(state, work, grain, squares):
                continue
            likely = likelihoods(squares, work.rarity[labels[:, 0]], own)
            for kept, purpose, weights in zip(self.kept, PURPOSES, likely, strict=True):
                with np.errstate(divide="ignore"):
                    keys = exponentials(self.seed, purpose, first, grain.last) / weights
                kept.take(state, keys, first, x)


PURPOSES = (Purpose.CLUSTER_SAMPLE, Purpose.CLUSTER_FAR_SAMPLE)


def likelihoods(squares: Float64, rarity: Float64, own: Float64 | None) -> tuple[Float64, Float64]:
    """Weights that rows are sampled by, either time; no row that is at a center counts as far.

    A row that counts more is as likely as so many that are equal.
    """
    return (1 + rarity, squares) if own is None else ((1 + rarity) * own, squares * own)


@dataclass(frozen=True, slots=True)
class LloydPass(OverClusters):
    """Fold of one step: labels by the nearest center, and sums that the next centers follow from."""

    panels: Panels
    constants: Path
    """A part with centers ``exact`` and those ``before``, which bounds are for; ``groups`` and ``shift``."""

    k: int
    groups: int
    dtype: np.dtype[Any]
    before: tuple[ScratchMatrix, ScratchMatrix] | None
    """Labels and bounds of the step before; nothing at first."""

    after: tuple[ScratchMatrix, ScratchMatrix]
    whole: bool
    """Whether all rows are summed, or those that have moved."""

    kept: tuple[KeptRows, ...]
    """Room for the rows that are farthest from their centers, if clusters are without rows."""

    row_seconds: float
    weights: RowWeights | None = None

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Take in a panel, grain by grain."""
        for grain in self.panels.grains(work.panels, start, stop, slot):
            x, rows, first = numbers(grain.raw), grain.last - grain.first, grain.first
            buffers, own = (work.labels[:rows], work.bounds[:rows]), self.weights_of(grain)
            if self.before is None:
                buffers[0][...] = -1
            else:
                for buffer, scratch in zip(buffers, self.before, strict=True):
                    work.device.fill(buffer, functools.partial(scratch.read_into, start=first))
            self.assign(state, work, x, own, whole=self.whole)
            if self.whole and not self.is_finite(state, work, grain, state["squares"]):
                state["squares"][:] = 0
                continue
            for buffer, scratch in zip(buffers, self.after, strict=True):
                work.device.send(buffer, functools.partial(scratch.write, first))
            for kept in self.kept:
                squares = work.distances[:rows]
                own_distances(x, work.exact, buffers[0][:, 0], out=squares)
                # What counts nothing is no place for a center.
                kept.take(state, -squares if own is None else np.where(own > 0, -squares, np.inf), first, x)


@dataclass(frozen=True, slots=True)
class WriteLabels(DeclaredFold):
    """Fold that writes labels from scratch into the result, by whole chunks."""

    cut: Cut
    labels: ScratchMatrix
    array: Path
    clusters: int = 0
    """Clusters whose rows are counted; 0 for none."""

    slots: int = 1
    row_seconds: float = 1e-8

    def buffers(self) -> Mapping[str, Buffer]:
        """The labels of a chunk."""
        return {"labels": Buffer((self.cut.panel_rows, 1), INT32)}

    def sums(self) -> Mapping[str, Sum]:
        """Rows that were written, and those of each cluster."""
        whole = np.dtype(np.int64)
        counts = {"counts": Sum((self.clusters,), whole)} if self.clusters else {}
        return {"rows": Sum((1,), whole), **counts}

    @property
    def beside_bytes(self) -> int:
        """A chunk that is filled up, or whose labels are counted."""
        return (4 if not self.clusters else 8) * self.cut.panel_rows + 8 * self.clusters

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Write some labels."""
        labels = work.labels[: stop - start]
        self.labels.read_into(labels, start)
        write_whole_chunks(self.array, labels[:, 0], (start, stop))
        state["rows"] += stop - start
        if self.clusters:
            state["counts"] += np.bincount(labels[:, 0], minlength=self.clusters)
