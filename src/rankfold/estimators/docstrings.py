"""Complete docstrings of estimators: arguments without text get that of scikit-learn or rankfold."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from rankfold.api.docstrings import Entry, completed, entries_of, said_by
from rankfold.api.where import ARGUMENTS
from rankfold.methods.registry import METHODS


def explain(estimators: Mapping[str, Any]) -> None:
    """Complete the docstrings of estimator classes in place; ``estimators`` maps names to classes.

    See ``rankfold.api.docstrings``.
    """

    @functools.cache
    def said(reference: str) -> dict[str, Entry]:
        """Entries on arguments, by name, of what a docstring refers to: a function of rankfold or a class."""
        module, _, name = reference.rpartition(".")
        if name in estimators and module in ("", "rankfold.estimators"):
            return entries_of(docstring(name))
        if name in METHODS:
            method = METHODS[name]
            return said_by(ARGUMENTS | {each.name: each.argument for each in method.parameters()})
        return entries_of(getattr(importlib.import_module(module), name).__doc__)

    @functools.cache
    def docstring(name: str) -> str:
        estimator = estimators[name]
        return completed(estimator.__doc__, inspect.signature(estimator), said_by(ARGUMENTS), said)

    for name, estimator in estimators.items():
        estimator.__doc__ = docstring(name)
