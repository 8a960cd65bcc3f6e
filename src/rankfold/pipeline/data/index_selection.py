"""A selection of indices along an axis, in any order: runs with a step, and how to read them.

A place is an index along the axis. A run is a first place, a number of places and a step, so a long selection
is arithmetic on a few runs. Where an axis is stored in chunks that are decoded whole, places of one chunk are
read together; elsewhere places are read together unless gaps between them are long.

Lists of indices as runs (first index, count, step), as facts of a result keep them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.errors import InputError

Selection = str | int | slice | Sequence[str | int | slice] | npt.NDArray[Any] | None
"""Selection by a caller: ``"0:1000"``, ``"0:50,60,70:80:2"``, a slice, numbers, a mask, or None."""

PRINT_LENGTH = 40
"""Largest number of characters of the text of a selection, in the name of a matrix and in messages."""


class Part(NamedTuple):
    """A run of ``size`` indices along an axis, from ``first`` on, ``step`` apart.

    They go to indices ``at:at + size`` of the output.
    """

    first: int
    size: int
    step: int
    at: int

    @property
    def stop(self) -> int:
        """One past the last index."""
        return self.first + (self.size - 1) * self.step + 1


class Fetch(NamedTuple):
    """A span of an axis, ``inner``, that is read in one piece, and the parts that are taken from it."""

    inner: Span
    parts: list[Part]

    @property
    def direct(self) -> bool:
        """True if all of it is wanted, in order: it can be read straight into the output."""
        return len(self.parts) == 1 and (self.parts[0].step == 1 or self.parts[0].size == 1)

    @property
    def length(self) -> int:
        """Length of the span that is read."""
        return self.inner[1] - self.inner[0]


@dataclass(frozen=True, slots=True, eq=False)
class Picks:
    """Selected indices along an axis, as runs."""

    runs: npt.NDArray[np.int64]
    """First index, number of indices and step of every run, (n, 3)."""

    ends: npt.NDArray[np.int64]
    """Cumulative number of selected indices up to and including each run, (n,)."""

    words: str
    """Text for messages: ``columns 0:50,60``, or ``2000 columns`` if a list would be too long."""

    @property
    def count(self) -> int:
        """Number of selected indices."""
        return int(self.ends[-1])

    @property
    def contiguous(self) -> bool:
        """True if it is one slice without gaps."""
        return len(self.runs) == 1 and int(self.runs[0, 2]) == 1

    def places(self, span: Span | None = None) -> npt.NDArray[np.int64]:
        """Indices along the axis, (n,), of the selected ones number ``start:stop`` (``span``), or of all."""
        parts = self.parts(span or (0, self.count))
        return np.concatenate([part.first + part.step * np.arange(part.size) for part in parts])

    def parts(self, span: Span) -> Iterator[Part]:
        """Yield the runs, or parts of them, that hold the selected indices number ``start:stop``."""
        first = int(np.searchsorted(self.ends, span[0], side="right"))
        for run in range(first, len(self.runs)):
            start, count, step = self.runs[run].tolist()
            begin = int(self.ends[run]) - count
            a, b = max(span[0], begin), min(span[1], begin + count)
            if a >= b:
                return
            yield Part(start + (a - begin) * step, b - a, step, a - span[0])

    def grid(self, inner: Grid) -> Grid:
        """Cut of the selection into chunks, where the axis is cut as ``inner``.

        It has an edge wherever the next selected index lies in another chunk.
        """
        edges, at, last = [0], 0, -1
        for part in self.parts((0, self.count)):
            low = int(np.searchsorted(inner.edges, part.first, side="right")) - 1
            high = int(np.searchsorted(inner.edges, part.stop - 1, side="right")) - 1
            if at and low != last:
                edges.append(at)
            crossings = at - (part.first - inner.edges[low + 1 : high + 1]) // part.step
            edges.extend(np.unique(crossings).tolist())
            at, last = at + part.size, high
        return Grid(np.unique(np.asarray([*edges, self.count], np.int64)), inner.splittable, inner.scattered)

    def fetches(self, span: Span, grid: Grid, *, gap: int, most: int) -> Iterator[Fetch]:
        """Yield the pieces to read for selected indices number ``start:stop`` of an axis cut as ``grid``.

        Where chunks can be read in part, indices at most ``gap`` apart are read together with those between
        them, at most ``most`` indices at a time.
        """
        fetch: Fetch | None = None
        cell = -1
        for part, home in self._split(span, grid, gap, most):
            union = fetch and _join(fetch, part, same=home == cell, gap=gap, most=most, grid=grid)
            if fetch and not union:
                yield fetch
            fetch, cell = union or Fetch((part.first, part.stop), [part]), home
        if fetch:
            yield fetch

    def _split(self, span: Span, grid: Grid, gap: int, most: int) -> Iterator[tuple[Part, int]]:
        """Yield parts of runs that are read in one piece, each with the number of its chunk in ``grid``."""
        for part in self.parts(span):
            if grid.splittable and part.step == 1:
                yield part, 0
                continue
            first, size, step, at = part
            while size:
                cell = int(np.searchsorted(grid.edges, first, side="right")) - 1
                if not grid.splittable:
                    here = -(-(int(grid.edges[cell + 1]) - first) // step)
                else:
                    here = max(1, most // step) if step <= gap else 1
                here = min(size, here)
                yield Part(first, here, step, at), cell
                first, size, at = first + here * step, size - here, at + here


def _join(fetch: Fetch, part: Part, *, same: bool, gap: int, most: int, grid: Grid) -> Fetch | None:
    """Fetch that reads a part along with an earlier fetch; None if that would cost more than two reads.

    ``same`` is True if both lie in one chunk; ``gap``, ``most`` and ``grid`` as in ``Picks.fetches``.
    """
    stop = fetch.inner[1]
    if fetch.direct and part.step == 1 and fetch.parts[0].step == 1 and part.first == stop:
        before = fetch.parts[0]
        return Fetch((fetch.inner[0], part.stop), [Part(before.first, before.size + part.size, 1, before.at)])
    near = same if not grid.splittable else part.first - stop <= gap and part.stop - fetch.inner[0] <= most
    if part.first < stop or not near:
        return None
    return Fetch((fetch.inner[0], part.stop), [*fetch.parts, part])


def pick(selection: Selection, length: int, *, what: str, name: str) -> Picks | None:
    """Parse a selection and check it against the length of its axis; None if all is selected.

    ``what`` ("row" or "column") and ``name``, of the matrix, are for messages.
    """
    if selection is None:
        return None
    listed = selection if isinstance(selection, list | tuple) else ()
    are_flags = len(listed) > 0 and all(isinstance(each, bool | np.bool_) for each in listed)
    if are_flags or hasattr(selection, "dtype"):  # True is not place 1
        selection = np.asarray(selection)
    words = _words(selection)
    runs = _runs(selection, length, f"{name} has {length} {what}s: select_{what}s={words}")
    ends = np.cumsum(runs[:, 1])
    if not len(ends) or not ends[-1]:
        raise InputError(f"{name} has {length} {what}s: select_{what}s={words} keeps none of them")
    runs, ends = runs[runs[:, 1] > 0], ends[runs[:, 1] > 0]
    _require_distinct(runs, what, words)
    count = int(ends[-1])
    counted = f"{count} {what}{'s' * (count != 1)}"
    return Picks(runs, ends, counted if words.endswith("...") else f"{what}s {words}")


def _words(selection: Selection) -> str:
    """Short text of a selection."""
    items = selection if isinstance(selection, Sequence) and not isinstance(selection, str) else [selection]
    if isinstance(selection, np.ndarray):
        items = selection.ravel()[:PRINT_LENGTH].tolist()
    text = ",".join(_word(item) for item in itertools.islice(items, PRINT_LENGTH))
    return text if len(text) <= PRINT_LENGTH else f"{text[: PRINT_LENGTH - 3]}..."


def _word(item: Any) -> str:
    if not isinstance(item, slice):
        return str(item)
    ends = ["" if end is None else str(end) for end in (item.start, item.stop, item.step)]
    return ":".join(ends if ends[2] else ends[:2])


def _runs(selection: Any, length: int, text: str) -> npt.NDArray[np.int64]:
    """First index, count and step of every run of a selection, (n, 3); ``text`` begins messages."""
    if isinstance(selection, np.ndarray):
        if selection.dtype == bool and selection.shape != (length,):
            raise InputError(f"{text} is a mask of shape {selection.shape}; it must have shape ({length},)")
        selection = np.flatnonzero(selection) if selection.dtype == bool else selection.ravel()
        if selection.dtype.kind not in "iu":
            raise InputError(f"{text} holds {selection.dtype}; give whole numbers or a mask")
        return _of_numbers(selection.astype(np.int64), length, text)
    if isinstance(selection, str):
        selection = [item.strip() for item in selection.split(",")]
    elif isinstance(selection, int | slice):
        selection = [selection]
    if selection and all(type(item) is int for item in selection):
        return _of_numbers(np.asarray(selection, np.int64), length, text)
    runs = [_run(item, length, text) for item in selection]
    return np.asarray(runs, np.int64).reshape(len(runs), 3)


def _of_numbers(places: npt.NDArray[np.int64], length: int, text: str) -> npt.NDArray[np.int64]:
    """Runs (n, 3) of single indices ``places``; consecutive ones are joined. ``text`` begins messages."""
    for place in (places.min(initial=0), places.max(initial=0)):
        _inside(int(place), length - 1, length, text)
    places = np.where(places < 0, places + length, places)
    firsts = np.flatnonzero(np.diff(places, prepend=-2) != 1)
    counts = np.diff(np.append(firsts, len(places)))
    return np.stack([places[firsts], counts, np.ones_like(counts)], axis=1)


def _run(item: Any, length: int, text: str) -> tuple[int, int, int]:
    """First index, count and step of a slice or a number, or of their text; ``text`` begins messages."""
    if isinstance(item, str):
        item = _parse(item, text)
    if isinstance(item, slice):
        for end in (item.start, item.stop):
            if end is not None:
                _inside(int(end), length, length, text)
        if item.step is not None and item.step < 1:
            raise InputError(f"{text} steps by {item.step}; a step is at least 1")
        places = range(length)[item]
        return places.start, len(places), places.step
    if not isinstance(item, int | np.integer):
        raise InputError(f"{text} holds {item!r}; give numbers and START:STOP[:STEP]")
    place = _inside(int(item), length - 1, length, text)
    return place, 1, 1


def _parse(text: str, request: str) -> int | slice:
    try:
        ends = [int(end) if end.strip() else None for end in text.split(":")]
    except ValueError:
        ends = []
    if len(ends) == 1 and ends[0] is not None:
        return ends[0]
    if not 2 <= len(ends) <= 3:
        raise InputError(
            f"{request} holds {text!r}, which is neither a number nor START:STOP[:STEP]; "
            "separate several by commas, as 0:50,60,70:80"
        )
    return slice(*ends)


def _inside(place: int, most: int, length: int, text: str) -> int:
    """The index ``place``, counted from the start of an axis of that length, also if it is negative.

    ``InputError``, which begins with ``text``, if it is above ``most`` or below -length.
    """
    if not -length <= place <= most:
        raise InputError(f"{text} goes beyond them: {place}. Give numbers from 0 to {most}")
    return place + length if place < 0 else place


def _require_distinct(runs: npt.NDArray[np.int64], what: str, words: str) -> None:
    """Raise ``InputError`` if runs (n, 3) hold an index twice, which is hardly ever intended.

    ``what`` ("row" or "column") and ``words``, the text of the selection, are for the message.
    """
    in_order = runs[np.argsort(runs[:, 0], kind="stable")]
    lasts = in_order[:, 0] + (in_order[:, 1] - 1) * in_order[:, 2]
    if (in_order[1:, 0] > lasts[:-1]).all() and (np.maximum.accumulate(lasts) == lasts).all():
        return
    places = np.sort(np.concatenate([start + np.arange(count) * step for start, count, step in runs]))
    twice = places[1:][places[1:] == places[:-1]]
    if len(twice):
        raise InputError(f"select_{what}s={words} takes {what} {twice[0]} twice; take each once")


Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]


def runs_of(places: Array) -> list[list[int]]:
    """Runs [first index, count, step] that make up a list of indices.

    >>> runs_of(np.array([0, 2, 4])), runs_of(np.array([0, 1, 7]))
    ([[0, 3, 2]], [[0, 2, 1], [7, 1, 1]])
    """
    step = int(places[1] - places[0]) if len(places) > 1 else 1
    if step and (np.diff(places) == step).all():
        return [[int(places[0]), len(places), step]]
    firsts = np.flatnonzero(np.diff(places, prepend=-2) != 1)
    counts = np.diff(np.append(firsts, len(places)))
    return [[int(places[at]), int(count), 1] for at, count in zip(firsts, counts, strict=True)]


def of_runs(runs: Any, length: int) -> Int64:
    """Indices (n,) that runs [first index, count, step] from JSON stand for: the inverse of ``runs_of``.

    ``ValueError`` if they are no runs, or go beyond an axis of that length.
    """
    good = isinstance(runs, list) and all(
        isinstance(run, list) and len(run) == 3 and all(type(each) is int for each in run) for run in runs
    )
    if not good or not runs:
        raise ValueError("places that are no runs")
    parts, total = [], 0
    for first, count, step in runs:
        last, total = first + (count - 1) * step, total + max(count, 0)
        if count < 1 or total > length or not (0 <= first < length and 0 <= last < length):
            raise ValueError(f"places beyond the {length} that there are")
        parts.append(first + step * np.arange(count))
    return np.concatenate(parts)
