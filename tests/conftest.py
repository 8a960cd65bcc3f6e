"""One thread for every library, one hypothesis profile, and a reason for each GPU test left out."""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    # Read once, when the library loads: nothing above this line may import numpy.
    os.environ[variable] = "1"

import functools  # noqa: E402

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

# No deadline: a first call compiles. No database: the same examples on every machine.
settings.register_profile("rankfold", derandomize=True, deadline=None, database=None)
settings.load_profile("rankfold")


@functools.cache
def missing_device() -> str | None:
    """Why tests marked ``gpu`` cannot run here, in words a user would understand."""
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed; on a machine with an NVIDIA GPU: pip install 'rankfold[gpu]'"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"CuPy is installed but finds no NVIDIA GPU: {error}"
    return None if count else "CuPy is installed but finds no NVIDIA GPU"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip GPU tests where there is no GPU."""
    if item.get_closest_marker("gpu") and (reason := missing_device()):
        pytest.skip(reason)
