"""Conditioning of panels in one read of the data. See ``kernels/linear/center_scale.py``.

Serial loops that release the GIL: parallelism comes from the threads that call them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop
from rankfold.kernels._dispatch import plain, wide, writable, write_back

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@compile_loop
def _measure(x: Array, shift: Float64, pow2_scale: float, sums: Float64, squares: Float64) -> None:
    # Columns innermost: the compiler vectorizes over them without reordering any sum. Four rows at a
    # time load and store the accumulators once instead of four times (0.33 ms against 0.73 ms for
    # 1048 x 2000 float32).
    fours = x.shape[0] - x.shape[0] % 4
    for i in range(0, fours, 4):
        x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
        for j in range(len(shift)):
            d0 = (np.float64(x0[j]) - shift[j]) * pow2_scale
            d1 = (np.float64(x1[j]) - shift[j]) * pow2_scale
            d2 = (np.float64(x2[j]) - shift[j]) * pow2_scale
            d3 = (np.float64(x3[j]) - shift[j]) * pow2_scale
            sums[j] += (d0 + d1) + (d2 + d3)
            squares[j] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)
    for i in range(fours, x.shape[0]):
        for j in range(len(shift)):
            d = (np.float64(x[i, j]) - shift[j]) * pow2_scale
            sums[j] += d
            squares[j] += d * d


@compile_loop
def _subtract(x: Array, shift: Float64, scale: Float64, out: Array) -> None:
    for i in range(x.shape[0]):
        for j in range(len(shift)):
            out[i, j] = (np.float64(x[i, j]) - shift[j]) * scale[j]


def measure(x: Array, shift: Float64, pow2_scale: float) -> tuple[Float64, Float64]:
    """See the contract; scratch is the two results. Column sums and sums of squares, shifted and scaled."""
    sums, squares = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    _measure(wide(x), plain(shift), float(pow2_scale), sums, squares)
    return sums, squares


def subtract(x: Array, shift: Float64, scale: Float64, *, out: Array) -> None:
    """See the contract; no scratch. Writes ``(x - shift) * scale`` into ``out``."""
    into = writable(out)
    _subtract(wide(x), plain(shift), plain(scale), into)
    write_back(into, out)
