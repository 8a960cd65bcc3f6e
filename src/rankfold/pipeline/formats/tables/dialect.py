"""Dialect of a text file of numbers: separator of cells, decimal mark, names of columns.

It is inferred from the first lines. If a later cell does not follow it, it is refused: no cell is read in
two ways.

The trap: a file does not state if its first line holds names. It is taken for names if one of its cells is
not a number; if it counts 0, 1, 2, ... as pandas does without names; if it begins with an empty cell, as
pandas and R write above names of rows; or if it is the only line in quotes.
"""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.dtypes import cut
from rankfold.pipeline.errors import ChunkError, InputError, argument
from rankfold.pipeline.formats.packed import UNPACK_ERRORS, open_text, plain_name
from rankfold.pipeline.formats.tables.cells import FALSE, ODD, PLAIN, TRUE, Style, is_number
from rankfold.pipeline.formats.tables.options import ReadOptions, list_names

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": None}
"""Usual separator of cells, by the ending of the name; for .csv and .txt the lines decide."""

CANDIDATES = (",", ";", "\t", "|")
WORDS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}

LONGEST_LINE = 64 * 2**20

SAMPLE_BYTES, SAMPLE_RECORDS = 2**16, 200
"""Number of bytes, and of records, after which no more are examined; the first two records always are."""

BOM = b"\xef\xbb\xbf"

WIDE_TEXT = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks at the start of UTF-16 text."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """Dialect of a text file."""

    separator: str
    style: Style
    names: tuple[str, ...]
    header_lines: int
    """Number of lines before the first row."""

    comments: int
    """Number of lines before the first record that begin with # and hold no names of columns."""

    has_names: bool
    """True if names are from the file; False if they are plain numbers 0, 1, ..."""

    notes: tuple[str, ...]
    names_below: int | None
    """Number of the line, from 1, that seems to hold the names, below a first with fewer cells; or None."""


def separator_of(path: str) -> str:
    """Separator of cells in a file of words, inferred from its first lines.

    Spaces separate cells only in a ``.txt``.
    """
    usual, records = _usual_separator(path), _read_head(path).records
    if usual == "\t" or not records:
        return usual or ","
    found = _separator(records, ReadOptions())
    return "," if found == " " and usual is not None else found


def _usual_separator(path: str) -> str | None:
    return SEPARATORS[os.path.splitext(plain_name(path))[1].lower()]


@dataclass(frozen=True, slots=True)
class _Head:
    """First records of a file as text, and the lines before them."""

    records: list[str]
    lines: int
    """Number of lines up to the end of the first record."""

    comments: list[str]
    """Lines that begin with # before the first record."""

    starts: list[int]
    """Number of the first line of each record, from 1."""


def dialect_of(path: str, options: ReadOptions) -> Dialect | None:
    """Infer the dialect of a text file from its name and its first lines; None for an empty file.

    Raises
    ------
    InputError
        Numbers may be read in two ways, lines above the table are no part of it, or the encoding or line
        ends are not supported.
    """
    head = _read_head(path, options.skip_lines)
    if not head.records:
        return None
    usual = _usual_separator(path)
    separator = usual if usual == "\t" else _separator(head.records, options)
    _require_table(path, head, separator, options)
    records = [_cells(path, record, separator) for record in head.records]
    notes = [f"cells of {path} are separated by {WORDS[separator]}"] if separator not in (usual, "\t") else []
    style, said = _style(path, separator, records, options)
    notes += said
    names, lines, said = _names(path, head, records, separator, style, options)
    _require_utf8(path, names)
    has_names = lines > options.skip_lines
    comments = len(head.comments) - (lines == head.lines - 1) if has_names else 0
    below = _names_below(records, style)
    return Dialect(
        separator,
        style,
        tuple(names),
        lines,
        comments,
        has_names,
        (*notes, *said),
        None if below is None else head.starts[below],
    )


REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def _read_head(path: str, skip_lines: int = 0) -> _Head:
    """Read the first records of a file, after ``skip_lines`` lines; none if the file is empty."""
    lines, comments, records, size, first, most = 0, list[str](), list[str](), 0, 0, LONGEST_LINE
    starts = list[int]()
    try:
        with open_text(path) as file:
            while lines < skip_lines and _line(path, file):
                lines += 1
            while len(records) < SAMPLE_RECORDS and (size < SAMPLE_BYTES or len(records) < 2):
                line = _line(path, file) if not records else file.readline(most)
                if not line or (records and len(line) >= most):  # the reader of the whole file refuses it
                    break
                line = line if lines else line.removeprefix(BOM)
                if not lines and line.startswith(WIDE_TEXT):
                    raise InputError(
                        f"{path} is text of two bytes to a letter (UTF-16), as Excel writes it. Write it as "
                        f"UTF-8: iconv -f UTF-16 -t UTF-8 {path} > NEW.csv"
                    )
                lines, size = lines + 1, size + len(line)
                if not line.strip():
                    continue
                if line.startswith(b"#"):
                    if not records:
                        comments.append(line.decode("utf-8-sig", "replace").rstrip("\r\n"))
                    continue
                start = lines
                while line.count(b'"') % 2 and len(line) < most and (more := file.readline(most)):
                    line, lines, size = line + more, lines + 1, size + len(more)
                if records and line.count(b'"') % 2:
                    break
                if not records:
                    first, most = lines, max(SAMPLE_BYTES, 4 * len(line))
                    _require_line_feeds(path, line)
                records.append(line.decode("utf-8-sig", "replace").rstrip("\r\n"))
                starts.append(start)
    except UNPACK_ERRORS as error:
        if not records:
            raise ChunkError(f"{path} cannot be read: {error}. Restore the file") from error
    return _Head(records, first, comments, starts)


def _line(path: str, file: Any) -> bytes:
    line: bytes = file.readline(LONGEST_LINE)
    if len(line) >= LONGEST_LINE:
        raise InputError(f"{path} has a first line of over {LONGEST_LINE} bytes. Is it text?")
    return line


def _require_line_feeds(path: str, line: bytes) -> None:
    if b"\r" in re.sub(rb'"[^"]*"', b"", line.rstrip(b"\r\n")):
        raise InputError(
            f"{path} has lines that end with a carriage return alone, as an old Mac wrote them; write it "
            "with line feeds, for instance by tr '\\r' '\\n'"
        )


def _require_utf8(path: str, names: Sequence[str]) -> None:
    """Raise ``InputError`` for names of columns that were not UTF-8, by replacement characters in them."""
    wrong = next((name for name in names if REPLACEMENT in name), None)
    if wrong is not None:
        raise InputError(f"{path} has a column {wrong!r}, whose letters are not UTF-8. {recode(path)}")


def recode(path: str) -> str:
    """Advice to write a text file as UTF-8, as a sentence without its point."""
    return f"Write it as UTF-8, from its encoding: iconv -f LATIN1 -t UTF-8 {path} > NEW.csv"


SPACES = " \t\n\r\f\v"
"""Characters that separate cells where spaces do. No-break spaces are not among them: they group digits."""


def squeezed(line: str) -> str:
    """A line with runs of white space replaced by one space; unchanged if it contains quotes."""
    return line if '"' in line else " ".join(_words(line))


def _words(line: str) -> list[str]:
    """Cells of a line that are separated by spaces."""
    return re.findall(f"[^{SPACES}]+", line)


def _cells(path: str, record: str, separator: str) -> list[str]:
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
    record = squeezed(record) if separator == " " else record
    try:
        return next(csv.reader([record], delimiter=separator), [])
    except csv.Error as error:
        raise ChunkError(
            f"{path} cannot be read: the quotes of its first record do not match ({error}). Repair or "
            "restore the file"
        ) from error


def _separator(records: list[str], options: ReadOptions) -> str:
    """Separator of cells that cuts all ``records``, lines of text, into equally many cells.

    Of several, that which gives the most numbers; if there is none, the most frequent one in the first line.
    """
    bare = _without_quotes(records)
    best, rank = None, (False, -1.0)
    for candidate in CANDIDATES:
        counts = [line.count(candidate) for line in bare]
        found = (len({*counts}) == 1, _share_of_numbers(records[-1].split(candidate), options))
        if _cuts_alike(counts) and found > rank:
            best, rank = candidate, found
    if best is None and _cuts_alike([len(_words(line)) - 1 for line in bare]):
        best = " " if _share_of_numbers(_words(records[-1]), options) else None
    return best or max(",;\t", key=bare[0].count)


def _without_quotes(records: list[str]) -> list[str]:
    return [re.sub(r'"[^"]*"', "q", record) for record in records]


def _cuts_alike(counts: list[int]) -> bool:
    """True if all lines have equally many separators, at least one; ``counts`` has the number in each line.

    The first may have one fewer, as R writes it if rows have names.
    """
    first, *others = counts
    return len({*others}) <= 1 and (others or counts)[0] > 0 and (others or counts)[0] - first in (0, 1)


def _share_of_numbers(cells: list[str], options: ReadOptions) -> float:
    styles = [Style(decimal, options.thousands) for decimal in ".,"]
    return sum(any(is_number(cell.strip('"'), style) for style in styles) for cell in cells) / len(cells)


SEPARATOR_LINE = re.compile(r'"?sep=.?"?[,;|\t]*')
"""A line that states the separator of cells, as spreadsheets write it above a table."""


COMMENT = re.compile(r"\s*(%|//|!)")
"""Beginning of a comment as MATLAB, C and Fortran write it; only # begins one that is left out."""


def _require_table(path: str, head: _Head, separator: str, options: ReadOptions) -> None:
    """Raise ``InputError`` if the first lines of a file are no part of the table, which begins below them.

    These are a line that states the separator, or lines with another number of cells than most, as a title.
    """
    first = f"line {head.starts[0]} of {path} is {cut(repr(head.records[0]), 40)}"
    if SEPARATOR_LINE.fullmatch(head.records[0]):
        way = argument("skip_lines", head.starts[0])
        raise InputError(
            f"{first}, which is no part of the table. Import it with {way} to leave that line out"
        )
    bare = _without_quotes(head.records)
    counts = [line.count(separator) for line in bare]
    lines = dict(zip(head.starts, bare, strict=False))
    table = next((start for start, line in lines.items() if not COMMENT.match(line)), head.starts[0])
    if table > head.starts[0] and counts[0] < max(counts):
        way = argument("skip_lines", table - 1)
        raise InputError(
            f"{first}, which seems to be a comment; lines that begin with # alone are left out. Import it "
            f"with {way} to leave out the lines above the table"
        )
    if _cuts_alike(counts) or _cuts_alike([len(_words(line)) - 1 for line in bare]):
        return
    if not any(counts) and _share_of_numbers(head.records[-1:], options):
        return  # a single column
    begin, columns, share = 0, 0, 0.0
    for candidate in ("\t",) if separator == "\t" else (*CANDIDATES, " "):
        widths = [len(_split(line, candidate)) for line in bare]
        numbers = _share_of_numbers(_split(head.records[-1], candidate), options)
        if (found := _begin_of_table(widths)) is not None and numbers > share:
            begin, columns, share = found, widths[found], numbers
    if begin:
        line = head.starts[begin]
        raise InputError(
            f"{first}, and a table of {columns} columns seems to begin in line {line}. Import it with "
            f"{argument('skip_lines', line - 1)} to leave out the lines above, or repair line "
            f"{head.starts[0]}"
        )


def _split(line: str, separator: str) -> list[str]:
    return _words(line) if separator == " " else line.split(separator)


def _begin_of_table(widths: list[int]) -> int | None:
    """Index of the first record that has as many cells as most; ``widths`` are the numbers of cells of each.

    None if there is none, or if it is the first record.
    """
    if len(widths) < 3:
        return None
    ((width, count),) = Counter(widths[1:]).most_common(1)
    if width < 2 or count < max(2, len(widths) // 2) or widths[0] == width:
        return None
    begin = next((i for i in range(1, len(widths) - 1) if widths[i] == widths[i + 1] == width), None)
    return None if begin == 1 and widths[0] == width - 1 else begin  # as R writes names of columns


GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}([.,][0-9]{3})+")
"""A number that may be an integer with groups of three digits."""


def _style(
    path: str, separator: str, records: list[list[str]], options: ReadOptions
) -> tuple[Style, list[str]]:
    """Style of the numbers in the cells of ``records``, and notes about it for the user.

    Raises
    ------
    InputError
        All numbers with a comma may be read in two ways.
    """
    if options.decimal != "auto":
        return Style(options.decimal, options.thousands), []
    if options.thousands == "." or options.thousands == "," or separator == ",":
        return Style("," if options.thousands == "." else ".", options.thousands), []
    cells = {cell.strip() for record in records for cell in record}
    comma, point = (Style(decimal, options.thousands) for decimal in ",.")
    with_comma = sorted(cell for cell in cells if "," in cell and is_number(cell, comma))
    with_point = sorted(cell for cell in cells if "." in cell and re.match(point.number, cell))
    if with_comma and not with_point:
        if all(map(GROUPED.fullmatch, with_comma)):
            first = with_comma[0]
            raise InputError(
                f"{path} holds {first!r}, which may be {first.replace(',', '.')} or {first.replace(',', '')}"
                ". Import it with decimal=',' (--decimal ,) or thousands=',' (--thousands ,)"
            )
        return Style(",", options.thousands), [
            f"numbers of {path} such as {with_comma[0]!r} were read with a comma before the fraction"
        ]
    notes = []
    if with_point and not with_comma and all(map(GROUPED.fullmatch, with_point)):
        notes.append(
            f"numbers of {path} such as {with_point[0]!r} were read with a point before the fraction; "
            "import it with thousands='.' (--thousands .) where it separates thousands"
        )
    return Style(".", options.thousands), notes


# Names --------------------------------------------------------------------------------------------


def _names(
    path: str, head: _Head, records: list[list[str]], separator: str, style: Style, options: ReadOptions
) -> tuple[list[str], int, list[str]]:
    """Names of the columns, number of lines before the first row, and notes about the names for the user."""
    cells = records[0]
    if options.header != "no" and (names := _names_in_comment(path, head, cells, separator, style)):
        return names, head.lines - 1, [f"columns of {path} have their names from a line that begins with #"]
    is_row, notes = options.header == "no", list[str]()
    if options.header == "auto":
        is_row, notes = _first_line(path, head, records, separator, style)
    if is_row:
        return [str(position) for position in range(len(cells))], options.skip_lines, notes
    if _is_short(records):
        cells = ["", *cells]  # as R writes names of rows
    return cells, head.lines, notes


def _first_line(
    path: str, head: _Head, records: list[list[str]], separator: str, style: Style
) -> tuple[bool, list[str]]:
    """True if the first record is a row, not names, by its cells and those below it; and notes about that."""
    cells = records[0]
    are_names, are_row = [
        f"; import it with {argument('header', said)} if {what}"
        for said, what in (("no", "it is data"), ("yes", "it names columns"))
    ]
    is_quoted = _is_quoted_alone(head.records, separator)
    if not is_quoted and _comes_again(records, style):
        return True, [
            f"the first line of {path} holds numbers, and words that come again below, so it was taken for a "
            f"row{are_row}"
        ]
    if _counts(cells):
        counted = list_names([each for each in cells if each], 3)
        return False, [f"the first line of {path} counts {counted}, so it was taken for names{are_names}"]
    if not all(is_number(cell, style) for cell in cells):
        numbers = [cell for cell in cells if _is_digits(cell, style)]
        said = f"the first line of {path} holds words and numbers such as {numbers[0]!r}" if numbers else ""
        return False, [f"{said}, and was taken for names{are_names}"] if numbers else []
    if _is_short(records):
        said = f"the first line of {path} has one cell fewer than those below it"
        return False, [f"{said}, so it was taken for names{are_names}"]
    if _begins_with_no_name(records, style):
        is_sure = _rows_are_counted(records) or not all(
            is_number(row[0], style) for row in records[1:] if row
        )
        said = f"the first line of {path} begins with an empty cell, so it was taken for names"
        return False, [] if is_sure else [f"{said}{are_names}"]
    if is_quoted:
        return False, [f"the first line of {path} is quoted, so it was taken for names{are_names}"]
    if _may_be_names(cells[not cells[0].strip() :], style):
        said = f"the first line of {path} is numbers in order, {list_names(cells, 3)}"
    elif _is_unlike_others(records, style):
        said = f"the first line of {path} is numbers unlike those below it, {list_names(cells, 3)}"
    else:
        return True, []
    return True, [
        f"{said}, and was taken for a row; import it with {argument('header', 'yes')} if they are names of "
        "columns, as years or wavelengths are"
    ]


def _names_below(records: list[list[str]], style: Style) -> int | None:
    """Index of the first record that has the most filled cells, if all are words and the first has fewer.

    Such are the names of columns below a title in spreadsheets. None if there is no such record, or if it has
    no numbers below it.
    """
    filled = [sum(bool(cell.strip()) for cell in record) for record in records]
    index = filled.index(max(filled))
    words = [_is_digits(cell, style) for cell in records[index]]
    below = records[index + 1 : index + 2]
    if index == 0 or any(words) or not any(_is_digits(cell, style) for record in below for cell in record):
        return None
    return index


def _is_short(records: list[list[str]]) -> bool:
    """True if the first record has one cell fewer than all others, as R writes names of columns."""
    return len(records) > 1 and {len(record) for record in records[1:]} == {len(records[0]) + 1}


def _names_in_comment(
    path: str, head: _Head, cells: list[str], separator: str, style: Style
) -> list[str] | None:
    """Names in the last # line before the first record, as np.savetxt writes them; None without such names.

    ``cells`` are those of the first record, some of which must be numbers.
    """
    if not head.comments or len(cells) < 2 or not any(is_number(cell, style) for cell in cells):
        return None
    names = _cells(path, re.sub(r"^#\s+", "", head.comments[-1]), separator)
    return names if len(names) == len(cells) else None


def _comes_again(records: list[list[str]], style: Style) -> bool:
    """True if the first record holds numbers and words, and each word occurs again below in its column."""
    words = [place for place, cell in enumerate(records[0]) if not is_number(cell, style)]
    below = [record for record in records[1:] if len(record) == len(records[0])]
    if not words or not any(_is_digits(cell, style) for cell in records[0]):
        return False
    return all(any(record[place] == records[0][place] for record in below) for place in words)


def _is_digits(cell: str, style: Style) -> bool:
    return cell.strip() not in (*PLAIN, *ODD, *TRUE, *FALSE) and is_number(cell, style)


def _are_digits(cells: list[str], style: Style) -> bool:
    return all(_is_digits(cell, style) for cell in cells)


def _numbers(cells: list[str], style: Style) -> npt.NDArray[np.float64]:
    return np.array([float(style.plain(cell.strip())) for cell in cells])


def _may_be_names(cells: list[str], style: Style) -> bool:
    """True if cells are at least three numbers in strictly rising or falling order, as names may be."""
    if len(cells) < 3 or not _are_digits(cells, style):
        return False
    with np.errstate(invalid="ignore"):
        steps = np.diff(_numbers(cells, style))
    return bool((steps > 0).all() or (steps < 0).all())


def _counts(cells: list[str]) -> bool:
    """True if cells count 0, 1, 2, ..., perhaps after an empty cell, as pandas writes above an index."""
    counted = cells[1:] if cells and not cells[0].strip() else cells
    return len(cells) > 1 and counted == [str(position) for position in range(len(counted))]


def _rows_are_counted(records: list[list[str]]) -> bool:
    """True if the first record begins with an empty cell, and first cells below it count as an index does."""
    first, *below = records
    return not first[0].strip() and _counts(["", *(record[0] for record in below if record)])


def _begins_with_no_name(records: list[list[str]], style: Style) -> bool:
    """True if the first cell is empty, and cells below it name rows.

    These are words, or numbers with none missing.
    """
    names = [record[0].strip() for record in records[1:] if record]
    if len(records[0]) < 2 or records[0][0].strip() or not names:
        return False
    return all(names) or not all(is_number(name, style) for name in names)


def _is_quoted_alone(texts: list[str], separator: str) -> bool:
    """True if the first of ``texts``, the records as text, has all cells in quotes, and no other has.

    R writes names of columns so.
    """
    quoted = [
        all(cell.strip() == "q" for cell in re.sub(r'"(?:[^"]|"")*"', "q", text).split(separator))
        for text in texts
    ]
    return len(quoted) > 1 and quoted[0] and '"' in texts[0] and not any(quoted[1:])


UNLIKE = 10
"""Distance of the first cell of a column from the numbers below it above which it may be a name.

It is a multiple of the range of these numbers.
"""


def _is_unlike_others(records: list[list[str]], style: Style) -> bool:
    """True if the numbers of the first record all differ, and are far from those below in every column."""
    first, *below = records
    if len({*first}) < len(first) or len(first) < 2 or not _are_digits(first, style):
        return False
    if len(below) < 2 or any(len(row) != len(first) or not _are_digits(row, style) for row in below):
        return False
    cells, rows = _numbers(first, style), np.array([_numbers(row, style) for row in below])
    least, most = rows.min(axis=0), rows.max(axis=0)
    with np.errstate(invalid="ignore", over="ignore"):
        away = np.maximum(least - cells, cells - most)
        return bool((away > UNLIKE * (most - least)).all() and (most > least).any())
