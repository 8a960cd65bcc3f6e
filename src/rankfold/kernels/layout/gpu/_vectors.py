"""Storage of the vectors of a thread: registers, or device memory."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

Array = Any

THREADS = 128
"""Threads of a block."""

IN_REGISTERS = 3
"""Largest number of dimensions of a vector that a thread has in registers."""


def known_width(width: int) -> int:
    """``width`` if a thread has vectors of so many dimensions in registers; 0 if they are in memory."""
    return width if width <= IN_REGISTERS else 0


def scratch(count: int, width: int) -> Array:
    """Buffer for two vectors of each of ``count`` threads, if these are in memory; else a single row."""
    return cupy.empty((1 if known_width(width) else 2 * count, width), np.float32)
