"""Panels of the matrix in buffers that a worker reuses, and grains of them ready to multiply.

A panel is the long rows that are read at a time: rows, or columns where the sweep runs along the columns. A
grain is some of them, few enough for one matrix product in cache.

NaN, Inf, and negative numbers where they are not allowed: counted over the whole matrix, then refused.

The count is complete because a sweep continues past them: a user who corrected one cell at a time would
read the matrix once per cell.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.center_scale import subtract
from rankfold.pipeline.data.origin import leaves_out_missing, place_of
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.blocks import Cut, grains
from rankfold.pipeline.engine.device import HOST, Device, Slot
from rankfold.pipeline.engine.fold import DeclaredFold, Sum, Workspace
from rankfold.pipeline.errors import DataError, NonFiniteError
from rankfold.pipeline.storage.checkpoint import State

Array = npt.NDArray[Any]

RUN_ROWS = 256
"""Number of rows that a GPU adds up to one partial sum of each column, by which its memory is planned."""
Float64 = npt.NDArray[np.float64]

SINGLE = np.dtype(np.float32)
"""Type to which float16 is converted before use: compiled loops do not read float16."""


@dataclass(frozen=True, slots=True)
class Panels:
    """Panels of a sweep over a matrix: the view, its cut into panels, and the number of buffers."""

    view: View
    cut: Cut
    slots: int
    """Number of panels that a segment (unit of work of a worker) has in memory at once."""

    dtype: np.dtype[Any]
    """Type of grains once they are centered and scaled."""

    extra_rows: int = 0
    """Number of rows that the buffer of a centered, scaled grain has beyond those of the grain."""

    borrows: bool = False
    """True if panels of a matrix in memory are used in place: for folds that never write to them."""

    copy_grains: bool = False
    """True if centered and scaled grains are written to a separate buffer even where the types agree."""

    @property
    def grain_rows(self) -> int:
        """Largest number of rows of a grain."""
        return min(self.cut.grain_rows, self.cut.panel_rows)

    @property
    def memory_bytes(self) -> int:
        """Upper bound on the memory of the panels of one segment, in bytes.

        It has the panels, buffers for converted grains, and what each thread that reads a panel takes besides
        it.
        """
        view, rows = self.view, self.cut.panel_rows
        panels = self.slots * rows * view.short * view.source.dtype.itemsize * (not self._lent)
        grain = (self.grain_rows + self.extra_rows) * view.short * self.dtype.itemsize * self._converts
        single = self.grain_rows * view.short * SINGLE.itemsize * self._has_singles
        return panels + grain + single + self.slots * view.read_bytes(rows)

    @property
    def device_bytes(self) -> int:
        """Bytes on a GPU: panels, a centered and scaled grain, and partial sums of its columns."""
        view, rows = self.view, self.grain_rows + self.extra_rows
        columns = view.short if view.orientation is Orientation.ROWS else rows
        across = rows + view.short - columns
        panels = self.slots * self.cut.panel_rows * view.short * view.source.dtype.itemsize
        single = SINGLE.itemsize * self._is_half
        grain = rows * view.short * (self.dtype.itemsize + single)
        runs = 2 * 8 * columns * (across // RUN_ROWS + 1)
        return panels + grain + runs + 8 * 8 * (rows + view.short)

    @property
    def _converts(self) -> bool:
        return self.copy_grains or self.view.source.dtype != self.dtype

    @property
    def _is_half(self) -> bool:
        return self.view.source.dtype == np.float16

    @property
    def _has_singles(self) -> bool:
        """True if float16 is converted to float32 in a buffer other than that of a centered, scaled grain."""
        return self._is_half and (self.copy_grains or self.dtype != SINGLE)

    @property
    def _lent(self) -> bool:
        return self.borrows and self.view.lend(0, 0) is not None

    def buffers(self, device: Device) -> Buffers:
        """Allocate the panels of one segment on ``device``, and its buffers for converted grains."""
        view = self.view
        rows = 0 if self._lent else self.cut.panel_rows
        slots = [device.slot(view.panel_shape(rows), view.source.dtype) for _ in range(self.slots)]
        grain = None
        if self._converts or not device.writes_over_panels:
            grain = device.empty(view.panel_shape(self.grain_rows + self.extra_rows), self.dtype)
        single = device.empty(view.panel_shape(self.grain_rows), SINGLE) if self._has_singles else grain
        name = None if device.writes_over_panels else self._name()
        return Buffers(slots, grain, name, single if self._is_half else None)

    def _name(self) -> bytes | None:
        """Digest that identifies the matrix among those of a run; None for a matrix in memory."""
        if self.view.lend(0, 0) is not None:
            return None
        return blake2b(pickle.dumps(self.view), digest_size=16).digest()

    def read(self, buffers: Buffers, start: int, stop: int, slot: int) -> None:
        """Fill panel ``slot`` of ``buffers`` with long rows ``start:stop``.

        They are read, used in place if the matrix is in memory, or found on a GPU, kept from an earlier pass.
        """
        room, name = buffers.slots[slot], (buffers.name, start, stop) if buffers.name else None
        if name is not None and room.recall(name):
            return
        lent = self.view.lend(start, stop) if self.borrows else None
        if lent is None:
            self.view.read(room.room(self.view.panel_shape(stop - start)), start, stop)
        else:
            room.lend(lent)
        room.send(name)

    def grains(self, buffers: Buffers, start: int, stop: int, slot: int) -> Iterator[Grain]:
        """Yield the grains of panel ``slot`` of ``buffers``, which holds the long rows ``start:stop``."""
        room = buffers.slots[slot]
        panel = room.array()
        for first, last in grains(start, stop, self.cut.grain_rows):
            here = first - start, last - start
            staged = functools.partial(self._staged, room, *here)
            raw = self.view.part(panel, *here)
            if buffers.single is not None:
                single = self.view.part(buffers.single, 0, last - first)
                single[...] = raw
                raw = single
            yield Grain(first, last, raw, staged)
        room.release()

    def _staged(self, slot: Slot, first: int, last: int) -> Array:
        return self.view.part(slot.staged, first, last)

    def condition(self, buffers: Buffers, raw: Array, shift: Float64, scale: Float64) -> Array:
        """``(raw - shift) * scale`` in the type ``dtype``, for a grain ``raw`` in the layout of the source.

        ``shift`` and ``scale`` have a number for each column of ``raw``. The result is in the grain buffer of
        ``buffers``, or overwrites ``raw`` if there is none.
        """
        out = raw
        if buffers.grain is not None:
            rows = raw.shape[0 if self.view.orientation is Orientation.ROWS else 1]
            out = self.view.part(buffers.grain, 0, rows)
        subtract(numbers(raw), shift, scale, out=out)
        return out

    def corner(self, long_row: int) -> tuple[int, int]:
        """Row and column of the matrix at which the long row with that index starts."""
        return (long_row, 0) if self.view.orientation is Orientation.ROWS else (0, long_row)


class Grain(NamedTuple):
    """Consecutive long rows of a panel, few enough for one matrix product in cache."""

    first: int
    """Index of the first long row of the grain, in the matrix."""

    last: int
    """Index of the long row after the last one of the grain."""

    raw: Array
    """The rows of a grain in the type that loops read: as stored, or float32 for float16."""

    staged: Callable[[], Array]
    """Callable that returns the rows as stored, on the host; valid until ``raw`` is written to."""


@dataclass(slots=True)
class Buffers:
    """Allocated panels of one segment, and buffers for converted grains."""

    slots: list[Slot]
    grain: Array | None
    """Memory for one centered and scaled grain; None if that is written over the panel."""

    name: bytes | None
    """Digest of the matrix, under which a device may keep panels for the next pass."""

    single: Array | None = None
    """Memory for one grain of float16 rows converted to float32."""


class OverPanels(DeclaredFold):
    """Base class of folds over dense panels of a matrix, those of ``panels``."""

    __slots__ = ()
    panels: Panels

    @property
    def cut(self) -> Cut:
        """Cut of the long rows into panels and streams (runs of panels that are summed in order)."""
        return self.panels.cut

    @property
    def slots(self) -> int:
        """Number of panels that a segment has in memory at once."""
        return self.panels.slots

    @property
    def memory_bytes(self) -> int:
        """Upper bound on the bytes of one segment (unit of work of a worker): panels, buffers, and two sets
        of sums."""
        return self.panels.memory_bytes + super().memory_bytes

    def is_finite(self, state: State, work: Workspace, grain: Grain, squares: Array) -> bool:
        """True if ``squares``, sums over a grain, are finite; if not, its NaN and Inf are counted.

        They are counted in ``state["bad"]``. A GPU is not waited for: the answer is True, and elements are
        counted when the panel is done.
        """
        count = functools.partial(count_bad, state, grain.staged, *self.panels.corner(grain.first))
        return work.device.holds(np.isfinite(squares).all(), count)

    @property
    def device_bytes(self) -> int:
        """Upper bound on the bytes on a GPU: panels, buffers, and one set of sums."""
        return self.panels.device_bytes + super().device_bytes

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate the buffers on ``device``, and the panels as ``panels`` of the workspace."""
        work = super().workspace(device)
        work.panels = self.panels.buffers(device)
        return work

    def read(self, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Read the long rows ``start:stop`` into panel buffer ``slot`` of ``work``."""
        self.panels.read(work.panels, start, stop, slot)

    def finish(self, state: State, shift: Float64) -> State:
        """Sums ``state`` over all panels, unchanged: folds over stored numbers alone complete theirs here."""
        return state

    @property
    def longest_side(self) -> int:
        """Largest number of rows of an operand of BLAS: those of a grain, with an R factor above them if
        factorized."""
        return min(self.cut.grain_rows, self.cut.panel_rows) + self.panels.view.short

    @property
    def operand_bytes(self) -> int:
        """Bytes of the largest operand of a product: none has more columns than the short side is long."""
        return 8 * self.longest_side * self.panels.view.short


def numbers(x: Array) -> Array:
    """``x`` in a type that compiled loops read: bool as uint8, without a copy, float16 copied to float32.

    Arrays of other types are returned as they are.
    """
    if x.dtype == np.bool_:
        return x.view(np.uint8)
    return x.astype(np.float32) if x.dtype == np.float16 else x


NO_INDEX = np.iinfo(np.int64).max
"""Row and column of the first bad element where there is none."""


def no_bad() -> npt.NDArray[np.int64]:
    """(3,) count of no bad elements: 0, with ``NO_INDEX`` for row and column of the first."""
    return np.array([0, NO_INDEX, NO_INDEX], dtype=np.int64)


Part = Callable[[], npt.NDArray[Any]]
"""Callable that returns a part of the matrix as it was read, on the host."""


def count_bad(state: State, part: Part, row: int, column: int) -> None:
    """Add NaN and Inf of a part of the matrix to the count ``state["bad"]``.

    ``part`` returns the part, some squares of which are not finite; ``row`` and ``column`` are the position
    of its first element in the matrix. Without NaN and Inf squares overflow, and ``DataError`` is raised.
    """
    x = part()
    bad = ~np.isfinite(x)
    if not bad.any():
        first = np.unravel_index(int(np.abs(x).argmax()), x.shape)
        raise DataError(
            f"numbers as that in row {row + first[0]}, column {column + first[1]} (from 0) are so much "
            "larger than others of the matrix that squares leave the range of float64. Are they marks for "
            "what is missing? Replace or drop them, and run again."
        )
    _count(state, "bad", bad, row, column)


def count_negative(state: State, part: Part, row: int, column: int) -> None:
    """Add negative elements of a part of the matrix to the count ``state["negative"]``.

    ``part`` returns the part; ``row`` and ``column`` are the position of its first element in the matrix.
    """
    _count(state, "negative", part() < 0, row, column)


def _count(state: State, name: str, mask: npt.NDArray[np.bool_], row: int, column: int) -> None:
    """Add to ``state[name]`` the count of elements where ``mask`` is True, and the position of the first.

    ``row`` and ``column`` are the position of the first element of ``mask`` in the matrix.
    """
    first = np.unravel_index(int(mask.argmax()), mask.shape)
    here = np.array([mask.sum(), row + first[0], column + first[1]], dtype=np.int64)
    state[name] = join_bad(state[name], here)


def join_bad(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Join two (3,) counts of bad elements: their sum, and row and column of the first in row order."""
    first = min((int(a[1]), int(a[2])), (int(b[1]), int(b[2])))
    return np.array([a[0] + b[0], *first], dtype=np.int64)


BAD = Sum((3,), np.dtype(np.int64), no_bad, join_bad, on_host=True)
"""Sum of a fold that counts bad or negative elements, (3,): their count, and row and column of the first."""


def refuse_bad(state: State, source: Source) -> None:
    """Raise ``NonFiniteError`` if the sums ``state`` of a sweep over ``source`` count NaN or Inf."""
    count, row, column = (int(v) for v in state["bad"])
    if count:
        raise NonFiniteError(
            f"{source.name} holds {count} NaN or Inf, the first at {place_of(source, row, column)}. Nothing "
            f"was computed. {remedy(source)}"
        )


def refuse_infinite(state: State, source: Source) -> None:
    """Raise ``NonFiniteError`` if the sums ``state`` of a sweep count Inf; NaN is missing, not counted."""
    count, row, column = (int(v) for v in state["bad"])
    if count:
        raise NonFiniteError(
            f"{source.name} holds {count} infinite numbers, the first at {place_of(source, row, column)}. "
            "Nothing was computed: NaN is what is missing, Inf is not. Replace them, and run again."
        )


def remedy(source: Source) -> str:
    """Text for messages: what to do about NaN and Inf in ``source``."""
    if leaves_out_missing(source):
        return (
            "Columns that hold no number in the first rows were left out; these hold numbers there, and lack "
            "some later. Leave out rows that hold no number, such as empty months, with "
            "drop_missing_rows=True (--drop-missing-rows), start at another row, select_rows= "
            "(--select-rows), or select columns, select_columns= (--select-columns), or fill what is "
            "missing, for instance with numpy.nan_to_num, and run again."
        )
    return (
        "Leave out columns that never hold a number, as places on land, with drop_missing_columns=True "
        "(--drop-missing-columns), and such rows with drop_missing_rows=True (--drop-missing-rows); have svd "
        "and pca complete other NaN, with missing='em' (--missing em), or nmf leave them out, with "
        "missing='ignore' (--missing ignore); replace or drop the rest, for instance with numpy.nan_to_num, "
        "and run again."
    )


def refuse_negative(state: State, source: Source) -> None:
    """Raise ``DataError`` if the sums ``state`` of a sweep over ``source`` count negative elements."""
    count, row, column = (int(v) for v in state["negative"])
    if count:
        raise DataError(
            f"{source.name} holds {count} negative numbers, the first at {place_of(source, row, column)}. A "
            "nonnegative factorization has no use for them: replace them, or take svd or pca."
        )
