"""A workflow that runs repeatedly: by lines for the crontab of SLURM or of this machine, or by a job of SLURM
that submits the next job.

Two runs never overlap. SLURM starts no second entry of a crontab before the first has ended, and
``singleton`` holds a successor back. Any other run holds the lock of the folder; a scheduled run that finds
it held ends with a message and exit code 0.
"""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime

from rankfold.cluster.slurm.allocation import PROFILE
from rankfold.cluster.slurm.shell_lines import require_one_line
from rankfold.cluster.slurm.submission import PREFIX, directives, job_script
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.storage.checkpoint import disk_errors
from rankfold.pipeline.text import shell_words
from rankfold.workflows.flows.plan import Workflow
from rankfold.workflows.operations.submitted import AGAIN, CRONTAB, InOneJob, job_name
from rankfold.workflows.operations.timetable import Schedule, format_time

QUIETLY = "--unless-running"
"""Option by which a scheduled run ends at once if another is running."""

LOCAL = "%Y-%m-%dT%H:%M:%S"
"""Format of times for sbatch, in the zone of the machine."""

HERE = """\
# The workflow {workflow}, {schedule}. To install it, add these lines:  crontab -e
# The hours are those of this machine. A line of news, and what goes wrong, is what cron sends as mail.
{cron} {command}
"""

SCRON = """\
# The workflow {workflow}, {schedule}. To install it, add these lines:  scrontab -e
# The hours are those of the machine that runs SLURM, at most sites UTC. By UTC it begins next at
# {next}.
# A run that needs more than {walltime} goes on at the next time. To end it, take the lines out again.
{directives}
{cron} {command}
"""

CHAIN = """\
# The workflow {workflow}, {schedule} (UTC). To install it:  sbatch THIS_FILE
# Each job submits the next, so its node must be one that may. To end it:  rankfold cancel {path}"""

SUCCESSOR = """\
# The next one waits in the queue before this one works, whatever becomes of this one.
if [ -z "$(squeue -h --user="$(id -un)" --name={name} --states=PENDING -o %i)" ]; then
    next=$({command}) &&
        env -u SLURM_RESTART_COUNT sbatch --begin="$(date -d "$next" +{local})" "$0" ||
        echo "rankfold: this was the last run, the next could not be submitted. Submit the script again"
fi"""


def choose_schedule(workflow: Workflow, option: Schedule | None) -> Schedule:
    """The schedule ``option``, from the command line, or else that of the workflow file; raises for none."""
    schedule = option or workflow.flow.schedule
    if schedule is None:
        raise InputError(
            f"{workflow.document.path} has no schedule: give --cron '0 3 * * 1' or --every 1d, or write "
            'schedule: {cron: "0 3 * * 1"} into it'
        )
    return schedule


def prepare(workflow: InOneJob) -> None:
    """Make the folder of results of a workflow, which must exist for logs to be written."""
    with disk_errors(workflow.outputs):
        workflow.outputs.mkdir(parents=True, exist_ok=True)


def cron_block(workflow: Workflow, schedule: Schedule) -> str:
    """Text for the crontab of this machine that runs a workflow repeatedly.

    Raises ``InputError`` for a schedule that cron cannot express.
    """
    if schedule.cron is None:
        raise InputError(
            f"cron knows no {schedule}: give the times, such as --cron '0 3 * * *' for every night at 03:00"
        )
    path = str(workflow.document.path.absolute())
    path = require_one_line(path, "an entry of a crontab is one line, and the path of the workflow")
    command = shlex.join([sys.executable, "-m", "rankfold", "run", path, "--quiet", QUIETLY])
    return HERE.format(
        workflow=workflow.flow.workflow,
        schedule=schedule,
        cron=schedule.cron,
        command=command.replace("%", r"\%"),  # cron reads it as the end of a line
    )


def scron_block(workflow: InOneJob, schedule: Schedule) -> str:
    """Text for the crontab of SLURM (``scrontab``) that runs a workflow repeatedly, by ``schedule.cron``."""
    profile = workflow.profile
    name, log = job_name(workflow.flow.workflow, workflow.outputs, CRONTAB), workflow.log
    options = [*directives(profile, name=name, log=log), *profile.directives]
    run = f"exec env {shlex.join([f'{PROFILE}={workflow.flow.profile}', *workflow.command(QUIETLY)])}"
    if profile.prologue:
        # An entry is one line, and runs without the setup of a login.
        for line in profile.prologue:
            require_one_line(line, f"an entry of a crontab is one line, and prologue: of {profile.name},")
        run = f"exec bash -lc {shlex.quote('; '.join([*profile.prologue, run]))}"
    return SCRON.format(
        workflow=workflow.flow.workflow,
        schedule=schedule,
        next=format_time(schedule.after(datetime.now(UTC))),
        walltime=profile.walltime,
        directives="\n".join(f"#SCRON {option}" for option in options),
        cron=schedule.cron,
        command=run,
    )


def chain_script(workflow: InOneJob, schedule: Schedule) -> str:
    """Script of a job of SLURM that submits its successor for the next time, then runs the workflow."""
    now, path = datetime.now(UTC), str(workflow.document.path.absolute())
    if schedule.begin is None and schedule.every is not None:
        # The first begins at once; later ones at the same time of the hour, however long the queue is.
        schedule, first = Schedule(every=schedule.every, begin=format_time(now)), now
    else:
        first = schedule.after(now)
    name, profile = job_name(workflow.flow.workflow, workflow.outputs, AGAIN), workflow.profile
    python = profile.python or sys.executable
    when = [python, "-m", "rankfold", "schedule", path, "--next", *schedule.options()]
    script = job_script(
        workflow.command(QUIETLY),
        profile,
        name=name,
        known_as=workflow.flow.profile,
        log=workflow.log,
        more=[f"--begin={first.astimezone():{LOCAL}}", "--dependency=singleton"],
        first=SUCCESSOR.format(name=PREFIX + name, command=shell_words(when), local=LOCAL).splitlines(),
    )
    shebang, _, rest = script.partition("\n")
    head = CHAIN.format(workflow=workflow.flow.workflow, schedule=schedule, path=shell_words([str(path)]))
    return f"{shebang}\n{head}\n{rest}"
