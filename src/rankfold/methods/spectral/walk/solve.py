"""Leading eigenvectors of a graph: known ones, and others by filters or, for few rows, by LAPACK."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rankfold.methods.claims import relative_errors
from rankfold.methods.spectral.arguments import SpectralRequest
from rankfold.methods.spectral.coordinates import contrasts
from rankfold.methods.spectral.walk.blocks import GraphBlocks, Walk
from rankfold.methods.spectral.walk.filter import ROUNDING, Filter, RitzPairs, block_width
from rankfold.methods.spectral.walk.vertices import Vertices

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

FEW_ROWS = 512
"""Number of rows up to which all eigenvectors are computed, from a dense matrix."""

BESIDE = -3.0
"""Shift of the eigenvalue 1 of known eigenvectors, to below all others, which are at least -1."""


@dataclass(frozen=True, slots=True)
class Eigenvectors:
    """Eigenvectors of the symmetric matrix of a walk, from the largest eigenvalue on; not the constant one.

    Components are apart if each has eigenvectors of its own (``SpectralRequest.apart``).
    """

    vectors: Float64
    """(m, d) orthonormal eigenvectors; if components are apart, orthonormal within each component."""

    values: Float64
    """(d,) eigenvalues of the walk, decreasing; those of the largest component if components are apart."""

    residuals: Float64
    """(d,) norms of residuals of the eigenpairs; the largest of any component if components are apart."""

    errors: Float64
    """(d,) estimated absolute errors of eigenvalues; the largest of any component if components are apart."""

    reads: int
    """Number of times that the whole graph was read or multiplied."""

    def largest_error(self, tol: float) -> float:
        """Largest estimated error of an eigenvalue of the Laplacian, relative to that eigenvalue.

        An eigenvalue of the Laplacian is 1 minus one of the walk. What rounding leaves of one that is nearly
        0 counts as no more than ``tol``.
        """
        relative = relative_errors(self.errors, 1 - self.values)
        return float(np.where(self.errors <= 2 * ROUNDING, np.minimum(relative, tol), relative).max())


def leading_eigenvectors(
    blocks: GraphBlocks,
    vertices: Vertices,
    asked: SpectralRequest,
    threads: int,
    part: Path | None,
    tell: Callable[[float], None],
) -> Eigenvectors:
    """Compute as many eigenvectors of the walk on a graph as ``asked.n_components``.

    Parameters
    ----------
    blocks : GraphBlocks
    vertices : Vertices
    asked : SpectralRequest
    threads : int
    part : Path or None
        Path of a checkpoint; None to save none.
    tell : callable
        Called with the largest error relative to its target, before each filter.
    """
    apart = asked.apart and len(vertices.sizes) != 1
    known = 0 if apart else min(asked.n_components, len(vertices.sizes) - 1)
    wanted, rows = asked.n_components - known, len(vertices.scale)
    enough = rows - vertices.isolated - len(vertices.sizes) >= wanted
    groups = _groups(vertices, wanted) if apart else (slice(None),) * enough
    vectors, pairs, reads = np.zeros((rows, wanted)), [], vertices.reads
    if wanted and enough and not apart and is_dense(rows, wanted):
        vectors, one = dense_pairs(blocks, vertices, wanted)
        pairs, reads = [one], reads + 1
    elif wanted and groups:
        with Walk(blocks, threads) as walk:
            filtered = Filter.begin(walk, vertices, groups, wanted, (asked.tol, asked.passes, asked.seed))
            filtered.run(part, tell)
            vectors, pairs, reads = filtered.x[:, :wanted], filtered.pairs, reads + walk.reads
    return _joined(contrasts(vertices, known), vectors, pairs, reads)


def _joined(known: Float64, vectors: Float64, pairs: Sequence[RitzPairs], reads: int) -> Eigenvectors:
    """Known eigenvectors (m, c), of eigenvalue 1 without errors, followed by computed ones (m, wanted).

    ``pairs`` are the Ritz pairs of each group of rows, ``reads`` the number of reads of the graph.
    """
    wanted, zeros = vectors.shape[1], np.zeros(known.shape[1])
    values, none = pairs[0].values[:wanted] if pairs else np.zeros(wanted), np.zeros(wanted)
    return Eigenvectors(
        np.hstack([known, vectors]),
        np.concatenate([np.ones(known.shape[1]), values]),
        np.concatenate([zeros, np.max([none, *(each.residuals[:wanted] for each in pairs)], axis=0)]),
        np.concatenate([zeros, np.max([none, *(each.errors(wanted) for each in pairs)], axis=0)]),
        reads,
    )


def _groups(vertices: Vertices, wanted: int) -> tuple[Int64, ...]:
    """Rows of each component that has more rows than the block for ``wanted`` eigenvectors has columns."""
    order = np.argsort(vertices.labels, kind="stable")
    ends = vertices.isolated + np.concatenate([[0], np.cumsum(vertices.sizes)])
    enough = int((vertices.sizes > block_width(wanted)).sum())
    return tuple(order[ends[i] : ends[i + 1]] for i in range(enough))


# All of them, by LAPACK ---------------------------------------------------------------------------


def is_dense(rows: int, wanted: int) -> bool:
    """True if ``wanted`` eigenvectors of a graph of ``rows`` rows are computed from a dense matrix."""
    return rows <= FEW_ROWS or 3 * block_width(wanted) >= rows


def dense_bytes(rows: int) -> int:
    """Bytes of a dense matrix of ``rows`` rows and columns, its eigenvectors, and the workspace of LAPACK."""
    return 8 * rows * (6 * rows + 40)


def dense_pairs(blocks: GraphBlocks, vertices: Vertices, wanted: int) -> tuple[Float64, RitzPairs]:
    """(m, wanted) leading eigenvectors other than those of the eigenvalue 1, and their Ritz pairs."""
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
