"""Compile and load the code of a run before it begins.

So the memory baseline (what a process takes before it works) includes the code, and no sweep through the data
waits for it. ``Method.loops`` names the function that runs each compiled loop of a method once, on a few
numbers of the types that its sweeps use. Loops over columns, which most methods use, are here.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from rankfold.kernels._dispatch import FEW
from rankfold.kernels.linear.center_scale import measure, subtract
from rankfold.kernels.linear.count_sketch import add_to_buckets
from rankfold.kernels.linear.dense import leading_eigenpairs
from rankfold.kernels.linear.qr import panel_r
from rankfold.methods.parts.panels import numbers
from rankfold.methods.registry import METHODS
from rankfold.pipeline.data.real_parts import parts_dtype
from rankfold.pipeline.data.view import working_dtype

LOG = logging.getLogger("rankfold")

TELL_SECONDS = 1.0
"""Seconds of compiling after which a message announces it. Kernels are compiled once after an
installation."""

TICK_SECONDS = 0.1
"""Seconds between two checks whether anything has been compiled."""

NEWS = "compiling kernels, once after an installation"


@dataclass(frozen=True, slots=True)
class MethodWarmup:
    """Compiles and loads the code of a method in a process before it works for a run: a ``Warmup``."""

    dtype: np.dtype[Any]
    """Type of the elements of the matrix."""

    request: dict[str, Any]
    """Request, and facts that loops depend on in addition (``Task.loops``). A step of a chain that is no
    method itself names one in ``loops_of``, whose loops it uses."""

    shape: tuple[int, int]

    def timed(self) -> tuple[float, float]:
        """Call ``warm``; returns seconds spent on compiling, and seconds spent on everything else."""
        began, compiled = time.perf_counter(), _compile_seconds()
        self.warm()
        compiling = _compile_seconds() - compiled
        return compiling, max(0.0, time.perf_counter() - began - compiling)

    def warm(self) -> None:
        """Run each compiled loop of the method once, and announce the compiling if it takes long."""
        with _Announcement():
            _warm_libraries()
            kind = self.request.get("loops_of", self.request["kind"])
            warm = METHODS[kind].warm if kind in METHODS else warm_columns
            warm(self.dtype, self.request, self.shape)


class _Announcement:
    """Context that announces the compiling of kernels within it, once that takes ``TELL_SECONDS``."""

    def __enter__(self) -> threading.Thread:
        self._end, self._before = threading.Event(), _compilations()
        watch = threading.Thread(target=self._watch, daemon=True)
        watch.start()
        return watch

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()

    def _watch(self) -> None:
        while _compilations() == self._before:
            if self._end.wait(TICK_SECONDS):
                return
        if not self._end.wait(TELL_SECONDS):
            _announce_compiling()


@functools.cache
def _announce_compiling() -> None:
    """Announce that kernels are compiled, only once per process."""
    announce(NEWS)


def _compilations() -> int:
    """Number of loops compiled in this process so far; 0 if numba is not loaded."""
    loops = sys.modules.get("rankfold.kernels._compiled")
    return len(getattr(loops, "SIGNATURES", ()))


def _compile_seconds() -> float:
    """Seconds spent on compiling loops in this process so far; 0 if numba is not loaded."""
    loops = sys.modules.get("rankfold.kernels._compiled")
    return 0.0 if loops is None else float(loops.compile_seconds())


def announce(news: str) -> None:
    """Show the text ``news``: in the log, else on a terminal or in a notebook, else nowhere."""
    if LOG.isEnabledFor(logging.INFO) and LOG.hasHandlers():
        LOG.info(news)
    elif sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules):
        print(f"rankfold: {news}", file=sys.stderr, flush=True)


# Columns ------------------------------------------------------------------------------------------


@functools.cache
def _warm_libraries() -> None:
    import zarr  # noqa: F401

    leading_eigenpairs(np.eye(4), 1)
    panel_r(np.ones((8, 4)))


def _many(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Zeros (rows, 64), just large enough that cheap kernels run compiled code, not NumPy."""
    return np.zeros((FEW // 64 + 1, 64), dtype)


@functools.cache
def _warm_panels(dtype: np.dtype[Any], working: np.dtype[Any]) -> None:
    x, vector = numbers(_many(dtype)), np.ones(64)
    measure(x, vector, 1.0)
    measure(_many(working), vector, 1.0)
    subtract(x, vector, vector, out=_many(working))


@functools.cache
def _warm_double(dtype: np.dtype[Any], working: np.dtype[Any]) -> None:
    vector = np.ones(64)
    subtract(numbers(_many(dtype)), vector, vector, out=_many(np.dtype(np.float64)))


@functools.cache
def _warm_buckets(dtype: np.dtype[Any], working: np.dtype[Any]) -> None:
    d = _many(working)
    for rows in (d, np.asfortranarray(d)):
        factors, sums = np.ones(len(rows), rows.dtype), np.zeros((1, 64), rows.dtype)
        add_to_buckets(rows, np.zeros(len(rows), np.int64), factors, sums=sums)


def warm_columns(
    dtype: np.dtype[Any],
    request: dict[str, Any],
    shape: tuple[int, int],
    *,
    loops: tuple[str, ...] = ("panels", "double"),
    working: np.dtype[Any] | None = None,
) -> None:
    """Run the compiled loops over columns of a matrix once; a small matrix needs none, as NumPy handles it.

    Parameters
    ----------
    dtype, request, shape
        Type of the matrix, request (not used), and shape (m, n) of the matrix.
    loops : tuple of str
        ``"panels"``: loops that convert panels (rows in memory) to the working type; ``"double"``: to double
        precision; ``"buckets"``: the loop that sums rows in buckets (count sketch).
    working : dtype, optional
        Type used for computing; by default it follows from the type of the matrix.
    """
    if shape[0] * shape[1] <= FEW:
        return
    dtype = parts_dtype(dtype)
    for name in loops:
        _COLUMNS[name](dtype, working or working_dtype(dtype))


_COLUMNS = {"panels": _warm_panels, "double": _warm_double, "buckets": _warm_buckets}
