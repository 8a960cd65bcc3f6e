"""Where the arrays of a segment live, host or device: the only place that decides, and the only mover.

A fold is written once. It asks its device for buffers, hands over what is to be written, and says what is to
be done where a check fails. On the host all of that happens at once, and nothing moves. On a device panels
come from pinned memory over a stream of their own, sums stay until a checkpoint asks for them, and what a
panel sends to the host arrives when the panel is done: one wait a panel, however many grains it has.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import has_body
from rankfold.kernels._layouts import aligned_empty
from rankfold.pipeline.blas import core_type
from rankfold.pipeline.engine.memory import renew_baseline
from rankfold.pipeline.errors import PlanError
from rankfold.pipeline.storage.checkpoint import State

Array = npt.NDArray[Any]
Kernel = Callable[..., Any]


class Slot(Protocol):
    """Room for one panel: threads read into it on the host, and kernels find it where they compute."""

    @property
    def staged(self) -> Array:
        """As it was read, on the host."""

    def recall(self, name: Hashable) -> bool:
        """Take the panel that was kept under a name, if there is one."""

    def room(self, shape: tuple[int, ...]) -> Array:
        """Where a panel of that shape is to be read, as soon as nobody needs the one before."""

    def lend(self, panel: Array) -> None:
        """Take a panel as it lies in the memory of somebody else."""

    def send(self, name: Hashable = None) -> None:
        """Have what was read brought to where it is computed with; kept under a name, if there is room."""

    def array(self) -> Array:
        """The panel where it is computed with."""

    def release(self) -> None:
        """Let go of the panel: what has been asked for so far is the last that needs it."""


class Device(Protocol):
    """A place for arrays."""

    name: str
    writes_over_panels: bool
    """Whether a panel that was read is nobody else's: where it is kept for the next pass, it is not."""

    def core_type(self) -> str:
        """What the last bits of its results depend on."""

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """A buffer whose contents mean nothing yet."""

    def place(self, array: Array, dtype: npt.DTypeLike) -> Array:
        """An array of the host where buffers are, in the type that it is computed with."""

    def bring(self, array: Array) -> Array:
        """An array of the host, as it lies there, or a copy where buffers are."""

    def slot(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Slot:
        """Room for a panel."""

    def fill(self, array: Array, read: Callable[[Array], None]) -> None:
        """Fill an array with what ``read`` reads into one of the host."""

    def send(self, array: Array, receive: Callable[[Array], None]) -> None:
        """Call ``receive`` with the array on the host, as it is now; what it is given it must not keep.

        On the host that is now, on a device when the panel is done.
        """

    def holds(self, flag: Any, otherwise: Callable[[], None]) -> bool:
        """Whether to go on, where something must hold; ``otherwise`` is called if it does not.

        On the host that is known. A device is not waited for: it goes on, and ``otherwise`` is called when
        the panel is done.
        """

    def settle(self) -> None:
        """Have all that was sent arrive."""

    def limit(self, nbytes: int, run: Hashable) -> None:
        """Hold arrays to what was planned, from here on; panels of other runs are let go."""

    def forget(self) -> None:
        """Let go of all panels that are kept."""

    def load(self, state: State, resident: Collection[str]) -> State:
        """Sums of a stream, with those that are computed with where buffers are."""

    def unload(self, state: State) -> State:
        """Sums of a stream, all of them on the host."""


def runs_on_device(kernels: Iterable[Kernel]) -> bool:
    """Whether every kernel of a fold has a body for a device; one that names none stays on the host."""
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
    """A buffer, or the memory of somebody else."""

    __slots__ = ("staged",)

    def __init__(self, staged: Array) -> None:
        self.staged = staged

    def recall(self, name: Hashable) -> bool:
        """Nothing is kept."""
        return False

    def room(self, shape: tuple[int, ...]) -> Array:
        """See ``Slot``."""
        return self.staged

    def lend(self, panel: Array) -> None:
        """See ``Slot``."""
        self.staged = panel

    def send(self, name: Hashable = None) -> None:
        """Nothing moves."""

    def array(self) -> Array:
        """See ``Slot``."""
        return self.staged

    def release(self) -> None:
        """What was asked for is done."""


class Host:
    """The memory of the process: nothing moves."""

    name = "cpu"
    writes_over_panels = True

    def core_type(self) -> str:
        """See ``Device``."""
        return core_type()

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """A buffer on a cache line."""
        return aligned_empty(shape, dtype)

    def place(self, array: Array, dtype: npt.DTypeLike) -> Array:
        """See ``Device``."""
        return np.ascontiguousarray(array, dtype)

    def bring(self, array: Array) -> Array:
        """See ``Device``."""
        return array

    def slot(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Slot:
        """See ``Device``."""
        return HostSlot(aligned_empty(shape, dtype))

    def fill(self, array: Array, read: Callable[[Array], None]) -> None:
        """See ``Device``."""
        read(array)

    def send(self, array: Array, receive: Callable[[Array], None]) -> None:
        """See ``Device``."""
        receive(array)

    def holds(self, flag: Any, otherwise: Callable[[], None]) -> bool:
        """See ``Device``."""
        if not flag:
            otherwise()
        return bool(flag)

    def settle(self) -> None:
        """All has arrived."""

    def limit(self, nbytes: int, run: Hashable) -> None:
        """Memory of the host is watched elsewhere."""

    def forget(self) -> None:
        """Nothing is kept."""

    def load(self, state: State, resident: Collection[str]) -> State:
        """See ``Device``."""
        return state

    def unload(self, state: State) -> State:
        """See ``Device``."""
        return state


HOST = Host()


@functools.cache
def cuda() -> Device:
    """The device of this process; taken when it is first asked for."""
    from rankfold.pipeline.gpu import Cuda

    device: Device = Cuda()
    renew_baseline()  # the driver keeps memory of the host for each process that uses a device
    return device


@dataclass(frozen=True, slots=True)
class Report:
    """What tasks say of the processes they ran in."""

    cores: frozenset[tuple[str, str]]
    """Kinds of devices, and what the last bits on each depend on."""

    peak_bytes: int

    def __or__(self, other: Report) -> Report:
        return Report(self.cores | other.cores, max(self.peak_bytes, other.peak_bytes))

    @staticmethod
    def of(reports: Iterable[Report]) -> Report:
        """Of all that they tell of."""
        return functools.reduce(operator.or_, reports)


def refuse_mixed(report: Report) -> None:
    """Raise where cores differ in the last bits that they give."""
    for kind in {kind for kind, _ in report.cores}:
        cores = sorted(core for each, core in report.cores if each == kind)
        if len(cores) > 1:
            raise PlanError(
                f"workers ran different BLAS kernels ({'; '.join(cores)}), which differ in the last bits. "
                "Use nodes of one type, or pin the kernels of the host: export OPENBLAS_CORETYPE=Haswell"
            )
