"""How fast this machine multiplies and reads, measured once and kept: for predicted seconds only.

Nothing that decides numbers ever sees these rates.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.blas import core_type, one_blas_thread
from rankfold.pipeline.plan import Rates

SAMPLE_BYTES = 64 * 2**20


def cached_rates() -> Rates:
    """Rates of this machine, from the user's cache folder or measured in about a second."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = home / "rankfold" / "rates.json"
    key = f"{platform.node()} {platform.machine()} {core_type()}"
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError):
        kept = {}
    if key not in kept:
        rates = measure_rates()
        kept[key] = [rates.flops_float32, rates.flops_float64, rates.read_bytes]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(kept, indent=1) + "\n")
        except OSError:
            pass
    return Rates(*kept[key])


def measure_rates() -> Rates:
    """Products of a typical grain, and reads of a file that is in page cache, on one core."""
    with one_blas_thread():
        return Rates(_flops(np.float32), _flops(np.float64), _read_bytes())


def _flops(dtype: npt.DTypeLike) -> float:
    shapes = ((1024, 2000), (2000, 64), (1024, 64), (2000, 64))
    d, q, y, z = (np.ones(shape, dtype) for shape in shapes)
    best = np.inf
    for _ in range(6):
        began = time.perf_counter()
        np.matmul(d, q, out=y)
        np.matmul(d.T, y, out=z)
        best = min(best, time.perf_counter() - began)
    return 4 * d.size * q.shape[1] / float(best)


def _read_bytes() -> float:
    buffer = memoryview(bytearray(8 * 2**20))
    with tempfile.TemporaryFile() as file:
        for _ in range(SAMPLE_BYTES // len(buffer)):
            file.write(buffer)
        file.flush()
        best = np.inf
        for _ in range(3):
            began = time.perf_counter()
            for offset in range(0, SAMPLE_BYTES, len(buffer)):
                os.preadv(file.fileno(), [buffer], offset)
            best = min(best, time.perf_counter() - began)
    return SAMPLE_BYTES / float(best)
