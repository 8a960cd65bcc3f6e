"""Names of the rows of a table, collected from one of its columns while the others are read.

As for any axis, up to ``MOST_LABELS`` names are kept. For more, only a digest is kept, the same that
``Axis.of`` computes from all names at once, so memory does not grow with the rows.

The trap: ``007`` is a name and not a number. Names become numbers only if all are written as integers are.
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
"""An integer that float64 represents exactly, written so that converting it back gives the same text."""


class RowNames:
    """Collector of names of rows, which are added in order, some at a time.

    Parameters
    ----------
    column : str
        Column that holds them.
    source : str
        Name of the table in messages.
    title : str
        Name of the axis that ``axis`` returns.
    because : str
        Sentence for the notes that says why the column names rows; empty if the caller asked for it. If it
        is given, names that only count from 0 or 1 are dropped, like the default index of pandas.
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
        """Append names of the next rows, which start at ``row`` of their file; empty text means no name."""
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
            at = self.rows % MOST_LABELS  # index in a JSON list, in the form that ``Axis.of`` digests
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
        """True if names are a mere count, as pandas or R write, and the caller did not ask for them."""
        return bool(self.because and self.rows and self._are_whole and self._counts)

    @property
    def are_unique(self) -> bool:
        """True if all names are kept (not only their digest) and differ, and none is missing."""
        return self._held is not None and not self.gaps and len(set(self._held)) == self.rows

    def axis(self) -> Axis:
        """Axis of the rows with their names; to be called once all names were added."""
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
        """Sentences about the names for the user: their origin, missing names, repeated names."""
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
    """Values of a column as names of rows: dates as ``Axis.of`` writes them, empty text for missing values.

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
