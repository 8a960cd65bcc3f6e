"""``.npy`` files, read and never mapped: mapped pages count as memory, but are not in the plan.

``NpySource`` is any header followed by uncompressed values: ``npz.py`` and files of vectors use it too.

In Fortran order a row is spread over the whole file. Every column of a panel is read separately into a small
buffer and transposed. That is correct and bounded, but slower than to run ``rankfold import`` first.

In a file of any number of axes, Fortran order is C order of the reversed axes, and is read as that.

Files of vectors are those of the big-ann benchmarks: ``.fbin``, ``.u8bin``, ``.i8bin``, ``.ibin``.

https://big-ann-benchmarks.com: numbers of rows and columns as 32-bit little-endian integers, then the rows.
Only the name of the file states the type of its values, so the size of the file must match exactly.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.geometry import Piece
from rankfold.pipeline.chunks.reads import (
    SCRATCH_BYTES,
    TURN_BYTES,
    open_plain,
    read_plain_box,
    read_rectangle,
)
from rankfold.pipeline.data.dtypes import cut, native, require_lengths, require_matrix, require_numbers
from rankfold.pipeline.data.grid import Grid, regular_grids
from rankfold.pipeline.data.selection import Readable
from rankfold.pipeline.data.source import Matrix
from rankfold.pipeline.data.stacked import Rows, StackedSource, axis_names, row_axes, stack_volume
from rankfold.pipeline.errors import ChunkError, InputError
from rankfold.pipeline.regular import open_regular

COLUMN_BYTES = 4 * 2**20
"""Largest size in bytes of the buffer in which columns of a file in Fortran order are transposed."""


NO_HEADER = (
    ValueError,
    EOFError,
    OverflowError,
    RecursionError,
    MemoryError,
    SyntaxError,
    tokenize.TokenError,
)
"""Exceptions that NumPy raises for an invalid header, which it parses as a Python expression."""


@dataclass(frozen=True, slots=True)
class NpyArray:
    """An array of any number of axes in a file of a header and uncompressed values."""

    name: str
    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    """Byte of the file at which the values start."""

    fortran: bool
    """True if the first axis, not the last, is contiguous in the file."""

    swapped: bool
    """True if values are stored in the byte order that is not native."""

    kind: str = "npy"
    """Kind of file, as text; other formats too are a header and values."""

    @property
    def format(self) -> str:
        """Kind of file, and Fortran order, as text."""
        return f"{self.kind}, Fortran order" if self.fortran else self.kind

    @property
    def codec(self) -> str:
        """Compression: none."""
        return "none"

    @property
    def grids(self) -> tuple[Grid, ...]:
        """One chunk along each axis, which can be cut anywhere."""
        return regular_grids(self.shape, self.shape, splittable=True)

    def read_boxes(self, pieces: Sequence[Piece]) -> None:
        """Read every box into ``out`` of its piece; see ``Volume``."""
        with open_plain(self.path, self.name, self._cut_short) as fd:
            for piece in pieces:
                self._read_box(fd, piece)
                if self.swapped:
                    piece.out.byteswap(inplace=True)

    def check(self) -> None:
        """Raise ``ChunkError`` if the file is gone or shorter than its header states."""
        try:
            size = os.path.getsize(self.path)
        except OSError as error:
            raise ChunkError(f"{self.name} cannot be read: {error}") from error
        if size < self._expected_bytes():
            raise ChunkError(self._complaint(size))

    def fingerprint(self) -> str:
        """Digest of the header and of size and time of the file."""
        state = os.stat(self.path)
        shape, fortran = self._header()
        header = f"{shape} {self.dtype.str} {self.offset} {fortran} {self.swapped}"
        text = f"{header} {state.st_size} {state.st_mtime_ns}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def stored_bytes(self) -> int:
        """Bytes of the file."""
        return os.path.getsize(self.path)

    def _read_box(self, fd: int, piece: Piece) -> None:
        """Read one box of the open file ``fd``, in the stored byte order, straight into ``piece.out``."""
        turn = slice(None, None, -1) if self.fortran else slice(None)
        at = tuple(slice(*span) for span in piece.box)[turn]
        part = piece.out.T if self.fortran else piece.out
        read_plain_box(fd, part, offset=self.offset, shape=self.shape[turn], at=at)

    def _header(self) -> tuple[tuple[int, ...], bool]:
        """Shape and Fortran order, as used in fingerprints and messages."""
        return self.shape, self.fortran

    def _expected_bytes(self) -> int:
        return self.offset + math.prod(self.shape) * self.dtype.itemsize

    def _cut_short(self) -> str:
        return self._complaint(os.path.getsize(self.path))

    def _complaint(self, size: int) -> str:
        return _truncation(self.name, size, self._expected_bytes(), self.dtype, self._header()[0])


@dataclass(frozen=True, slots=True, repr=False)
class NpySource(Readable, Matrix, NpyArray):
    """A matrix in a ``.npy`` file."""

    shape: tuple[int, int]

    def read_bytes(self, rows: int, columns: int) -> int:
        """Upper bound in bytes on the memory of one ``read_into`` of that size, beside ``out``.

        It is small in C order; in Fortran order it includes a buffer of columns.
        """
        buffer = min(COLUMN_BYTES, rows * columns * self.dtype.itemsize)
        return SCRATCH_BYTES + (buffer if self.fortran else 0)

    def _read_box(self, fd: int, piece: Piece) -> None:
        """Read one box of the open file ``fd`` into ``piece.out``; in Fortran order through a buffer.

        The buffer takes columns of the box, several at once if they are short, parts of one if it is long.
        """
        if not self.fortran:
            NpyArray._read_box(self, fd, piece)
            return
        rows, columns = piece.box
        item = self.dtype.itemsize
        tall = max(1, min(rows[1] - rows[0], COLUMN_BYTES // item))
        wide = max(1, COLUMN_BYTES // item // tall)
        for top in range(*rows, tall):
            bottom = min(rows[1], top + tall)
            for left in range(*columns, wide):
                right = min(columns[1], left + wide)
                buffer = np.empty((right - left, bottom - top), self.dtype)
                offset, pitch = self.offset + (left * self.shape[0] + top) * item, self.shape[0] * item
                read_rectangle(fd, buffer, offset=offset, pitch=pitch)
                piece.out[top - rows[0] : bottom - rows[0], left - columns[0] : right - columns[0]] = buffer.T


@dataclass(frozen=True, slots=True)
class NpyVolume(NpyArray):
    """An array of any number of axes in a ``.npy`` file."""

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes, which are their numbers: the format stores no names."""
        return axis_names(self.shape, None)

    def read_boxes(self, pieces: Sequence[Piece]) -> None:
        """Read every box into ``out`` of its piece; see ``Volume``."""
        self.check()
        NpyArray.read_boxes(self, pieces)

    def read_bytes(self, elements: int) -> int:
        """Upper bound in bytes on the memory of one read of that many elements, beside its destination.

        It covers a buffer to transpose numbers.
        """
        return SCRATCH_BYTES + min(TURN_BYTES, elements * self.dtype.itemsize)

    def _header(self) -> tuple[tuple[int, ...], bool]:
        """Shape (n, 1) and False for C order, with which existing fingerprints were made."""
        return (math.prod(self.shape), 1), False


def npy_source(path: str) -> NpySource:
    """The matrix in a ``.npy`` file, by its header."""
    with open_regular(path) as file:
        return matrix_in(file, path, path)


class Header(NamedTuple):
    """Contents of the header of a ``.npy`` file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    fortran: bool


def read_header(path: str) -> Header:
    """Read the header of a ``.npy`` file; ``InputError`` if it is invalid, ``ChunkError`` if truncated."""
    with open_regular(path) as file:
        return _valid_header(file, path)


def map_npy(path: str | os.PathLike[str]) -> npt.NDArray[Any]:
    """The array in a ``.npy`` file, mapped into memory, read-only.

    ``InputError`` if the header is invalid or the array holds Python objects, ``ChunkError`` if the file is
    truncated.
    """
    name = os.fsdecode(path)
    with open_regular(name) as file:
        header = _valid_header(file, name)
        if header.dtype.hasobject:
            reason = "it holds Python objects, and none is unpickled. Write numbers or text"
            raise InputError(f"{name} cannot be read: {reason}")
        if not math.prod(header.shape):
            return np.empty(header.shape, header.dtype)  # nothing can be mapped
        order = "F" if header.fortran else "C"
        return np.memmap(file, header.dtype, "r", header.offset, header.shape, order)  # type: ignore[call-overload, no-any-return]


def matrix_in(file: Any, path: str, name: str, *, kind: str = "npy") -> NpySource:
    """The matrix whose header in NumPy's format starts at the position of ``file``, open on ``path``.

    ``name`` is its name in messages, ``kind`` the kind of file, as text.
    """
    header = _valid_header(file, name)
    require_matrix(name, header.shape, header.dtype)
    rows, columns = header.shape
    place, swapped = os.path.abspath(path), not header.dtype.isnative
    return NpySource(
        name, place, (rows, columns), native(header.dtype), header.offset, header.fortran, swapped, kind
    )


def vector_in(file: Any, path: str, name: str, *, kind: str) -> tuple[Any, ...]:
    """Fields of an ``NpySource`` of shape (1, n), for a vector whose header starts where ``file`` stands.

    Parameters are those of ``matrix_in``.
    """
    header = _valid_header(file, name)
    if len(header.shape) != 1 or header.dtype.kind not in "fiub":
        raise InputError(f"{name} is {header.dtype} {header.shape}, but should be a vector of numbers")
    place, swapped = os.path.abspath(path), not header.dtype.isnative
    return name, place, (1, *header.shape), native(header.dtype), header.offset, False, swapped, kind


def _valid_header(file: Any, name: str) -> Header:
    try:
        shape, fortran, dtype = header_in(file)
    except NO_HEADER as error:
        raise InputError(f"{name} is not a valid .npy file: {cut(error)}") from error
    require_lengths(name, shape, dtype)
    size, length = os.fstat(file.fileno()).st_size, file.tell() + math.prod(shape) * dtype.itemsize
    if size < length:
        raise ChunkError(_truncation(name, size, length, dtype, shape))
    return Header(shape, dtype, file.tell(), fortran)


def _truncation(name: str, size: int, length: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    return (
        f"{name} is truncated: it holds {size} bytes, its header promises {length} for {dtype} {shape}. "
        "Restore the file"
    )


def header_in(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header at the position of ``file``, and leave the file at its first value.

    Returns the shape, True for Fortran order, and the type.
    """
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    # Version 3 is version 2 with UTF-8 in the names of fields, and a matrix has no fields.
    if version in ((2, 0), (3, 0)):
        return np.lib.format.read_array_header_2_0(file)
    raise ValueError(f"version {version[0]}.{version[1]} is not known")


def npy_matrix(path: str, rows: Rows = None) -> NpySource | StackedSource:
    """The array in a ``.npy`` file as a matrix whose rows are the axes that ``rows`` names."""
    header = read_header(path)
    axes = axis_names(header.shape, None)
    if row_axes(path, axes, header.shape, rows) == (0,) and len(header.shape) == 2:
        return npy_source(path)
    require_numbers(path, header.dtype)
    place, swapped = os.path.abspath(path), not header.dtype.isnative
    volume = NpyVolume(
        path, place, header.shape, native(header.dtype), header.offset, header.fortran, swapped
    )
    return stack_volume(volume, rows)


# Files of vectors ---------------------------------------------------------------------------------


TYPES = {".fbin": "float32", ".u8bin": "uint8", ".i8bin": "int8", ".ibin": "int32"}
"""Type of the values by the ending of the file's name."""

HEADER_BYTES = 8


def big_ann_source(path: str) -> NpySource:
    """The matrix in a file of the big-ann benchmarks, one row for each vector, by its header and its name."""
    ending = os.path.splitext(path)[1]
    dtype = np.dtype(TYPES[ending])
    with open_regular(path) as file:
        head, size = file.read(HEADER_BYTES), os.fstat(file.fileno()).st_size
    if len(head) < HEADER_BYTES:
        raise InputError(f"{path} holds {size} bytes, less than the {HEADER_BYTES} of its header")
    rows, columns = (int(n) for n in np.frombuffer(head, "<u4"))
    require_matrix(path, (rows, columns), dtype)
    length = HEADER_BYTES + rows * columns * dtype.itemsize
    if size < length:
        raise ChunkError(
            f"{path} is truncated: it holds {size} bytes, its header promises {length} for {rows} x "
            f"{columns} {dtype}. Restore the file"
        )
    if size > length:
        raise InputError(
            f"{path} holds {size} bytes, but its header says {rows} x {columns}, which is {length} bytes "
            f"of {dtype}. Is it really a {ending} file?"
        )
    swapped = sys.byteorder == "big" and dtype.itemsize > 1
    return NpySource(
        path, os.path.abspath(path), (rows, columns), dtype, HEADER_BYTES, False, swapped, ending[1:]
    )
