"""``rankfold doctor``: checks of what a run needs, before the first one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankfold.pipeline.text import json_text
from rankfold.workflows.options import Json, Print, command
from rankfold.workflows.reporting import say

if TYPE_CHECKING:
    from rankfold.cluster.doctor.local import Finding
    from rankfold.cluster.slurm.profile import Profile


@command()
def doctor(
    cluster: Annotated[
        str | None, typer.Option("--cluster", "--profile", help="name or path of a profile to be checked too")
    ] = None,
    folder: Annotated[Path, typer.Option(help="where results and scratch will lie")] = Path("."),
    probe: Annotated[bool, typer.Option("--probe/--no-probe", help="send a job of half a minute")] = True,
    wait: Annotated[
        str | None, typer.Option(metavar="H:MM:SS", help="for that job to begin; as the profile has it")
    ] = None,
    as_json: Json = False,
    show: Print = False,
) -> None:
    """Check this machine, SLURM or another queue, and by a short job a node of a profile of SLURM."""
    from rankfold.cluster.slurm.profile import WALLTIME, find_profile, walltime_seconds
    from rankfold.pipeline.errors import InputError

    if wait is not None and not WALLTIME.fullmatch(wait):
        raise InputError(f"--wait {wait!r} is not a time such as 0:05:00")
    profile = None if cluster in (None, "local", "allocation", "mpi") else find_profile(cluster)
    seconds = None if wait is None else walltime_seconds(wait)
    if show:
        from rankfold.cluster.doctor.job import probe_job
        from rankfold.workflows.operations.jobs import show_jobs

        sends = profile is not None and profile.scheduler == "slurm" and probe
        show_jobs([probe_job(profile, folder)] if sends and profile else [], as_json=as_json)
        return
    findings = []
    for finding in _findings(profile, folder, probe=probe, wait_seconds=seconds):
        findings.append(finding)
        if not as_json:
            say(str(finding))
    if as_json:
        say(json_text([dataclasses.asdict(finding) for finding in findings], indent=1))
    if any(finding.verdict == "failed" for finding in findings):
        raise typer.Exit(2)


def _findings(
    profile: Profile | None, folder: Path, *, probe: bool, wait_seconds: float | None
) -> Iterator[Finding]:
    import shutil

    from rankfold.cluster.doctor.job import probe_findings
    from rankfold.cluster.doctor.local import Finding, local_findings
    from rankfold.cluster.doctor.queues import queue_findings
    from rankfold.cluster.doctor.slurm import slurm_findings

    failure = False
    yield from local_findings(folder)
    if profile is None and shutil.which("sbatch") is None:
        yield Finding("SLURM", "not checked", "there is none here")
        return
    if profile is not None and profile.scheduler != "slurm":
        yield from queue_findings(profile)
        return
    for finding in slurm_findings(profile):
        failure = failure or finding.verdict == "failed"
        yield finding
    if profile is None:
        yield Finding("node", "not checked", "no profile was given", "Give one by --cluster")
    elif failure or not probe:
        why = "SLURM would refuse the job" if failure else "as asked"
        yield Finding("node", "not checked", why, "Repair what failed first" if failure else "")
    else:
        yield from probe_findings(profile, folder, wait_seconds)
