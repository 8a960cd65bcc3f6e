"""Plan of a workflow: the action for each stage and its reasons; raises if something does not fit.

Check that results of a workflow can be written, and fit on the disk together with the scratch (temporary
files) of one stage.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankfold._version import __version__
from rankfold.api.execute import identity_of as whole_identity
from rankfold.api.finished import argument_of
from rankfold.cluster.executor import Executor, choose_executor
from rankfold.methods.growth.growth import ContinuedTask, grow
from rankfold.methods.registry import METHODS
from rankfold.methods.task import Task, make_plan
from rankfold.pipeline.errors import DiskSpaceError, InputError, MemoryBudgetError, OutputError, RankfoldError
from rankfold.pipeline.machine import bytes_under, device_of, free_bytes, nearest_folder
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.storage.checkpoint import load_json
from rankfold.pipeline.storage.manifest import damage_of
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.storage.run_directory import STATE_VERSION, scratch_of_runs
from rankfold.pipeline.units import format_bytes
from rankfold.settings.yaml_file import Document, no_such
from rankfold.workflows.flows.cost import Numbers, numbers_of
from rankfold.workflows.flows.destinations import Pictures, require_destinations, require_distinct
from rankfold.workflows.flows.flow_file import Flow, read_flow, resolve_path
from rankfold.workflows.flows.graph import StageNode, steps_of
from rankfold.workflows.flows.importing import Importing, stored_identity
from rankfold.workflows.flows.record import Record
from rankfold.workflows.flows.retention import EarlierResults
from rankfold.workflows.flows.stage_models import Import, Resources
from rankfold.workflows.flows.stage_tasks import (
    NotKnownYet,
    StageInputs,
    StageResult,
    expected_result,
    task_of,
)
from rankfold.workflows.messages import with_place

CONTENTS = {"queries": "queries", "base": "base", "result": "result", "left": "result"}
CONTENTS |= {"update_of": "result", "start": "init", "second": "second"}
CONTENTS |= {"quality": "quality", "targets": "targets"}
"""Key of a stage that names a matrix or result, by the part of a request that identifies its content."""


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Plan of one step (a stage, with one value of a parameter sweep if there is one): action and reasons.

    ``path`` is that of its result. ``work``, ``executor``, ``plan`` and ``numbers`` (the cost) are None if
    they are not needed, or not known yet.
    """

    step: StageNode
    action: str
    """``run``, ``resume`` or ``skip``; ``leave`` if only other stages were asked for."""

    reasons: tuple[str, ...]
    path: Path
    work: Task | Importing | None = None
    executor: Executor | None = None
    plan: Plan | None = None
    numbers: Numbers | None = None

    def as_dict(self) -> dict[str, Any]:
        """The fields of the plan by name, for JSON."""
        return {
            "stage": self.step.name,
            "method": self.step.stage.method,
            "action": self.action,
            "reasons": list(self.reasons),
            "out": str(self.path),
            "numbers": None if self.numbers is None else self.numbers.as_dict(),
            "plan": None if self.plan is None else self.plan.as_dict(),
        }


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow file that has been read: its steps, and the folder of its results."""

    flow: Flow
    document: Document
    steps: tuple[StageNode, ...]

    @classmethod
    def read(cls, path: Path, cluster: str | None = None) -> Workflow:
        """Read a workflow file; ``cluster`` replaces the place of execution that it names.

        Mistakes are reported with their lines.
        """
        flow, document = read_flow(path)
        if cluster is not None:
            flow = flow.model_copy(update={"profile": cluster})
        return cls(flow, document, steps_of(flow, document))

    @property
    def outputs(self) -> Path:
        """The folder of the results."""
        return Path(self.flow.outputs)

    @property
    def pictures(self) -> Pictures:
        """Pictures of all steps."""
        return Pictures(self.steps, self.outputs.absolute(), self.document)

    def out(self, step: StageNode) -> Path:
        """Path of the result of a step."""
        return self.outputs / f"{step.name}.zarr"

    def resources(self, step: StageNode) -> Resources:
        """Resources of a step: those of the workflow, except where the stage sets its own."""
        own = {name: value for name, value in step.stage.resources if value is not None}
        resources = self.flow.resources.model_copy(update=own)
        if resources.scratch is None:
            return resources
        folder = self.document.path.absolute().parent
        return resources.model_copy(update={"scratch": resolve_path(resources.scratch, folder)})

    def executor(self, step: StageNode) -> Executor:
        """Place of execution of a step."""
        own = self.resources(step)
        return choose_executor(
            cluster=self.flow.profile,
            workers=own.workers,
            threads=own.threads,
            memory=own.memory,
            device=own.device,
        )

    def keeps(self, step: StageNode) -> int:
        """Largest number of results of a step to keep, including the newest."""
        return self.flow.keep if step.stage.keep is None else step.stage.keep

    def check_plan(self) -> list[StagePlan]:
        """Plan all steps; raises now for what a run would refuse later."""
        record = Record.of(self.outputs)
        record.require(self.flow.workflow)
        return survey(self, record.stages)

    def select_steps(self, first: str | None, only: str | None) -> set[str]:
        """Names of the steps that were asked for: ``first`` and all after it, ``only`` this one, or all.

        Both are names of a step, or of a stage for all its steps.
        """
        if first is None and only is None:
            return {step.name for step in self.steps}
        if first is not None and only is not None:
            raise InputError("--from and --only exclude each other: give one of them")
        stage = first or only
        positions = [i for i, step in enumerate(self.steps) if stage in (step.name, step.stage_name)]
        if not positions:
            raise InputError(f"{self.document.path}: {no_such('stage', stage, self.flow.stages)}")
        selection = self.steps[positions[0] :] if first else [self.steps[i] for i in positions]
        return {step.name for step in selection}


def survey(
    workflow: Workflow,
    record: Mapping[str, Mapping[str, Any]],
    *,
    first: str | None = None,
    only: str | None = None,
) -> list[StagePlan]:
    """Decide the action for every step, given the facts of each in the record of the workflow.

    ``first`` and ``only`` are as for ``Workflow.select_steps``; other steps get the action ``leave``.

    Raises
    ------
    PlanError
        A stage does not fit into its memory, or all of them do not fit on the disk.
    OutputError
        Results cannot be written to the folder of outputs.
    """
    require_no_store(workflow)
    selection, scene = workflow.select_steps(first, only), StageInputs(workflow.flow, workflow.document, {})
    folder = workflow.document.path.absolute().parent
    require_distinct(workflow.steps, folder)
    workflow.pictures.require()
    verdicts, ours = [], own_steps(record)
    refusals: list[tuple[StageNode, MemoryBudgetError]] = []
    for step in workflow.steps:
        if step.name not in selection:
            verdicts.append(_plan_left_out(workflow, step, scene))
            continue
        try:
            verdicts.append(_plan_stage(workflow, step, scene, ours=step.name in ours))
        except MemoryBudgetError as error:
            refusals.append((step, error))
        except RankfoldError as error:
            raise with_place(error, step.name, step.stage_name, workflow.document) from error
    if refusals:
        raise _most_memory(refusals, workflow.document)
    if any(verdict.action in ("run", "resume") for verdict in verdicts):
        require_writable(workflow.outputs, workflow.document)
    require_room(list(_demands(workflow, verdicts)), workflow.outputs, workflow.document)
    return verdicts


def own_steps(record: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Names of steps that this workflow itself has begun, from its record; other
    results may come from elsewhere.
    """
    return {name for name, stage in record.items() if "started" in stage}


def require_no_store(workflow: Workflow) -> None:
    """Raise if results would be written into a Zarr store, such as an input."""
    out = workflow.outputs.absolute()
    for folder in (out, *out.parents):
        if any((folder / name).exists() for name in ("zarr.json", ".zgroup", ".zarray")):
            message = f"{out} lies in {folder}, which is a Zarr store. Name a folder of its own for results"
            raise OutputError(workflow.document.message_at(("outputs",), message))


def _demands(workflow: Workflow, verdicts: Iterable[StagePlan]) -> Iterator[Demand]:
    """Yield the disk space that each step to run needs, if that is known."""
    for one in verdicts:
        if one.numbers is not None:
            scratch = Path(workflow.resources(one.step).scratch or workflow.outputs)
            checkpoint_bytes = 0 if one.plan is None else one.plan.checkpoint_bytes
            scratch_bytes = one.numbers.scratch_bytes - checkpoint_bytes
            surplus = EarlierResults(one.path).surplus(workflow.keeps(one.step))
            sizes = scratch_bytes, checkpoint_bytes, one.numbers.result_bytes
            yield Demand(one.step.name, one.path, scratch, *sizes, tuple(surplus))


def plan_stage(workflow: Workflow, step: StageNode, scene: StageInputs, *, ours: bool) -> StagePlan:
    """Decide the action for a step, given in ``scene`` the results of those before it; adds its own there.

    ``ours`` is True if this workflow has begun the step before, so that its result may be replaced.
    """
    try:
        return _plan_stage(workflow, step, scene, ours=ours)
    except RankfoldError as error:
        raise with_place(error, step.name, step.stage_name, workflow.document) from error


def _most_memory(
    refusals: Sequence[tuple[StageNode, MemoryBudgetError]], document: Document
) -> RankfoldError:
    """One error for all stages that need more memory than they have.

    It asks for the largest need, so that the memory that it asks for is enough for the others too.
    """
    shared = [one for one in refusals if one[0].stage.resources.memory is None]
    step, error = max(shared or refusals[:1], key=lambda one: one[1].need_bytes)
    if len(refusals) > 1:  # what else helps one of them does not help the others
        error = error.of_chain(way_out=False)
    return with_place(error, step.name, step.stage_name, document)


def _plan_left_out(workflow: Workflow, step: StageNode, scene: StageInputs) -> StagePlan:
    """Plan for a step that was not asked for: its existing result is used as it is."""
    path = workflow.out(step)
    there = path.exists()
    scene.outcomes[step.name] = StageResult(path, there)
    return StagePlan(step, "leave", ("used as it is" if there else "missing",), path)


def _plan_stage(workflow: Workflow, step: StageNode, scene: StageInputs, *, ours: bool) -> StagePlan:
    """Decide the action for a step, as ``plan_stage`` does, but without the place in errors.

    Its future result is added to ``scene`` even if it does not fit into memory, which raises.
    """
    verdict, scene.outcomes[step.name] = _decide(workflow, step, scene, ours=ours)
    work = verdict.work
    if verdict.action == "skip" or work is None or isinstance(work, Importing):
        return verdict
    executor = executor_of(workflow, step)
    plan = make_plan(work, executor.budget)
    return dataclasses.replace(verdict, executor=executor, plan=plan, numbers=numbers_of(work, plan))


def _decide(
    workflow: Workflow, step: StageNode, scene: StageInputs, *, ours: bool
) -> tuple[StagePlan, StageResult]:
    path = workflow.out(step)
    require_destinations(step, workflow.document.path.absolute().parent, Record.of(workflow.outputs))
    waits = [name for name in step.feeds_on if not scene.outcomes[name].there]
    if unavailable := [name for name in waits if not scene.outcomes[name].to_come]:
        raise InputError(f"{unavailable[0]}, which it reads, is not finished: run that first, or all stages")
    try:
        work: Task | Importing
        if isinstance(step.stage, Import):
            work = Importing.of(step.stage, scene, path, workflow.resources(step).memory)
        else:
            work = task_of(step.stage, scene)
    except NotKnownYet as error:
        verdict = StagePlan(step, "run", (*_missing(path), str(error)), path)
        return verdict, StageResult(path, False, to_come=True)
    action, reasons = "run", (*_missing(path), *(f"needs {name}, which runs" for name in waits))
    if not waits:
        device = "cpu" if isinstance(work, Importing) else executor_of(workflow, step).budget.device
        if step.stage.grows is not None and not isinstance(work, Importing):
            growing = grow(work, step.stage.grows, path, device, redo=step.stage.changed == "redo")
            if growing is None:
                return StagePlan(step, "skip", ("no new rows",), path, work), StageResult(path, True)
            work = growing
        action, reasons = decide_action(work, step, path, device, ours=ours)
        if action == "run" and isinstance(work, ContinuedTask) and work.replaces:
            reasons = (_news(work),)
    if action == "skip":
        return StagePlan(step, action, reasons, path, work), StageResult(path, True)
    if isinstance(work, Importing):
        numbers = numbers_of(work, None)
        return StagePlan(step, action, reasons, path, work, None, None, numbers), work.outcome(step.name)
    return StagePlan(step, action, reasons, path, work), expected_result(step.name, path, work)


def _news(work: ContinuedTask) -> str:
    """Reason why a stage with ``grows`` runs: the number of new rows, or that earlier rows have changed."""
    return f"{work.new_rows} new rows" if work.origin else "rows changed that it stands on"


def executor_of(workflow: Workflow, step: StageNode) -> Executor:
    """Place of execution of a step: this process, if its method needs no workers."""
    if METHODS[step.stage.method].in_process:
        return _in_this_process(workflow.resources(step))
    return workflow.executor(step)


def _in_this_process(resources: Resources) -> Executor:
    return choose_executor(cluster="local", threads=resources.threads, memory=resources.memory)


def _missing(path: Path) -> tuple[str, ...]:
    return () if path.exists() else ("missing",)


# Done, begun, or something else --------------------------------------------------------------------


def decide_action(
    work: Task | Importing, step: StageNode, path: Path, device: str, *, ours: bool
) -> tuple[str, tuple[str, ...]]:
    """Action (``run``, ``resume`` or ``skip``) for a step whose inputs all exist, and the reasons.

    ``path`` is that of its result, ``device`` the one it would be computed on. ``ours`` is True if this
    workflow has begun the step before; else another result at the path raises ``OutputError``.
    """
    mine = identity_of(work, device)
    draft = None if isinstance(work, Importing) else _unfinished_request(path)
    if draft is not None and {name: draft.get(name) for name in mine} == mine:
        if (draft.get("version"), draft.get("state_version")) == (__version__, STATE_VERSION):
            return "resume", ("was interrupted",)
        return "run", (f"rankfold {draft.get('version')} has begun it, this one cannot go on with it",)
    if not path.exists():
        return "run", ("missing", *(() if draft is None else differences(draft, mine, step)))
    identity = stored_identity(path) if isinstance(work, Importing) else _of_result(path)
    if identity == mine:
        damage = damage_of(path)
        if not damage:
            return "skip", ("finished",)
        return "run", (f"its result is damaged ({damage[0]})",)
    if not ours:
        raise OutputError(
            f"{path} exists and is not of this workflow: it is never replaced. Choose other outputs, or "
            "remove it yourself"
        )
    return "run", ("was interrupted",) if identity is None else differences(identity, mine, step)


def _unfinished_request(path: Path) -> dict[str, Any] | None:
    """Identity and versions of the unfinished run for the result at ``path``; None if there is no run."""
    request: dict[str, Any] | None = load_json(path.with_name(path.name + ".run") / "request.json", dict)
    return request


def identity_of(work: Task | Importing, device: str) -> dict[str, Any]:
    """Facts that determine the result of a task or import: its request, and the fingerprint of its input.

    For a task they include the edition of its method, and ``device`` unless it is the CPU.
    """
    if isinstance(work, Importing):
        return work.identity()
    return whole_identity(work.request(), work.source.fingerprint(), device)


def _of_result(path: Path) -> dict[str, Any] | None:
    """Identity stored in the result at ``path``, as ``identity_of`` returns it.

    If it is no such result, an identity that equals no other.
    """
    try:
        attrs = Result(path).attrs
        more = {"edition": attrs.get("edition", 1), **{k: attrs[k] for k in ("device",) if k in attrs}}
        return {"request": attrs["request"], "input": attrs["input"]["fingerprint"], **more}
    except (InputError, KeyError):
        return {"request": {"kind": "something else"}, "input": None}


def differences(earlier: Mapping[str, Any], mine: Mapping[str, Any], step: StageNode) -> tuple[str, ...]:
    """Texts on the differences between two identities, with the keys of the step in the workflow file."""
    old, new = earlier.get("request") or {}, mine["request"]
    if old.get("kind") != new["kind"]:
        return (f"method: {old.get('kind')} -> {new['kind']}",)
    keys, changes = type(step.stage).model_fields, dict[str, None]()
    for name in new:
        argument = argument_of(name, new["kind"])
        key = CONTENTS.get(name, argument)
        if old.get(name) == new[name] or key not in keys:
            continue
        if name in CONTENTS:
            changes[f"{key} {getattr(step.stage, key)} changed"] = None
        else:
            changes[f"parameter {key}: {_short(old.get(name))} -> {_short(new[name])}"] = None
    inputs_differ = [
        earlier.get("input") != mine["input"],
        (old.get("lists") or [0])[0] != new.get("lists", [0])[0],
    ]
    for key, differs in zip(step.stage.keys_from_source(), inputs_differ, strict=False):
        if differs:
            changes[f"{key} {getattr(step.stage, key)} changed"] = None
    devices = earlier.get("device", "cpu"), mine.get("device", "cpu")
    if devices[0] != devices[1]:
        changes[f"device: {devices[0]} -> {devices[1]}"] = None
    if earlier.get("edition", 1) != mine.get("edition", 1):
        changes[f"{new['kind']} has another edition"] = None
    return tuple(changes) or ("its request changed",)


def _short(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 24 else f"{text[:24]}..."


@dataclass(frozen=True, slots=True)
class Demand:
    """Disk space that the stage ``name`` needs."""

    name: str
    path: Path
    """The path of its result."""

    scratch: Path
    """Folder of its scratch (temporary files); by default that of the result."""

    scratch_bytes: int
    checkpoint_bytes: int
    """Bytes of checkpoints, which lie next to the result and are removed at the end of the stage."""

    result_bytes: int
    surplus: tuple[Path, ...] | None = None
    """Earlier results that are removed when the new one is complete; None for the one that it replaces."""


def require_room(demands: Sequence[Demand], outputs: Path, document: Document) -> None:
    """Raise ``DiskSpaceError`` if results do not fit into the folder ``outputs``, before anything is written.

    Stages run one after the other, so only the largest scratch counts. Files of an earlier attempt count as
    space already taken. Results that a new one replaces free their space when it is complete: the result
    before it, or the oldest if several are kept.
    """
    free = free_bytes(outputs)
    need = _most(demands, outputs, [(0, 0)] * len(demands))
    if need > free:  # only then is it worth reading the size of every file
        need = _most(demands, outputs, [_leftovers_of(one) for one in demands])
    if need > free:
        results = sum(one.result_bytes for one in demands)
        largest = max(demands, key=lambda one: one.result_bytes + _beside(one, outputs))
        total = largest.result_bytes + _beside(largest, outputs)
        scratch = max(_beside(one, outputs) for one in demands)
        raise DiskSpaceError(
            document.message_at(
                ("outputs",),
                f"results of {len(demands)} stage{'s' * (len(demands) != 1)} take {format_bytes(results)}, "
                f"scratch at most {format_bytes(scratch)} at a time, so that "
                f"{format_bytes(need)} must be free, but {outputs} has {format_bytes(free)}. Free "
                f"{format_bytes(need - free)}, name outputs on another file system, or move scratch with "
                f"scratch: DIR under resources. {largest.name} takes most, {format_bytes(total)}",
            )
        )
    for one in demands:
        if device_of(one.scratch) == device_of(outputs):
            continue
        missing = one.scratch_bytes - free_bytes(one.scratch)
        if missing > 0 and missing > _scratch_left(one):
            raise DiskSpaceError(
                document.message_at(
                    ("resources", "scratch"),
                    f"scratch of {one.name} takes {format_bytes(one.scratch_bytes)}, but {one.scratch} has "
                    f"{format_bytes(free_bytes(one.scratch))} free. Free some space, or name another folder",
                )
            )


def writable(folder: Path) -> bool:
    """True if files can be made in a folder, which may not exist yet."""
    return os.access(nearest_folder(folder), os.W_OK | os.X_OK)


def require_writable(outputs: Path, document: Document) -> None:
    """Raise ``OutputError`` if nothing can be written to the folder of results,
    before anything is computed.
    """
    if not writable(outputs):
        folder = nearest_folder(outputs)
        message = f"results go to {outputs}, but {folder} cannot be written to. Name outputs elsewhere"
        raise OutputError(document.message_at(("outputs",), message))


def _most(demands: Sequence[Demand], outputs: Path, leftovers: Sequence[tuple[int, int]]) -> int:
    """Largest number of bytes in use at any time, beyond those in use now.

    ``leftovers`` holds for each stage what ``_leftovers_of`` returns.
    """
    most = results = 0
    for one, (attempt, old) in zip(demands, leftovers, strict=True):
        most = max(most, results + one.result_bytes + _beside(one, outputs) - attempt)
        results += one.result_bytes - attempt - old
    return max(most, results)


def _beside(one: Demand, outputs: Path) -> int:
    """Bytes that a stage needs on the disk of the results while it runs, in addition to its result."""
    elsewhere = device_of(one.scratch) != device_of(outputs)
    return one.checkpoint_bytes + (0 if elsewhere else one.scratch_bytes)


def _leftovers_of(one: Demand) -> tuple[int, int]:
    """Bytes that become free on the disk of the results: of files of an earlier attempt, and of old results.

    The old results are removed when the new one is complete.
    """
    gone = (one.path,) if one.surplus is None else one.surplus
    attempt = bytes_under(one.path.with_name(one.path.name + ".run"))
    if device_of(one.scratch) == device_of(one.path):
        attempt += _scratch_left(one)
    return attempt, sum(map(bytes_under, gone))


def _scratch_left(one: Demand) -> int:
    """Bytes that an earlier attempt has left in the folder of scratch."""
    run = one.path.with_name(one.path.name + ".run")
    return sum(map(bytes_under, scratch_of_runs(run, one.scratch)))
