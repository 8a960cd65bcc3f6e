"""Rounds of partitions, until enough of the true neighbors are found.

One read collects the sampled rows. Each round then reads the matrix once, and puts its rows into partitions
around other centers. The first round also compares some rows with all others, to measure the recall of every
round. If the recall is too low, one more read compares rows with partitions that their neighbors are in and
they are not; then comes the next round. The number of rounds, and what they find, follows from the rows, the
request and the seed.

The recall is the share of true neighbors that a search has found, and has a confidence interval. A row is
chosen among all with equal chances; of its ``k`` true neighbors ``h`` were found. Neighbors as near
as the farthest true one count, so that a choice among equal distances is no error. What is reported is the
mean of ``h / k`` over some rows, and an interval for the mean over all rows.

Shares of one row are not independent, and near 1 they are far from normal: a normal interval misses the
mean too often there. The interval is that of Clopper and Pearson, for as many independent neighbors as have
the variance that is seen between rows. Few rows may show none by chance: half a row without a hit is added
in the variance.

References
----------
Korn, Graubard, Confidence intervals for proportions with small expected number of positive counts estimated
from survey data, Survey Methodology 24(2), 1998: the effective size of a sample in that interval.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from rankfold.kernels.neighbors.lists import merge_rows
from rankfold.kernels.partitions.visits import choose_visits
from rankfold.methods.kmeans.passes import warm_steps
from rankfold.methods.knn.row_blocks import BlockReader, row_dtype
from rankfold.methods.partitions.assign import AssignRows
from rankfold.methods.partitions.complete import Completed, complete_lists
from rankfold.methods.partitions.files import Found, Lists, Runs, visits_of
from rankfold.methods.partitions.layout import Layout, edges_of
from rankfold.methods.partitions.meet_all import FewRows, without_themselves
from rankfold.methods.partitions.merge import MergeLists, WriteMerged
from rankfold.methods.partitions.refinement import Meetings, PlaceVisitors, SearchVisits
from rankfold.methods.partitions.sample import CollectRows, centers_of, drawn
from rankfold.methods.partitions.search import SearchPartitions
from rankfold.methods.random_keys import Purpose
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.run import Run, values_in
from rankfold.pipeline.machine import one_blas_thread
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

MOST_ROUNDS = 8
"""Number of rounds after which a search ends, whatever its recall is."""


@dataclass(slots=True)
class Rounds:
    """Search by partitions, round by round: its current lists of all rows, and the recall of each round."""

    layout: Layout
    reader: BlockReader
    seed: int
    lists: Lists | None = None
    """Lists of all rows after the last round or its visits; None before."""

    completed: Completed | None = None
    partitions: int = 0
    """Number of partitions of the last round."""

    recall: list[Recall] = field(default_factory=list)
    """Recall after each round and after its visits, in turn."""

    def search(self, run: Run) -> None:
        """Make up to ``MOST_ROUNDS`` rounds, until the recall is reached; then complete short lists."""
        with one_blas_thread():
            sample, rows, ids = self._collect(run)
            truth: tuple[Int64, Float64] | None = None
            for index in range(MOST_ROUNDS):
                few = FewRows(self.reader, rows, self.layout.k) if truth is None else None
                state, runs = self._assign(run, index, self._centers(run, index, sample), few)
                if truth is None:
                    truth = ids, without_themselves(state, ids)[0][:, -1].copy()
                self.partitions = len(state["counts"])
                short = self._search(run, index, runs, state["counts"], truth)
                if not self._is_done():
                    short = self._visit(run, index, runs, state["counts"], truth)
                release(run, runs, visits_of(self.layout, run.scratch, index))
                if self._is_done():
                    break
            if short and self.lists is not None:
                self.completed = complete_lists(run, self.reader, self.layout, self.lists)

    def _is_done(self) -> bool:
        return self.recall[-1].low >= self.layout.min_recall or self.layout.count == 1

    def write(self, run: Run, cut: Cut, *, graph: bool) -> None:
        """Write the lists into the result, whose arrays exist already.

        ``cut`` is that of the rows into panels of whole chunks; ``graph`` is True to write the lists as the
        entries of a sparse matrix, too.
        """
        assert self.lists is not None  # noqa: S101 - there is a round
        run.sweep("write", WriteMerged(cut, self.lists, self.completed, run.result, self.layout.k, graph))

    def facts(self) -> dict[str, Any]:
        """Facts of the result: recall with its interval, and the rounds and partitions that it took."""
        last, means = self.recall[-1], [each.mean for each in self.recall]
        return {
            "recall": last.mean,
            "recall_interval": [last.low, last.high],
            "recall_rows": self.layout.recall_rows,
            "recall_of_rounds": means[::2],
            "recall_of_visits": means[1::2],
            "rounds": len(means[::2]),
            "partitions": self.partitions,
        }

    def warning(self) -> str:
        """Warning if the recall was not reached; empty if it was."""
        last, layout = self.recall[-1], self.layout
        if last.low >= layout.min_recall:
            return ""
        return (
            f"the recall of {layout.recall_rows} rows is {last.mean:.4f}, from {last.low:.4f} to "
            f"{last.high:.4f}, after {len(self.recall[::2])} rounds; min_recall = {layout.min_recall:g}. "
            f"Ask for partitions of more than {layout.rows // layout.count} rows, partition_rows= "
            "(--partition-rows), or for exact neighbors"
        )

    def _collect(self, run: Run) -> tuple[ScratchMatrix, ScratchMatrix, Int64]:
        """Collect in one pass rows for centers, and rows compared with all others, with their numbers."""
        layout, ids = self.layout, sample_ids(self.layout, self.seed)
        matrix = ScratchMatrix(
            run.scratch / "sample.bin", len(ids[0]), layout.source.shape[1], self.reader.dtype
        )
        few = ScratchMatrix(run.scratch / "few.bin", len(ids[1]), layout.source.shape[1], self.reader.dtype)
        run.pass_over_data("sample", CollectRows(self.reader, layout.cut, ids, (matrix, few)))
        return matrix, few, ids[1]

    def _centers(self, run: Run, index: int, sample: ScratchMatrix) -> tuple[Path, int]:
        """Make the centers of round ``index``, from 0; returns the path of their checkpoint file, and their
        number."""
        path = run.part(f"assign-{index + 1:02d}", "centers.part")

        def make() -> State:
            rows = run.load(sample)
            return {"centers": centers_of(rows, self.layout, self.reader.metric, self.seed, index)}

        return path, len(run.prepare(path, make)["centers"])

    def _assign(
        self, run: Run, index: int, centers: tuple[Path, int], few: FewRows | None
    ) -> tuple[State, Runs]:
        runs = Runs.of(self.layout, run.scratch, index, centers[1])
        fold = assign_fold(self.layout, self.reader, (*centers, runs, self.lists), few)
        return run.pass_over_data(f"assign-{index + 1:02d}", fold), runs

    def _search(self, run: Run, index: int, runs: Runs, counts: Int64, truth: tuple[Int64, Float64]) -> int:
        """Find neighbors within partitions, and partitions to visit; returns the number of short lists.

        Those have fewer than k neighbors. ``index`` is the number of the round, from 0; ``counts``
        (partitions,) are numbers of rows. ``truth`` has the numbers (t,) of rows whose true neighbors are
        known, and the distances (t,) of the farthest of these.
        """
        layout = self.layout
        ends = edges_of(counts)
        batches = layout.batches(ends)
        found = Found.of(layout, run.scratch, index, len(batches.panels) - 1)
        fold = SearchPartitions(
            self.reader,
            batches,
            ends,
            layout.cut.panels * runs.each,
            runs,
            found,
            layout.k,
            layout.merges.panels,
            layout.visits,
            later=index > 0,
        )
        self._sweep(run, f"search-{index + 1:02d}", fold)
        visits = visits_of(layout, run.scratch, index)
        return self._merge(run, f"merge-{index + 1:02d}", (batches.panels, found, visits), truth)

    def _visit(self, run: Run, index: int, runs: Runs, counts: Int64, truth: tuple[Int64, Float64]) -> int:
        """Compare rows with partitions that their neighbors are in; returns the number of short lists.

        Arguments are those of ``_search``.
        """
        layout, visits = self.layout, visits_of(self.layout, run.scratch, index)
        assert self.lists is not None  # noqa: S101 - there is a round
        visitors = Runs.of_visitors(layout, run.scratch, index, self.partitions)
        place = PlaceVisitors(self.reader, layout.cut, visits, visitors, self.lists)
        rows, guests = (
            edges_of(counts),
            edges_of(run.pass_over_data(f"visit-{index + 1:02d}", place)["counts"]),
        )
        meetings = Meetings(layout.batches(rows + guests), rows, guests)
        found = Found.of_visitors(layout, run.scratch, index, len(meetings.cut.panels) - 1)
        starts = layout.cut.panels * runs.each, layout.cut.panels * visitors.each
        files = runs, visitors, starts, found
        fold = SearchVisits(self.reader, meetings, *files, layout.k, layout.merges.panels)
        self._sweep(run, f"meet-{index + 1:02d}", fold)
        short = self._merge(run, f"join-{index + 1:02d}", (meetings.batch_starts(), found, None), truth)
        release(run, visitors)
        return short

    def _sweep(self, run: Run, name: str, fold: SearchPartitions | SearchVisits) -> None:
        """Run a sweep over batches of partitions, and add the pairs it compared to the notes of the run."""
        pairs = float(run.sweep(name, fold)["pairs"][0])
        run.notes["row_pairs"] = run.notes.get("row_pairs", 0.0) + pairs

    def _merge(
        self,
        run: Run,
        name: str,
        lists: tuple[Int64, Found, ScratchMatrix | None],
        truth: tuple[Int64, Float64],
    ) -> int:
        """Merge the lists of batches by row, and measure the recall; returns the number of short lists.

        ``lists`` has the position of each batch in the files (batches + 1,), the files, and the file for
        partitions to visit, or None. ``name`` is that of the sweep, ``truth`` that of ``_search``.
        """
        (starts, found, visits), layout = lists, self.layout
        after = Lists.after(layout, run.scratch, name)
        files = starts, found, self.lists, after, visits
        state = run.sweep(name, MergeLists(layout.merges, *files, layout.k, *truth))
        release(run, found, self.lists)
        self.lists = after
        self.recall.append(recall_of(state["hits"], layout.k, layout.rows))
        return int(state["short"][0])


def release(run: Run, *files: Runs | Found | Lists | ScratchMatrix | None) -> None:
    """Free intermediate files that no sweep reads any more."""
    for narrow in values_in(files, ScratchMatrix):
        run.release(narrow)


def sample_ids(layout: Layout, seed: int) -> tuple[Int64, Int64]:
    """Numbers of the sampled rows, ascending: those that centers are made from, and those that are compared
    with all others."""
    return (
        drawn(layout.rows, layout.sample_rows, seed, Purpose.PARTITION_SAMPLE),
        drawn(layout.rows, layout.recall_rows, seed, Purpose.RECALL_ROWS),
    )


def assign_fold(
    layout: Layout, reader: BlockReader, files: tuple[Path, int, Runs, Lists | None], few: FewRows | None
) -> AssignRows:
    """Fold that puts rows into partitions.

    ``files`` has the path of the centers, their number, files to write, and lists of earlier rounds or None;
    ``few`` are rows that are compared with all others, in the first round.
    """
    (centers, count, runs, before), columns = files, layout.source.shape[1]
    seconds = 1e-6 + 4e-11 * columns * (count + (few.count if few else 0))
    shape = count, layout.spill
    return AssignRows(reader, layout.cut, centers, *shape, runs, before, few, row_seconds=seconds)


def warm_partitions(dtype: np.dtype[Any]) -> None:
    """Run the compiled loops of lists, visits, and the steps that make centers once.

    Steps are on rows in the type in which a sample of a matrix of type ``dtype`` is held.
    """
    working = np.dtype(np.float64 if row_dtype(dtype) == np.float64 else np.float32)
    warm_steps(working, working)
    keys, ids = np.full((4, 2), np.inf), np.full((4, 2), 3)
    merge_rows(keys, ids, np.arange(4), other_keys=keys, other_ids=ids)
    choose_visits(ids, np.zeros((4, 2), np.int32), 0, out=np.empty((4, 2), np.int32))


MISSED = 0.05
"""Largest share of samples whose interval does not contain the mean."""

EXTRA_ROWS = 0.5
"""Number of rows without a found neighbor that are added in the variance between rows."""


class Recall(NamedTuple):
    """Mean recall of sampled rows, and an interval that contains that of all rows for 95 % of samples."""

    mean: float
    low: float
    high: float


def recall_of(hits: npt.NDArray[np.int64], k: int, rows: int) -> Recall:
    """Recall from ``hits`` (r,), the numbers of true neighbors found, of ``k`` each, of r sampled rows.

    ``rows`` is the number of rows that they were sampled from; the recall is exact if all were.

    >>> found = recall_of(np.full(100, 15), 15, 10**6)
    >>> found.mean, round(found.low, 2), found.high
    (1.0, 0.96, 1.0)
    """
    shares, count = hits / k, len(hits)
    mean = float(shares.mean())
    if count == rows:
        return Recall(mean, mean, mean)
    seen = count + EXTRA_ROWS
    middle = mean * count / seen
    between = (float(((shares - middle) ** 2).sum()) + EXTRA_ROWS * middle**2) / seen
    trials = count * min(float(k), max(1.0, middle * (1 - middle) / between if between > 0 else 1.0))
    hits_of_them, misses = mean * trials, (1 - mean) * trials
    low = betaincinv(hits_of_them, misses + 1, MISSED / 2) if hits_of_them > 0 else 0.0
    high = betaincinv(hits_of_them + 1, misses, 1 - MISSED / 2) if misses > 0 else 1.0
    return Recall(mean, float(low), float(high))
