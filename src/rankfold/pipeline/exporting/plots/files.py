"""Figures as files, which are there when they are whole."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rankfold.pipeline.errors import InputError
from rankfold.pipeline.exporting.plots.canvas import MARK, encoded
from rankfold.pipeline.outputs import FileOutput, Foreign, carries, file_output, head_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TYPES = (".png", ".svg")

OURS = carries(MARK)
"""Knows pictures of rankfold."""


def picture_output(
    path: Path, *, overwrite: bool, foreign: Foreign = OURS, subject: str | None = None
) -> FileOutput:
    """A name for a picture, checked before anything is read.

    One that carries the same ``subject`` is replaced; another one of ours with ``overwrite``, and nothing
    else ever.

    Raises
    ------
    InputError
        Another type of file than ``TYPES``.
    OutputError
        It exists, or its folder does not.
    """
    if path.suffix.lower() not in TYPES:
        raise InputError(f"{path} is no picture that can be written: give a name that ends in .png or .svg")
    if subject is not None:
        with contextlib.suppress(OSError):
            overwrite = overwrite or subject.encode() in head_of(path)
    return file_output(path, foreign, replaces=overwrite)


def write_picture(figure: Figure, output: FileOutput, facts: Mapping[str, str] | None = None) -> Path:
    """Write a figure as the type of file that its name says."""
    return output.write(encoded(figure, output.path.suffix.lower().removeprefix("."), facts))
