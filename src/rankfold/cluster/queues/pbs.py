"""Jobs of PBS Professional and OpenPBS: options, script lines, and lists from their commands.

The trap: the used time that ``qstat`` reports for a job is minutes old. So the time since its start is used
where that leaves less.
"""

from __future__ import annotations

import contextlib
import math
import re
import shlex
import shutil
import time
from typing import Any

from rankfold.cluster.queues.system import WorkerJob, clock, open_logs
from rankfold.cluster.slurm.profile import Profile, walltime_seconds
from rankfold.cluster.slurm.queue import Ask, QueuedJob, ask, user

TITLE = "PBS"
COMMANDS: tuple[str, ...] = ("qsub", "qstat", "qselect", "qdel")

STATES = {"Q": "pending", "W": "pending", "H": "held", "R": "running", "B": "running", "S": "suspended"}
STATES |= {"U": "suspended", "T": "pending", "E": "completing"}
"""Values of ``QueuedJob.state`` by states of PBS; F, X and C are left out, as such jobs have ended."""


def check_profile(profile: Profile) -> None:
    """No-op: PBS has options for all settings of a profile."""


def job_options(job: WorkerJob) -> dict[str, Any]:
    """Options of dask-jobqueue for PBS."""
    profile = job.profile
    chunk = f"select=1:ncpus={job.cores}:mem={math.ceil(job.memory_bytes / 2**20)}mb"
    return {
        "queue": profile.partition,
        "account": profile.account,
        "resource_spec": f"{chunk}:ngpus={profile.gpus}" if profile.gpus else chunk,
        "walltime": clock(walltime_seconds(profile.walltime)),
        "job_extra_directives": ["-j oe", "-o /dev/null", "-r n", *profile.directives],
    }


def prologue(job: WorkerJob) -> list[str]:
    """Shell lines that send the job's output to its logs, and enter the folder it was submitted from."""
    return [open_logs(job, "PBS_JOBID"), 'cd "$PBS_O_WORKDIR"']


def refused(script: str) -> str | None:
    """Reason why PBS would refuse a script: always None, since it checks only what is submitted."""
    return None


def list_jobs(run: Ask | None = None) -> list[QueuedJob] | None:
    """Jobs of this user that have not ended, from ``qselect`` and ``qstat``; None if they do not answer."""
    if shutil.which("qselect") is None:
        return None
    numbers = (run or ask)("qselect", "-u", user())
    if numbers.returncode:
        return None
    if not numbers.stdout.split():
        return []
    answer = (run or ask)("qstat", "-f", *numbers.stdout.split())
    # Some may have ended meanwhile: then it fails, but still lists the others.
    if answer.returncode and not answer.stdout.strip() and "job" not in answer.stderr.lower():
        return None
    return parse_jobs(answer.stdout, time.time())


def parse_jobs(text: str, now: float) -> list[QueuedJob]:
    """Parse jobs from what ``qstat -f`` prints; ``now`` is in seconds of the epoch."""
    jobs = []
    for block in re.split(r"(?m)^Job Id:\s*", text.replace("\n\t", ""))[1:]:
        number, _, rest = block.partition("\n")
        facts = dict(re.findall(r"(?m)^\s+([\w.]+) = (.*)$", rest))
        if state := STATES.get(facts.get("job_state", "")):
            left = _seconds_left(facts, now) if state == "running" else None
            jobs.append(
                QueuedJob(
                    number=number.strip(),
                    state=state,
                    reason=facts.get("comment", ""),
                    left="" if left is None else clock(left),
                    begins="N/A",
                    nodes=facts.get("exec_host", ""),
                    name=facts.get("Job_Name", ""),
                )
            )
    return jobs


def _seconds_left(facts: dict[str, str], now: float) -> float | None:
    """Seconds until the time limit of a running job; None if it has none.

    ``facts`` are its fields in ``qstat -f``, and ``now`` is in seconds of the epoch.
    """
    if "Resource_List.walltime" not in facts:
        return None
    limit = walltime_seconds(facts["Resource_List.walltime"])
    used = [float(walltime_seconds(facts.get("resources_used.walltime", "0:00")))]
    with contextlib.suppress(KeyError, ValueError):
        used.append(now - time.mktime(time.strptime(facts["stime"])))
    return limit - max(used)


def cancel_line(name: str) -> str:
    """Shell line that cancels all jobs of a name by ``qdel``."""
    choice = shlex.join(["qselect", "-u", user(), "-N", name])
    return f'jobs=$({choice}) && {{ [ -z "$jobs" ] || qdel $jobs; }}'
