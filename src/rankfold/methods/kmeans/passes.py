"""The folds of a clustering: sample rows for a start, one step of Lloyd's, write labels to the result.

A fold is what a pass does with each panel (rows in memory at a time) and each grain of it (rows of one
product): its buffers, the sums that it accumulates, and its step. Scratch holds intermediate files.
``Layout`` has the cut of the rows into panels, and the names of these files.

``KeptRows`` are rows that a pass keeps: those with the smallest keys, and of equal keys the first. The choice
depends only on keys and row numbers, so that any cut of the matrix keeps the same rows. With exponential keys
over weights, ``-log(u) / w``, they are a weighted sample without replacement, drawn in one read without
knowing the sum of all weights.

References
----------
Efraimidis, Spirakis, Weighted random sampling with a reservoir, Information Processing Letters 97(5), 2006:
algorithm A, by logarithms. Cohen, Kaplan, Summarizing data using bottom-k sketches, PODC 2007: the next key
after those kept gives the inclusion probabilities, and these give weights of an unbiased estimate.
"""

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
from rankfold.methods.parts.panels import BAD, Grain, OverPanels, Panels, numbers
from rankfold.methods.parts.row_weights import RowWeights
from rankfold.methods.random_keys import Purpose
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation, View, working_dtype
from rankfold.pipeline.engine.blocks import Cut, cut
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, Constant, DeclaredFold, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

TILE_ROWS = 256
"""Number of rows that the tuned body of ``assign_rows`` processes at a time."""

INT32, FLOAT32 = np.dtype(np.int32), np.dtype(np.float32)


class OverClusters(OverPanels):
    """Base class of the folds of k-means over a matrix: centers, labels, bounds, sums of clusters."""

    __slots__ = ()
    constants: Path
    k: int
    groups: int
    dtype: np.dtype[Any]
    kept: tuple[KeptRows, ...]
    weights: RowWeights | None
    copies: ClassVar[int] = 6
    """Number of copies of the centers that are in memory at once, packed and intermediate."""

    kernels = (assign_rows, own_distances)

    def buffers(self) -> Mapping[str, Buffer]:
        """Centers, and labels, bounds and distances for the rows of one product.

        From ``constants``: centers ``exact`` and ``before`` (k, n), ``groups`` (k,) of centers that share a
        bound, ``shift`` (n,) subtracted from rows. Buffers: ``labels`` (rows, 1), ``bounds`` (rows, 1 +
        groups) of distances, ``distances`` (rows,), squared, from the own center.
        """
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
        """Sums over the rows of each cluster, kept rows, and a count of values that are not finite.

        ``sums`` (k, n) of rows less the shift, ``counts`` (k,) of rows or weights, ``squares`` (1,) squared
        norms, ``moved`` (1,) rows whose label changed.
        """
        k, n = self.k, self.panels.view.short
        sums = {"sums": Sum((k, n)), "counts": Sum((k,)), "squares": Sum((1,)), "moved": Sum((1,))}
        rows = {name: each for kept in self.kept for name, each in kept.sums().items()}
        return {**sums, "bad": BAD, **rows}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides its buffers: copied centers, tiles, converted rows, kept rows, weights."""
        n, rows = self.panels.view.short, self.panels.grain_rows
        tiles = 8 * min(TILE_ROWS, rows) * (n + self.k + 8 + 2 * self.groups)
        lent = self.panels.view.lend(0, 1)
        copied = lent is not None and not lent.flags.c_contiguous
        grain = rows * (n * max(4, self.panels.view.source.dtype.itemsize) * copied + 6 * 8)
        kept = sum(each.count * (2 * n * each.dtype.itemsize + 10 * 8) for each in self.kept)
        weighing = 0 if self.weights is None else self.weights.read_bytes(rows) + 2 * 8 * rows
        return 8 * self.copies * self.k * (n + 4) + tiles + grain + kept + weighing

    @property
    def operand_bytes(self) -> int:
        """Bytes of the largest operand of a matrix product: rows, or centers."""
        return 8 * max(self.longest_side, self.k) * self.panels.view.short

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers for rows and labels, and pack the centers for ``assign_rows``."""
        work = OverPanels.workspace(self, device)
        work.centers = centers_of(work.exact, work.shift, work.groups, work.before)
        return work

    def merge(self, total: State, other: State) -> None:
        """Add ``other``, the sums and kept rows from other rows of the matrix, to ``total``, in place."""
        rows = {name for kept in self.kept for name in kept.names}
        for kept in self.kept:
            kept.join(total, other)
        for name, each in self.sums().items():
            if name not in rows:
                total[name] = each.combine(total[name], other[name])

    def weights_of(self, grain: Grain) -> Float64 | None:
        """Weights (rows,) of the rows of a grain; None if each row counts one."""
        return None if self.weights is None else self.weights.read(grain.first, grain.last)

    def assign(
        self, state: State, work: Workspace, x: Array, weights: Float64 | None, *, whole: bool
    ) -> None:
        """Label rows ``x`` (r, n) by their nearest centers, and add them to sums of clusters in ``state``.

        The first r labels and bounds in the buffers are those of the previous step, and are replaced.
        ``weights`` (r,) are those of the rows, None for one each. ``whole`` is True to add all rows, False to
        move only those whose label changed.
        """
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
    """Fold that draws two samples of rows: one favors rows of small clusters, the other favors rows far from
    some first centers.

    Either alone may miss rows that the other finds. The sizes of both are fixed before anything of the matrix
    is known.

    References
    ----------
    Feldman, Langberg, A unified framework for approximating and clustering data, STOC 2011: the contribution
    of a row to the cost of any centers (its sensitivity) is bounded by its share in the cost of some first
    centers, and its share in its cluster.
    """

    panels: Panels
    constants: Path
    """Checkpoint file with the first centers ``exact``, the same as ``before``, their ``groups``, ``shift``,
    and the ``rarity`` of each: an equal share of rows over the estimated rows of the center."""

    k: int
    """Number of first centers."""

    groups: int
    dtype: np.dtype[Any]
    """Type of products, float32 or float64."""

    kept: tuple[KeptRows, ...]
    """Storage for the sample of all rows, and for that of rows far from the first centers."""

    seed: int
    row_seconds: float
    weights: RowWeights | None = None

    def buffers(self) -> Mapping[str, Buffer]:
        """Buffers of ``OverClusters``, and ``rarity`` (k,): see ``constants``."""
        return {**OverClusters.buffers(self), "rarity": Constant((self.k,), part=self.constants)}

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Label rows ``start:stop`` by the first centers, draw random keys, and keep rows of small keys."""
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
    """Sampling weights of rows, (r,) each, for both samples: of all rows, and of rows far from first centers.

    ``squares`` (r,) are squared distances from the nearest first center, ``rarity`` (r,) is that of this
    center, ``own`` (r,) are weights of the rows: a row of weight w is as likely as w equal rows. Rows at a
    center have weight 0 in the far sample.
    """
    return (1 + rarity, squares) if own is None else ((1 + rarity) * own, squares * own)


@dataclass(frozen=True, slots=True)
class LloydPass(OverClusters):
    """Fold of one Lloyd's step: label rows by the nearest center, and sum the rows of each cluster."""

    panels: Panels
    constants: Path
    """Checkpoint file with centers ``exact``, previous centers ``before`` that the bounds belong to,
    ``groups`` and ``shift``."""

    k: int
    groups: int
    dtype: np.dtype[Any]
    before: tuple[ScratchMatrix, ScratchMatrix] | None
    """Labels and bounds of the previous step; None in the first one."""

    after: tuple[ScratchMatrix, ScratchMatrix]
    whole: bool
    """True to sum all rows, False to sum changes by rows that moved."""

    kept: tuple[KeptRows, ...]
    """Storage for the rows farthest from their centers, if there are empty clusters."""

    row_seconds: float
    weights: RowWeights | None = None

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Label rows ``start:stop``, add them to the sums of clusters, and write labels and bounds."""
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
                # A row of weight zero is not used as a center.
                kept.take(state, -squares if own is None else np.where(own > 0, -squares, np.inf), first, x)


@dataclass(frozen=True, slots=True)
class WriteLabels(DeclaredFold):
    """Fold that copies labels from an intermediate file into the result, in whole chunks."""

    cut: Cut
    labels: ScratchMatrix
    array: Path
    """Path of the array ``labels`` of the result."""

    clusters: int = 0
    """Number of clusters, to count their rows; 0 not to count."""

    slots: int = 1
    row_seconds: float = 1e-8

    def buffers(self) -> Mapping[str, Buffer]:
        """``labels`` (rows, 1) of one chunk of the result, or of several."""
        return {"labels": Buffer((self.cut.panel_rows, 1), INT32)}

    def sums(self) -> Mapping[str, Sum]:
        """``rows`` (1,), the number of rows written; ``counts`` (clusters,) of rows, if they are counted."""
        whole = np.dtype(np.int64)
        counts = {"counts": Sum((self.clusters,), whole)} if self.clusters else {}
        return {"rows": Sum((1,), whole), **counts}

    @property
    def temporary_bytes(self) -> int:
        """Bytes of a step besides its buffer: a padded chunk, or counts of its labels."""
        return (4 if not self.clusters else 8) * self.cut.panel_rows + 8 * self.clusters

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Write labels ``start:stop``, and count them by cluster."""
        labels = work.labels[: stop - start]
        self.labels.read_into(labels, start)
        write_whole_chunks(self.array, labels[:, 0], (start, stop))
        state["rows"] += stop - start
        if self.clusters:
            state["counts"] += np.bincount(labels[:, 0], minlength=self.clusters)


def warm_clusters(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the compiled loops that label rows of the matrix and of a sample once, to compile them."""
    working = working_dtype(dtype)
    warm_steps(numbers(np.zeros(1, dtype)).dtype, working)
    if request["init"] != "custom":
        warm_steps(working, working)


@functools.cache
def warm_steps(dtype: np.dtype[Any], working: np.dtype[Any]) -> None:
    """Take two steps on rows of one type with centers of another, to compile both loops.

    The second step runs another loop, since bounds exclude most pairs of row and center.
    """
    x = np.arange(512 * 4).reshape(512, 4).astype(dtype)
    exact = x[::64].astype(np.float64)
    labels, bounds = np.full(512, -1, np.int32), np.empty((512, 5), np.float32)
    room: dict[str, Any] = {"sums": np.zeros(exact.shape), "counts": np.zeros(8), "squares": np.zeros(1)}
    before = None
    for _ in range(2):
        centers = centers_of(exact, np.zeros(4, working), np.arange(8) // 2, before)
        assign_rows(x, centers, labels=labels, bounds=bounds, **room)
        exact, before = exact + 0.25, exact
    own_distances(x, exact, labels, out=np.empty(512))


CENTERS_PER_GROUP = 4
"""Number of centers that share a lower bound of their distances from a row."""

COLUMNS_PER_GROUP = 16
"""Columns for each bound of a row: storing bounds should cost little compared with reading the row."""

ROWS_PER_CENTER = (4, 256)
"""Fewest and most rows per center in the sample for a start; in between, the sample has ``SAMPLE_BYTES``."""

SAMPLE_BYTES = 32 * 2**20

FEWEST_ROWS = 4000
"""Number of rows that a sample may have at least, however few the centers: it replaces the upper limit that
follows from ``ROWS_PER_CENTER`` where that is lower."""

LABEL_CHUNKS = (2**18, 2**22)
"""Fewest and most labels in a chunk of the result; in between, there are ``TARGET_CHUNKS`` chunks."""

TARGET_CHUNKS = 8192


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of a clustering: a matrix by rows, a number of clusters, and weights."""

    source: Source
    k: int
    weights: RowWeights | None = None
    """Weights of the rows; None for one each."""

    @property
    def view(self) -> View:
        """View of the matrix by rows, whichever side is longer."""
        return View(self.source, Orientation.ROWS)

    @property
    def groups(self) -> int:
        """Largest number of groups of centers, each of which shares a bound of distances."""
        columns = self.source.shape[1]
        return max(1, min(self.k // CENTERS_PER_GROUP, columns // COLUMNS_PER_GROUP))

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in the working type."""
        return self.view.short * self.view.dtype.itemsize

    @property
    def sums_bytes(self) -> int:
        """Bytes of the sums (k, n) and counts (k,) of clusters."""
        return 8 * self.k * (self.view.short + 1)

    def panels(self, slots: int, *, sums_bytes: int = 0) -> Panels:
        """Panels of rows in their stored type, which kernels read directly; ``slots`` buffers are reused.

        ``sums_bytes`` are bytes of the sums of a pass, for the cut, if those are larger than usual.
        """
        view = self.view
        pieces = cut(view.grid, self.row_bytes, max(self.sums_bytes, sums_bytes))
        return Panels(view, pieces, slots, view.source.dtype, borrows=True)

    @property
    def row_seconds(self) -> float:
        """Nominal seconds for a row in a pass."""
        return 1e-9 * self.view.short + 2e-11 * self.view.short * self.k

    @property
    def sample(self) -> tuple[KeptRows, KeptRows]:
        """Storage for two samples drawn by one pass: of all rows, and of rows far from the first centers.

        Each has one row more than is used: the key of that row gives the sampling probabilities.
        """
        rows, columns = self.source.shape
        fewest, most = (each * self.k for each in ROWS_PER_CENTER)
        wanted = max(fewest, min(max(most, FEWEST_ROWS), SAMPLE_BYTES // self.row_bytes))
        return (
            KeptRows(min(rows, wanted) + 1, columns, self.view.dtype, "any"),
            KeptRows(min(rows, wanted // 2) + 1, columns, self.view.dtype, "far"),
        )

    def labels(self, folder: Path, index: int) -> ScratchMatrix:
        """Intermediate file, in ``folder``, for the labels (rows, 1) of step ``index``."""
        return ScratchMatrix(folder / f"labels-{index:04d}.bin", self.view.long, 1, np.dtype(np.int32))

    def bounds(self, folder: Path, index: int, groups: int) -> ScratchMatrix:
        """Intermediate file, in ``folder``, for the distance bounds (rows, 1 + groups) of step ``index``.

        The first column is an upper bound to a row's own center, the others are lower bounds to each group of
        centers.
        """
        path = folder / f"bounds-{index:04d}.bin"
        return ScratchMatrix(path, self.view.long, 1 + groups, np.dtype(np.float32))

    @property
    def label_cut(self) -> Cut:
        """Cut of the labels into chunks of the result."""
        rows = self.view.long
        chunk = min(rows, max(LABEL_CHUNKS[0], min(rows // TARGET_CHUNKS, LABEL_CHUNKS[1])))
        return cut(Grid.regular(rows, chunk, splittable=False), 4, 8)


def working_type(layout: Layout, sample: Any) -> np.dtype[Any]:
    """Type for products of rows: float64 if squares in ``sample``, an array of rows, would leave the range of
    float32, else the working type."""
    sizes = np.abs(sample)
    largest = float(sizes.max(initial=0.0))
    in_range = largest == 0 or SMALLEST_NUMBER < largest < LARGEST_NUMBER
    return layout.view.dtype if in_range else np.dtype(np.float64)


SMALLEST_NUMBER, LARGEST_NUMBER = 1e-12, 1e15
"""Between these sizes of the largest number of a sample, float32 holds squares and their sums."""


Int64 = npt.NDArray[np.int64]

NOBODY = np.iinfo(np.int64).max
"""Row number that stands for no row, where fewer rows were kept than there is storage for."""

KEY_TILE_ROWS = 1024


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Storage for the ``count`` rows with the smallest keys, with these keys and the row numbers.

    The arrays are among the sums that a pass over the matrix accumulates, its ``State``. ``columns`` and
    ``dtype`` are those of the rows.
    """

    count: int
    columns: int
    dtype: np.dtype[Any]
    name: str = "kept"
    """Prefix of the names of the three arrays, unique among the sums of a pass."""

    @property
    def names(self) -> tuple[str, str, str]:
        """Names, in a state, of the arrays of keys, row numbers, and rows."""
        return f"{self.name}_keys", f"{self.name}_ids", f"{self.name}_rows"

    def sums(self) -> dict[str, Sum]:
        """Arrays to accumulate, by name: keys (count,), row numbers (count,), and rows (count, columns).

        ``join`` merges those of two states, since each array depends on the others.
        """
        shape = (self.count,)
        keys = Sum(shape, empty=self._no_keys)
        ids = Sum(shape, np.dtype(np.int64), self._no_ids)
        return dict(zip(self.names, (keys, ids, Sum((self.count, self.columns), self.dtype)), strict=True))

    def _no_keys(self) -> Float64:
        return np.full(self.count, np.inf)

    def _no_ids(self) -> Int64:
        return np.full(self.count, NOBODY)

    def take(self, state: State, keys: Float64, first: int, x: Array) -> None:
        """Keep in ``state`` those of rows ``x`` (r, columns) whose ``keys`` (r,) are among the smallest.

        ``first`` is the number of the first of these rows in the matrix.
        """
        some = np.flatnonzero(keys <= state[self.names[0]][-1])
        if some.size:
            # Most rows of a first grain are dropped before they are copied.
            some = some[np.argsort(keys[some], kind="stable")[: self.count]]
            self._join(state, keys[some], some + first, x[some])

    def join(self, total: State, other: State) -> None:
        """Merge the kept rows of another state, from other rows of the matrix, into ``total``, in place."""
        keys, ids, rows = (other[name] for name in self.names)
        self._join(total, keys, ids, rows)

    def _join(self, state: State, keys: Float64, ids: Int64, rows: Array) -> None:
        own_keys, own_ids, own_rows = (state[name] for name in self.names)
        all_keys, all_ids = np.concatenate([own_keys, keys]), np.concatenate([own_ids, ids])
        order = np.lexsort((all_ids, all_keys))[: self.count]
        own = order < self.count
        kept = np.empty_like(own_rows)
        kept[own] = own_rows[order[own]]
        kept[~own] = rows[order[~own] - self.count]
        state |= zip(self.names, (all_keys[order], all_ids[order], kept), strict=True)

    def held(self, state: State) -> tuple[Float64, Int64, Array]:
        """Kept keys (c,), row numbers (c,) and rows (c, columns), ordered by key; c is at most ``count``."""
        keys, ids, rows = (state[name] for name in self.names)
        count = int((ids != NOBODY).sum())
        return keys[:count], ids[:count], rows[:count]


def exponentials(seed: int, purpose: int, start: int, stop: int) -> Float64:
    """(stop - start,) exponential random numbers for rows ``start:stop``.

    Each is a function of only (seed, purpose, row). Whole tiles of 1024 rows are drawn at a time, as by
    ``gaussian_rows``.
    """
    out = np.empty(stop - start)
    for tile in range(start // KEY_TILE_ROWS, -(-stop // KEY_TILE_ROWS)):
        bits = np.random.Philox(key=np.array([seed, purpose], np.uint64), counter=[0, 0, 0, tile])
        numbers = -np.log1p(-np.random.Generator(bits).random(KEY_TILE_ROWS))
        first, last = max(start, tile * KEY_TILE_ROWS), min(stop, (tile + 1) * KEY_TILE_ROWS)
        out[first - start : last - start] = numbers[
            first - tile * KEY_TILE_ROWS : last - tile * KEY_TILE_ROWS
        ]
    return out
