"""MatrixMarket: a size, then one entry to a line in any order, or all numbers column by column.

https://math.nist.gov/MatrixMarket/formats.html. Blocks of lines get a header of their own and go through
the parser of ``scipy.io.mmread``, which is compiled; it also gives entries of symmetric matrices twice.

The traps: that parser silently accepts a line whose beginning it understands, 5.5 in a matrix of integers
for 5, 1.0D+05 for 1 and ``3 3.5 6`` for ``3 3 .5``. After a byte 0, or a last line without an end
that it does not understand, it reads past the end of the text. So lines are first matched to a grammar.
"""

from __future__ import annotations

import functools
import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from rankfold.pipeline.data.dtypes import require_matrix
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import ChunkError, DataError, InputError
from rankfold.pipeline.formats.npy import npy_source
from rankfold.pipeline.formats.packed import UNPACK_ERRORS, open_text, unpack_stream
from rankfold.pipeline.formats.tables.options import ReadOptions
from rankfold.pipeline.importing.readers.reader import Archive, Entries, write_columns_header
from rankfold.pipeline.regular import open_regular

MATRIX_MARKET_ENDINGS = (".mtx", ".mtx.gz")

TYPES = {
    "real": "float64",
    "double": "float64",
    "integer": "int64",
    "unsigned-integer": "uint64",
    "pattern": "float32",
}
"""NumPy type of the values by the field of the header; a pattern, which stores none, is a matrix of ones."""

WHOLE = rb"[+-]?\d++"
NUMBER = rb"[+-]?(?:(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?|(?i:nan|inf(?:inity)?))"
VALUES = {"real": NUMBER, "double": NUMBER, "integer": WHOLE, "unsigned-integer": rb"\+?\d++", "pattern": b""}
"""Regular expression of a value, by the field of the header."""

SYMMETRIES = ("general", "symmetric", "skew-symmetric")

LINE_FACTOR = 24
"""Memory of parsing, as a multiple of the bytes of text: a line of 6 is two indices and a value, twice."""

TEXT_BYTES = (2**16, 8 * 2**20)

HEAD_LINE = 2**20
"""Largest number of bytes of a line of the header."""

HEAD_LINES = 2**16
"""Largest number of lines of the header."""


@dataclass(frozen=True, slots=True)
class _Head:
    """Header of a file."""

    layout: str
    field: str
    symmetry: str
    sizes: tuple[int, ...]
    """Number of rows, of columns and, in coordinate layout, of entries."""

    lines: int
    """Number of lines of the header."""

    text: bytes = b""


@dataclass(frozen=True, slots=True)
class CoordinateReader:
    """Reader of a sparse matrix in coordinate layout: one entry to a line."""

    name: str
    path: str
    head: _Head
    notes: tuple[str, ...] = field(default=())

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.head.sizes[0], self.head.sizes[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values, by the field of the header."""
        return np.dtype(TYPES[self.head.field])

    @property
    def entry_count(self) -> int:
        """Number of entries, counted twice if the file holds one half of a symmetric matrix."""
        return self.head.sizes[2] * (1 if self.head.symmetry == "general" else 2)

    @property
    def in_row_order(self) -> bool:
        """False: the format promises no order."""
        return False

    @property
    def total_bytes(self) -> int:
        """Bytes of the file, as compressed if it is."""
        return os.path.getsize(self.path)

    def blocks(self, memory_bytes: int) -> Iterator[tuple[Entries, int]]:
        """Yield the entries of some lines at a time, each block with the bytes read so far.

        See ``EntryReader``.
        """
        total, entries_read = self.head.sizes[2], 0
        for text, line, bytes_read in _texts(self.path, self.head, memory_bytes):
            count = text.count(b"\n")
            entries_read += count
            if entries_read > total:
                break
            yield self._parse(text, count, line), bytes_read
        if entries_read != total:
            more = " or more" if entries_read > total else ""
            raise ChunkError(
                f"{self.name} promises {total} entries but has {entries_read}{more}. "
                + (
                    "It is cut short: restore the file"
                    if entries_read < total
                    else "Correct its third number"
                )
            )

    def _parse(self, text: bytes, count: int, line: int) -> Entries:
        import scipy.io

        kind, (rows, columns) = self.head.field, self.shape
        header = f"%%MatrixMarket matrix coordinate {kind} {self.head.symmetry}\n{rows} {columns} {count}\n"
        _require_lines(self.name, text, self.head, line)
        try:
            matrix = scipy.io.mmread(io.BytesIO(header.encode() + text), spmatrix=False)
        except (ValueError, OverflowError) as error:
            raise _bad_line(self.name, str(error), line) from error
        return Entries(matrix.row, matrix.col, matrix.data.astype(self.dtype, copy=False))


@dataclass(frozen=True, slots=True)
class PackedArray:
    """Dense matrix in array layout, column by column, which is unpacked to a file in Fortran order."""

    name: str
    path: str
    head: _Head
    memory_bytes: int = 32 * 2**20
    notes: tuple[str, ...] = field(default=())

    @property
    def total_bytes(self) -> int:
        """Bytes of the values, once unpacked."""
        return self.head.sizes[0] * self.head.sizes[1] * 8

    def unpack(self, folder: Path, progress: Any) -> Source:
        """Write the values, in the order of the file, to a ``.npy`` file in ``folder``, and open it.

        ``progress`` is called with the number of bytes written so far.
        """
        dtype, target, numbers_read = np.dtype(TYPES[self.head.field]), folder / "columns.npy", 0
        rows, columns = self.head.sizes
        with open(target, "wb") as out:
            write_columns_header(out, dtype, (rows, columns))
            for text, line, _ in _texts(self.path, self.head, self.memory_bytes):
                count = text.count(b"\n")
                if numbers_read + count > rows * columns:
                    numbers_read += count
                    break
                numbers = self._parse(text, count, line)
                numbers.astype(dtype, copy=False).tofile(out)
                numbers_read += count
                progress(numbers_read * dtype.itemsize)
        if numbers_read != rows * columns:
            raise ChunkError(
                f"{self.name} promises {rows} x {columns} numbers but has {numbers_read}"
                f"{' or more' if numbers_read > rows * columns else ''}. Restore the file"
            )
        return npy_source(str(target))

    def _parse(self, text: bytes, count: int, line: int) -> Any:
        import scipy.io

        header = f"%%MatrixMarket matrix array {self.head.field} general\n{count} 1\n"
        _require_lines(self.name, text, self.head, line)
        try:
            return scipy.io.mmread(io.BytesIO(header.encode() + text)).ravel()
        except (ValueError, OverflowError) as error:
            raise _bad_line(self.name, str(error), line) from error


def matrix_market_reader(path: str, options: ReadOptions) -> CoordinateReader | Archive:
    """Reader of the MatrixMarket file at ``path``, sparse or dense by its header."""
    try:
        with open_text(path) as file:
            head = _head(file, path)
    except UNPACK_ERRORS as error:
        raise ChunkError(f"{path} cannot be read: {error}. Restore the file") from error
    require_matrix(path, head.sizes[:2], np.dtype(TYPES[head.field]))
    if head.layout == "coordinate":
        return CoordinateReader(path, path, head)
    if head.symmetry != "general" or head.field == "pattern":
        raise InputError(
            f"{path} is a dense {head.symmetry} {head.field} matrix; dense ones are read if general"
        )
    return PackedArray(path, path, head)


def _head(file: IO[bytes], path: str) -> _Head:
    banner = file.readline(1024).decode("latin-1").lower().split()
    if len(banner) != 5 or banner[:2] != ["%%matrixmarket", "matrix"]:
        raise InputError(f"{path} does not begin with '%%MatrixMarket matrix', so it is no MatrixMarket file")
    layout, kind, symmetry = banner[2:]
    if layout not in ("coordinate", "array") or kind not in TYPES or symmetry not in SYMMETRIES:
        raise InputError(
            f"{path} is a MatrixMarket file of {layout} {kind} {symmetry}; read are coordinate and array, of "
            f"{', '.join(TYPES)}, {', '.join(SYMMETRIES)}"
        )
    lines = 1
    while line := file.readline(HEAD_LINE):
        lines += 1
        if line.strip() and not line.startswith(b"%"):
            break
        if lines > HEAD_LINES or len(line) == HEAD_LINE:
            raise ChunkError(
                f"{path}: no size of the matrix stands in its first {lines} lines. Restore the file"
            )
    words = line.split()
    if len(words) != (3 if layout == "coordinate" else 2) or not all(
        word.isdigit() and len(word) < 19 for word in words
    ):
        raise ChunkError(
            f"{path}, line {lines}: {line[:60]!r} should be the size of the matrix. Restore the file"
        )
    return _Head(layout, kind, symmetry, tuple(map(int, words)), lines)


def _texts(path: str, head: _Head, memory_bytes: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield blocks of nonempty lines below the header, the number of their first line, and the bytes read.

    Parsing of a block takes about ``memory_bytes``; lines count from 1, bytes are those of the stored file.
    """
    size = min(max(memory_bytes // LINE_FACTOR, TEXT_BYTES[0]), TEXT_BYTES[1])
    line = head.lines + 1
    try:
        with open_regular(path) as raw:
            file: Any = unpack_stream(raw)
            for _ in range(head.lines):
                file.readline(HEAD_LINE)
            while block := file.read(size):
                block += file.readline(size)
                count = block.count(b"\n")
                if text := _without_empty_lines(block):
                    yield text, line, raw.tell()
                line += count
    except UNPACK_ERRORS as error:
        raise ChunkError(f"{path} cannot be read after line {line}: {error}. Restore the file") from error


def _without_empty_lines(block: bytes) -> bytes:
    """The lines of a block of text without empty ones, each with its line feed at the end."""
    block = block.replace(b"\r", b"").strip()
    if any(begin in block for begin in (b"\n\n", b"\n ", b"\n\t")):
        block = re.sub(rb"\s*\n\s*", b"\n", block)
    return block and block + b"\n"


def _require_lines(name: str, text: bytes, head: _Head, first: int) -> None:
    """Raise ``ChunkError`` for the first line of ``text`` that is not an entry, or a value, by the header.

    ``name`` is that of the file, ``first`` the number of the first line in it. It checks 130 MB a second.
    """
    grammar, what = _grammar(head.layout, head.field)
    end = grammar.match(text).end()  # type: ignore[union-attr]  # it also matches nothing
    if end < len(text):
        number = first + text.count(b"\n", 0, end)
        line = text[end : end + 60].split(b"\n")[0].decode("latin-1")
        raise ChunkError(f"{name}, line {number}: {line!r} should be {what}. Repair or restore the file")


@functools.cache
def _grammar(layout: str, kind: str) -> tuple[re.Pattern[bytes], str]:
    """Regular expression that matches any number of lines of a layout and field, and words for one line."""
    number = "a whole number" if "integer" in kind else "a number"
    if layout == "array":
        words, what = [VALUES[kind]], number
    elif kind == "pattern":
        words, what = [rb"\d++"] * 2, "a row and a column"
    else:
        words, what = [rb"\d++", rb"\d++", VALUES[kind]], f"a row, a column and {number}"
    return re.compile(rb"(?:" + rb"[ \t]++".join(words) + rb"[ \t]*+\n)*+"), what


def _bad_line(name: str, message: str, first: int) -> DataError:
    """Error from a message of the parser about a block whose first line is line ``first`` of file ``name``.

    The parser counts the lines of the block after a header of two lines.
    """
    place = re.match(r"Line (\d+): (.*)", message, re.DOTALL)
    where = f", line {first + int(place[1]) - 3}" if place else f", after line {first - 1}"
    return ChunkError(f"{name}{where}: {place[2] if place else message} Repair or restore the file")
