"""What a first block has missed: the leading directions of a row sketch that lie outside it.

A block from sampled rows knows nothing of directions in which only other rows extend; their products
with it vanish, and so do residuals. The sketch, made in the same pass, has every row in it.

References
----------
Clarkson, Woodruff, Low rank approximation and regression in input sparsity time, STOC 2013: sums of signed
rows in buckets, whose singular values are near those of the matrix.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.dense import adjoint, leading_eigenpairs
from rankfold.pipeline.storage.checkpoint import load_arrays, load_if_whole, save_arrays

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

ROUNDING = 32
"""Units in which sums of squares of a whole matrix may differ by rounding."""

DEVIATIONS = 3
"""Standard deviations that the sketch is allowed to err by."""


@dataclass(frozen=True, slots=True)
class UnseenDirections:
    """Leading eigenpairs of P S'S P, where S A sketches the rows and P projects on what a block leaves."""

    bound: Float64
    """(): the largest squared singular value of A P is hardly above this."""

    hidden: Float64
    """(): squares of A P that the sketch lacks beyond chance: rows that cancelled each other."""

    sketched: Float64
    """(k,) decreasing: squared singular values of S A P, which are rather above those of A P."""

    squares: Float64
    """(k,) the same, less what the sketch adds to each on average."""

    directions: Float64
    """(short, k) orthonormal, orthogonal to the block."""


def save_missing(path: Path, rows: Array, q: Float64, remainder: float, total: float) -> None:
    """Find leading directions of a sketch (l, short) outside a block (short, width), as many as fit in one.

    ``remainder`` is the sum of squares of A P and ``total`` that of A, as the pass found them.

    Notes
    -----
    Work 2 l^2 short + 4 l short width + 4/3 l^3 flops; scratch one sketch in float64. A sketch in l buckets
    adds to every eigenvalue about trace(P A'A P) / l. It keeps the square of one singular value with a
    relative standard deviation of at most sqrt(2 / l): the bound allows for three of them. Two rows alike
    that meet in one bucket with opposite signs are lost to it altogether, but not to the sum of squares.
    """
    if load_if_whole(path) is None:
        rest = rows.astype(np.result_type(rows, np.float64))
        rest -= (rest @ q) @ adjoint(q)
        keep = min(q.shape[1], rest.shape[1] - q.shape[1], len(rest))
        product = rest @ adjoint(rest)
        trace = np.trace(product).real
        deviation = np.sqrt(2 / len(rest)) * np.linalg.norm(product)
        rounding = ROUNDING * np.finfo(rows.dtype).eps * total
        deficit = max(remainder - trace - DEVIATIONS * deviation - rounding, 0.0)
        eigenvalues, vectors = leading_eigenpairs(product, keep)
        eigenvalues = np.maximum(eigenvalues, 0.0)
        bound = deficit + eigenvalues[0] / max(1 - DEVIATIONS * np.sqrt(2 / len(rest)), 0.1)
        squares = np.maximum(eigenvalues - (trace - np.cumsum(eigenvalues)) / len(rest), 0.0)
        directions = (adjoint(rest) @ vectors) / np.sqrt(np.where(eigenvalues > 0, eigenvalues, 1.0))
        arrays = {"bound": bound, "hidden": deficit, "sketched": eigenvalues, "squares": squares}
        save_arrays(path, {**arrays, "directions": directions})


def load_missing(path: Path) -> UnseenDirections:
    """Load the directions that ``save_missing`` wrote."""
    return UnseenDirections(**load_arrays(path))


@dataclass(frozen=True, slots=True)
class Outside:
    """What a sketch of rows tells of A (I - Q Q') for a basis Q."""

    squares: Float64
    """(l,) decreasing: squared singular values, or more."""

    least: float
    """Squares that may be hidden along any direction besides."""

    rows: Float64
    """(l, short): the sketch S A (I - Q Q')."""

    turn: Float64
    """(l, l): its right singular vectors are ``adjoint(rows) @ turn``."""


@dataclass(frozen=True, slots=True)
class RowSketch:
    """A sketch of all rows that no basis depends on: what it shows outside one is there."""

    path: Path
    """A part with ``rows`` (l, short)."""

    def look_outside(self, basis: Iterable[Float64], remainder: float, total: float, eps: float) -> Outside:
        """What the sketch tells of a basis Q.

        ``remainder`` is |A (I - Q Q')|^2 and ``total`` |A|^2, of products rounded to ``eps``.

        Notes
        -----
        It keeps the square of a given direction with a relative standard deviation of at most sqrt(2 / l),
        of which three are allowed for, and what sums of squares tell to be hidden, as in ``save_missing``.
        To each it adds the squares of all others over l, which are taken off before that, but never below
        what it shows: on average a sketch tells too much as it is. No value is above the remainder.

        The trap: directions that were taken from a sketch are those that it shows too large, and it may not
        show at all what is left beside them. Two rows that share a bucket are one direction to it, and
        nothing is left of the other. A basis that has such directions needs another sketch.

        Work 4 l short p + 10 l^3 flops; scratch two sketches in float64.
        """
        rows = load_arrays(self.path)["rows"]
        rest = rows.astype(np.result_type(rows, np.float64))
        for q in basis:
            rest -= (rest @ q) @ adjoint(q)
        product = rest @ adjoint(rest)
        rounding = ROUNDING * eps * total
        most = max(remainder, 0.0) + rounding
        deviation = DEVIATIONS * np.sqrt(2 / len(rest))
        hidden = (
            remainder - float(np.trace(product).real) - deviation * float(np.linalg.norm(product)) - rounding
        )
        hidden = min(max(hidden, 0.0), most)
        eigenvalues, vectors = leading_eigenpairs(product, len(product))
        eigenvalues = np.maximum(eigenvalues, 0.0)
        length = np.sqrt(eigenvalues)
        turn = vectors * np.where(length > 0, 1 / np.where(length > 0, length, 1.0), 0.0)
        noise = np.maximum(float(np.trace(product).real) - np.cumsum(eigenvalues), 0.0) / len(rest)
        shown = np.maximum(eigenvalues, (eigenvalues - noise) / max(1 - deviation, 0.1))
        squares = np.minimum(hidden + shown, most)
        return Outside(squares, hidden, rest, turn)
