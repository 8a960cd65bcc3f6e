"""Matrices that are first unpacked to a plain file, which can then be read at any place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO, Protocol, runtime_checkable

from rankfold.pipeline.source import Source

COPY_BYTES = 2**20


@runtime_checkable
class Packed(Protocol):
    """A matrix that goes forward only, and not by rows."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def total_bytes(self) -> int:
        """Bytes of the plain file."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was decided about the file that its owner should know."""

    def unpack(self, folder: Path, progress: Callable[[int], None]) -> Source:
        """Write the plain file into ``folder``; ``progress`` is told the bytes of it that are done."""


def copy_stream(file: IO[bytes], target: Path, progress: Callable[[int], None], *, most: int) -> None:
    """Everything that is left of ``file``; ``ValueError`` for more than ``most`` bytes."""
    done = 0
    with open(target, "wb") as out:
        while piece := file.read(COPY_BYTES):
            done += len(piece)
            if done > most:
                raise ValueError(f"it holds more than the {most} bytes that its header promises")
            out.write(piece)
            progress(done)
