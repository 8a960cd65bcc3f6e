"""Kernels in CUDA C++, compiled for the CPU: see ``cuda_on_cpu.h``."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from stand_in.arrays import ndarray

HEADER = Path(__file__).with_name("cuda_on_cpu.h")
FOLDER = Path(__file__).parents[2] / ".pytest_cache" / "kernels"
"""Where libraries are kept for later processes."""

FLAGS = ("-std=c++17", "-fPIC", "-shared", "-ffp-contract=off", "-Wall", "-Werror", "-Wno-unknown-pragmas")
ORDERS = ("together", "ahead", "dice")


class Choice:
    """Which threads run first, and how kernels are compiled."""

    order = "together"
    seed = 0
    flags: tuple[str, ...] = ("-O2",)


class CompileException(Exception):
    """CuPy's."""


class _Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint64),
        ("shared_allowed", ctypes.c_uint64),
        ("order", ctypes.c_int),
        ("seed", ctypes.c_uint),
    )


class RawModule:
    """Kernels of a source text."""

    def __init__(
        self,
        *,
        code: str,
        options: tuple[str, ...] = (),
        backend: str = "nvrtc",
        name_expressions: tuple[str, ...] = (),
    ) -> None:
        self._symbols = {name: f"kernel_{i}" for i, name in enumerate(name_expressions)}
        exports = "\n".join(f"KERNEL_ON_CPU({symbol}, ({name}))" for name, symbol in self._symbols.items())
        self._text = f'#include "{HEADER}"\n{code}\n{exports}\n'
        self._library = library(self._text, Choice.flags)

    def get_function(self, name: str) -> RawKernel:
        """A kernel, by the expression that it was compiled for."""
        return RawKernel(name, getattr(self._library, self._symbols[name]), (self._text, name))


class RawKernel:
    """A kernel that can be launched. Modules of one text are one, and have one leave for shared memory."""

    leaves: ClassVar[dict[tuple[str, str], int]] = {}

    def __init__(self, name: str, symbol: Any, key: tuple[str, str]) -> None:
        self.name = name
        self._symbol, self._key = symbol, key

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        """Shared memory of a block, at most."""
        return self.leaves.get(self._key, 0)

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, nbytes: int) -> None:
        self.leaves[self._key] = nbytes

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...], *, shared_mem: int = 0
    ) -> None:
        values = [_value(each) for each in args]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(each) for each in values))
        sizes = (ctypes.c_uint * len(values))(*(ctypes.sizeof(each) for each in values))
        launch = _Launch(
            (ctypes.c_uint * 3)(*grid, *(1,) * (3 - len(grid))),
            (ctypes.c_uint * 3)(*block, *(1,) * (3 - len(block))),
            shared_mem,
            self.max_dynamic_shared_size_bytes,
            ORDERS.index(Choice.order),
            Choice.seed,
        )
        why = ctypes.create_string_buffer(400)
        if self._symbol(ctypes.byref(launch), pointers, sizes, len(values), why, ctypes.c_uint64(400)):
            raise RuntimeError(f"{self.name}: {why.value.decode()}")


def _value(argument: Any) -> Any:
    if isinstance(argument, ndarray):
        return ctypes.c_void_p(argument._memory.ctypes.data)
    if isinstance(argument, np.generic):
        return (ctypes.c_char * argument.itemsize).from_buffer_copy(argument.tobytes())
    if argument is None:
        return ctypes.c_void_p(0)
    raise TypeError(f"a kernel is given {type(argument).__name__}, which has no size of its own")


def missing_compiler() -> str | None:
    """Why kernels cannot be compiled here."""
    return None if shutil.which("g++") else "there is no g++, by which kernels of devices run on the CPU"


@functools.cache
def library(text: str, flags: tuple[str, ...]) -> Any:
    """Compiled, unless an earlier process has done that."""
    reason = missing_compiler()
    if reason:
        import pytest

        pytest.skip(reason)
    key = hashlib.blake2b(f"{text}{HEADER.read_text()}{flags}".encode(), digest_size=10).hexdigest()
    path = FOLDER / f"{key}.so"
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        source, part = path.with_suffix(f".{os.getpid()}.cpp"), path.with_suffix(f".{os.getpid()}.part")
        source.write_text(text)
        command = ["g++", *FLAGS, *flags, "-o", str(part), str(source)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise CompileException(ran.stderr)
        part.replace(path)
        source.unlink()
    return ctypes.CDLL(str(path))
