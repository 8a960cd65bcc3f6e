"""Checks of a profile of PBS, LSF or Grid Engine, made without submitting a job."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rankfold.cluster.doctor.local import Finding
from rankfold.cluster.queues.registry import ONLY_SLURM, queue_system
from rankfold.cluster.queues.system import QueueSystem
from rankfold.cluster.slurm.profile import Profile
from rankfold.cluster.slurm.queue import refusal
from rankfold.pipeline.errors import InputError, in_command


def queue_findings(profile: Profile) -> Iterator[Finding]:
    """Yield the findings of checks that ask the queue system of a profile, without starting a job."""
    system = queue_system(profile.scheduler)
    commands = check_commands(system)
    yield commands
    if commands.verdict == "ok":
        yield check_answer(system)
        yield check_worker_job(system, profile)
    yield Finding("node", "not checked", ONLY_SLURM, "The first run shows it: try a small one")


def check_commands(system: QueueSystem) -> Finding:
    """Check that the commands of a queue system are installed."""
    missing = [command for command in system.COMMANDS if shutil.which(command) is None]
    if missing:
        advice = "Log in where jobs are submitted, or run with --cluster local"
        return Finding(system.TITLE, "failed", f"there is no {', '.join(missing)}", advice)
    return Finding(system.TITLE, "ok", f"{', '.join(system.COMMANDS)} are there")


def check_answer(system: QueueSystem) -> Finding:
    """Check that a queue system answers, by listing jobs."""
    jobs = system.list_jobs()
    if jobs is None:
        advice = "Is this where jobs are submitted?"
        return Finding("queue", "failed", f"{system.COMMANDS[1]} does not answer", advice)
    return Finding("queue", "ok", f"{system.COMMANDS[1]} knows {len(jobs)} of your jobs")


def check_worker_job(system: QueueSystem, profile: Profile) -> Finding:
    """Check that a queue system would accept a job of one worker, if the system can
    check that without submitting.
    """
    from rankfold.cluster.slurm.jobqueue import worker_script
    from rankfold.cluster.slurm.jobs import WorkerJobs

    try:
        place = WorkerJobs.of(profile, None, None, None if profile.memory else "1GiB")
    except InputError as error:
        return Finding("worker job", "failed", in_command(error.message))
    with tempfile.TemporaryDirectory() as folder:
        options = place.job_options(f"rf-{profile.scheduler}-doctor", Path(folder))
        script = worker_script(profile.scheduler, "tcp://driver:8786", **options)
    if profile.scheduler in ("pbs", "lsf"):
        return Finding("worker job", "not checked", f"{system.TITLE} tells only of jobs that it is given")
    if (message := system.refused(script)) is not None:
        advice = "Change the profile"
        return Finding("worker job", "failed", f"{system.TITLE} refuses it: {refusal(message)}", advice)
    return Finding("worker job", "ok", f"{system.TITLE} takes it, for --cluster")
