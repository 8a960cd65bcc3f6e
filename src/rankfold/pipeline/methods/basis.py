"""Blocks Q, Y = A Q and Z = A'Y of a growing orthonormal basis, kept on disk and read one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.checkpoint import load_arrays
from rankfold.pipeline.methods.missing import Missing
from rankfold.pipeline.narrow import Narrow
from rankfold.pipeline.quality import Ritz, ritz_values, ritz_vectors

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Block:
    """One block of the basis and its images."""

    path: Path
    """A part with ``q`` and ``z`` (short, width) and ``offset`` (width,)."""

    width: int
    y: Narrow
    """``A Q`` before the true mean was known: ``A Q = Y - 1 offset'``."""

    def load(self, name: str) -> Float64:
        """One array of the block."""
        return load_arrays(self.path, name)[name]


@dataclass(slots=True)
class Basis:
    """The basis ``[Q_1 ... Q_t]``, orthonormal, with the small matrix that describes A on it."""

    blocks: list[Block] = field(default_factory=list)
    products: Float64 = field(default_factory=lambda: np.zeros((0, 0)))
    """Q'Z = Q'A'A Q as computed: what it lacks of symmetry is the rounding error of the passes."""

    @property
    def width(self) -> int:
        """Columns of all blocks."""
        return sum(block.width for block in self.blocks)

    def each(self, name: str) -> Iterator[Float64]:
        """One array of every block, one at a time."""
        for block in self.blocks:
            yield block.load(name)

    def add(self, block: Block) -> None:
        """Take in a block: its products with all others, 4 short width (width of all) flops."""
        q, z = block.load("q"), block.load("z")
        below = [q.T @ other for other in self.each("z")]
        self.blocks.append(block)
        column = np.vstack([other.T @ z for other in self.each("q")])
        row = np.hstack([*below, column[-block.width :]])
        self.products = _bordered(self.products, column, row)

    def combine(self, name: str, coefficients: Float64) -> Float64:
        """``[Q_1 ...] @ coefficients`` or ``[Z_1 ...] @ coefficients``."""
        total, row = np.zeros((len(self.blocks[0].load(name)), coefficients.shape[1])), 0
        for block in self.blocks:
            total += block.load(name) @ coefficients[row : row + block.width]
            row += block.width
        return total

    def with_missing(self, missing: Missing, rank: int) -> Float64 | None:
        """Images of leading Ritz vectors of the one block, and directions outside it that may rank with them.

        Those that do, as far as the sketch can tell; and of those that it does not rule out as many
        as leave room for images of the wanted vectors. None where nothing compares with them.
        """
        theta, w = ritz_vectors(self.products, self.width)
        possible = int((missing.sketched > theta[rank - 1]).sum())
        if not possible:
            return None
        order = np.argsort(-np.append(theta, missing.squares), kind="stable")
        ranked = int((order[: self.width] >= self.width).sum())
        new = max(min(ranked, possible), min(possible, self.width - rank))
        return np.hstack([missing.directions[:, :new], self.combine("z", w[:, : self.width - new])])

    def residuals(self, keep: int) -> Float64:
        """Where leading Ritz vectors are not yet invariant, (short, keep), each of length 1."""
        theta, w = ritz_vectors(self.products, keep)
        rest = self.combine("z", w) - self.combine("q", w) * theta
        length = np.linalg.norm(rest, axis=0)
        return rest / np.where(length > 0, length, 1.0)

    def ritz(self, rank: int, keep: int, *, outside: float = 0.0, settling: bool = False) -> Ritz:
        """What the basis tells of the leading singular values: 4 short keep (width of all) flops.

        ``outside`` is what is known of the largest squared singular value that it does not hold. A basis
        that is ``settling`` has some directions for the first time, whose values may yet rise.
        """
        theta, w = ritz_vectors(self.products, keep)
        image = self.combine("z", w)
        rest = self.combine("q", w)
        rest *= -theta
        rest += image
        residual = np.einsum("ij,ij->j", rest, rest)
        if settling:
            outside = float((theta + np.sqrt(residual))[rank:].max(initial=0.0))
        return ritz_values(self.products, theta, w, image, residual, rank, outside)


def _bordered(matrix: Float64, column: Float64, row: Float64) -> Float64:
    """A matrix with a new block column and block row, which share their last square."""
    old = len(matrix)
    return np.block([[matrix, column[:old]], [row[:, :old], column[old:]]])
