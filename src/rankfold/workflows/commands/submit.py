"""``rankfold submit`` and ``mpi``: a workflow or command as one job of SLURM, or on processes of MPI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankfold.pipeline.text import Lines, shell_words
from rankfold.workflows.options import Print, command
from rankfold.workflows.reporting import say

if TYPE_CHECKING:
    from rankfold.cluster.slurm.profile import Profile

ELSEWHERE = ("plan", "submit", "schedule", "doctor")
"""Commands that have the option ``--cluster``, but do not run on workers, so they cannot be submitted."""


@command()
def submit(
    context: typer.Context,
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="FLOW.yaml | -- COMMAND...", help="a workflow, or a command of rankfold and its options"
        ),
    ],
    cluster: Annotated[
        str | None,
        typer.Option(help="name or path of a profile: nodes, walltime, partition; by default the workflow's"),
    ] = None,
    show: Print = False,
) -> None:
    """Run a workflow or a command in one job of several nodes, which begins again until all is done."""
    from rankfold.workflows.flows.flow_file import is_flow

    words = what[1:] if what[0] == "run" else what
    if words and is_flow(words[0]):
        _require_command(["run", *words], context)
        _submit_flow(words, cluster, show=show)
    else:
        _submit_command(_require_command(what, context), what, cluster or "slurm", show=show)


@command(keeps_state=True)
def mpi(
    context: typer.Context,
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="FLOW.yaml | -- COMMAND...", help="a workflow, or a command of rankfold and its options"
        ),
    ],
    folder: Annotated[
        Path, typer.Option(help="that all processes share, for a small folder while they run")
    ] = Path("."),
) -> None:
    """Run a workflow or a command on processes that mpiexec or srun has started: all but the first work."""
    from rankfold.cluster.mpi.driver import run_command
    from rankfold.cluster.mpi.rendezvous import process_numbers, rendezvous_folder
    from rankfold.cluster.mpi.worker import end_by_signals, serve
    from rankfold.workflows.flows.flow_file import is_flow

    number, count = process_numbers()
    words = ["run", *what] if is_flow(what[0]) else what
    rendezvous = rendezvous_folder(folder, words)
    if number:
        with end_by_signals():
            serve(rendezvous, number)
        return
    _require_command(words, context, ON_PROCESSES)
    if code := run_command(words, rendezvous, count - 1):
        raise typer.Exit(code)


def _submit_flow(words: list[str], cluster: str | None, *, show: bool) -> None:
    from rankfold.cluster.slurm.submission import whole_job
    from rankfold.workflows.operations.jobs import show_jobs
    from rankfold.workflows.operations.submitted import InOneJob, submit_flow

    path, *more = words
    workflow = InOneJob.read(Path(path), cluster)
    verdicts = workflow.check_plan()
    if show:
        show_jobs([whole_job(f"the workflow {workflow.flow.workflow}", workflow.script(more))])
        return
    if all(verdict.action == "skip" for verdict in verdicts):
        say(f"{workflow.outputs}: {len(verdicts)} stages, all finished: nothing to submit")
        return
    submission = submit_flow(workflow, more)
    say(
        Lines(
            _about(submission.job, workflow.profile),
            *_to_go_on(path),
        )
    )


def _to_go_on(place: str | Path) -> list[str]:
    """Lines with the commands that show the state of what was submitted, or cancel it.

    ``place`` is the workflow file or the output.
    """
    words = shell_words([str(place)])
    return [
        f"follow it:  rankfold logs {words} --follow   or   rankfold status {words}",
        f"cancel it:  rankfold cancel {words}   (the same command goes on from what it leaves)",
    ]


def _submit_command(values: dict[str, Any], what: list[str], cluster: str, *, show: bool) -> None:
    import sys

    from rankfold.cluster.slurm.profile import absolute_profile, find_profile
    from rankfold.cluster.slurm.submission import job_script, log_name, whole_job
    from rankfold.workflows.operations.command_task import plan_command
    from rankfold.workflows.operations.jobs import show_jobs
    from rankfold.workflows.operations.submitted import job_name, submit_command

    profile = find_profile(cluster)
    plan_command(what[0], values, profile)
    out = Path(values["out"])
    driver = [profile.python or sys.executable, "-m", "rankfold", *what, "--cluster", "allocation"]
    names = {"name": job_name(what[0], out), "log": log_name(what[0])}
    script = job_script(driver, profile, known_as=absolute_profile(cluster, Path.cwd()), **names)
    if show:
        show_jobs([whole_job(what[0], script)])
        return
    submission = submit_command(what[0], out, script, profile)
    say(
        Lines(
            _about(submission.job, profile),
            *_to_go_on(out),
        )
    )


def _about(job: str, profile: Profile) -> str:
    nodes = f"{profile.nodes} node{'s' if profile.nodes > 1 else ''}"
    return f"job {job}: {nodes} for {profile.walltime}, begun again up to {profile.requeue} times"


IN_ITS_JOB = "the job runs on its own nodes: give --cluster before the dashes"
ON_PROCESSES = "workers are the processes that were started: give no --cluster to mpi"


def _require_command(
    what: list[str], submit: typer.Context, place_is_known: str = IN_ITS_JOB
) -> dict[str, Any]:
    """Values of all options of the command line ``what`` (a command and its arguments), by name.

    Raises at once for arguments that the command would refuse in its job. ``submit`` is the context of the
    submitting command, ``place_is_known`` the message if ``what`` has the option ``--cluster``.
    """
    from rankfold.pipeline.errors import InputError

    commands = submit.find_root().command.every()  # type: ignore[attr-defined]
    name, *arguments = what
    cluster_commands = {
        key for key, each in commands.items() if any("--cluster" in option.opts for option in each.params)
    }
    fit = sorted(cluster_commands.difference(ELSEWHERE))
    if name not in fit:
        raise InputError(
            f"{submit.info_name} takes a command that runs on workers: {', '.join(fit)}; not {name!r}"
        )
    if any(argument.partition("=")[0] == "--cluster" for argument in arguments):
        raise InputError(f"{place_is_known}, not to {name}")
    if "--print" in arguments:
        advice = "give it before the dashes" if place_is_known == IN_ITS_JOB else "leave it out"
        raise InputError(f"{name} submits no jobs in that place, so that --print has none to show: {advice}")
    context = commands[name].make_context(f"rankfold {name}", [*arguments, "--cluster", "allocation"])
    return dict(context.params)
