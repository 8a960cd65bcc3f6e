"""Settings of a job script that are the same for all systems but SLURM.

The trap: the systems differ in how a path with spaces is quoted in a directive, and in when logs can be read.
So directives send the output of a job to ``/dev/null``, and its shell opens the logs.
"""

from __future__ import annotations

import shlex

from rankfold.cluster.queues.system import WorkerJob


def open_logs(job: WorkerJob, number: str) -> str:
    """Shell line that sends a job's output to its logs; ``number`` is the shell variable with the job's
    number.

    >>> from pathlib import Path
    >>> from rankfold.cluster.slurm.profile import Profile
    >>> open_logs(WorkerJob(Profile(), "rf-pbs-1", Path("/my runs/logs"), 1, 2**30), "PBS_JOBID")
    "exec >'/my runs/logs/rf-pbs-1'-$PBS_JOBID.out 2>'/my runs/logs/rf-pbs-1'-$PBS_JOBID.err"
    """
    start = shlex.quote(str(job.logs / job.name))
    return f"exec >{start}-${number}.out 2>{start}-${number}.err"


def clock(seconds: float) -> str:
    """Format seconds as hours, minutes and seconds.

    >>> clock(90061)
    '25:01:01'
    """
    minutes, rest = divmod(max(0, int(seconds)), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
