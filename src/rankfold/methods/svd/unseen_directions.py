"""Directions that a first block misses: the leading directions of a row sketch outside it.

A block from sampled rows does not contain directions in which only other rows extend. Products of these
rows with the block vanish, and so do residuals. The sketch, made in the same pass, includes every row.

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
"""Rounding error of a sum of squares of a whole matrix, relative to the sum, in units of eps."""

DEVIATIONS = 3
"""Number of standard deviations of the sketch's error that bounds allow for."""


@dataclass(frozen=True, slots=True)
class UnseenDirections:
    """Leading eigenpairs of P A'S'S A P, where S A sketches the rows and P projects off the block."""

    bound: Float64
    """Likely upper bound of the largest squared singular value of A P, as an array of no axes."""

    hidden: Float64
    """Sum of squares of A P that the sketch lacks beyond chance, as an array of no axes: rows that canceled
    each other."""

    sketched: Float64
    """(k,) decreasing: squared singular values of S A P, which tend to exceed those of A P."""

    squares: Float64
    """(k,) squared singular values of S A P, less what the sketch adds to each on average."""

    directions: Float64
    """(short, k) orthonormal, orthogonal to the block."""


def save_unseen(path: Path, rows: Array, q: Float64, remainder: float, total: float) -> None:
    """Find and save leading directions of a sketch ``rows`` (l, short) outside a block ``q`` (short, width).

    At most ``width`` are saved, as the fields of ``UnseenDirections`` in the file ``path``, unless it is
    whole already. ``remainder`` is the sum of squares of A P and ``total`` that of A, as the pass found them.

    Notes
    -----
    Work 2 l^2 short + 4 l short width + 4/3 l^3 flops; scratch one sketch in float64. A sketch in l buckets
    adds to every eigenvalue about trace(P A'A P) / l. It keeps the square of one singular value with a
    relative standard deviation of at most sqrt(2 / l): the bound allows for three of them. Two equal rows
    in one bucket with opposite signs are missing from the sketch, but not from the sum of squares.
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


def load_unseen(path: Path) -> UnseenDirections:
    """Load the directions that ``save_unseen`` saved in the file ``path``."""
    return UnseenDirections(**load_arrays(path))


@dataclass(frozen=True, slots=True)
class Outside:
    """Bounds that a sketch S A of rows gives for the part A (I - Q Q') of A outside a basis Q."""

    squares: Float64
    """(l,) estimates of squared singular values of that part, decreasing, rather too large than too small."""

    least: float
    """Squared singular value that the part may have along any other direction."""

    rows: Float64
    """(l, short): the sketch S A (I - Q Q')."""

    turn: Float64
    """(l, l) matrix: the right singular vectors of ``rows`` are ``adjoint(rows) @ turn``, (short, l)."""


@dataclass(frozen=True, slots=True)
class RowSketch:
    """A sketch of all rows that no basis depends on: what it shows outside a basis is really there."""

    path: Path
    """Path of a checkpoint file with the sketch S A as ``rows`` (l, short)."""

    def look_outside(self, basis: Iterable[Float64], remainder: float, total: float, eps: float) -> Outside:
        """Bound A (I - Q Q') for a basis Q, which is given block by block, (short, b) each.

        ``remainder`` is |A (I - Q Q')|^2 and ``total`` |A|^2, of products rounded to ``eps``.

        Notes
        -----
        The sketch keeps the square of a given direction with a relative standard deviation of at most
        sqrt(2 / l). Bounds allow for three of those, and for squares that sums of squares show to be
        hidden, as in ``save_unseen``. To each square the sketch adds those of all others over l. They are
        subtracted first, but no bound is below the square in the sketch, which is too large on average
        already. No value is above the remainder.

        The trap: directions that were taken from a sketch are those that it shows too large, and it may show
        nothing of what is left outside them. Two rows that share a bucket are one direction to it, and
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
