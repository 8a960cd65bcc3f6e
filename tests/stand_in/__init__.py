"""A stand-in for CuPy where there is no device: NumPy inside, CuPy's refusals and counts outside.

arrays      arrays that refuse what CuPy's refuse, and count what crosses the border
streams     copies that come as late as they may, or at once
library     the modules ``cupy`` and ``cupyx``, and the names that CuPy knows (``names.txt``)
cublas      products by pointers and leading dimensions
compiler    kernels in CUDA C++, compiled for the CPU (``cuda_on_cpu.h``)

``installed()`` has ``import cupy`` give it. What it finds: host and device arrays mixed, functions and
arguments that CuPy lacks, numbers that are looked at, panels that are used before they have come or
overwritten before they are done with, more memory than was planned. What it does not: speed, and what
streams that compute at the same time do to each other.
"""

from pathlib import Path

from stand_in.library import installed
from stand_in.streams import COUNTS

ON_PATH = str(Path(__file__).with_name("on_path"))
"""For ``PYTHONPATH`` of processes that tests start: ``import cupy`` gives the stand-in there."""

__all__ = ["COUNTS", "ON_PATH", "installed"]
