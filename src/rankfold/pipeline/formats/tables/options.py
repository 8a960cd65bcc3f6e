"""Options of a caller for reading a file, and the choice of columns of a table."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from rankfold.pipeline.errors import InputError

HEADERS = ("auto", "yes", "no")
DECIMALS = ("auto", ".", ",")
THOUSANDS = (",", ".", " ", "'", "_")

LATER = ("numeric", "decimal", "thousands", "index_col", "skip_lines")
"""Options that are stored in requests only if given, so that requests of earlier versions stay the same."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a caller for reading a file."""

    columns: Sequence[str] | None = None
    """Names of the columns to read, in this order."""

    without: Sequence[str] | None = None
    """Names of the columns to leave out."""

    header: str = "auto"
    """``yes`` if the first line of a text file names its columns, ``no``, or ``auto`` to infer it."""

    dtype: np.dtype[Any] | None = None
    memory_bytes: int = 256 * 2**20
    numeric: bool = False
    """True to leave out columns that hold anything but numbers, True and False."""

    decimal: str = "auto"
    """Decimal mark of numbers in text."""

    thousands: str | None = None
    """Separator of groups of three digits in text; None for no groups."""

    index_col: str | None = None
    """Name of the column that names the rows, and is not part of the matrix."""

    skip_lines: int = 0
    """Number of lines at the start of a text file that are no part of the table."""

    of_one: bool = False
    """True if one column was chosen as ``TABLE::COLUMN``: an index in the table then still names rows."""

    @property
    def selects(self) -> bool:
        """True if columns are chosen by name."""
        return self.columns is not None or self.without is not None

    def of_column(self, name: str) -> ReadOptions:
        """These options for the one column of ``TABLE::NAME``; unchanged if ``name`` is empty."""
        if not name:
            return self
        if self.selects:
            raise InputError(
                f"::{name} is one column of a table: leave out columns= (--columns) and without= (--without)"
            )
        return replace(self, columns=(name,), of_one=True)

    def may_name_rows(self, index: str) -> bool:
        """True if the column ``index``, recognized as an index, names the rows without being asked to.

        It does not if ``index_col`` is given, or if columns were chosen by name, ``TABLE::COLUMN`` apart.
        """
        by_itself = not self.selects or (self.of_one and self.columns != (index,))
        return self.index_col is None and by_itself

    @property
    def of_text(self) -> bool:
        """True if an option is given that only applies to text files."""
        return self.header != "auto" or self.has_style

    @property
    def has_style(self) -> bool:
        """True if an option is given on how text is written: notation of numbers, lines before the table."""
        return (self.decimal, self.thousands, self.skip_lines) != ("auto", None, 0)

    def later(self) -> dict[str, Any]:
        """Options of ``LATER`` that differ from their defaults, for JSON."""
        usual = ReadOptions()
        return {name: said for name in LATER if (said := getattr(self, name)) != getattr(usual, name)}

    def require_known(self) -> None:
        """Raise ``InputError`` for an invalid value of an option on how text is written."""
        if self.header not in HEADERS:
            raise InputError(f"header={self.header!r} is not known; say one of {', '.join(HEADERS)}")
        if self.decimal not in DECIMALS:
            raise InputError(f"decimal={self.decimal!r} is not known; say one of 'auto', '.', ','")
        if self.thousands is not None and self.thousands not in THOUSANDS:
            raise InputError(
                f"thousands={self.thousands!r} is not known; say one of {', '.join(map(repr, THOUSANDS))}"
            )
        is_whole = isinstance(self.skip_lines, Integral) and not isinstance(self.skip_lines, bool)
        if not is_whole or self.skip_lines < 0:
            raise InputError(f"skip_lines={self.skip_lines!r} must be a whole number of lines, 0 or more")
        if self.thousands is not None and self.thousands == self.decimal:
            raise InputError(f"decimal and thousands are both {self.decimal!r}: they must differ")


def choose_columns(names: Sequence[str], options: ReadOptions, where: str) -> list[int]:
    """Positions among ``names`` of the columns to read, in the order of ``options.columns``.

    Raises ``InputError``, about the table ``where``, if a column that the options name does not exist or is
    not unique, or if no column is left.
    """
    index = () if options.index_col is None else (options.index_col,)
    for choice in (options.columns or (), options.without or (), index):
        for name in choice:
            if names.count(name) != 1:
                raise InputError(_not_one(names, name, where))
    order = (
        [names.index(name) for name in options.columns] if options.columns is not None else range(len(names))
    )
    left_out = {*(options.without or ()), options.index_col}
    positions = [position for position in order if names[position] not in left_out]
    if not positions:
        raise InputError(f"{where}: no column is left of {len(names)}; take at least one")
    return positions


def _not_one(names: Sequence[str], name: str, where: str) -> str:
    if name in names:
        return f"{where} has {names.count(name)} columns named {name!r}; rename them to choose between them"
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"{where} has no column {name!r}.{hint} It has {list_names(names)}"


def list_names(names: Sequence[str], most: int = 8) -> str:
    """Text that lists at most ``most`` names for a message."""
    text = ", ".join(map(repr, names[:most]))
    return text + (f" and {len(names) - most} more" if len(names) > most else "")


def left_out_of(path: str, names: Sequence[str], first: str) -> str:
    """Note about columns ``names`` of the file ``path``, left out because the file ``first`` lacks them."""
    return f"{list_names(names)} of {path} are not in {first}, and were left out"


def count_words(count: int, thing: str) -> str:
    """Text of a number of things, with singular or plural.

    >>> count_words(1, "cell"), count_words(2, "cell")
    ('1 cell', '2 cells')
    """
    return f"{count} {thing}{'s' if count != 1 else ''}"


def name_rows(name: str) -> str:
    """Text of the option by which a column names the rows, in Python and on the command line.

    >>> name_rows("id")
    "index_col='id' (--index-col 'id')"
    """
    return f"index_col={name!r} (--index-col {name!r})"


def without_columns(names: Sequence[str]) -> str:
    """Text of the option that leaves out columns by name, in Python and on the command line.

    >>> print(without_columns(["a,b", "c"]))
    without=['a,b', 'c'] (--without '"a,b",c')
    """
    line = ",".join('"' + name.replace('"', '""') + '"' if {*',"'} & {*name} else name for name in names)
    return f"without={[*names]!r} (--without {line!r})"


def names_in_line(text: str) -> list[str]:
    """Split an option into names at commas; a name that contains a comma is in quotes, as in a .csv.

    >>> names_in_line('"a,b", c'), names_in_line("")
    (['a,b', 'c'], [''])
    """
    names = next(csv.reader([text], skipinitialspace=True)) if '"' in text else text.split(",")
    return [name.strip() for name in names]
