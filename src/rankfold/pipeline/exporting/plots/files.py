"""Figures as files, which are there when they are whole."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rankfold.pipeline.durable import flush, rename_durably
from rankfold.pipeline.errors import InputError, OutputError
from rankfold.pipeline.exporting.plots.canvas import encoded

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TYPES = (".png", ".svg")


def require_picture(path: Path, *, overwrite: bool) -> Path:
    """Raise unless a picture can be written there, before anything is read.

    Raises
    ------
    InputError
        Another type of file than ``TYPES``.
    OutputError
        It exists, or its folder does not.
    """
    if path.suffix.lower() not in TYPES:
        raise InputError(f"{path} is no picture that can be written: give a name that ends in .png or .svg")
    if path.is_dir():
        raise OutputError(f"{path} is a folder. Give another name")
    if path.exists() and not overwrite:
        raise OutputError(f"{path} exists. Say overwrite=True (--overwrite), or another name")
    if not path.absolute().parent.is_dir():
        raise OutputError(f"{path} cannot be written: there is no folder {path.absolute().parent}")
    return path


def write_picture(figure: Figure, path: Path, facts: Mapping[str, str] | None = None) -> Path:
    """Write a figure as the type of file that its name says."""
    path = path.resolve()
    begun = path.with_name(f".{path.name}.{os.getpid()}.rankfold-plot")
    content = encoded(figure, path.suffix.lower().removeprefix("."), facts)
    try:
        begun.write_bytes(content)
        flush(begun)
        rename_durably(begun, path)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error}") from error
    finally:
        begun.unlink(missing_ok=True)
    return path
