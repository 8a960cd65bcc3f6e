"""Names of the rows of a table: a column of it, taken in as its numbers are read.

As of any axis, up to ``MOST_LABELS`` names are held. Of more there is a digest, the same that ``Axis.of``
makes of all names at once, so memory does not grow with the rows.

The trap: ``007`` is a name and no number. Names are numbers only where all are written as whole numbers are.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from rankfold.pipeline.data.names import MOST_LABELS, MOST_TEXT, Axis, labels_of

WHOLE = re.compile(r"0|-?[1-9][0-9]{0,14}")
"""A whole number that a float of 64 bits holds, as it is written without anything that it could lose."""


class RowNames:
    """Names of rows, given some at a time in their order.

    Parameters
    ----------
    column : str
        Column that holds them.
    source : str
        What messages call the table.
    title : str
        Name of the axis.
    because : str
        Why the column names rows, as a sentence for the notes; empty where the caller asked for it. Then
        places that are counted from 0 or 1 name nothing, as with the index that pandas counts by itself.
    """

    def __init__(self, column: str, source: str, *, title: str, because: str = "") -> None:
        self.column, self.source, self.title, self.because = column, source, title, because
        self.rows = self.gaps = 0
        self._held: list[str] | None = []
        self._characters = 0
        self._text, self._numbers = hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)
        self._are_whole = True
        self._counts = {(of_file, first) for of_file in (True, False) for first in (0, 1)}

    def add(self, names: list[str], row: int) -> None:
        """Take names of rows from ``row`` of a file, which follow those before; empty text is a gap."""
        self.gaps += names.count("")
        self._are_whole = self._are_whole and all(map(WHOLE.fullmatch, names))
        if self._are_whole:
            numbers = np.array(names, np.int64)
            self._numbers.update(numbers.astype("<f8").data)
            places = np.arange(len(numbers))
            starts = {
                (of_file, first): first + (row if of_file else self.rows) for of_file, first in self._counts
            }
            self._counts = {each for each, start in starts.items() if (numbers == start + places).all()}
        self._hold(names)
        done = 0
        while done < len(names):
            at = self.rows % MOST_LABELS  # of a list of JSON, as ``Axis.of`` digests them
            part = names[done : done + MOST_LABELS - at]
            self._text.update(f"{', ' if at else '['}{json.dumps(part)[1:-1]}".encode())
            self.rows, done = self.rows + len(part), done + len(part)
            if self.rows % MOST_LABELS == 0:
                self._text.update(b"]")

    def _hold(self, names: list[str]) -> None:
        self._characters += sum(map(len, names))
        if self._held is None or self.rows + len(names) > MOST_LABELS or self._characters > MOST_TEXT:
            self._held = None
        else:
            self._held += names

    @property
    def are_counted(self) -> bool:
        """Whether they name nothing: places that pandas or R counted by themselves."""
        return bool(self.because and self.rows and self._are_whole and self._counts)

    @property
    def are_unique(self) -> bool:
        """Whether all are held, and differ, and none is a gap."""
        return self._held is not None and not self.gaps and len(set(self._held)) == self.rows

    def axis(self) -> Axis:
        """The rows with their names, once all were given."""
        if self.are_counted or not self.rows:
            return Axis("row", self.rows)
        if self._held is not None:
            return Axis.of(self.title, self.rows, np.array(self._held, np.int64 if self._are_whole else str))
        if self._are_whole:
            return Axis(self.title, self.rows, digest=self._numbers.hexdigest())
        text = self._text.copy()
        text.update(b"]" if self.rows % MOST_LABELS else b"")
        return Axis(self.title, self.rows, digest=text.hexdigest())

    def notes(self) -> list[str]:
        """What the owner of the table should know of them."""
        counted = "; it counts them, and was left out" if self.are_counted else ""
        said = [f"{self.because}{counted}"] if self.because else []
        if self.gaps:
            said.append(
                f"column {self.column!r} of {self.source} names no row in {self.gaps} of {self.rows} rows"
            )
        if self._held is not None and (twice := self.rows - self.gaps - len({*self._held} - {""})):
            said.append(
                f"column {self.column!r} of {self.source} names {twice} of {self.rows} rows as it names "
                "others before them: what goes by name refuses these"
            )
        return said


def texts_of_values(values: Iterable[Any]) -> list[str]:
    """Values of a column as names of rows: dates as ``Axis.of`` writes them, and nothing for what is missing.

    >>> texts_of_values([3, None, "a", float("nan"), b"b"])
    ['3', '', 'a', '', 'b']
    """
    if isinstance(values, np.ndarray) and values.dtype.kind == "M":
        labels = labels_of(values)
        return [] if labels is None else ["" if name == "NaT" else name for name in labels.tolist()]
    return [
        ""
        if each is None or each != each
        else each.decode(errors="replace")
        if isinstance(each, bytes)
        else str(each)
        for each in values
    ]
