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
import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np

from rankfold.pipeline.errors import ChunkError, DataError, InputError
from rankfold.pipeline.importing.readers.gzipped import GZIP_ERRORS, open_text, unpack_stream
from rankfold.pipeline.importing.readers.reader import HEADERS, ImportOptions, choose_columns, list_names
from rankfold.pipeline.importing.readers.tables import (
    LARGEST_WHOLE,
    Batch,
    NumericTable,
    clip_bytes,
    load_arrow,
)
from rankfold.pipeline.regular import open_regular

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
"""What separates cells, by the end of the name. In a .csv a semicolon or a tab is noticed."""

LONGEST_LINE = 64 * 2**20

BLOCK_BYTES = (2**16, 4 * 2**20)
"""Least and most text that is parsed at a time."""

WIDE = 1000
"""Columns above which all cells are parsed as one column."""

TEXT_FACTOR = 16
"""Memory that parsing takes in times of the text: a cell of two bytes becomes a number of eight, twice."""

CELL_FACTOR = 64
"""The same where every cell is an object of its own first."""

BOM = b"\xef\xbb\xbf"

MISSING = ("", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "inf", "-inf", "+inf")
"""Cells that stand where a number might, in lower case."""

WHOLE = re.compile(r"[+-]?[0-9]+")
"""A cell that is a whole number, without a point or an exponent."""

BAD_VALUE = re.compile(
    r"In CSV column #(\d+): Row #(\d+): CSV conversion error to (\w+): (?:invalid value )?(.*)", re.DOTALL
)
BAD_WIDTH = re.compile(r"CSV parse error: Row #(\d+): Expected (\d+) columns, got (\d+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DelimitedReader(NumericTable):
    """A text file of numbers, its columns chosen."""

    names: tuple[str, ...]
    """Of all columns in the file."""

    positions: tuple[int, ...]
    """Of the columns that are read."""

    separator: str
    header_lines: int
    notes: tuple[str, ...] = field(default=())

    @property
    def block_dtype(self) -> np.dtype[Any]:
        """Type that Arrow parses: it has no text for truth values that are 0 and 1, nor for halves."""
        if self.dtype.kind == "b":
            return np.dtype(np.uint8)
        return np.dtype(np.float32) if self.dtype == np.float16 else self.dtype

    def batches(self, memory_bytes: int) -> Iterator[Batch]:
        """The rows of some lines at a time."""
        arrow, text = load_arrow(self.name), load_arrow(self.name, "csv")
        wide = len(self.names) > WIDE
        parse = self._parse_as_one if wide else self._parse_columns
        size = clip_bytes(memory_bytes // (CELL_FACTOR if wide else TEXT_FACTOR), BLOCK_BYTES)
        row = 0
        # In the main thread Arrow takes Ctrl-C for itself, and forgets it when a block ends soon after.
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            for block, line, bytes_read in self._texts(size):
                try:
                    batches = pool.submit(parse, block, arrow, text).result()
                except arrow.ArrowInvalid as error:
                    raise self._explain(str(error), block, line) from error
                first = row
                for columns in batches:
                    self._require_digits(columns, block, first, row)
                    yield Batch(columns, self.name, row, bytes_read)
                    row += sum(map(len, columns)) // self.columns

    def _texts(self, size: int) -> Iterator[tuple[bytes, int, int]]:
        """Whole records, the number of their first line, and the bytes of the file that are done.

        Arrow could cut the file itself, but reads 32 blocks ahead, whatever their size.
        """
        line = self.header_lines + 1
        try:
            with open_regular(self.name) as raw:
                file: Any = unpack_stream(raw)
                for _ in range(self.header_lines):
                    file.readline(LONGEST_LINE)
                if not self.header_lines and file.read(3) != BOM:
                    file.seek(0)
                while block := file.read(size):
                    block += file.readline(LONGEST_LINE)
                    if len(block) >= LONGEST_LINE:
                        raise ChunkError(
                            f"{self.name} has a line of over {LONGEST_LINE - size} bytes after line {line}. "
                            "Is it text? Restore or repair it"
                        )
                    while block.count(b'"') % 2:
                        more = file.readline(LONGEST_LINE)
                        if not more or len(block) > size + LONGEST_LINE:
                            raise ChunkError(
                                f"{self.name}: a quote is left open after line {line}. Is the file cut "
                                "short? Restore or repair it"
                            )
                        block += more
                    yield block, line, raw.tell()
                    line += block.count(b"\n")
        except GZIP_ERRORS as error:
            raise ChunkError(
                f"{self.name} is cut short or damaged after line {line}: {error}. Restore the file"
            ) from error

    def _parse_columns(self, block: bytes, arrow: Any, text: Any) -> list[list[Any]]:
        """The columns of a block of whole records."""
        every = [str(position) for position in range(len(self.names))]
        kind = arrow.from_numpy_dtype(self.block_dtype)
        table = text.read_csv(
            arrow.BufferReader(block),
            read_options=text.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=every),
            parse_options=text.ParseOptions(delimiter=self.separator, newlines_in_values=True),
            convert_options=text.ConvertOptions(
                include_columns=[every[position] for position in self.positions],
                column_types=dict.fromkeys(every, kind),
            ),
        )
        return [batch.columns for batch in table.to_batches()]

    def _parse_as_one(self, block: bytes, arrow: Any, text: Any) -> list[list[Any]]:
        """The same, all cells as one column: each column of its own takes Arrow some 10 kB."""
        records = list(_full_records(block, self.separator))
        width = len(self.names)
        for number, record in enumerate(records, start=1):
            if len(record) != width:
                message = f"Row #{number}: Expected {width} columns, got {len(record)}"
                raise arrow.ArrowInvalid(f"CSV parse error: {message}")
        if not records:
            return []
        data = b"\n".join(record[position] for record in records for position in self.positions) + b"\n"
        kind = arrow.from_numpy_dtype(self.block_dtype)
        try:
            table = text.read_csv(
                arrow.BufferReader(data),
                read_options=text.ReadOptions(
                    use_threads=False, column_names=["0"], block_size=len(data) + 1
                ),
                parse_options=text.ParseOptions(ignore_empty_lines=False, quote_char=False),
                convert_options=text.ConvertOptions(column_types={"0": kind}),
            )
        except arrow.ArrowInvalid as error:
            raise arrow.ArrowInvalid(self._in_block(str(error))) from error
        return [[table[0].combine_chunks()]]

    def _require_digits(self, columns: list[Any], block: bytes, first: int, row: int) -> None:
        """Raise ``DataError`` for whole numbers that became others: large ones are looked up in the text."""
        if self.block_dtype != np.float64:
            return
        found = [np.abs(column.to_numpy(zero_copy_only=False)) >= LARGEST_WHOLE for column in columns]
        if not any(large.any() for large in found):
            return
        records = list(_full_records(block, self.separator))
        in_one = len(columns) < len(self.positions)  # all cells, row by row
        for column, large in enumerate(found):
            for place in np.flatnonzero(large):
                at, index = divmod(int(place), len(self.positions)) if in_one else (int(place), column)
                position = self.positions[index]
                cell = records[row - first + at][position].strip().decode("latin-1")
                if WHOLE.fullmatch(cell) and Decimal(float(cell)) != Decimal(cell):
                    raise self.digits_lost(self.name, self.names[position], cell, row + at)

    def _in_block(self, message: str) -> str:
        """What Arrow said of one long column, in terms of the block."""
        if not (error := BAD_VALUE.match(message)):
            return message
        row, place = divmod(int(error[2]) - 1, len(self.positions))
        what = f"CSV conversion error to {error[3]}: invalid value {error[4]}"
        return f"In CSV column #{self.positions[place]}: Row #{row + 1}: {what}"

    def _explain(self, message: str, block: bytes, line: int) -> Exception:
        """What Arrow said of a block that begins with ``line``, in terms of the file."""
        if error := BAD_VALUE.match(message):
            name, value = self.names[int(error[1])], error[4]
            kind = "not a number" if error[3] in ("double", "float") else f"no {error[3]}"
            where = line + _lines_before(block, int(error[2]))
            return DataError(
                f"{self.name}: column {name!r} has {value} in line {where}, which is {kind}. Leave the "
                f"column out with --without {name!r} (without=[{name!r}])"
                + ("" if self.dtype.kind == "f" else ", or choose a type that holds it")
            )
        if error := BAD_WIDTH.match(message):
            where = line + _lines_before(block, int(error[1]))
            return ChunkError(
                f"{self.name}: line {where} has {error[3]} cells, where {error[2]} are expected. Is it "
                "cut short, or its separator another one? Repair the line"
            )
        return ChunkError(
            f"{self.name} cannot be read after line {line}: {message}. Repair or restore the file"
        )


def delimited_reader(path: str, options: ImportOptions) -> DelimitedReader:
    """A text file by its name and its first line."""
    if options.header not in HEADERS:
        raise InputError(f"header={options.header!r} is not known; say one of {', '.join(HEADERS)}")
    load_arrow(path, "csv")
    separator = SEPARATORS[os.path.splitext(path.removesuffix(".gz"))[1]]
    cells, lines, separator = _first_record(path, separator)
    if not cells:
        raise DataError(f"{path} is empty, so there is nothing to import")
    names, notes = cells, list[str]()
    if options.header == "no" or (
        options.header == "auto" and all(map(_number, cells)) and not _counts(cells)
    ):
        names, lines = [str(position) for position in range(len(cells))], 0
        if options.header == "auto" and _may_be_names(cells):
            notes.append(
                f"the first line of {path} is numbers in order, {list_names(cells, 3)}, and was taken for a "
                "row; say --header yes if they are names of columns, as years or wavelengths are"
            )
    elif options.header == "auto" and _counts(cells):
        notes.append(
            f"the first line of {path} counts {list_names(cells, 3)}, so it was taken for names; "
            "say --header no if it is data"
        )
    if not options.selects and len(names) > 1 and not names[0].strip():
        raise InputError(
            f"the first column of {path} has no name, as where pandas or R write the names of rows. Leave it "
            "out with --without 'column 1', or say which to take with --columns"
        )
    names = [name or f"column {position + 1}" for position, name in enumerate(names)]
    positions = choose_columns(names, options, path)
    dtype, column_names = (
        options.dtype or np.dtype(np.float64),
        tuple(names[position] for position in positions),
    )
    return DelimitedReader(
        path, (path,), dtype, column_names, tuple(names), tuple(positions), separator, lines, tuple(notes)
    )


def _first_record(path: str, separator: str) -> tuple[list[str], int, str]:
    """Cells of the first record, the lines it takes with those before it, and what separates cells."""
    lines = 0
    try:
        with open_text(path) as file:
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
    except GZIP_ERRORS as error:
        raise ChunkError(f"{path} cannot be read: {error}. Restore the file") from error
    if b"\r" in re.sub(rb'"[^"]*"', b"", line.rstrip(b"\r\n")):
        raise InputError(
            f"{path} has lines that end with a carriage return alone, as an old Mac wrote them; write it "
            "with line feeds, for instance by tr '\\r' '\\n'"
        )
    text = line.decode("utf-8-sig", errors="replace")
    if separator == ",":
        separator = max(",;\t", key=text.count)
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
    try:
        return next(csv.reader([text.rstrip("\r\n")], delimiter=separator), []), lines, separator
    except csv.Error as error:
        raise ChunkError(
            f"{path} cannot be read: the quotes of its first record do not match ({error}). Repair or "
            "restore the file"
        ) from error


def _lines_before(block: bytes, row: int) -> int:
    """Lines before a row, which Arrow counts from 1 and without empty lines."""
    rows = 0
    for index, line in enumerate(block.split(b"\n")):
        rows += bool(line.strip())
        if rows == row:
            return index
    return row - 1


def _records(block: bytes, separator: str) -> Iterator[list[bytes]]:
    """Cells of every record, without the quotes around them."""
    if b'"' not in block:
        for line in block.splitlines():
            yield line.split(separator.encode())
        return
    # Line ends within quotes stay: no number has them, so the cell is refused.
    text = io.StringIO(block.decode("latin-1"), newline="")
    for record in csv.reader(text, delimiter=separator):
        yield [cell.encode("latin-1").replace(b"\n", b" ") for cell in record] or [b""]


def _full_records(block: bytes, separator: str) -> Iterator[list[bytes]]:
    """Cells of every record, as ``_records``, but for lines that are empty."""
    return (record for record in _records(block, separator) if len(record) > 1 or record[0].strip())


def _number(cell: str) -> bool:
    if cell.strip().lower() in MISSING:
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _may_be_names(cells: list[str]) -> bool:
    """Whether numbers rise or fall from the first to the last, as those that name columns do."""
    if len(cells) < 3 or any(cell.strip().lower() in MISSING for cell in cells):
        return False
    steps = np.diff([float(cell) for cell in cells])
    return bool((steps > 0).all() or (steps < 0).all())


def _counts(cells: list[str]) -> bool:
    return len(cells) > 1 and cells == [str(position) for position in range(len(cells))]
