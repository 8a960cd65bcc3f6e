"""A Zarr array whose length is known only when its last row is written.

Rows are collected until a line of chunks is full, so every chunk is written once and whole. The array is
made longer than anything, and in the end its chunk files are moved under the metadata of the right
length: Zarr's own ``resize`` lists every chunk that might be there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.convert import convert_into
from rankfold.pipeline.ingest_layout import PLAIN, SAMPLE_BYTES, Codec, codec_for
from rankfold.pipeline.ingest_tiles import create

ENDLESS = 2**40
"""Length of an array that is still growing."""

Settle = Callable[[int], tuple[int, ...]]
"""Chunks of an array that ended before its first line of chunks was full, by its length."""


class GrowingArray:
    """Appends to a new array in ``folder``; the codec follows the first numbers that are written."""

    def __init__(
        self,
        folder: Path,
        dtype: np.dtype[Any],
        chunks: tuple[int, ...],
        tail: tuple[int, ...],
        settle: Settle,
    ) -> None:
        self.folder, self.dtype, self.chunks, self.tail = folder, dtype, chunks, tail
        self.settle = settle
        self.buffer = np.empty((chunks[0], *tail), dtype)
        self.held = self.length = 0
        self.codec = PLAIN
        self.array: Any = None

    def append(self, block: npt.NDArray[Any], where: str) -> None:
        """Add rows, converted to the type of the array; ``where`` is what errors call them."""
        start = 0
        while start < len(block):
            take = min(len(self.buffer) - self.held, len(block) - start)
            convert_into(self.buffer[self.held : self.held + take], block[start : start + take], where)
            self.held, self.length, start = self.held + take, self.length + take, start + take
            if self.held == len(self.buffer):
                self._flush()

    def finish(self) -> None:
        """Write what is held, and give the array its length."""
        if self.array is None:
            self.chunks = self.settle(self.length)
            self.codec = self._choose_codec()
            self.array = create(self.folder, self._shape(self.length), self.dtype, self.chunks, self.codec)
            self._write(0)
            return
        self._write(self.length - self.held)
        growing = self.folder.with_name(f"{self.folder.name}.growing")
        create(self.folder, self._shape(self.length), self.dtype, self.chunks, self.codec)
        os.rename(growing / "c", self.folder / "c")
        shutil.rmtree(growing)

    def _flush(self) -> None:
        if self.array is None:
            self.codec = self._choose_codec()
            growing = self.folder.with_name(f"{self.folder.name}.growing")
            self.array = create(growing, self._shape(ENDLESS), self.dtype, self.chunks, self.codec)
        self._write(self.length - self.held)
        self.held = 0

    def _write(self, top: int) -> None:
        """What is held, chunk by chunk: Zarr would encode a whole line of them at once."""
        for start in range(0, self.held, self.chunks[0]):
            rows = slice(start, min(self.held, start + self.chunks[0]))
            there = slice(top + rows.start, top + rows.stop)
            if not self.tail:
                self.array[there] = self.buffer[rows]
                continue
            for left in range(0, self.tail[0], self.chunks[1]):
                columns = slice(left, min(self.tail[0], left + self.chunks[1]))
                self.array[there, columns] = self.buffer[rows, columns]

    def _choose_codec(self) -> Codec:
        row = max(1, self.buffer[:1].nbytes)
        middle = max(0, self.held // 2 - SAMPLE_BYTES // row // 2)
        return codec_for(np.ascontiguousarray(self.buffer[middle : self.held][: max(1, SAMPLE_BYTES // row)]))

    def _shape(self, length: int) -> tuple[int, ...]:
        return (length, *self.tail)
