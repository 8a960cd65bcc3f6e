"""Run a task at a place of execution and write its result to disk: plan, lock, run, publish. Common to all
commands.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rankfold.api.finished import difference_of_runs, finished_result, result_that_came
from rankfold.api.where import GrowOptions, RunOptions
from rankfold.cluster.executor import Executor, choose_executor
from rankfold.methods.chain import Chain
from rankfold.methods.growth.growth import grow
from rankfold.methods.registry import edition_of
from rankfold.methods.task import Task, absences_of, make_plan
from rankfold.methods.warm import MethodWarmup
from rankfold.pipeline.chunks.absence import REFUSAL, Absence
from rankfold.pipeline.data.source import MOST_FILES, Source
from rankfold.pipeline.engine.durability import Background, FilePolicy
from rankfold.pipeline.engine.memory import bound_heaps, watched_memory
from rankfold.pipeline.engine.run import Progress, Run, values_in
from rankfold.pipeline.engine.scheduler import Scheduler
from rankfold.pipeline.errors import (
    DamagedStateError,
    DataError,
    InputError,
    OutputError,
    argument,
    in_python,
)
from rankfold.pipeline.machine import machine_facts, one_blas_thread
from rankfold.pipeline.planning.plan import Plan, check_disk
from rankfold.pipeline.planning.progress import listener
from rankfold.pipeline.storage.manifest import (
    require_whole_input,
    write_manifest,
)
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.storage.run_directory import RunDirectory, digest, lies_in
from rankfold.pipeline.storage.temporary import TemporaryFolder
from rankfold.pipeline.text import printable

if TYPE_CHECKING:
    from rankfold.cluster.queues.system import JobScript

LOG = logging.getLogger("rankfold")


class RankfoldWarning(UserWarning):
    """Warning about something that the caller should know; also stored in the result."""

    def __init__(self, *values: object) -> None:
        super().__init__(*(printable(value) if isinstance(value, str) else value for value in values))


def run(task: Task, where: GrowOptions | RunOptions) -> Result:
    """Run a task with the options of a caller, such as the place of execution; returns its result."""
    executor = executor_of(where)
    out, overwrite, grows = (
        where.get("out"),
        where.get("overwrite", False),
        cast("GrowOptions", where).get("grows"),
    )
    if grows is not None:
        if out is None:
            raise InputError("grows goes on from the result in out, and there is none: say where it is, out=")
        growing = grow(task, grows, Path(out), executor.budget.device, redo=overwrite)
        if growing is None:
            return Result(out)
        task, overwrite = growing, overwrite or growing.replaces
    return execute(
        task,
        executor,
        out=out,
        scratch=where.get("scratch"),
        overwrite=overwrite,
        progress=where.get("progress"),
    )


def executor_of(where: RunOptions) -> Executor:
    """The executor that a caller chose by the options of the place of execution."""
    return choose_executor(
        cluster=where.get("cluster"),
        workers=where.get("workers"),
        threads=where.get("threads"),
        memory=where.get("memory"),
        client=where.get("client"),
        device=where.get("device"),
    )


def execute(
    task: Task,
    executor: Executor,
    *,
    out: str | Path | None,
    scratch: str | Path | None,
    overwrite: bool,
    progress: Progress | bool | None,
) -> Result:
    """Run a task on the workers of an executor, or return its finished result; resumes an interrupted run.

    Parameters
    ----------
    out
        Path of the result; None for a temporary store that lives as long as the returned object.
    scratch
        Folder for intermediate files; None for a folder next to the result.
    overwrite
        True to replace the result, or discard the unfinished run, of another request.
    progress
        As for ``listener``.
    """
    _require_local(out, scratch)
    if executor.is_remote and out is None:
        raise InputError(
            "workers on other machines need a folder that they share: say where the result goes, out="
        )
    plan = make_plan(task, executor.budget)
    return _execute(task, plan, executor, out, scratch, overwrite=overwrite, progress=progress)


def _execute(
    task: Task,
    plan: Plan,
    executor: Executor,
    out: str | Path | None,
    scratch: str | Path | None,
    *,
    overwrite: bool,
    progress: Progress | bool | None,
) -> Result:
    with listener(progress, lambda: plan) as listen:
        temporary = TemporaryFolder() if out is None else None
        output = temporary.path / "result.zarr" if temporary is not None else Path(out or "").absolute()
        fingerprint, identity, folder = _begun(task, executor, output, scratch, resumable=temporary is None)
        is_there = os.path.lexists(output)
        finished = finished_result(folder, identity, overwrite=overwrite) if is_there else None
        if finished is not None:
            folder.tidy(identity)
            return finished
        lacking = absences_of(task, MOST_FILES)
        executor = _with_work(executor, plan)
        executor.check()
        check_disk(plan, folder.scratch, folder.folder)
        with folder.claim(identity, overwrite=overwrite, difference=difference_of_runs) as held:
            if not is_there:
                held = held.replacing()
                finished = result_that_came(held, identity, overwrite=overwrite)
                if finished is not None:
                    return finished
            while isinstance(task, Chain):
                task = _last_link(task, held, executor, scratch, fingerprint, listen or False)
                plan = task.plan(executor.budget)
                executor = _with_work(executor, plan)
                check_disk(plan, folder.scratch, folder.folder)
            with listener(listen or False, lambda: plan) as hear:
                facts = _carry_out(task, held, plan, executor, fingerprint, lacking, hear)
        return Result(output, temporary=temporary, facts=None if temporary is None else facts)


def _begun(
    task: Task, executor: Executor, output: Path, scratch: str | Path | None, *, resumable: bool
) -> tuple[str, dict[str, Any], RunDirectory]:
    """Fingerprint of the matrix of a task, identity of its result, and the folder of its run, which is not
    yet made.

    The identity decides the result: see ``identity_of``. ``resumable`` is False if the result is temporary,
    so that nothing has to survive this process. Raises if inputs are incomplete, and for outputs that must
    not be written.
    """
    for result in values_in(task, Result):
        result.require_edition()
    task.source.check()
    require_whole_input(getattr(task.source, "path", None))
    fingerprint = task.source.fingerprint()
    identity = identity_of(task.request(), fingerprint, executor.budget.device)
    narrow = None if scratch is None else Path(scratch)
    folder = RunDirectory.beside(output, narrow, digest(identity), resumable=resumable)
    _require_place(task.source, output, folder.folder, *([] if narrow is None else [narrow]))
    return fingerprint, identity, folder.replacing()


def worker_jobs(
    task: Task,
    executor: Executor,
    *,
    out: str | Path,
    scratch: str | Path | None,
    overwrite: bool,
    what: str,
) -> list[JobScript]:
    """Jobs that ``execute`` would submit to a queue; empty if there are none, or if the result is finished.

    ``what`` is the purpose of the jobs in words, such as "workers of pca". Writes nothing and submits
    nothing. Raises what ``execute`` raises before it begins.
    """
    _require_local(out, scratch)
    plan, output = make_plan(task, executor.budget), Path(out).absolute()
    _, identity, folder = _begun(task, executor, output, scratch, resumable=True)
    if os.path.lexists(output) and finished_result(folder, identity, overwrite=overwrite) is not None:
        return []
    check_disk(plan, folder.scratch, folder.folder)
    return jobs_of(task, _with_work(executor, plan), folder, what)


def jobs_of(task: Task | None, executor: Executor, folder: RunDirectory, what: str) -> list[JobScript]:
    """Jobs that the workers of a task need, whose run has the folder ``folder``; empty without a queue.

    Each task of a chain has its own jobs. None is a task that is not known yet. ``what`` is the purpose of
    the jobs in words, for the user.
    """
    from rankfold.cluster.slurm.jobs import WorkerJobs

    if not isinstance(executor, WorkerJobs):
        return []
    if not isinstance(task, Chain):
        return [executor.script(what, folder.folder)]
    *before, last = task.links
    places = [(link, folder.state / f"{link.name}.zarr.run") for link in before] + [(last, folder.folder)]
    return [
        executor.limited_to(link.task.plan(executor.budget).useful_workers).script(
            f"{what}, {link.name}", place
        )
        for link, place in places
    ]


def _with_work(executor: Executor, plan: Plan) -> Executor:
    """The executor, limited to as many workers as a plan has work for."""
    workers = executor.budget.workers
    if workers <= plan.useful_workers:
        return executor
    LOG.warning("%d of %d workers are started: the matrix has no work for more", plan.useful_workers, workers)
    return executor.limited_to(plan.useful_workers)


def identity_of(request: dict[str, Any], fingerprint: str, device: str) -> dict[str, Any]:
    """Facts that determine a result: request, fingerprint of the matrix, edition of the method, and device.

    ``request`` is that of the task. The device is left out if it is the CPU; the last bits depend on it.
    """
    where = {} if device == "cpu" else {"device": device}
    return {"request": request, "input": fingerprint, "edition": edition_of(request["kind"]), **where}


def _require_unchanged(task: Task, folder: RunDirectory, fingerprint: str, device: str) -> None:
    """Raise if input data were changed while they were read: a result would belong to neither state.

    ``fingerprint`` is that of the matrix before the run. Data are not read again to compare them, so changes
    show only in fingerprints: of the matrix, and of all else that the request names by its fingerprint. Input
    results are checked by their manifests.
    """
    for result in values_in(task, Result):
        require_whole_input(str(result.path))
    try:
        identity = identity_of(task.request(), task.source.fingerprint(), device)
    except OSError:
        identity = {}
    if digest(identity) != folder.request:
        raise DataError(
            f"{task.source.name} has changed since this run began, or another of its inputs has: what was "
            "read before and after do not belong together, so no result is made of them. Give the command "
            "again when nothing writes to them any more."
        )


def _last_link(
    chain: Chain,
    held: RunDirectory,
    executor: Executor,
    scratch: str | Path | None,
    fingerprint: str,
    progress: Progress | bool,
) -> Task:
    """Run all tasks of a chain but the last, and return the last as a task on their results.

    The results stay in ``held``, the locked folder of the chain's run, until its last result is published, so
    the run is locked from the first task to the last. ``fingerprint`` is that of the chain's matrix.
    """
    results, steps = dict[str, Path](), {}
    *before, last = chain.links
    try:
        for link in before:
            results[link.name] = held.state / f"{link.name}.zarr"
            ready, where = link.ready(results), (executor, results[link.name], scratch)
            plan = ready.plan(executor.budget)
            result = _execute(ready, plan, *where, overwrite=True, progress=progress)
            steps[link.name] = result.run.get("attempts", [])
        _require_unchanged(chain, held, fingerprint, executor.budget.device)
    except DataError:
        held.discard()
        raise
    held.log_steps(steps, chain.plan(executor.budget).as_dict())
    return last.ready(results)


def _carry_out(
    task: Task,
    folder: RunDirectory,
    plan: Plan,
    executor: Executor,
    fingerprint: str,
    lacking: Mapping[str, Absence],
    progress: Progress | None,
) -> dict[str, Any]:
    """Compute the result of a task and publish it at the output of ``folder``; returns its attributes.

    ``fingerprint`` is that of the task's matrix. ``lacking`` holds, by name of a matrix, the chunks that its
    store does not hold.
    """
    bound_heaps()
    loops = task.loops() if hasattr(task, "loops") else {}
    kernels = MethodWarmup(task.source.dtype, {**task.request(), **loops}, task.source.shape)
    compiling, loading = kernels.timed()
    facts = {**machine_facts(), "place": executor.facts(), "plan": plan.as_dict()}
    facts |= {"compile_seconds": compiling, "load_seconds": loading}
    start = time.perf_counter()
    folder.log_attempt(facts)
    try:
        with executor.open_scheduler(folder, kernels) as scheduler, watched_memory() as memory:
            began = time.perf_counter()
            with one_blas_thread():  # between sweeps too
                run, outcome = _work(task, folder, plan, executor, scheduler, fingerprint, lacking, progress)
            seconds = time.perf_counter() - began
    except DataError:
        folder.discard()
        raise
    folder.log_attempt(
        {
            **facts,
            "wait_seconds": began - start,
            "seconds": seconds,
            "passes": run.earlier_passes + run.passes,
            "sweep_seconds": run.seconds,
            "baseline_bytes": memory.baseline,
            "peak_bytes": memory.peak,
            "measured_bytes": _most(memory.above_baseline, run.worker_bytes),
            "planned_bytes": plan.peak_bytes,
            **run.notes,
            "finished": True,
        }
    )
    folder.publish()
    for message in outcome["warnings"]:
        warnings.warn(in_python(message), RankfoldWarning, stacklevel=_level_of_caller())
    return outcome


def _level_of_caller() -> int:
    """Number of stack frames between the caller of this function and the code that uses the package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("rankfold."):
        level, frame = level + 1, frame.f_back
    return level


def _work(
    task: Task,
    folder: RunDirectory,
    plan: Plan,
    executor: Executor,
    scheduler: Scheduler,
    fingerprint: str,
    lacking: Mapping[str, Absence],
    progress: Progress | None,
) -> tuple[Run, dict[str, Any]]:
    """Compute the result of a task; returns the run, whose files are intact, and the result's attributes.

    If a file turns out to be damaged, it is set aside and the task begins again. Intact parts are read from
    disk, so each time fewer files remain that could be damaged. If the same file is damaged a second time,
    the run ends: its disk does not keep what is written.
    """
    damage = set[Path]()
    where = (folder.state, folder.scratch, folder.result)
    at_once = plan.concurrency * executor.budget.workers
    background, edition = Background(), edition_of(task.request()["kind"])
    file_policy = FilePolicy(folder.resumable, executor.is_remote, where, background)
    try:
        while True:
            run = Run(
                *where,
                scheduler,
                plan.concurrency,
                plan.slots,
                progress,
                plan.groups,
                at_once,
                executor.budget.memory_bytes,
                file_policy,
                edition,
                executor.budget.device,
                require_held=folder.require_held,
                warnings=[f"{name.rpartition('/')[2]}: {each}; {REFUSAL}" for name, each in lacking.items()],
                missing_chunks=lacking[task.source.name].as_dict() if task.source.name in lacking else {},
            )
            try:
                facts = task.work(run, fingerprint)
                background.finish()
                _require_unchanged(task, folder, fingerprint, executor.budget.device)
                if folder.resumable:
                    write_manifest(folder.result, folder.request, run.result_sums())
                return run, facts
            except DamagedStateError as error:
                if error.path in damage or not run.make_again(error):
                    raise
                damage.add(error.path)
    finally:
        background.stop()


def _most(driver: int | None, workers: int) -> int | None:
    """Larger of the peaks of memory, in bytes, of the driver (this process) and of the workers.

    None if that of the driver is unknown.
    """
    return None if driver is None else max(driver, workers)


def _require_local(*paths: str | Path | None) -> None:
    for path in paths:
        if path is not None and re.match("[a-z][a-z0-9]+:/", str(path)):  # a Path has one slash left
            raise OutputError(
                f"{path} is not on a file system: results and scratch are written to one that all workers "
                "share. Choose a folder there, and copy the result afterwards."
            )


def _require_place(source: Source, output: Path, run: Path, *scratch: Path) -> None:
    """Raise if the output, its run folder or scratch would lie in the store of ``source``, or around it."""
    path = getattr(source, "path", None)
    if path is None:
        return
    for location in (output, run, *scratch):
        # Scratch has folders of its own: other files may lie next to them.
        if lies_in(location, path) or (location not in scratch and lies_in(path, location)):
            name = "scratch" if location in scratch else "out"
            raise OutputError(
                f"{location} would lie in, on or around its own input {path}. Choose another "
                f"{argument(name)}."
            )
