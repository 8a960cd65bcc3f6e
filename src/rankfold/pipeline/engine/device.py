"""Placement of the arrays of a segment on host or device: only this module decides it, and moves arrays.

A fold is written once. It asks its device for buffers, hands over what is to be written, and gives a function
to call where a check fails. On the host all of that happens at once, and nothing moves. On a device panels
are copied from pinned memory on a separate stream, sums stay until a checkpoint asks for them, and what a
panel sends to the host arrives when the panel is done: one wait for each panel, however many grains it has.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import aligned_empty, has_body
from rankfold.pipeline.engine.memory import renew_baseline
from rankfold.pipeline.errors import PlanError
from rankfold.pipeline.machine import core_type
from rankfold.pipeline.storage.checkpoint import State

Array = npt.NDArray[Any]
Kernel = Callable[..., Any]


class Slot(Protocol):
    """Buffer of one panel (rows read at once): read into on the host, found by kernels on the device."""

    @property
    def staged(self) -> Array:
        """The panel as it was read, on the host."""

    def recall(self, name: Hashable) -> bool:
        """Take the panel that an earlier pass kept under the key ``name``; returns False if there is none."""

    def room(self, shape: tuple[int, ...]) -> Array:
        """Host buffer to read a panel of that shape into, once the panel before is no longer needed."""

    def lend(self, panel: Array) -> None:
        """Use a panel in memory that the slot does not own, without a copy."""

    def send(self, name: Hashable = None) -> None:
        """Move the panel to the device; if there is room, keep it for later passes under key ``name``."""

    def array(self) -> Array:
        """The panel as an array on the device it is computed on."""

    def release(self) -> None:
        """Give up the panel: only operations that were started so far need it."""


class Device(Protocol):
    """Memory in which arrays are placed and computed with: that of the host, or of a GPU."""

    name: str
    writes_over_panels: bool
    """True if steps may overwrite a panel that was read; False where it is kept for the next pass."""

    def core_type(self) -> str:
        """Name of the processor and libraries, on which the last bits of results depend."""

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An array on the device that is not initialized."""

    def place(self, array: Array, dtype: npt.DTypeLike) -> Array:
        """An array of the host as an array of the device, converted to ``dtype``."""

    def bring(self, array: Array) -> Array:
        """An array of the host itself, or its copy on the device, in its own type."""

    def slot(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Slot:
        """A slot for panels of up to this shape."""

    def fill(self, array: Array, read: Callable[[Array], None]) -> None:
        """Fill an array of the device: ``read`` writes the values into an array of the host."""

    def send(self, array: Array, receive: Callable[[Array], None]) -> None:
        """Call ``receive`` with the array on the host, as it is now; ``receive`` must not keep that array.

        On the host the call is immediate, on a device it is made when the panel is done.
        """

    def holds(self, flag: Any, otherwise: Callable[[], None]) -> bool:
        """Check that ``flag`` is true; ``otherwise`` is called if it is not.

        True if the caller is to go on.

        On the host the flag is known. A device is not waited for: the caller goes on, and ``otherwise`` is
        called when the panel is done.
        """

    def settle(self) -> None:
        """Wait for the device; then deliver arrays passed to ``send``, and evaluate checks of ``holds``."""

    def limit(self, nbytes: int, run: Hashable) -> None:
        """Limit arrays on the device to ``nbytes`` from now on, and free panels of all runs but ``run``."""

    def forget(self) -> None:
        """Free all panels that are kept."""

    def load(self, state: State, resident: Collection[str]) -> State:
        """Sums of a stream, by name, where steps need them: those in ``resident`` on the device."""

    def unload(self, state: State) -> State:
        """Sums of a stream, ``state``, copied to the host as far as they are not there."""


def runs_on_device(kernels: Iterable[Kernel]) -> bool:
    """True if every kernel of a fold has a body for a GPU; False if it names no kernels."""
    kernels = tuple(kernels)
    return bool(kernels) and all(
        getattr(each, "portable", False) or has_body(str(each.__module__), str(each.__name__), "gpu")
        for each in kernels
    )


def device_of(name: str) -> Device:
    """The device that a process computes on: ``"cpu"`` or ``"gpu"``."""
    return HOST if name == "cpu" else cuda()


# The host -----------------------------------------------------------------------------------------


class HostSlot:
    """Slot on the host: its own buffer, or memory that is lent to it."""

    __slots__ = ("staged",)

    def __init__(self, staged: Array) -> None:
        self.staged = staged

    def recall(self, name: Hashable) -> bool:
        """Return False, as no panel is kept on the host."""
        return False

    def room(self, shape: tuple[int, ...]) -> Array:
        """The buffer of this slot."""
        return self.staged

    def lend(self, panel: Array) -> None:
        """Use a panel in memory that the slot does not own, in place."""
        self.staged = panel

    def send(self, name: Hashable = None) -> None:
        """No-op: nothing moves."""

    def array(self) -> Array:
        """The panel, in place."""
        return self.staged

    def release(self) -> None:
        """No-op: all operations are done."""


class Host:
    """The device that is the memory of this process: nothing moves."""

    name = "cpu"
    writes_over_panels = True

    def core_type(self) -> str:
        """BLAS library of this process, and the processor family of its kernels."""
        return core_type()

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """A buffer that starts on a cache line, not initialized."""
        return aligned_empty(shape, dtype)

    def place(self, array: Array, dtype: npt.DTypeLike) -> Array:
        """The array, contiguous and in type ``dtype``; a copy only if needed."""
        return np.ascontiguousarray(array, dtype)

    def bring(self, array: Array) -> Array:
        """The array itself."""
        return array

    def slot(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Slot:
        """A slot with a buffer that starts on a cache line."""
        return HostSlot(aligned_empty(shape, dtype))

    def fill(self, array: Array, read: Callable[[Array], None]) -> None:
        """Read into the array itself."""
        read(array)

    def send(self, array: Array, receive: Callable[[Array], None]) -> None:
        """Call ``receive`` at once, with the array itself."""
        receive(array)

    def holds(self, flag: Any, otherwise: Callable[[], None]) -> bool:
        """True if the flag holds; calls ``otherwise`` at once if it does not."""
        if not flag:
            otherwise()
        return bool(flag)

    def settle(self) -> None:
        """No-op: ``send`` and ``holds`` have been carried out at once."""

    def limit(self, nbytes: int, run: Hashable) -> None:
        """No-op: memory of the host is watched elsewhere."""

    def forget(self) -> None:
        """No-op: no panel is kept."""

    def load(self, state: State, resident: Collection[str]) -> State:
        """The sums ``state`` as they are: all of them are on the host."""
        return state

    def unload(self, state: State) -> State:
        """The sums ``state`` as they are: all of them are on the host."""
        return state


HOST = Host()


@functools.cache
def cuda() -> Device:
    """Return the GPU of this process, which the first call initializes."""
    from rankfold.pipeline.gpu import Cuda

    device: Device = Cuda()
    renew_baseline()  # the driver keeps memory of the host for each process that uses a device
    return device


@dataclass(frozen=True, slots=True)
class Report:
    """Processors and peak memory of the processes that tasks ran in, as the tasks report them."""

    cores: frozenset[tuple[str, str]]
    """Pairs of a kind of device, and the ``core_type`` on which the last bits of its results depend."""

    peak_bytes: int
    """Peak bytes that a process held above its baseline."""

    def __or__(self, other: Report) -> Report:
        return Report(self.cores | other.cores, max(self.peak_bytes, other.peak_bytes))

    @staticmethod
    def of(reports: Iterable[Report]) -> Report:
        """Join reports into one."""
        return functools.reduce(operator.or_, reports)


def refuse_mixed(report: Report) -> None:
    """Raise ``PlanError`` if, by a report, processes ran kernels that differ in the last bits of results."""
    for kind in {kind for kind, _ in report.cores}:
        cores = sorted(core for each, core in report.cores if each == kind)
        if len(cores) > 1:
            raise PlanError(
                f"workers ran different BLAS kernels ({'; '.join(cores)}), which differ in the last bits. "
                "Use nodes of one type, or pin the kernels of the host: export OPENBLAS_CORETYPE=Haswell"
            )
