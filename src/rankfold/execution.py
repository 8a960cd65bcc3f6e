"""From a task and a place to a result on disk: plan, claim, run, publish. The same for every command."""

from __future__ import annotations

import logging
import re
import shutil
import time
import warnings
from pathlib import Path
from typing import Any, Protocol

from rankfold.cluster.place import Place
from rankfold.pipeline.editions import edition_of
from rankfold.pipeline.errors import DataError, InputError, OutputError
from rankfold.pipeline.memory import watched_memory
from rankfold.pipeline.plan import Plan, check_disk
from rankfold.pipeline.result import Result
from rankfold.pipeline.run import Progress, Run
from rankfold.pipeline.rundir import RunDirectory, digest, machine_facts
from rankfold.pipeline.scheduler import Budget
from rankfold.pipeline.source import Source
from rankfold.pipeline.temporary import TemporaryFolder
from rankfold.pipeline.warm import Kernels

LOG = logging.getLogger("rankfold")


class RankfoldWarning(UserWarning):
    """Something was done that the caller should know of; also kept in the result."""


class Task(Protocol):
    """What a command wants done with a matrix."""

    @property
    def source(self) -> Source:
        """The matrix that is swept."""

    def request(self) -> dict[str, Any]:
        """Everything that decides the numbers besides the matrix, for JSON."""

    def plan(self, budget: Budget) -> Plan:
        """Its numbers; raises ``PlanError`` for what does not fit."""

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Write the result into ``run.result``; its facts, ``warnings`` among them."""


def execute(
    task: Task,
    place: Place,
    *,
    out: str | Path | None,
    scratch: str | Path | None,
    overwrite: bool,
    progress: Progress | None,
) -> Result:
    """The result of a task: made now, resumed, or found finished."""
    _require_local(out, scratch)
    if place.elsewhere and out is None:
        raise InputError(
            "workers on other machines need a folder that they share: say where the result goes, out="
        )
    made = task.plan(place.budget)
    task.source.check()
    fingerprint = task.source.fingerprint()
    identity = identity_of(task.request(), fingerprint)
    temporary = TemporaryFolder() if out is None else None
    output = temporary.path / "result.zarr" if temporary is not None else Path(out or "").absolute()
    folder = RunDirectory.beside(output, None if scratch is None else Path(scratch), digest(identity))
    _require_place(output, task.source)
    if output.exists() and _done(output, identity, overwrite=overwrite):
        return Result(output)
    if place.budget.workers > made.useful_workers:
        LOG.warning(
            "%d of %d workers are started: the matrix has no work for more",
            made.useful_workers,
            place.budget.workers,
        )
        place = place.at_most(made.useful_workers)
    check_disk(made, _free(folder.scratch), folder.scratch, folder.held_bytes)
    with folder.claimed(identity, overwrite=overwrite):
        _carry_out(task, folder, made, place, fingerprint, progress)
    return Result(output, temporary=temporary)


def identity_of(request: dict[str, Any], fingerprint: str) -> dict[str, Any]:
    """What a result is the answer to."""
    return {"request": request, "input": fingerprint, "edition": edition_of(request["kind"])}


def _carry_out(
    task: Task, folder: RunDirectory, made: Plan, place: Place, fingerprint: str, progress: Progress | None
) -> None:
    kernels = Kernels.of(task.source.dtype, task.request(), task.source.shape)
    kernels.warm()
    facts = {**machine_facts(), "place": place.facts(), "plan": made.as_dict()}
    asked = time.perf_counter()
    folder.log_attempt(facts)
    try:
        with place.opened(folder, kernels) as scheduler, watched_memory() as memory:
            began = time.perf_counter()
            where = (folder.state, folder.scratch, folder.result)
            at_once = made.concurrency * place.budget.workers
            run = Run(*where, scheduler, made.concurrency, made.slots, progress, made.groups, at_once)
            found = task.work(run, fingerprint)
            seconds = time.perf_counter() - began
    except DataError:
        # It cannot lead to a result. What is known of one that stays in place is not of this run.
        folder.clear() if folder.output.exists() else folder.discard()
        raise
    folder.log_attempt(
        {
            **facts,
            "wait_seconds": began - asked,
            "seconds": seconds,
            "passes": run.passes,
            "sweep_seconds": run.seconds,
            "baseline_bytes": memory.baseline,
            "peak_bytes": memory.peak,
            "measured_bytes": _most(memory.above_baseline, run.worker_bytes),
            "planned_bytes": made.peak_bytes,
            **run.notes,
            "finished": True,
        }
    )
    folder.publish()
    for message in found["warnings"]:
        warnings.warn(message, RankfoldWarning, stacklevel=4)


def _most(driver: int | None, workers: int) -> int | None:
    """Memory of the process that held most of it."""
    return None if driver is None else max(driver, workers)


def _done(output: Path, identity: dict[str, Any], *, overwrite: bool) -> bool:
    """Whether the output is the finished answer to this request."""
    try:
        found = Result(output)
        attrs = found.attrs
    except InputError:
        attrs = {}
    if (
        attrs
        and attrs["request"] == identity["request"]
        and attrs["input"]["fingerprint"] == identity["input"]
        and attrs.get("edition", 1) == identity["edition"]
    ):
        damage = found.lacking()
        if damage is not None and not overwrite:
            raise OutputError(damage)
        return damage is None
    if not attrs:
        raise OutputError(
            f"{output} exists and is not a result of rankfold, so it is never replaced. Choose another "
            "--out, or remove it yourself."
        )
    if overwrite:
        return False
    raise OutputError(
        f"{output} exists and is the result of another request, of data that has changed since, or of an "
        "earlier edition of the method. Choose another --out, or replace it with --overwrite."
    )


def _require_local(*paths: str | Path | None) -> None:
    for path in paths:
        if path is not None and re.match("[a-z][a-z0-9]+:/", str(path)):  # a Path has one slash left
            raise OutputError(
                f"{path} is not on a file system: results and scratch are written to one that all workers "
                "share. Choose a folder there, and copy the result afterwards."
            )


def _require_place(output: Path, source: Source) -> None:
    """Refuse an output that would write into its own input, or around it."""
    path = getattr(source, "path", None)
    if path is None:
        return
    held, out = Path(path).resolve(), output.resolve()
    if held == out or held in out.parents or out in held.parents:
        raise OutputError(f"{output} would lie in, on or around its own input {path}. Choose another --out.")


def _free(folder: Path) -> int:
    """Bytes free where a folder is or will be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free
