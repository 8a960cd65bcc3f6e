"""Run a command as one job of SLURM, which is requeued until all is done.

SLURM signals the shell of the job some time before its end, and the shell signals the driver. The driver
stops with all it has on disk and reports by exit code 75 that there is more to do; then the job is requeued.
It keeps its number, its log and its place in the accounts, and ``scancel`` of that number ends it for good.

The trap: bash leaves ``wait`` when a signal arrives, long before the driver has ended.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rankfold.cluster.queues.registry import require_slurm
from rankfold.cluster.queues.system import JobScript
from rankfold.cluster.slurm.allocation import PROFILE, Allocation, node_bytes
from rankfold.cluster.slurm.jobs import MARGIN
from rankfold.cluster.slurm.profile import Profile
from rankfold.cluster.slurm.queue import ask_again, list_jobs, refusal, require_commands, require_final
from rankfold.cluster.slurm.shell_lines import in_directive
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import ClusterError, InputError
from rankfold.pipeline.text import shell_words
from rankfold.pipeline.units import format_bytes, parse_bytes

PREFIX = "rankfold-"
"""Prefix of the names of all jobs."""

UNKNOWN_BYTES = 2**40
"""Memory of a worker to plan with, in bytes, if a profile leaves the memory of a node to the site. The job
itself then finds what does not fit.
"""

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


def job_script(
    command: Sequence[str],
    profile: Profile,
    *,
    name: str,
    known_as: str = "slurm",
    log: str = "",
    more: Sequence[str] = (),
    first: Sequence[str] = (),
) -> str:
    """Script of a job that runs a driver on the nodes that a profile describes.

    ``known_as`` is the path or name by which the driver finds the profile, ``log`` the file for the job's
    output, ``more`` are further options of the job, and ``first`` lines that run before the driver, in the
    environment that it will have.
    """
    options = [*directives(profile, name=name, log=log or log_name(name)), "--requeue"]
    setup = [f"export {PROFILE}={shell_words([known_as])}", *profile.prologue, *first]
    return SCRIPT.format(
        directives="\n".join(f"#SBATCH {option}" for option in [*options, *profile.directives, *more]),
        setup="\n".join(setup),
        command=shell_words(command),
        requeue=profile.requeue,
    )


def directives(profile: Profile, *, name: str, log: str) -> list[str]:
    """Options for SLURM of a job that runs a driver on the nodes that a profile describes."""
    require_slurm(profile, "a job that holds a whole command")
    return [
        f"--job-name={PREFIX}{name}",
        f"--output={in_directive(log)}",
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
    ]


def allocation_of(
    profile: Profile, workers: int | None, threads: int | None, memory: str | int | None
) -> Allocation:
    """Nodes that a job of ``job_script`` will have, as a place of execution to plan for before it exists.

    There are at most ``workers`` workers, each with ``threads`` and ``memory``; by default the profile's.
    """
    require_slurm(profile, "rankfold submit")
    per_node, there = profile.workers_per_node, _node_megabytes(profile) * 2**20
    most = int((there - node_bytes(0, per_node)) / (MARGIN * (per_node + 1))) if there else UNKNOWN_BYTES
    working = most if memory is None else parse_bytes(memory)
    if not 0 < working <= most:
        raise InputError(
            f"the profile {profile.name} gives {format_bytes(profile.memory or 0)} to each of {per_node} "
            f"workers of a node and to the driver, which leaves {format_bytes(max(0, most))} to work with, "
            f"not {format_bytes(working)}. Lower memory= (--memory), or raise memory: in the profile"
        )
    count = min(profile.nodes * per_node, workers or 2**31)
    side_by_side = profile.threads_for(threads, profile.cores)
    bandwidth = profile.bandwidth or 0
    budget = Budget(working, side_by_side, count, profile.gpus, bandwidth=bandwidth)
    return Allocation(profile, budget, per_node, "", 0)


def log_name(name: str, job: str = "%j") -> str:
    """File name of a job's log, which all its starts share, by the job's name and number.

    By default ``job`` is what SLURM replaces by the number.
    """
    return f"{PREFIX}{name}-{job}.log"


def whole_job(what: str, script: str) -> JobScript:
    """A job with this script, as ``submit`` would submit it; ``what`` is its purpose in words."""
    return JobScript(what, script, "sbatch SCRIPT")


def submit(script: str, profile: Profile, name: str) -> str:
    """Submit a script to SLURM; returns the number of its job.

    A controller that accepts a job may still be too slow to confirm it. So the queue is searched for a job of
    this ``name``, which must be new, and only if there is none is the script submitted once more.
    """
    require_commands(profile.name, "sbatch")

    def known() -> str:
        numbers = (job.number for job in list_jobs(ask_again) or () if job.name == name)
        return next((f"Submitted batch job {number}" for number in numbers), "")

    answer = ask_again("sbatch", stdin=script, known=known)
    # Greetings of sites contain all kinds of numbers.
    match = re.search(r"Submitted batch job (\d+)", answer.stdout)
    if answer.returncode or not match:
        require_final("SLURM", answer.stderr)
        raise ClusterError(
            f"SLURM refuses the job: {refusal(answer.stderr or answer.stdout)}. Change the profile "
            f"{profile.name}: `rankfold doctor --cluster PROFILE` says what there is, `--print` shows the "
            "script"
        )
    return match[1]


def _node_megabytes(profile: Profile) -> int:
    """Mebibytes to request for a node: for its workers, and for the driver on the first node.

    0 if the profile does not say what a worker takes.
    """
    return (profile.workers_per_node + 1) * (profile.memory or 0) // 2**20
