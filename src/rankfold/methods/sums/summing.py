"""Sums of a kernel over all sources, from a request to a result: the task of both methods.

Sources are read once and held in memory. The opening of nodes is chosen from a sample, and stored with the
run. One sweep over targets follows. A sum is a function of the rows, of the weights and of the request alone:
groups of targets are fixed, and each is summed by itself.

The task of sums and forces, from checked arguments.

The task of densities of samples, from checked arguments.

A density is a sum of kernels, divided by the integral of the kernel and by the total weight of the samples.
Sums are computed relative to the kernel at the nearest sample with a weight, and so is the logarithm: far
from all samples, where every kernel underflows, it is right to the last digits. Where a compact kernel
reaches no sample it is minus infinity.

Sweeps over targets, block by block, and their memory.

Targets that are the sources are summed in the order of the tree, where groups are near each other, and
written to scratch; the driver brings them into the order of rows. Other targets are read panel by panel, each
panel sorted along a curve, and written as whole chunks.

Parameters of sums and densities, checked before anything is read.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors.lists import Metric
from rankfold.kernels.sums.laws import Law
from rankfold.kernels.sums.nearest import nearest_sources
from rankfold.kernels.sums.pairs import GROUP, scratch_bytes, sum_pairs
from rankfold.kernels.sums.tree_sums import sum_in_tree
from rankfold.methods.parts.outputs import create_output
from rankfold.methods.parts.square_range import require_squares
from rankfold.methods.random_keys import Purpose
from rankfold.methods.sums.accuracy import SAMPLE, Choice, Sample, bounded_choice, choose, needs_choice
from rankfold.methods.sums.arguments import (
    BANDWIDTH_RULES,
    SOFTENED,
    DensityArguments,
    KernelSumArguments,
)
from rankfold.methods.sums.kernels import (
    Kernel,
    bandwidth_by_rule,
    density_kernel,
    force_kernel,
    log_integral,
)
from rankfold.methods.sums.points import (
    TREE_COLUMNS,
    SourcePoints,
    building_bytes,
    open_weights,
    points_bytes,
    require_near,
)
from rankfold.methods.sums.work import Summation, Targets, Way, require_numbers
from rankfold.methods.task import Output
from rankfold.methods.tree.coordinates import PointReader
from rankfold.methods.tree.points import curve_order
from rankfold.pipeline.data.selection import select
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.blocks import Cut, own_streams
from rankfold.pipeline.engine.fold import DeclaredFold, Sum, Workspace
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.formats.open_like import open_beside, require_comparable
from rankfold.pipeline.planning.passes import RESERVE_BYTES, Pass, numbers_of
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import FittedSweeps, TaskFacts, plan_task
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.scratch import NOWHERE, ScratchMatrix

Float64 = npt.NDArray[np.float64]

LIKELY_PAIRS = 4000
"""Number of pairs summed for a target over a tree, as a plan assumes."""


@dataclass(frozen=True, slots=True)
class KernelSums:
    """Task of a kernel sum or of densities, at the sources themselves or at other targets.

    ``targets`` is None for sums at the sources, ``weights`` None if each source has weight 1.
    """

    source: Source
    targets: Source | None
    weights: Source | None
    parameters: SumRequest

    @property
    def at(self) -> Source:
        """Matrix of the points that get sums: the targets, or else the sources."""
        return self.source if self.targets is None else self.targets

    @property
    def is_density(self) -> bool:
        """True if sums are densities, to which a sample that is a target contributes too."""
        return self.parameters.kind == "density"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arrays of the result: ``log_density``, or ``sums`` and perhaps ``forces``."""
        if self.is_density:
            return ("log_density",)
        return ("sums", "forces") if self.parameters.forces else ("sums",)

    @property
    def summation(self) -> Summation:
        """Kernel to sum, with or without forces; for densities relative to the nearest sample."""
        law = self.parameters.law
        return Summation(law, self.parameters.forces, shifted=self.is_density)

    def request(self) -> dict[str, Any]:
        """Everything besides the numbers in ``source`` that determines the sums, as JSON types."""
        others = {"targets": self.targets, "weights": self.weights}
        identity = {
            name: None if each is None else [each.fingerprint(), list(each.shape)]
            for name, each in others.items()
        }
        return {**self.parameters.as_dict(), **identity}

    def outputs(self) -> tuple[Output, ...]:
        """Declare the arrays of the result: ``log_density`` (m,), or ``sums`` (m,) and ``forces`` (m, d).

        There are m targets, the rows of ``at``; forces are left out if not asked for.
        """
        rows, columns = self.at.shape
        chunks = len(rows_cut(rows).panels) - 1
        shapes = ((rows,), (rows, columns))
        float64 = np.dtype(np.float64)
        return tuple(
            Output(name, shape, float64, chunks) for name, shape in zip(self.names, shapes, strict=False)
        )

    def plan(self, budget: Budget) -> Plan:
        """Plan of a sweep over targets, with all sources in memory."""
        sources, width = self.source.shape[0], self.summation.width(self.source.shape[1])
        by_tree = self.source.shape[1] <= TREE_COLUMNS and self.parameters.tol > 0
        pairs = float(min(sources, LIKELY_PAIRS) if by_tree else sources)
        fold, _ = self._fold(None, Way(), NOWHERE, NOWHERE)
        itself, rows = self.targets is None, self.at.shape[0]
        sweeps = SumSweeps(PointReader(self.source, "euclidean"), fold, pairs, itself)
        task_facts = TaskFacts(
            kind=self.parameters.kind,
            method="tree" if by_tree else "exact",
            source=self.at,
            dtype=np.dtype(np.float64),
            orientation="points in memory",
            rank=0,
            width=width,
            result_bytes=8 * rows * width,
            scratch_bytes=8 * rows * width if itself else 0,
            subject=f"{self.parameters.kind} of this {sources} x {self.source.shape[1]} matrix, which holds "
            "all points,",
        )
        return plan_task(task_facts, sweeps, budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Compute and write the sums of all targets; returns the facts (metadata) of the result."""
        reader = PointReader(self.source, "euclidean")
        points = SourcePoints.read(reader, self.weights, without_weightless=self.is_density)
        run.passes += 1
        self._check(points)
        choice = self._choice(run, points)
        fold, into = self._fold(points, choice.way, run.result, run.scratch / "sums.bin")
        rows, columns = self.at.shape
        shapes: tuple[tuple[int, ...], ...] = ((rows,), (rows, columns))
        for name, shape in zip(self.names, shapes, strict=False):
            create_output(run.result, name, shape, np.float64, (fold.cut.panel_rows, columns)[: len(shape)])
        met = run.sweep("sums", fold)["met"]
        if into is not None:
            self._write(run, points, into)
        by_tree = points.sources is not None and not choice.way.is_exact
        facts = run.facts(self.request(), "tree" if by_tree else "exact", self.source, fingerprint)
        facts |= {
            "error": choice.error,
            "error_bound": choice.bound,
            "error_sample": choice.sample,
            "opening": choice.way.opening,
            "order": choice.way.order if by_tree else 0,
            "pairs": int(met[0]),
            "nodes": int(met[1]),
        }
        run.describe(facts)
        return facts

    def _check(self, points: SourcePoints) -> None:
        if self.is_density and not (points.weights.min() >= 0 and points.weights.sum() > 0):
            raise DataError("weights of a density must be at least 0, and one of them above: these are not")
        law = self.parameters.law
        if law.law is Law.INVERSE and law.scale == 0:
            box = np.stack([points.rows.min(axis=0), points.rows.max(axis=0)])
            require_squares(box, Metric.EUCLIDEAN, self.source)

    def _choice(self, run: Run, points: SourcePoints) -> Choice:
        """Choose how to compute sums, by trials at a sample if needed, or load an earlier choice."""
        tol, summation = self.parameters.tol, self.summation
        few = self.targets is not None and self.at.shape[0] <= SAMPLE  # a sample would be all of them
        if few or not needs_choice(summation, points, tol):
            return Choice(Way())
        bounded = bounded_choice(summation, self.at.shape[0], tol)
        if bounded is not None:
            return bounded

        def make() -> dict[str, npt.NDArray[Any]]:
            return choose(summation, points, self._sample(points), tol, run.concurrency).as_state()

        return Choice.from_state(run.prepare(run.part("choice.part"), make))

    def _sample(self, points: SourcePoints) -> Sample:
        """Targets drawn at random for trials: in whole groups if they are sources, else one by one."""
        rows = self.at.shape[0]
        key = np.array([self.parameters.seed, Purpose.SUM_TARGETS], np.uint64)
        drawn = np.sort(np.random.Generator(np.random.Philox(key=key)).choice(rows, min(SAMPLE, rows), False))
        if self.targets is not None:
            # One by one, far nodes lie nearer to the limit of what is far, so that errors are not smaller.
            some = select(self.targets, rows=drawn, columns=None)
            x = PointReader(some, "euclidean").read(0, len(drawn))
            require_near(x, f"targets {self.targets.name}")
            x = np.ascontiguousarray(x[curve_order(x, np.stack([x.min(axis=0), x.max(axis=0)]))])
            order = np.arange(len(drawn))
            return Sample(Targets.others(x), np.arange(len(drawn) + 1), order, rows)
        groups = np.unique(drawn // GROUP)
        runs = [np.arange(g * GROUP, min((g + 1) * GROUP, rows)) for g in groups.tolist()]
        places = np.concatenate(runs)
        edges = np.cumsum([0, *map(len, runs)])
        targets = Targets.among(points, places, leave_out=not self.is_density)
        return Sample(targets, edges, np.searchsorted(places, drawn), rows)

    def _fold(
        self, points: SourcePoints | None, way: Way, result: Path, scratch: Path
    ) -> tuple[SumAtSources | SumAtTargets, ScratchMatrix | None]:
        """Fold over targets; and, if these are the sources, the scratch matrix for its sums, else None.

        ``points`` is None for a plan. ``result`` is the path of the result, ``scratch`` that of the scratch
        matrix.
        """
        factor = self.parameters.law.factor
        if self.is_density:
            # In a plan, weights are neither known nor needed.
            total = 1.0 if points is None else float(points.weights.sum())
            integral = log_integral(self.parameters.kernel, self.parameters.length, self.source.shape[1])
            factor = -integral - math.log(total)
        rows, summation = self.at.shape[0], self.summation
        reader = PointReader(self.at, "euclidean")
        common: dict[str, Any] = {
            "cut": rows_cut(rows),
            "summation": summation,
            "points": points,
            "reader": reader,
            "way": way,
            "factor": factor,
        }
        if self.targets is not None:
            return SumAtTargets(**common, result=result, names=self.names), None
        into = ScratchMatrix(scratch, rows, summation.width(reader.columns), np.dtype(np.float64))
        return SumAtSources(**common, into=into, leave_out=not self.is_density), into

    def _write(self, run: Run, points: SourcePoints, into: ScratchMatrix) -> None:
        """Write sums into the result in the order of rows.

        ``into`` has them on scratch in the order of the tree; it is released.
        """
        in_order = run.load(into)
        places = np.empty(into.rows, np.int64)
        places[points.ids] = np.arange(into.rows)
        for start, stop in itertools.pairwise(rows_cut(into.rows).panels.tolist()):
            values = in_order[places[start:stop]]
            if not self.is_density:
                require_numbers(values, start, self.source.name)
            write_rows(run.result, self.names, values, start)
        run.release(into)


def kernel_sum_task(x: object, arguments: KernelSumArguments) -> KernelSums:
    """Make the task of sums of a kernel and of forces; ``x`` is the matrix of the sources."""
    source, others = open_points(x, arguments.targets)
    return KernelSums(source, others, open_weights(arguments.weights, source), sum_request(arguments))


def open_points(x: object, targets: object) -> tuple[Source, Source | None]:
    """Open sources, and targets if given; targets go through the same preparation steps (``prepare=``)."""
    source = open_source(x)
    others = None if targets is None else open_beside(targets, source)
    require_comparable(source, others, "targets")
    return source, others


def density_task(x: object, arguments: DensityArguments) -> KernelSums:
    """Make the task of densities of the samples ``x``, at these or at targets."""
    source, others = open_points(x, arguments.targets)
    request = density_request(arguments, source.shape)
    return KernelSums(source, others, open_weights(arguments.weights, source), request)


Int64 = npt.NDArray[np.int64]

PANEL_ROWS = (2**10, 2**15)
"""Fewest and most targets of a block; in between, a block has a 64th of all targets. Blocks are of whole
groups."""

SAMPLE_BYTES = 64 * 2**20
"""Upper bound on the bytes to measure errors at a sample: a thousand groups of targets, their sums, and
pieces of them."""


def rows_cut(rows: int) -> Cut:
    """Cut of ``rows`` targets into blocks, which are also chunks of the arrays of the result."""
    chunk = min(max(PANEL_ROWS[0], min(rows // 64, PANEL_ROWS[1])) // GROUP * GROUP, max(rows, 1))
    return own_streams(np.append(np.arange(0, rows, chunk), rows), chunk)


def write_rows(result: Path, names: tuple[str, ...], values: Float64, start: int) -> None:
    """Write ``values`` (r, 1 or 1 + d), sums and perhaps forces at targets from ``start`` on, in chunks.

    ``names`` are those of the arrays for sums and for forces in the result at path ``result``.
    """
    stop = start + len(values)
    write_whole_chunks(result / names[0], np.ascontiguousarray(values[:, 0]), (start, stop))
    if len(names) > 1:
        write_whole_chunks(
            result / names[1], np.ascontiguousarray(values[:, 1:]), (start, stop), (0, values.shape[1] - 1)
        )


@dataclass(frozen=True, slots=True)
class SumFold(DeclaredFold):
    """Base of the folds that compute sums, and forces if asked for, at targets, block by block."""

    cut: Cut
    summation: Summation
    points: SourcePoints | None
    """Sources; None in a plan."""

    reader: PointReader
    """Reader of the targets."""

    way: Way
    factor: float
    """Factor that sums and forces are multiplied by; for logarithms, a term that is added."""

    slots: int = 1
    row_seconds: float = 2e-5

    kernels = (sum_pairs, sum_in_tree, nearest_sources)

    def sums(self) -> Mapping[str, Sum]:
        """``met`` (2,): numbers of pairs, and of nodes of the tree, summed for all targets."""
        return {"met": Sum((2,), np.dtype(np.int64))}

    @property
    def temporary_bytes(self) -> int:
        """Additional bytes of a step: targets in two orders, with sums; buffers to read; scratch."""
        rows, columns = self.cut.panel_rows, self.reader.columns
        numbers = 3 * columns + 10 + 3 * self.summation.width(columns)
        nearest = 0 if columns <= TREE_COLUMNS else 3 * 8 * 2**20
        return self.reader.read_bytes(rows) + rows * 8 * numbers + scratch_bytes(columns) + nearest

    def values(self, targets: Targets, state: State) -> Float64:
        """(m, width) sums and forces at targets, times ``factor``; for densities, logarithms plus ``factor``.

        Adds the numbers of pairs and nodes to ``state``.
        """
        assert self.points is not None  # noqa: S101 - there is no run without
        sums, met = self.summation.at(self.points, targets, self.way)
        state["met"] += met
        if self.summation.shifted:
            return self.summation.logarithms(self.points, targets, sums[:, 0])[:, None] + self.factor
        return sums * self.factor + 0.0  # which turns -0 into 0


@dataclass(frozen=True, slots=True)
class SumAtSources(SumFold):
    """Fold that sums at the sources themselves, in the order of the tree, and writes to scratch.

    With ``leave_out``, a source does not contribute to its own sum.
    """

    into: ScratchMatrix | None = None
    leave_out: bool = True

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Sum at points ``start:stop`` of ``points.rows``, and write the sums to scratch.

        Numbers of pairs and nodes are added to ``state``.
        """
        assert self.points is not None and self.into is not None  # noqa: S101
        targets = Targets.among(self.points, np.arange(start, stop), leave_out=self.leave_out)
        self.into.write(start, np.ascontiguousarray(self.values(targets, state)))


@dataclass(frozen=True, slots=True)
class SumAtTargets(SumFold):
    """Fold that sums at targets other than the sources, and writes to arrays ``names`` of the result."""

    result: Path = Path("-")
    names: tuple[str, ...] = ()

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Read targets ``start:stop``, sum at them, and write the sums to the result.

        Numbers of pairs and nodes are added to ``state``.
        """
        assert self.points is not None  # noqa: S101
        x = self.reader.read(start, stop)
        require_near(x, f"targets {self.reader.source.name}")
        box = np.stack([x.min(axis=0), x.max(axis=0)])
        order = curve_order(x, box)
        in_order = self.values(Targets.others(np.ascontiguousarray(x[order])), state)
        by_row = np.empty_like(in_order)
        by_row[order] = in_order
        if not self.summation.shifted:
            require_numbers(by_row, start, self.reader.source.name)
        write_rows(self.result, self.names, by_row, start)


@dataclass(frozen=True, slots=True)
class SumSweeps:
    """A sweep over targets while sources are held in memory, for a plan; ``itself`` if both are the same."""

    reader: PointReader
    """Reader of the sources."""

    fold: SumAtSources | SumAtTargets
    pairs: float
    """Estimated number of pairs summed for each target."""

    itself: bool

    def arrange(self, budget: Budget) -> FittedSweeps:
        """Arrange as many threads as there is memory for besides the sources."""
        fold, rows = self.fold, self.fold.cut.length
        width = self.fold.summation.width(self.reader.columns)
        points, building = points_bytes(self.reader), building_bytes(self.reader)
        driver = max(building, SAMPLE_BYTES, 8 * rows * width + fold.temporary_bytes if self.itself else 0)
        room = budget.memory_bytes - RESERVE_BYTES - points
        task = fold.memory_bytes
        concurrency = max(1, min(budget.threads, fold.cut.stream_count, room // task))
        source = self.reader.source
        reads, item = source.shape[0] * source.shape[1], source.dtype.itemsize
        flops = source.shape[0] * math.log2(source.shape[0] + 1) * 10.0 * source.shape[1]
        reading = Pass("tree", "matrix", reads * item, 0, flops, points + building, 1, 1, blas_bytes=0)
        mine = 0 if self.itself else rows * fold.reader.source.shape[1] * fold.reader.source.dtype.itemsize
        sweep: Any = numbers_of(
            "sums",
            fold,
            mine,
            8 * rows * width,
            rows * self.pairs * 20.0,
            over="scratch" if self.itself else "matrix",
        )
        return FittedSweeps(
            passes=(reading, sweep),
            concurrency=concurrency,
            peak_bytes=RESERVE_BYTES + points + max(driver, concurrency * task),
            driver_bytes=points + driver,
            checkpoint_bytes=0,
            most_at_once=fold.cut.stream_count,
            grain_rows=fold.cut.panel_rows,
            panel_rows=fold.cut.panel_rows,
            most_passes=1,
            likely_passes=1,
        )


@dataclass(frozen=True, slots=True)
class SumRequest:
    """Parameters of a kernel sum or of densities; ``kind`` is ``"kernel_sum"`` or ``"density"``."""

    kind: str
    kernel: str
    length: float
    """Softening, or bandwidth for kernels without one, in units of the points."""

    forces: bool
    tol: float
    seed: int

    @property
    def law(self) -> Kernel:
        """The kernel: a law of distances with its scale, and the factor of sums."""
        if self.kind == "density":
            return density_kernel(self.kernel, self.length)
        softened = self.kernel in SOFTENED
        return force_kernel(self.kernel, self.length * softened, 1.0 if softened else self.length)

    def as_dict(self) -> dict[str, Any]:
        """Parameters by name, as JSON types: part of the facts of a result."""
        name = "softening" if self.kernel in SOFTENED else "bandwidth"
        asked = {"kind": self.kind, "kernel": self.kernel, name: self.length, "tol": self.tol}
        if self.kind == "density":
            return {**asked, "seed": self.seed}
        return {**asked, "forces": self.forces, "seed": self.seed}


def sum_request(arguments: KernelSumArguments) -> SumRequest:
    """Request of a kernel sum; raises ``InputError`` for parameters that the kernel does not take."""
    kernel, bandwidth = arguments.kernel, arguments.bandwidth
    if kernel in SOFTENED:
        length = arguments.softening
        if bandwidth is not None:
            raise InputError(f"{kernel} has no bandwidth: leave it out, or say softening")
    else:
        length = _bandwidth(1.0 if bandwidth is None else bandwidth)
        if arguments.softening:
            raise InputError(f"{kernel} has no softening: leave it out, or say bandwidth")
    return SumRequest("kernel_sum", kernel, length, arguments.forces, arguments.tol, arguments.seed)


def density_request(arguments: DensityArguments, shape: tuple[int, int]) -> SumRequest:
    """Request of densities of samples, a matrix of this ``shape``, from a caller's arguments."""
    bandwidth = arguments.bandwidth
    if isinstance(bandwidth, str) and bandwidth in BANDWIDTH_RULES:
        length = bandwidth_by_rule(bandwidth, *shape)
    else:
        length = _bandwidth(bandwidth)
    return SumRequest("density", arguments.kernel, length, False, arguments.tol, arguments.seed)


def _bandwidth(value: object) -> float:
    try:
        length = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        length = math.nan
    if not 0 < length < math.inf or isinstance(value, bool):
        raise InputError(
            f"bandwidth must be a number above 0, or for densities one of {', '.join(BANDWIDTH_RULES)}, not "
            f"{value!r}"
        )
    square = length * length
    if not 0 < square * square < math.inf:
        raise InputError(
            f"bandwidth {length:g} is beyond what its fourth power can be: scale the coordinates"
        )
    return length
