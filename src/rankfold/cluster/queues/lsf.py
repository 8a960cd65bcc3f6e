"""LSF.

Its memory limits count in the unit that the site has set, which dask-jobqueue finds in ``lsf.conf``;
whether they are of a job or of a core is the site's choice too.
"""

from __future__ import annotations

import math
import re
import shlex
import shutil
from typing import Any

from rankfold.cluster.queues.shell import clock, open_logs
from rankfold.cluster.queues.system import WorkerJob
from rankfold.cluster.slurm.profile import Profile, walltime_seconds
from rankfold.cluster.slurm.queue import Ask, QueuedJob, ask, user

TITLE = "LSF"
COMMANDS: tuple[str, ...] = ("bsub", "bjobs", "bkill")

STATES = {"PEND": "pending", "WAIT": "pending", "PROV": "pending", "RUN": "running", "PSUSP": "held"}
STATES |= {"USUSP": "suspended", "SSUSP": "suspended", "UNKWN": "running"}
"""In words; DONE, EXIT and ZOMBI have ended."""

COLUMNS = "jobid stat time_left exec_host job_name delimiter='|'"
NO_JOBS = r"is not found|no unfinished job"
"""What ``bjobs`` says, and fails, where there are none."""


def check_profile(profile: Profile) -> None:
    """See ``QueueSystem``: has words for all of it."""


def job_options(job: WorkerJob) -> dict[str, Any]:
    """See ``QueueSystem``."""
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
    """See ``QueueSystem``."""
    return [open_logs(job, "LSB_JOBID")]


def refused(script: str) -> str | None:
    """See ``QueueSystem``: cannot be asked."""
    return None


def list_jobs(run: Ask | None = None) -> list[QueuedJob] | None:
    """See ``QueueSystem``."""
    if shutil.which("bjobs") is None:
        return None
    answer = (run or ask)("bjobs", "-noheader", "-u", user(), "-o", COLUMNS)
    if answer.returncode and not re.search(NO_JOBS, answer.stderr, re.IGNORECASE):
        return None
    return parse_jobs(answer.stdout)


def parse_jobs(text: str) -> list[QueuedJob]:
    """Jobs out of what ``bjobs`` prints in ``COLUMNS``."""
    jobs = []
    for line in text.splitlines():
        number, state, left, nodes, name = (*line.split("|", 4), "", "", "", "")[:5]
        minutes = re.match(r"(\d+):(\d+)", left.strip())
        if word := STATES.get(state.strip()):
            seconds = "" if minutes is None else clock(3600 * int(minutes[1]) + 60 * int(minutes[2]))
            jobs.append(QueuedJob(number.strip(), word, "", seconds, "N/A", nodes.strip("- "), name.strip()))
    return jobs


def cancel_line(name: str) -> str:
    """See ``QueueSystem``."""
    choice = shlex.join(["-u", user(), "-J", name])
    return f"bkill {choice} 0 || bjobs {choice} 2>&1 | grep -qiE '{NO_JOBS}'"
