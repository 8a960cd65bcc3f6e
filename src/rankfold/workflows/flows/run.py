"""Run a workflow: stage after stage; finished stages are skipped, interrupted ones resume.

Everything is planned before anything is run. The result of a stage decides the action for the next. So a
stage whose request or input has changed is made again, with all stages made from it, and nothing else.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Protocol

from rankfold.api.execute import RankfoldWarning, execute
from rankfold.pipeline.engine.run import Progress
from rankfold.pipeline.errors import DataError, Interrupted, LockedError, RankfoldError
from rankfold.pipeline.planning.progress import SweepProgress
from rankfold.pipeline.storage.checkpoint import disk_errors
from rankfold.pipeline.storage.lock import hold_lock
from rankfold.pipeline.text import printable
from rankfold.workflows.flows.destinations import put_into
from rankfold.workflows.flows.importing import Importing
from rankfold.workflows.flows.plan import (
    StagePlan,
    Workflow,
    own_steps,
    plan_stage,
    require_no_store,
    survey,
    writable,
)
from rankfold.workflows.flows.record import LOCK, Record, require_own_record
from rankfold.workflows.flows.retention import EarlierResults, rows_of
from rankfold.workflows.flows.stage_tasks import StageInputs, StageResult
from rankfold.workflows.messages import in_file, with_place
from rankfold.workflows.monitoring.metrics import write_metrics
from rankfold.workflows.monitoring.news import outcome_of
from rankfold.workflows.reporting import exit_code_of

LOG = logging.getLogger("rankfold")

Bar = Callable[[str], contextlib.AbstractContextManager[Progress]]
"""Function from a unit, such as "rows", to a context that yields the progress callback of a stage."""


class AtWork(LockedError):
    """Raised if another process runs the same workflow."""


class Listener(Protocol):
    """Protocol of an object that is told of the events of a run, to show them."""

    def begins(self, verdict: StagePlan, number: int, count: int) -> None:
        """Called before stage ``number`` of ``count`` is run or skipped, with its plan."""

    def bar(self, unit: str) -> contextlib.AbstractContextManager[Progress]:
        """Context of a progress bar that counts in ``unit``, open while a stage runs; yields its callback."""

    def ends(self, verdict: StagePlan, record: Record) -> None:
        """Called when a stage was run and is done, with its plan and the record of the workflow."""


def run_flow(
    workflow: Workflow, listener: Listener, *, first: str | None = None, only: str | None = None
) -> list[StagePlan]:
    """Run a workflow, or what is left of it; returns the plan of every step, with the action taken.

    ``first`` and ``only`` choose steps: see ``Workflow.select_steps``.
    """
    if not workflow.outputs.exists():
        survey(workflow, {}, first=first, only=only)  # a refused workflow leaves no folder
    elif not writable(workflow.outputs):
        return _check_results(workflow, listener, first, only)
    with _open_record(workflow) as record, _told_of(record):
        # Plan all stages first: a mistake is found before hours of work.
        previews = survey(workflow, record.stages, first=first, only=only)
        scene, verdicts = StageInputs(workflow.flow, workflow.document, {}), list[StagePlan]()
        for number, preview in enumerate(previews, 1):
            if preview.action == "leave":
                scene.outcomes[preview.step.name] = StageResult(preview.path, preview.path.exists())
                verdicts.append(preview)
                record.count("leave")
                continue
            ours = preview.step.name in own_steps(record.stages)
            verdict = plan_stage(workflow, preview.step, scene, ours=ours)
            listener.begins(verdict, number, len(previews))
            if verdict.action == "skip":
                _leave(verdict, record)
            else:
                _carry_out(workflow, verdict, record, listener)
                write_metrics(record)
                scene.outcomes[verdict.step.name] = StageResult(verdict.path, True)
                listener.ends(verdict, record)
            _put_into(workflow, verdict, record)
            verdicts.append(verdict)
        _require_unchanged(workflow, record, verdicts, (first, only))
        for verdict in verdicts:
            if verdict.action != "leave" and verdict.step.stage.picture:
                record.note_pictures(verdict.step.name, [*workflow.pictures.draw(verdict.step, verdict.path)])
        return verdicts


def _require_unchanged(
    workflow: Workflow, record: Record, verdicts: list[StagePlan], choice: tuple[str | None, str | None]
) -> None:
    """Raise if inputs were written to while the workflow ran, so that stages used different states.

    ``verdicts`` are the plans of the run, and ``choice`` its arguments ``first`` and ``only``.
    """
    if all(verdict.action in ("skip", "leave") for verdict in verdicts):
        return
    now = survey(workflow, record.stages, first=choice[0], only=choice[1])
    changed = [verdict for verdict in now if verdict.action not in ("skip", "leave")]
    if changed:
        reasons = "; ".join(f"{verdict.step.name}: {', '.join(verdict.reasons)}" for verdict in changed)
        raise DataError(
            f"inputs have changed while the workflow ran, so that its results are not of the same data "
            f"({reasons}). Give the command again when nothing writes to them any more: it makes these anew"
        )


def _put_into(workflow: Workflow, verdict: StagePlan, record: Record) -> None:
    """Copy the result of a stage to its additional files (``into``), even if it was finished before."""
    try:
        put_into(verdict.step, verdict.path, workflow.document.path.absolute().parent, record)
    except RankfoldError as error:
        raise with_place(error, verdict.step.name, verdict.step.stage_name, workflow.document) from error


def _check_results(
    workflow: Workflow, listener: Listener, first: str | None, only: str | None
) -> list[StagePlan]:
    """Plan a workflow whose results cannot be written to, such as an archive; raises unless they are
    complete.
    """
    record = Record.of(workflow.outputs)
    record.require(workflow.flow.workflow)
    verdicts = survey(workflow, record.stages, first=first, only=only)
    for number, verdict in enumerate(verdicts, 1):
        if verdict.action != "leave":
            listener.begins(verdict, number, len(verdicts))
    return verdicts


@contextlib.contextmanager
def _open_record(workflow: Workflow) -> Iterator[Record]:
    """Lock the folder of results for this process, and yield its record."""
    outputs = workflow.outputs
    require_no_store(workflow)
    try:
        with disk_errors(outputs):
            outputs.mkdir(parents=True, exist_ok=True)
        require_own_record(outputs)
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(hold_lock(outputs / LOCK, outputs))
            except LockedError as error:
                raise AtWork(error.message) from error
            record = Record.of(outputs)
            record.require(workflow.flow.workflow)
            read = workflow.flow.model_dump(mode="json")
            names = [step.name for step in workflow.steps]
            record.describe(workflow.flow.workflow, workflow.document.path.absolute(), read, names)
            yield record
    except RankfoldError as error:
        error.args = (printable(in_file(error.message)),)
        raise


@contextlib.contextmanager
def _told_of(record: Record) -> Iterator[None]:
    """Note the start of a run of the workflow in the record and the metrics, and after the block its end."""
    record.begin_run()
    write_metrics(record)
    code = 0
    try:
        yield
    except BaseException as error:
        code = exit_code_of(error)
        raise
    finally:
        try:
            record.end_run(code)
        except RankfoldError as error:  # of a full disk: how the run itself ended is what counts
            LOG.warning("how this run ended is not written down: %s", error)
        write_metrics(record)


def _leave(verdict: StagePlan, record: Record) -> None:
    """Note that a stage was skipped since it is finished; adds facts of its result if the record has none."""
    name = verdict.step.name
    record.note_done(name, verdict.step.stage.method)
    record.count("skip")
    if not record.outcome(name):
        record.note_outcome(name, {**outcome_of(verdict.path, None, None), "read_bytes_last": None})
    EarlierResults(verdict.path).finish()


def _carry_out(workflow: Workflow, verdict: StagePlan, record: Record, listener: Listener) -> None:
    """Run a stage by its plan, and record how it ended."""
    name, executor, path = verdict.step.name, verdict.executor, verdict.path
    rows_before = rows_of(path) if path.exists() else None
    where = {"kind": "this process"} if executor is None else executor.facts()
    record.begin(name, verdict.step.stage.method, verdict.reasons, where, anew=verdict.action != "resume")
    try:
        _work(workflow, verdict, record, listener)
    except RankfoldError as error:
        more_to_do = exit_code_of(error) == Interrupted.exit_code
        record.count("interrupted" if more_to_do else "failed")
        record.end(name, "interrupted" if more_to_do else "failed", in_file(error.message))
        raise with_place(error, name, verdict.step.stage_name, workflow.document) from error
    except BaseException as error:
        record.count("interrupted")
        record.end(name, "interrupted", f"{type(error).__name__} {error}".strip())
        raise
    record.end(name, "done")
    imports_bytes = verdict.work.reads_bytes if isinstance(verdict.work, Importing) else None
    record.count("run")
    record.note_outcome(name, outcome_of(path, rows_before, imports_bytes))
    EarlierResults(path).finish()


def _work(workflow: Workflow, verdict: StagePlan, record: Record, listener: Listener) -> None:
    name, work = verdict.step.name, verdict.work
    unit = "bytes" if isinstance(work, Importing) else "rows"
    if verdict.path.exists():
        EarlierResults(verdict.path).keep(workflow.keeps(verdict.step))
    with warnings.catch_warnings(), listener.bar(unit) as bar:
        warnings.simplefilter("ignore", RankfoldWarning)  # kept in the result

        def watch(sweep: str, units: int, total: int) -> None:
            record.progress(name, sweep, units, total)
            bar(f"{name}: {sweep}", units, total)

        if isinstance(bar, SweepProgress) and verdict.plan is not None:
            plan = verdict.plan
            bar.expect(lambda: plan)
        if isinstance(work, Importing):
            work.carry_out(lambda units, total: watch("import", units, total))
            return
        assert work is not None and verdict.executor is not None  # noqa: S101  it is not skipped
        scratch = workflow.resources(verdict.step).scratch
        # The result that is replaced is this workflow's own: see ``decide_action``.
        execute(work, verdict.executor, out=verdict.path, scratch=scratch, overwrite=True, progress=watch)
