"""Speed at which this machine multiplies and reads, measured once and kept: for predicted seconds only.

Processor time is measured, so that other processes on the machine do not count. These rates never influence
a result.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import astuple, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import DiskSpaceError, OutputError
from rankfold.pipeline.machine import core_type, one_blas_thread
from rankfold.pipeline.planning.seconds import Rates
from rankfold.pipeline.storage.checkpoint import load_json, save_json

SAMPLE_BYTES = 64 * 2**20

START_PROGRAM = """
import numpy as np
import rankfold
rankfold.svd(np.random.default_rng(0).random((200, 20)), 3)
"""
"""Program of a run on a tiny matrix: its time is what starting and ending any run takes."""

NOMINAL_START = 2.0
"""Processor seconds that are assumed for ``START_PROGRAM`` if they cannot be measured."""


def cached_rates() -> Rates:
    """Rates of this machine, from the user's cache folder or measured in a few seconds."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = home / "rankfold" / "rates.json"
    key = f"{platform.node()} {platform.machine()} {core_type()}"
    cache = load_json(path, dict) or {}
    numbers = cache.get(key)
    if (
        isinstance(numbers, list)
        and len(numbers) == len(fields(Rates))
        and all(_is_rate(rate) for rate in numbers)
    ):
        return Rates(*numbers)
    rates = measure_rates()
    with contextlib.suppress(OSError, OutputError, DiskSpaceError):
        path.parent.mkdir(parents=True, exist_ok=True)
        save_json(path, {**cache, key: list(astuple(rates))}, durable=False)
    return rates


def _is_rate(value: object) -> bool:
    return isinstance(value, int | float) and value > 0


def measure_rates() -> Rates:
    """Measure matrix products of typical size, and reads of a file in the page cache, on one core."""
    with one_blas_thread():
        return Rates(_flops(np.float32), _flops(np.float64), _read_bytes(), _start_seconds())


def _start_seconds() -> float:
    """Processor seconds of an interpreter that runs ``START_PROGRAM``: the smaller of two, as the first run
    may compile kernels.
    """
    command, best = [sys.executable, "-c", START_PROGRAM], math.inf
    for _ in range(2):
        begin = os.times()
        try:
            subprocess.run(command, capture_output=True, check=True, timeout=60)
        except (OSError, subprocess.SubprocessError):
            return NOMINAL_START
        end = os.times()
        times = (end.children_user - begin.children_user, end.children_system - begin.children_system)
        best = min(best, sum(times))
    return best


def _flops(dtype: npt.DTypeLike) -> float:
    shapes = ((1024, 2000), (2000, 64), (1024, 64), (2000, 64))
    d, q, y, z = (np.ones(shape, dtype) for shape in shapes)
    best = np.inf
    for _ in range(6):
        began = time.thread_time()
        np.matmul(d, q, out=y)
        np.matmul(d.T, y, out=z)
        best = min(best, time.thread_time() - began)
    return 4 * d.size * q.shape[1] / float(best)


def _read_bytes() -> float:
    buffer = memoryview(bytearray(8 * 2**20))
    with tempfile.TemporaryFile() as file:
        for _ in range(SAMPLE_BYTES // len(buffer)):
            file.write(buffer)
        file.flush()
        best = np.inf
        for _ in range(3):
            began = time.thread_time()
            for offset in range(0, SAMPLE_BYTES, len(buffer)):
                os.preadv(file.fileno(), [buffer], offset)
            best = min(best, time.thread_time() - began)
    return SAMPLE_BYTES / float(best)
