"""What a sweep over rows does with each panel: the contract that all folds fulfill.

A declared fold says once what it holds: its buffers by name, shape and type, the constants that it loads,
the sums of a stream and how those of two are joined, and the kernels that it calls. Memory, workspace,
accumulator and merge follow. Where buffers live is decided in ``device.py``.

Panels of a segment come one after the other: the next is read while the caller works, if reads wait.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.engine.blocks import Cut
from rankfold.pipeline.engine.device import HOST, Device, Kernel
from rankfold.pipeline.storage.checkpoint import State, load_arrays
from rankfold.pipeline.storage.scratch import ScratchMatrix


class Fold(Protocol):
    """What a sweep does with each panel. Pickles; holds paths and small arrays, never an open store."""

    @property
    def cut(self) -> Cut:
        """Panels and streams of the long axis."""

    @property
    def slots(self) -> int:
        """Buffers for panels: 2 to read ahead while working, 1 not to."""

    @property
    def row_seconds(self) -> float:
        """Nominal time of one row of one panel, to cut segments by."""

    def start(self) -> State:
        """Accumulator of no rows."""

    def workspace(self, device: Device = HOST) -> Any:
        """Everything a segment needs to allocate, on the device that it is computed on."""

    def read(self, work: Any, start: int, stop: int, slot: int) -> None:
        """Fetch rows ``start:stop`` into a slot."""

    def step(self, state: State, work: Any, start: int, stop: int, slot: int) -> None:
        """Fold the panel in a slot into ``state``, in place."""

    def merge(self, total: State, other: State) -> None:
        """Add ``other`` to ``total``, in place; on the host."""

    @property
    def resident(self) -> frozenset[str]:
        """Names of sums that lie where they are computed with."""

    @property
    def device_bytes(self) -> int:
        """Most memory of a device, if it has code for one."""


# Declared folds ---------------------------------------------------------------------------------


Array = npt.NDArray[Any]
Float64 = np.dtype(np.float64)


@dataclass(frozen=True, slots=True)
class Buffer:
    """Room for what a step forms."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any] = Float64

    @property
    def nbytes(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Constant(Buffer):
    """An array of a part that the process which leads has written, in the type that it is needed in."""

    part: Path = Path("-")


@dataclass(frozen=True, slots=True)
class Given(Buffer):
    """A small array that the fold itself holds."""

    array: Array | None = None

    @classmethod
    def of(cls, array: Array) -> Given:
        """All of it, in its type."""
        return cls(array.shape, array.dtype, array)

    @property
    def nbytes(self) -> int:
        """None on the host, where it is taken as it is."""
        return 0


@dataclass(frozen=True, slots=True)
class ScratchConstant(Buffer):
    """A narrow matrix on scratch that a segment holds as a whole."""

    matrix: ScratchMatrix | None = None

    @classmethod
    def of(cls, matrix: ScratchMatrix) -> ScratchConstant:
        """All of it."""
        return cls((matrix.rows, matrix.columns), matrix.dtype, matrix)


@dataclass(frozen=True, slots=True)
class Sum(Buffer):
    """An array that a stream accumulates; those of two streams are added up unless it says otherwise."""

    empty: Callable[[], Array] | None = None
    """Of no rows, where that is not zero."""

    join: Callable[[Array, Array], Array] | None = None
    """What two become, where that is not their sum."""

    on_host: bool = False
    """Whether it stays there: counts, which are looked at."""

    def of_no_rows(self) -> Array:
        """What a stream starts with."""
        return np.zeros(self.shape, self.dtype) if self.empty is None else self.empty()

    def combine(self, total: Array, other: Array) -> Array:
        """What two streams come to; in place where they are added."""
        if self.join is not None:
            return self.join(total, other)
        total += other
        return total


class Workspace(SimpleNamespace):
    """Buffers and constants of one segment, by the names that the fold gave them, and where they are."""

    device: Device

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class DeclaredFold:
    """What follows from what a fold declares: see ``fold.Fold``."""

    __slots__ = ()

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All that its steps call: on a device it runs if each of them has a body there."""
        return ()

    def buffers(self) -> Mapping[str, Buffer]:
        """Buffers and constants."""
        return {}

    def sums(self) -> Mapping[str, Sum]:
        """Of a stream."""
        raise TypeError(f"{type(self).__name__} adds nothing up")

    @property
    def beside_bytes(self) -> int:
        """Bytes that a step takes besides: results of expressions, copies of LAPACK, panels."""
        return 0

    @property
    def memory_bytes(self) -> int:
        """Most memory of a segment: a workspace, and two accumulators, which a merge holds beside it."""
        buffers = sum(each.nbytes for each in self.buffers().values())
        return buffers + self.beside_bytes + 2 * self.accumulator_bytes

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of the sums of a stream."""
        return sum(each.nbytes for each in self.sums().values())

    @property
    def device_bytes(self) -> int:
        """Most memory of a device: buffers, what steps take besides, and one set of sums."""
        rooms = [*self.buffers().values(), *(each for each in self.sums().values() if not each.on_host)]
        return sum(math.prod(each.shape) * each.dtype.itemsize for each in rooms) + self.beside_bytes

    def start(self) -> State:
        """Sums of no rows."""
        return {name: each.of_no_rows() for name, each in self.sums().items()}

    @property
    def resident(self) -> frozenset[str]:
        """See ``Fold``."""
        return frozenset(name for name, each in self.sums().items() if not each.on_host)

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate the buffers and load the constants."""
        buffers, parts = Workspace(device=device), dict[Path, State]()
        for name, each in self.buffers().items():
            if isinstance(each, Constant):
                if each.part not in parts:
                    parts[each.part] = load_arrays(each.part)
                array = device.place(parts[each.part].pop(name), each.dtype)
            elif isinstance(each, ScratchConstant) and each.matrix is not None:
                array = device.place(each.matrix.load(), each.dtype)
            elif isinstance(each, Given) and each.array is not None:
                array = device.place(each.array, each.dtype)
            else:
                array = device.empty(each.shape, each.dtype)
            setattr(buffers, name, array)
        return buffers

    def read(self, work: Any, start: int, stop: int, slot: int) -> None:
        """Nothing to read ahead, unless the fold is over a matrix."""

    def merge(self, total: State, other: State) -> None:
        """Join the sums of two streams."""
        for name, each in self.sums().items():
            total[name] = each.combine(total[name], other[name])


# Read ahead ---------------------------------------------------------------------------------------


def panels_of(fold: Fold, work: Any, first: int, until: int) -> Generator[tuple[int, int, int, int]]:
    """Panels of a segment in order, as they come in: start and stop of each, and the slot that it is in."""
    by_many = fold.slots > 2
    return _read_by_many(fold, work, first, until) if by_many else _read_by_one(fold, work, first, until)


def _read_by_many(fold: Fold, work: Any, first: int, until: int) -> Generator[tuple[int, int, int, int]]:
    """Panels that threads read into all slots but the one in use; two are full while others are read into."""
    readers = fold.slots - 2
    with ThreadPoolExecutor(readers, "rankfold-read") as pool:
        coming: deque[Future[float]] = deque()
        ahead = first
        for panel in range(first, until):
            while ahead < min(until, panel + fold.slots):
                coming.append(pool.submit(_read, fold, work, *fold.cut.panel(ahead), ahead % fold.slots))
                ahead += 1
            coming.popleft().result()
            yield panel, *fold.cut.panel(panel), panel % fold.slots


WAITING_SHARE = 0.2
"""A read that waits for more than this share of the work on a panel is worth a thread of its own."""

LOOK_ANEW = 64
"""Panels between two reads that are timed without a competing thread."""


def _read_by_one(fold: Fold, work: Any, first: int, until: int) -> Generator[tuple[int, int, int, int]]:
    """Panels as they come in; the next one is read while the caller works, if reads wait for anything.

    A read from the page cache is a copy: a thread for it would only compete with the products for the
    same cores (measured: a pass takes 1.4 times as long). A read that waits for a disk or a network is
    told by its wall time beyond its processor time, and looked at anew every so often.
    """
    read_wait, work_time = 0.0, 0.0
    pending: Future[float] | None = None
    with ThreadPoolExecutor(1, "rankfold-read") as reader:
        for panel in range(first, until):
            start, stop = fold.cut.panel(panel)
            slot = panel % fold.slots
            read_wait = _read(fold, work, start, stop, slot) if pending is None else pending.result()
            pending = None
            ahead = fold.slots > 1 and panel + 1 < until and panel % LOOK_ANEW
            if ahead and read_wait > WAITING_SHARE * work_time:
                pending = reader.submit(_read, fold, work, *fold.cut.panel(panel + 1), 1 - slot)
            began = time.perf_counter()
            yield panel, start, stop, slot
            work_time = time.perf_counter() - began


def _read(fold: Fold, work: Any, start: int, stop: int, slot: int) -> float:
    """Read a panel; seconds spent waiting rather than working."""
    wall, cpu = time.perf_counter(), time.thread_time()
    fold.read(work, start, stop, slot)
    return time.perf_counter() - wall - (time.thread_time() - cpu)
