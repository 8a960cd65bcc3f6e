"""What a first block has missed: the leading directions of a row sketch that lie outside it.

A block from sampled rows knows nothing of directions in which only other rows extend; their products
with it vanish, and so do residuals. The sketch, made in the same pass, has every row in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.small import leading_eigenpairs
from rankfold.pipeline.checkpoint import load_arrays, save_arrays

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

DEVIATIONS = 3
"""Standard deviations that the sketch is allowed to err by."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Leading eigenpairs of P S'S P, where S A sketches the rows and P projects on what a block leaves."""

    bound: Float64
    """(): the largest squared singular value of A P is hardly above this."""

    sketched: Float64
    """(k,) decreasing: squared singular values of S A P, which are rather above those of A P."""

    squares: Float64
    """(k,) the same, less what the sketch adds to each on average."""

    directions: Float64
    """(short, k) orthonormal, orthogonal to the block."""


def save_missing(path: Path, rows: Array, q: Float64) -> None:
    """Find what a sketch (l, short) tells beyond a block (short, width), as much as a block can hold.

    Notes
    -----
    Work 2 l^2 short + 4 l short width + 4/3 l^3 flops; scratch one sketch in float64. A sketch in l buckets
    adds to every eigenvalue about trace(P A'A P) / l. It keeps the square of one singular value with a
    relative standard deviation of at most sqrt(2 / l): the bound allows for three of them.
    """
    if not path.exists():
        left = rows.astype(np.float64)
        left -= (left @ q) @ q.T
        keep = min(q.shape[1], left.shape[1] - q.shape[1], len(left))
        product = left @ left.T
        total = np.trace(product)
        sketched, vectors = leading_eigenpairs(product, keep)
        sketched = np.maximum(sketched, 0.0)
        bound = sketched[0] / max(1 - DEVIATIONS * np.sqrt(2 / len(left)), 0.1)
        squares = np.maximum(sketched - (total - np.cumsum(sketched)) / len(left), 0.0)
        directions = (left.T @ vectors) / np.sqrt(np.where(sketched > 0, sketched, 1.0))
        found = {"bound": bound, "sketched": sketched, "squares": squares, "directions": directions}
        save_arrays(path, found)


def load_missing(path: Path) -> Missing:
    """What was found."""
    return Missing(**load_arrays(path))
