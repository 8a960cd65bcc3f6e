"""What was written where, with checksums: so that what lies on disk is used only while it is whole.

Sweeps write blocks of scratch and chunks of the result besides what they add up. The thread that works on a
segment records each such block: path within the run, first byte, length, checksum. Records are stored with
the accumulator that they belong to, and merged as accumulators are, so the total of a sweep knows all that
the sweep wrote.

A run trusts what it wrote itself. What an earlier attempt wrote is read once and compared before it is used.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.durable import begin_flush
from rankfold.pipeline.regular import open_regular
from rankfold.pipeline.storage.checkpoint import State, name_in_run
from rankfold.pipeline.storage.checksum import checksum, file_checksum

BLOCKS, NAMES = ".blocks", ".names"
"""Arrays of a part that hold a ledger."""

_WRITER = threading.local()


@dataclass(slots=True)
class Ledger:
    """Blocks by file: ``{first byte: (length, checksum)}``, files by their path from the run's folder on."""

    blocks: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)

    def note(self, path: Path, start: int, data: npt.NDArray[Any]) -> None:
        """Take in a block that is written; an earlier one at its place is no more."""
        self.blocks.setdefault(name_in_run(path) or str(path), {})[start] = (data.nbytes, checksum(data))

    def add(self, other: Ledger) -> None:
        """Take in all blocks of another."""
        for name, blocks in other.blocks.items():
            self.blocks.setdefault(name, {}).update(blocks)

    def as_arrays(self) -> State:
        """As arrays of a part; none if nothing was written."""
        if not self.blocks:
            return {}
        rows = [
            (index, start, *block)
            for index, blocks in enumerate(self.blocks.values())
            for start, block in blocks.items()
        ]
        names = np.frombuffer(json.dumps(list(self.blocks)).encode(), np.uint8)
        return {BLOCKS: np.array(rows, np.int64), NAMES: names}

    @classmethod
    def taken_from(cls, state: State) -> Ledger:
        """The ledger of a part, which is taken out of it."""
        ledger = cls()
        if BLOCKS in state:
            names = json.loads(state.pop(NAMES).tobytes())
            for index, start, length, value in state.pop(BLOCKS).tolist():
                ledger.blocks.setdefault(names[index], {})[start] = (length, value)
        return ledger


@contextlib.contextmanager
def record_writes(ledger: Ledger | None) -> Iterator[None]:
    """Have what this thread writes in a ledger; in none, if it is None."""
    before = getattr(_WRITER, "ledger", None)
    _WRITER.ledger = ledger
    try:
        yield
    finally:
        _WRITER.ledger = before


def note_written(path: Path, start: int, data: npt.NDArray[Any]) -> None:
    """Record a block of a file that this thread has written, in one piece, if anybody wants to know."""
    ledger: Ledger | None = getattr(_WRITER, "ledger", None)
    if ledger is not None:
        ledger.note(path, start, data)
        begin_flush(path, start, data.nbytes)


def damaged_block(path: Path, blocks: Iterable[tuple[int, tuple[int, int]]]) -> str | None:
    """What is wrong with a file that should hold these blocks, in words; None if nothing is."""
    try:
        with open_regular(path, buffering=0) as file:
            for start, (length, block_sum) in sorted(blocks):
                value = file_checksum(file.fileno(), start, length)
                if value != block_sum:
                    return "has lost its end" if value is None else "is not what was written"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None
