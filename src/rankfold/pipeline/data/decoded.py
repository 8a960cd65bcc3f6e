"""Packed or marked numbers of a file, decoded as they are read; see ``cf_attributes.py``.

Without this, a store written from packed netCDF would be reduced as the integers that it holds, including
its gaps.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankfold.pipeline.chunks.geometry import Piece, requests
from rankfold.pipeline.chunks.row_marks import RowMarks
from rankfold.pipeline.data.cf_attributes import Meaning
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.names import Axis
from rankfold.pipeline.data.selection import unit
from rankfold.pipeline.data.source import Volume, Wrapper, row_marks
from rankfold.pipeline.data.stacked import axis_of

REQUEST_BYTES = 4 * 2**20
"""Bytes of stored values that are decoded at once, unless one chunk holds more."""


@dataclass(frozen=True, slots=True)
class DecodedVolume(Wrapper):
    """The array ``inner``, decoded by the rule ``meaning``; NaN where a number marks a missing value."""

    inner: Volume
    meaning: Meaning

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.meaning.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of every axis."""
        return self.inner.shape

    @property
    def axes(self) -> tuple[str, ...]:
        """Name of every axis."""
        return self.inner.axes

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Native chunks along every axis."""
        return self.inner.grids

    @property
    def format(self) -> str:
        """Format of the file or store that is decoded, and its type, for messages."""
        return f"{self.inner.format}, packed as {self.inner.dtype}"

    def axis(self, number: int) -> Axis:
        """Axis ``number`` with its labels."""
        return axis_of(self.inner, number)

    def read_boxes(self, pieces: Sequence[Piece]) -> None:
        """Read and decode every box into ``out`` of its piece; see ``Volume``."""
        whole = tuple(unit(grid) for grid in self.grids)
        for piece in pieces:
            for request in requests(piece, whole, REQUEST_BYTES // self.inner.dtype.itemsize):
                self._decode(request)

    def _decode(self, request: Piece) -> None:
        """Read and decode one box; its stored numbers are freed before the next box is read."""
        box, out = request
        raw = np.empty(out.shape, self.inner.dtype)
        self.inner.read_boxes([Piece(box, raw)])
        self.meaning.decode(raw, out)

    def read_bytes(self, elements: int) -> int:
        """Upper bound on the bytes that ``read_boxes`` of so many elements takes in addition to the output.

        That is what the store takes, a buffer of stored values, and masks.
        """
        item = self.inner.dtype.itemsize
        values = max(REQUEST_BYTES // item, math.prod(unit(grid) for grid in self.grids))
        return self.inner.read_bytes(elements) + values * (item + 3)

    def fingerprint(self) -> str:
        """Digest of the store and of how it is decoded."""
        text = " ".join(map(str, (self.inner.fingerprint(), *self.meaning.facts())))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def row_marks(self, rows: int) -> RowMarks:
        """Digests that change if the first rows have changed; see ``GrowingSource``."""
        return row_marks(self.inner, rows).beside(*self.meaning.facts())


def decode_volume(volume: Volume, meaning: Meaning | None) -> Volume:
    """The array with its values decoded by the rule ``meaning``; the array itself if that is None."""
    return volume if meaning is None else DecodedVolume(volume, meaning)
