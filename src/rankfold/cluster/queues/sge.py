"""Jobs of Grid Engine: Sun's, Son of Grid Engine, and its other descendants.

It has no common options for memory, GPUs, and cores of one node: sites name these themselves, so a profile
has to ask for them in ``directives``.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import time
from typing import Any
from xml.etree import ElementTree

from rankfold.cluster.queues.system import WorkerJob, clock, open_logs
from rankfold.cluster.slurm.profile import Profile, walltime_seconds
from rankfold.cluster.slurm.queue import Ask, QueuedJob, ask, ask_again, user
from rankfold.pipeline.errors import InputError

TITLE = "Grid Engine"
COMMANDS: tuple[str, ...] = ("qsub", "qstat", "qdel")

LIMIT = "h_rt"


def check_profile(profile: Profile) -> None:
    """Raise if a profile has several cores or a GPU, but no directive that requests them."""
    more = " ".join(profile.directives)
    if profile.cores > 1 and "-pe " not in more:
        raise InputError(
            f"the profile {profile.name} has cores: {profile.cores}, and Grid Engine gives a job several "
            f"cores of a node only by a parallel environment of the site: add '-pe NAME {profile.cores}' to "
            "directives:, with one of those that qconf -spl lists"
        )
    if profile.gpus and "gpu" not in more:
        raise InputError(
            f"the profile {profile.name} has gpus: {profile.gpus}, which sites of Grid Engine call by names "
            f"of their own: add what yours wants to directives:, such as '-l gpu={profile.gpus}'"
        )


def job_options(job: WorkerJob) -> dict[str, Any]:
    """Options of dask-jobqueue for Grid Engine."""
    profile = job.profile
    return {
        "queue": profile.partition,
        "project": profile.account,
        "walltime": clock(walltime_seconds(profile.walltime)),
        # Where a site ignores the first line of a script, its shell may be another.
        "job_extra_directives": ["-S /bin/bash", "-o /dev/null", "-r n", *profile.directives],
    }


def prologue(job: WorkerJob) -> list[str]:
    """Shell line that sends the job's output to its logs."""
    return [open_logs(job, "JOB_ID")]


def refused(script: str) -> str | None:
    """Message with which ``qsub -w v`` refuses a script; None if it accepts it."""
    answer = ask_again("qsub", "-w", "v", stdin=script)
    return (answer.stderr + answer.stdout).strip() if answer.returncode else None


def list_jobs(run: Ask | None = None) -> list[QueuedJob] | None:
    """Jobs of this user that have not ended, from ``qstat``; None if it does not answer."""
    if shutil.which("qstat") is None:
        return None
    answer = (run or ask)("qstat", "-u", user(), "-r", "-xml")
    if answer.returncode:
        return None
    try:
        return parse_jobs(answer.stdout, time.time())
    except ElementTree.ParseError:
        return None


def parse_jobs(text: str, now: float) -> list[QueuedJob]:
    """Parse jobs from what ``qstat -r -xml`` prints; ``now`` is in seconds of the epoch."""
    jobs = []
    for job in ElementTree.fromstring(text).iter("job_list"):
        state = _state(job.findtext("state", ""))
        left = ""
        limit = next((each.text for each in job.iter("hard_request") if each.get("name") == LIMIT), None)
        with contextlib.suppress(ValueError, TypeError):
            began = time.mktime(time.strptime(job.findtext("JAT_start_time", "")[:19], "%Y-%m-%dT%H:%M:%S"))
            left = clock(float(limit or "") - (now - began)) if state == "running" else ""
        jobs.append(
            QueuedJob(
                number=job.findtext("JB_job_number", ""),
                state=state,
                reason=job.findtext("state", ""),
                left=left,
                begins="N/A",
                nodes=job.findtext("queue_name") or "",
                name=job.findtext("full_job_name") or job.findtext("JB_name") or "",
            )
        )
    return jobs


def _state(letters: str) -> str:
    """State of a job from the letters of Grid Engine.

    A job with an error counts as failed, since it would wait for ever.
    """
    if "E" in letters:
        return "failed"
    if "d" in letters:
        return "completing"
    if "h" in letters:
        return "held"
    if set(letters) & {*"sST"}:
        return "suspended"
    return "running" if set(letters) & {*"rt"} else "pending"


def cancel_line(name: str) -> str:
    """Shell line that cancels all jobs of a name by ``qdel``."""
    jobs = shlex.join(["qstat", "-u", user(), "-r", "-xml"])
    return f"jobs=$({jobs}) && case $jobs in *'>{name}<'*) {shlex.join(['qdel', name])};; esac"
