"""``rankfold submit``: a command as one job of SLURM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rankfold.workflows.options import command

if TYPE_CHECKING:
    from rankfold.cluster.profile import Profile


@command()
def submit(
    what: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="a command of rankfold and its options")
    ],
    on: Annotated[str, typer.Option(help="name or path of a profile: nodes, walltime, partition")] = "slurm",
    show: Annotated[bool, typer.Option("--print", help="print the job script, submit nothing")] = False,
) -> None:
    """Run a command in one job of several nodes, which begins again until all is done."""
    import sys
    from pathlib import Path

    from rankfold.cluster.profile import find_profile
    from rankfold.cluster.submission import job_script, log_name
    from rankfold.cluster.submission import submit as submit_script

    profile = find_profile(on)
    _require_command(what)
    driver = [profile.python or sys.executable, "-m", "rankfold", *what, "--on", "allocation"]
    known_as = str(Path(on).absolute()) if on.endswith((".yaml", ".yml")) else on
    script = job_script(driver, profile, name=what[0], known_as=known_as)
    if show:
        typer.echo(script, nl=False)
        return
    job = submit_script(script, profile)
    typer.echo(_told(job, log_name(what[0], job), profile))


def _told(job: str, log: str, profile: Profile) -> str:
    nodes = f"{profile.nodes} node{'s' if profile.nodes > 1 else ''}"
    return (
        f"job {job}: {nodes} for {profile.walltime}, begun again up to {profile.requeue} times\n"
        f"follow it:  tail -F {log}   or   squeue -j {job}\n"
        f"cancel it:  scancel {job}   (the same command goes on from what it leaves)"
    )


def _require_command(what: list[str]) -> None:
    """Raise for what the job would refuse, now and not after a night in the queue."""
    from rankfold.pipeline.errors import InputError
    from rankfold.workflows.cli import app

    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    name, *arguments = what
    placed = {key for key, each in known.items() if any("--on" in option.opts for option in each.params)}
    fit = sorted(placed - {"plan", "submit"})
    if name not in fit:
        raise InputError(f"submit takes a command that runs on workers: {', '.join(fit)}; not {name!r}")
    if any(argument.partition("=")[0] == "--on" for argument in arguments):
        raise InputError(f"the job runs on its own nodes: give --on before the dashes, not to {name}")
    known[name].make_context(f"rankfold {name}", [*arguments, "--on", "allocation"])
