"""One BLAS thread, everywhere and always: with two threads last bits differ, and not always in the same way.

A sweep (one run through the matrix) is parallel over its streams, row ranges that are accumulated
independently. The limit to one thread holds while a task runs. Its users are counted, so that nested and
concurrent ones share it; it is lifted when the last of them leaves.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

_LOCK = threading.Lock()
_USERS: list[Any] = []


@functools.cache
def _controller() -> Any:
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread in this process while the block runs."""
    with _LOCK:
        _USERS.append(None if _USERS else _controller().limit(limits=1))
    try:
        yield
    finally:
        with _LOCK:
            limiter = _USERS[0]
            _USERS.pop()
            if not _USERS and limiter is not None:
                limiter.restore_original_limits()


@functools.cache
def core_type() -> str:
    """Name of the BLAS library and of the processor family of its kernels, which decide the last bits."""
    cores = {
        f"{pool['internal_api']} {pool.get('version')} {pool.get('architecture', '')}".strip()
        for pool in _controller().info()
        if pool["user_api"] == "blas"
    }
    return ", ".join(sorted(cores)) or "unknown"
