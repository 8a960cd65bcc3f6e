"""Every method by its name, those of other packages too.

A method is found by name, and its code is loaded when a task is made: asking for its arguments loads next to
nothing. Other packages add theirs under the entry point ``rankfold.methods``::

    [project.entry-points."rankfold.methods"]
    column_sums = "their_package.sums:COLUMN_SUMS"
"""

from __future__ import annotations

import functools
import importlib
import logging
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from rankfold.methods.argument import Parameter, parameters_of
from rankfold.pipeline.errors import InputError

if TYPE_CHECKING:
    from rankfold.methods.task import Task

LOG = logging.getLogger("rankfold")

GROUP = "rankfold.methods"
"""Of entry points."""


@dataclass(frozen=True, slots=True)
class Method:
    """All that planning, running, the command line, workflows and results need to know of a method."""

    name: str
    """That of its function; with dashes, of its command."""

    summary: str
    """One line for the command line."""

    arguments: type
    """A frozen dataclass: see ``argument.py``."""

    home: str
    """``"module:function"`` of what makes a task: of ``inputs`` in their order, then arguments by name."""

    inputs: tuple[str, ...] = ("x",)
    """What it is of: ``"x"`` a matrix, ``"result"`` a result of one of ``of``."""

    of: tuple[str, ...] = ()
    matrices: tuple[str, ...] = ()
    """Matrices in its result, that of the rows first."""

    edition: int = 1
    """Rises when other bytes answer the same request: results of an earlier edition are made anew."""

    def parameters(self) -> tuple[Parameter, ...]:
        """What it may be asked."""
        return parameters_of(self.arguments)

    def task(self, *inputs: object, **arguments: Any) -> Task:
        """What is to be done, checked: of matrices, sources, results and their paths."""
        module, _, name = self.home.partition(":")
        made: Task = getattr(importlib.import_module(module), name)(*inputs, **arguments)
        return made


OURS = {
    "svd": "rankfold.methods.svd.arguments:SVD",
    "pca": "rankfold.methods.svd.arguments:PCA",
    "qr": "rankfold.methods.svd.arguments:QR",
    "nmf": "rankfold.methods.nmf.arguments:NMF",
    "knn": "rankfold.methods.knn.arguments:KNN",
    "transform": "rankfold.methods.model.arguments:TRANSFORM",
    "update": "rankfold.methods.model.arguments:UPDATE",
    "check": "rankfold.methods.model.arguments:CHECK",
    "reconstruct": "rankfold.methods.model.arguments:RECONSTRUCT",
}
"""Where each method says of itself what is known of it."""


def method(name: str) -> Method:
    """A method by its name.

    Raises
    ------
    InputError
        There is none of that name.
    """
    if name in OURS:
        return _loaded(OURS[name])
    theirs = _theirs()
    if name not in theirs:
        raise InputError(f"there is no method {name!r}; there are {', '.join(method_names())}")
    found = _loaded(theirs[name])
    if found.name != name:
        raise InputError(f"{theirs[name]} calls itself {found.name!r}, and its entry point {name!r}")
    return found


def method_names() -> tuple[str, ...]:
    """Ours, then those of other packages."""
    return (*OURS, *(name for name in _theirs() if name not in OURS))


@functools.cache
def methods() -> tuple[Method, ...]:
    """All that can be loaded. One of another package that cannot is said and left out: it harms no other."""
    found = []
    for name in method_names():
        try:
            each = method(name)
            each.parameters()
            found.append(each)
        except Exception as error:  # whatever their code raises
            if name in OURS:
                raise
            LOG.warning("method %s of another package is left out: %s", name, error)
    return tuple(found)


def edition_of(name: str) -> int:
    """The edition that answers requests of a kind today."""
    return method(name).edition if name in OURS or name in _theirs() else 1


@functools.cache
def _theirs() -> dict[str, str]:
    """Methods of other packages, in alphabetical order."""
    return {each.name: each.value for each in sorted(entry_points(group=GROUP))}


@functools.cache
def _loaded(home: str) -> Method:
    module, _, name = home.partition(":")
    found = getattr(importlib.import_module(module), name)
    if not isinstance(found, Method):
        raise InputError(f"{home} is no method of rankfold: a Method was expected, not {found!r}")
    return found
