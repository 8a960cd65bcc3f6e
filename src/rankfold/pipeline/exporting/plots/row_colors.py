"""Labels or values that color rows: one for each row, read block after block from their source.

Words and booleans are labels, numbers with a fraction are values. Integers are labels if few distinct ones
occur.

Colors of many categories: each looks as different as possible from those before it.

The first are chosen by hand, so that color-blind eyes can distinguish them too. The others are found
among colors of sRGB on a lattice, by the distance in Oklab, in which equal distances look about equal.

References
----------
[Ott20] Ottosson, A perceptual color space for image processing, https://bottosson.github.io/posts/oklab,
2020: Oklab, with its two matrices.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.names import Names
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.exporting.plots.row_columns import Column, open_column

MOST_WHOLE_LABELS = 100
"""Largest number of distinct integers that count as labels; with more, they are values."""

MOST_LABELS = 65536
"""Largest number of distinct words that count as labels; with more, they are names of rows."""

BLOCK_ROWS = 2**20
"""Rows that are read at a time to find the distinct labels."""


@dataclass(frozen=True, slots=True)
class Labels:
    """A label for each row, as an integer code."""

    column: Column
    known: npt.NDArray[Any] | None
    """Distinct labels in sorted order, whose indices are codes; None if the column holds codes already."""

    names: tuple[str, ...]
    counts: npt.NDArray[np.int64]
    """Number of rows of each label, (labels + 1,); the last entry is that of rows without a label."""

    def read(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Codes of the labels of rows ``start:stop``, indices into ``names``; ``len(names)`` for no label."""
        return _codes(self.column.read(start, stop), self.known, len(self.names))


@dataclass(frozen=True, slots=True)
class Values:
    """A number for each row, NaN if there is none."""

    column: Column
    low: float
    high: float
    missing_count: int

    def read(self, start: int, stop: int) -> npt.NDArray[np.float64]:
        """Values of rows ``start:stop``."""
        return np.asarray(self.column.read(start, stop), np.float64)


def colors_of(color: Any, rows: int, rows_named: Names | None = None) -> Labels | Values:
    """Labels or values of ``rows`` rows, from an array, object or path: see ``open_column``.

    They are matched by name with ``rows_named``, the names of the rows, where both have names.

    Raises
    ------
    InputError
        Another length or type, several numbers for a row, a path that does not exist, or nothing but NaN.
    """
    column = open_column(color).among(rows_named)
    if column.length != rows:
        hint = ". The first line of a .csv file holds the names of its columns" if column.has_header else ""
        raise InputError(f"{column.name} has {column.length} values, and the result has {rows} rows{hint}")
    if column.categories is not None:
        return _labels(column, None, column.categories)
    kind = column.kind
    if kind in "SUTOb":
        return _labels(column, *_distinct(column, MOST_LABELS, required=True))
    if kind in "iu":
        known, names = _distinct(column, MOST_WHOLE_LABELS, required=False)
        if known is not None:
            return _labels(column, known, names)
    elif kind != "f":
        raise InputError(f"{column.name} is neither text nor real numbers, by which rows could be colored")
    return _values(column)


def _values(column: Column) -> Values:
    low, high, missing_count = np.inf, -np.inf, 0
    for start in range(0, column.length, BLOCK_ROWS):
        block = np.asarray(column.read(start, min(start + BLOCK_ROWS, column.length)), np.float64)
        finite = block[np.isfinite(block)]
        missing_count += len(block) - len(finite)
        low, high = min(low, finite.min(initial=np.inf)), max(high, finite.max(initial=-np.inf))
    if missing_count == column.length:
        raise InputError(f"{column.name} holds no number, only NaN or Inf: nothing to color by")
    return Values(column, float(low), float(high), missing_count)


def _labels(column: Column, known: npt.NDArray[Any] | None, names: tuple[str, ...]) -> Labels:
    counts = np.zeros(len(names) + 1, np.int64)
    for start in range(0, column.length, BLOCK_ROWS):
        block = column.read(start, min(start + BLOCK_ROWS, column.length))
        counts += np.bincount(_codes(block, known, len(names)), minlength=len(names) + 1)
    return Labels(column, known, names, counts)


def _codes(block: npt.NDArray[Any], known: npt.NDArray[Any] | None, count: int) -> npt.NDArray[np.int64]:
    if known is None:
        codes = block.astype(np.int64)
        return np.where((codes < 0) | (codes >= count), count, codes)
    at = np.searchsorted(known, block)
    at[(at == len(known)) | (block == "" if block.dtype.kind == "U" else False)] = count
    return at


def _distinct(
    column: Column, most: int, *, required: bool
) -> tuple[npt.NDArray[Any] | None, tuple[str, ...]]:
    """Distinct labels of a column in sorted order, and their texts; None and () for more than ``most``.

    If ``required``, more are an ``InputError`` instead.
    """
    known: npt.NDArray[Any] | None = None
    for start in range(0, column.length, BLOCK_ROWS):
        block = np.unique(column.read(start, min(start + BLOCK_ROWS, column.length)))
        known = block if known is None else np.union1d(known, block)
        if len(known) > most and not required:
            return None, ()
        if len(known) > most:
            raise InputError(
                f"{column.name} has more than {most} different labels: these are names of rows, by which "
                "nothing can be colored"
            )
    assert known is not None  # noqa: S101  there is a row
    known = known[known != ""] if known.dtype.kind == "U" else known
    return known, tuple(str(each) for each in known)


Array = npt.NDArray[np.float64]

HUES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999933")
"""Colors of the first categories (Okabe, Ito and one more): color-blind safe, on light and on dark."""

MORE_HUES = ("#5b4fc4", "#a3324f", "#5f7f1f", "#c9b458", "#aa4499")
"""Colors of further categories, after Tol's palettes; with more colors, some are closer to each other."""

NO_LABEL = "#b9bfc6"
"""Color of rows without a label, and of all labels beyond ``MOST_HUES``."""

MOST_HUES = 100
"""Largest number of colors of categories: the closest two differ as much as in ``HUES``, ``MORE_HUES``."""

LATTICE = range(0, 256, 15)
"""Values of red, green and blue among which further colors are searched."""

LIGHTNESS = (0.4, 0.82)
"""Range of lightness in Oklab, from 0 to 1, that is visible on light and on dark paper."""

LEAST_CHROMA = 0.05
"""Least chroma in Oklab; paler colors look like rows without a label."""

TO_CONES = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
FROM_CONES = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)


@functools.cache
def hues(count: int) -> tuple[str, ...]:
    """The first ``count`` colors of categories, as ``#rrggbb``; ``MOST_HUES`` at most.

    >>> hues(2), len(set(hues(100)))
    (('#0072b2', '#e69f00'), 100)
    """
    chosen = [*HUES, *MORE_HUES]
    if count <= len(chosen):
        return tuple(chosen[:count])
    lattice = np.stack(np.meshgrid(*[np.array(LATTICE)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    seen = oklab(lattice)
    is_seen = (seen[:, 0] > LIGHTNESS[0]) & (seen[:, 0] < LIGHTNESS[1])
    is_seen &= np.hypot(seen[:, 1], seen[:, 2]) > LEAST_CHROMA
    lattice, seen = lattice[is_seen], seen[is_seen]
    distance = np.full(len(seen), np.inf)
    for other in oklab(np.array([rgb(color) for color in (*chosen, NO_LABEL)])):
        distance = np.minimum(distance, _squares(seen, other))
    while len(chosen) < min(count, MOST_HUES):
        # Rounded, so that the choice does not depend on the last digits of a machine's cube root.
        farthest = int(np.argmax(np.round(distance, 9)))
        chosen.append("#" + "".join(f"{value:02x}" for value in lattice[farthest].tolist()))
        distance = np.minimum(distance, _squares(seen, seen[farthest]))
    return tuple(chosen)


def rgb(color: str) -> npt.NDArray[np.int64]:
    """Red, green and blue, (3,), of a color ``#rrggbb``, 0 to 255."""
    return np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)], np.int64)


def oklab(colors: npt.NDArray[np.int64]) -> Array:
    """Convert sRGB colors (n, 3), 0 to 255, to Oklab: lightness (0 to 1) and two opponent colors, (n, 3).

    >>> np.abs(np.round(oklab(np.array([[255, 255, 255]])), 6)).tolist()
    [[1.0, 0.0, 0.0]]
    """
    share = colors / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    lab: Array = np.cbrt(linear @ np.array(TO_CONES).T) @ np.array(FROM_CONES).T
    return lab


def _squares(colors: Array, other: Array) -> Array:
    squares: Array = ((colors - other) ** 2).sum(axis=1)
    return squares
