"""The chunk files of one Zarr array in a folder: their names, which are there, how large, how old.

Only names that the grid asks for are looked at, so temporary files that a killed writer left beside
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
"""Above this many files an evenly spaced sample of this size stands for all of them."""

SIZED_FILES = 4096
"""Of more files the sizes are not looked at where only a plan would be the better for it."""

SIZED_SECONDS = 2.0
"""As long sizes stand: a plan asks for them again and again."""

ABSENT = -1
"""Size of a file that is not there."""


class FileState(NamedTuple):
    """What the file system says of one chunk file."""

    key: str
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class ChunkFiles:
    """How the chunk files of an array are named, and what each of them covers."""

    folder: str
    """Folder of the array."""

    metadata: str
    """Name of the metadata file in ``folder``."""

    extent: tuple[int, ...]
    """Length of what one file covers, along every axis."""

    counts: tuple[int, ...]
    """Number of files along every axis."""

    prefix: str
    """What a key starts with: ``c/``, ``c.`` or nothing."""

    separator: str
    """What stands between the numbers of a key."""

    @property
    def total(self) -> int:
        """Number of files of a complete array."""
        return math.prod(self.counts)

    def key(self, *index: int) -> str:
        """Key of the file at a place of the grid.

        >>> ChunkFiles("X", "zarr.json", (4, 4), (3, 2), "c/", "/").key(2, 1)
        'c/2/1'
        """
        return self.prefix + self.separator.join(map(str, index))

    def path(self, key: str) -> str:
        """Path of the file with that key."""
        return os.path.join(self.folder, key)

    def listing(self, first: int | None = None) -> Iterator[FileState]:
        """State of every file, or of the ``first`` ones, in grid order; of ``LISTING_LIMIT`` at most of them,
        evenly spaced.
        """
        return (state for _, state in self.sample(LISTING_LIMIT, first))

    def sample(self, most: int, first: int | None = None) -> Iterator[tuple[tuple[int, ...], FileState]]:
        """Place in the grid and state of at most ``most`` files, evenly spaced among all or the ``first``."""
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
        """Digest of name, size and time of the first files in grid order."""
        digest = hashlib.blake2b(digest_size=16)
        _digest_states(digest, self.listing(count))
        return digest.hexdigest()

    def stored_bytes(self) -> int:
        """Bytes of all files on disk, scaled up where only a sample is listed."""
        sizes = sum(max(0, state.size) for state in self.listing())
        return sizes * self.total // min(self.total, LISTING_LIMIT)

    def largest_bytes(self) -> int | None:
        """Bytes of the largest file on disk; None where there are too many to look at."""
        if self.total > SIZED_FILES:
            return None
        return _largest_bytes(self, int(time.monotonic() / SIZED_SECONDS))

    def check(self, name: str, *, expected_bytes: int | None, fill: object, allow_missing: bool) -> None:
        """Raise ``ChunkError`` when files are missing, empty, or not of ``expected_bytes`` if given."""
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
        """Place in the grid of file ``number`` in C order."""
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
    """What to say of chunk files that a result has lost: all of them were written."""
    return f"{name}: {_which(keys, total)}: the result is damaged. Give the command that made it once more"


def absent_message(name: str, count: int, total: int, fill: object) -> str:
    """What to say of chunks that neither a file nor a shard holds."""
    return _refusal(name, f"{count} of {total} chunks are missing, inner ones of shards", fill)


def missing_message(name: str, keys: list[str], total: int, fill: object) -> str:
    """What to say of chunk files that are not there."""
    return _refusal(name, _which(keys, total), fill)


def _refusal(name: str, which: str, fill: object) -> str:
    return (
        f"{name}: {which}; Zarr would read it as fill value {fill}. If that is meant, say "
        "missing_chunks='fill' (--missing-chunks fill); else restore the store"
    )
