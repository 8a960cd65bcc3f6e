"""Arguments in messages: those of Python for who calls a function, options for who gives a command.

A message names an argument both ways, ``memory='2GiB' (--memory 2GiB)``. Who reads it is shown one of them:
``in_python`` is what ``str`` of an error and a warning show, ``in_command`` what commands print. Keys of
workflows are made of the options, in ``rankfold.workflows.wording``.
"""

from __future__ import annotations

import re
from typing import Any

from rankfold.pipeline.text import Lines

_VALUE = r"(?:'[^']*'|\[[^\]]*\]|\([^()]*\)|[\w.]+)"
_ARGUMENT = rf"\w+={_VALUE}?"
_OPTION = rf"--[a-z][a-z-]*(?: (?:{_VALUE}|[^\s()]+))?"

_BOTH = re.compile(rf"(?<!\w)({_ARGUMENT}) \(({_OPTION})\)")
"""An argument of Python, and its option in brackets."""


def argument(name: str, value: Any = None) -> str:
    """An argument with a value that helps, or without one, as messages name it: both ways.

    Parameters
    ----------
    name : str
        As functions take it.
    value : optional
        What to give. False of a flag is the option that turns it off.

    Returns
    -------
    str
        For ``in_python``, ``in_command`` and workflows to choose from.

    Examples
    --------
    >>> argument("memory", "52MiB"), argument("rank")
    ("memory='52MiB' (--memory 52MiB)", 'rank= (--rank)')
    >>> argument("overwrite", True), argument("with_rows", False)
    ('overwrite=True (--overwrite)', 'with_rows=False (--no-rows)')
    """
    option = f"--{name.replace('_', '-')}"
    if value is None:
        return f"{name}= ({option})"
    if value is False:
        return f"{name}=False (--no-{name.removeprefix('with_').replace('_', '-')})"
    return f"{name}={value!r} ({option if value is True else f'{option} {value}'})"


def memory_argument(need_bytes: int) -> str:
    """The memory of an import that would do, which takes bytes in Python.

    >>> memory_argument(50_000_000)
    'memory_bytes=50331648 (--memory 48MiB)'
    """
    need = -(-need_bytes // 2**20)
    return f"memory_bytes={need * 2**20} (--memory {need}MiB)"


def in_python(message: str) -> str:
    """A message that names arguments as functions take them.

    >>> in_python("give memory='52MiB' (--memory 52MiB), or how many, k= (--k)")
    "give memory='52MiB', or how many, k="
    """
    return _kept_lines(message, _BOTH.sub(r"\1", message))


def in_command(message: str) -> str:
    """A message that names options of commands.

    >>> in_command("give missing_chunks='fill' (--missing-chunks fill), or how many, k= (--k)")
    'give --missing-chunks fill, or how many, --k'
    >>> in_command("with numeric=True (--numeric), or without=['a b'] (--without 'a b')")
    "with --numeric, or --without 'a b'"
    """
    return _kept_lines(message, _BOTH.sub(r"\2", message))


def _kept_lines(message: str, text: str) -> str:
    """A text with lines where the message that it is made of has such."""
    return Lines.of(text) if isinstance(message, Lines) else text
