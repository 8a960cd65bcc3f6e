"""Figures as files, which appear once they are complete."""

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
"""Function of a path: None for a picture that rankfold made, else a message that it is none."""


def picture_output(
    path: Path, *, overwrite: bool, foreign: Foreign = OURS, subject: str | None = None
) -> FileOutput:
    """Output file for a picture, checked before anything is read.

    A picture that carries the same ``subject`` is replaced; another one of rankfold with ``overwrite``, and
    nothing else ever.

    Raises
    ------
    InputError
        The suffix is none of ``TYPES``.
    OutputError
        The file exists, or its folder does not.
    """
    if path.suffix.lower() not in TYPES:
        raise InputError(f"{path} is no picture that can be written: give a name that ends in .png or .svg")
    if subject is not None:
        with contextlib.suppress(OSError):
            overwrite = overwrite or subject.encode() in head_of(path)
    return file_output(path, foreign, replaces=overwrite)


def write_picture(figure: Figure, output: FileOutput, facts: Mapping[str, str] | None = None) -> Path:
    """Write a figure in the format of the suffix of the file."""
    return output.write(encoded(figure, output.path.suffix.lower().removeprefix("."), facts))
