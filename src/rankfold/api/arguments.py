"""Checks of the arguments of callers in Python: names, flags, and paths of outputs.

``public`` wraps a public function. Its signature stays as it is written, and its docstring then explains
every argument. The error about an unknown argument suggests rankfold's name for it, also if the caller used
the name that it has in NumPy, SciPy, scikit-learn or Dask.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import operator
import os
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from rankfold.api.docstrings import completed, said_by
from rankfold.api.where import ARGUMENTS
from rankfold.methods.registry import METHODS
from rankfold.methods.svd.arguments import share_as_tol
from rankfold.pipeline.errors import ArgumentError, InputError, OutputError
from rankfold.pipeline.formats.locate import require_text
from rankfold.pipeline.text import shell_words

F = TypeVar("F", bound=Callable[..., Any])

FOREIGN_NAMES: dict[str, tuple[str, ...]] = {
    "A": ("x",),
    "X": ("x",),
    "X_embedded": ("embedding",),
    "algorithm": ("solver",),
    "beta_loss": ("loss",),
    "centre": ("center",),
    "compute_uv": ("with_rows",),
    "data": ("x",),
    "distance": ("metric",),
    "iterated_power": ("passes",),
    "k": ("rank",),
    "max_iter": ("passes",),
    "memory_limit": ("memory",),
    "n_components": ("rank",),
    "n_iter": ("passes",),
    "n_jobs": ("threads",),
    "n_neighbors": ("k",),
    "n_neighbours": ("k",),
    "n_oversamples": ("oversampling",),
    "n_power_iter": ("passes",),
    "n_power_iterations": ("passes",),
    "n_threads": ("threads",),
    "n_workers": ("workers",),
    "output": ("out",),
    "random_state": ("seed",),
    "on": ("cluster",),
    "rows": ("with_rows", "sample_rows", "row_range", "row_axes"),
    "gradient": ("grad_tol",),
    "seconds": ("time_limit",),
    "sample_weight": ("row_weights", "weights"),
    "scheduler": ("client",),
    "standardize": ("scale",),
    "method": ("solver",),
    "svd_solver": ("solver",),
    "verbose": ("progress",),
    "with_mean": ("center",),
    "with_std": ("scale",),
}
"""rankfold's names for arguments of NumPy, SciPy, scikit-learn and Dask, by their names there.

The error about an unknown argument suggests the first of these that the function has.
"""

FLAGS = ("bool", "bool | None")
"""Annotations of arguments that are True or False."""

OUTPUTS = ("out", "destination")
"""Names of arguments that are paths of outputs."""


def public(function: F, *, name: str = "") -> F:
    """Wrap a function so that its arguments are checked and its docstring explains every argument.

    With a ``name``, the returned function has this name and belongs to the package ``rankfold``.
    """
    signature = inspect.signature(function)
    parameters = signature.parameters
    title = name or function.__name__
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    flags = {each.name for each in parameters.values() if each.annotation in FLAGS}

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        if not takes_any:
            refuse_unknown(title, keywords, parameters)
        for each in flags & keywords.keys():
            keywords[each] = _flag(each, keywords[each])
        for each, value in [*zip(parameters, arguments, strict=False), *keywords.items()]:
            if each in OUTPUTS and value is not None:
                require_output(each, value)
            if each == "scratch" and value is not None:
                require_scratch(value)
        return function(*arguments, **keywords)

    call.__signature__ = signature  # type: ignore[attr-defined]
    own = {each.name: each.argument for each in METHODS[title].parameters()} if title in METHODS else {}
    call.__doc__ = completed(function.__doc__ or "", signature, said_by(ARGUMENTS | own))
    if name:
        call.__name__ = call.__qualname__ = name
        call.__module__ = __name__.partition(".")[0]  # where it is found under that name
    return call  # type: ignore[return-value]


def refuse_unknown(title: str, values: Mapping[str, Any], names: Collection[str]) -> None:
    """Raise ``ArgumentError`` for an argument that a function does not have, with the name probably meant.

    ``title`` is the function's name in the message, ``values`` are the arguments that were given by name, and
    ``names`` those that the function has.
    """
    for name, value in values.items():
        if name in names:
            continue
        if name in ("rows", "row_axes") and "with_rows" in names and not isinstance(value, bool):
            raise ArgumentError(f"{title} takes no {name}{_axes_hint(value)}")
        ours = [each for each in FOREIGN_NAMES.get(name, ()) if each in names]
        ours = ours or difflib.get_close_matches(name, names, 1)
        if ours == ["rank"] and "tol" in names and (share := share_as_tol(value)):
            raise ArgumentError(f"{title} takes no {name}: {share}")
        advice = f"say {ours[0]}=" if ours else f"it takes {', '.join(names)}"
        raise ArgumentError(f"{title} takes no {name}: {advice}")


def _flag(name: str, value: object) -> bool | None:
    """The value of the argument ``name`` as True, False or None; raises for others than these, 0 and 1."""
    if value is None:
        return None
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = int(value) if type(value).__name__ in ("bool", "bool_") else -1  # type: ignore[call-overload]
    if number in (0, 1):
        return bool(number)
    hint = _axes_hint(value) if name == "with_rows" else ""
    raise ArgumentError(f"{name} must be True or False, not {value!r}{hint}")


def _axes_hint(value: object) -> str:
    return (
        f". To say which axes of an array are its rows, open it first: rankfold.open(x, row_axes={value!r})"
    )


def _path_of(name: str, value: object) -> str:
    """The path ``value`` of the argument ``name`` as text; raises if a result cannot store such a path."""
    if not isinstance(value, str | os.PathLike):
        raise InputError(f"{name} must be a path, not {value!r}")
    text = os.fsdecode(value)
    require_text(text)
    return text


def require_scratch(value: object) -> None:
    """Raise if ``value``, that of the argument ``scratch``, cannot be a folder for intermediate files."""
    text = _path_of("scratch", value)
    if os.path.exists(text) and not os.path.isdir(text):
        raise OutputError(
            f"{text} is a file, and intermediates need a folder. Choose another scratch= (--scratch)"
        )


def require_output(name: str, out: object) -> None:
    """Raise if ``out``, given as the argument ``name``, is no path, or the folder above it does not exist."""
    text = _path_of(name, out)
    folder = Path(text).absolute().parent
    if not Path(text).absolute().name:
        raise OutputError(f"{text} is the root of the file system. Name a folder in it that is not there yet")
    if re.match("[a-z][a-z0-9]+:/", text) or folder.exists():
        return
    raise OutputError(
        f"{folder}, in which {Path(text).name} is to be written, does not exist. Make it: mkdir -p "
        f"{shell_words([str(folder)])}"
    )
