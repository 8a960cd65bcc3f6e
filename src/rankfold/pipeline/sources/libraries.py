"""Optional libraries: imported when a source needs one, and if it is not there, how to get it is said."""

from __future__ import annotations

import importlib
from typing import Any

from rankfold.pipeline.errors import InputError

PACKAGES = {"xarray": "xarray netCDF4"}
"""Libraries that are of use with others alone, as they are installed."""


def library(module: str, *, extra: str, what: str) -> Any:
    """A module that is installed with an extra of rankfold; ``what`` needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise InputError(
            f"{what} needs {package}, which cannot be imported ({error}): pip install "
            f"{PACKAGES.get(package, package)} (part of the extra {extra!r})"
        ) from error
