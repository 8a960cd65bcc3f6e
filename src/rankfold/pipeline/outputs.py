"""What may be written under a name that a user gives, and giving it that name.

One rule for results, stores, pages, pictures and files: what stands under the name is replaced only if
rankfold made it and knows it again, by its list of files or by a mark that it carries, and only where that
was asked for. What is new gets its name in one step that never replaces what came meanwhile.

The trap: a check before hours of work says nothing of the moment at which the work is published. So both ask
the same question, and the answer that counts is the second.
"""

from __future__ import annotations

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
"""Within these a mark stands."""

APPEARED = "came to be while it was made, and was not made by this command"
"""Why a name is not taken that was free when the work began."""

Foreign = Callable[[Path], str | None]
"""Says what of a file or folder is not of rankfold, in words that end a sentence; None if all of it is."""


def carries(mark: str, otherwise: str = "was not made by rankfold") -> Foreign:
    """Files whose beginning holds a mark are ours; of others it says what they are ``otherwise``."""

    def foreign(path: Path) -> str | None:
        return None if mark.encode() in head_of(path) else otherwise

    return foreign


def head_of(path: Path) -> bytes:
    """The part of a file in which a mark stands."""
    with open_regular(path) as file:
        head: bytes = file.read(HEAD_BYTES)
    return head


# Files --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileOutput:
    """A file that will appear under its name when it is whole."""

    path: Path
    """Absolute; where the name is a link, what it leads to."""

    foreign: Foreign
    replaces: bool
    """Whether a file of ours may be replaced."""

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """A name beside it to write to, which becomes the file when the block ends without an error.

        Raises
        ------
        OutputError
            It cannot be written, or something else took the name meanwhile, which stays as it is.
        """
        draft = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex}")
        try:
            yield draft
            flush(draft)
            publish_file(draft, self)
        except RankfoldError:
            raise
        except OSError as error:
            raise OutputError(f"{self.path} cannot be written: {error}") from error
        finally:
            remove(draft)

    def write(self, content: bytes) -> Path:
        """Write the whole file; its path."""
        with self.draft() as draft:
            draft.write_bytes(content)
        return self.path


def is_unfinished(path: str | Path) -> bool:
    """Whether nothing is at a path but the run of what is to be there."""
    place = os.path.abspath(path)
    return not os.path.exists(place) and os.path.isdir(f"{place}.run")


def require_finished(path: str | Path) -> None:
    """Raise ``SourceNotFoundError`` for a path of what a command began and has not finished."""
    if is_unfinished(path):
        raise SourceNotFoundError(
            f"{path} is not finished: the command or call that writes it goes on from what there is, when it "
            f"is given again. `rankfold info {shell_words([str(path)])}` says how far it is"
        )


def file_output(path: Path, foreign: Foreign, *, replaces: bool) -> FileOutput:
    """A name for a file, checked before anything is read.

    Parameters
    ----------
    path : Path
        As the user gave it.
    foreign : function
        Knows files of ours.
    replaces : bool
        Whether one of them may be replaced.

    Raises
    ------
    OutputError
        Its folder is not there; it is a folder or no regular file; it is there and was not made by rankfold,
        or is not to be replaced.
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
    """Give a file that is on the disk its name; see ``FileOutput.draft``."""
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
    """Give a finished folder, which is on the disk, its name; what had it is then at ``aside``, if anything.

    Parameters
    ----------
    finished, target : Path
        The folder and the name.
    aside : Path
        A free name on the same file system, for what is replaced: it may be removed.
    foreign : function
        Asked of what stands under the name, before and after it has moved to ``aside``.

    Returns
    -------
    str or None
        Why it has no such name: something has it that is not ours. Both folders are as they were then.

    Notes
    -----
    Where two names cannot change places in one step, a kill can leave the old folder at ``aside`` alone.
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
