"""The command line. Every error that rankfold raises on purpose is one message and an exit code.

0 done    2 bad input or configuration    3 plan refused    4 bad data    75 more to do    130 interrupted
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

# One thread for every library below, before any is loaded: parallelism is that of the sweeps.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"

import typer
from typer.core import TyperGroup

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
from rankfold.workflows.reporting import plain, quoting_words, say


class _Commands(TyperGroup):
    """Commands whose usage errors quote words of the user as printable text."""

    def make_context(self, *arguments: Any, **others: Any) -> Any:
        with quoting_words():
            return super().make_context(*arguments, **others)

    def invoke(self, ctx: Any) -> Any:
        with quoting_words():
            return super().invoke(ctx)


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
    if version:
        say(f"rankfold {__version__}")
        raise typer.Exit


for _reduction in reduce.reductions():
    app.command()(_reduction)
app.command()(reduce.plan)
app.command()(model.transform)
app.command()(model.reconstruct)
app.command()(model.check)
for _embedding in model.embeddings():
    app.command()(_embedding)
app.command()(exporting.export)
app.command()(verify.verify)
app.command("import")(importing.import_)
app.command()(importing.info)
app.command()(flow.run)
app.command()(flow.status)
app.command()(flow.schema)
app.command()(flow.example)
app.command()(exporting.plot)
app.command()(report.report)
app.command()(demo.demo)
app.command()(submit.submit)
app.command()(submit.mpi)
app.command()(operate.logs)
app.command()(operate.cancel)
app.command()(operate.schedule)
app.command()(profile.profile)
app.command()(doctor.doctor)


def main() -> None:
    """Entry point of the ``rankfold`` command."""
    if sys.stderr is None:  # closed by the caller
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    sys.stdout, sys.stderr = map(plain, (sys.stdout, sys.stderr))
    app()
