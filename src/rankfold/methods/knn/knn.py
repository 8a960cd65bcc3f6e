"""Nearest neighbors of every row, exactly: a sweep over pairs of blocks into lists, and lists into a result.

The result is a function of the rows alone: distances are measured in float64 by one fixed sum, and
(distance, id) decides between rows that are equally far. How rows are cut, held, or multiplied changes only
the time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.bits.choice import finds_sets, require_bits, set_fold, sparse_sides
from rankfold.methods.bits.folds import NearestSets, warm_sets
from rankfold.methods.index.queries import IndexQueries, queries_task
from rankfold.methods.knn.arguments import KnnArguments
from rankfold.methods.knn.extend import EarlierLists
from rankfold.methods.knn.graph import (
    POINTERS,
    chunk_rows,
    create_graph,
    write_symmetric_graph,
)
from rankfold.methods.knn.pair_fold import NearestPairs, has_bounds, warm_lists, way_of
from rankfold.methods.knn.plan import NeighborFold, PairSweeps, plan_neighbors
from rankfold.methods.knn.precomputed import plan_precomputed, require_distances, search_precomputed
from rankfold.methods.knn.projection import Directions, choose_directions
from rankfold.methods.knn.request import METRICS, NeighborRequest, compared_rows
from rankfold.methods.knn.row_blocks import BlockReader, choose_shift
from rankfold.methods.knn.sparse_fold import NearestSparsePairs, warm_sparse
from rankfold.methods.knn.sparse_rows import (
    SparseReader,
    column_dtype,
    common_columns,
    cut_blocks,
    sparse_rows,
)
from rankfold.methods.knn.write_lists import WriteLists
from rankfold.methods.partitions.plan import (
    can_search,
    comparison,
    is_cheaper,
    layout_of,
    plan_partitions,
    require_partitions,
)
from rankfold.methods.partitions.rounds import Rounds, warm_partitions
from rankfold.methods.parts.outputs import create_output
from rankfold.methods.parts.square_range import refuse_faint_distances
from rankfold.methods.task import Output, count
from rankfold.methods.tree.coordinates import TREE_METRICS, box_of
from rankfold.methods.tree.nearest import warm_nearest
from rankfold.methods.tree.plan import is_worth_it
from rankfold.methods.tree.search import plan_tree, require_tree, search_tree
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.blocks import Cut, cut
from rankfold.pipeline.engine.pair_sweep import load_lists
from rankfold.pipeline.engine.pairs import Pairs, block_edges
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError, MemoryBudgetError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.formats.open_like import open_beside, require_comparable
from rankfold.pipeline.importing.csr_writer import chunk_length
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.storage.checkpoint import make_folder
from rankfold.pipeline.storage.result import Result, result_of
from rankfold.pipeline.storage.scratch import NOWHERE

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


WITHOUT_ZEROS = (NearestSparsePairs, NearestSets)
"""Folds over sparse rows: their blocks of rows are cut by the number of stored entries."""

EXACT = MappingProxyType({"recall": 1.0})
"""Facts about the recall of exact lists."""


@dataclass(frozen=True, slots=True)
class Neighbors:
    """Task of a search for neighbors: rows ``source``, perhaps ``queries``, parameters, and lists of an
    ``earlier`` search of the first rows."""

    source: Source
    queries: Source | None
    parameters: NeighborRequest
    earlier: EarlierLists | None = None

    @classmethod
    def of(
        cls, source: Source, queries: Source | None, parameters: NeighborRequest, base: Result | None = None
    ) -> Neighbors:
        """Check the arguments and make the task; raises ``InputError`` for what cannot be searched.

        ``base`` is a result of knn with lists of the first rows.
        """
        source = compared_rows(source, parameters.metric)
        queries = None if queries is None else compared_rows(queries, parameters.metric)
        if parameters.is_precomputed:
            said = {"queries": queries is not None, "base": base is not None}
            require_distances(parameters, source, said)
        parameters.check(source.shape[0], source.name, itself=queries is None)
        if parameters.needs_tree:
            require_tree(parameters, source, base is not None)
        require_comparable(source, queries, "queries")
        if parameters.symmetric and queries is not None:
            raise InputError("symmetric joins lists of one set of rows: leave it out, or queries")
        if base is not None and queries is not None:
            raise InputError("base has lists of rows among themselves: leave it out, or queries")
        task = cls(
            source, queries, parameters, None if base is None else EarlierLists.of(base, source, parameters)
        )
        require_bits(task)
        if parameters.solver == "approximate":
            require_partitions(task)
        return task

    @property
    def left(self) -> Source:
        """Rows whose neighbors are found: the queries, or all rows without queries."""
        return self.source if self.queries is None else self.queries

    def request(self) -> dict[str, Any]:
        """Everything besides the matrix that determines the result, for JSON."""
        query_identity = (
            None if self.queries is None else [self.queries.fingerprint(), list(self.queries.shape)]
        )
        base = None if self.earlier is None else self.earlier.digest()
        approximate = self.parameters.approximate_dict() if self.is_approximate else {}
        return {**self.parameters.as_dict(), **approximate, "queries": query_identity, "base": base}

    @property
    def is_approximate(self) -> bool:
        """True if neighbors are sought within partitions: this was asked for, or is allowed and cheaper."""
        parameters = self.parameters
        if parameters.solver != "auto" or parameters.min_recall is None:
            return parameters.solver == "approximate"
        return not self._may_use_tree() and is_cheaper(self)

    def outputs(self) -> tuple[Output, ...]:
        """Names, shapes, types and numbers of chunks of the results: distances, indices and graph."""
        (rows, others), k = (self.left.shape[0], self.source.shape[0]), self.parameters.k
        chunks, edges = count(rows, self.lists_cut().panel_rows), 2 * rows * k
        graph_chunks, stored = chunks, rows * k
        joined = self.parameters.symmetric is not None
        if joined:
            stored = edges
            graph_chunks = count(edges, chunk_length(edges))
        wide = np.dtype(np.float64)
        graph_files = 2 * graph_chunks + count(rows + 1, POINTERS)
        return (
            Output("distances", (rows, k), wide, chunks),
            Output("indices", (rows, k), np.dtype(np.int64), chunks),
            Output("graph", (rows, others), wide, graph_files, sparse=True, stored=stored, compressed=joined),
        )

    def pairs(self) -> Pairs:
        """Blocks (runs of rows) that are compared with each other, by their edges."""
        columns = self.source.shape[1]
        rows = block_edges(self.left.row_grid, columns)
        if self.earlier is not None:
            rows = np.union1d(rows, [self.earlier.rows])
        return Pairs(rows, None if self.queries is None else block_edges(self.source.row_grid, columns))

    def fold(
        self, shift: Float64 | None, *, precise: bool, directions: Directions | None = None
    ) -> NearestPairs:
        """Fold that compares pairs of blocks of dense rows, and keeps the nearest of each row.

        ``shift`` (columns,) or None is subtracted from rows before products; ``precise``: these are in
        float64; ``directions``: those in which rows are multiplied, see ``BlockReader``.
        """
        code, function = self.parameters.code, self.parameters.function
        by_products = self._by_products()
        readers = [
            BlockReader(side, code, shift, by_products, directions) for side in (self.left, self.source)
        ]
        return NearestPairs(self.pairs(), readers[0], readers[1], self.parameters.k, code, function, precise)

    def sparse_fold(self, common: Int64 | None) -> NearestSparsePairs | None:
        """Fold that compares sparse rows; None for dense ones, or if products do not bound the metric.

        ``common`` are columns that many rows hold; None for a plan, before some rows have been read.
        """
        sides = [sparse_rows(side) for side in (self.left, self.source)]
        left, source = sides
        if left is None or source is None or not self._by_products():
            return None
        also = () if self.earlier is None else (self.earlier.rows,)
        blocks = cut_blocks(left, also)
        others = blocks if self.queries is None else cut_blocks(source)
        pairs = Pairs(blocks.edges, None if self.queries is None else others.edges)
        code = self.parameters.code
        readers = SparseReader(left, code), SparseReader(source, code)
        columns = np.zeros(0, np.int64) if common is None else common
        return NearestSparsePairs(pairs, *readers, self.parameters.k, code, blocks, others, columns)

    def loops(self) -> dict[str, Any]:
        """Entries that ``warm_neighbors`` reads besides those of the request, to decide what is compiled."""
        if self.parameters.is_precomputed:
            return {"sparse": False, "tree": False, "pairs": True}
        if self.is_approximate:
            return {"sparse": False, "tree": False, "pairs": True, "partitions": True}
        if finds_sets(self):
            return {"sets": "bits" if sparse_sides(self) is None else "sets"}
        sides = (self.left, self.source)
        sparse = self._by_products() and all(sparse_rows(side) is not None for side in sides)
        return {"sparse": sparse, "tree": self._may_use_tree(), "pairs": not self.parameters.needs_tree}

    @property
    def measures_squares(self) -> bool:
        """True if the metric is one of ``METRICS``, some of which square values of the rows."""
        parameters = self.parameters
        return parameters.function is None and parameters.metric in METRICS

    def _may_use_tree(self) -> bool:
        parameters = self.parameters
        if parameters.needs_tree:
            return True
        able = parameters.solver == "auto" and parameters.metric in TREE_METRICS and self.earlier is None
        return able and is_worth_it(*self.source.shape, parameters.k)

    def _by_products(self) -> bool:
        return self.parameters.function is None and has_bounds(self.parameters.code, self.source.shape[1])

    def plan(self, budget: Budget) -> Plan:
        """Plan the search within a budget. A tree that does not fit is not used, unless it is required."""
        if self.parameters.is_precomputed:
            return plan_precomputed(self, budget)
        if self.is_approximate:
            return plan_partitions(self, budget)
        if self._may_use_tree() and (budget.device == "cpu" or self.parameters.needs_tree):
            try:
                return plan_tree(self, budget)
            except MemoryBudgetError:
                if self.parameters.needs_tree:
                    raise
        plan = plan_neighbors(self._pair_sweeps(budget), budget, partial(self._other_sweeps, budget))
        if self.parameters.min_recall is not None and can_search(self):
            return dataclasses.replace(plan, comparison=comparison(self))
        return plan

    def _pair_sweeps(self, budget: Budget) -> PairSweeps:
        without_zeros = self.sparse_fold(None) if budget.device == "cpu" else None
        # Planned as if rows were centered, which takes a copy: a sample of rows decides that later.
        fold: NeighborFold | None = set_fold(self, None) or without_zeros
        fold = fold or self.fold(np.zeros(self.source.shape[1]), precise=False)
        write = self._write(fold.pairs, NOWHERE, NOWHERE)
        return PairSweeps(fold, write, self.source, self.left, self.parameters.symmetric is not None)

    def _other_sweeps(self, budget: Budget, k: int, of: Callable[[Source], Source]) -> PairSweeps:
        """Sweeps of this search with lists of length ``k``, over matrices that ``of`` makes of its own."""
        return dataclasses.replace(
            self,
            source=of(self.source),
            queries=None if self.queries is None else of(self.queries),
            parameters=dataclasses.replace(self.parameters, k=k),
        )._pair_sweeps(budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Search, write lists and graph into ``run.result``, and return the facts."""
        if self.parameters.is_precomputed:
            search_precomputed(self, run)
            return self._finish(run, fingerprint)
        if self.is_approximate:
            return self._search_partitions(run, fingerprint)
        if not run.groups:  # no blocks: the search was planned with a tree
            search_tree(self, run)
            return self._finish(run, fingerprint)
        fold = self._fold_on(run.device)
        # Blocks of sparse rows differ from those of dense rows.
        lists = run.scratch / ("sparse-lists" if isinstance(fold, WITHOUT_ZEROS) else "lists")
        make_folder(lists)
        if self.earlier is not None:
            self.earlier.plant(fold, lists)
        run.pair_sweep("pairs", fold, lists)
        run.notes["certain"] = _certain(fold.pairs, lists)
        self.create_outputs(run)
        run.sweep("write", self._write(fold.pairs, lists, run.result))
        return self._finish(run, fingerprint)

    def _search_partitions(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Search in rounds of partitions, write the lists, and return the facts, recall included."""
        shift = self.choose_shift()[0]
        reader = BlockReader(self.source, self.parameters.code, shift, bounded=True)
        rounds = Rounds(layout_of(self), reader, self.parameters.seed)
        rounds.search(run)
        self.create_outputs(run)
        rounds.write(run, self.lists_cut(), graph=self.parameters.symmetric is None)
        if warning := rounds.warning():
            run.warnings.append(warning)
        return self._finish(run, fingerprint, "approximate", rounds.facts())

    def create_outputs(self, run: Run) -> None:
        """Create the arrays of the lists, and of the graph unless it is made symmetric."""
        rows, k, chunk = self.left.shape[0], self.parameters.k, self.lists_cut().panel_rows
        for name, dtype in (("indices", np.int64), ("distances", np.float64)):
            create_output(run.result, name, (rows, k), dtype, (chunk, k))
        if self.parameters.symmetric is None:
            create_graph(run.result, (rows, self.source.shape[0]), k, chunk)

    def _finish(
        self, run: Run, fingerprint: str, method: str = "exact", recall: Mapping[str, Any] = EXACT
    ) -> dict[str, Any]:
        """Write the symmetric graph, if one was asked for, and return the facts of the result.

        ``method`` is the name of the method in these facts; ``recall`` has further ones, about the recall.
        """
        if self.measures_squares:
            refuse_faint_distances(run.result / "distances", self.parameters.code, self.source, self.left)
        if self.parameters.symmetric is not None:
            shape = self.left.shape[0], self.source.shape[0]
            mutual = self.parameters.symmetric == "mutual"
            write_symmetric_graph(run.result, run.scratch, shape, mutual=mutual)
        facts = {**run.facts(self.request(), method, self.source, fingerprint), **recall}
        run.describe(facts)
        return facts

    def _fold_on(self, device: str) -> NeighborFold:
        """Fold that compares rows on a device, chosen after a sample of rows has been read."""
        if finds_sets(self):
            sides = sparse_sides(self)
            sets = set_fold(self, None if sides is None else common_columns(sides[1]))
            assert sets is not None  # noqa: S101 - that is what ``finds_sets`` says
            return sets
        source = sparse_rows(self.source) if device == "cpu" and self.loops()["sparse"] else None
        if source is not None:
            fold = self.sparse_fold(common_columns(source))
            assert fold is not None  # noqa: S101 - that is what ``loops`` says
            return fold
        shift, precise = self.choose_shift()
        directions = None if precise or device != "cpu" else self._directions(shift)
        return self.fold(shift, precise=precise, directions=directions)

    def _directions(self, shift: Float64 | None) -> Directions | None:
        """Directions in which rows are multiplied, or None: see ``choose_directions``."""
        if not self._by_products():
            return None
        pairs = float(self.left.shape[0]) * self.source.shape[0] / (1 if self.queries is not None else 2)
        return choose_directions(self.source, self.parameters.code, shift, self.parameters.k, pairs)

    def _write(self, pairs: Pairs, lists: Path, result: Path) -> WriteLists:
        """Fold that writes finished lists into the result, chunk by chunk.

        ``lists`` is the folder with the lists of the blocks of ``pairs``, ``result`` that of the result.
        """
        itself, graph = self.queries is None, self.parameters.symmetric is None
        return WriteLists(
            self.lists_cut(), pairs, lists, result, self.parameters.k, itself=itself, graph=graph
        )

    def lists_cut(self) -> Cut:
        """Cut of the rows into panels (rows written at a time) whose lists are whole chunks of the result."""
        rows, k = self.left.shape[0], self.parameters.k
        return cut(Grid.regular(rows, chunk_rows(rows, k), splittable=False), 8 * k, 8)

    def choose_shift(self) -> tuple[Float64 | None, bool]:
        """Vector (columns,) to subtract from rows before products, or None; True if these need float64."""
        return choose_shift(self.source, self.parameters.code)


def _certain(pairs: Pairs, lists: Path) -> float:
    """Share of rows, over all pairs of blocks, whose first shortlist of candidates was long enough.

    ``lists`` is the folder with the lists of the blocks.
    """
    uncertain = 0
    for block in range(pairs.count):
        for accumulator in range(pairs.accumulators):
            state = load_lists(lists, block, accumulator)
            uncertain += int(state["uncertain"][0]) if state else 0
    return 1 - uncertain / (int(pairs.rows[-1]) * (len(pairs.met) - 1))


def knn_task(x: object, arguments: KnnArguments) -> Neighbors | IndexQueries:
    """Make the task of a search of the rows of a matrix for neighbors."""
    request = NeighborRequest.of(arguments)
    if arguments.index is not None:
        for name in ("queries", "base", "box"):
            if getattr(arguments, name) is not None:
                raise InputError(
                    f"the rows of x are looked up in index: {name} has no place beside it. Leave it out"
                )
        return queries_task(x, arguments.index, request)
    source = open_source(x)
    others = None if arguments.queries is None else open_beside(arguments.queries, source)
    earlier = None if arguments.base is None else result_of("base", arguments.base, "a result of knn")
    if earlier is not None:
        earlier.require_whole()
    request = dataclasses.replace(request, box=box_of(arguments.box, source.shape[1], source.name))
    return Neighbors.of(source, others, request, earlier)


def warm_neighbors(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the compiled loops of a search once, for a matrix of this type and ``shape``.

    ``request`` is that of the task. It may also have ``sparse``, ``tree`` and ``partitions`` (True if these
    are searched), ``sets`` (``"bits"`` or ``"sets"``), ``pairs`` (False if only a tree is searched), and
    ``others``, the type of the rows that those of the matrix are compared with.
    """
    if request.get("tree"):
        warm_nearest(periodic=request.get("box") is not None)
    if not request.get("pairs", True):
        return
    if request.get("sets"):
        warm_sets(request["sets"], column_dtype(shape[1]))
        return
    if request.get("partitions"):
        warm_partitions(dtype)
    way = way_of(request["metric"], shape[1])
    if request.get("sparse"):
        warm_sparse(dtype, way, column_dtype(shape[1]))
    else:
        warm_lists(dtype, way, request.get("others", dtype))
