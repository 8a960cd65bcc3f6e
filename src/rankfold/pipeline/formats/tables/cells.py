"""Cells of text as numbers: marks of missing ones, True and False, commas and groups of three digits.

Arrow parses plain numbers itself, and much faster. Here are the columns that it gives up on: every cell is
recognized as a whole or not at all, so no cell is read as a part of what it says.
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
"""Marks of a missing number that Arrow knows."""

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
"""Others that people, pandas, R, SAS and Excel write."""

TRUE = ("True", "TRUE", "true")
FALSE = ("False", "FALSE", "false")


@dataclass(frozen=True, slots=True)
class Style:
    """How numbers are written."""

    decimal: str = "."
    thousands: str | None = None

    @property
    def number(self) -> str:
        """A pattern of all cells that are numbers, for Python and for Arrow."""
        point = re.escape(self.decimal)
        digits = rf"(?:{self._whole}(?:{point}[0-9]*)?|{point}[0-9]+)"
        return rf"^[+-]?(?:{digits}(?:[eE][+-]?[0-9]+)?|(?i:inf(?:inity)?))$"

    @property
    def whole_number(self) -> str:
        """A pattern of all cells that are whole numbers."""
        return rf"^[+-]?{self._whole}$"

    @property
    def _whole(self) -> str:
        if self.thousands is None:
            return "[0-9]+"
        return rf"(?:[0-9]+|[0-9]{{1,3}}(?:{re.escape(self.thousands)}[0-9]{{3}})+)"

    def plain(self, cell: str) -> str:
        """A cell that is a number, as everybody writes it."""
        cell = cell.replace(self.thousands, "") if self.thousands else cell
        return cell.replace(self.decimal, ".")


def is_number(cell: str, style: Style) -> bool:
    """Whether a cell stands where a number might: a number, a mark of a missing one, True or False."""
    cell = cell.strip()
    return cell in (*PLAIN, *ODD, *TRUE, *FALSE) or re.match(style.number, cell) is not None


class Cells(NamedTuple):
    """Cells that were read."""

    numbers: Any
    """An array of Arrow, without a value for cells that are missing or no numbers."""

    wrong: npt.NDArray[np.int64]
    """Places of cells that are none of what is known."""

    marks: npt.NDArray[np.int64]
    """Places of marks that Arrow does not know."""

    truths: npt.NDArray[np.int64]
    """Places of True and False."""


def read_cells(arrow: Any, compute: Any, texts: Any, kind: Any, style: Style) -> Cells:
    """An array of text as numbers of a type of Arrow."""
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
        cells = compute.replace_substring(cells, style.thousands, "")
    if style.decimal != ".":
        cells = compute.replace_substring(cells, style.decimal, ".")
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
    """Which whole numbers are none of a type."""
    limits = np.iinfo(kind.to_pandas_dtype())
    most = len(str(limits.max))  # Python makes no number of thousands of digits
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
    """What in a column is no number."""

    cell: str
    """The first of such cells."""

    line: int
    """Where it is in the file, from 1."""

    cells: int
    """How many there are."""

    def joined(self, other: Wrong) -> Wrong:
        """This one, and others that come later in the same column."""
        return self._replace(cells=self.cells + other.cells)

    def words(self, rows: int | None = None) -> str:
        """The first cell and its line; of how many, where others of ``rows`` are numbers."""
        some = f", {self.cells} of {rows} cells" if rows is not None and self.cells < rows else ""
        return f"{cut(repr(self.cell))} in line {self.line}{some}"


@dataclass(slots=True)
class Remarks:
    """What was taken for something else than a number, as far as a file has been read."""

    missing: Counter[str] = field(default_factory=Counter)
    """Cells that are empty or say NA, by column."""

    marks: Counter[str] = field(default_factory=Counter)
    """Other marks of missing numbers."""

    marked: dict[str, None] = field(default_factory=dict)
    """Columns that hold them."""

    truths: dict[str, None] = field(default_factory=dict)
    """Columns that hold True and False."""

    comments: int = 0
    """Lines that were left out because they begin with #."""

    rows_like_comments: int = 0
    """Lines that begin with # and have as many cells as a row."""

    def notes(self, path: str) -> tuple[str, ...]:
        """All of it in words."""
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
