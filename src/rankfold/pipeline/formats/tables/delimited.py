"""Text files of numbers: ``.csv``, ``.tsv`` and ``.txt``, also compressed, read in blocks by Arrow.

Every number is read as float64 unless another type is asked for: Arrow infers types from the first block
alone, and a column of whole numbers may have its first fraction a billion lines later. Missing cells are
NaN. Only the chosen columns are parsed, so others may hold text. Columns with cells that Arrow does not
recognize as numbers are examined cell by cell.
"""

from __future__ import annotations

import concurrent.futures
import csv
import io
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from rankfold.pipeline.data.dtypes import LARGEST_WHOLE
from rankfold.pipeline.errors import ChunkError, DataError, InputError, argument
from rankfold.pipeline.formats.packed import UNPACK_ERRORS, unpack_stream
from rankfold.pipeline.formats.tables.cells import PLAIN, Cells, Remarks, Style, Wrong, read_cells
from rankfold.pipeline.formats.tables.columns import (
    ALL_NUMBERS,
    MOST_COLUMNS,
    Batch,
    Look,
    NumericTable,
    TableColumn,
    clip_bytes,
    index_names,
    load_arrow,
)
from rankfold.pipeline.formats.tables.dialect import BOM, LONGEST_LINE, REPLACEMENT, dialect_of, recode
from rankfold.pipeline.formats.tables.options import (
    ReadOptions,
    choose_columns,
    name_rows,
    without_columns,
)
from rankfold.pipeline.formats.tables.row_names import RowNames
from rankfold.pipeline.regular import open_regular

BLOCK_BYTES = (2**16, 4 * 2**20)
"""Least and most bytes of text that are parsed at a time."""

LOOK_BYTES = 64 * 2**20
"""Bytes of text, from the start of a file, that are searched for columns that hold no numbers."""

WIDE = 1000
"""Number of columns above which Arrow parses all cells as one column: each column takes it some 10 kB."""

TEXT_FACTOR = 16
"""Memory of parsing, as a multiple of the bytes of text: a cell of two becomes a number of eight, twice."""

CELL_FACTOR = 64
"""Memory of parsing, as a multiple of the bytes of text, if every cell first becomes a Python object."""

COMMENT = re.compile(rb"^#[^\n]*", re.MULTILINE)

WHOLE = re.compile(r"[+-]?[0-9]+")
"""A cell that is a whole number, without a point or an exponent."""

BAD_VALUE = re.compile(
    r"In CSV column #(\d+): Row #(\d+): CSV conversion error to (\w+): (?:invalid value )?(.*)", re.DOTALL
)
BAD_WIDTH = re.compile(r"CSV parse error: Row #(\d+): Expected (\d+) columns, got (\d+)", re.DOTALL)


class _Part(NamedTuple):
    """A block of text that was parsed."""

    columns: list[Any]
    """An Arrow array for each column, or a single one that holds all elements row by row."""

    wrong: dict[int, Wrong]
    """Cells that are not numbers, by the index of the column among those that are read."""

    block: bytes
    """Text of the block."""

    row: int
    """Index of its first row among the rows of the file, from 0."""

    bytes_read: int
    """Bytes of the file, as stored, that have been read once this block has."""

    names: list[str] | None
    """Names of the rows; None if no column names them."""


@dataclass(frozen=True, slots=True)
class DelimitedReader(NumericTable):
    """A text file of numbers, of which some columns are read."""

    names: tuple[str, ...]
    """Names of all columns in the file."""

    positions: tuple[int, ...]
    """Positions in the file of the columns that are read."""

    separator: str
    style: Style
    header_lines: int
    index: int | None = field(default=None, kw_only=True)
    """Position of the column that names the rows; None without one."""

    decided: tuple[str, ...] = ()
    """Decisions about the file when it was opened, as text."""

    names_below: int | None = None
    """Number of the line, from 1, below the first, that seems to hold the names of columns; or None."""

    remarks: Remarks = field(default_factory=Remarks, compare=False)

    @property
    def notes(self) -> tuple[str, ...]:
        """Decisions about the file, as text, as far as it has been read."""
        names = () if self.row_names is None else self.row_names.notes()
        return (*self.decided, *names, *self.remarks.notes(self.name))

    @property
    def block_dtype(self) -> np.dtype[Any]:
        """Type that Arrow parses text to: it reads neither truth values from 0 and 1, nor float16."""
        if self.dtype.kind == "b":
            return np.dtype(np.uint8)
        return np.dtype(np.float32) if self.dtype == np.float16 else self.dtype

    def batches(self, memory_bytes: int) -> Iterator[Batch]:
        """Yield the rows of the file, a block of lines at a time, parsed within about ``memory_bytes``.

        Raises
        ------
        DataError
            Columns hold cells that are not numbers. It names all such columns in this block and those after
            it, within ``LOOK_BYTES``.
        """
        wrong: dict[int, Wrong] = {}
        looked = rows = 0
        try:
            for part in self._parts(memory_bytes):
                _join(wrong, part.wrong)
                rows, looked = part.row + self._rows(part), looked + len(part.block) * bool(wrong)
                if looked > LOOK_BYTES:
                    break
                if not wrong:
                    self._require_digits(part)
                    yield Batch(part.columns, self.name, part.row, part.bytes_read, part.names)
        except ChunkError:
            if not wrong:
                raise
        if wrong:
            raise self._no_numbers(wrong, rows)

    def look(self, memory_bytes: int) -> Look:
        """Describe what the columns hold, from the first ``LOOK_BYTES`` of text.

        ``memory_bytes`` is about what parsing of a block takes.
        """
        wrong: dict[int, Wrong] = {}
        looked = rows = 0
        for part in self._parts(memory_bytes):
            _join(wrong, part.wrong)
            rows, looked = part.row + self._rows(part), looked + len(part.block)
            if looked > LOOK_BYTES:
                break
        columns = []
        for place, name in enumerate(self.column_names):
            text = wrong.get(place)
            kind = "numbers of another notation" if text and self._notation([text.cell]) else "text"
            kind = kind if text else "True and False" if name in self.remarks.truths else "numbers"
            columns.append(TableColumn(name, kind, text and text.words(rows)))
        hint = self._hint([each.cell for each in wrong.values()]).removesuffix(".")
        return Look(tuple(columns), rows, looked <= LOOK_BYTES, hint)

    def _rows(self, part: _Part) -> int:
        return sum(map(len, part.columns)) // self.columns

    def _parts(self, memory_bytes: int) -> Iterator[_Part]:
        """Yield all blocks of the file, parsed, each within about ``memory_bytes``."""
        arrow, wide = load_arrow(self.name), len(self.names) > WIDE
        has_objects = wide or self.index is not None
        size = clip_bytes(memory_bytes // (CELL_FACTOR if has_objects else TEXT_FACTOR), BLOCK_BYTES)
        row, slow = 0, set(range(self.columns)) if self.style.thousands is not None else set[int]()
        # In the main thread Arrow catches Ctrl-C itself, and loses it if a block ends soon after.
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            for block, line, bytes_read in self._texts(size):
                try:
                    columns, wrong, names = pool.submit(self._parse, arrow, block, line, slow).result()
                except arrow.ArrowInvalid as error:
                    raise self._explain(str(error), block, line) from error
                if columns:
                    part = _Part(columns, wrong, block, row, bytes_read, names)
                    yield part
                    row += self._rows(part)

    def _parse(
        self, arrow: Any, block: bytes, line: int, slow: set[int]
    ) -> tuple[list[Any], dict[int, Wrong], list[str] | None]:
        """Parse a block of text that begins at line ``line`` of the file.

        Returns Arrow arrays of its columns; cells that are not numbers, by index of the column; and names of
        its rows, or None. ``slow`` is the set of indices of columns that are read cell by cell; columns that
        turn out to need that are added to it. ``arrow`` is the module.
        """
        parse = self._parse_as_one if len(self.names) > WIDE else self._parse_columns
        texts = set(slow)
        try:
            columns, names = parse(arrow, block, texts)
        except arrow.ArrowInvalid as error:
            if not BAD_VALUE.match(str(error)):
                raise
            texts = set(range(self.columns))
            columns, names = parse(arrow, block, texts)
        compute, kind = load_arrow(self.name, "compute"), self._kind(arrow)
        wrong, lines = dict[int, Wrong](), list[int]()
        width = self.columns // max(1, len(columns))
        for place, column in enumerate(columns):
            known = np.zeros(0, np.int64)
            if place * width in texts:
                cells = read_cells(arrow, compute, column, kind, self.style)
                self._remark(cells, column, place, width)
                if len(cells.wrong):
                    lines = lines or _lines_of_rows(block, line)
                    self._locate(cells.wrong, column, place, width, lines, wrong)
                slow |= {place} if len(cells.marks) or len(cells.truths) else set()
                columns[place], known = cells.numbers, np.concatenate([cells.marks, cells.wrong])
            if columns[place].null_count > len(known):
                missing = np.flatnonzero(columns[place].is_null().to_numpy(zero_copy_only=False))
                of_columns, counts = np.unique(np.setdiff1d(missing, known) % width, return_counts=True)
                for column_at, count in zip(of_columns.tolist(), counts.tolist(), strict=True):
                    self.remarks.missing[self.column_names[place + column_at]] += count
        return columns, wrong, names

    def _remark(self, cells: Cells, texts: Any, first: int, width: int) -> None:
        """Add to the remarks the cells that mark missing values or are True and False.

        ``texts`` is an Arrow array of text, ``cells`` what they were converted to. They hold, row by row,
        ``width`` columns from column ``first`` on.
        """
        self.remarks.marks.update(mark.strip() for mark in texts.take(cells.marks).to_pylist())
        for places, columns in ((cells.marks, self.remarks.marked), (cells.truths, self.remarks.truths)):
            found = np.unique(places % width).tolist()
            columns.update(dict.fromkeys(self.column_names[first + place] for place in found))

    def _locate(
        self, places: Any, texts: Any, first: int, width: int, lines: list[int], wrong: dict[int, Wrong]
    ) -> None:
        """Add to ``wrong``, by index of the column, the first of the cells at ``places``, its line, count.

        ``places`` are indices into ``texts``, which holds, row by row, ``width`` columns from column
        ``first`` on; ``lines`` are numbers of the line of each row.
        """
        columns, at, counts = np.unique(places % width, return_index=True, return_counts=True)
        for column, cell, count in zip(columns.tolist(), places[at].tolist(), counts.tolist(), strict=True):
            line = lines[min(cell // width, len(lines) - 1)]
            wrong[first + column] = Wrong(texts[cell].as_py(), line, count)

    def _kind(self, arrow: Any) -> Any:
        return arrow.from_numpy_dtype(self.block_dtype)

    def _texts(self, size: int) -> Iterator[tuple[bytes, int, int]]:
        """Yield blocks of whole records of about ``size`` bytes of text.

        Each comes with the number of its first line, from 1, and the bytes of the stored file read so far.
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
                    yield self._plain(block), line, raw.tell()
                    line += block.count(b"\n")
        except UNPACK_ERRORS as error:
            raise ChunkError(
                f"{self.name} is cut short or damaged after line {line}: {error}. Restore the file"
            ) from error

    def _plain(self, block: bytes) -> bytes:
        """Replace comments by empty lines, and runs of spaces by one space if spaces separate cells."""
        if self.separator == " " and b'"' not in block:
            block = b"\n".join(b" ".join(line.split()) for line in block.split(b"\n"))
        return COMMENT.sub(lambda found: self._comment(found, block), block) if b"#" in block else block

    def _comment(self, found: re.Match[bytes], block: bytes) -> bytes:
        """Replacement of ``found``, a line of ``block`` that begins with #: empty, or the line as it is.

        The line is kept if it has as many cells as a row, or is part of a cell in quotes.
        """
        if block.count(b'"', 0, found.start()) % 2:
            return found[0]
        if len(next(_records(found[0], self.separator))) == len(self.names) > 1:
            self.remarks.rows_like_comments += 1
            return found[0]
        self.remarks.comments += 1
        return b""

    def _parse_columns(self, arrow: Any, block: bytes, texts: set[int]) -> tuple[list[Any], list[str] | None]:
        """Parse a block of whole records into Arrow arrays of its columns, and names of its rows (or None).

        Columns with an index in ``texts`` stay text. ``arrow`` is the module.
        """
        text = load_arrow(self.name, "csv")
        every = [str(position) for position in range(len(self.names))]
        kind, kept = self._kind(arrow), [every[position] for position in self.positions]
        kinds = {name: arrow.string() if place in texts else kind for place, name in enumerate(kept)}
        if self.index is not None:
            kept.append(every[self.index])
            kinds[every[self.index]] = arrow.string()
        table = text.read_csv(
            arrow.BufferReader(_valid(block) if texts or self.index is not None else block),
            read_options=text.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=every),
            parse_options=text.ParseOptions(delimiter=self.separator, newlines_in_values=True),
            convert_options=text.ConvertOptions(
                include_columns=kept, column_types=kinds, decimal_point=self.style.decimal, null_values=PLAIN
            ),
        )
        columns = [column.combine_chunks() for column in table.columns] if table.num_rows else []
        return columns, columns.pop().to_pylist() if columns and self.index is not None else None

    def _parse_as_one(self, arrow: Any, block: bytes, texts: set[int]) -> tuple[list[Any], list[str] | None]:
        """Parse a block as ``_parse_columns`` does, but into one Arrow array that holds all cells row by row.

        For wide tables: Arrow takes some 10 kB for each column.
        """
        text = load_arrow(self.name, "csv")
        records = list(_full_records(block, self.separator))
        width = len(self.names)
        for number, record in enumerate(records, start=1):
            if len(record) != width:
                message = f"Row #{number}: Expected {width} columns, got {len(record)}"
                raise arrow.ArrowInvalid(f"CSV parse error: {message}")
        if not records:
            return [], None
        at = self.index
        names = None if at is None else [record[at].decode("utf-8", "replace") for record in records]
        cells = [record[position] for record in records for position in self.positions]
        if texts:
            return [arrow.array([cell.decode("utf-8", "replace") for cell in cells], arrow.string())], names
        data = b"\n".join(cells) + b"\n"
        table = text.read_csv(
            arrow.BufferReader(data),
            read_options=text.ReadOptions(use_threads=False, column_names=["0"], block_size=len(data) + 1),
            # A cell may hold a comma, in quotes or before a fraction; no number has a unit separator.
            parse_options=text.ParseOptions(delimiter="\x1f", ignore_empty_lines=False, quote_char=False),
            convert_options=text.ConvertOptions(
                column_types={"0": self._kind(arrow)},
                decimal_point=self.style.decimal,
                null_values=PLAIN,
            ),
        )
        return [table[0].combine_chunks()], names

    def _require_digits(self, part: _Part) -> None:
        """Raise ``DataError`` for integers of a block that float64 does not hold exactly, by their text."""
        if self.block_dtype != np.float64:
            return
        found = [np.abs(column.to_numpy(zero_copy_only=False)) >= LARGEST_WHOLE for column in part.columns]
        if not any(large.any() for large in found):
            return
        records = list(_full_records(part.block, self.separator))
        in_one = len(part.columns) < len(self.positions)  # all cells, row by row
        for column, large in enumerate(found):
            for place in np.flatnonzero(large):
                at, index = divmod(int(place), len(self.positions)) if in_one else (int(place), column)
                position = self.positions[index]
                cell = self.style.plain(records[at][position].decode("utf-8", "replace").strip())
                if WHOLE.fullmatch(cell) and Decimal(float(cell)) != Decimal(cell):
                    raise self.digits_lost(self.name, self.names[position], cell, part.row + at)

    def _no_numbers(self, wrong: dict[int, Wrong], rows: int) -> DataError:
        """The error that names all columns with cells that are not numbers.

        ``wrong`` are these cells, by index of the column; ``rows`` is the number of rows that were read.
        """
        found = {self.column_names[place]: wrong[place] for place in sorted(wrong)}
        hint, is_real = self._hint([each.cell for each in found.values()]), self.dtype.kind == "f"
        first = found.get(self.names[0]) if self.index is None and len(found) < self.columns else None
        if first is not None and not self._notation([first.cell]):
            hint += f" If {self.names[0]!r} names the rows, say {name_rows(self.names[0])}."
        other = "" if is_real else ", or choose a type that holds it"
        if len(found) == 1:
            ((name, only),) = found.items()
            kind = "not a number" if is_real else f"no {self.block_dtype}"
            return DataError(
                f"{self.name}: column {name!r} has {only.words()}, which is {kind}.{hint} "
                f"{ALL_NUMBERS} with {without_columns([name])}{other}"
            )
        words = [f"{name!r} ({each.words(rows)})" for name, each in found.items()]
        more = f" and {len(words) - MOST_COLUMNS} more" if len(words) > MOST_COLUMNS else ""
        return DataError(
            f"{self.name}: {len(found)} of {self.columns} columns hold what is no "
            f"{'number' if is_real else self.block_dtype}: {', '.join(words[:MOST_COLUMNS])}{more}.{hint} "
            f"{ALL_NUMBERS} with {without_columns([*found])}{other}"
        )

    def _hint(self, cells: list[str]) -> str:
        """Advice if names seem to be in another line, or ``cells`` look like numbers in another style.

        Else empty text.
        """
        if self.names_below is not None:
            way = argument("skip_lines", self.names_below - 1)
            return f" If the table begins in line {self.names_below}, import it with {way}."
        return self._notation(cells)

    def _notation(self, cells: list[str]) -> str:
        """Advice if ``cells``, texts that are not numbers, look like some in another style; else empty."""
        for thousands, decimal in ((",", "."), (".", ","), (" ", "."), (" ", ","), ("'", "."), ("'", ",")):
            style = Style(decimal, thousands)
            numbers = [
                cell
                for cell in map(str.strip, cells)
                if re.match(style.number, cell) and any(map(str.isdigit, cell))
            ]
            marks = re.findall(style.separators, "".join(numbers))
            if marks and thousands != self.style.thousands:
                name = repr(thousands) if marks[0] == thousands else _name_of_mark(marks[0])
                return f" If {name} separates thousands, import it with {argument('thousands', thousands)}."
            if decimal != self.style.decimal and any(decimal in cell for cell in numbers):
                way = argument("decimal", decimal)
                return f" If {decimal!r} stands before fractions, import it with {way}."
        spaced = [cell.replace(REPLACEMENT, " ") for cell in cells if REPLACEMENT in cell]
        if any(re.match(Style(decimal, " ").number, cell) for cell in spaced for decimal in ".,"):
            return f" Its characters are not UTF-8. {recode(self.name)}."
        return ""

    def _explain(self, message: str, block: bytes, line: int) -> ChunkError:
        """Convert an error message of Arrow about a block into an error that names the file and a line in it.

        ``line`` is the line of the file at which the block begins.
        """
        if error := BAD_WIDTH.match(message):
            lines, row = _lines_of_rows(block, line), int(error[1]) - 1
            where = lines[row] if row < len(lines) else line + row
            return ChunkError(
                f"{self.name}: line {where} has {error[3]} cells, where {error[2]} are expected. Is it "
                "cut short, or its separator another one? Repair the line"
            )
        return ChunkError(
            f"{self.name} cannot be read after line {line}: {message}. Repair or restore the file"
        )


def delimited_reader(path: str, options: ReadOptions) -> DelimitedReader:
    """Reader of the columns of a text file that ``options`` choose.

    The dialect of the file is inferred from its name and its first lines.
    With ``options.numeric`` up to ``LOOK_BYTES`` are searched for columns that hold no numbers.
    """
    whole = whole_reader(path, options)
    names = [name or f"column {position + 1}" for position, name in enumerate(whole.names)]
    index = index_names(whole.names)
    called = " and ".join(f"the name {name!r}" if name.strip() else "no name" for name in index)
    by_itself = len(index) == 1 and options.may_name_rows(names[0])
    if by_itself:
        options = replace(options, index_col=names[0])
    elif index and not options.selects and not options.numeric and options.index_col is None:
        without = ",".join(names[: len(index)])
        raise InputError(
            f"the first column of {path} has {called}, as where pandas or R write the names of rows. Leave "
            "it out with numeric=True (--numeric), take one of them for the names with "
            f"{name_rows(names[0])}, or import it with without={names[: len(index)]} (--without '{without}') "
            "or columns= (--columns)"
        )
    positions, notes = choose_columns(names, options, path), list[str]()
    because = f"the first column of {path} has {called}, so it names rows"
    others = [place for place in range(len(index)) if names[place] != options.index_col]
    if others and not options.selects:
        positions = [place for place in positions if place not in others]
        notes.append(f"{because}, and was left out")
    row_names = place = None
    if options.index_col is not None:
        place = names.index(options.index_col)
        title = options.index_col if whole.has_names and place >= len(index) else "row"
        row_names = RowNames(names[place], path, title=title, because=because if by_itself else "")
    reader = replace(
        whole,
        column_names=tuple(names[position] for position in positions),
        names=tuple(names),
        positions=tuple(positions),
        decided=(*whole.decided, *notes),
        index=place,
        row_names=row_names,
    )
    return _of_numbers(reader, options) if options.numeric else reader


def whole_reader(path: str, options: ReadOptions) -> DelimitedReader:
    """Reader of all columns of a text file, whose dialect is inferred from its name and its first lines."""
    load_arrow(path, "csv")
    dialect = dialect_of(path, options)
    if dialect is None:
        below = f"has nothing below line {options.skip_lines}" if options.skip_lines else "is empty"
        raise DataError(f"{path} {below}, so there is nothing to import")
    return DelimitedReader(
        path,
        (path,),
        options.dtype or np.dtype(np.float64),
        dialect.names,
        dialect.has_names,
        dialect.names,
        tuple(range(len(dialect.names))),
        dialect.separator,
        dialect.style,
        dialect.header_lines,
        dialect.notes,
        dialect.names_below,
        Remarks(comments=dialect.comments),
    )


def _of_numbers(reader: DelimitedReader, options: ReadOptions) -> DelimitedReader:
    """The reader without columns that hold no numbers; a note in it says which were left out."""
    look = replace(reader, dtype=np.dtype(np.float64), remarks=Remarks()).look(options.memory_bytes)
    kept = [place for place, column in enumerate(look.columns) if column.obstacle is None]
    if not kept:
        raise DataError(
            f"{reader.name} has no column of numbers: {look.left_out()}. Import it with header='no' "
            "(--header no) if its first line is data"
        )
    if len(kept) == len(look.columns):
        return reader
    return replace(
        reader,
        column_names=tuple(reader.column_names[place] for place in kept),
        positions=tuple(reader.positions[place] for place in kept),
        decided=(*reader.decided, f"left out of {reader.name}, by {look.extent()}: {look.left_out()}"),
    )


def _name_of_mark(mark: str) -> str:
    """Name of a character that looks like another one, with its code.

    >>> _name_of_mark("\\u202f")
    'narrow no-break space (U+202F)'
    """
    return f"{unicodedata.name(mark).lower()} (U+{ord(mark):04X})"


def _join(wrong: dict[int, Wrong], more: dict[int, Wrong]) -> None:
    """Add wrong cells of later rows, ``more``, to ``wrong``; both are by index of the column."""
    for place, each in more.items():
        wrong[place] = wrong[place].joined(each) if place in wrong else each


def _valid(block: bytes) -> bytes:
    """Text as valid UTF-8; invalid bytes are replaced."""
    return block.decode("utf-8", "replace").encode()


def _lines_of_rows(block: bytes, line: int) -> list[int]:
    """Line number of each row of a block that begins at line ``line`` of a file; empty lines are no rows."""
    return [line + at for at, text in enumerate(block.split(b"\n")) if text.strip()]


def _records(block: bytes, separator: str) -> Iterator[list[bytes]]:
    """Yield the cells of every record of a block of text, without the quotes around them."""
    if b'"' not in block:
        for line in block.splitlines():
            yield line.split(separator.encode())
        return
    # Line ends within quotes are kept as spaces: no number has them, so the cell is refused.
    text = io.StringIO(block.decode("latin-1"), newline="")
    for record in csv.reader(text, delimiter=separator):
        yield [cell.encode("latin-1").replace(b"\n", b" ") for cell in record] or [b""]


def _full_records(block: bytes, separator: str) -> Iterator[list[bytes]]:
    """Yield the cells of every record of a block of text, without quotes, and without empty lines."""
    return (record for record in _records(block, separator) if len(record) > 1 or record[0].strip())
