"""Folds: the contract for what a sweep over rows does with each panel.

A panel is the rows that are read at once. Panels of a stream are folded in order into one set of sums, the
accumulator; a segment is a part of a stream, the unit of work of a worker.

A declared fold lists what it holds: its buffers by name, shape and type, the constants that it loads, the
sums of a stream and how those of two are joined, and the kernels that it calls. Memory, workspace,
accumulator and merge follow from these. ``device.py`` decides where buffers live.

Panels of a segment are handled in order: the next is read while the caller works, if reads have to wait.
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
    """What a sweep does with each panel (rows read at once).

    Picklable: holds paths and small arrays, never an open store.
    """

    @property
    def cut(self) -> Cut:
        """Panels, and streams (panels folded in order), of the long axis."""

    @property
    def slots(self) -> int:
        """Number of panel buffers: 1, 2 to read one panel ahead, or more: then ``slots - 2`` threads read."""

    @property
    def row_seconds(self) -> float:
        """Nominal seconds to fold one row, which decide where segments (the units of work) are cut."""

    def start(self) -> State:
        """Sums (accumulator) of a stream before its first panel."""

    def workspace(self, device: Device = HOST) -> Any:
        """Allocate and load all that a segment needs on its device; other methods get it as ``work``."""

    def read(self, work: Any, start: int, stop: int, slot: int) -> None:
        """Read rows ``start:stop`` into panel buffer number ``slot`` of the workspace ``work``."""

    def step(self, state: State, work: Any, start: int, stop: int, slot: int) -> None:
        """Fold rows ``start:stop``, in buffer ``slot`` of ``work``, into the sums ``state``, in place."""

    def merge(self, total: State, other: State) -> None:
        """Add the sums ``other`` of one stream to ``total``, in place; on the host."""

    @property
    def resident(self) -> frozenset[str]:
        """Names of sums that stay on the device they are computed on."""

    @property
    def device_bytes(self) -> int:
        """Upper bound on the memory that the fold takes on a device, if it has code for one."""


# Declared folds ---------------------------------------------------------------------------------


Array = npt.NDArray[Any]
Float64 = np.dtype(np.float64)


@dataclass(frozen=True, slots=True)
class Buffer:
    """Shape and type of a working array that a step of a fold needs."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any] = Float64

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Constant(Buffer):
    """A buffer that is filled from a file of arrays that the driver has written, converted to its type."""

    part: Path = Path("-")
    """Path of that file, in which the array has the name of the buffer."""


@dataclass(frozen=True, slots=True)
class Given(Buffer):
    """A buffer that is filled from a small array of the fold itself."""

    array: Array | None = None

    @classmethod
    def of(cls, array: Array) -> Given:
        """A buffer that holds this array, in its type."""
        return cls(array.shape, array.dtype, array)

    @property
    def nbytes(self) -> int:
        """0, as the array is used in place on the host."""
        return 0


@dataclass(frozen=True, slots=True)
class ScratchConstant(Buffer):
    """A buffer that is filled with a whole narrow matrix from scratch."""

    matrix: ScratchMatrix | None = None

    @classmethod
    def of(cls, matrix: ScratchMatrix) -> ScratchConstant:
        """A buffer for the whole of a scratch matrix."""
        return cls((matrix.rows, matrix.columns), matrix.dtype, matrix)


@dataclass(frozen=True, slots=True)
class Sum(Buffer):
    """An array that a stream accumulates; arrays of two streams are added unless ``join`` is given."""

    empty: Callable[[], Array] | None = None
    """Function that gives the array before the first panel, where that is not zero."""

    join: Callable[[Array, Array], Array] | None = None
    """Function that combines the arrays of two streams, where that is not their sum."""

    on_host: bool = False
    """True if the array stays on the host, as counts do when steps look at them."""

    def of_no_rows(self) -> Array:
        """Array that a stream starts with, before its first panel."""
        return np.zeros(self.shape, self.dtype) if self.empty is None else self.empty()

    def combine(self, total: Array, other: Array) -> Array:
        """Join the arrays of two streams and return the result; if they are added, in place in ``total``."""
        if self.join is not None:
            return self.join(total, other)
        total += other
        return total


class Workspace(SimpleNamespace):
    """Buffers and constants of one segment, by the names that the fold gave them, and their device."""

    device: Device

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class DeclaredFold:
    """Base of folds that declare their buffers and sums, from which the rest of ``Fold`` follows."""

    __slots__ = ()

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels that steps call: the fold runs on a device if each of them has a body for it."""
        return ()

    def buffers(self) -> Mapping[str, Buffer]:
        """Working arrays and constants of a step, by name."""
        return {}

    def sums(self) -> Mapping[str, Sum]:
        """Arrays that a stream accumulates, by name."""
        raise TypeError(f"{type(self).__name__} adds nothing up")

    @property
    def temporary_bytes(self) -> int:
        """Additional bytes of a step, besides buffers and sums: temporaries, copies of LAPACK, panels."""
        return 0

    @property
    def memory_bytes(self) -> int:
        """Upper bound on the bytes of a segment: a workspace, and two accumulators, which a merge holds."""
        buffers = sum(each.nbytes for each in self.buffers().values())
        return buffers + self.temporary_bytes + 2 * self.accumulator_bytes

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of the sums of a stream."""
        return sum(each.nbytes for each in self.sums().values())

    @property
    def device_bytes(self) -> int:
        """Upper bound on the memory of a device: buffers, additional bytes of steps, and one set of sums."""
        rooms = [*self.buffers().values(), *(each for each in self.sums().values() if not each.on_host)]
        return sum(math.prod(each.shape) * each.dtype.itemsize for each in rooms) + self.temporary_bytes

    def start(self) -> State:
        """Sums of a stream before its first panel, by name."""
        return {name: each.of_no_rows() for name, each in self.sums().items()}

    @property
    def resident(self) -> frozenset[str]:
        """Names of sums that stay on the device: all but those with ``on_host``."""
        return frozenset(name for name, each in self.sums().items() if not each.on_host)

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate the buffers on a device, fill the constants among them, and return all by their names."""
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
        """No-op; folds over a matrix read a panel here."""

    def merge(self, total: State, other: State) -> None:
        """Join the sums ``other`` of one stream to ``total``, those of another, in place."""
        for name, each in self.sums().items():
            total[name] = each.combine(total[name], other[name])


# Read ahead ---------------------------------------------------------------------------------------


def panels_of(fold: Fold, work: Any, first: int, until: int) -> Generator[tuple[int, int, int, int]]:
    """Read panels ``first:until`` of a fold in order, and yield (index, start row, stop row, slot) of each.

    ``work`` is the workspace, into whose buffer ``slot`` a panel has been read when it is yielded.
    """
    by_many = fold.slots > 2
    return _read_by_many(fold, work, first, until) if by_many else _read_by_one(fold, work, first, until)


def _read_by_many(fold: Fold, work: Any, first: int, until: int) -> Generator[tuple[int, int, int, int]]:
    """Yield as ``panels_of``; ``slots - 2`` threads read further panels into slots that are not in use."""
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
"""Seconds that a read waits, per second of work on a panel, above which a thread reads panels ahead."""

PANELS_BETWEEN_PROBES = 64
"""Number of panels between two reads that are timed while no other thread competes: see ``_read_by_one``."""


def _read_by_one(fold: Fold, work: Any, first: int, until: int) -> Generator[tuple[int, int, int, int]]:
    """Yield as ``panels_of``; the next panel is read while the caller works, if reads wait for anything.

    A read from the page cache is a copy: a thread for it would only compete with the products for the same
    cores (measured: a pass takes 1.4 times as long). A read that waits for a disk or a network is recognized
    by its wall time beyond its processor time, which is measured again every ``PANELS_BETWEEN_PROBES``
    panels.
    """
    read_wait, work_time = 0.0, 0.0
    pending: Future[float] | None = None
    with ThreadPoolExecutor(1, "rankfold-read") as reader:
        for panel in range(first, until):
            start, stop = fold.cut.panel(panel)
            slot = panel % fold.slots
            read_wait = _read(fold, work, start, stop, slot) if pending is None else pending.result()
            pending = None
            ahead = fold.slots > 1 and panel + 1 < until and panel % PANELS_BETWEEN_PROBES
            if ahead and read_wait > WAITING_SHARE * work_time:
                pending = reader.submit(_read, fold, work, *fold.cut.panel(panel + 1), 1 - slot)
            began = time.perf_counter()
            yield panel, start, stop, slot
            work_time = time.perf_counter() - began


def _read(fold: Fold, work: Any, start: int, stop: int, slot: int) -> float:
    """Read rows ``start:stop`` into buffer ``slot``; returns wall time less processor time, in seconds."""
    wall, cpu = time.perf_counter(), time.thread_time()
    fold.read(work, start, stop, slot)
    return time.perf_counter() - wall - (time.thread_time() - cpu)
