"""The modules ``cupy``, ``cupyx`` and ``cupy_backends`` of the stand-in."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rankfold.kernels import _dispatch
from stand_in import cublas
from stand_in.arrays import OutOfMemoryError, call, inside, ndarray, outside, require_known, spoil
from stand_in.compiler import RawModule
from stand_in.streams import COUNTS, Counts, Event, Stream, current_stream

NAMES = Path(__file__).with_name("names.txt")
"""Functions of NumPy that CuPy has, with the arguments that it takes."""

MAKERS = ("arange", "empty", "eye", "full", "identity", "linspace", "ones", "zeros")
DEVICE_BYTES = 80 << 30


@functools.cache
def _names() -> dict[str, set[str]]:
    lines = (line.partition(":") for line in NAMES.read_text().splitlines())
    return {name: set(arguments.split()) for name, _, arguments in lines}


def known_arguments(name: str) -> set[str] | None:
    """Arguments that a function takes by name, or None if CuPy does not have it."""
    return _names().get(name)


class Functions(types.ModuleType):
    """``cupy``, or a module of it, as far as it has NumPy's functions."""

    def __init__(self, name: str, numpy: Any) -> None:
        super().__init__(name)
        self._numpy = numpy
        self._prefix = name.removeprefix("cupy").removeprefix(".")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(self._numpy, name):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        found = getattr(self._numpy, name)
        if isinstance(found, type) or not callable(found):
            return found
        if isinstance(found, np.ufunc):
            return functools.partial(_by_ufunc, found)
        path = f"{self._prefix}.{name}".lstrip(".")
        return lambda *args, **kwargs: _make(found, path, args, kwargs)


def _by_ufunc(ufunc: np.ufunc, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
    some: Any = next((each for each in inputs if isinstance(each, ndarray)), ndarray(()))
    return some.__array_ufunc__(ufunc, "__call__", *inputs, out=(out,), **kwargs)


def _make(function: Any, name: str, args: Any, kwargs: Any) -> Any:
    if name not in MAKERS:
        return call(function, name, args, kwargs)
    require_known(name, kwargs, None)
    made = outside(np.asarray(function(*inside(args), **kwargs)))
    if name == "empty":
        spoil(inside(made))
    return made


def asarray(a: Any, dtype: Any = None, order: str | None = None, **_: Any) -> ndarray:
    """On the device; from the host, counted."""
    if isinstance(a, ndarray):
        return a if dtype is None or a.dtype == dtype else a.astype(dtype)  # type: ignore[attr-defined, no-any-return]
    made = np.array(a, dtype)
    COUNTS.up += made.nbytes
    return outside(made)  # type: ignore[no-any-return]


def array(a: Any, dtype: Any = None, **_: Any) -> ndarray:
    """A copy on the device."""
    return asarray(a, dtype).copy() if isinstance(a, ndarray) else asarray(a, dtype)  # type: ignore[attr-defined, no-any-return]


def empty_pinned(shape: Any, dtype: Any = float, order: str = "C") -> Any:
    """Host memory that copies need not pass through another buffer from."""
    made = np.empty(shape, dtype, order)  # type: ignore[call-overload]
    spoil(made)
    COUNTS.pinned_bytes += made.nbytes
    return made


class PinnedMemory:
    """Host memory that copies need not pass through another buffer from."""

    def __init__(self, size: int, flags: int = 0) -> None:
        self.array = np.empty(size, np.uint8)
        self.array[...] = 0xFF  # not a number in any type of floats
        COUNTS.pinned_bytes += size


def pinned_pointer(memory: PinnedMemory, offset: int) -> Any:
    """What ``np.frombuffer`` takes; CuPy's is of a class of its own."""
    return memory.array[offset:].data


class MemoryPool:
    """Of the device."""

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Bytes from which allocations fail."""
        COUNTS.limit = size or 0

    def get_limit(self) -> int:
        """See ``set_limit``."""
        return COUNTS.limit

    def used_bytes(self) -> int:
        """In arrays."""
        return COUNTS.bytes_now

    total_bytes = used_bytes

    def free_all_blocks(self, stream: Any = None) -> None:
        """Nothing is kept here."""


class Device:
    """The one there is."""

    compute_capability = "90"
    mem_info = (DEVICE_BYTES, DEVICE_BYTES)

    def __init__(self, device: int = 0) -> None:
        self.id = device

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to go back to."""

    def use(self) -> None:
        """There is no other."""

    def synchronize(self) -> None:
        """Wait for what this thread has asked for."""
        current_stream().synchronize()


def _cuda() -> types.ModuleType:
    cuda = types.ModuleType("cupy.cuda")
    pool = MemoryPool()
    runtime = types.SimpleNamespace(
        CUDA_R_32F=0,
        CUDA_R_64F=1,
        CUDARuntimeError=RuntimeError,
        getDeviceCount=lambda: 1,
        getDeviceProperties=lambda device: {
            "name": b"stand-in",
            "multiProcessorCount": 1,
            "major": 9,
            "minor": 0,
            "sharedMemPerBlockOptin": 227 << 10,
        },
        driverGetVersion=lambda: 13000,
        runtimeGetVersion=lambda: 13000,
    )
    members = {
        "Stream": Stream,
        "Event": Event,
        "Device": Device,
        "MemoryPool": MemoryPool,
        "PinnedMemory": PinnedMemory,
        "PinnedMemoryPointer": pinned_pointer,
        "OutOfMemoryError": OutOfMemoryError,
        "memory": types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        "device": types.SimpleNamespace(get_cublas_handle=lambda: 1),
        "get_current_stream": current_stream,
        "runtime": runtime,
        "pool": pool,
    }
    vars(cuda).update(members)
    return cuda


def modules() -> dict[str, types.ModuleType]:
    """By name."""
    cupy, cuda = Functions("cupy", np), _cuda()
    vars(cupy).update(
        ndarray=ndarray,
        asarray=asarray,
        array=array,
        cuda=cuda,
        RawModule=RawModule,
        __version__="0.stand-in",
    )
    vars(cupy).update(
        linalg=Functions("cupy.linalg", np.linalg),
        get_default_memory_pool=lambda: cuda.pool,
        asnumpy=lambda a, stream=None, order="C", out=None, blocking=True: a.get(
            stream, order, out, blocking
        ),
        get_array_module=lambda *args: cupy if any(isinstance(each, ndarray) for each in args) else np,
    )
    cupyx, libs = types.ModuleType("cupyx"), types.ModuleType("cupy_backends.cuda.libs")
    vars(cupyx).update(empty_pinned=empty_pinned)
    vars(libs).update(cublas=cublas)
    named = {"cupy": cupy, "cupy.cuda": cuda, "cupy.linalg": cupy.linalg, "cupyx": cupyx}
    backends = {name: types.ModuleType(name) for name in ("cupy_backends", "cupy_backends.cuda")}
    return {**named, **backends, "cupy_backends.cuda.libs": libs}


@contextlib.contextmanager
def installed(*, late: bool = True, limit: int = 0) -> Iterator[Counts]:
    """Have ``import cupy`` give the stand-in; what is counted starts at nothing."""
    named = modules()
    before = {name: sys.modules.get(name) for name in named}
    _forget_bodies()
    sys.modules.update(named)
    vars(COUNTS).update(vars(Counts(late=late, limit=limit, stand_in=COUNTS.stand_in + 1)))
    Stream.null = Stream()
    try:
        yield COUNTS
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
        _forget_bodies()


def _forget_bodies() -> None:
    """Bodies that hold another ``cupy`` are loaded again."""
    for name in [name for name in sys.modules if name.startswith("rankfold.kernels.") and ".gpu" in name]:
        del sys.modules[name]
    _dispatch.implementation.cache_clear()
    device = sys.modules.get("rankfold.pipeline.engine.device")
    if device is not None:
        device.cuda.cache_clear()
