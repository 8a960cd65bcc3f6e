"""A command as one job of SLURM, which begins again until all is done.

SLURM tells the shell of the job some time before its end, the shell tells the driver, the driver stops
with all it has on disk and says with exit code 75 that there is more to do; then the job is requeued. It
keeps its number, its log and its place in the accounts, and ``scancel`` of that number ends it for good.

The trap: bash leaves ``wait`` when a signal comes, long before the driver has ended.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from rankfold.cluster.allocation import PROFILE
from rankfold.cluster.profile import Profile
from rankfold.cluster.queue import ask, require_commands
from rankfold.pipeline.errors import ClusterError

SCRIPT = """\
#!/usr/bin/env bash
{directives}

asked= driver=
trap 'asked=yes; [ -z "$driver" ] || kill -USR1 "$driver"' USR1
{setup}
{command} &
driver=$!
[ -z "$asked" ] || kill -USR1 "$driver"
while :; do
    wait "$driver"
    code=$?
    kill -0 "$driver" 2>/dev/null || break
done

# 138: the signal came before the driver listened.
[ "$code" -ne 138 ] || code=75
if [ "$code" -eq 75 ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {requeue} ]; then
    echo "rankfold: more to do; requeueing job $SLURM_JOB_ID, start $((${{SLURM_RESTART_COUNT:-0}} + 1))"
    scontrol requeue "$SLURM_JOB_ID" && sleep 600
fi
exit "$code"
"""


def job_script(command: Sequence[str], profile: Profile, *, name: str, known_as: str = "slurm") -> str:
    """The script of a job that runs a driver on the nodes that a profile says.

    ``known_as`` is the path or name by which the driver finds the profile.
    """
    directives = [
        f"--job-name=rankfold-{name}",
        f"--output={log_name(name)}",
        "--open-mode=append",
        *([f"--partition={profile.partition}"] if profile.partition else []),
        *([f"--account={profile.account}"] if profile.account else []),
        f"--nodes={profile.nodes}",
        f"--ntasks-per-node={profile.workers_per_node}",
        f"--cpus-per-task={profile.cores}",
        *([f"--gpus-per-task={profile.gpus}"] if profile.gpus else []),
        *([f"--mem={_node_megabytes(profile)}M"] if profile.memory else []),
        f"--time={profile.walltime}",
        f"--signal=B:USR1@{profile.drain_seconds}",
        "--requeue",
        *profile.directives,
    ]
    setup = [f"export {PROFILE}={shlex.quote(known_as)}", *profile.prologue]
    return SCRIPT.format(
        directives="\n".join(f"#SBATCH {directive}" for directive in directives),
        setup="\n".join(setup),
        command=shlex.join(command),
        requeue=profile.requeue,
    )


def log_name(name: str, job: str = "%j") -> str:
    """Where a job writes, all its starts after one another; in the folder it was submitted from."""
    return f"rankfold-{name}-{job}.log"


def submit(script: str, profile: Profile) -> str:
    """Give a script to SLURM; the number of its job."""
    require_commands(profile.name, "sbatch")
    said = ask("sbatch", stdin=script)
    # Sites greet with all kinds of numbers.
    found = re.search(r"Submitted batch job (\d+)", said.stdout)
    if said.returncode or not found:
        from rankfold.cluster.jobqueue import refusal

        raise ClusterError(
            f"SLURM refuses the job: {refusal(said.stderr or said.stdout)}. Change the profile "
            f"{profile.name}; --print shows the script"
        )
    return found[1]


def _node_megabytes(profile: Profile) -> int:
    """Of all workers of a node, and of the driver beside them on the first."""
    return (profile.workers_per_node + 1) * (profile.memory or 0) // 2**20
