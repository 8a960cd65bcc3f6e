"""Opening of regular files only: the one way to open a file for reading.

Opening a pipe waits for its writer, and a device may give endless bytes. So a file is opened without
waiting, examined, and refused by name unless it is regular. Documents that are read whole, such as metadata,
workflows, manifests and notes, have a largest size: larger ones are refused before they are read.

Before a library opens a file by its path, call ``require_regular``.

The trap: ``os.path.isfile`` is False for a pipe as well as for a missing file. Ask ``is_regular``, which
raises for a pipe.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from typing import IO, Any

from rankfold.pipeline.errors import UnfitFileError
from rankfold.pipeline.units import format_bytes

Path = str | os.PathLike[str]

METADATA_BYTES = 8 * 2**20
"""Largest number of bytes of a descriptive document: Zarr's metadata, workflows, notes of runs."""

TABLE_BYTES = 32 * 2**20
"""Largest number of bytes of a document with an entry for every file or row, such as a manifest or a log."""

TAIL_BYTES = 2**16
"""Bytes at the end of a log in which its last lines are searched."""

READ_BYTES = 2**12
"""Bytes read at a time from a document without a known size, such as those of ``/proc``."""

LINE_LENGTH = 2**24
"""Largest number of characters of a line of a text file."""

_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_descriptor(path: Path, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Descriptor of a regular file, opened without waiting; ``UnfitFileError`` for anything else.

    ``flags`` and ``mode`` as in ``os.open``. For regular files, ``O_NONBLOCK`` has no effect once they are
    open.
    """
    try:
        descriptor = os.open(path, flags | _FLAGS, mode)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV, errno.EISDIR, errno.ELOOP, errno.EOPNOTSUPP):
            raise UnfitFileError.at(path, _kind_at(path)) from error
        raise
    about = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(about):
        os.close(descriptor)
        raise UnfitFileError.at(path, _kind_of(about))
    return descriptor


def _opener(path: str, flags: int) -> int:
    return open_descriptor(path, flags)


def open_regular(path: Path, mode: str = "rb", **options: Any) -> Any:
    """Open a regular file like ``open``, to read or write; ``UnfitFileError`` for anything else."""
    return open(path, mode, opener=_opener, **options)


def require_regular(path: Path) -> None:
    """Raise unless a path is a regular file, before a library opens it; ``FileNotFoundError`` if missing."""
    try:
        about = os.stat(path).st_mode
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnfitFileError.at(path, _kind_at(path)) from error
        raise
    if not stat.S_ISREG(about):
        raise UnfitFileError.at(path, _kind_of(about))


def is_regular(path: Path) -> bool:
    """True if a regular file exists, False if nothing does; ``UnfitFileError`` for anything else."""
    try:
        require_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def read_bounded(path: Path, most: int = METADATA_BYTES) -> bytes:
    """All bytes of a file; ``UnfitFileError`` if there are more than ``most``."""
    with open_regular(path, buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise UnfitFileError.at(path, f"{format_bytes(size)} large", most)
        parts, rest = [], most + 1  # the file may grow during the read
        while rest and (part := file.read(min(rest, max(size + 1, READ_BYTES)))):
            parts.append(part)
            rest -= len(part)
        if not rest:
            raise UnfitFileError.at(path, f"over {format_bytes(most)} large", most)
        return b"".join(parts)


def read_text(path: Path, most: int = METADATA_BYTES, *, errors: str = "strict") -> str:
    """All text of a UTF-8 file, with line feeds as ends of lines; ``UnfitFileError`` above ``most`` bytes."""
    text = read_bounded(path, most).decode("utf-8", errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: Path, most: int = METADATA_BYTES) -> Any:
    """Parse a JSON document; ``ValueError`` if it is no JSON, or nested too deeply."""
    try:
        return json.loads(read_bounded(path, most))
    except RecursionError:
        raise ValueError(f"{os.fsdecode(path)} is nested too deeply") from None


def read_last_lines(path: Path, most: int = TAIL_BYTES) -> list[str]:
    """The lines in the last ``most`` bytes of a log; the first line may lack its beginning."""
    with open_regular(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - most))
        text: bytes = file.read(most)
    return text.decode(errors="replace").splitlines()


def bounded_lines(file: IO[str], path: Path) -> Iterator[str]:
    """Yield the lines of an open text file; ``UnfitFileError`` for a line of over ``LINE_LENGTH`` characters.

    ``path`` is that of the file, for the message.
    """
    while line := file.readline(LINE_LENGTH):
        if len(line) == LINE_LENGTH and not line.endswith("\n"):
            raise UnfitFileError.at(path, f"a text with a line of over {LINE_LENGTH} characters")
        yield line


def _kind_of(mode: int) -> str:
    return next((words for is_kind, words in _KINDS if is_kind(mode)), "no regular file")


def _kind_at(path: Path) -> str:
    """Description of what is at a path that could not be opened, such as "a pipe"."""
    try:
        return _kind_of(os.stat(path).st_mode)
    except OSError as error:
        return "a link that leads to itself" if error.errno == errno.ELOOP else "no regular file"
