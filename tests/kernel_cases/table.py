"""Calls of every kernel, one file to a family: what all of its bodies must give the same answer to."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from kernel_cases.case import MakeCase

CASES: dict[tuple[str, str], tuple[MakeCase, tuple[str, ...]]] = {}
"""What makes a case of a shape and a type, and the types, by module and name of the kernel."""

for _module in pkgutil.iter_modules([str(Path(__file__).parent)], "kernel_cases."):
    if _module.name != __name__:
        CASES |= getattr(importlib.import_module(_module.name), "CASES", {})
