"""Rounds of partitions, until enough of the true neighbors are found.

One read draws rows by number. Each round then reads the matrix once, and puts its rows into partitions
around other centers; the first also lets some rows meet all others, by which every round is judged. Which
rounds are made, and what they find, follows from the rows, the request and the seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.knn.row_blocks import BlockReader
from rankfold.methods.partitions.assign import AssignRows
from rankfold.methods.partitions.complete import Completed, complete_lists
from rankfold.methods.partitions.files import Found, Lists, Runs
from rankfold.methods.partitions.layout import Layout
from rankfold.methods.partitions.meet_all import FewRows, without_themselves
from rankfold.methods.partitions.merge import MergeLists, WriteMerged
from rankfold.methods.partitions.recall import Recall, recall_of
from rankfold.methods.partitions.sample import CollectRows, centers_of, drawn
from rankfold.methods.partitions.search import SearchPartitions
from rankfold.methods.random_keys import Purpose
from rankfold.pipeline.blas import one_blas_thread
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.run import Run, narrows_of
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

MOST_ROUNDS = 8
"""After which a search ends, whatever its recall is."""


@dataclass(slots=True)
class Rounds:
    """A search by partitions under way."""

    layout: Layout
    reader: BlockReader
    seed: int
    lists: Lists | None = None
    """Of all rows, after the last round."""

    completed: Completed | None = None
    partitions: int = 0
    """Of the last round."""

    recall: list[Recall] = field(default_factory=list)
    """After each round."""

    def search(self, run: Run) -> None:
        """Rounds until the recall is reached, or there are as many as there may be."""
        with one_blas_thread():
            sample, rows, ids = self._collect(run)
            truth: tuple[Int64, Float64] | None = None
            short = 0
            for index in range(MOST_ROUNDS):
                few = FewRows(self.reader, rows, self.layout.k) if truth is None else None
                state, runs = self._assign(run, index, self._centers(run, index, sample), few)
                if truth is None:
                    truth = ids, without_themselves(state, ids)[0][:, -1].copy()
                self.partitions = len(state["counts"])
                merged = self._search(run, index, runs, state["counts"], truth)
                short = int(merged["short"][0])
                self.recall.append(recall_of(merged["hits"], self.layout.k, self.layout.rows))
                if self.recall[-1].low >= self.layout.min_recall or self.layout.count == 1:
                    break
            if short and self.lists is not None:
                self.completed = complete_lists(run, self.reader, self.layout, self.lists)

    def write(self, run: Run, cut: Cut, *, graph: bool) -> None:
        """Lists into the result, whose arrays are there."""
        assert self.lists is not None  # noqa: S101 - there is a round
        run.sweep("write", WriteMerged(cut, self.lists, self.completed, run.result, self.layout.k, graph))

    def facts(self) -> dict[str, Any]:
        """How many of the true neighbors were found, with the interval, and what it took."""
        last = self.recall[-1]
        return {
            "recall": last.mean,
            "recall_interval": [last.low, last.high],
            "recall_rows": self.layout.recall_rows,
            "recall_of_rounds": [each.mean for each in self.recall],
            "rounds": len(self.recall),
            "partitions": self.partitions,
        }

    def warning(self) -> str:
        """What is said where the recall was not reached."""
        last = self.recall[-1]
        if last.low >= self.layout.min_recall:
            return ""
        return (
            f"the recall of {self.layout.recall_rows} rows is {last.mean:.4f}, from {last.low:.4f} to "
            f"{last.high:.4f}, after {len(self.recall)} rounds; min_recall = {self.layout.min_recall:g}. Ask "
            f"for partitions of more than {self.layout.rows // self.layout.count} rows, partition_rows= "
            "(--partition-rows), or for exact neighbors"
        )

    def _collect(self, run: Run) -> tuple[ScratchMatrix, ScratchMatrix, Int64]:
        """Rows that centers are made from, those that meet all others, and the numbers of these."""
        layout, ids = self.layout, sample_ids(self.layout, self.seed)
        matrix = ScratchMatrix(
            run.scratch / "sample.bin", len(ids[0]), layout.source.shape[1], self.reader.dtype
        )
        few = ScratchMatrix(run.scratch / "few.bin", len(ids[1]), layout.source.shape[1], self.reader.dtype)
        run.pass_over_data("sample", CollectRows(self.reader, layout.cut, ids, (matrix, few)))
        return matrix, few, ids[1]

    def _centers(self, run: Run, index: int, sample: ScratchMatrix) -> tuple[Path, int]:
        """A part with centers, and how many there are."""
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

    def _search(self, run: Run, index: int, runs: Runs, counts: Int64, truth: tuple[Int64, Float64]) -> State:
        layout = self.layout
        ends = np.concatenate([[0], np.cumsum(counts)])
        batches = layout.batches(ends)
        found = Found.of(layout, run.scratch, index, len(batches.panels) - 1)
        starts = layout.cut.panels * layout.spill
        files = starts, runs, found
        edges, later = layout.merges.panels, index > 0
        fold = SearchPartitions(self.reader, batches, ends, *files, layout.k, edges, later=later)
        tally = run.sweep(f"search-{index + 1:02d}", fold)
        run.notes["row_pairs"] = run.notes.get("row_pairs", 0.0) + float(tally["pairs"][0])
        after = Lists.after(layout, run.scratch, index)
        merge = MergeLists(layout.merges, batches.panels, found, self.lists, after, layout.k, *truth)
        state = run.sweep(f"merge-{index + 1:02d}", merge)
        for narrow in narrows_of((runs, found, self.lists)):
            run.release(narrow)
        self.lists = after
        return state


def sample_ids(layout: Layout, seed: int) -> tuple[Int64, Int64]:
    """Numbers of rows that centers are made from, and of those that meet all others."""
    return (
        drawn(layout.rows, layout.sample_rows, seed, Purpose.PARTITION_SAMPLE),
        drawn(layout.rows, layout.recall_rows, seed, Purpose.RECALL_ROWS),
    )


def assign_fold(
    layout: Layout, reader: BlockReader, files: tuple[Path, int, Runs, Lists | None], few: FewRows | None
) -> AssignRows:
    """The sweep that puts rows into partitions."""
    (centers, count, runs, before), columns = files, layout.source.shape[1]
    seconds = 1e-6 + 4e-11 * columns * (count + (few.count if few else 0))
    shape = count, layout.spill
    return AssignRows(reader, layout.cut, centers, *shape, runs, before, few, row_seconds=seconds)
