"""Kernels in CUDA C++: a ``.cu`` file beside its Python body, compiled when it is first called.

CuPy keeps what it has compiled for later processes (``CUPY_CACHE_DIR``).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import cupy
import numpy as np

Array = Any

C_TYPES = {
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
    np.dtype(np.int8): "signed char",
    np.dtype(np.uint8): "unsigned char",
    np.dtype(np.int16): "short",
    np.dtype(np.uint16): "unsigned short",
    np.dtype(np.int32): "int",
    np.dtype(np.uint32): "unsigned int",
    np.dtype(np.int64): "i64",
    np.dtype(np.uint64): "unsigned long long",
}
OPTIONS = ("-std=c++17",)
SMALL_BYTES = 48 << 10
"""Bytes of shared memory that a block of threads may use without opting in."""


@dataclass(slots=True)
class _Kernel:
    function: Any
    shared_bytes: int = SMALL_BYTES
    """Bytes of shared memory that the function has opted in to; the last opt-in counts."""


@functools.cache
def _kernel(package: str, file: str, name: str) -> _Kernel:
    code = source(package, file)
    return _Kernel(cupy.RawModule(code=code, options=OPTIONS, name_expressions=(name,)).get_function(name))


def source(package: str, file: str) -> str:
    """Text of ``file.cu`` of a package, after ``device.cuh`` and the headers (``.cuh``) of the package."""
    folder = files(package)
    names = sorted(each.name for each in folder.iterdir() if each.name.endswith(".cuh"))
    texts = [files(__package__).joinpath("device.cuh"), *map(folder.joinpath, [*names, f"{file}.cu"])]
    return "".join(each.read_text() for each in texts)


def launch(
    package: str,
    file: str,
    name: str,
    blocks: tuple[int, ...],
    threads: int,
    arguments: tuple[Any, ...],
    *,
    shared_bytes: int = 0,
) -> None:
    """Run a kernel of ``file.cu`` in a package on the stream of this thread.

    Parameters
    ----------
    name : str
        Function, or instance of a template such as ``f<float, 32>``.
    blocks, threads
        Shape of the grid of blocks, and number of threads of a block.
    arguments
        Device arrays and NumPy scalars, in the types of the kernel, which nothing checks.
    shared_bytes : int
        Dynamic shared memory of a block of threads.
    """
    kernel = _kernel(package, file, name)
    if shared_bytes > kernel.shared_bytes:
        kernel.function.max_dynamic_shared_size_bytes = kernel.shared_bytes = shared_bytes
    kernel.function(blocks, (threads,), arguments, shared_mem=shared_bytes)


@functools.cache
def shared_bytes_at_most() -> int:
    """Upper bound on the bytes of shared memory that a block of this device may opt in to."""
    return int(cupy.cuda.runtime.getDeviceProperties(0)["sharedMemPerBlockOptin"])


def blocks_of(count: int, size: int) -> int:
    """Number of blocks of ``size`` items that hold ``count`` items."""
    return -(-count // size)


def rows_whole(x: Array) -> Array:
    """The array, or a copy of it if its rows are not contiguous."""
    whole = x.shape[1] == 1 or x.strides[1] == x.itemsize
    return x if whole and x.strides[0] % x.itemsize == 0 else cupy.ascontiguousarray(x)


def row_pitch(x: Array) -> np.int64:
    """Number of elements from the start of one row to the next."""
    return np.int64(x.strides[0] // x.itemsize if len(x) > 1 else x.shape[1])
