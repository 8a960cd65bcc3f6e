"""Degrees and components of a graph: facts of its walks that need no eigenvalue solver.

A walk stays in its component. So each component has a distribution of its own that no step changes, and the
matrix of the walk the eigenvalue 1 for each: these vectors are known, and projected out before others are
sought. A vertex without edges is part of no component, and has no place in an embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.graph.walk import Steps, components_of, join_edges
from rankfold.kernels.linear.gaussian import gaussian_rows
from rankfold.methods.random_keys import Purpose
from rankfold.methods.spectral.walk.blocks import GraphBlocks, Walk
from rankfold.pipeline.errors import DataError

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

ASYMMETRY = 1e-5
"""Tolerance for a graph to be symmetric. Weights times random factors are summed along each row and along the
column of the same number: both sums may differ by this share of the sum of weights of the row times the
largest factor. It allows for weights rounded to float32."""


@dataclass(frozen=True, slots=True)
class Vertices:
    """Degrees, components and scale factors of the vertices of a graph."""

    scale: Float64
    """(m,) factors s, with which ``s W s`` is the symmetric matrix of the walk on a graph of weights W; 0
    where there are no edges."""

    density: Float64
    """(m,) divisor of weights at both of their ends: a power of the sums of weights of rows; 1 where there
    are no edges."""

    labels: Int64
    """(m,) number of the component of each vertex, the largest being 0; -1 where there are no edges."""

    sizes: Int64
    """(c,) number of vertices of each component, decreasing."""

    reads: int
    """Number of reads of the graph that this took."""

    @property
    def isolated(self) -> int:
        """Number of vertices without edges."""
        return len(self.labels) - int(self.sizes.sum())

    @property
    def roots(self) -> Float64:
        """(m,) square roots of degrees: in each component the vector of the eigenvalue 1, of any length."""
        return inverse(self.scale) / self.density

    def constants(self) -> Float64:
        """(m,) ``roots`` scaled to length 1 in each component."""
        roots = self.roots
        squares = np.bincount(self.labels + 1, roots * roots, len(self.sizes) + 1)
        return roots * inverse(np.sqrt(squares))[self.labels + 1]


def read_vertices(blocks: GraphBlocks, alpha: float, seed: int, threads: int) -> Vertices:
    """Degrees and components of the vertices of a graph, from one read of it, or two if ``alpha`` is not 0.

    Parameters
    ----------
    blocks : GraphBlocks
    alpha : float
        Power of the sums of weights of rows (densities) by which weights are divided at both ends.
    seed : int
        Key of the random factors that symmetry is checked by.
    threads : int

    Raises
    ------
    DataError
        The graph is not symmetric.
    """
    degrees, parents = _degrees(blocks, seed)
    density, reads = degrees**alpha if alpha else np.ones(len(degrees)), 1
    density[degrees == 0] = 1
    sums = degrees
    if alpha:
        steps = Steps(1 / density, np.zeros(len(degrees)), 0.0)
        with Walk(blocks, threads) as walk:
            sums = walk.step((1 / density)[:, None], None, steps)[:, 0]
        reads += 1
    scale = np.sqrt(inverse(sums)) / density
    least = components_of(parents)
    least[degrees == 0] = -1
    return Vertices(scale, density, *_by_size(least), reads)


def _degrees(blocks: GraphBlocks, seed: int) -> tuple[Float64, Int64]:
    """(m,) sums of weights of rows, and (m,) parents of vertices in a forest of components.

    Compares sums along rows and columns under random factors; ``DataError`` if the graph is not symmetric.
    """
    rows = blocks.source.shape[0]
    degrees, parents = np.empty(rows), np.arange(rows)
    factors = gaussian_rows(seed, Purpose.GRAPH_FACTORS, (0, rows), 1)[:, 0]
    along, across = np.empty(rows), np.zeros(rows)
    for first, block in blocks:
        some = slice(first, first + len(block.indptr) - 1)
        lines = np.repeat(np.arange(some.stop - first), np.diff(block.indptr))
        values = block.data.astype(np.float64)
        degrees[some] = np.bincount(lines, values, some.stop - first)
        along[some] = np.bincount(lines, values * factors[block.indices], some.stop - first)
        across += np.bincount(block.indices, values * factors[some][lines], rows)
        join_edges(block.indptr, block.indices, block.data, first, parents=parents)
    wrong = np.abs(along - across) > ASYMMETRY * np.abs(factors).max() * degrees
    if wrong.any():
        raise DataError(
            f"{blocks.source.name} is not symmetric: edges of row {int(wrong.argmax())} weigh other than "
            "those that lead to it. Give the mean of the graph and its transpose"
        )
    return degrees, parents


def _by_size(least: Int64) -> tuple[Int64, Int64]:
    """(m,) labels of components, the largest being 0, and (c,) their sizes.

    ``least`` (m,) is the least vertex of the component of each vertex, -1 where there are no edges.
    """
    names, labels, sizes = np.unique(least, return_inverse=True, return_counts=True)
    first = int(names[0] == -1)
    order = np.argsort(-sizes[first:], kind="stable")
    place = np.full(len(names), -1)
    place[order + first] = np.arange(len(order))
    return place[labels], sizes[first:][order].astype(np.int64)


def inverse(values: Float64) -> Float64:
    """(m,) one over each value, and 0 for 0."""
    inverse = np.zeros(len(values))
    np.divide(1.0, values, out=inverse, where=values > 0)
    return inverse
