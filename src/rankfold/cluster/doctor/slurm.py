"""Checks of SLURM and of a profile, made without submitting a job."""

from __future__ import annotations

import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from rankfold.cluster.doctor.local import Finding, Verdict
from rankfold.cluster.slurm.profile import Profile, walltime_seconds
from rankfold.cluster.slurm.queue import ask, refusal
from rankfold.pipeline.errors import InputError, in_command
from rankfold.pipeline.units import format_bytes

COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "srun")
KILL_SECONDS = 5

NODES = r"\d+ \d+ \d+ \S+"
"""Pattern of a line of ``sinfo`` for nodes of one kind: count, cores, memory in MiB, GPUs."""


def slurm_findings(profile: Profile | None) -> Iterator[Finding]:
    """Yield the findings of checks that ask SLURM, without starting a job."""
    commands = check_commands()
    if commands.verdict == "failed":
        yield commands
        return
    answer = ask("scontrol", "show", "config")
    settings = read_settings(answer.stdout)
    if not settings:
        yield _not_configured(commands.found, answer.stderr, wanted=profile is not None)
        return
    yield commands
    yield check_settings(settings)
    if profile is None:
        return
    yield check_partition(profile)
    yield check_account(profile)
    yield check_worker_job(profile)
    yield check_submission(profile)


def check_commands() -> Finding:
    """Check that the commands are installed, and report their version."""
    missing = [command for command in COMMANDS if shutil.which(command) is None]
    if missing:
        advice = "Log in where jobs are submitted, or run with --cluster local"
        return Finding("SLURM", "failed", f"there is no {', '.join(missing)}", advice)
    return Finding("SLURM", "ok", ask("sbatch", "--version").stdout.strip() or "version not said")


def _not_configured(version: str, message: str, *, wanted: bool) -> Finding:
    """Finding for commands that are installed where no controller answers them.

    ``version`` is theirs, ``message`` the error that ``scontrol`` prints. The check has failed if SLURM is
    ``wanted``, by a profile, and else counts as not made.
    """
    reason = (message.strip() or "scontrol show config says nothing").splitlines()[0]
    advice = "Log in where jobs are submitted, or ask the site; --cluster local needs none"
    verdict: Verdict = "failed" if wanted else "not checked"
    return Finding("SLURM", verdict, f"{version} is installed, and no controller answers: {reason}", advice)


def read_settings(text: str) -> dict[str, str]:
    """Values that ``scontrol show config`` prints, by name."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def check_settings(settings: dict[str, str]) -> Finding:
    """Check the settings, from ``read_settings``, that decide how a job ends and whether it is requeued."""
    parameters = settings.get("SlurmctldParameters", "")
    choices = {name: settings.get(name, "not said") for name in ("JobRequeue", "KillWait", "MaxArraySize")}
    warns_preempted = "preempt_send_user_signal" in parameters
    summary = ", ".join(f"{name} {value}" for name, value in choices.items())
    summary += f", {'preempted jobs are told' if warns_preempted else 'preempted jobs are not told in time'}"
    kill = re.match(r"\d+", choices["KillWait"])
    if kill and int(kill[0]) < KILL_SECONDS:
        advice = "Jobs are killed soon after they are asked to end: up to 20 seconds of work are done again"
        return Finding("SLURM settings", "warning", summary, advice)
    return Finding("SLURM settings", "ok", summary)


def check_partition(profile: Profile) -> Finding:
    """Check that the partition exists and allows the walltime."""
    answer = ask(
        "sinfo", "-h", "-o", "%P %l", *([f"--partition={profile.partition}"] * bool(profile.partition))
    )
    limits = dict(line.split()[:2] for line in answer.stdout.splitlines() if len(line.split()) >= 2)
    if profile.partition is None:
        default = [name for name in limits if name.endswith("*")]
        if not default:
            return Finding(
                "partition", "warning", "no partition is the default", f"Set one of {_few(limits)}"
            )
        name = default[0]
    else:
        name = next((one for one in limits if one.rstrip("*") in profile.partition.split(",")), "")
    if not name:
        partitions = {
            line.split()[0].rstrip("*") for line in ask("sinfo", "-h", "-o", "%P").stdout.splitlines()
        }
        return Finding(
            "partition", "failed", f"there is no {profile.partition}", f"Set one of {_few(partitions)}"
        )
    summary = f"{name.rstrip('*')}, at most {limits[name]}; walltime {profile.walltime}"
    try:
        longest: float = walltime_seconds(limits[name])
    except ValueError:
        longest = float("inf")
    if walltime_seconds(profile.walltime) > longest:
        return Finding("partition", "failed", summary, f"Set walltime: {limits[name]} or less")
    return Finding("partition", "ok", summary)


def _few(names: Iterable[str]) -> str:
    return ", ".join(sorted(name.rstrip("*") for name in names)[:12]) or "none"


def check_account(profile: Profile) -> Finding:
    """Check which account the jobs are charged to."""
    if profile.account:
        return Finding("account", "ok", profile.account)
    if account := os.environ.get("SBATCH_ACCOUNT"):
        return Finding("account", "ok", f"{account}, of SBATCH_ACCOUNT")
    return Finding(
        "account", "warning", "none is set, so the site's default pays", "Set account: if it should not"
    )


def check_worker_job(profile: Profile) -> Finding:
    """Check that SLURM would accept a job of one worker."""
    from rankfold.cluster.slurm.jobqueue import worker_script
    from rankfold.cluster.slurm.jobs import WorkerJobs

    try:
        place = WorkerJobs.of(profile, None, None, None if profile.memory else "1GiB")
    except InputError as error:
        return Finding("worker job", "failed", in_command(error.message))
    with tempfile.TemporaryDirectory() as folder:  # dask-jobqueue makes one for logs
        options = place.job_options("rankfold-doctor", Path(folder))
        script = worker_script("slurm", "tcp://driver:8786", **options)
    return _test_script("worker job", script, "for --cluster", profile)


def check_submission(profile: Profile) -> Finding:
    """Check that SLURM would accept a job that runs a whole command."""
    from rankfold.cluster.slurm.submission import job_script

    script = job_script(["true"], profile, name="doctor", known_as=profile.name)
    return _test_script("whole command", script, "for rankfold submit", profile)


def _test_script(check: str, script: str, what: str, profile: Profile) -> Finding:
    answer = ask("sbatch", "--test-only", stdin=script)
    if answer.returncode:
        advice = f"Change the profile, {what}"
        if nodes := kinds_of_nodes(profile):
            advice += f": it asks a node for {requested_of_node(script)}; there are {nodes}"
        return Finding(check, "failed", f"SLURM refuses it: {refusal(answer.stderr)}", advice)
    start = re.search(r"to start at (\S+)", answer.stderr)
    return Finding(check, "ok", f"SLURM takes it, {what}; it could start {start[1] if start else 'soon'}")


def requested_of_node(script: str) -> str:
    """Cores and memory per node that the options of a job script request, in words for a message."""
    options = dict(re.findall(r"^#SBATCH (--[\w-]+)=(\S+)$", script, re.MULTILINE))
    counts = [options.get(name, "1") for name in ("--ntasks-per-node", "--cpus-per-task")]
    cores = math.prod(map(int, counts)) if all(map(str.isdecimal, counts)) else " x ".join(counts)
    memory = options.get("--mem", "the default memory")  # directives of a profile may say 64G
    is_ours = re.fullmatch(r"\d+M", memory)
    return f"{cores} cores and {format_bytes(int(memory[:-1]) * 2**20) if is_ours else memory}"


def kinds_of_nodes(profile: Profile) -> str:
    """Nodes of the profile's partition, or of all, by hardware, in words; empty if SLURM lists none."""
    chosen = [f"--partition={profile.partition}"] * bool(profile.partition)
    answer = ask("sinfo", "-h", "-e", "-o", "%D %c %m %G", *chosen)
    kinds = dict.fromkeys(line for line in answer.stdout.splitlines() if re.fullmatch(NODES, line))
    each = (line.split() for line in list(kinds)[:8])
    return ", ".join(
        f"{count} with {cores} cores and {format_bytes(int(mebibytes) * 2**20)}"
        + f" and {gpus}" * (gpus != "(null)")
        for count, cores, mebibytes, gpus in each
    )
