"""``rankfold run``, ``status``, ``schema`` and ``example``: workflows from a file."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankfold.pipeline.text import Lines, json_text
from rankfold.workflows.options import Json, Print, command
from rankfold.workflows.reporting import say

if TYPE_CHECKING:
    from rankfold.pipeline.engine.run import Progress
    from rankfold.workflows.flows.plan import StagePlan
    from rankfold.workflows.flows.record import Record


def flow(
    flow: Annotated[Path, typer.Argument(metavar="FLOW.yaml", help="the workflow: see docs/workflows.md")],
) -> Path:
    """Path of the workflow to run."""
    return flow


class ConsoleListener:
    """Prints progress to stderr, and results of stages to stdout, unless ``quiet``; a ``run.Listener``."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def begins(self, verdict: StagePlan, number: int, count: int) -> None:
        """Print stage ``number`` of ``count``, what is done with it (run, resume or skip), and reasons."""
        name, method = verdict.step.name, verdict.step.stage.method
        why = "; ".join(verdict.reasons)
        say(f"stage {number} of {count}: {name}, {method}: {verdict.action} ({why})", err=True)

    def bar(self, unit: str) -> contextlib.AbstractContextManager[Progress]:
        """A progress bar on stderr that counts in ``unit``, such as "rows"."""
        from rankfold.pipeline.planning.progress import SweepProgress

        return SweepProgress(unit)

    def ends(self, verdict: StagePlan, record: Record) -> None:
        """Print the warnings and the summary of the stage's result."""
        import rankfold
        from rankfold.workflows.messages import in_file
        from rankfold.workflows.results import summary

        if verdict.step.stage.method == "import":
            lines = f"{verdict.path}: done"
        else:
            result = rankfold.open_result(verdict.path)
            for message in result.attrs["warnings"]:
                say(f"warning: {verdict.step.name}: {in_file(message)}", err=True)
            lines = summary(result, already_done=False)
        if not self._quiet:
            say(lines)


class WarningListener(ConsoleListener):
    """Prints only warnings: for cron, which sends all output as mail."""

    def __init__(self) -> None:
        super().__init__(quiet=True)

    def begins(self, verdict: StagePlan, number: int, count: int) -> None:
        """No-op: nothing to warn of yet."""

    def bar(self, unit: str) -> contextlib.AbstractContextManager[Progress]:
        """Context of a progress callback that prints nothing."""
        return contextlib.nullcontext(lambda sweep, units, total: None)


@command(flow, reads_results=True, keeps_state=True)
def run(
    flow: Path,
    first: Annotated[
        str | None,
        typer.Option("--from", metavar="STAGE", help="begin there; what comes before is used as it is"),
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="STAGE", help="this stage alone; what it reads is used as it is")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="local, slurm, allocation or a profile, in place of the one it names")
    ] = None,
    unless_running: Annotated[
        bool, typer.Option("--unless-running", help="do nothing where another run of it goes on")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="one line of news at the end, and what goes wrong; for cron")
    ] = False,
    as_json: Json = False,
    show: Print = False,
) -> None:
    """Run the stages of a workflow that are not done."""
    from rankfold.workflows.flows.plan import Workflow
    from rankfold.workflows.flows.record import LOCK, Record
    from rankfold.workflows.flows.run import AtWork, run_flow
    from rankfold.workflows.monitoring.news import news
    from rankfold.workflows.operations.lock_owner import holder_of

    began, workflow = time.monotonic(), Workflow.read(flow, cluster)
    if show:
        from rankfold.workflows.operations.jobs import jobs_of_flow, show_jobs

        show_jobs(jobs_of_flow(workflow, first, only), as_json=as_json)
        return
    listener = WarningListener() if quiet else ConsoleListener(quiet=as_json)
    try:
        verdicts = run_flow(workflow, listener, first=first, only=only)
    except AtWork:
        if not unless_running:
            raise
        holder = holder_of(workflow.outputs / LOCK) or "another process"
        say(f"{workflow.outputs}: {holder} runs this workflow already, so this run does nothing")
        return
    if as_json:
        say(
            json_text(
                {**_plan_facts(workflow.flow.workflow, verdicts), **_record(Record.of(workflow.outputs))},
                indent=1,
            )
        )
        return
    record = Record.of(workflow.outputs)
    say(news(workflow.outputs, verdicts, record, time.monotonic() - began))


def _record(record: Record) -> dict[str, Any]:
    return {"outputs": str(record.outputs), "record": record.stages}


def _plan_facts(name: str, verdicts: list[StagePlan]) -> dict[str, Any]:
    return {"workflow": name, "stages": [verdict.as_dict() for verdict in verdicts]}


def plan_flow(path: Path, cluster: str | None = None, *, as_json: bool) -> None:
    """Print the table of stages for ``rankfold plan FLOW.yaml``; ``path`` is that of the file.

    ``cluster`` replaces the place of execution that the file names.
    """
    from rankfold.cluster.local.calibration import cached_rates
    from rankfold.workflows.flows.plan import Workflow, survey
    from rankfold.workflows.flows.record import Record
    from rankfold.workflows.flows.table import flow_table, plan_as_dict

    workflow = Workflow.read(path, cluster)
    record = Record.of(workflow.outputs)
    record.require(workflow.flow.workflow)
    verdicts, rates = survey(workflow, record.stages), cached_rates()
    if as_json:
        facts = plan_as_dict(verdicts, workflow.outputs, rates)
        say(json_text({"workflow": workflow.flow.workflow, **facts}, indent=1))
        return
    say(flow_table(verdicts, workflow.outputs, rates))


@command()
def status(
    where: Annotated[
        Path,
        typer.Argument(
            metavar="FLOW.yaml", help="a workflow, the folder of its results, or OUT.zarr of a command"
        ),
    ],
    as_json: Json = False,
) -> None:
    """Show how far a workflow is, or a command; or what a finished result is."""
    from rankfold.workflows.operations.running import find_work
    from rankfold.workflows.operations.status import (
        job_facts,
        job_lines,
        output_facts,
        output_lines,
        standings,
        status_table,
    )

    work = find_work(where)
    if work.output is not None:
        text = json_text({**output_facts(work), **job_facts(work)}, indent=1)
        say(text if as_json else Lines(*output_lines(work), *job_lines(work)))
        return
    rows = standings(work)
    if as_json:
        stages = [dataclasses.asdict(one) for one in rows]
        say(json_text({"workflow": work.workflow, "stages": stages, **job_facts(work)}, indent=1))
        return
    say(Lines(status_table(rows), *job_lines(work)))


@command()
def schema() -> None:
    """Print the JSON Schema of a workflow, for editors."""
    from rankfold.workflows.flows.flow_file import schema as flow_schema

    say(json_text(flow_schema(), indent=1))


@command()
def example(
    name: Annotated[str | None, typer.Argument(help="leave it out for a list")] = None,
) -> None:
    """Print an example of a workflow to begin with."""
    from rankfold.pipeline.errors import InputError
    from rankfold.settings.yaml_file import no_such
    from rankfold.workflows.library import example_names, example_text

    names = example_names()
    if name is None:
        say(Lines(*(f"{one}  {example_text(one).splitlines()[0].removeprefix('# ')}" for one in names)))
        return
    if name not in names:
        raise InputError(no_such("example", name, names))
    say(Lines.of(example_text(name)), end="")
