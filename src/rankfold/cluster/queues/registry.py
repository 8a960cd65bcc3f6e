"""Queue systems by name, and checks for what only SLURM can do."""

from __future__ import annotations

import re
import uuid

from rankfold.cluster.queues.system import QueueSystem
from rankfold.cluster.slurm.profile import Profile
from rankfold.pipeline.errors import InputError, argument

ONLY_SLURM = (
    "rankfold submit and schedule, --cluster allocation, requeueing, and the doctor's look at a node are for "
    "SLURM alone"
)
"""Part of messages that say what only SLURM can do."""


def queue_system(scheduler: str) -> QueueSystem:
    """Module of the queue system that a profile names; SLURM by default."""
    if scheduler == "pbs":
        from rankfold.cluster.queues import pbs

        return pbs
    if scheduler == "lsf":
        from rankfold.cluster.queues import lsf

        return lsf
    if scheduler == "sge":
        from rankfold.cluster.queues import sge

        return sge
    from rankfold.cluster.queues import slurm

    return slurm


def new_name(scheduler: str) -> str:
    """Random name for the worker jobs of a run: see ``name_of``."""
    return name_of(scheduler, uuid.uuid4().hex[:8])


def name_of(scheduler: str, number: str) -> str:
    """Name of the worker jobs of a run, from the random number of the run.

    It includes the queue system, since a killed driver leaves no more than a note of the name. PBS may accept
    no more than 15 letters.
    """
    return f"rankfold-{number}" if scheduler == "slurm" else f"rf-{scheduler}-{number}"


def scheduler_of(name: str) -> str:
    """Queue system that jobs of this name belong to.

    >>> scheduler_of("rankfold-0a1b2c3d"), scheduler_of("rf-pbs-0a1b2c3d")
    ('slurm', 'pbs')
    """
    match = re.match(r"rf-(pbs|lsf|sge)-", name)
    return match[1] if match else "slurm"


def require_slurm(profile: Profile, what: str) -> None:
    """Raise if a profile is for another system; ``what`` says in the message what was asked for."""
    if profile.scheduler != "slurm":
        title = queue_system(profile.scheduler).TITLE
        raise InputError(
            f"{what} takes a profile of SLURM, and {profile.name} is one of {title}: {ONLY_SLURM}. Give "
            f"the command itself with {argument('cluster', profile.name)}, where jobs are submitted or in a "
            "job of your "
            f"own: its workers are jobs of {title}, and the same command goes on from what it leaves"
        )
