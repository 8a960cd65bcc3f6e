"""Every error that rankfold raises on purpose, with its exit code on the command line.

    RankfoldError
    ├── InputError (ValueError)             2   an argument is not possible: rank, type, shape, option
    │   ├── SourceNotFoundError             2   no such store, array or file
    │   ├── UnfitFileError (OSError)        2   no regular file where one belongs, or one too large
    │   ├── ArgumentError (TypeError)       2   a function does not take that name, or that kind of value
    │   └── SettingsError                   2   a workflow or a profile, with file and line
    ├── OutputError                         2   the output exists, or cannot be written
    │   └── LockedError                     2   another process writes it
    ├── PlanError                           3   the plan does not fit the machine
    │   ├── MemoryBudgetError               3   one worker has too little memory
    │   └── DiskSpaceError (OSError)        3   the disk has too little space
    ├── DataError (ValueError)              4   the values of the data do not allow what was asked
    │   ├── NonFiniteError                  4   NaN or Inf: their count, and the position of the first
    │   ├── NoVarianceError                 4   all rows are equal
    │   └── ChunkError                      4   a chunk is missing, truncated or does not decode
    ├── ClusterError                        2   workers cannot be had as asked
    │   └── NoWorkersError                 75   no worker started in time; the same command tries again
    ├── UnreachableError (OSError)         75   a remote store does not answer; the same command goes on
    └── Interrupted                        75   stopped on request; the same command goes on
        └── DamagedStateError              75   a file of a run is not whole; it is made again

A message says what was asked, what was found, and what to change, with the exact number. It names arguments
both as in Python and as command options (see ``argument``): ``str`` of an error shows those of Python,
commands print ``message`` with the options.

Arguments in messages: those of Python for callers of functions, options for users of commands.

A message names an argument both ways, ``memory='2GiB' (--memory 2GiB)``. A reader is shown one of them:
``str`` of an error and warnings show the form of ``in_python``, commands print that of ``in_command``. Keys
of workflows are derived from the options, in ``rankfold.workflows.messages``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from rankfold.pipeline.text import Lines, printable


class RankfoldError(Exception):
    """Root of all errors raised on purpose. A message is one printable line, or several as ``text.Lines``."""

    exit_code = 2

    def __init__(self, *values: object) -> None:
        super().__init__(*(printable(value) if isinstance(value, str) else value for value in values))

    @property
    def message(self) -> str:
        """The message with arguments named both ways, for code that builds another message from it."""
        return self.args[0] if len(self.args) == 1 and isinstance(self.args[0], str) else super().__str__()

    def __str__(self) -> str:
        return in_python(self.message)


class InputError(RankfoldError, ValueError):
    """An argument that cannot be honored."""


class SourceNotFoundError(InputError, FileNotFoundError):
    """There is no matrix where the caller pointed."""

    def __new__(cls, *values: object) -> Self:
        """Make it as an ``OSError``: unpickling would use ``ValueError.__new__``, which fails."""
        return FileNotFoundError.__new__(cls, *values)


class UnfitFileError(InputError, OSError):
    """A path names no regular file, or a document that is too large."""

    def __new__(cls, *values: object) -> Self:
        """Make it as an ``OSError``; see ``SourceNotFoundError``."""
        return OSError.__new__(cls, *values)

    found: str = ""
    """Description of what is at the path, such as ``a pipe``."""

    most_bytes: int | None = None
    """Largest allowed size in bytes, if the document exceeds it; else None."""

    @classmethod
    def at(cls, path: str | os.PathLike[str], found: str, most_bytes: int | None = None) -> UnfitFileError:
        """Make the error for a path at which there is ``found``, such as ``a pipe``.

        ``most_bytes`` is the largest allowed size, if the document exceeds it.
        """
        name = os.fsencode(path).decode("utf-8", "backslashreplace")
        limit = most_bytes and f"and at most {most_bytes >> 20} MiB of such a file are read"
        error = cls(f"{name} is {found}, {limit or 'where a regular file belongs'}")
        error.found, error.most_bytes, error.strerror = found, most_bytes, f"it is {found}"
        return error


class SeveralArraysError(InputError):
    """A store holds several arrays, and none of them was named."""

    arrays: tuple[str, ...] = ()
    """Paths of the arrays in the store, the likely ones first."""

    @classmethod
    def of(cls, message: str, arrays: Iterable[str]) -> SeveralArraysError:
        """Make the error with a message and the paths of the arrays in the store."""
        error = cls(message)
        error.arrays = tuple(arrays)
        return error


class SeveralAxesError(InputError):
    """An array has more than two axes, and it was not said which of them are the rows."""


class ArgumentError(InputError, TypeError):
    """A function does not take an argument of that name or kind."""


class OutputError(RankfoldError):
    """The output cannot be written, is in use, or belongs to another request."""


class LockedError(OutputError):
    """Another process writes the output."""


class PlanError(RankfoldError):
    """The plan does not fit the machine it was given."""

    exit_code = 3


class MemoryBudgetError(PlanError):
    """A single worker would need more memory than it is given."""

    need_bytes = 0
    """Bytes of memory that one worker would need; 0 if that is not known."""

    way_out: str = ""
    """Part of the message, from ", or" on, with remedies other than more memory.

    They also hold where the task is a step of a chain of tasks.
    """

    smaller: str = ""
    """Part of the message with an argument of this task and its largest value that fits.

    Left out for a chain of tasks, whose arguments have other names.
    """

    @classmethod
    def of(cls, message: str, need_bytes: int, way_out: str = "", smaller: str = "") -> Self:
        """Make the error; ``way_out`` and ``smaller`` are put before the full stop of ``message``."""
        error = cls(f"{message.removesuffix('.')}{way_out}{smaller}.")
        error.need_bytes, error.way_out, error.smaller = need_bytes, way_out, smaller
        return error

    def of_chain(self, *, way_out: bool) -> Self:
        """Copy of this error for a task that is one step of a chain.

        Without ``smaller``, since arguments of the chain have other names; with ``way_out`` if that is True.
        """
        message = self.message.removesuffix(f"{self.way_out}{self.smaller}.")
        return type(self).of(message, self.need_bytes, self.way_out if way_out else "")


class DiskSpaceError(PlanError, OSError):
    """Scratch and result would not fit, or did not fit, on the disk."""


class DataError(RankfoldError, ValueError):
    """The values of the data do not allow what was asked, or the data is damaged."""

    exit_code = 4


class NonFiniteError(DataError):
    """The matrix holds NaN or Inf."""


class NoVarianceError(DataError):
    """All rows of a matrix are equal, but the method compares them."""


class ChunkError(DataError):
    """A chunk of the input is missing, truncated or unreadable."""


class ClusterError(RankfoldError):
    """Workers cannot be started as asked."""


class DeviceError(ClusterError):
    """There is no device to compute on, or it lacks something that is needed."""


class NoWorkersError(ClusterError):
    """No worker started in time; no work is lost."""

    exit_code = 75


class UnreachableError(RankfoldError, OSError):
    """A remote store does not answer, or refuses access; what is finished so far is on disk."""

    exit_code = 75


class Interrupted(RankfoldError):
    """Stopped on request, with everything finished so far on disk."""

    exit_code = 75


class DamagedStateError(Interrupted):
    """A file of a run is missing or not whole; it is made again, in this run or by the same command."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} {reason}; the same command makes it again")
        self.path, self.reason = path, reason

    def __reduce__(self) -> tuple[type[DamagedStateError], tuple[Path, str]]:
        return DamagedStateError, (self.path, self.reason)


_VALUE = r"(?:'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\([^()]*\)|[\w.]+)"
_ARGUMENT = rf"\w+={_VALUE}?"
_OPTION = rf"--[a-z][a-z-]*(?: (?:{_VALUE}|[^\s()]+))?"

_BOTH = re.compile(rf"(?<!\w)({_ARGUMENT}) \(({_OPTION})\)")
"""Pattern of an argument as in Python, followed by its command option in parentheses."""


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
    """Text that asks for ``need_bytes`` of memory in an import, as in Python and as an option of the command.

    The value is rounded up to MiB.

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
