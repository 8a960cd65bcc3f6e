"""Hundreds of workers that sleep: the planner, the graphs and the scheduler as they are, without the work.

A matrix of which there is nothing but shape, type and chunks is planned; each sweep of the plan is then
carried out by the engine and Dask's scheduler as in an allocation, on workers whose segments sleep for the
time that the plan predicts. What is measured is all that is not work: efficiency, processor seconds of the
scheduler for each task, memory of the process that leads, files and calls of the file system.

    python benchmarks/scale.py --workers 512 --out benchmarks/results/scale.json
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import logging
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
from loop_time import LoopClock
from scale_model import CHUNK_ROWS, COLUMNS, SLEEPERS, cases, sweep_seconds
from scale_workers import ROWS, Calls, NothingToCompile, SleepingFold

from rankfold.cluster.local.client import Client, prepare_scheduler
from rankfold.cluster.local.processes import scheduler_options, scheduler_settings
from rankfold.methods.registry import METHODS
from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.durability import Background, FilePolicy
from rankfold.pipeline.engine.fold import Fold
from rankfold.pipeline.engine.memory import anonymous_bytes, watched_memory
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.planning import passes as planned_passes
from rankfold.pipeline.planning.passes import Pass
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.scaling import MERGE_BYTE_SECONDS, NOMINAL
from rankfold.pipeline.planning.seconds import Reading, work_seconds
from rankfold.pipeline.planning.shape_only import ShapeOnly
from rankfold.pipeline.storage.run_directory import RunDirectory

NAP_SECONDS = 4.0
"""Of a segment of some 20 seconds."""

ROW_COUNT = 25_000_000_000
"""Of a matrix of 100 TB in chunks of 262 MB, float32."""


# A plan, and the folds of its sweeps -----------------------------------------------------------------------


@contextlib.contextmanager
def recorded_folds() -> Iterator[dict[str, list[Fold]]]:
    """The folds that are planned with, by the name of their sweep. Methods not loaded yet are listened to."""
    folds: dict[str, list[Fold]] = {}
    original = planned_passes.numbers_of

    def numbers_of(name: str, fold: Any, *others: Any, **options: Any) -> Pass:
        folds.setdefault(name, []).append(fold)
        return original(name, fold, *others, **options)

    planned_passes.numbers_of = numbers_of
    try:
        yield folds
    finally:
        planned_passes.numbers_of = original


@dataclasses.dataclass(frozen=True, slots=True)
class SleepingSweep:
    """A sweep of a plan that is to be slept through."""

    sweep: Pass
    cut: Cut
    row_seconds: float
    lane_seconds: float
    """Of all its segments, one after the other."""

    def fold(self, scale: float, numbers: int) -> SleepingFold:
        """So many times as fast as planned."""
        each = self.lane_seconds / self.cut.length
        merge = MERGE_BYTE_SECONDS * self.sweep.accumulator_bytes
        nap = NAP_SECONDS / scale
        return SleepingFold(self.cut, self.row_seconds, each / scale, merge / scale, numbers, nap)


def planned(kind: str, workers: int, rows: int, **arguments: Any) -> tuple[Plan, list[SleepingSweep]]:
    """The plan of a method of a matrix that is not there, on workers of one thread, and its likely sweeps."""
    source = ShapeOnly.with_chunks((rows, COLUMNS), np.dtype(np.float32), (CHUNK_ROWS, COLUMNS), "nothing")
    with recorded_folds() as folds:
        task = METHODS[kind].task(source, **arguments)
        plan = task.plan(Budget(4 * 2**30, 1, workers)).with_seconds(NOMINAL, source, workers)
    sweeps = []
    reading = Reading(1 / NOMINAL.read_bytes, alone=False)
    for sweep in plan.likely_sweeps:
        if not sweep.tasks:
            continue
        fold = next(each for each in folds[sweep.name] if each.cut.stream_count == sweep.streams)
        work = work_seconds(plan, sweep, NOMINAL, reading).total
        sweeps.append(SleepingSweep(sweep, fold.cut, fold.row_seconds, work))
    return plan, sweeps


# Workers ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def sleeping_workers(run: RunDirectory, count: int) -> Iterator[tuple[Client, Any, Path]]:
    """A scheduler in this process, as in an allocation, and workers in another; where those leave counts."""
    from distributed import Client as DaskClient
    from distributed import Scheduler, SpecCluster

    counts = run.folder / "workers.json"
    with (
        scheduler_settings(run),
        SpecCluster(
            scheduler={"cls": Scheduler, "options": scheduler_options("127.0.0.1")},
            workers={},
            silence_logs=logging.ERROR,
        ) as cluster,
        DaskClient(cluster, set_as_default=False) as client,
    ):
        where = [cluster.scheduler_address, "--count", str(count), "--out", str(counts)]
        script = Path(__file__).with_name("scale_workers.py")
        command = [sys.executable, str(script), *where, "--folder", str(run.folder)]
        with subprocess.Popen(command) as process:
            try:
                client.wait_for_workers(count, timeout=300)
                ready = prepare_scheduler(client, run, NothingToCompile(), workers=count, watch=lambda: None)
                with ready as scheduler:
                    yield scheduler, cluster, counts
                client.retire_workers(close_workers=True)
                process.wait(60)
            finally:
                process.kill()


def idle_shares(clock: LoopClock, seconds: float) -> dict[str, float]:
    """Of a processor, by a scheduler that has workers and no work."""
    before = clock.read()
    time.sleep(seconds)
    taken = clock.read() - before
    return {"heartbeats": taken.heartbeats / seconds, "others": taken.others / seconds}


# A run ------------------------------------------------------------------------------------------------------


def simulate(
    sweeps: list[SleepingSweep], workers: int, scale: float, numbers: int, idle_seconds: float
) -> dict[str, Any]:
    """Sleep through sweeps; what was measured of each, of all, and of a scheduler idle before and after."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="rankfold-scale-", dir=place))
    run_folder = RunDirectory.beside(folder / "nothing.zarr", None, "0" * 32)
    calls = Calls(str(folder))
    calls.watch()
    facts: list[dict[str, Any]] = []
    try:
        with (
            run_folder.claim({}, overwrite=False),
            sleeping_workers(run_folder, workers) as (scheduler, cluster, counts),
            (clock := LoopClock(cluster)).running(),
        ):
            idle = [idle_shares(clock, idle_seconds)]
            for each in sweeps:
                facts.append(slept(each, scheduler, clock, run_folder, workers, scale, numbers, calls))
                print(json.dumps(facts[-1]), flush=True)
            memory = anonymous_bytes() or 0
            idle.append(idle_shares(clock, idle_seconds))
        of_workers = json.loads(counts.read_text())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "workers": workers,
        "scale": scale,
        "idle_scheduler_shares": idle,
        "sweeps": facts,
        "end_bytes": memory,
        "worker_calls": of_workers["calls"],
        "worker_cpu_seconds": of_workers["cpu_seconds"],
    }


def slept(
    each: SleepingSweep,
    scheduler: Client,
    clock: LoopClock,
    folder: RunDirectory,
    workers: int,
    scale: float,
    numbers: int,
    calls: Calls,
) -> dict[str, Any]:
    """One sweep by the engine, and what it took."""
    background = Background()
    where = (folder.state, folder.scratch, folder.result)
    file_policy = FilePolicy(True, True, where, background)
    run = Run(*where, scheduler, 1, 1, at_once=workers, file_policy=file_policy)
    name, before = each.sweep.name, calls.counts.copy()
    cpu, loop = time.process_time(), clock.read()
    began = time.perf_counter()
    with watched_memory(0.05) as memory:
        state = run.sweep(name, each.fold(scale, numbers))
        seconds = time.perf_counter() - began
        background.finish()
        settled = time.perf_counter() - began
    assert int(state[ROWS][0]) == each.cut.length, "each row was folded once"
    tasks, taken = each.sweep.tasks, clock.read() - loop
    return {
        "sweep": name,
        "tasks": tasks,
        "streams": each.sweep.streams,
        "accumulator_bytes": each.sweep.accumulator_bytes,
        "lane_seconds": each.lane_seconds,
        "planned_seconds": each.lane_seconds / workers,
        "seconds": seconds,
        "settled_seconds": settled,
        "efficiency": each.lane_seconds / scale / workers / seconds,
        "scheduler_seconds": taken.heartbeats + taken.others,
        "heartbeat_seconds": taken.heartbeats,
        "process_cpu_seconds": time.process_time() - cpu,
        "peak_bytes": memory.peak,
        "driver_calls": dict(calls.counts - before),
    }


def predict(plan: Plan, made: dict[str, Any]) -> None:
    """What the model says of each sweep that was slept through, beside what was measured."""
    sweeps = {sweep.name: sweep for sweep in plan.passes}
    idle = statistics.mean(share["others"] for share in made["idle_scheduler_shares"])
    for one in made["sweeps"]:
        seconds = sweep_seconds(plan, sweeps[one["sweep"]], SLEEPERS, made["workers"])
        work = seconds.products + seconds.streams + seconds.merges
        one["predicted_seconds"] = work / made["scale"] + seconds.scheduler + seconds.driver
        others = one["scheduler_seconds"] - one["heartbeat_seconds"]
        one["scheduler_seconds_of_a_task"] = (others - idle * one["seconds"]) / one["tasks"]


def main() -> None:
    """Plan, sleep, and write down what was measured; or what the model says of a described machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=512)
    parser.add_argument("--scale", type=float, default=1.0, help="how many times faster than planned")
    parser.add_argument("--rows", type=int, default=ROW_COUNT)
    parser.add_argument("--numbers", type=int, default=0, help="float64 numbers of an accumulator")
    parser.add_argument("--idle", type=float, default=30.0, help="seconds without work, before and after")
    parser.add_argument("--only", nargs="*", default=(), help="names of sweeps")
    parser.add_argument("--model", action="store_true", help="the model, and no simulation")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/scale.json"))
    asked = parser.parse_args()
    results = json.loads(asked.out.read_text()) if asked.out.exists() else {"simulations": {}}
    if asked.model:
        results["model"] = cases()
    else:
        began = time.perf_counter()
        plan, sweeps = planned("svd", asked.workers, asked.rows, rank=50, solver="krylov")
        planning = time.perf_counter() - began
        sweeps = [each for each in sweeps if not asked.only or each.sweep.name in asked.only]
        made = simulate(sweeps, asked.workers, asked.scale, asked.numbers, asked.idle)
        predict(plan, made)
        made |= {"shape": list(plan.shape), "planning_seconds": planning, "numbers": asked.numbers}
        made |= {"system": platform.platform(), "cores": os.cpu_count()}
        results["simulations"][f"{asked.workers} workers, {asked.scale:g} times as fast"] = made
        print(json.dumps(made, indent=1))
    asked.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
