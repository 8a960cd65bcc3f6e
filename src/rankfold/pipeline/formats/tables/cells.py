"""Cells of text as numbers: also marks of missing values, True and False, decimal commas, groups of digits.

Arrow parses plain numbers itself, and much faster. This module reads the columns that Arrow cannot parse. A
cell is recognized as a whole or not at all, so a number in the middle of other text is never read.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.dtypes import cut
from rankfold.pipeline.formats.tables.options import count_words, list_names

PLAIN = (
    *("", "NA", "N/A", "n/a", "NaN", "nan", "-nan", "-NaN", "NULL", "null", "#N/A", "#NA", "#N/A N/A"),
    *("1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
"""Texts that mark a missing number and that Arrow recognizes."""

ODD = (
    "?",
    "-",
    "--",
    ".",
    "na",
    "Na",
    "NAN",
    "Null",
    "None",
    "none",
    "<NA>",
    "N.A.",
    "n.a.",
    "#N/D",
    "missing",
)
"""Other texts that mark a missing number, which people, pandas, R, SAS and Excel write."""

TRUE = ("True", "TRUE", "true")
FALSE = ("False", "FALSE", "false")


ALIKE = {" ": " \u00a0\u202f\u2009", "'": "'\u2019"}
"""Characters that count as a separator of groups of digits, by the separator that the caller names.

A space stands for no-break and thin spaces too, an apostrophe for the typographic one.
"""

MINUS = "\u2212"
"""The minus sign of Unicode, which spreadsheets of some languages and copied tables use for a hyphen."""


@dataclass(frozen=True, slots=True)
class Style:
    """Notation of numbers in text: decimal mark, and separator of groups of three digits (None for none)."""

    decimal: str = "."
    thousands: str | None = None

    @property
    def number(self) -> str:
        """Regular expression of cells that are real numbers, for Python and for Arrow."""
        point = re.escape(self.decimal)
        digits = rf"(?:{self._whole}(?:{point}[0-9]*)?|{point}[0-9]+)"
        return rf"^[+{MINUS}-]?(?:{digits}(?:[eE][+{MINUS}-]?[0-9]+)?|(?i:inf(?:inity)?))$"

    @property
    def whole_number(self) -> str:
        """Regular expression of cells that are whole numbers."""
        return rf"^[+{MINUS}-]?{self._whole}$"

    @property
    def _whole(self) -> str:
        if self.thousands is None:
            return "[0-9]+"
        return rf"(?:[0-9]+|[0-9]{{1,3}}(?:{self.separators}[0-9]{{3}})+)"

    @property
    def separators(self) -> str:
        """Regular expression of the separators of groups of digits."""
        marks = self.thousands or ""
        return f"[{re.escape(ALIKE.get(marks, marks))}]"

    def plain(self, cell: str) -> str:
        """Rewrite ``cell``, a number in this style, with a decimal point and without groups of digits."""
        cell = re.sub(self.separators, "", cell) if self.thousands else cell
        return cell.replace(self.decimal, ".").replace(MINUS, "-")


def is_number(cell: str, style: Style) -> bool:
    """True if a cell reads as a number: a number, a mark of a missing one, or a word such as ``True``."""
    cell = cell.strip()
    return cell in (*PLAIN, *ODD, *TRUE, *FALSE) or re.match(style.number, cell) is not None


class Cells(NamedTuple):
    """Result of the conversion of cells of text to numbers; indices are those of the cells."""

    numbers: Any
    """An array of Arrow, with nulls for cells that are missing or not numbers."""

    wrong: npt.NDArray[np.int64]
    """Indices of cells that are not recognized."""

    marks: npt.NDArray[np.int64]
    """Indices of cells with marks of missing numbers that Arrow does not recognize."""

    truths: npt.NDArray[np.int64]
    """Indices of cells with True and False."""


def read_cells(arrow: Any, compute: Any, texts: Any, kind: Any, style: Style) -> Cells:
    """Convert ``texts``, an Arrow array of text, to numbers of the Arrow type ``kind``.

    ``arrow`` and ``compute`` are the modules of pyarrow.
    """
    cells = compute.utf8_trim_whitespace(texts)
    marks = compute.is_in(cells, value_set=arrow.array(ODD))
    missing = compute.or_(compute.is_in(cells, value_set=arrow.array(PLAIN)), marks)
    yes, no = (compute.is_in(cells, value_set=arrow.array(words)) for words in (TRUE, FALSE))
    truths = compute.or_(yes, no)
    pattern = style.number if arrow.types.is_floating(kind) else style.whole_number
    numbers = compute.match_substring_regex(cells, pattern)
    wrong = compute.invert(compute.or_(numbers, compute.or_(missing, truths)))
    cells = compute.if_else(numbers, cells, None)
    if style.thousands is not None:
        cells = compute.replace_substring_regex(cells, style.separators, "")
    if style.decimal != ".":
        cells = compute.replace_substring(cells, style.decimal, ".")
    cells = compute.replace_substring(cells, MINUS, "-")
    cells = compute.utf8_ltrim(cells, characters="+")
    if not arrow.types.is_floating(kind):
        outside = _outside(cells, kind)
        wrong = compute.or_(wrong, arrow.array(outside))
        cells = compute.if_else(arrow.array(outside), None, cells)
    values = compute.cast(cells, kind)
    values = compute.if_else(truths, compute.cast(yes, kind), values)
    return Cells(
        values, *(np.flatnonzero(each.to_numpy(zero_copy_only=False)) for each in (wrong, marks, truths))
    )


def _outside(cells: Any, kind: Any) -> npt.NDArray[np.bool_]:
    """Mask (n,) of ``cells``, integers as text, that the integer type ``kind`` of Arrow does not hold."""
    limits = np.iinfo(kind.to_pandas_dtype())
    most = len(str(limits.max))  # Python refuses to convert thousands of digits to a number
    texts = [(cell or "0").removeprefix("-").lstrip("0") for cell in cells.to_pylist()]
    signs = [-1 if (cell or "").startswith("-") else 1 for cell in cells.to_pylist()]
    return np.array(
        [
            len(text) > most or not limits.min <= sign * int(text or "0") <= limits.max
            for text, sign in zip(texts, signs, strict=True)
        ],
        np.bool_,
    )


class Wrong(NamedTuple):
    """Cells of a column that are not numbers: the first of them, and their number."""

    cell: str
    """Text of the first such cell."""

    line: int
    """Line of that cell in the file, counted from 1."""

    cells: int
    """Number of such cells."""

    def joined(self, other: Wrong) -> Wrong:
        """Summary of these cells and of later ones of the same column."""
        return self._replace(cells=self.cells + other.cells)

    def words(self, rows: int | None = None) -> str:
        """Text of the first cell and its line, and the number of cells if it is less than all ``rows``."""
        some = f", {self.cells} of {rows} cells" if rows is not None and self.cells < rows else ""
        return f"{cut(repr(self.cell))} in line {self.line}{some}"


@dataclass(slots=True)
class Remarks:
    """Cells and lines that were not read as plain numbers, as far as a file has been read."""

    missing: Counter[str] = field(default_factory=Counter)
    """Number of cells with marks that Arrow recognizes, such as empty ones and NA, by column."""

    marks: Counter[str] = field(default_factory=Counter)
    """Number of cells with other marks of missing numbers, by mark."""

    marked: dict[str, None] = field(default_factory=dict)
    """Columns that hold such other marks."""

    truths: dict[str, None] = field(default_factory=dict)
    """Columns that hold True and False."""

    comments: int = 0
    """Number of lines that were left out because they begin with #."""

    rows_like_comments: int = 0
    """Number of lines that begin with # but were read as rows, having as many cells."""

    def notes(self, path: str) -> tuple[str, ...]:
        """The remarks as sentences for messages, about the file ``path``."""
        notes = []
        if self.missing:
            notes.append(
                f"{count_words(self.missing.total(), 'cell')} of {list_names([*self.missing], 3)} in {path} "
                "without a number, empty or NA or NaN, became NaN"
            )
        if self.marks:
            notes.append(
                f"{list_names([*self.marks], 5)} in {count_words(self.marks.total(), 'cell')} of "
                f"{list_names([*self.marked], 3)} in {path} was taken for a missing number, and became NaN"
            )
        if self.truths:
            notes.append(
                f"True and False in {list_names([*self.truths], 3)} of {path} were taken for 1 and 0"
            )
        if self.comments:
            notes.append(f"left out of {path}: {count_words(self.comments, 'line')} beginning with #")
        if self.rows_like_comments:
            notes.append(
                f"{count_words(self.rows_like_comments, 'line')} of {path} beginning with #, with as many "
                "cells as a row, were taken for rows"
            )
        return tuple(notes)
