"""An array of several axes as a matrix: some axes make the rows, the others the columns.

Nothing is copied or reordered in advance: a rectangle of the matrix is a few boxes of the array, and each is
read straight to its place. Where a span of columns cuts through stacked axes there are up to
``2 n - 1`` boxes for n axes, so reads along the grids take the fewest.

Axes that make the rows are given by name or number, in the order they are named. The others become the
columns, in their own order. An axis without a name is named by its number.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.geometry import Box, Piece, Span, runs
from rankfold.pipeline.chunks.row_marks import RowMarks
from rankfold.pipeline.data.allele_counts import AlleleCounts, sample_axis
from rankfold.pipeline.data.cf_attributes import Attributes
from rankfold.pipeline.data.dtypes import require_matrix
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.names import Axis, Named, Names
from rankfold.pipeline.data.selection import Readable
from rankfold.pipeline.data.source import Volume, Wrapper, row_marks, stack_grids
from rankfold.pipeline.errors import InputError, SeveralAxesError, argument

Rows = str | int | Sequence[str | int] | None
"""Row axes by a caller: ``"time"``, ``"time,level"``, ``0``, ``["time", "level"]``, or None."""


def axis_names(shape: Sequence[int], names: Any) -> tuple[str, ...]:
    """Names of axes from a store, which may lack some or all of them; numbers in place of those.

    >>> axis_names((4, 5, 6), ["time", None, "lon"])
    ('time', '1', 'lon')
    """
    if isinstance(names, str) or not isinstance(names, Sequence) or len(names) != len(shape):
        names = [None] * len(shape)
    return tuple(str(name) if name else str(number) for number, name in enumerate(names))


def row_axes(name: str, axes: tuple[str, ...], shape: Sequence[int], rows: Rows) -> tuple[int, ...]:
    """Numbers of the axes of an array that become the rows of a matrix, as ``rows`` of a caller names them.

    ``name``, ``axes`` and ``shape`` are the name of the array, and names and lengths of its axes.

    Without it, these are the first of two axes, or the samples of genotype calls (see ``allele_counts``);
    else an error asks for them.
    """
    if rows is None:
        if len(shape) == 2:
            return (0,)
        if (samples := sample_axis(axes)) is not None:
            return (samples,)
        raise (SeveralAxesError if len(shape) > 2 else InputError)(_ask(name, axes, shape))
    names = _split(rows)
    places = [_axis(name, axes, shape, each) for each in names]
    if len(set(places)) < len(places):
        raise InputError(f"row_axes={rows!r} names an axis of {name} twice: name each once")
    if not places:
        raise InputError(_ask(name, axes, shape))
    if len(places) == len(axes):
        raise InputError(
            f"row_axes={rows!r} takes every axis of {name} ({_list_axes(axes, shape)}), which leaves none "
            "for the columns; leave one out"
        )
    return tuple(places)


def _split(rows: str | int | Sequence[str | int]) -> list[str | int]:
    if isinstance(rows, str):
        return [part.strip() for part in rows.split(",") if part.strip()]
    return [rows] if isinstance(rows, int) else list(rows)


def _axis(name: str, axes: tuple[str, ...], shape: Sequence[int], name_or_place: str | int) -> int:
    """Number of the axis of that name, or of that number, which may be negative to count from the end."""
    if isinstance(name_or_place, str) and name_or_place in axes:
        return axes.index(name_or_place)
    number = (
        int(name_or_place)
        if isinstance(name_or_place, int) or name_or_place.lstrip("-").isdecimal()
        else None
    )
    if number is not None and -len(axes) <= number < len(axes):
        return number % len(axes)
    near = difflib.get_close_matches(str(name_or_place), axes, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise InputError(f"{name} has no axis {name_or_place!r}.{hint} Its axes are {_list_axes(axes, shape)}")


def _ask(name: str, axes: tuple[str, ...], shape: Sequence[int]) -> str:
    if len(shape) < 2:
        return (
            f"{name} has {len(shape)} axes, shape {tuple(shape)}; a matrix has two, samples in rows and "
            "features in columns. Reshape it, or name another array"
        )
    return (
        f"{name} has {len(shape)} axes, {_list_axes(axes, shape)}; a matrix has two. Say which become the "
        f"rows, the others are stacked into columns: {argument('row_axes', axes[0])}"
    )


def _list_axes(axes: tuple[str, ...], shape: Sequence[int]) -> str:
    return ", ".join(f"{axis} ({length})" for axis, length in zip(axes, shape, strict=True))


# The matrix ---------------------------------------------------------------------------------------


PIECE_BYTES = 1024
"""Upper bound on the bytes of the views and spans that one box takes."""


@dataclass(frozen=True, slots=True, repr=False)
class StackedSource(Readable, Wrapper):
    """An array of several axes as a matrix: ``row_axes`` are stacked into rows, ``column_axes`` into columns.

    Axes are given by number, and stacked in C order, in the given order.
    """

    inner: Volume
    row_axes: tuple[int, ...]
    column_axes: tuple[int, ...]

    @property
    def name(self) -> str:
        """Name in messages: that of the array, and its row axes unless they are the first of two."""
        if self.row_axes == (0,) and self.column_axes == (1,):
            return self.inner.name
        return f"{self.inner.name} by {','.join(self.inner.axes[axis] for axis in self.row_axes)}"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return math.prod(self._lengths(self.row_axes)), math.prod(self._lengths(self.column_axes))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements in native byte order."""
        return self.inner.dtype

    @property
    def format(self) -> str:
        """Kind of store, and its axes."""
        axes = zip(self.inner.axes, self.inner.shape, strict=True)
        return f"{self.inner.format}, {' x '.join(f'{axis} {length}' for axis, length in axes)}"

    @property
    def row_grid(self) -> Grid:
        """Chunks along the stacked rows."""
        return stack_grids([self.inner.grids[axis] for axis in self.row_axes])

    @property
    def column_grid(self) -> Grid:
        """Chunks along the stacked columns."""
        return stack_grids([self.inner.grids[axis] for axis in self.column_axes])

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``; see ``Source``."""
        order = np.argsort((*self.row_axes, *self.column_axes)).tolist()
        pieces = []
        for down, (top, bottom) in runs(*rows, self._lengths(self.row_axes)):
            for across, (left, right) in runs(*columns, self._lengths(self.column_axes)):
                spans: Box = (*down, *across)
                part = out[top - rows[0] : bottom - rows[0], left - columns[0] : right - columns[0]]
                # Splitting an axis never copies, whatever the strides.
                view = part.reshape([stop - start for start, stop in spans], copy=False)
                pieces.append(Piece(tuple(spans[axis] for axis in order), view.transpose(order)))
        if pieces:
            self.inner.read_boxes(pieces)

    def read_bytes(self, rows: int, columns: int) -> int:
        """Upper bound on the bytes of one ``read_into`` in addition to ``out``.

        That is what the volume takes, and a few views.
        """
        boxes = (2 * len(self.row_axes) - 1) * max(1, 2 * len(self.column_axes) - 1)
        return self.inner.read_bytes(rows * columns) + boxes * PIECE_BYTES

    def names(self, axis: int) -> Names | None:
        """Names of the rows (0) or columns (1); None if it has none."""
        numbers = self.row_axes if axis == 0 else self.column_axes
        if len(self.inner.shape) == 2 and self.row_axes == (0,) and hasattr(self.inner, "names"):
            written: Names | None = self.inner.names(axis)
            if written is not None:
                return written
        return Names.of([axis_of(self.inner, number) for number in numbers])

    def fingerprint(self) -> str:
        """Digest of the array and of the stacking of its axes."""
        text = f"{self.inner.fingerprint()} {self.row_axes} {self.column_axes}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def row_marks(self, rows: int) -> RowMarks:
        """Digests that change if the first rows have changed; see ``GrowingSource``."""
        inner = math.prod(self._lengths(self.row_axes)[1:])
        if self.row_axes[0] != 0 or rows % inner:
            raise InputError(
                f"{self.name} does not have its first axis, along which arrays grow, first among its rows: "
                "leave out grows, or name that axis first in row_axes"
            )
        return row_marks(self.inner, rows // inner).beside(self.row_axes, self.column_axes)

    def _lengths(self, axes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.inner.shape[axis] for axis in axes)


def axis_of(volume: Volume, number: int) -> Axis:
    """Axis ``number`` of an array, with its labels if it has any."""
    found: Axis | None = volume.axis(number) if hasattr(volume, "axis") else None
    return found or Axis(volume.axes[number], volume.shape[number])


def with_axes(source: Any, axes: Sequence[Axis], attributes: Attributes | None = None) -> Any:
    """A matrix or volume in memory, with ``axes`` as its axes and ``attributes`` of its values.

    Others are returned unchanged: they have names of their own.
    """
    if isinstance(source, StackedSource | AlleleCounts):
        return dataclasses.replace(cast(Any, source), inner=with_axes(source.inner, axes, attributes))
    if not isinstance(source, Named):
        return source
    return dataclasses.replace(cast(Any, source), named=tuple(axes), attributes=attributes or {})


def stack_volume(volume: Volume, rows: Rows) -> StackedSource:
    """An array as a matrix whose rows are the axes that ``rows`` names; ``InputError`` if it makes no matrix.

    Genotype calls become allele counts, unless the axis of copies (ploidy) is among the rows.
    """
    down = row_axes(volume.name, volume.axes, volume.shape, rows)
    if sample_axis(volume.axes) is not None and len(volume.shape) - 1 not in down:
        volume = AlleleCounts(volume)
    across = tuple(axis for axis in range(len(volume.shape)) if axis not in down)
    source = StackedSource(volume, down, across)
    require_matrix(source.name, source.shape, volume.dtype)
    return source
