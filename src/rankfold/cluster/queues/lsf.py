"""Jobs of LSF: options, script lines, and lists from its commands.

Memory limits are in the unit that the site has set, which dask-jobqueue finds in ``lsf.conf``;
whether they are per job or per core is the site's choice too.
"""

from __future__ import annotations

import math
import re
import shlex
import shutil
from typing import Any

from rankfold.cluster.queues.system import WorkerJob, clock, open_logs
from rankfold.cluster.slurm.profile import Profile, walltime_seconds
from rankfold.cluster.slurm.queue import Ask, QueuedJob, ask, user

TITLE = "LSF"
COMMANDS: tuple[str, ...] = ("bsub", "bjobs", "bkill")

STATES = {"PEND": "pending", "WAIT": "pending", "PROV": "pending", "RUN": "running", "PSUSP": "held"}
STATES |= {"USUSP": "suspended", "SSUSP": "suspended", "UNKWN": "running"}
"""Values of ``QueuedJob.state`` by states of LSF; DONE, EXIT and ZOMBI are left out: such jobs have ended."""

COLUMNS = "jobid stat time_left exec_host job_name delimiter='|'"
NO_JOBS = r"is not found|no unfinished job"
"""Pattern of the message with which ``bjobs`` fails if there are no jobs."""


def check_profile(profile: Profile) -> None:
    """No-op: LSF has options for all settings of a profile."""


def job_options(job: WorkerJob) -> dict[str, Any]:
    """Options of dask-jobqueue for LSF."""
    profile = job.profile
    gpus = [f'-gpu "num={profile.gpus}"'] if profile.gpus else []
    minutes = math.ceil(walltime_seconds(profile.walltime) / 60)
    return {
        "queue": profile.partition,
        "project": profile.account,
        "ncpus": job.cores,
        "mem": job.memory_bytes,
        "walltime": clock(60 * minutes).removesuffix(":00"),
        "job_extra_directives": ["-o /dev/null", "-rn", *gpus, *profile.directives],
    }


def prologue(job: WorkerJob) -> list[str]:
    """Shell line that sends the job's output to its logs."""
    return [open_logs(job, "LSB_JOBID")]


def refused(script: str) -> str | None:
    """Reason why LSF would refuse a script: always None, since it checks only what is submitted."""
    return None


def list_jobs(run: Ask | None = None) -> list[QueuedJob] | None:
    """Jobs of this user that have not ended, from ``bjobs``; None if it does not answer."""
    if shutil.which("bjobs") is None:
        return None
    answer = (run or ask)("bjobs", "-noheader", "-u", user(), "-o", COLUMNS)
    if answer.returncode and not re.search(NO_JOBS, answer.stderr, re.IGNORECASE):
        return None
    return parse_jobs(answer.stdout)


def parse_jobs(text: str) -> list[QueuedJob]:
    """Parse jobs from what ``bjobs`` prints in ``COLUMNS``."""
    jobs = []
    for line in text.splitlines():
        number, state, left, nodes, name = (*line.split("|", 4), "", "", "", "")[:5]
        minutes = re.match(r"(\d+):(\d+)", left.strip())
        if word := STATES.get(state.strip()):
            seconds = "" if minutes is None else clock(3600 * int(minutes[1]) + 60 * int(minutes[2]))
            jobs.append(QueuedJob(number.strip(), word, "", seconds, "N/A", nodes.strip("- "), name.strip()))
    return jobs


def cancel_line(name: str) -> str:
    """Shell line that cancels all jobs of a name by ``bkill``."""
    choice = shlex.join(["-u", user(), "-J", name])
    return f"bkill {choice} 0 || bjobs {choice} 2>&1 | grep -qiE '{NO_JOBS}'"
