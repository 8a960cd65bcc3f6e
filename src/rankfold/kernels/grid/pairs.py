"""Sums over all pairs of points without a grid: the repulsion of points in t-SNE."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

BLOCK_PAIRS = 2**20
"""Pairs that the reference body computes at once."""


@kernel
def push_sums(targets: Float32, sources: Float32, *, push: Float32, near: Float64) -> None:
    """``sum q^2 (y - s)`` and ``sum q`` over sources s for each target y, with ``q = 1 / (1 + |y - s|^2)``.

    Parameters
    ----------
    targets : (m, d) float32
    sources : (d, n) float32
        One coordinate after the other. A target that is among them counts itself, with q = 1.
    push : (m, d) float32, written
        First of the sums: the repulsive force on each target, not yet normalized.
    near : (m,) float64, written
        Second of the sums.

    Notes
    -----
    Some 4 d + 6 operations a pair; scratch 1024 numbers. Pairs are float32, as their differences are; sums of
    1024 of them are float32 and those of these float64, in one order for each target.
    """
    block = max(1, BLOCK_PAIRS // max(1, sources.shape[1]))
    for top in range(0, len(targets), block):
        some = targets[top : top + block]
        squares = np.ones((len(some), sources.shape[1]))
        for axis, line in enumerate(sources):
            squares += (some[:, axis, None] - line).astype(np.float64) ** 2
        q = 1 / squares
        near[top : top + block] = q.sum(axis=1)
        for axis, line in enumerate(sources):
            push[top : top + block, axis] = (q * q * (some[:, axis, None] - line)).sum(axis=1)
