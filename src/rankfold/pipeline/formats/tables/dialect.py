"""How a text file of numbers is written: what separates cells, how fractions begin, what names columns.

Looked at are its first lines. What holds for them alone shows later, when a cell is refused: no cell is read
in two ways.

The trap: nothing in a file says whether its first line holds names. It does where a cell of it is no
number, where it counts 0, 1, 2, ... as pandas does for lack of names, where it begins with an empty cell as
pandas and R write it above names of rows, or where it alone is in quotes.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import ChunkError, InputError
from rankfold.pipeline.formats.packed import UNPACK_ERRORS, open_text, plain_name
from rankfold.pipeline.formats.tables.cells import FALSE, ODD, PLAIN, TRUE, Style, is_number
from rankfold.pipeline.formats.tables.options import ReadOptions, list_names
from rankfold.pipeline.wording import argument

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": None}
"""What separates cells as a rule, by the end of the name; in a .csv and a .txt the lines decide."""

CANDIDATES = (",", ";", "\t", "|")
WORDS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}

LONGEST_LINE = 64 * 2**20

SAMPLE_BYTES, SAMPLE_RECORDS = 2**16, 200
"""What is looked at, but always the first record and the one after it."""

BOM = b"\xef\xbb\xbf"

WIDE_TEXT = (b"\xff\xfe", b"\xfe\xff")
"""What text of two bytes to a letter begins with."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a file is written."""

    separator: str
    style: Style
    names: tuple[str, ...]
    header_lines: int
    """Lines before the first row."""

    comments: int
    """Of these, those that begin with # and name nothing."""

    has_names: bool
    """Whether names are from the file, and not counted."""

    notes: tuple[str, ...]


def separator_of(path: str) -> str:
    """What separates cells of a table of words: see ``dialect_of``. Spaces do so in a .txt alone."""
    usual, records = _usual_separator(path), _read_head(path).records
    if usual == "\t" or not records:
        return usual or ","
    found = _separator(records, ReadOptions())
    return "," if found == " " and usual is not None else found


def _usual_separator(path: str) -> str | None:
    return SEPARATORS[os.path.splitext(plain_name(path))[1].lower()]


@dataclass(frozen=True, slots=True)
class _Head:
    """First records of a file, as text."""

    records: list[str]
    lines: int
    """Up to and with the first record."""

    comments: list[str]
    """Lines that begin with # before it."""


def dialect_of(path: str, options: ReadOptions) -> Dialect | None:
    """How a file is written, by its name and its first lines; None of an empty one.

    Raises
    ------
    InputError
        Numbers may be read in two ways; it is text of another kind.
    """
    head = _read_head(path)
    if not head.records:
        return None
    usual = _usual_separator(path)
    separator = usual if usual == "\t" else _separator(head.records, options)
    records = [_cells(path, record, separator) for record in head.records]
    notes = [f"cells of {path} are separated by {WORDS[separator]}"] if separator not in (usual, "\t") else []
    style, said = _style(path, separator, records, options)
    notes += said
    names, lines, said = _names(path, head, records, separator, style, options)
    _require_utf8(path, names)
    comments = len(head.comments) - (lines == head.lines - 1) if lines else 0
    return Dialect(separator, style, tuple(names), lines, comments, lines > 0, (*notes, *said))


REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def _read_head(path: str) -> _Head:
    lines, comments, records, size, first, most = 0, list[str](), list[str](), 0, 0, LONGEST_LINE
    try:
        with open_text(path) as file:
            while len(records) < SAMPLE_RECORDS and (size < SAMPLE_BYTES or len(records) < 2):
                line = _line(path, file) if not records else file.readline(most)
                if not line or (records and len(line) >= most):  # who reads all of it refuses it
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
                while line.count(b'"') % 2 and len(line) < most and (more := file.readline(most)):
                    line, lines, size = line + more, lines + 1, size + len(more)
                if records and line.count(b'"') % 2:
                    break
                if not records:
                    first, most = lines, max(SAMPLE_BYTES, 4 * len(line))
                    _require_line_feeds(path, line)
                records.append(line.decode("utf-8-sig", "replace").rstrip("\r\n"))
    except UNPACK_ERRORS as error:
        if not records:
            raise ChunkError(f"{path} cannot be read: {error}. Restore the file") from error
    return _Head(records, first, comments)


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
    """Raise ``InputError`` for names with letters of another encoding, which were replaced by marks."""
    wrong = next((name for name in names if REPLACEMENT in name), None)
    if wrong is not None:
        raise InputError(
            f"{path} has a column {wrong!r}, whose letters are not UTF-8. Write it as UTF-8, from its "
            f"encoding: iconv -f LATIN1 -t UTF-8 {path} > NEW.csv"
        )


def squeezed(line: str) -> str:
    """A line whose cells are separated by spaces, with one between two."""
    return line if '"' in line else " ".join(line.split())


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
    """What cuts all lines into as many cells, most of them numbers; else what the first line has most of."""
    bare = [re.sub(r'"[^"]*"', "q", record) for record in records]
    best, rank = None, (False, -1.0)
    for candidate in CANDIDATES:
        counts = [line.count(candidate) for line in bare]
        found = (len({*counts}) == 1, _share_of_numbers(records[-1].split(candidate), options))
        if _cuts_alike(counts) and found > rank:
            best, rank = candidate, found
    if best is None and _cuts_alike([len(line.split()) - 1 for line in bare]):
        best = " " if _share_of_numbers(records[-1].split(), options) else None
    return best or max(",;\t", key=bare[0].count)


def _cuts_alike(counts: list[int]) -> bool:
    """Whether all lines have as many separators; R writes one fewer in the first where rows have names."""
    first, *others = counts
    return len({*others}) <= 1 and (others or counts)[0] > 0 and (others or counts)[0] - first in (0, 1)


def _share_of_numbers(cells: list[str], options: ReadOptions) -> float:
    styles = [Style(decimal, options.thousands) for decimal in ".,"]
    return sum(any(is_number(cell.strip('"'), style) for style in styles) for cell in cells) / len(cells)


GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}([.,][0-9]{3})+")
"""What may be a whole number with groups of three digits."""


def _style(
    path: str, separator: str, records: list[list[str]], options: ReadOptions
) -> tuple[Style, list[str]]:
    """How numbers are written, and what to say of it.

    Raises
    ------
    InputError
        All that have a comma may be read in two ways.
    """
    if options.decimal != "auto":
        return Style(options.decimal, options.thousands), []
    if options.thousands == "." or options.thousands == "," or separator == ",":
        return Style("," if options.thousands == "." else ".", options.thousands), []
    cells = {cell.strip() for record in records for cell in record}
    with_comma = sorted(cell for cell in cells if "," in cell and is_number(cell, Style(",")))
    with_point = sorted(cell for cell in cells if "." in cell and re.match(Style(".").number, cell))
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
    """Names of the columns, lines before the first row, and what to say of them."""
    cells = records[0]
    if options.header != "no" and (names := _names_in_comment(path, head, cells, separator, style)):
        return names, head.lines - 1, [f"columns of {path} have their names from a line that begins with #"]
    is_row, notes = options.header == "no", list[str]()
    if options.header == "auto":
        is_row, notes = _first_line(path, head, records, separator, style)
    if is_row:
        return [str(position) for position in range(len(cells))], 0, notes
    if _is_short(records):
        cells = ["", *cells]  # as R writes names of rows
    return cells, head.lines, notes


def _first_line(
    path: str, head: _Head, records: list[list[str]], separator: str, style: Style
) -> tuple[bool, list[str]]:
    """Whether the first record is a row by itself and those below it, and what to say of that."""
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


def _is_short(records: list[list[str]]) -> bool:
    """Whether the first record has one cell fewer than all others, as R writes names of columns."""
    return len(records) > 1 and {len(record) for record in records[1:]} == {len(records[0]) + 1}


def _names_in_comment(
    path: str, head: _Head, cells: list[str], separator: str, style: Style
) -> list[str] | None:
    """Names in a line that begins with # right before a first row that holds numbers, as of np.savetxt."""
    if not head.comments or len(cells) < 2 or not any(is_number(cell, style) for cell in cells):
        return None
    names = _cells(path, re.sub(r"^#\s+", "", head.comments[-1]), separator)
    return names if len(names) == len(cells) else None


def _comes_again(records: list[list[str]], style: Style) -> bool:
    """Whether the first record holds numbers, and words that all come again in their columns below it."""
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
    """Whether numbers rise or fall from the first to the last, as those that name columns do."""
    if len(cells) < 3 or not _are_digits(cells, style):
        return False
    with np.errstate(invalid="ignore"):
        steps = np.diff(_numbers(cells, style))
    return bool((steps > 0).all() or (steps < 0).all())


def _counts(cells: list[str]) -> bool:
    """Whether cells count 0, 1, 2, ..., after that of an index where pandas wrote one."""
    counted = cells[1:] if cells and not cells[0].strip() else cells
    return len(cells) > 1 and counted == [str(position) for position in range(len(counted))]


def _rows_are_counted(records: list[list[str]]) -> bool:
    """Whether the first record begins with an empty cell, and those below it count as an index does."""
    first, *below = records
    return not first[0].strip() and _counts(["", *(record[0] for record in below if record)])


def _begins_with_no_name(records: list[list[str]], style: Style) -> bool:
    """Whether the first cell is empty, and those below it are names: words, or numbers without a gap."""
    names = [record[0].strip() for record in records[1:] if record]
    if len(records[0]) < 2 or records[0][0].strip() or not names:
        return False
    return all(names) or not all(is_number(name, style) for name in names)


def _is_quoted_alone(texts: list[str], separator: str) -> bool:
    """Whether all cells of the first record are in quotes, and of no other: names, as R writes them."""
    quoted = [
        all(cell.strip() == "q" for cell in re.sub(r'"(?:[^"]|"")*"', "q", text).split(separator))
        for text in texts
    ]
    return len(quoted) > 1 and quoted[0] and '"' in texts[0] and not any(quoted[1:])


UNLIKE = 10
"""Times the range of a column that names are away from its numbers, where nothing else shows them."""


def _is_unlike_others(records: list[list[str]], style: Style) -> bool:
    """Whether the numbers of the first record differ, and are far from those below them in every column."""
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
