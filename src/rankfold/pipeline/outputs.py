"""Rules for writing under a name that a user gives, and publishing there.

One rule holds for results, stores, pages, pictures and files. An existing file is replaced only if rankfold
made it and recognizes it, by its list of files or by a mark (text that rankfold writes near the beginning of
its files), and only on request. A new file gets its name in one step that never replaces what appeared in the
meantime.

The trap: a check before hours of work says nothing about the moment when the work is published. So the same
check is made both times, and the second one decides.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rankfold.pipeline.durable import exchange, flush, flush_names, rename, rename_new
from rankfold.pipeline.errors import OutputError, RankfoldError, SourceNotFoundError
from rankfold.pipeline.regular import open_regular
from rankfold.pipeline.removal import remove
from rankfold.pipeline.text import shell_words

HEAD_BYTES = 2**16
"""Number of bytes at the beginning of a file in which its mark must be."""

DRAFT_LENGTH = 50
"""Number of first characters of the name of a file that the name of its draft repeats.

UTF-8 takes up to 4 bytes for each.
"""

APPEARED = "came to be while it was made, and was not made by this command"
"""End of a message: a name that was free when the work began is now taken."""

Foreign = Callable[[Path], str | None]
"""Function that returns None if rankfold made what is at a path.

Else it returns a description of what is foreign there, as the end of a sentence.
"""


def carries(mark: str, otherwise: str = "was not made by rankfold") -> Foreign:
    """Make a ``Foreign`` function: None for files whose first bytes hold ``mark``, else ``otherwise``."""

    def foreign(path: Path) -> str | None:
        return None if mark.encode() in head_of(path) else otherwise

    return foreign


def head_of(path: Path) -> bytes:
    """First ``HEAD_BYTES`` bytes of a file, in which a mark must be."""
    with open_regular(path) as file:
        head: bytes = file.read(HEAD_BYTES)
    return head


# Files --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileOutput:
    """A file that will appear under its name once it is complete."""

    path: Path
    """Absolute path; if the given path is a link, that of its target."""

    foreign: Foreign
    replaces: bool
    """True if an existing file that rankfold made may be replaced."""

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """Path in the same folder to write to; it becomes the file if the block ends without an error.

        Raises
        ------
        OutputError
            It cannot be written, or something else took the name in the meantime, which stays as it is.
        """
        # The beginning of the name alone: a name of 255 bytes leaves no room for more.
        draft = self.path.with_name(f".{self.path.name[:DRAFT_LENGTH]}.{uuid.uuid4().hex}")
        try:
            yield draft
            flush(draft)
            publish_file(draft, self)
        except RankfoldError:
            raise
        except (OSError, UnicodeEncodeError) as error:  # libraries open no name that is not UTF-8
            raise OutputError(f"{self.path} cannot be written: {error}") from error
        finally:
            remove(draft)

    def write(self, content: bytes) -> Path:
        """Write the whole file; returns its path."""
        with self.draft() as draft:
            draft.write_bytes(content)
        return self.path


def is_unfinished(path: str | Path) -> bool:
    """True if a path does not exist, but an unfinished run for it does."""
    place = os.path.abspath(path)
    return not os.path.exists(place) and os.path.isdir(f"{place}.run")


def require_finished(path: str | Path) -> None:
    """Raise ``SourceNotFoundError`` for a path whose command has begun but not finished."""
    if is_unfinished(path):
        raise SourceNotFoundError(
            f"{path} is not finished: the command or call that writes it goes on from what there is, when it "
            f"is given again. `rankfold info {shell_words([str(path)])}` says how far it is"
        )


def file_output(path: Path, foreign: Foreign, *, replaces: bool) -> FileOutput:
    """Check before the work begins that a file may be written at a path.

    Parameters
    ----------
    path : Path
        Path as the user gave it.
    foreign : function
        Returns None for a file that rankfold made, else the reason to keep it; see ``Foreign``.
    replaces : bool
        True if an existing file that rankfold made may be replaced.

    Raises
    ------
    OutputError
        Its folder does not exist; it is a folder or no regular file; it exists and was not made by rankfold,
        or may not be replaced.
    """
    place = Path(os.path.realpath(path))
    folder = path.absolute().parent
    if not folder.is_dir():
        raise OutputError(f"{path} cannot be written: there is no folder {folder}")
    if place.is_dir():
        raise OutputError(f"{path} is a folder. Give another name")
    if os.path.lexists(place):
        _require_ours(path, place, foreign, replaces=replaces)
    elif not place.parent.is_dir():
        raise OutputError(f"{path} is a link to {place}, whose folder does not exist. Give another name")
    return FileOutput(place, foreign, replaces)


def _require_ours(path: Path, place: Path, foreign: Foreign, *, replaces: bool) -> None:
    if not place.is_file():
        raise OutputError(f"{path} is no regular file. Give another name")
    if not replaces:
        raise OutputError(f"{path} exists. Say overwrite=True (--overwrite), or another name")
    try:
        reason = foreign(place)
    except OSError as error:
        raise OutputError(f"{path} exists and cannot be read: {error.strerror}. Give another name") from error
    if reason is not None:
        raise OutputError(
            f"{path} exists and {reason}, so it is never replaced. Give another name, or remove it yourself"
        )


def publish_file(draft: Path, output: FileOutput) -> None:
    """Rename a flushed file, ``draft``, to ``output.path``; ``OutputError`` if that name has been taken."""
    path = output.path
    if not os.path.lexists(path):
        try:
            rename_new(draft, path)
        except FileExistsError:
            raise OutputError(_came_meanwhile(path)) from None
    elif exchange(draft, path):
        try:
            _require_ours(path, draft, output.foreign, replaces=output.replaces)
        except OutputError as error:
            exchange(draft, path)
            raise OutputError(_came_meanwhile(path)) from error
    else:
        _require_ours(path, path, output.foreign, replaces=output.replaces)
        rename(draft, path)
    flush_names(path)


def _came_meanwhile(path: Path) -> str:
    return f"{path} {APPEARED}, so it stays as it is. Give another name"


# Folders ------------------------------------------------------------------------------------------


def publish_folder(finished: Path, target: Path, aside: Path, foreign: Foreign) -> str | None:
    """Rename a finished, flushed folder to its name; an existing one there moves to ``aside``.

    Parameters
    ----------
    finished, target : Path
        The folder and the name.
    aside : Path
        A free name on the same file system, for what is replaced; the caller may then remove that.
    foreign : function
        Returns None for a folder that may be replaced, else the reason to keep it. Called with the folder
        that has the name, before and after it has moved away from there.

    Returns
    -------
    str or None
        None if the folder has its name now; else the reason: something foreign has that name. Both folders
        are then as before.

    Notes
    -----
    Where two names cannot be exchanged in one step, a kill can leave only the old folder, at ``aside``.
    """
    if not os.path.lexists(target):
        try:
            rename_new(finished, target)
        except FileExistsError:
            return APPEARED
        flush_names(finished, target)
        return None
    if (reason := foreign(target)) is not None:
        return reason
    if exchange(finished, target):
        reason = foreign(finished)
        if reason is None:
            rename(finished, aside)
        else:
            exchange(finished, target)
    else:
        rename(target, aside)
        reason = foreign(aside)
        rename_new(finished if reason is None else aside, target)
    flush_names(finished, target)
    return reason


def lock_folder(folder: str | Path) -> int:
    """Open and lock a folder, and return its descriptor; ``OSError`` if another process holds the lock."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
