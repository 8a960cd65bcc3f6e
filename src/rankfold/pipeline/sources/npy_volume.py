"""A ``.npy`` file of any number of axes; what ``npy.py`` is for two.

Fortran order is C order of the axes turned round, so it is read as that.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankfold.pipeline.blocks import Grid
from rankfold.pipeline.errors import ChunkError
from rankfold.pipeline.sources.axes import Rows, axis_names, row_axes
from rankfold.pipeline.sources.matrix import native, require_numbers
from rankfold.pipeline.sources.npy import NpySource, npy_source, read_header
from rankfold.pipeline.sources.plain_box import TURN_BYTES, read_plain_box
from rankfold.pipeline.sources.rectangle import SCRATCH_BYTES
from rankfold.pipeline.sources.stacked import StackedSource, stacked
from rankfold.pipeline.sources.volume import Piece


@dataclass(frozen=True, slots=True)
class NpyVolume:
    """The array in a ``.npy`` file. The file as one column of numbers does the rest."""

    file: NpySource
    shape: tuple[int, ...]
    fortran: bool

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.file.name

    @property
    def path(self) -> str | None:
        """The file."""
        return self.file.path

    @property
    def axes(self) -> tuple[str, ...]:
        """Numbers: the format has no names."""
        return axis_names(self.shape, None)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements in native byte order."""
        return self.file.dtype

    @property
    def format(self) -> str:
        """NumPy's format and its order."""
        return "npy, Fortran order" if self.fortran else "npy"

    @property
    def codec(self) -> str:
        """Never compressed."""
        return "none"

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Pieces that can be cut anywhere."""
        return tuple(Grid.regular(length, length, splittable=True) for length in self.shape)

    def read_boxes(self, pieces: Sequence[Piece]) -> None:
        """Copy every box to its place; see ``Volume``."""
        turn = slice(None, None, -1) if self.fortran else slice(None)
        self.check()
        try:
            fd = os.open(self.file.path, os.O_RDONLY)
            try:
                for box, out in pieces:
                    at = tuple(slice(*span) for span in box)[turn]
                    part = out.T if self.fortran else out
                    read_plain_box(fd, part, offset=self.file.offset, shape=self.shape[turn], at=at)
                    if self.file.swapped:
                        out.byteswap(inplace=True)
            finally:
                os.close(fd)
        except (EOFError, OSError) as error:
            raise ChunkError(f"{self.name} cannot be read: {error}") from error

    def read_bytes(self, elements: int) -> int:
        """A buffer to turn numbers in."""
        return SCRATCH_BYTES + min(TURN_BYTES, elements * self.dtype.itemsize)

    def check(self) -> None:
        """Raise ``ChunkError`` if the file is gone or shorter than its header says."""
        self.file.check()

    def fingerprint(self) -> str:
        """Digest of the header and of size and time of the file."""
        return self.file.fingerprint()

    def stored_bytes(self) -> int:
        """Bytes of the file."""
        return self.file.stored_bytes()


def npy_matrix(path: str, rows: Rows = None) -> NpySource | StackedSource:
    """The array in a ``.npy`` file as a matrix whose rows are the axes that ``rows`` names."""
    header = read_header(path)
    axes = axis_names(header.shape, None)
    if row_axes(path, axes, header.shape, rows) == (0,) and len(header.shape) == 2:
        return npy_source(path)
    require_numbers(path, header.dtype)
    place, swapped = os.path.abspath(path), not header.dtype.isnative
    size = (math.prod(header.shape), 1)
    file = NpySource(path, place, size, native(header.dtype), header.offset, False, swapped)
    return stacked(NpyVolume(file, header.shape, header.fortran), rows)
