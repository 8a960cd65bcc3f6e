"""Editions of a result: detect that a result was replaced while a program holds a handle to it.

A result is identified by its path, and what lies there may be removed, moved or replaced while a program
holds a handle. An edition is what was there when the handle was opened. It is recognized by its metadata and
by the first bytes of its manifest, which hold a checksum over the checksums of all files. Files that were
copied back byte by byte are the same edition.

The check takes one call of ``stat``, so readers check before and after each read. Replacing a result always
writes a new metadata file. Contents are compared only if that file is another one.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
from dataclasses import dataclass

from rankfold.pipeline.errors import DataError
from rankfold.pipeline.regular import METADATA_BYTES, open_regular, read_json

METADATA = "zarr.json"
MANIFEST = "manifest.json"
"""Names of the two files of a result that identify its edition."""

HEAD_BYTES = 4096
"""Number of first bytes of a manifest that are compared: its checksum over all files is among them."""

DEPTH = 3
"""Largest number of folders from an array up to its result."""

ATTRIBUTE = "rankfold"
"""Name of the attribute that every result has."""

FileState = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Edition:
    """The result that was at a path at some moment. Picklable; on other machines contents are compared."""

    path: str
    """Folder of the result."""

    state: FileState | None
    """Device, inode, size in bytes, and times of change of its metadata file; None if there was none."""

    content: str
    """Digest of the metadata and of the first bytes of the manifest."""

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Edition:
        """The edition that is at a path now."""
        folder = os.path.abspath(path)
        state = _state(f"{folder}/{METADATA}")
        return cls(folder, state, _content(folder, state, _state(f"{folder}/{MANIFEST}")))

    def require(self) -> None:
        """Raise ``DataError`` unless that edition is still there."""
        state = _state(f"{self.path}/{METADATA}")
        if state == self.state:
            return
        if state is None:
            raise DataError(self._loss())
        if _content(self.path, state, _state(f"{self.path}/{MANIFEST}")) != self.content:
            raise DataError(
                f"{self.path} is not what it was when it was opened: it was replaced or changed, and numbers "
                "of two results do not belong together. Open it again"
            )

    def _loss(self) -> str:
        if os.path.isdir(self.path):
            return (
                f"{self.path} is damaged: {METADATA} is missing, which was there when it was opened. Restore "
                "it, or give the command that made it once more"
            )
        return (
            f"{self.path} is no longer there: it was removed or moved since it was opened. Open it where it "
            "is now, or give the command that made it once more"
        )


def edition_around(folder: str) -> Edition | None:
    """The edition of the result that contains an array or a group in ``folder``; None for other stores."""
    folder = os.path.abspath(folder)
    for _ in range(DEPTH):
        if _is_written(folder, _state(f"{folder}/{METADATA}")):
            return Edition.of(folder)
        if not os.path.isfile(os.path.join(os.path.dirname(folder), METADATA)):
            return None
        folder = os.path.dirname(folder)
    return None


def _state(path: str) -> FileState | None:
    """Device, inode, size and times of a regular file; None if there is no such file."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@functools.lru_cache(maxsize=64)
def _content(folder: str, metadata: FileState | None, manifest: FileState | None) -> str:
    """Digest of the metadata and of the first bytes of the manifest; the file states key the cache."""
    digest = hashlib.blake2b(digest_size=16)
    files = (METADATA, METADATA_BYTES, metadata), (MANIFEST, HEAD_BYTES, manifest)
    for name, most, state in files:
        text = b"none"
        if state is not None:
            with (
                contextlib.suppress(FileNotFoundError, NotADirectoryError),
                open_regular(f"{folder}/{name}") as file,
            ):
                text = file.read(most)
        digest.update(b"\0" + text)
    return digest.hexdigest()


@functools.lru_cache(maxsize=256)
def _is_written(folder: str, state: FileState | None) -> bool:
    """True if the metadata in a folder are those of a result.

    ``state`` of the metadata file keys the cache.
    """
    if state is None or state[2] > METADATA_BYTES:
        return False
    try:
        attributes = read_json(f"{folder}/{METADATA}").get("attributes")
    except (OSError, ValueError, AttributeError):
        return False
    return isinstance(attributes, dict) and ATTRIBUTE in attributes
