"""How commands end: with one message and an exit code for every error, in good order for every signal."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO, cast

from rankfold.pipeline.errors import InputError, Interrupted, RankfoldError, in_command
from rankfold.pipeline.text import Lines, harmless, printable

DRAINS = (signal.SIGTERM, signal.SIGUSR1)
"""Signals by which SLURM and other systems ask a process to end."""

AGAIN_SECONDS = 0.05
"""Seconds until a signal is sent again whose exception was lost in a callback that Python calls."""


RESUME_HINT = "what was finished is kept, and the same command goes on from there"

KEYBOARD = 130
"""Exit code after Ctrl-C, as in shells."""


class PlainText:
    """A stream that writes control characters, and characters its encoding lacks, as escapes; see
    ``printable``.
    """

    def __init__(self, stream: Any) -> None:
        self.rich_proxied_file = stream  # rich draws bars by control characters, which must bypass this
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text; returns its length, as ``write`` of streams does."""
        shown = harmless(text)
        try:
            self._stream.write(shown)
        except UnicodeEncodeError as error:
            self._stream.write(shown.encode(error.encoding, "backslashreplace").decode(error.encoding))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def plain(stream: TextIO) -> TextIO:
    """Wrap a stream in ``PlainText``; None and wrapped streams stay as they are."""
    if stream is None or isinstance(stream, PlainText):  # closed by the caller
        return stream
    return cast("TextIO", PlainText(stream))


def say(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Write a line, or ``Lines``, to stdout, or with ``err`` to stderr.

    Newlines in a text that is not ``Lines`` are escaped.
    """
    stream = sys.stderr if err else sys.stdout
    if stream is not None:
        stream.write(printable(text) + end)
        stream.flush()


def say_warning(message: str) -> None:
    """Write a warning stored in a result to stderr, with arguments named as options of commands."""
    say(f"warning: {in_command(message)}", err=True)


class Stop(BaseException):
    """Raised when a signal asks the command to end. Like ``KeyboardInterrupt``, it is no error that a library
    may handle.
    """


def exit_code_of(error: BaseException) -> int:
    """Exit code of a command that ends with this error; 1 for an error that is a fault of rankfold itself."""
    if isinstance(error, Stop) or _is_stale(error):
        return Interrupted.exit_code
    if isinstance(error, RankfoldError):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return KEYBOARD
    return InputError.exit_code if isinstance(error, OSError | MemoryError) else 1


@contextlib.contextmanager
def report_errors(debug: bool, hint: str = RESUME_HINT) -> Iterator[None]:
    """Within the block, turn errors into one message on stderr and an exit code, and signals into ``Stop``.

    With ``debug``, errors are raised instead, with their traceback. ``hint`` describes what a stopped command
    has kept; it is empty if nothing is kept.
    """
    hint = f"; {hint}" if hint else ""
    for number in DRAINS:
        signal.signal(number, _drain)
    unraisable, sys.unraisablehook = sys.unraisablehook, _resend_signal
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(plain, streams)
    try:
        yield
        _disregard(*DRAINS)  # all is done: nothing is left to stop
    except Stop as stop:
        _fail(f"stopped by {stop}{hint}", exit_code_of(stop), None)
    except KeyboardInterrupt as stop:
        _fail(f"interrupted{hint}", exit_code_of(stop), None)
    except BrokenPipeError:
        # Only closing lines are written to stdout: the work that they report is done.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except (RankfoldError, OSError, MemoryError) as error:
        _fail(_in_words(error, hint), exit_code_of(error), error if debug else None)
    finally:
        sys.unraisablehook = unraisable
        sys.stdout, sys.stderr = streams


@contextlib.contextmanager
def quoting_words() -> Iterator[None]:
    """Quote unknown commands, options and values of the user as printable text in errors.

    For an option of another library, the error suggests the option of rankfold.
    """
    from typer import BadParameter

    usage_error: Any = BadParameter.__base__  # typer names it in a private module only
    try:
        yield
    except usage_error as error:
        vars(error)["message"] = printable(error.message)
        if getattr(error, "option_name", None) and error.ctx is not None:
            from rankfold.api.arguments import FOREIGN_NAMES

            options = {option for each in error.ctx.command.params for option in each.opts}
            name = error.option_name.strip("-").replace("-", "_")
            ours = [f"--{each.replace('_', '-')}" for each in FOREIGN_NAMES.get(name, ())]
            error.possibilities = [each for each in ours if each in options] or error.possibilities
            if any(
                "-- COMMAND" in (getattr(each, "metavar", None) or "") for each in error.ctx.command.params
            ):
                error.message += (
                    f". Options of a command stand after two dashes: {error.ctx.command_path} -- COMMAND "
                    f"{printable(error.option_name)}"
                )
        raise


STALE = "a file server forgot a file while it was read (stale file handle)"

FILE_ERRORS: dict[type[BaseException], str] = {
    PermissionError: "you may not read or write it",
    IsADirectoryError: "a file was expected, and here is a folder",
    NotADirectoryError: "a folder was expected, and here is a file",
    FileExistsError: "exists already",
    FileNotFoundError: "does not exist",
}
"""Explanation of system errors that name a file, by type of error."""

NAME_ERRORS = {
    errno.ENAMETOOLONG: "a name is longer than the file system allows, mostly 255 bytes",
    errno.ELOOP: "links lead to each other in a circle",
}
"""Explanation of system errors that have no type of their own, by number."""


def _is_stale(error: BaseException | None) -> bool:
    """True if an error, or one of its causes, says that a file server no longer knows an open file."""
    seen: list[BaseException] = []  # an error that is raised from itself has no end of causes
    while error is not None and error not in seen:
        if getattr(error, "errno", None) == errno.ESTALE:
            return True
        seen.append(error)
        error = error.__cause__
    return False


def _is_nowhere() -> bool:
    """True if the working folder was removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _in_words(error: BaseException, hint: str) -> str:
    if _is_stale(error):
        return f"{STALE}{hint or '. Give the command again'}"
    if isinstance(error, RankfoldError):
        return in_command(error.message)
    if isinstance(error, FileNotFoundError) and error.filename is None and _is_nowhere():
        return "the working folder was removed. Change to one that is there, and give the command again"
    return f"{_of_file(error) or f'{type(error).__name__}: {error}'} (--debug shows where)"


def _of_file(error: BaseException) -> str:
    """Explanation of an error that concerns a file; empty if the error names no file."""
    name = getattr(error, "filename", None)
    what = FILE_ERRORS.get(type(error)) or NAME_ERRORS.get(getattr(error, "errno", None) or 0)
    return f"{os.fsdecode(name)}: {what}" if isinstance(name, str | bytes) and what else ""


def _drain(number: int, frame: object) -> None:
    # One signal is enough: another one during the orderly end would leave folders and workers behind.
    _disregard(*DRAINS)
    raise Stop(signal.Signals(number).name)


def _resend_signal(unraisable: sys.UnraisableHookArgs) -> None:
    """Handle an exception raised in a callback, which Python would only print: if a
    signal raised it, send the signal again.
    """
    error = unraisable.exc_value
    if not isinstance(error, Stop | KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    number = signal.Signals[str(error)] if isinstance(error, Stop) else signal.SIGINT
    if isinstance(error, Stop):
        signal.signal(number, _drain)
    again = threading.Timer(AGAIN_SECONDS, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


def _disregard(*numbers: signal.Signals) -> None:
    for number in numbers:
        signal.signal(number, _ignore)


def _ignore(number: int, frame: object) -> None:
    """Signal handler that does nothing. Unlike SIG_IGN, child processes do not inherit it."""


def _fail(message: str, code: int, error: BaseException | None) -> None:
    _disregard(*DRAINS)
    if error is not None:
        raise error
    with contextlib.suppress(OSError, ValueError):
        say(Lines.joined("rankfold: ", message), err=True)
    raise SystemExit(code) from None
