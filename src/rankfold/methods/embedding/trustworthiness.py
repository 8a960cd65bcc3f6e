"""Trustworthiness and continuity of an embedding, by counting passes over the side that ranks rows.

The neighbors of a row on one side are ranked on the other: the rows nearer than each of them are counted, and
a rank above k adds a penalty. All are integers, so that the sum over all rows equals that of the definition
to the last bit. The sum over a sample of rows is an unbiased estimate with an error of its own.

No array grows with the square of the rows: memory follows the rows that are held at a time, k numbers for
each, and a panel (rows read at once) of the rows that pass.

Trustworthiness of n rows is 1 - 2 / (n k (2 n - 3 k - 1)) times the sum of r(i, j) - k over the k neighbors j
of row i on the other side whose rank r(i, j) exceeds k; continuity exchanges the sides.

References
----------
Venna, Kaski, Neighborhood preservation in nonlinear projection methods: an experimental study, ICANN 2001,
for both measures. They rank all pairs; here only neighbors are ranked, by counting the rows before them.

Plan of counting passes: rows held at a time, reads, memory, tasks.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import sort_lists
from rankfold.methods.chain import Chain, Link
from rankfold.methods.embedding.arguments import EUCLIDEAN, ContinuityArguments, TrustworthinessArguments
from rankfold.methods.embedding.neighbor_ranks import CountNearer, GatherRows, MeasureThresholds, RowGroup
from rankfold.methods.embedding.quality_request import EmbeddingQualityRequest
from rankfold.methods.knn.arguments import KnnArguments
from rankfold.methods.knn.knn import Neighbors
from rankfold.methods.knn.pair_fold import has_bounds
from rankfold.methods.knn.request import NeighborRequest, compared_rows
from rankfold.methods.knn.row_blocks import BlockReader
from rankfold.methods.task import Output
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.selection import select
from rankfold.pipeline.data.source import Source, require_rows
from rankfold.pipeline.engine.blocks import Cut, cut, panel_edges
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.planning.passes import BLAS_BYTES, RESERVE_BYTES, Pass, numbers_of
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import FittedSweeps, TaskFacts, plan_task
from rankfold.pipeline.planning.seconds import NOMINAL_FLOPS, NOMINAL_READ
from rankfold.pipeline.prepare.alike import require_same_rows
from rankfold.pipeline.storage.checkpoint import save_once
from rankfold.pipeline.storage.chunk_writer import create_matrix
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.storage.scratch import NOWHERE

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

PANEL_BYTES = 4 * 2**20
"""Bytes, in float32, of a panel: rows of the matrix by which ranks are counted that are read at once."""

PANEL_ROWS = (512, 8192)
"""Fewest and most rows of a panel, so that there is enough work in a task."""

COUNT_SECONDS = 3e-9
"""Nominal seconds to count a pair of rows, besides those of its product or distance."""

MEASURE_SECONDS = 0.3e-9
"""Nominal seconds to measure one element of a pair, for metrics without bounds by products."""

STREAM_SECONDS = 0.2
"""Least nominal seconds of work of a stream (panels that are counted into one array of counts); where counts
are large, it is twenty times the seconds of writing and merging them."""

MOST_STREAMS = 8192

FEW = 8
"""If the matrix has at least so many times as many rows as there are neighbors to measure distances of, only
these neighbors are read."""


@dataclass(frozen=True, slots=True)
class EmbeddingQuality:
    """Task of trustworthiness or continuity: given neighbors of rows are ranked among all rows of ``source``.

    Neighbors are found on the other side: in the embedding if data rank them, and vice versa.
    """

    source: Source
    parameters: EmbeddingQualityRequest
    sample: Int64 | None
    """(r,) row numbers of the sampled rows, ascending; None if all rows are used."""

    lists: Path | None = None
    """Path of a ``knn`` result with the neighbors of these rows on the other side; None before the search. It
    has k of each row, or k + 1 for a sample, since a row may be among its own neighbors there."""

    @classmethod
    def of(cls, source: Source, parameters: EmbeddingQualityRequest) -> EmbeddingQuality:
        """Check the matrix by which rows are ranked, draw the sample, and make the task."""
        require_rows(source)
        return cls(compared_rows(source, parameters.metric), parameters, parameters.sample())

    @property
    def k(self) -> int:
        """Number of neighbors of each row that are ranked."""
        return self.parameters.k

    @property
    def by_lanes(self) -> bool:
        """True if matrix products bound distances by this metric; else every pair is measured."""
        return has_bounds(self.parameters.code, self.source.shape[1])

    def search(self, neighbor_source: Source, metric: str | Callable[..., float]) -> Neighbors:
        """Task that searches ``neighbor_source``, the other side, for the neighbors of the sampled rows.

        Its result is given to ``with_lists``.
        """
        queries = None if self.sample is None else select(neighbor_source, rows=self.sample, columns=None)
        # A row of a sample may find itself among all rows.
        return Neighbors.of(neighbor_source, queries, _request(self.k + (queries is not None), metric))

    def request(self) -> dict[str, Any]:
        """Everything besides the numbers in ``source`` that determines the measure, as JSON types."""
        if self.lists is None:
            return self.parameters.as_dict()
        facts = Result(self.lists).attrs
        return {**self.parameters.as_dict(), "lists": [facts["input"]["fingerprint"], facts["request"]]}

    def outputs(self) -> tuple[Output, ...]:
        """No arrays: the result has only facts."""
        return ()

    def plan(self, budget: Budget) -> Plan:
        """Plan the passes within a budget."""
        gather = None if self.sample is None else self.gather_fold()
        rows = self.source if gather is None else gather.source

        def folds(count: int) -> tuple[MeasureThresholds, CountNearer]:
            # Planned as if rows were centered, which takes a copy: a sample of rows decides that later.
            group = self.group(rows, np.zeros(self.source.shape[1]), 0, count)
            return self.measure_fold(group, self.source), self.count_fold(group)

        picking = self._picking_bytes(folds(1)[1].cut.panel_rows)
        return plan_embedding_quality(
            ResidentSweeps(self.source, self.parameters, gather, folds, picking), budget
        )

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Count ranks, one group of rows after the other; returns the facts (metadata) of the result.

        Among these are ``value``, ``standard_error``, and ``penalty``: how far ranks exceed k, summed over
        all neighbors of the sampled rows.
        """
        shift, precise = self._neighbors().choose_shift()
        rows = self._open_sample(run)
        total = squares = measured_pairs = 0
        for start, stop in itertools.pairwise(self.edges(run.groups)):
            group = self.group(rows, shift, start, stop, run.scratch)
            thresholds = self._thresholds(run, group)
            fold = self.count_fold(group, thresholds, precise=precise)
            state = run.pass_over_data(f"ranks-{start}-{stop}", fold)
            penalties = self._penalties(state["counts"])
            total += int(penalties.sum())
            squares += sum(penalty * penalty for penalty in penalties.tolist())
            measured_pairs += int(state["measured"][0])
        run.notes["measured_pairs"] = measured_pairs
        value, error = estimate(self.parameters, total, squares)
        facts = {
            **run.facts(
                self.request(), "exact" if self.parameters.exact else "sampled", self.source, fingerprint
            ),
            "passes": len(self.edges(run.groups)) - 1,
            "value": value,
            "standard_error": error,
            "penalty": total,
        }
        run.describe(facts)
        return facts

    def edges(self, groups: int) -> list[int]:
        """First row of each of ``groups`` groups held in memory at a time, and the number of rows."""
        return [self.parameters.rows * i // groups for i in range(groups + 1)]

    def group(
        self, rows: Source, shift: Float64 | None, start: int, stop: int, folder: Path = NOWHERE
    ) -> RowGroup:
        """Group of the rows ``start:stop`` of ``rows`` to hold in memory.

        ``shift`` (d,) is subtracted from rows before they are multiplied, or None. ``folder`` makes the name
        of the group unique to a run.
        """
        reader = BlockReader(rows, self.parameters.code, shift, self.by_lanes)
        return RowGroup(reader, start, stop, f"{folder} {start} {stop}")

    def gather_fold(self, path: Path = NOWHERE) -> GatherRows:
        """Fold that writes the sampled rows to a store of their own at ``path``."""
        sample, columns = select(self.source, rows=self.sample, columns=None), self.source.shape[1]
        row_bytes = columns * self.source.dtype.itemsize
        chunk = min(sample.shape[0], max(1, PANEL_BYTES // row_bytes))
        grid = Grid.regular(sample.shape[0], chunk, splittable=False)
        return GatherRows(cut(grid, row_bytes, 8), sample, path, row_bytes / NOMINAL_READ)

    def measure_fold(self, group: RowGroup, source: Source, thresholds: Path = NOWHERE) -> MeasureThresholds:
        """Fold that measures the distances of held rows from their neighbors.

        ``source`` is the whole matrix, or its rows that are neighbors. ``thresholds`` is the path of a file:
        see ``MeasureThresholds``.
        """
        columns = source.shape[1]
        reader = BlockReader(source, self.parameters.code, None, self.by_lanes)
        row_bytes = columns * source.dtype.itemsize
        pieces = self._cut(source.row_grid, row_bytes / NOMINAL_READ, group.count)
        seconds = row_bytes / NOMINAL_READ + group.count * self.k / source.shape[0] * columns * 1e-9
        return MeasureThresholds(pieces, reader, group, thresholds, self.k, self.by_lanes, seconds)

    def count_fold(
        self, group: RowGroup, thresholds: Path = NOWHERE, *, precise: bool = False
    ) -> CountNearer:
        """Fold that counts, for each neighbor of each held row, the rows that are nearer.

        ``thresholds`` is the path of a file, see ``CountNearer``; ``precise`` asks for products in float64.
        """
        columns = self.source.shape[1]
        reader = BlockReader(self.source, self.parameters.code, group.reader.shift, self.by_lanes)
        pair = COUNT_SECONDS + columns * (2 / NOMINAL_FLOPS[4] if self.by_lanes else MEASURE_SECONDS)
        seconds = columns * self.source.dtype.itemsize / NOMINAL_READ + group.count * pair
        pieces = self._cut(self.source.row_grid, seconds, group.count)
        return CountNearer(pieces, reader, group, thresholds, self.k, self.by_lanes, seconds, precise)

    def _cut(self, grid: Grid, row_seconds: float, count: int) -> Cut:
        """Cut the rows of ``grid`` into panels and streams, for a pass by ``count`` held rows.

        ``row_seconds`` are nominal seconds for each row that passes. There are as many streams as take much
        longer to count than their counts take to write and merge.
        """
        columns = self.source.shape[1]
        edges = panel_edges(grid, int(np.clip(PANEL_BYTES // (4 * columns), *PANEL_ROWS)))
        panels, least = len(edges) - 1, max(STREAM_SECONDS, 20 * count * self.k * 8 / 250e6)
        most = max(1, min(panels, MOST_STREAMS, int(grid.length * row_seconds / least)))
        streams = 1 << (most.bit_length() - 1)
        return Cut(
            edges, np.arange(streams + 1, dtype=np.int64) * panels // streams, int(np.diff(edges).max())
        )

    def _picking_bytes(self, rows: int) -> int:
        """Additional bytes to read ``rows`` separate rows at a time instead of consecutive ones."""
        some = select(self.source, rows=slice(0, None, FEW), columns=None)
        return max(0, some.read_bytes(rows, some.shape[1]) - self.source.read_bytes(rows, some.shape[1]))

    def _neighbors(self) -> Neighbors:
        """A search in ``source`` itself, of which only ``choose_shift`` is used."""
        return Neighbors(self.source, None, _request(self.k, self.parameters.metric))

    def _open_sample(self, run: Run) -> Source:
        """Write the sampled rows to a store of their own, and open it; the matrix itself if all are used."""
        if self.sample is None:
            return self.source
        path = run.scratch / "rows.zarr"
        fold = self.gather_fold(path)
        shape = fold.source.shape
        create_matrix(path, shape, self.source.dtype, (min(fold.cut.panel_rows, shape[0]), shape[1]))
        run.sweep("rows", fold)
        run.require(path)
        return open_source(path)

    def _thresholds(self, run: Run, group: RowGroup) -> Path:
        """Measure the distances of a group of rows from their neighbors and write them; returns the path.

        The file has ``keys`` (values that order rows as distances do) and ``ids``, (rows, k) sorted, and
        ``own`` (rows,), the ids of the held rows. An id is a row number of the matrix.
        """
        name = f"{group.start}-{group.stop}"
        span = slice(group.start, group.stop)
        own = np.arange(group.start, group.stop) if self.sample is None else self.sample[span]
        ids = read_neighbors(self, group.start, own)
        neighbors = np.unique(ids)
        some = FEW * len(neighbors) <= self.source.shape[0]
        source = select(self.source, rows=neighbors, columns=None) if some else self.source
        places = np.argsort(ids, axis=None, kind="stable")
        rows = ids.reshape(-1)[places]
        passing = {"places": places, "passing": np.searchsorted(neighbors, rows) if some else rows}
        names = save_once(run.scratch / f"named-{name}.part", passing)
        keys = run.sweep(f"thresholds-{name}", self.measure_fold(group, source, names))["keys"]
        keys = keys.reshape(ids.shape)
        if not np.isfinite(keys).all():
            raise DataError(
                f"row {own[~np.isfinite(keys).all(axis=1)][0]} of {self.source.name} has neighbors whose "
                "distance leaves the range of float64. Divide the matrix by a large number, and run again"
            )
        sort_lists(keys, ids)
        return save_once(run.scratch / f"thresholds-{name}.part", {"keys": keys, "ids": ids, "own": own})

    def _penalties(self, counts: Int64) -> Int64:
        """(rows,) sum over the k neighbors of a row of how far their ranks exceed k.

        ``counts`` (rows, k) are the numbers of rows nearer than each neighbor.
        """
        if (counts < np.arange(self.k)).any() or counts.max() > self.source.shape[0] - 2:
            raise AssertionError("counts are not those of ranks")
        penalties: Int64 = np.maximum(counts + 1 - self.k, 0).sum(axis=1)
        return penalties


def estimate(parameters: EmbeddingQualityRequest, total: int, squares: int) -> tuple[float, float]:
    """Value and standard error, from the sum of penalties of sampled rows and the sum of their squares.

    With ``r`` of ``m`` rows, drawn without replacement, the sum over all is estimated by ``m/r`` times that
    over the rows drawn. Its variance is ``m^2 (1 - r/m) s^2 / r``, ``s^2`` being that of a row's penalty.
    """
    m, k, r = parameters.of_rows, parameters.k, parameters.rows
    pow2_scale = 2.0 / (m * k * (2.0 * m - 3.0 * k - 1.0))
    if parameters.exact:
        return 1.0 - total * pow2_scale, 0.0
    variance = (r * squares - total * total) / (r * (r - 1))
    return 1.0 - total * m / r * pow2_scale, pow2_scale * m * math.sqrt(variance / r * (1 - r / m))


def read_neighbors(task: EmbeddingQuality, start: int, own: Int64) -> Int64:
    """(r, k) row numbers of the neighbors of rows ``own`` (r,) on the other side, from lists of ``task``.

    ``start`` is the position of the first of these rows in the sample. No row is among its own neighbors.
    """
    assert task.lists is not None  # noqa: S101 - only a plan is made without
    ids: Int64 = np.asarray(Result(task.lists).indices[start : start + len(own)])
    if task.sample is None:
        return ids
    keep = ids != own[:, None]
    keep[keep.all(axis=1), -1] = False  # too many rows are equal to it: it is not in its own list
    others: Int64 = ids[keep].reshape(len(own), task.k)
    return others


def with_lists(task: EmbeddingQuality, lists: Path) -> EmbeddingQuality:
    """Copy of a task with the path of its neighbors, a result of ``knn``: see ``EmbeddingQuality.lists``."""
    return dataclasses.replace(task, lists=lists)


def _request(k: int, metric: str | Callable[..., float]) -> NeighborRequest:
    """Request of a search for the k nearest neighbors of each row."""
    return NeighborRequest.of(KnnArguments(k, metric=metric))  # type: ignore[arg-type]


# The chain ----------------------------------------------------------------------------------------


def trustworthiness_task(x: object, embedding: object, arguments: TrustworthinessArguments) -> Chain:
    """Chain that finds neighbors in the matrix ``embedding``, and ranks them in the matrix ``x``."""
    ranks, neighbors = open_source(x), open_source(embedding)
    return _chain("trustworthiness", ranks, neighbors, arguments.metric, EUCLIDEAN, arguments)


def continuity_task(x: object, embedding: object, arguments: ContinuityArguments) -> Chain:
    """Chain that finds neighbors in the matrix ``x``, and ranks them in the matrix ``embedding``."""
    ranks, neighbors = open_source(embedding), open_source(x)
    return _chain("continuity", ranks, neighbors, EUCLIDEAN, arguments.metric, arguments)


def _chain(
    kind: str,
    rank_source: Source,
    neighbor_source: Source,
    metric: str,
    near: str | Callable[..., float],
    arguments: TrustworthinessArguments | ContinuityArguments,
) -> Chain:
    """Chain that finds neighbors in ``neighbor_source`` by metric ``near``, and ranks them by ``metric``."""
    require_same_rows(neighbor_source, rank_source)
    asked = EmbeddingQualityRequest.of(
        kind, rank_source, neighbor_source, arguments.k, metric, arguments.sample_rows, arguments.seed
    )
    ranks = EmbeddingQuality.of(rank_source, asked)
    search = ranks.search(neighbor_source, near)
    links = (
        Link("neighbors", search),
        Link("ranks", ranks, lambda results: with_lists(ranks, results["neighbors"])),
    )
    return Chain(
        {**ranks.parameters.as_dict(), "lists": [search.source.fingerprint(), search.request()]}, links
    )


FEWEST_ROWS = 1024
"""Fewest rows to hold in memory, if possible: with fewer, a pass is mostly reading, and it is better to use
fewer threads."""

THRESHOLD_BYTES = 16 * 8
"""Bytes for each neighbor of a held row while the leading process measures and sorts their distances."""

SAMPLE_BYTES = 8 * 8
"""Bytes for each sampled row: its row number, and arrays used to read it."""


@dataclass(frozen=True, slots=True)
class ResidentSweeps:
    """Sweeps in which all rows pass groups of rows that are held in memory, for a plan.

    ``folds`` makes both folds for a number of held rows; ``gather`` writes the sample, None if all rows are
    used.
    """

    source: Source
    parameters: EmbeddingQualityRequest
    gather: GatherRows | None
    folds: Callable[[int], tuple[MeasureThresholds, CountNearer]]
    picking_bytes: int
    """Additional bytes for reading separate rows instead of consecutive ones."""

    def segment_bytes(self, rows: int) -> int:
        """Bytes of one thread if ``rows`` rows are held, besides the held rows, which all threads share."""
        measure, count = self.folds(rows)
        most = max(measure.memory_bytes + self.picking_bytes, count.memory_bytes)
        return BLAS_BYTES + max(most, 0 if self.gather is None else self.gather.memory_bytes)

    def peak_bytes(self, rows: int, threads: int) -> int:
        """Upper bound on the memory of a process with this many held rows and threads.

        The leading process, which sorts distances, is included.
        """
        shared_bytes = max(fold.resident_bytes for fold in self.folds(rows))
        leads = rows * self.parameters.k * THRESHOLD_BYTES + BLAS_BYTES
        sample = 0 if self.gather is None else self.parameters.rows * SAMPLE_BYTES
        return RESERVE_BYTES + sample + max(shared_bytes + threads * self.segment_bytes(rows), leads)

    def arrange(self, budget: Budget) -> FittedSweeps:
        """Choose as many threads as fit with a small group, then as few groups of rows as fit.

        With some thousand held rows, a pass counts for much longer than it reads, so threads come first.
        """
        groups, threads = self._groups(budget)
        rows = -(-self.parameters.rows // groups)
        count = self.folds(rows)[1]
        return FittedSweeps(
            passes=_passes(self, rows, groups),
            concurrency=threads,
            peak_bytes=self.peak_bytes(rows, threads),
            driver_bytes=rows * self.parameters.k * THRESHOLD_BYTES,
            checkpoint_bytes=rows * self.parameters.k * 8 * (count.cut.stream_count + groups),
            most_at_once=count.cut.stream_count,
            grain_rows=count.cut.grain_rows,
            panel_rows=count.cut.panel_rows,
            most_passes=groups,
            likely_passes=groups,
            groups=groups,
        )

    def _groups(self, budget: Budget) -> tuple[int, int]:
        rows, have = self.parameters.rows, budget.memory_bytes
        few = min(rows, FEWEST_ROWS)
        threads = min(budget.threads, self.folds(rows)[1].cut.stream_count)
        while threads > 1 and self.peak_bytes(few, threads) > have:
            threads -= 1
        fewest, fits = 0, rows
        while fits - fewest > 1:
            middle = (fewest + fits) // 2
            good = self.peak_bytes(-(-rows // middle), threads) <= have
            fewest, fits = (fewest, middle) if good else (middle, fits)
        return fits, threads


def plan_embedding_quality(sweeps: ResidentSweeps, budget: Budget) -> Plan:
    """Plan the passes of trustworthiness or continuity within a budget.

    Raises
    ------
    MemoryBudgetError
        Even a single row that is held takes more than the budget.
    """
    source, parameters, count = sweeps.source, sweeps.parameters, sweeps.folds(1)[1]
    sample_bytes = 0 if sweeps.gather is None else parameters.rows * count.group.reader.row_bytes
    task_facts = TaskFacts(
        kind=parameters.kind,
        method="exact" if parameters.exact else "sampled",
        source=source,
        dtype=count.passing.dtype,
        orientation="rows",
        rank=parameters.k,
        result_bytes=0,
        scratch_bytes=sample_bytes + parameters.rows * parameters.k * 4 * 8,
        subject=f"{parameters.kind} of {source.shape[0]} rows of {source.shape[1]} numbers",
    )
    return plan_task(task_facts, sweeps, budget, lambda: _way_out(sweeps))


def _passes(sweeps: ResidentSweeps, rows: int, groups: int) -> tuple[Pass, ...]:
    """All sweeps, for ``groups`` groups of ``rows`` held rows.

    They write the sample to a store of its own; then, for each group, they measure the distances of neighbors
    and count nearer rows.
    """
    source, parameters = sweeps.source, sweeps.parameters
    measure, count = sweeps.folds(rows)
    row_bytes, elements = count.passing.bytes_to_read, float(source.shape[0]) * source.shape[1]
    passes = []
    if sweeps.gather is not None:
        size = parameters.rows * source.shape[1] * source.dtype.itemsize
        passes.append(numbers_of("rows", sweeps.gather, size, size, 0.0))
    neighbors = min(source.shape[0], rows * parameters.k)
    flops = 3.0 * rows * parameters.k * source.shape[1]
    for _ in range(groups):
        passes.append(numbers_of("thresholds", measure, neighbors * row_bytes, 0, flops))
        passes.append(numbers_of("ranks", count, source.shape[0] * row_bytes, 0, 2.0 * elements * rows))
    return tuple(passes)


def _way_out(sweeps: ResidentSweeps) -> str:
    source, tallest = sweeps.source, sweeps.folds(1)[1].cut.panel_rows
    if source.row_grid.splittable or source.row_grid.longest != tallest:
        return ""
    return (
        f", or cut the store: its chunks of {tallest} rows must be held whole, and `rankfold import "
        "STORE NEW.zarr` writes one with small chunks"
    )
