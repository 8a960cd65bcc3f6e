"""A GPU through CuPy: its detection, and arrays there; implements the protocols of ``engine/device.py``.

A panel is the rows of a matrix that are in memory at a time. Panels are read into pinned host memory, copied
to the GPU on a CUDA stream for copies, and kept there for the next pass if there is room.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection, Hashable
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import DeviceError
from rankfold.pipeline.units import format_bytes

Array = npt.NDArray[Any]
State = dict[str, Array]

INSTALL = "pip install 'cupy-cuda13x[ctk]>=14'"

LEAST_CAPABILITY = 80
"""Compute capability, times ten, of the oldest devices that kernels are compiled for: A100."""


def count_devices() -> int:
    """Number of devices that CuPy finds, without initializing one."""
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount())
    except Exception:  # noqa: BLE001 - ``require_device`` reports why, if one is wanted
        return 0


def require_device() -> Any:
    """Import CuPy, check that it finds a device and that a product computed there is right; returns CuPy.

    Raises
    ------
    DeviceError
        CuPy, a device, a driver or a library is missing; the message says what to install.
    """
    leave = "or leave out device='gpu' (--device gpu)"
    try:
        import cupy
    except ImportError as error:
        raise DeviceError(
            f"a GPU is computed on by CuPy, which cannot be loaded ({error}): {INSTALL}, {leave}"
        ) from error
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:
        raise DeviceError(
            f"CuPy finds no NVIDIA GPU: {error}. Look at nvidia-smi and CUDA_VISIBLE_DEVICES, install a "
            f"driver for CUDA 13 (for CUDA 12: pip install 'cupy-cuda12x[ctk]>=14'), {leave}"
        ) from error
    if not count:
        raise DeviceError(f"CuPy finds no NVIDIA GPU: look at CUDA_VISIBLE_DEVICES, {leave}")
    capability = int(cupy.cuda.Device(0).compute_capability)
    if capability < LEAST_CAPABILITY:
        raise DeviceError(
            f"the GPU has compute capability {capability / 10}, and kernels need {LEAST_CAPABILITY / 10} "
            f"(A100 or newer): take another, {leave}"
        )
    try:
        ones = cupy.ones((2, 2))  # NVRTC compiles a kernel for it
        product = float((ones @ ones)[0, 0])
    except Exception as error:
        raise DeviceError(
            f"CuPy cannot multiply on the GPU: {error}. cupy-cuda13x alone brings neither cuBLAS nor NVRTC: "
            f"{INSTALL}, {leave}"
        ) from error
    if product != 2.0:
        raise DeviceError(f"the GPU multiplies wrong: take another, {leave}")
    return cupy


# Arrays -------------------------------------------------------------------------------------------

LIBRARY_BYTES = 96 * 2**20
"""Bytes of device memory reserved for the workspaces of cuBLAS and cuSOLVER."""

POOL_SHARE = 0.25
"""Share of the planned memory that is added to the limit of CuPy's pool, to allow for fragmentation."""

KEPT_SHARE = 0.9
"""Share of the memory of a device that kept panels and the planned memory may take together."""


class CudaSlot:
    """Buffer for one panel at a time: pinned host memory to read it into, and as much memory on the device.

    A panel is read once the copy of the panel before is done. It is copied once the kernels that need the
    panel before are done. Both buffers are contiguous for any panel shape, since only such copies are fast.
    """

    def __init__(self, cuda: Cuda, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self._cuda = cuda
        size = int(np.prod(shape))
        self._pinned = cuda.pinned((size,), dtype)
        self._room = cuda.empty_for_copies((size,), dtype)
        self._staged: Array | None = self._pinned
        self._twin: Any = self._room
        self._copied: Any = None
        """Event: the panel has been copied to the device."""

        self._read: Any = None
        """Event: the pinned memory has been copied to the device, and may be overwritten."""

        self._done: Any = cuda.stream().record()
        """Event: kernels no longer read the device buffer, nor whatever used its memory before."""

    @property
    def staged(self) -> Array:
        """The panel on the host; if it was kept on the device, a copy from there."""
        if self._staged is None:
            return self._twin.get()  # type: ignore[no-any-return]
        return self._staged

    def recall(self, name: Hashable) -> bool:
        """Use the panel that is kept on the device under the key ``name``; returns False if there is none."""
        panel = self._cuda.kept.get(name)
        if panel is not None:
            self._staged, (self._twin, self._copied) = None, panel
        return panel is not None

    def room(self, shape: tuple[int, ...]) -> Array:
        """Pinned buffer to read a panel of that shape into; waits until the panel before has been copied."""
        if self._read is not None and not self._read.done:
            self._read.synchronize()
        self._staged = self._pinned[: int(np.prod(shape))].reshape(shape)
        return self._staged

    def lend(self, panel: Array) -> None:
        """Use a panel in the caller's memory instead of reading one; copied only if it is not contiguous."""
        self._staged = panel if panel.flags.c_contiguous else np.ascontiguousarray(panel)

    def send(self, name: Hashable = None) -> None:
        """Copy the panel to the device; if there is room, keep it for later passes under key ``name``."""
        staged, copies = self.staged, self._cuda.copies
        kept = None if name is None else self._cuda.room_to_keep(staged)
        grows = kept is None and staged.size > self._room.size
        if grows:
            self._room = self._cuda.empty_for_copies((staged.size,), staged.dtype)
        if kept is not None or grows:
            # Memory is reused as soon as it has no reference: the copy waits for kernels that may still read
            # its old content.
            copies.wait_event(self._cuda.stream().record())
        else:
            copies.wait_event(self._done)
        self._twin = self._room[: staged.size].reshape(staged.shape) if kept is None else kept
        self._twin.set(staged, stream=copies)
        self._copied = self._read = copies.record()
        if kept is not None:
            self._cuda.kept[name] = self._twin, self._copied

    def array(self) -> Array:
        """The panel on the device; kernels of the current stream wait until it has been copied."""
        self._cuda.stream().wait_event(self._copied)
        return self._twin  # type: ignore[no-any-return]

    def release(self) -> None:
        """Allow the device buffer to be overwritten once the kernels started so far are done."""
        self._done = self._cuda.stream().record()


class Cuda:
    """The first device that this process sees, through CuPy.

    All kernels go to one stream, in the order of the calls, so results have the same bits each time.
    """

    name = "gpu"
    writes_over_panels = False

    def __init__(self) -> None:
        self._cupy = require_device()
        self.copies = self._cupy.cuda.Stream(non_blocking=True)
        self._sent: list[tuple[Array, Callable[[Array], None]]] = []
        self._idle: dict[tuple[tuple[int, ...], np.dtype[Any]], list[Array]] = {}
        self._busy: list[Array] = []
        self.kept: dict[Hashable, tuple[Any, Any]] = {}
        """Panels kept for the next pass of this run, by name: (array on the device, event of its copy)."""

        self._run: Hashable = None
        self._planned = self._capacity = self.kept_bytes = 0
        self._gate = threading.Lock()

    @functools.cached_property
    def _core_type(self) -> str:
        from cupy_backends.cuda.libs import cublas

        device = self._cupy.cuda.device
        facts = self._cupy.cuda.runtime.getDeviceProperties(0)
        version = cublas.getVersion(device.get_cublas_handle())
        units = f"{facts['multiProcessorCount']} multiprocessors"
        return f"{facts['name'].decode()} of {units}, cuBLAS {version}, CuPy {self._cupy.__version__}"

    def core_type(self) -> str:
        """Text with what decides the last bits of results: model, number of multiprocessors, and libraries.

        A part of a device (MIG) has fewer multiprocessors.
        """
        return self._core_type

    def stream(self) -> Any:
        """The CUDA stream that kernels run in."""
        return self._cupy.cuda.get_current_stream()

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An uninitialized array on the device."""
        return self._cupy.empty(shape, dtype)  # type: ignore[no-any-return]

    def empty_for_copies(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Allocate a buffer on the device that panels are copied to.

        It may live as long as a run, so it comes from the memory pool of the stream for copies. In the pool
        of the kernels it could occupy a part of a larger block, whose rest kernels could then not use.
        """
        with self.copies:
            return self.empty(shape, dtype)

    def pinned(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Pinned host memory for copies, of exact size; CuPy's pool would round up to a power of two."""
        count, dtype = int(np.prod(shape)), np.dtype(dtype)
        if not count:
            return np.empty(shape, dtype)
        memory = self._cupy.cuda.PinnedMemoryPointer(self._cupy.cuda.PinnedMemory(count * dtype.itemsize), 0)
        return np.frombuffer(memory, dtype, count).reshape(shape)

    def place(self, array: Array, dtype: npt.DTypeLike) -> Array:
        """Copy an array of the host to the device, as ``dtype``."""
        return self._cupy.asarray(np.ascontiguousarray(array, dtype))  # type: ignore[no-any-return]

    def bring(self, array: Array) -> Array:
        """Copy an array of the host to the device."""
        return self.place(array, array.dtype)

    def slot(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> CudaSlot:
        """A buffer, on host and device, for panels of up to as many values as ``shape`` has."""
        return CudaSlot(self, shape, dtype)

    def fill(self, array: Array, read: Callable[[Array], None]) -> None:
        """Fill an array on the device with what ``read`` writes into pinned memory."""
        room = self._take(array)
        read(room)
        array.set(room, stream=self.stream())  # type: ignore[attr-defined]

    def send(self, array: Array, receive: Callable[[Array], None]) -> None:
        """Copy an array to the host; ``settle`` then calls ``receive`` with it."""
        whole: Any = self._cupy.ascontiguousarray(array)
        room = self._take(whole)
        whole.get(stream=self.stream(), out=room, blocking=False)
        self._sent.append((room, receive))

    def holds(self, flag: Any, otherwise: Callable[[], None]) -> bool:
        """Return True at once; ``settle`` calls ``otherwise`` if the flag proves False."""
        self.send(flag, lambda answer: None if answer else otherwise())
        return True

    def settle(self) -> None:
        """Wait for the stream, then call ``receive`` of every ``send`` with its array on the host."""
        if self._busy:
            self.stream().synchronize()
        messages, self._sent = self._sent, []
        busy, self._busy = self._busy, []
        for room, receive in messages:
            receive(room)
        for room in busy:
            self._idle.setdefault((room.shape, room.dtype), []).append(room)

    def limit(self, nbytes: int, run: Hashable) -> None:
        """Limit memory on the device to planned ``nbytes`` plus kept panels; free panels of runs but ``run``.

        A wrong formula for planned memory then fails at once, and not only when the device is full.
        """
        self.copies.synchronize()  # copies of an interrupted segment, into panels that may be freed now
        self.stream().synchronize()
        if self._busy:  # a segment was interrupted: its messages are dropped
            self._sent.clear()
            self.settle()
        if run != self._run:
            self.forget()
        pool, free = self._cupy.get_default_memory_pool(), int(self._cupy.cuda.Device().mem_info[0])
        room = free + pool.total_bytes() - LIBRARY_BYTES
        self._run, self._planned, self._capacity = run, nbytes, room
        while self.kept and nbytes + self.kept_bytes > room:
            self.kept_bytes -= self.kept.popitem()[1][0].nbytes
        if nbytes > room:
            raise DeviceError(
                f"a segment takes {format_bytes(nbytes)} of the GPU, which has {format_bytes(max(room, 0))} "
                "free: see with nvidia-smi who uses it, or take one with more memory"
            )
        self._set_limit()

    def _set_limit(self) -> None:
        most = self._planned + self.kept_bytes + int(POOL_SHARE * self._planned) + LIBRARY_BYTES
        self._cupy.get_default_memory_pool().set_limit(size=most)

    def room_to_keep(self, panel: Array) -> Any:
        """An uninitialized array on the device, to keep a panel in; None if no memory is left for it."""
        with self._gate:
            kept_bytes = self.kept_bytes + panel.nbytes
            if self._planned + kept_bytes > KEPT_SHARE * self._capacity:
                return None
            self.kept_bytes = kept_bytes
            self._set_limit()
            try:
                return self.empty_for_copies(panel.shape, panel.dtype)
            except self._cupy.cuda.memory.OutOfMemoryError:  # others use the device too
                self.kept_bytes -= panel.nbytes
                self._set_limit()
                return None

    def forget(self) -> None:
        """Free all kept panels and buffers, and lift the memory limit."""
        self.kept.clear()
        self._idle.clear()
        self.kept_bytes = 0
        self._cupy.get_default_memory_pool().set_limit(size=0)  # no limit, for other code in this process

    def load(self, state: State, resident: Collection[str]) -> State:
        """Copy the arrays of a state (accumulators by name) that ``resident`` names to the device.

        The others stay on the host.
        """
        return {name: self._cupy.asarray(a) if name in resident else a for name, a in state.items()}

    def unload(self, state: State) -> State:
        """Copy all arrays of a state (accumulators by name) to the host."""
        return {name: self._cupy.asnumpy(a) if hasattr(a, "get") else a for name, a in state.items()}

    def _take(self, like: Array) -> Array:
        """Pinned host memory of the shape and type of an array, reserved until ``settle``."""
        idle = self._idle.get((like.shape, like.dtype))
        room: Array = idle.pop() if idle else self.pinned(like.shape, like.dtype)
        self._busy.append(room)
        return room
