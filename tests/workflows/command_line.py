"""The command line as tests call it, and what a refusal is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from rankfold.workflows.cli import app, making

PROGRESS = re.compile(r"[\w ]+: [\d,]+ of [\d,]+ (rows|columns)")
"""A plain line of progress."""


def rankfold(*arguments: object) -> Any:
    """A command as the console script makes it: alone."""
    words = [str(argument) for argument in arguments]
    with making(words):
        return CliRunner().invoke(app, words)


def refused(folder: Path, code: int, message: str, *arguments: object) -> None:
    """The command fails with one message on stderr and leaves the folder as it was."""
    before = sorted(folder.rglob("*"))
    run = rankfold(*arguments)
    assert run.exit_code == code, run.output
    said = [line for line in run.stderr.splitlines() if not PROGRESS.match(line)]
    assert len(said) == 1 and said[0].startswith("rankfold: ")
    assert message in said[0]
    assert sorted(folder.rglob("*")) == before
