"""Compile every loop of these kernels, and cache it for later processes.

numba stores compiled loops next to the source, in files numbered by an index. Two processes that compile
different signatures of a loop at once choose the same number, and a later process loads a loop of other
types: workers that share a home may do so at every first start. Here the file name follows from the
signature, and the index names a file only once it is written. Of two entries written at once the index may
lose one; that loop is then compiled again. A loop that cannot be stored, or a damaged file, costs only time.

numba validates a stored loop by the time and size of the loop's own file. Here the content of that file and
of all kernel files that it imports decides, since a loop includes the functions and constants that it uses.
The content is part of the name: with a folder in ``NUMBA_CACHE_DIR`` all installations, clones and branches
share the loops that are equal, and none replaces those of another.

With numba, processes may also differ. A stored loop holds a copy of each function that it calls. The first
process, which compiled both, runs the function that was compiled alone; later processes run the copy. Where
sums may be reordered, or a product and a sum fused into one step, the two differ in last bits. So such loops
are inlined into their callers, and no copy is left.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numba
from numba.core import event
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    InTreeCacheLocator,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
)
from numba.core.dispatcher import Dispatcher

Loop = TypeVar("Loop", bound=Callable[..., Any])

KERNELS = Path(__file__).parent

SIGNATURES: list[str] = []
"""Signatures of loops that this process has compiled or is compiling, since the cache did not hold them."""

_COMPILING = event.TimingListener()  # type: ignore[no-untyped-call]
event.register("numba:compile", _COMPILING)  # type: ignore[no-untyped-call]


def compile_seconds() -> float:
    """Seconds that this process has spent compiling loops, without the time to read stored ones."""
    return float(_COMPILING.duration) if _COMPILING.done else 0.0


def compile_loop(function: Loop, *, fastmath: Any = False, called_from_python: bool = True) -> Loop:
    """Compile a loop to machine code that releases the GIL and divides as NumPy does.

    ``fastmath`` is numba's option; a loop that has it is inlined into the loops that call it. The wrapper
    that converts Python arguments takes as long to compile as a short loop. A loop that only other loops call
    gets none (``called_from_python=False``), and no loop gets an entry point for C.
    """
    # A dictionary, since the types of numba do not name these options.
    wrappers: dict[str, Any] = {"no_cpython_wrapper": not called_from_python, "no_cfunc_wrapper": True}
    options: dict[str, Any] = {"fastmath": fastmath, "forceinline": bool(fastmath), **wrappers}
    loop: Any = numba.njit(nogil=True, error_model="numpy", **options)(function)
    # It is no dispatcher where numba was told not to compile; the cache raises where no folder is writable.
    if isinstance(loop, Dispatcher):
        with contextlib.suppress(RuntimeError):
            loop._cache = _LoopCache(function)  # type: ignore[attr-defined]
    return loop  # type: ignore[no-any-return]


compile_with_contraction = functools.partial(compile_loop, fastmath={"contract"})
"""Like ``compile_loop``, but a product and a sum may be fused into one step; nothing is reordered."""

part = functools.partial(compile_loop, called_from_python=False)
"""Compile a loop that only other loops call, never Python."""

contracted_part = functools.partial(compile_with_contraction, called_from_python=False)
"""Like ``part``, but a product and a sum may be fused into one step."""


@functools.cache
def content_key(file: Path) -> str:
    """Hexadecimal digest of a Python file and of the kernel files that it imports, directly or not.

    Each file is read once in a process, however many loops it has.
    """
    found, left = {file}, [file]
    while left:
        added = _read(left.pop()).imported - found
        found |= added
        left += added
    digests = sorted((str(each.relative_to(KERNELS)), _read(each).digest) for each in found - {file})
    return hashlib.blake2b(repr((_read(file).digest, digests)).encode(), digest_size=12).hexdigest()


class _Source(NamedTuple):
    """Digest of a Python file, and the kernel files that it imports."""

    digest: str
    imported: frozenset[Path]


@functools.cache
def _read(file: Path) -> _Source:
    content, names = file.read_bytes(), set[str]()
    for module, after in _IMPORT.findall(content):
        names |= {module.decode(), *(f"{module.decode()}.{name.decode()}" for name in _NAME.findall(after))}
    stems = (KERNELS.joinpath(*name.split(".")[2:]) for name in names)
    files = (each for stem in stems for each in (stem.with_suffix(".py"), stem / "__init__.py"))
    return _Source(hashlib.blake2b(content).hexdigest(), frozenset(each for each in files if each.is_file()))


_IMPORT = re.compile(
    rb"^\s*(?:from|import) (rankfold\.kernels[\w.]*)(?: import (\([^)]*\)|.*))?", re.MULTILINE
)
_NAME = re.compile(rb"\w+")


class _SharedFolder(UserProvidedCacheLocator):
    """One folder for the loops of all installations, if ``NUMBA_CACHE_DIR`` names one."""

    def get_cache_path(self) -> str:
        return str(Path(numba.config.CACHE_DIR, "rankfold"))  # type: ignore[attr-defined]


class _Places(CompileResultCacheImpl):
    """Candidate folders for compiled loops; the first writable one is used."""

    _locator_classes = [_SharedFolder, InTreeCacheLocator, UserWideCacheLocator]  # noqa: RUF012


class _LoopCache(FunctionCache):
    """Cache of the compiled signatures of one loop."""

    _impl_class = _Places

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._loop = f"{function.__module__}.{function.__qualname__}"
        key = content_key(Path(function.__code__.co_filename))
        name = f"{self._impl.filename_base}-{numba.__version__}-{key}"
        self._cache_file = _Files(self._cache_path, name, key)  # type: ignore[no-untyped-call]

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Stored loop for signature ``sig``, or None; one that is not stored is added to ``SIGNATURES``."""
        try:
            loop = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001  # whatever a damaged pickle raises: the loop is compiled again
            loop = None
        if loop is None:
            SIGNATURES.append(f"{self._loop}{sig}")
        return loop

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store ``data``, the compiled loop of signature ``sig``, if the disk accepts it."""
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


class _Files(IndexDataCacheFile):
    """Files of the cache of one loop: an index, and one for each signature."""

    def save(self, key: Any, data: Any) -> None:
        """Write ``data``, the compiled loop of signature ``key``, and only then enter its file in the index.

        No other signature has a file of that name.
        """
        own = hashlib.blake2b(repr((self._source_stamp, key)).encode(), digest_size=8).hexdigest()
        name = self._index_name.removesuffix("nbi") + f"{own}.nbc"
        self._save_data(name, data)  # type: ignore[no-untyped-call]
        try:
            index = self._load_index()  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001  # damaged
            index = {}
        self._save_index({**index, key: name})  # type: ignore[no-untyped-call]
