"""A model of runs on a described machine: time, efficiency and what limits them, on 1 to 4096 workers.

Pure functions of a plan and of a few numbers of the machine. The same formulas, with the numbers of workers
that sleep, predict what ``scale.py`` measures: that is how the model is tested.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankfold.methods.fuzzy_graph.lists import imagined_lists
from rankfold.methods.registry import METHODS
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.engine.sweep import part_counts
from rankfold.pipeline.errors import RankfoldError
from rankfold.pipeline.planning.passes import Pass
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.scaling import NOMINAL, merge_seconds, tail_seconds
from rankfold.pipeline.planning.seconds import ELEMENT_SECONDS, NOMINAL_GATHERED_FLOPS, Rates
from rankfold.pipeline.planning.shape_only import ShapeOnly
from rankfold.pipeline.planning.traffic import panel_traffic

COLUMNS, CHUNK_ROWS = 1000, 65_536
WORKERS = tuple(2**power for power in range(13))
TERABYTES = (1, 10, 100)
GAIN = 1.1
"""Two times the workers that make a run less than so many times as fast are not worth it."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a model knows of it. Seconds of the scheduler and of the driver are those of the simulation."""

    name: str
    cores: int
    """Of a worker."""

    memory_bytes: int
    """Working memory of a worker."""

    network_bytes: float
    """In a second to and from one worker."""

    bandwidth: float
    """Bytes in a second of the file system, for all workers together."""

    rates: Rates
    """Of what folds a stream: a core, or a GPU."""

    gpus: int = 0
    task_seconds: float = 0.5e-3
    """That the scheduler takes for a task."""

    graph_seconds: float = 0.1e-3
    """That the driver takes for a task before the first one starts."""

    start_seconds: float = 0.5
    """From a graph that is made to all workers at work, and from the last task to the next sweep."""

    latency_seconds: float = 5e-3
    """From the end of a task to the start of the next on the same thread."""

    overlaps: bool = True
    """Whether a panel is read while the one before is multiplied."""


TB, GIB = 10**12, 2**30
NODES = {
    "cpu": Machine("4 workers of 32 cores to a node", 32, 112 * GIB, 25e9 / 4, 500e9, NOMINAL),
    "gpu": Machine(
        "4 workers of one GPU to a node", 32, 112 * GIB, 25e9 / 4, 500e9, Rates(15e12, 7e12, 20e9), gpus=1
    ),
    "whole": Machine("one worker of 128 cores to a node", 128, 480 * GIB, 25e9, 500e9, NOMINAL),
}
"""Nodes of 128 cores or 4 GPUs, 512 GB and 200 Gb/s, and a Lustre file system of 500 GB/s."""

SLEEPERS = Machine(
    "workers of one thread that sleep", 1, 4 * GIB, math.inf, math.inf, NOMINAL, overlaps=False
)
"""As ``scale.py`` simulates them: what a core reads and multiplies comes one after the other."""


@dataclass(frozen=True, slots=True)
class SweepSeconds:
    """Where the time of a sweep goes; reading and products side by side where panels are read ahead."""

    reading: float = 0.0
    products: float = 0.0
    streams: float = 0.0
    """Beyond what the work would take if all workers had an equal share of it."""

    merges: float = 0.0
    scheduler: float = 0.0
    exchange: float = 0.0
    driver: float = 0.0
    total: float = 0.0

    def __add__(self, other: SweepSeconds) -> SweepSeconds:
        values = (getattr(self, f.name) + getattr(other, f.name) for f in dataclasses.fields(self))
        return SweepSeconds(*values)

    @property
    def limit(self) -> str:
        """What takes the most of it."""
        names = [f.name for f in dataclasses.fields(self) if f.name != "total"]
        return max(names, key=lambda name: float(getattr(self, name)))


def lanes_of(plan: Plan, workers: int) -> int:
    """Segments that workers can run at once."""
    return max(1, plan.concurrency) * workers


def sweep_seconds(plan: Plan, sweep: Pass, machine: Machine, workers: int) -> SweepSeconds:
    """One sweep on so many workers."""
    lanes = lanes_of(plan, workers)
    busy = min(lanes, sweep.streams)
    feeding = min(workers, -(-sweep.streams // max(1, plan.concurrency)))
    moved = sweep.reads_bytes + sweep.writes_bytes
    reading = moved / min(machine.bandwidth, machine.network_bytes * feeding)
    work = lane_seconds(plan, sweep, machine)
    # Streams are equal: the last wave of them takes as long as the others. Meetings of pairs are many.
    folding = work / busy if plan.groups else work * -(-sweep.streams // busy) / sweep.streams
    products = work / lanes
    folded = max(reading, folding) if machine.overlaps else folding
    merging = merge_seconds(sweep) * sum(part_counts(sweep.streams)[1:]) / busy + tail_seconds(sweep)
    waits = machine.latency_seconds * sweep.tasks / busy
    scheduling = max(0.0, machine.task_seconds * sweep.tasks - folded) + waits
    exchange = sweep.exchange_bytes * max(workers / machine.bandwidth, 1 / machine.network_bytes)
    driver = machine.graph_seconds * sweep.tasks + machine.start_seconds
    total = folded + merging + scheduling + exchange + driver
    idle = max(0.0, folded - max(products, reading if machine.overlaps else 0.0))
    return SweepSeconds(
        reading * machine.overlaps, products, idle, merging, scheduling, exchange, driver, total
    )


def lane_seconds(plan: Plan, sweep: Pass, machine: Machine) -> float:
    """All segments of a sweep one after the other: products, and touching what is read."""
    rates = machine.rates if sweep.on_device or not machine.gpus else NOMINAL
    narrow = (sweep.item or np.dtype(plan.working_dtype).itemsize) == 4
    if sweep.numbers:
        speed = NOMINAL_GATHERED_FLOPS[4 if narrow else 8]
    elif sweep.over != "matrix":
        speed = rates.flops_float64 / 2
    else:
        speed = rates.flops_float32 if narrow else rates.flops_float64
    takes_panels = sweep.over == "matrix" and not plan.groups and not sweep.numbers
    elements = plan.shape[0] * plan.shape[1] * takes_panels
    touch = ELEMENT_SECONDS * elements * NOMINAL.read_bytes / rates.read_bytes
    return sweep.flops / speed + (sweep.reads_bytes + sweep.writes_bytes) / rates.read_bytes + touch


def run_seconds(plan: Plan, machine: Machine, workers: int) -> SweepSeconds:
    """All likely sweeps, one after the other."""
    total = SweepSeconds()
    for sweep in sweeps_of(plan):
        total += sweep_seconds(plan, sweep, machine, workers)
    return total


def sweeps_of(plan: Plan) -> list[Pass]:
    """Likely sweeps that have tasks; of a layout those that exchange positions, once it begins."""
    sweeps = [sweep for sweep in plan.likely_sweeps if sweep.tasks]
    return [sweep for sweep in sweeps if sweep.name == "layout"] if plan.kind == "umap" else sweeps


# Cases ------------------------------------------------------------------------------------------------


METHODS_OF_TABLE: dict[str, dict[str, Any]] = {
    "svd": {"rank": 50},
    "nmf": {"rank": 20},
    "knn": {"k": 15, "solver": "approximate"},
    "umap": {"k": 15},
}

DEVICES = {"knn": ("cpu",), "umap": ("whole",)}
"""Of methods that have no code for a GPU at such sizes, or need all of a node."""


def plan_of(kind: str, rows: int, machine: Machine, workers: int) -> Plan:
    """A plan of a method of so many rows of 1000 numbers; raises what does not fit."""
    budget = Budget(machine.memory_bytes, machine.cores, workers, bandwidth=machine.bandwidth)
    if machine.gpus:
        budget = Budget(machine.memory_bytes, 1, workers, 1, machine.cores - 1, bandwidth=machine.bandwidth)
    if kind == "umap":
        return METHODS["umap"].task(imagined_lists(rows, 15), init="random").plan(budget)
    source = ShapeOnly.with_chunks((rows, COLUMNS), np.dtype(np.float32), (CHUNK_ROWS, COLUMNS), "x")
    return METHODS[kind].task(source, **METHODS_OF_TABLE[kind]).plan(budget)


def case(kind: str, terabytes: int, device: str) -> dict[str, Any]:
    """One method of a matrix of so many terabytes, on 1 to 4096 workers."""
    machine, rows = NODES["whole" if kind == "umap" else device], terabytes * TB // (4 * COLUMNS)
    facts: dict[str, Any] = {"method": kind, "terabytes": terabytes, "machine": machine.name, "rows": rows}
    plan: Plan | None = None
    points = []
    for workers in WORKERS:
        if plan is None or kind == "umap":
            try:
                plan = plan_of(kind, rows, machine, workers)
            except RankfoldError as error:
                facts["refusal"] = str(error)
                continue
        seconds = run_seconds(plan, machine, workers)
        points.append({"workers": workers, **dataclasses.asdict(seconds), "limit": seconds.limit})
    if not points or plan is None:
        return facts
    facts.pop("refusal", None)
    first = points[0]["workers"] * points[0]["total"]
    for point in points:
        point["efficiency"] = first / (point["workers"] * point["total"])
    stops_at, stopped_by = end_of(points)
    scaling = plan.scaling
    return {
        **facts,
        "solver": plan.method,
        "passes": plan.likely_passes,
        "tasks": max(sweep.tasks for sweep in plan.passes),
        "points": points,
        "stops_at": stops_at,
        "stopped_by": stopped_by,
        "plan_says": [scaling.workers, scaling.reason],
        "bounds": bounds(plan, machine, kind),
    }


def end_of(points: list[dict[str, Any]]) -> tuple[int, str]:
    """The last number of workers that twice as many are worth, and what of the time they do not halve."""
    names = [each.name for each in dataclasses.fields(SweepSeconds) if each.name != "total"]
    for one, two in itertools.pairwise(points):
        if one["total"] < GAIN * two["total"]:
            return one["workers"], max(
                names, key=lambda name, one=one, two=two: float(two[name] - one[name] / 2)
            )
    return points[-1]["workers"], "products"


def bounds(plan: Plan, machine: Machine, kind: str) -> dict[str, float]:
    """Bytes of one pass beside the least there can be: from the file system, and between workers."""
    matrix = [sweep for sweep in plan.likely_sweeps if sweep.over == "matrix"]
    if kind == "umap" or not matrix:
        return {}
    rows, columns = plan.shape
    widest = max(matrix, key=lambda sweep: sweep.reads_bytes)
    whole = 4.0 * rows * columns
    found = {"reads": widest.reads_bytes, "least_reads": whole}
    if plan.groups:
        # In a stretch that reads M words no more than 2 M have been there: rows for (2 M / d)^2 / 2 pairs. So
        # n^2 / 2 pairs take n^2 d^2 / (4 M) words.
        words = machine.memory_bytes / 4
        found["least_reads"] = max(whole, 4 * (rows * columns) ** 2 / (4 * words))
        return found
    if kind in ("svd", "nmf"):
        width = plan.width if kind == "svd" else plan.rank
        # Irony, Toledo, Tiskin 2004: m n b multiplications move m n b / (2 sqrt(2) sqrt(M)) - M words.
        words = machine.memory_bytes / 4
        product = rows * columns * width / (2 * math.sqrt(2) * math.sqrt(words)) - words
        found["least_reads"] = max(whole, 4 * product)
        traffic = panel_traffic(rows, columns, width, 512)
        found |= {"sends": float(traffic.sends_bytes), "least_sends": float(traffic.least_bytes)}
    return found


def cases() -> list[dict[str, Any]]:
    """All of the table."""
    found = []
    for kind, terabytes in itertools.product(METHODS_OF_TABLE, TERABYTES):
        for device in DEVICES.get(kind, ("cpu", "gpu")):
            found.append(case(kind, terabytes, device))
            print(kind, terabytes, device, found[-1].get("stops_at"), found[-1].get("stopped_by"), flush=True)
    return found
