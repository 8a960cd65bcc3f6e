"""Settings of a job script that are the same for all systems but SLURM.

The trap: none of them agrees with another on how a path with spaces is quoted in a directive, nor on when
logs can be read. So directives send what a job prints nowhere, and its shell opens the logs.
"""

from __future__ import annotations

import shlex

from rankfold.cluster.queues.system import WorkerJob


def open_logs(job: WorkerJob, number: str) -> str:
    """The line that sends what a job prints to its logs; ``number`` is the variable with that of the job.

    >>> from pathlib import Path
    >>> from rankfold.cluster.slurm.profile import Profile
    >>> open_logs(WorkerJob(Profile(), "rf-pbs-1", Path("/my runs/logs"), 1, 2**30), "PBS_JOBID")
    "exec >'/my runs/logs/rf-pbs-1'-$PBS_JOBID.out 2>'/my runs/logs/rf-pbs-1'-$PBS_JOBID.err"
    """
    start = shlex.quote(str(job.logs / job.name))
    return f"exec >{start}-${number}.out 2>{start}-${number}.err"


def clock(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> clock(90061)
    '25:01:01'
    """
    minutes, rest = divmod(max(0, int(seconds)), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
