"""The command ``rankfold``. Every error that rankfold itself raises becomes one message and an exit code.

0 done    2 bad input or configuration    3 plan refused    4 bad data    75 more to do    130 interrupted
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

# One thread for every library, set before any is loaded: parallelism is that of the sweeps.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_command_name

from rankfold._version import __version__
from rankfold.workflows.commands import (
    demo,
    doctor,
    exporting,
    flow,
    importing,
    model,
    operate,
    profile,
    reduce,
    report,
    submit,
    verify,
)
from rankfold.workflows.options import SHOW_JOBS
from rankfold.workflows.reporting import plain, quoting_words, say

LINE = 200
"""Largest number of characters of a command's description in the list of all commands."""


class _Commands(TyperGroup):
    """Commands under headings; usage errors quote the user's words as printable text."""

    def make_context(self, *arguments: Any, **others: Any) -> Any:
        with quoting_words():
            return super().make_context(*arguments, **others)

    def invoke(self, ctx: Any) -> Any:
        with quoting_words():
            return super().invoke(ctx)

    def every(self) -> dict[str, Any]:
        """All commands by name, even if a single one has been built for this call."""
        with making(()):
            group: Any = get_command(app)
        return dict(group.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a list of commands for each heading, in the order in which they are registered."""
        headings: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            each: Any = self.get_command(ctx, name)
            headings.setdefault(each.rich_help_panel, []).append((name, each.get_short_help_str(LINE)))
        for heading, commands in headings.items():
            with formatter.section(heading):
                formatter.write_dl(commands)


app = typer.Typer(
    name="rankfold",
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="SVD, PCA, QR, NMF, neighbors of matrices beyond memory: planned memory, few reads, resumable.",
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False,
) -> None:
    SHOW_JOBS.set(_show_jobs)
    if version:
        say(f"rankfold {__version__}")
        raise typer.Exit


def _show_jobs(name: str, values: Mapping[str, Any]) -> None:
    from rankfold.workflows.operations.command_task import jobs_of_command
    from rankfold.workflows.operations.jobs import show_jobs

    show_jobs(jobs_of_command(name, values), as_json=values["as_json"])


RESULTS, MATRICES, FLOWS = "Use a result", "See, plan and import a matrix", "Run workflows"
PLACES = "Work on clusters, and by schedule"

for _method, _command in (reduce.reductions() | model.embeddings()).items():
    app.command(rich_help_panel=_method.topic)(_command)
for _command in (
    model.transform,
    model.reconstruct,
    model.check,
    exporting.export,
    exporting.plot,
    report.report,
    verify.verify,
):
    app.command(rich_help_panel=RESULTS)(_command)
app.command(rich_help_panel=MATRICES)(importing.info)
app.command(rich_help_panel=MATRICES)(reduce.plan)
app.command("import", rich_help_panel=MATRICES)(importing.import_)
for _command in (demo.demo, flow.example, flow.run, flow.status, flow.schema):
    app.command(rich_help_panel=FLOWS)(_command)
for _command in (
    doctor.doctor,
    profile.profile,
    submit.submit,
    submit.mpi,
    operate.logs,
    operate.cancel,
    operate.schedule,
):
    app.command(rich_help_panel=PLACES)(_command)


EVERY = tuple(app.registered_commands)


@contextlib.contextmanager
def making(words: Sequence[str]) -> Iterator[None]:
    """Within the block, build only the command that ``words`` begin with, the arguments after ``rankfold``.

    All are built if there is no such command. Building all takes a tenth of a second.
    """
    before = app.registered_commands
    names = [each.name or get_command_name(each.callback.__name__) for each in EVERY if each.callback]
    asked = [each for each, name in zip(EVERY, names, strict=True) if [*words[:1]] == [name]]
    app.registered_commands = asked or [*EVERY]
    try:
        yield
    finally:
        app.registered_commands = before


def main() -> None:
    """Entry point of the ``rankfold`` command."""
    if sys.stderr is None:  # closed by the caller
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    sys.stdout, sys.stderr = map(plain, (sys.stdout, sys.stderr))
    with making(sys.argv[1:]):
        app()
