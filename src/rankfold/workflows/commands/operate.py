"""``rankfold logs``, ``cancel`` and ``schedule``: follow or end runs elsewhere, or have them start later."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankfold.pipeline.text import Lines
from rankfold.workflows.options import command
from rankfold.workflows.reporting import say

Where = Annotated[
    Path,
    typer.Argument(
        metavar="FLOW.yaml", help="a workflow, the folder of its results, or OUT.zarr of a command"
    ),
]


@command()
def logs(
    where: Where,
    stage: Annotated[str | None, typer.Option(metavar="STAGE", help="of its workers alone")] = None,
    lines: Annotated[int, typer.Option(min=0, help="last lines of each log")] = 10,
    follow: Annotated[bool, typer.Option("--follow", help="go on until nothing runs any more")] = False,
) -> None:
    """Print where logs of a job and its workers lie, and their last lines."""
    from rankfold.workflows.operations.logs import Follower
    from rankfold.workflows.operations.running import find_work

    work = find_work(where)
    follower = Follower(work, stage, say)
    if not follower.begin(lines) and not follow:
        say(
            f"{where}: no logs. Jobs of SLURM and worker processes write them; threads say all where they "
            "were started"
        )
    if follow:
        try:
            follower.follow()
        except KeyboardInterrupt:  # the reader has seen enough; the run goes on
            raise SystemExit(130) from None


@command()
def cancel(where: Where) -> None:
    """End the processes and jobs of a workflow, or of a command, and leave no job behind."""
    from rankfold.cluster.slurm.queue import list_jobs
    from rankfold.workflows.operations.cancel import end
    from rankfold.workflows.operations.running import find_work

    work = find_work(where)
    lines = end(work)
    for line in lines:
        say(line)
    if lines:
        say("what was finished is kept, and the same command goes on from there")
    else:
        say(f"{where}: nothing runs, nothing to cancel")
    for job in work.crontab_jobs(list_jobs() or ()):
        say(f"{job}: begins again and again until its lines are taken out of scrontab -e")


@command()
def schedule(
    flow: Annotated[Path, typer.Argument(metavar="FLOW.yaml", help="the workflow")],
    cron: Annotated[
        str | None, typer.Option(help='minute hour day month weekday, such as "0 3 * * 1"; UTC')
    ] = None,
    every: Annotated[str | None, typer.Option(help="time between two runs, such as 6h, 1d or 1w")] = None,
    begin: Annotated[
        str | None, typer.Option(metavar="TIME", help="of the first, such as 2026-12-01T03:00, UTC; now")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="name or path of a profile; by default the workflow's; local for cron"),
    ] = None,
    following: Annotated[bool, typer.Option("--next", help="print when it begins next, no more")] = False,
    show: Annotated[bool, typer.Option("--print", help="make no folder for its logs either")] = False,
) -> None:
    """Print what makes SLURM, or cron, run a workflow again and again; by itself it installs nothing."""
    import shutil
    from datetime import UTC, datetime

    from rankfold.workflows.flows.plan import Workflow
    from rankfold.workflows.operations.scheduling import (
        chain_script,
        choose_schedule,
        cron_block,
        prepare,
        scron_block,
    )
    from rankfold.workflows.operations.submitted import InOneJob
    from rankfold.workflows.operations.timetable import Schedule, format_time

    options_schedule = None if cron is every is begin is None else Schedule.from_options(cron, every, begin)
    if following and options_schedule is not None:
        say(format_time(options_schedule.after(datetime.now(UTC))))
        return
    if cluster == "local" and not following:
        local = Workflow.read(flow, cluster)
        text = cron_block(local, choose_schedule(local, options_schedule))
        local.check_plan()
        say(Lines.of(text), end="")
        return
    workflow = InOneJob.read(flow, cluster)
    when = choose_schedule(workflow, options_schedule)
    if following:
        say(format_time(when.after(datetime.now(UTC))))
        return
    workflow.check_plan()
    by_crontab = when.cron is not None and shutil.which("scrontab") is not None
    text = scron_block(workflow, when) if by_crontab else chain_script(workflow, when)
    if not show:
        prepare(workflow)
    say(Lines.of(text), end="")
