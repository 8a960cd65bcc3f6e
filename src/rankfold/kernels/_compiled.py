"""How every loop of these kernels is compiled, and kept for later processes.

numba keeps what it has compiled beside the source, numbered within an index. Two processes that compile
different signatures of a loop at once choose the same number, and whoever comes later is handed the loop of
other types: workers that share a home may do so at every first start. Here a name follows from the
signature, and the index tells of nothing that is not there. It may still forget one of two that are told at
once: then that one is compiled again. What cannot be kept, or has been damaged, costs time alone.

numba compares what it has kept with the file of the loop alone; here it is all of the kernels, since a loop
takes in what it calls, and constants.

Nor does numba keep processes alike. A loop holds a copy of what it calls, compiled together with it, and the
first process, which has compiled both, runs the one that was compiled alone; later ones run the copy. Where
sums may be reordered, or a product and a sum be one step, the two differ in last bits. So such loops become
part of whatever calls them, and no copy is left.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.dispatcher import Dispatcher

Loop = TypeVar("Loop", bound=Callable[..., Any])

KERNELS = Path(__file__).parent

SIGNATURES: list[str] = []
"""What this process has compiled, or is compiling: loops that were not kept."""

_COMPILING = event.TimingListener()  # type: ignore[no-untyped-call]
event.register("numba:compile", _COMPILING)  # type: ignore[no-untyped-call]


def compile_seconds() -> float:
    """Time that this process has spent on compiling loops; reading those that were kept is no part of it."""
    return float(_COMPILING.duration) if _COMPILING.done else 0.0


def compile_loop(function: Loop, *, fastmath: Any = False, called_from_python: bool = True) -> Loop:
    """A loop as machine code, which runs beside others and divides as NumPy does.

    What converts arguments from Python objects takes as long to compile as a short loop. A loop that only
    other loops call goes without, and none has an entry for C.
    """
    # In the dictionary are options that the types of numba do not name.
    wrappers: dict[str, Any] = {"no_cpython_wrapper": not called_from_python, "no_cfunc_wrapper": True}
    options: dict[str, Any] = {"fastmath": fastmath, "forceinline": bool(fastmath), **wrappers}
    loop: Any = numba.njit(nogil=True, error_model="numpy", **options)(function)
    # It is none where numba was told not to compile, and the cache raises where no folder takes it.
    if isinstance(loop, Dispatcher):
        with contextlib.suppress(RuntimeError):
            loop._cache = _LoopCache(function)  # type: ignore[attr-defined]
    return loop  # type: ignore[no-any-return]


compile_with_contraction = functools.partial(compile_loop, fastmath={"contract"})
"""The same of a loop in which a product and a sum may be one step; nothing is reordered."""

part = functools.partial(compile_loop, called_from_python=False)
"""A loop that other loops call, and Python never does."""

contracted_part = functools.partial(compile_with_contraction, called_from_python=False)
"""The same of a loop in which a product and a sum may be one step."""


@functools.cache
def _kernels() -> tuple[Any, ...]:
    """What tells these kernels from those of another time."""
    files = sorted(KERNELS.rglob("*.py"))
    return tuple((str(file.relative_to(KERNELS)), *_stamp(file)) for file in files)


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_mtime_ns, status.st_size


class _LoopCache(FunctionCache):
    """The compiled signatures of one loop."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._loop = f"{function.__module__}.{function.__qualname__}"
        of_loop = self._impl.locator.get_source_stamp()
        self._cache_file = _Files(  # type: ignore[no-untyped-call]
            self._cache_path, self._impl.filename_base, (of_loop, _kernels())
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The loop for a signature, or None."""
        try:
            loop = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001  # whatever a damaged pickle raises: it is made anew
            loop = None
        if loop is None:
            SIGNATURES.append(f"{self._loop}{sig}")
        return loop

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the loop for a signature, if the disk takes it."""
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


class _Files(IndexDataCacheFile):
    """Its files: an index, and one for each signature."""

    def save(self, key: Any, data: Any) -> None:
        """Write a file that no other signature has, and only then tell of it."""
        own = hashlib.blake2b(repr((self._source_stamp, key)).encode(), digest_size=8).hexdigest()
        name = self._index_name.removesuffix("nbi") + f"{own}.nbc"
        self._save_data(name, data)  # type: ignore[no-untyped-call]
        try:
            index = self._load_index()  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001  # damaged
            index = {}
        self._save_index({**index, key: name})  # type: ignore[no-untyped-call]
