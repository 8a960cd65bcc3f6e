"""What running a workflow would do, stage by stage and why, in numbers; refuses what does not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankfold._version import __version__
from rankfold.cluster.place import Place, choose_place
from rankfold.cluster.yaml_file import Document, no_such
from rankfold.execution import Task
from rankfold.pipeline.checkpoint import load_json
from rankfold.pipeline.errors import InputError, OutputError, RankfoldError
from rankfold.pipeline.plan import Plan
from rankfold.pipeline.result import Result
from rankfold.pipeline.rundir import STATE_VERSION
from rankfold.pipeline.units import format_bytes
from rankfold.workflows.flow import Flow, Import, Resources, located, read_flow
from rankfold.workflows.graph import Step, steps_of
from rankfold.workflows.importing import Importing, kept_identity
from rankfold.workflows.stages import NotKnownYet, Outcome, Scene, expected, task_of
from rankfold.workflows.wording import columns, placed

CALLED = {"method": "algorithm", "alpha_w": "alpha_W", "alpha_h": "alpha_H"}
CALLED |= {"constraint_w": "constraint_W", "constraint_h": "constraint_H"}
"""Parts of a request that a file calls otherwise."""

CONTENTS = {"queries": "queries", "base": "base", "result": "result", "left": "result"}
CONTENTS |= {"update_of": "result", "start": "init"}
"""Parts of a request that stand for what something holds, by the key that names it."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What a stage takes."""

    passes: str
    reads_bytes: int
    peak_bytes: int
    scratch_bytes: int
    result_bytes: int
    tasks: int

    @classmethod
    def of(cls, plan: Plan) -> Numbers:
        """Of the passes that are likely."""
        likely, most = plan.likely_passes, plan.most_passes
        matrix = [p.reads_bytes for p in plan.passes if p.over == "matrix"]
        passes = str(likely) if likely == most else f"{likely} to {most}"
        return cls(
            passes, sum(matrix[:likely]), plan.peak_bytes, plan.scratch_bytes, plan.result_bytes, plan.tasks
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """A step, what is to be done about it, and why."""

    step: Step
    action: str
    """``run``, ``resume``, ``skip``, or ``leave`` where only other stages were asked for."""

    reasons: tuple[str, ...]
    path: Path
    work: Task | Importing | None = None
    place: Place | None = None
    plan: Plan | None = None
    numbers: Numbers | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "stage": self.step.name,
            "method": self.step.stage.method,
            "action": self.action,
            "reasons": list(self.reasons),
            "out": str(self.path),
            "plan": None if self.plan is None else self.plan.as_dict(),
        }


@dataclass(frozen=True, slots=True)
class Workflow:
    """A file that was read, its steps, and the folder of its results."""

    flow: Flow
    document: Document
    steps: tuple[Step, ...]

    @classmethod
    def read(cls, path: Path, on: str | None = None) -> Workflow:
        """Read a file, to be run ``on`` another place than it says; every mistake is told with its line."""
        flow, document = read_flow(path)
        if on is not None:
            flow = flow.model_copy(update={"profile": on})
        return cls(flow, document, steps_of(flow, document))

    @property
    def outputs(self) -> Path:
        """Where results go."""
        return Path(self.flow.outputs)

    def out(self, step: Step) -> Path:
        """Where the result of a step goes."""
        return self.outputs / f"{step.name}.zarr"

    def resources(self, step: Step) -> Resources:
        """Those of the workflow, but for what the stage has of its own."""
        own = {name: value for name, value in step.stage.resources if value is not None}
        found = self.flow.resources.model_copy(update=own)
        if found.scratch is None:
            return found
        folder = self.document.path.absolute().parent
        return found.model_copy(update={"scratch": located(found.scratch, folder)})

    def place(self, step: Step) -> Place:
        """Where a step runs."""
        own = self.resources(step)
        return choose_place(on=self.flow.profile, workers=own.workers, threads=own.threads, memory=own.memory)

    def chosen(self, first: str | None, only: str | None) -> set[str]:
        """Names of the steps that were asked for."""
        if first is None and only is None:
            return {step.name for step in self.steps}
        if first is not None and only is not None:
            raise InputError("--from and --only exclude each other: give one of them")
        wanted = first or only
        found = [i for i, step in enumerate(self.steps) if wanted in (step.name, step.declared)]
        if not found:
            raise InputError(f"{self.document.path}: {no_such('stage', wanted, self.flow.stages)}")
        kept = self.steps[found[0] :] if first else [self.steps[i] for i in found]
        return {step.name for step in kept}


def survey(
    workflow: Workflow, made: Iterable[str], *, first: str | None = None, only: str | None = None
) -> list[Verdict]:
    """What is to be done about every step; ``made`` are those that this workflow has begun before.

    Raises
    ------
    PlanError
        A stage does not fit into its memory.
    """
    chosen, scene = workflow.chosen(first, only), Scene(workflow.flow, workflow.document, {})
    found, ours = [], set(made)
    for step in workflow.steps:
        if step.name in chosen:
            found.append(consider(workflow, step, scene, ours=step.name in ours))
        else:
            found.append(_left(workflow, step, scene))
    return found


def consider(workflow: Workflow, step: Step, scene: Scene, *, ours: bool) -> Verdict:
    """What is to be done about a step, given what those before it leave; adds what it will leave itself."""
    try:
        verdict, outcome = _considered(workflow, step, scene, ours=ours)
    except RankfoldError as error:
        raise placed(error, step.name, step.declared, workflow.document) from error
    scene.outcomes[step.name] = outcome
    return verdict


def _left(workflow: Workflow, step: Step, scene: Scene) -> Verdict:
    """A step that was not asked for: what it has left is used as it is."""
    path = workflow.out(step)
    there = path.exists()
    scene.outcomes[step.name] = Outcome(path, there)
    return Verdict(step, "leave", ("used as it is" if there else "missing",), path)


def _considered(workflow: Workflow, step: Step, scene: Scene, *, ours: bool) -> tuple[Verdict, Outcome]:
    path = workflow.out(step)
    waits = [name for name in step.feeds_on if not scene.outcomes[name].there]
    if lost := [
        name for name in waits if scene.outcomes[name].matrices is None and not _will_run(scene, name)
    ]:
        raise InputError(f"{lost[0]}, which it reads, is not finished: run that first, or all stages")
    try:
        work: Task | Importing
        if isinstance(step.stage, Import):
            work = Importing.of(step.stage, scene, path, workflow.resources(step).memory)
        else:
            work = task_of(step.stage, scene)
    except NotKnownYet as error:
        return Verdict(step, "run", (*_missing(path), str(error)), path), Outcome(
            path, False, None, {"later": 1}
        )
    action, reasons = "run", (*_missing(path), *(f"needs {name}, which runs" for name in waits))
    if not waits:
        action, reasons = judged(work, step, path, ours=ours)
    if action == "skip":
        return Verdict(step, action, reasons, path, work), Outcome(path, True)
    if isinstance(work, Importing):
        numbers = Numbers("1", work.reads_bytes, work.memory, 0, work.result_bytes, 1)
        outcome = work.outcome(step.name)
        outcome = Outcome(path, False, outcome.matrices, {"later": 1})
        return Verdict(step, action, reasons, path, work, None, None, numbers), outcome
    place = workflow.place(step)
    plan = work.plan(place.budget)
    verdict = Verdict(step, action, reasons, path, work, place, plan, Numbers.of(plan))
    return verdict, expected(step.name, path, work)


def _will_run(scene: Scene, name: str) -> bool:
    """Whether a step whose shapes are unknown is one that runs, and not one that was left out."""
    return bool(scene.outcomes[name].facts)


def _missing(path: Path) -> tuple[str, ...]:
    return () if path.exists() else ("missing",)


# Done, begun, or something else --------------------------------------------------------------------


def judged(work: Task | Importing, step: Step, path: Path, *, ours: bool) -> tuple[str, tuple[str, ...]]:
    """What to do about a step whose inputs are all there, and why."""
    mine = identity_of(work)
    begun = None if isinstance(work, Importing) else _begun(path)
    if begun is not None and {name: begun.get(name) for name in mine} == mine:
        if (begun.get("version"), begun.get("state_version")) == (__version__, STATE_VERSION):
            return "resume", ("was interrupted",)
        return "run", (f"rankfold {begun.get('version')} has begun it, this one cannot go on with it",)
    if not path.exists():
        return "run", ("missing", *(() if begun is None else differences(begun, mine, step)))
    kept = kept_identity(path) if isinstance(work, Importing) else _of_result(path)
    if kept == mine:
        return "skip", ("finished",)
    if not ours:
        raise OutputError(
            f"{path} exists and is not of this workflow: it is never replaced. Choose other outputs, or "
            "remove it yourself"
        )
    return "run", ("was interrupted",) if kept is None else differences(kept, mine, step)


def _begun(path: Path) -> dict[str, Any] | None:
    """What an unfinished run is to make."""
    found = load_json(path.with_name(path.name + ".run") / "request.json")
    return found if isinstance(found, dict) else None


def identity_of(work: Task | Importing) -> dict[str, Any]:
    """What decides the result of a task."""
    if isinstance(work, Importing):
        return work.identity()
    return {"request": work.request(), "input": work.source.fingerprint()}


def _of_result(path: Path) -> dict[str, Any] | None:
    """What decided a result; nothing of what is none."""
    try:
        attrs = Result(path).attrs
        return {"request": attrs["request"], "input": attrs["input"]["fingerprint"]}
    except (InputError, KeyError):
        return {"request": {"kind": "something else"}, "input": None}


def differences(kept: Mapping[str, Any], mine: Mapping[str, Any], step: Step) -> tuple[str, ...]:
    """In what two requests differ, as the file calls it."""
    old, new = kept.get("request") or {}, mine["request"]
    if old.get("kind") != new["kind"]:
        return (f"method: {old.get('kind')} -> {new['kind']}",)
    keys, told = type(step.stage).model_fields, dict[str, None]()
    for name in new:
        key = CONTENTS.get(name, CALLED.get(name, name))
        if old.get(name) == new[name] or key not in keys:
            continue
        if name in CONTENTS:
            told[f"{key} {getattr(step.stage, key)} changed"] = None
        else:
            told[f"parameter {key}: {_short(old.get(name))} -> {_short(new[name])}"] = None
    if kept.get("input") != mine["input"]:
        told[f"input {step.stage.input} changed"] = None
    return tuple(told) or ("its request changed",)


def _short(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 24 else f"{text[:24]}..."


# For people ----------------------------------------------------------------------------------------

HEADINGS = ("stage", "method", "", "passes", "reads", "memory", "scratch", "result", "tasks", "why")


ACTIONS = {"run": "to run", "resume": "to go on with", "skip": "finished", "leave": "left out"}


def flow_table(verdicts: Sequence[Verdict]) -> str:
    """One line a stage."""
    rows: list[tuple[str, ...]] = [HEADINGS]
    for one in verdicts:
        numbers = one.numbers
        cells: tuple[str, ...] = ("-",) * 6
        if numbers is not None:
            sizes = (numbers.reads_bytes, numbers.peak_bytes, numbers.scratch_bytes, numbers.result_bytes)
            cells = (numbers.passes, *(format_bytes(size) for size in sizes), str(numbers.tasks))
        rows.append((one.step.name, one.step.stage.method, one.action, *cells, "; ".join(one.reasons)))
    return f"{columns(rows, right=range(3, 9))}\n\n{_total(list(verdicts))}"


def _total(verdicts: list[Verdict]) -> str:
    """What is done with all of them."""
    counts = Counter(one.action for one in verdicts)
    told = ", ".join(f"{counts[name]} {words}" for name, words in ACTIONS.items() if counts[name])
    numbers = [one.numbers for one in verdicts if one.numbers is not None]
    if not numbers:
        return told
    peak, scratch = (max(getattr(n, name) for n in numbers) for name in ("peak_bytes", "scratch_bytes"))
    reads, results = (sum(getattr(n, name) for n in numbers) for name in ("reads_bytes", "result_bytes"))
    return (
        f"{told}: reads {format_bytes(reads)}, at most {format_bytes(peak)} in a worker, "
        f"{format_bytes(scratch)} of scratch at a time, {format_bytes(results)} of results"
    )
