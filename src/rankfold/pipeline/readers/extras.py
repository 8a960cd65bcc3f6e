"""Libraries that only some formats need, loaded when one is read."""

from __future__ import annotations

import importlib
from typing import Any

from rankfold.pipeline.errors import InputError


def library(name: str, path: str) -> Any:
    """A module, or an error that says how to get it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        wanted = name.partition(".")[0]
        if (error.name or "").partition(".")[0] != wanted:
            raise
        raise InputError(
            f"reading {path} needs {wanted}, which is not installed: pip install 'rankfold[formats]'"
        ) from None
