"""The block that passes begin with: random, or what some rows of the matrix tell of its directions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.normal import gaussian_rows
from rankfold.kernels.orthonormal import orthonormalise
from rankfold.kernels.panel import panel_product
from rankfold.pipeline.checkpoint import State
from rankfold.pipeline.quality import ritz_vectors

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

OMEGA = 1
"""Purpose key of the random block."""

ROUNDS = 3
GRAIN_ROWS = 1024


def random_block(short: int, width: int, seed: int) -> Float64:
    """Orthonormal (short, width) block without preference."""
    return orthonormalise(gaussian_rows(seed, OMEGA, (0, short), width))


def leading_block(rows: Array, width: int, seed: int) -> State:
    """``q``: leading right singular vectors of some rows of a matrix, roughly.

    Parameters
    ----------
    rows : (l, n) float32 or float64
        Centred and scaled like the matrix.
    width : int, < n
    seed : int

    Returns
    -------
    q : (n, width) float64, orthonormal

    Notes
    -----
    Subspace iteration in memory with half as many columns again, 6 l n width flops a round. What is wrong
    with the vectors does not matter to the result, which passes find from whatever they begin with.
    """
    short = rows.shape[1]
    q = random_block(short, min(short, width + width // 2), seed)
    for _ in range(ROUNDS - 1):
        q = orthonormalise(_image(rows, q))
    z = _image(rows, q)
    _, w = ritz_vectors(q.T @ z, width)
    return {"q": orthonormalise(z @ w)}


def _image(rows: Array, q: Float64) -> Float64:
    """``rows.T @ rows @ q``."""
    z, work, narrow = np.zeros_like(q), np.empty(q.shape, rows.dtype), q.astype(rows.dtype)
    y = np.empty((min(GRAIN_ROWS, len(rows)), q.shape[1]), rows.dtype)
    for start in range(0, len(rows), GRAIN_ROWS):
        d = rows[start : start + GRAIN_ROWS]
        panel_product(d, narrow, y=y[: len(d)], z=z, work=work)
    return z
