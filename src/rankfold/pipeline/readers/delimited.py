"""Numbers in text: ``.csv`` and ``.tsv``, also compressed by gzip, read in blocks by Arrow.

Every number is read as float64 unless another type is asked for: Arrow guesses types from the first block
alone, and a column of whole numbers may have its first fraction a billion lines later. Missing cells are
NaN. Only the columns that are taken are parsed, so others may hold text.

The trap: nothing in a file says whether its first line holds names. It does where a cell of it is no
number, or where it counts 0, 1, 2, ... as pandas does for lack of names.
"""

from __future__ import annotations

import concurrent.futures
import csv
import gzip
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import ChunkError, DataError, InputError
from rankfold.pipeline.readers.reader import HEADERS, Wanted, choose_columns, shown
from rankfold.pipeline.sources.libraries import library

ENDINGS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
"""What separates cells, by the end of the name. In a .csv a semicolon or a tab is noticed."""

LONGEST_LINE = 64 * 2**20

BLOCK_BYTES = (2**16, 4 * 2**20)
"""Least and most text that is parsed at a time."""

PARSED = 16
"""Memory that parsing takes in times of the text: a cell of two bytes becomes a number of eight, twice."""

BOM = b"\xef\xbb\xbf"

DAMAGED = (OSError, EOFError, zlib.error)

MISSING = ("", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "inf", "-inf", "+inf")
"""Cells that stand where a number might, in lower case."""

BAD_VALUE = re.compile(
    r"In CSV column #(\d+): Row #(\d+): CSV conversion error to (\w+): (?:invalid value )?(.*)", re.DOTALL
)
BAD_WIDTH = re.compile(r"CSV parse error: Row #(\d+): Expected (\d+) columns, got (\d+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DelimitedReader:
    """A text file of numbers, its columns chosen."""

    name: str
    path: str
    dtype: np.dtype[Any]
    names: tuple[str, ...]
    """Of all columns in the file."""

    taken: tuple[int, ...]
    """Positions of the columns that are read."""

    separator: str
    header_lines: int
    notes: tuple[str, ...] = field(default=())

    @property
    def columns(self) -> int:
        """Numbers in a row."""
        return len(self.taken)

    @property
    def total_bytes(self) -> int:
        """Bytes of the file, compressed ones if it is."""
        return os.path.getsize(self.path)

    def blocks(self, memory_bytes: int) -> Iterator[tuple[npt.NDArray[Any], int]]:
        """The rows of some lines at a time; see ``RowReader``."""
        arrow, text = (
            library("pyarrow", extra="formats", what=f"reading {self.path}"),
            library("pyarrow.csv", extra="formats", what=f"reading {self.path}"),
        )
        rows, size = 0, min(max(memory_bytes // PARSED, BLOCK_BYTES[0]), BLOCK_BYTES[1])
        # In the main thread Arrow takes Ctrl-C for itself, and forgets it when a block ends soon after.
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            for block, line, done in self._texts(size):
                try:
                    table = pool.submit(self._parsed, block, arrow, text).result()
                except arrow.ArrowInvalid as error:
                    raise self._refused(str(error), block, line) from error
                for batch in table.to_batches():
                    yield self._numbers(batch, rows), done
                    rows += batch.num_rows

    def _texts(self, size: int) -> Iterator[tuple[bytes, int, int]]:
        """Whole records, the number of their first line, and the bytes of the file that are done.

        Arrow could cut the file itself, but reads 32 blocks ahead, whatever their size.
        """
        line = self.header_lines + 1
        try:
            with open(self.path, "rb") as raw:
                file: Any = gzip.GzipFile(fileobj=raw) if self.path.endswith(".gz") else raw
                for _ in range(self.header_lines):
                    file.readline()
                if not self.header_lines and file.read(3) != BOM:
                    file.seek(0)
                while block := file.read(size):
                    block += file.readline()
                    while block.count(b'"') % 2:
                        more = file.readline()
                        if not more or len(block) > size + LONGEST_LINE:
                            raise ChunkError(
                                f"{self.name}: a quote is left open after line {line}. Is the file cut "
                                "short? Restore or repair it"
                            )
                        block += more
                    yield block, line, raw.tell()
                    line += block.count(b"\n")
        except DAMAGED as error:
            raise ChunkError(
                f"{self.name} is cut short or damaged after line {line}: {error}. Restore the file"
            ) from error

    def _parsed(self, block: bytes, arrow: Any, text: Any) -> Any:
        every = [str(position) for position in range(len(self.names))]
        kind = arrow.from_numpy_dtype(self._type())
        return text.read_csv(
            arrow.BufferReader(block),
            read_options=text.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=every),
            parse_options=text.ParseOptions(delimiter=self.separator, newlines_in_values=True),
            convert_options=text.ConvertOptions(
                include_columns=[every[position] for position in self.taken],
                column_types=dict.fromkeys(every, kind),
            ),
        )

    def _type(self) -> np.dtype[Any]:
        """Type that Arrow parses: it has no text for truth values that are 0 and 1, nor for halves."""
        if self.dtype.kind == "b":
            return np.dtype(np.uint8)
        return np.dtype(np.float32) if self.dtype == np.float16 else self.dtype

    def _numbers(self, batch: Any, rows: int) -> npt.NDArray[Any]:
        if self._type().kind != "f":
            for position, column in zip(self.taken, batch.columns, strict=True):
                if column.null_count:
                    row = rows + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
                    raise DataError(
                        f"{self.name}: column {self.names[position]!r} has no value in row {row + 1} of the "
                        f"data, and {self.dtype} cannot say so. Import it as float64 or float32"
                    )
        numbers: npt.NDArray[Any] = batch.to_tensor(null_to_nan=self._type().kind == "f").to_numpy()
        return numbers

    def _refused(self, message: str, block: bytes, line: int) -> Exception:
        """What Arrow said of a block that begins with ``line``, in terms of the file."""
        if found := BAD_VALUE.match(message):
            name, value = self.names[int(found[1])], found[4]
            kind = "not a number" if found[3] in ("double", "float") else f"no {found[3]}"
            where = line + _lines_before(block, int(found[2]))
            return DataError(
                f"{self.name}: column {name!r} has {value} in line {where}, which is {kind}. Leave the "
                f"column out with --without {name!r} (without=[{name!r}])"
                + ("" if self.dtype.kind == "f" else ", or choose a type that holds it")
            )
        if found := BAD_WIDTH.match(message):
            where = line + _lines_before(block, int(found[1]))
            return ChunkError(
                f"{self.name}: line {where} has {found[3]} cells, where {found[2]} are expected. Is it "
                "cut short, or its separator another one? Repair the line"
            )
        return ChunkError(
            f"{self.name} cannot be read after line {line}: {message}. Repair or restore the file"
        )


def delimited_reader(path: str, wanted: Wanted) -> DelimitedReader:
    """A text file by its name and its first line."""
    if wanted.header not in HEADERS:
        raise InputError(f"header={wanted.header!r} is not known; say one of {', '.join(HEADERS)}")
    library("pyarrow.csv", extra="formats", what=f"reading {path}")
    separator = ENDINGS[os.path.splitext(path.removesuffix(".gz"))[1]]
    cells, lines, separator = _first_record(path, separator)
    if not cells:
        raise DataError(f"{path} is empty, so there is nothing to import")
    names, notes = cells, list[str]()
    if wanted.header == "no" or (wanted.header == "auto" and all(map(_number, cells)) and not _counts(cells)):
        names, lines = [str(position) for position in range(len(cells))], 0
    elif wanted.header == "auto" and _counts(cells):
        notes.append(
            f"the first line of {path} counts {shown(cells, 3)}, so it was taken for names; "
            "say --header no if it is data"
        )
    if not wanted.selects and len(names) > 1 and not names[0].strip():
        raise InputError(
            f"the first column of {path} has no name, as where pandas or R write the names of rows. Leave it "
            "out with --without 'column 1', or say which to take with --columns"
        )
    names = [name or f"column {position + 1}" for position, name in enumerate(names)]
    taken = choose_columns(names, wanted, path)
    dtype = wanted.dtype or np.dtype(np.float64)
    return DelimitedReader(path, path, dtype, tuple(names), tuple(taken), separator, lines, tuple(notes))


def _first_record(path: str, separator: str) -> tuple[list[str], int, str]:
    """Cells of the first record, the lines it takes with those before it, and what separates cells."""
    lines = 0
    try:
        with _text(path) as file:
            while True:
                line = file.readline(LONGEST_LINE)
                if not line:
                    return [], lines, separator
                if len(line) >= LONGEST_LINE:
                    raise InputError(f"{path} has a first line of over {LONGEST_LINE} bytes. Is it text?")
                lines += 1
                if line.strip():
                    break
            while line.count(b'"') % 2 and (more := file.readline(LONGEST_LINE)):
                line, lines = line + more, lines + 1
    except DAMAGED as error:
        raise ChunkError(f"{path} cannot be read: {error}. Restore the file") from error
    text = line.decode("utf-8-sig", errors="replace")
    if separator == ",":
        separator = max(",;\t", key=text.count)
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
    return next(csv.reader([text.rstrip("\r\n")], delimiter=separator), []), lines, separator


def _lines_before(block: bytes, row: int) -> int:
    """Lines before a row, which Arrow counts from 1 and without empty lines."""
    seen = 0
    for index, line in enumerate(block.split(b"\n")):
        seen += bool(line.strip())
        if seen == row:
            return index
    return row - 1


def _text(path: str) -> Any:
    return gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb")


def _number(cell: str) -> bool:
    if cell.strip().lower() in MISSING:
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _counts(cells: list[str]) -> bool:
    return len(cells) > 1 and cells == [str(position) for position in range(len(cells))]
