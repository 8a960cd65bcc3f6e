"""Exchange of arrays between processes, each to all others, message by message, through files that all see.

Each process has a file with two slots. Message n goes into slot ``n mod 2``, and begins with its number and a
checksum: others poll until both are right. A process writes message n + 2 only when it has message n + 1 of
all others, which they have written after they had read its message n: nothing is overwritten that anybody
still needs.

Files have their full length before anybody begins, and are written in place. A network file system checks a
file again whenever it is opened. But it may cache for a minute that a name did not exist, or which file a
name stood for before it was replaced: files that are created, removed or renamed would be seen late.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.regular import open_descriptor, open_regular
from rankfold.pipeline.storage.checkpoint import disk_errors, make_folder
from rankfold.pipeline.storage.checksum import checksum, flat_bytes

HEAD = struct.Struct("<QII")
"""Header of a message: its number, its checksum, and 0."""

FIRST_SLOT = 64
"""Bytes before the first slot; the first byte says whether the process has left."""

SHORTEST_SECONDS, LONGEST_SECONDS = 1e-4, 5e-3
"""Shortest and longest pause between two looks at a message that has not arrived."""

Array = npt.NDArray[Any]


class PeerLeft(Exception):
    """Raised when another process has ended before it sent a message that was waited for."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """End of one process in an exchange of arrays among several; picklable."""

    folder: Path
    part: int
    capacities: tuple[int, ...]
    """(processes,) most bytes of a message of each process."""

    @classmethod
    def create(cls, folder: Path, capacities: Sequence[int]) -> tuple[Exchange, ...]:
        """Create files for messages of at most ``capacities`` bytes; returns an exchange for each process."""
        make_folder(folder)
        parts = tuple(cls(folder, part, tuple(capacities)) for part in range(len(capacities)))
        for each in parts:
            path = each.path(each.part)
            with disk_errors(path), open_regular(path, "wb") as file:
                file.truncate(each._start(each.part, 2))
                os.fsync(file.fileno())
        return parts

    def path(self, part: int) -> Path:
        """Path of the file that a process writes."""
        return self.folder / f"part-{part:05d}"

    def swap(
        self, number: int, array: Array, ends: Sequence[int], watch: Callable[[], None] = lambda: None
    ) -> None:
        """Send own rows of an array to all other processes, and fill in their rows, in place.

        Parameters
        ----------
        number : int, from 1 on
            The same in all processes, one more in each call.
        array : (n, ...)
            Rows ``ends[p] : ends[p + 1]`` are those of process p.
        watch : function
            Called while others are waited for; may raise.
        """
        own = array[ends[self.part] : ends[self.part + 1]]
        self._send(number, own)
        for part in range(len(self.capacities)):
            if part != self.part:  # also of those without rows: nobody may be two messages ahead
                self._receive(number, part, array[ends[part] : ends[part + 1]], watch)

    def leave(self) -> None:
        """Announce that this process will send no more messages."""
        with self._opened(self.part, os.O_WRONLY) as file:
            os.pwrite(file, b"\1", 0)

    def _send(self, number: int, values: Array) -> None:
        start, data = self._start(self.part, number % 2), flat_bytes(np.ascontiguousarray(values))
        head = HEAD.pack(number, checksum(data), 0)
        with disk_errors(self.path(self.part)), self._opened(self.part, os.O_WRONLY) as file:
            os.pwrite(file, data.data, start + HEAD.size)
            os.pwrite(file, head, start)

    def _receive(self, number: int, part: int, out: Array, watch: Callable[[], None]) -> None:
        pause, data, start = SHORTEST_SECONDS, flat_bytes(out), self._start(part, number % 2)
        while True:
            # Opened again for each look: only then does a network file system check whether it has changed.
            with self._opened(part, os.O_RDONLY) as file:
                sent, own_sum, _ = HEAD.unpack(os.pread(file, HEAD.size, start))
                if sent == number:
                    read = os.preadv(file, [data.data], start + HEAD.size)
                    if read == len(data) and checksum(data) == own_sum:
                        return
                elif os.pread(file, 1, 0) == b"\1":
                    raise PeerLeft(f"process {part} left before message {number}")
            watch()
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_SECONDS)

    @contextlib.contextmanager
    def _opened(self, part: int, flags: int) -> Iterator[int]:
        try:
            file = open_descriptor(self.path(part), flags)
        except FileNotFoundError:
            raise PeerLeft(f"{self.folder} has gone with its attempt") from None
        try:
            yield file
        finally:
            os.close(file)

    def _start(self, part: int, slot: int) -> int:
        room = -(-(HEAD.size + self.capacities[part]) // FIRST_SLOT) * FIRST_SLOT
        return FIRST_SLOT + slot * room
