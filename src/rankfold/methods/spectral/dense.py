"""Eigenvectors of graphs that are small, or of which most are wanted: all of them, by LAPACK."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankfold.methods.spectral.blocks import GraphBlocks
from rankfold.methods.spectral.filter import block_width
from rankfold.methods.spectral.pairs import RitzPairs
from rankfold.methods.spectral.vertices import Vertices

Float64 = npt.NDArray[np.float64]

FEW_ROWS = 512
"""Up to which all eigenvectors are computed."""

BESIDE = -3.0
"""Added to the eigenvalue 1 of vectors that are known: below all others, which are at least -1."""


def is_dense(rows: int, wanted: int) -> bool:
    """Whether a graph of so many rows is made dense for so many eigenvectors."""
    return rows <= FEW_ROWS or 3 * block_width(wanted) >= rows


def dense_bytes(rows: int) -> int:
    """Memory of a dense matrix, its eigenvectors, and what LAPACK takes."""
    return 8 * rows * (6 * rows + 40)


def dense_pairs(blocks: GraphBlocks, vertices: Vertices, wanted: int) -> tuple[Float64, RitzPairs]:
    """(m, wanted) leading eigenvectors beside those of the eigenvalue 1, and their pairs."""
    rows = len(vertices.scale)
    matrix = np.zeros((rows, rows))
    for first, block in blocks:
        lines = np.repeat(np.arange(first, first + len(block.indptr) - 1), np.diff(block.indptr))
        np.add.at(matrix, (lines, block.indices), block.data.astype(np.float64))
    matrix *= vertices.scale
    matrix *= vertices.scale[:, None]
    constants = vertices.constants()
    together = np.where(vertices.labels[:, None] == np.arange(len(vertices.sizes)), constants[:, None], 0.0)
    shifted = (matrix + matrix.T) / 2 + BESIDE * (together @ together.T)
    alone = vertices.labels < 0
    shifted[alone, alone] = BESIDE
    values, vectors = np.linalg.eigh(shifted)
    values, vectors = values[::-1][:wanted].copy(), np.ascontiguousarray(vectors[:, ::-1][:, :wanted])
    residuals = np.linalg.norm(matrix @ vectors - vectors * values, axis=0)
    return vectors, RitzPairs(values, residuals)
