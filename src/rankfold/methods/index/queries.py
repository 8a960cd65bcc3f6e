"""Neighbors of queries in a stored index: exact, or with as few probes as the required recall takes.

A probe is one of the partitions of nearest centers that a query is compared with. A random sample of queries
is drawn. Their true neighbors are found first, and then the share of these that one, two, three and more
probes find, until the lower end of the interval reaches ``min_recall``. All queries are then searched with
that number of probes, in one read of them.

``StoredIndex`` is an existing index, opened: its rows, their numbers, and its partitions.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.index.arguments import NAMES
from rankfold.methods.index.layout import most_together, reads_of
from rankfold.methods.index.search import FIRST_PROBES, SearchIndex, Where
from rankfold.methods.index.truth import TrueNeighbors
from rankfold.methods.knn.arguments import ALIASES
from rankfold.methods.knn.graph import POINTERS, create_graph
from rankfold.methods.knn.plan import SCAN_FLOPS
from rankfold.methods.knn.request import NeighborRequest, compared_rows
from rankfold.methods.knn.row_blocks import BlockReader, choose_shift
from rankfold.methods.partitions.files import Lists
from rankfold.methods.partitions.layout import CERTAINTY, PANEL_BYTES, RECALL_ROWS
from rankfold.methods.partitions.rounds import Recall, recall_of
from rankfold.methods.partitions.sample import CollectRows, drawn
from rankfold.methods.parts.outputs import create_output
from rankfold.methods.parts.square_range import refuse_faint_distances
from rankfold.methods.random_keys import Purpose
from rankfold.methods.task import Output, count
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.source import Source, require_rows
from rankfold.pipeline.engine.blocks import Cut, own_streams, panel_edges
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError, argument
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.formats.open_like import open_like
from rankfold.pipeline.machine import one_blas_thread
from rankfold.pipeline.planning.passes import Pass, numbers_of
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import PanelSweeps, TaskFacts, plan_task, smaller_argument
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.result import Result, result_of
from rankfold.pipeline.storage.run_directory import digest
from rankfold.pipeline.storage.scratch import NOWHERE, ScratchMatrix

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

PROBES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Numbers of probes that are tried, one after the other."""

LIKELY_PROBES = 8
"""Number of probes that the recall usually takes."""

LIKELY_SHARE = 0.3
"""Share of the partitions that an exact search compares with, where rows have clusters."""

HELD_BYTES = 32 * 2**20
"""Bytes of the queries that are searched at a time (a panel), with their lists and their probes."""

CHUNK_BYTES = (2**20, 16 * 2**20)
"""Least and most bytes of a chunk of the result; between these there are about ``TARGET_CHUNKS`` chunks."""

TARGET_CHUNKS = 8192


@dataclass(frozen=True, slots=True)
class IndexQueries:
    """Task of a search in an index: queries, the index, and parameters."""

    source: Source
    index: StoredIndex
    parameters: NeighborRequest

    @classmethod
    def of(cls, source: Source, index: StoredIndex, parameters: NeighborRequest) -> IndexQueries:
        """Check the arguments and make the task; raises ``InputError`` for what cannot be searched."""
        parameters.check(index.rows.shape[0], index.name, itself=False)
        index.require_metric(parameters.metric)
        require_rows(source)
        refused = {
            "symmetric": parameters.symmetric is not None,
            "box": parameters.box is not None,
            "partition_rows": parameters.partition_rows is not None,
            f"solver={parameters.solver}": parameters.solver in ("pairs", "tree"),
        }
        for name, said in refused.items():
            if said:
                raise InputError(
                    f"{name} has no place beside index, whose partitions are searched: leave it out"
                )
        return cls(source, index, parameters)

    def request(self) -> dict[str, Any]:
        """Everything besides the queries that determines the result, for JSON."""
        parameters = self.parameters
        asked = {} if parameters.min_recall is None else parameters.approximate_dict()
        asked.pop("partition_rows", None)
        return {
            **parameters.as_dict(),
            **asked,
            "queries": "input",
            "base": None,
            "index": self.index.digest(),
        }

    def outputs(self) -> tuple[Output, ...]:
        """Names, shapes, types and numbers of chunks of the results: distances, indices and graph."""
        rows, others, k = self.source.shape[0], self.index.rows.shape[0], self.parameters.k
        chunks, wide = count(rows, self.chunk_rows), np.dtype(np.float64)
        files = 2 * chunks + count(rows + 1, POINTERS)
        return (
            Output("distances", (rows, k), wide, chunks),
            Output("indices", (rows, k), np.dtype(np.int64), chunks),
            Output("graph", (rows, others), wide, files, sparse=True, stored=rows * k),
        )

    def loops(self) -> dict[str, Any]:
        """Entry that ``warm_neighbors`` reads besides those of the request: type of the rows of the index."""
        return {"others": self.index.rows.dtype}

    # Cuts -----------------------------------------------------------------------------------------

    @property
    def recall_rows(self) -> int:
        """Number of queries whose true neighbors are found; 0 if all lists are exact."""
        recall = self.parameters.min_recall
        if recall is None:
            return 0
        wanted = max(RECALL_ROWS, math.ceil(CERTAINTY / (1 - recall) - 1e-6))
        return wanted if wanted < self.source.shape[0] and self.tried else 0

    @property
    def tried(self) -> tuple[int, ...]:
        """Numbers of probes (partitions that a query is compared with) to try, each below the total."""
        return tuple(probes for probes in PROBES if probes < self.index.partitions)

    @property
    def first_probes(self) -> int:
        """Number of partitions that an exact search compares each query with before it rules out others."""
        return min(FIRST_PROBES, self.index.partitions)

    @property
    def chunk_rows(self) -> int:
        """Number of queries whose lists are one chunk of the result."""
        rows, row_bytes = self.source.shape[0], 8 * self.parameters.k
        least, most = (size // row_bytes for size in CHUNK_BYTES)
        usual = max(1, min(max(rows // TARGET_CHUNKS, least), most))
        return min(rows, usual, self._held_rows(max(self.tried, default=1)))

    def _held_rows(self, probes: int) -> int:
        """Number of queries, with ``probes`` probes each, that are searched at a time: see ``HELD_BYTES``."""
        columns, k = self.source.shape[1], self.parameters.k
        each = columns * (self._reader(self.source, None).dtype.itemsize + 4) + 28 * probes + 72 * k
        return max(1, HELD_BYTES // each)

    def cut(self, probes: int) -> Cut:
        """Cut of the queries into those searched at a time, by number of probes; each is whole chunks."""
        rows, chunk = self.source.shape[0], self.chunk_rows
        chunks = max(1, self._held_rows(probes) // chunk)
        edges = panel_edges(Grid.regular(rows, chunk * chunks, splittable=False), 1)
        return own_streams(edges, int(np.diff(edges).max()))

    @property
    def sample_cut(self) -> Cut:
        """Cut of the sampled queries, whose true neighbors are found: all are searched at a time."""
        return own_streams(np.array([0, self.recall_rows], np.int64), self.recall_rows)

    @property
    def read_cut(self) -> Cut:
        """Cut of the queries into panels for reading: whole chunks, where these cannot be split."""
        edges = panel_edges(self.source.row_grid, max(1, PANEL_BYTES // (4 * self.source.shape[1])))
        return own_streams(edges, int(np.diff(edges).max()))

    # Plan -----------------------------------------------------------------------------------------

    def plan(self, budget: Budget) -> Plan:
        """Plan the search within a budget."""
        (rows, columns), k, sampled = self.source.shape, self.parameters.k, self.recall_rows
        task_facts = TaskFacts(
            kind="knn",
            method="index",
            source=self.source,
            dtype=self._reader(self.source, None).dtype,
            orientation=f"{self.index.partitions} partitions",
            rank=k,
            result_bytes=rows * 32 * k,
            scratch_bytes=sampled * (32 * k + 8 * columns),
            decided_by="the recall of a sample of them" if sampled else "",
            subject=f"knn of these {rows} x {columns} queries in an index",
        )

        def sweeps_of(k: int) -> PanelSweeps:
            return dataclasses.replace(
                self, parameters=dataclasses.replace(self.parameters, k=k)
            )._all_sweeps()

        smaller = partial(smaller_argument, "k", k, sweeps_of, budget)
        return plan_task(task_facts, self._all_sweeps(), budget, smaller=smaller)

    def _all_sweeps(self) -> PanelSweeps:
        columns, k, sampled = self.source.shape[1], self.parameters.k, self.recall_rows
        driver = sampled * (2 * 8 * columns + 16 * k) + self.index.partitions * (8 * columns + 24)
        return PanelSweeps(self._sweeps, self.cut(LIKELY_PROBES), driver, 0)

    def _sweeps(self, slots: int) -> list[Pass]:
        (rows, columns), m, sampled = self.source.shape, self.index.rows.shape[0], self.recall_rows
        each, held = 2.0 * columns + SCAN_FLOPS, m * self.index.rows.dtype.itemsize * columns
        reads, k = rows * columns * self.source.dtype.itemsize, self.parameters.k
        centers, share = rows * self.index.partitions * each, LIKELY_SHARE
        shift = np.zeros(columns)
        sweeps = []
        if sampled:
            share = min(1.0, LIKELY_PROBES / self.index.partitions)
            into = ScratchMatrix(NOWHERE, sampled, columns, self._reader(self.source, None).dtype)
            reader = self._reader(self.source, shift)
            collect = CollectRows(reader, self.read_cut, (np.arange(sampled),), (into,))
            lists = Where(lists=Lists.of(NOWHERE, "true", sampled, k))
            few = open_source(np.empty((sampled, columns), into.dtype))
            near = self._fold((few, self.sample_cut), (self.first_probes, False), shift, lists)
            truth = self._truth(few, np.zeros(sampled), shift)
            first = sampled * each * (self.index.partitions + self.first_probes * m / self.index.partitions)
            sweeps = [
                numbers_of("sample", collect, reads, 0, 0.0),
                numbers_of("near", near, held, sampled * 16 * k, first, over="scratch"),
                numbers_of("truth", truth, held, 0, sampled * m * each, over="scratch"),
            ]
        # Panels have fewer queries with many probes: take the fold that needs most memory.
        most = max((self._search(probes, shift, NOWHERE) for probes in (self.first_probes, *self.tried)),
                   key=lambda fold: fold.memory_bytes)  # fmt: skip
        panels = len(self.cut(LIKELY_PROBES).panels) - 1
        flops = centers + share * rows * m * each
        return [*sweeps, numbers_of("queries", most, reads + panels * held, rows * 32 * k, flops)]

    # Run ------------------------------------------------------------------------------------------

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Choose the number of probes, search all queries, write the lists, and return the facts."""
        with one_blas_thread():
            shift = choose_shift(self.index.rows, self.parameters.code)[0]
            run.prepare(run.part("index.part"), self.index.arrays)
            probes, quality = self._choose(run, shift)
            self._create_outputs(run)
            tally = run.pass_over_data("queries", self._search(probes, shift, run.result, run))
            run.notes["row_pairs"] = float(tally["pairs"][0])
            where = run.result / "distances"
            refuse_faint_distances(where, self.parameters.code, self.index.rows, self.source)
            facts = {**run.facts(self.request(), "index", self.source, fingerprint), **quality}
            run.describe(facts)
        return facts

    def _choose(self, run: Run, shift: Float64 | None) -> tuple[int, dict[str, Any]]:
        """Choose the number of partitions that queries are compared with, 0 for an exact search.

        Returns it with the facts about recall for the metadata of the result. ``shift`` (columns,), or None,
        is subtracted from rows before products.
        """
        if not self.recall_rows:
            return 0, {"recall": 1.0, "partitions": self.index.partitions}
        few, rows = self._collect(run, shift)
        near = self._lists_of(run, "near", few, (self.first_probes, False), shift)
        truth = run.sweep("truth", self._truth(few, near[:, -1].copy(), shift, run))
        farthest = truth["keys"].max(axis=1)
        tried: list[tuple[int, Recall]] = []
        for probes in self.tried:
            keys = near
            if probes != self.first_probes:
                keys = self._lists_of(run, f"probe-{probes:03d}", few, (probes, False), shift)
            hits = (keys <= farthest[:, None]).sum(axis=1)
            tried.append((probes, recall_of(hits, self.parameters.k, rows)))
            if tried[-1][1].low >= (self.parameters.min_recall or 0.0):
                break
        return self._told(run, tried)

    def _told(self, run: Run, tried: list[tuple[int, Recall]]) -> tuple[int, dict[str, Any]]:
        probes, last = tried[-1]
        if last.low < (self.parameters.min_recall or 0.0):
            if self.index.partitions <= PROBES[-1]:  # hardly more are left
                return 0, {"recall": 1.0, "partitions": self.index.partitions}
            run.warnings.append(
                f"the recall of {self.recall_rows} queries is {last.mean:.4f}, from {last.low:.4f} to "
                f"{last.high:.4f}, with {probes} probes; min_recall = {self.parameters.min_recall:g}. Make "
                "an index of larger partitions, partition_rows= (--partition-rows), or leave min_recall out: "
                "neighbors are exact then"
            )
        return probes, {
            "recall": last.mean,
            "recall_interval": [last.low, last.high],
            "recall_rows": self.recall_rows,
            "recall_of_probes": [[number, each.mean] for number, each in tried],
            "probes": probes,
            "partitions": self.index.partitions,
        }

    def _collect(self, run: Run, shift: Float64 | None) -> tuple[Source, int]:
        """Collect a random sample of the queries in one pass; returns it, and the number of all queries."""
        rows, reader = self.source.shape[0], self._reader(self.source, shift)
        ids = drawn(rows, self.recall_rows, self.parameters.seed, Purpose.RECALL_ROWS)
        matrix = ScratchMatrix(run.scratch / "few.bin", len(ids), reader.columns, reader.dtype)
        run.pass_over_data("sample", CollectRows(reader, self.read_cut, (ids,), (matrix,)))
        return open_source(run.load(matrix)), rows

    def _lists_of(
        self, run: Run, name: str, few: Source, probes: tuple[int, bool], shift: Float64 | None
    ) -> Float64:
        """Search for the neighbors of some queries; returns their distances (queries, k), nearest first.

        ``name`` is that of the sweep. ``probes`` is the number of partitions to compare with, and True for
        exact lists. ``shift`` (columns,), or None, is subtracted from rows before products.
        """
        lists = Lists.of(run.scratch / name, "lists", few.shape[0], self.parameters.k)
        run.sweep(name, self._fold((few, self.sample_cut), probes, shift, Where(lists=lists), run))
        keys: Float64 = run.load(lists.keys)
        return keys

    def _create_outputs(self, run: Run) -> None:
        """Create the arrays of the lists and of the graph."""
        rows, k, chunk = self.source.shape[0], self.parameters.k, self.chunk_rows
        for name, dtype in (("indices", np.int64), ("distances", np.float64)):
            create_output(run.result, name, (rows, k), dtype, (chunk, k))
        create_graph(run.result, (rows, self.index.rows.shape[0]), k, chunk)

    def _search(
        self, probes: int, shift: Float64 | None, result: Path, run: Run | None = None
    ) -> SearchIndex:
        """Fold that finds the neighbors of all queries, exactly if ``probes`` is 0; a plan has no ``run``.

        ``shift`` (columns,), or None, is subtracted from rows before products; ``result`` is the folder that
        lists are written into.
        """
        how = (probes or self.first_probes), not probes
        return self._fold((self.source, self.cut(how[0])), how, shift, Where(result), run)

    def _fold(
        self,
        queries: tuple[Source, Cut],
        probes: tuple[int, bool],
        shift: Float64 | None,
        where: Where,
        run: Run | None = None,
    ) -> SearchIndex:
        source, cut = queries
        edges, columns = self.index.edges(), self.index.rows.shape[1]
        reads = reads_of(edges, columns)
        readers = self._reader(source, shift), self._reader(self.index.rows, shift)
        part = NOWHERE if run is None else run.part("index.part")
        sizes = self.index.partitions, most_together(reads, edges), self.parameters.k
        seconds = 1e-6 + 4e-11 * columns * (self.index.partitions + probes[0] * int(np.diff(edges).max()))
        return SearchIndex(
            cut, *readers, self.index.ids, part, reads, *sizes, *probes, where, row_seconds=seconds
        )

    def _truth(
        self, few: Source, limits: Float64, shift: Float64 | None, run: Run | None = None
    ) -> TrueNeighbors:
        """Fold over the rows of the index that finds the true neighbors of some queries.

        ``limits`` (queries,) are distances within which k rows are known to be. ``shift`` (columns,), or
        None, is subtracted from rows before products. A plan has no ``run``.
        """
        edges, columns = self.index.edges(), self.index.rows.shape[1]
        reads = reads_of(edges, columns)
        cut = own_streams(reads, int(np.diff(reads).max()))
        readers = self._reader(few, shift), self._reader(self.index.rows, shift)
        part = NOWHERE if run is None else run.part("index.part")
        seconds = 1e-6 + 4e-11 * columns * len(limits)
        sizes = self.index.partitions, most_together(reads, edges)
        return TrueNeighbors(cut, *readers, part, *sizes, limits, self.parameters.k, row_seconds=seconds)

    def _reader(self, source: Source, shift: Float64 | None) -> BlockReader:
        return BlockReader(source, self.parameters.code, shift, bounded=True)


def queries_task(x: object, index: Result | str | Path, parameters: NeighborRequest) -> IndexQueries:
    """Open the index, check the queries, and make the task."""
    stored = StoredIndex.of(index)
    return IndexQueries.of(stored.queries(x), stored, parameters)


SAME = {"sqeuclidean": "euclidean"}
"""For a metric that orders rows as another one does, the name of that other one."""


@dataclass(frozen=True, slots=True)
class StoredIndex:
    """An opened result of ``index``: rows sorted by partition, and their numbers."""

    result: Result
    """The result, kept open here: a temporary store is deleted with the last reference to its result."""

    rows: Source
    """(m, n) rows, sorted by partition."""

    ids: Source
    """(m, 1) number of each of these rows in the matrix."""

    partitions: int
    """Number of partitions."""

    @classmethod
    def of(cls, result: Result | str | Path) -> StoredIndex:
        """Open a result; raises ``InputError`` if it is not one of ``index``. Checks that it is complete."""
        result = result_of("index", result, "a result of index, as of rf.index(x)")
        if result.attrs["kind"] != "index":
            raise InputError(
                f"{result.path} is the result of {result.attrs['kind']}: give one of index. Make it "
                "from the rows that neighbors are looked for among, `rankfold index STORE --out INDEX`"
            )
        result.require_whole()
        partitions = int(result.matrix("centers").shape[0])
        return cls(result, result.matrix("rows"), result.matrix("ids"), partitions)

    @property
    def name(self) -> str:
        """Name of the index in messages."""
        rows, columns = self.rows.shape
        return f"{self.result.path} (index of {rows} x {columns})"

    def queries(self, x: object) -> Source:
        """Open queries; raw ones go through the same preparation as the rows of the index."""
        source = open_like(x, self.result, self.name)
        if source.shape[1] != self.rows.shape[1]:
            raise InputError(
                f"{source.name} has {source.shape[1]} columns, but {self.name} has {self.rows.shape[1]}. "
                "Give rows of the same columns, in the same order"
            )
        return compared_rows(source, str(self.result.attrs["request"]["metric"]))

    def require_metric(self, metric: str) -> None:
        """Raise ``InputError`` if the index was made by another metric."""
        own = str(self.result.attrs["request"]["metric"])
        asked = ALIASES.get(metric, metric)
        if SAME.get(asked, asked) != SAME.get(own, own):
            other = (
                f"make an index by {metric}"
                if asked in NAMES
                else "give queries= of the matrix, and no index"
            )
            raise InputError(
                f"{self.name} is by {own}, and neighbors by {metric} were asked for. Say "
                f"{argument('metric', own)}, or {other}"
            )

    def arrays(self) -> State:
        """Load ``centers``, ``edges`` and ``radii`` of the partitions."""
        names = ("centers", "edges", "radii")
        return {name: np.asarray(self.result[name][...]) for name in names}

    def edges(self) -> Int64:
        """(partitions + 1,) first row of each partition, and the end, among the rows sorted by partition.

        Equal sizes are assumed for an index that is still to be made.
        """
        stored = getattr(self.result, "edges", None)
        if stored is None:
            return np.arange(self.partitions + 1) * self.rows.shape[0] // self.partitions
        return np.asarray(stored[...], np.int64)

    def digest(self) -> str:
        """Hash that identifies the request and the matrix that the index was made from."""
        return digest([self.result.attrs["request"], self.result.attrs["input"]["fingerprint"]])
