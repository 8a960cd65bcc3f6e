"""Ledgers: locations and checksums of written blocks, so that files are used only while they are whole.

In addition to their accumulators (such as sums over rows), sweeps write blocks of scratch (intermediate files
of a run) and chunks of the result. The thread that works on a segment of a sweep records each such block:
path within the run, first byte, length, checksum. Records are stored with the accumulator that they belong
to, and merged like accumulators, so the total of a sweep lists everything that the sweep wrote.

A process trusts what it wrote itself. Blocks of an earlier attempt are read once and compared before use.
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
"""Names of the arrays of a part that hold a ledger."""

_WRITER = threading.local()


@dataclass(slots=True)
class Ledger:
    """Written blocks by file, ``{path within the run: {first byte: (length, checksum)}}``."""

    blocks: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)

    def note(self, path: Path, start: int, data: npt.NDArray[Any]) -> None:
        """Add a block that was written to a file from byte ``start`` on; replaces an earlier one there."""
        self.blocks.setdefault(name_in_run(path) or str(path), {})[start] = (data.nbytes, checksum(data))

    def add(self, other: Ledger) -> None:
        """Add all blocks of another ledger."""
        for name, blocks in other.blocks.items():
            self.blocks.setdefault(name, {}).update(blocks)

    def as_arrays(self) -> State:
        """The ledger as arrays to be stored in a part (checkpoint file); no arrays if nothing was written."""
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
        """Remove the arrays of a ledger from those of a part, and return the ledger."""
        ledger = cls()
        if BLOCKS in state:
            names = json.loads(state.pop(NAMES).tobytes())
            for index, start, length, value in state.pop(BLOCKS).tolist():
                ledger.blocks.setdefault(names[index], {})[start] = (length, value)
        return ledger


@contextlib.contextmanager
def record_writes(ledger: Ledger | None) -> Iterator[None]:
    """Within the block, record in a ledger what this thread writes; None records nothing."""
    before = getattr(_WRITER, "ledger", None)
    _WRITER.ledger = ledger
    try:
        yield
    finally:
        _WRITER.ledger = before


def note_written(path: Path, start: int, data: npt.NDArray[Any]) -> None:
    """Record a contiguous block that this thread has written to a file, and begin to flush it to the disk.

    Does nothing outside of ``record_writes``.
    """
    ledger: Ledger | None = getattr(_WRITER, "ledger", None)
    if ledger is not None:
        ledger.note(path, start, data)
        begin_flush(path, start, data.nbytes)


def damaged_block(path: Path, blocks: Iterable[tuple[int, tuple[int, int]]]) -> str | None:
    """Compare blocks ``(first byte, (length, checksum))`` with a file.

    Returns a description of damage, such as "is missing"; None if all blocks are whole.
    """
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
