"""Where a thread has its vectors."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

Array = Any

THREADS = 128
"""Of a block."""

IN_REGISTERS = 3
"""Most dimensions of a vector that a thread has in registers."""


def known_width(width: int) -> int:
    """Dimensions of vectors in registers; 0 where they are in memory."""
    return width if width <= IN_REGISTERS else 0


def scratch(count: int, width: int) -> Array:
    """Room for two vectors of each of some threads, where these are in memory."""
    return cupy.empty((1 if known_width(width) else 2 * count, width), np.float32)
