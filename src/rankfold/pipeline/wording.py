"""Arguments in messages: those of Python for callers of functions, options for users of commands.

A message names an argument both ways, ``memory='2GiB' (--memory 2GiB)``. A reader is shown one of them:
``str`` of an error and warnings show the form of ``in_python``, commands print that of ``in_command``. Keys
of workflows are derived from the options, in ``rankfold.workflows.messages``.
"""

from __future__ import annotations

import re
from typing import Any

from rankfold.pipeline.text import Lines

_VALUE = r"(?:'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\([^()]*\)|[\w.]+)"
_ARGUMENT = rf"\w+={_VALUE}?"
_OPTION = rf"--[a-z][a-z-]*(?: (?:{_VALUE}|[^\s()]+))?"

_BOTH = re.compile(rf"(?<!\w)({_ARGUMENT}) \(({_OPTION})\)")
"""An argument of Python, and its option in brackets."""


def argument(name: str, value: Any = None) -> str:
    """Name an argument for messages as in Python and as a command option, with or without a suggested value.

    Parameters
    ----------
    name : str
        Name of the argument in Python.
    value : optional
        Suggested value. For a flag, False gives the option that turns it off.

    Returns
    -------
    str
        Both names; ``in_python``, ``in_command`` and workflows choose one.

    Examples
    --------
    >>> argument("memory", "52MiB"), argument("rank")
    ("memory='52MiB' (--memory 52MiB)", 'rank= (--rank)')
    >>> print(argument("thousands", " "))
    thousands=' ' (--thousands ' ')
    >>> argument("overwrite", True), argument("with_rows", False)
    ('overwrite=True (--overwrite)', 'with_rows=False (--no-rows)')
    """
    option = f"--{name.replace('_', '-')}"
    if value is None:
        return f"{name}= ({option})"
    if value is False:
        return f"{name}=False (--no-{name.removeprefix('with_').replace('_', '-')})"
    text = repr(value) if isinstance(value, str) and {*value} & {*" '"} else value
    return f"{name}={value!r} ({option if value is True else f'{option} {text}'})"


def memory_argument(need_bytes: int) -> str:
    """Name of the memory argument of an import, with the value that it needs, both ways; for messages.

    >>> memory_argument(50_000_000)
    'memory_bytes=50331648 (--memory 48MiB)'
    """
    need = -(-need_bytes // 2**20)
    return f"memory_bytes={need * 2**20} (--memory {need}MiB)"


def in_python(message: str) -> str:
    """A message with arguments named as in Python.

    >>> in_python("give memory='52MiB' (--memory 52MiB), or how many, k= (--k)")
    "give memory='52MiB', or how many, k="
    """
    return _kept_lines(message, _BOTH.sub(r"\1", message))


def in_command(message: str) -> str:
    """A message with arguments named as options of commands.

    >>> in_command("give missing_chunks='fill' (--missing-chunks fill), or how many, k= (--k)")
    'give --missing-chunks fill, or how many, --k'
    >>> in_command("with numeric=True (--numeric), or without=['a b'] (--without 'a b')")
    "with --numeric, or --without 'a b'"
    """
    return _kept_lines(message, _BOTH.sub(r"\2", message))


def _kept_lines(message: str, text: str) -> str:
    """``text`` as ``Lines`` if the message that it was made from is ``Lines``."""
    return Lines.of(text) if isinstance(message, Lines) else text
