"""The chunk files of one Zarr array in a folder: their names, which exist, their sizes and times.

Only names that the chunk grid implies are looked up, so temporary files that a killed writer left beside
the chunks are never taken for data. A file is a chunk, or a shard of many chunks.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from rankfold.pipeline.errors import ChunkError
from rankfold.pipeline.regular import read_bounded

LISTING_LIMIT = 100_000
"""Number of files above which an evenly spaced sample of that many represents all of them."""

SIZED_FILES = 4096
"""Number of files above which sizes are not read where they would only make a plan more precise."""

SIZED_SECONDS = 2.0
"""Seconds for which the largest size is cached: a plan asks for it repeatedly."""

ABSENT = -1
"""Size reported for a file that does not exist."""


class FileState(NamedTuple):
    """One chunk file: its key (path in the folder), size in bytes (``ABSENT`` if missing), time of change."""

    key: str
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class ChunkFiles:
    """Names of the chunk files of an array, and the part of the array that each covers."""

    folder: str
    """Folder of the array."""

    metadata: str
    """Name of the metadata file in ``folder``."""

    extent: tuple[int, ...]
    """Number of elements of the array that one file covers along every axis."""

    counts: tuple[int, ...]
    """Number of files along every axis."""

    prefix: str
    """Start of a key: ``c/``, ``c.`` or empty."""

    separator: str
    """Text between the numbers of a key."""

    @property
    def total(self) -> int:
        """Number of files of a complete array."""
        return math.prod(self.counts)

    def key(self, *index: int) -> str:
        """Key of the file at an index of the grid.

        >>> ChunkFiles("X", "zarr.json", (4, 4), (3, 2), "c/", "/").key(2, 1)
        'c/2/1'
        """
        return self.prefix + self.separator.join(map(str, index))

    def path(self, key: str) -> str:
        """Full path of the file with that key."""
        return os.path.join(self.folder, key)

    def listing(self, first: int | None = None) -> Iterator[FileState]:
        """State of all files, or of the ``first`` ones, in grid order; a sample above ``LISTING_LIMIT``."""
        return (state for _, state in self.sample(LISTING_LIMIT, first))

    def sample(self, most: int, first: int | None = None) -> Iterator[tuple[tuple[int, ...], FileState]]:
        """Grid index and state of at most ``most`` files, evenly spaced among all or the ``first``."""
        total = self.total if first is None else first
        count = min(total, most, LISTING_LIMIT)
        for index in range(count):
            place = tuple(self._place(index * total // count))
            yield place, self._state(self.key(*place))

    def _state(self, key: str) -> FileState:
        try:
            state = os.stat(self.path(key))
        except (FileNotFoundError, NotADirectoryError):
            return FileState(key, ABSENT, 0)
        except OSError as error:
            raise ChunkError(
                f"chunk {key} cannot be read ({self.path(key)}): {error.strerror}. Restore the store"
            ) from error
        return FileState(key, state.st_size, state.st_mtime_ns)

    def fingerprint(self) -> str:
        """Digest of the metadata text and of name, size and time of every file listed."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(read_bounded(self.path(self.metadata)))
        _digest_states(digest, self.listing())
        return digest.hexdigest()

    def first_fingerprint(self, count: int) -> str:
        """Digest of key, size and time of the first ``count`` files in grid order."""
        digest = hashlib.blake2b(digest_size=16)
        _digest_states(digest, self.listing(count))
        return digest.hexdigest()

    def stored_bytes(self) -> int:
        """Bytes of all files on disk, scaled up where only a sample is listed."""
        sizes = sum(max(0, state.size) for state in self.listing())
        return sizes * self.total // min(self.total, LISTING_LIMIT)

    def largest_bytes(self) -> int | None:
        """Bytes of the largest file on disk; None if there are more than ``SIZED_FILES``."""
        if self.total > SIZED_FILES:
            return None
        return _largest_bytes(self, int(time.monotonic() / SIZED_SECONDS))

    def check(self, name: str, *, expected_bytes: int | None, fill: object, allow_missing: bool) -> None:
        """Raise ``ChunkError`` if files are missing (unless allowed), empty, or not of ``expected_bytes``.

        ``name`` of the array and ``fill``, its fill value, are for the message; sizes are not compared if
        ``expected_bytes`` is None.
        """
        missing: list[str] = []
        damage: list[FileState] = []
        for state in self.listing():
            if state.size == ABSENT:
                missing.append(state.key)
            elif state.size == 0 or expected_bytes not in (None, state.size):
                damage.append(state)
        if damage:
            raise ChunkError(self._damage(name, damage, expected_bytes))
        if missing and not allow_missing:
            raise ChunkError(missing_message(name, missing, min(self.total, LISTING_LIMIT), fill))

    def _place(self, number: int) -> list[int]:
        """Index in the grid of files of the file that is number ``number`` in C order."""
        place = []
        for count in reversed(self.counts):
            number, index = divmod(number, count)
            place.append(index)
        return place[::-1]

    def _damage(self, name: str, damage: list[FileState], expected_bytes: int | None) -> str:
        first = damage[0]
        others = f" ({len(damage)} chunks are affected)" if len(damage) > 1 else ""
        size = "at least 1" if expected_bytes is None else f"{expected_bytes}"
        return (
            f"{name}: chunk {first.key} holds {first.size} bytes instead of {size}{others} "
            f"({self.path(first.key)}). Restore the store"
        )


def _digest_states(digest: hashlib.blake2b, states: Iterator[FileState]) -> None:
    for state in states:
        digest.update(f"\0{state.key} {state.size} {state.modified_ns}".encode())


@functools.lru_cache(maxsize=16)
def _largest_bytes(files: ChunkFiles, moment: int) -> int:
    return max((state.size for state in files.listing()), default=0)


def _which(keys: list[str], total: int) -> str:
    if len(keys) > 1:
        return f"{len(keys)} of {total} chunks are missing, the first is {keys[0]}"
    return f"chunk {keys[0]} of {total} is missing"


def lost_message(name: str, keys: list[str], total: int) -> str:
    """Message about the missing chunk files ``keys`` of a result, of ``total`` that were all written."""
    return f"{name}: {_which(keys, total)}: the result is damaged. Give the command that made it once more"


def absent_message(name: str, count: int, total: int, fill: object) -> str:
    """Message about ``count`` chunks of ``total`` that no shard holds; ``fill`` is the fill value."""
    return _refusal(name, f"{count} of {total} chunks are missing, inner ones of shards", fill)


def missing_message(name: str, keys: list[str], total: int, fill: object) -> str:
    """Message about the chunk files ``keys`` of ``total`` that do not exist; ``fill`` is the fill value."""
    return _refusal(name, _which(keys, total), fill)


def _refusal(name: str, which: str, fill: object) -> str:
    return (
        f"{name}: {which}; Zarr would read it as fill value {fill}. If that is meant, say "
        "missing_chunks='fill' (--missing-chunks fill); else restore the store"
    )
