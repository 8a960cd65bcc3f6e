"""Which edition of a result a handle belongs to.

A result is known by its path, and what lies there may be removed, moved or replaced while a program holds a
handle. An edition is what was there when the handle was opened, known again by its metadata and by the
beginning of its manifest, which holds a checksum over those of all files. Files that were copied back byte by
byte are the same edition.

The check takes two calls of ``stat``, so whoever reads compares before and after.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from dataclasses import dataclass

from rankfold.pipeline.errors import DataError

METADATA = "zarr.json"
MANIFEST = "manifest.json"
"""Files of a result that tell one edition from another."""

HEAD_BYTES = 4096
"""Of a manifest, whose checksum of everything comes first."""

DEPTH = 3
"""Folders between an array and its result, at most."""

WRITTEN = ("rankfold", "rankfold_import")
"""Attributes of stores that this package wrote, every chunk of them."""

FileState = tuple[int, int, int, int, int]
States = tuple[FileState | None, FileState | None]


@dataclass(frozen=True, slots=True)
class Edition:
    """What lay at a path at some moment. Pickles, and is compared by content on other machines."""

    path: str
    """Folder of the result."""

    states: States
    content: str
    """Digest of what tells editions apart."""

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Edition:
        """The edition that lies at a path now."""
        folder = os.path.abspath(path)
        states = _states(folder)
        return cls(folder, states, _content(folder, states))

    def require(self) -> None:
        """Raise ``DataError`` unless that edition is still there."""
        states = _states(self.path)
        if states == self.states:
            return
        if states[0] is None:
            raise DataError(self._loss())
        if _content(self.path, states) != self.content:
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
    """The edition of the store of this package that an array or a group is part of; None for other stores."""
    folder = os.path.abspath(folder)
    for _ in range(DEPTH):
        if _is_written(folder, _states(folder)):
            return Edition.of(folder)
        if not os.path.isfile(os.path.join(os.path.dirname(folder), METADATA)):
            return None
        folder = os.path.dirname(folder)
    return None


def _states(folder: str) -> States:
    return _state(f"{folder}/{METADATA}"), _state(f"{folder}/{MANIFEST}")


def _state(path: str) -> FileState | None:
    """What tells one file from another of the same name; None if there is none."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@functools.lru_cache(maxsize=64)
def _content(folder: str, states: States) -> str:
    """Digest of the metadata and of the beginning of the manifest; ``states`` are those of the files."""
    digest = hashlib.blake2b(digest_size=16)
    for name, most, state in zip((METADATA, MANIFEST), (-1, HEAD_BYTES), states, strict=True):
        if state is None:
            digest.update(b"\0none")
            continue
        try:
            with open(f"{folder}/{name}", "rb") as file:
                digest.update(b"\0" + file.read(most))
        except (FileNotFoundError, NotADirectoryError):
            digest.update(b"\0none")
    return digest.hexdigest()


@functools.lru_cache(maxsize=256)
def _is_written(folder: str, states: States) -> bool:
    """Whether the metadata in a folder are those of a store that this package wrote."""
    if states[0] is None:
        return False
    try:
        with open(f"{folder}/{METADATA}", "rb") as file:
            attributes = json.load(file).get("attributes")
    except (OSError, ValueError, AttributeError, RecursionError):
        return False
    return isinstance(attributes, dict) and any(name in attributes for name in WRITTEN)
