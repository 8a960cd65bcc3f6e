"""Local radii of a layout: mean squared distances of the neighbors of vertices, weighted by closeness."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.layout.forces import Edges
from rankfold.kernels.layout.vertices import _square, _value

Float32 = npt.NDArray[np.float32]


@kernel
def measure_radii(
    positions: Float32, own: Float32, edges: Edges, *, closeness: Float32, out: Float32
) -> None:
    """Mean squared lengths of the edges of some vertices, weighted by closeness, and sums of the closeness.

    Parameters
    ----------
    positions : (n, d) float32
        Positions of all vertices.
    own : (m, d) float32
        Positions of the vertices that are measured.
    edges
        See ``forces.py``: edges of these vertices, whether they pull or not.
    closeness : float32
        Table of the curve: see ``Density``.
    out : (m, 2) float32, written
        ``sum(phi d^2) / sum(phi)`` and ``sum(phi)`` over the edges of each, with phi the closeness of their
        ends; both 0 where there are no edges, or the closeness of all ends is 0.

    Notes
    -----
    Some 20 d operations an edge; no scratch. Sums are float64, in order of edges: every body computes the
    same, to the last bit.

    References
    ----------
    Narayan, Berger, Cho, Nature Biotechnology 39, 2021: the local radius in an embedding.
    """
    for place in range(len(own)):
        squares = close = 0.0
        for edge in range(int(edges.pointers[place]), int(edges.pointers[place + 1])):
            square = _square(own[place] - positions[edges.neighbors[edge]])
            value = _value(closeness, square) if square > 0 else np.float32(1)
            squares += float(value * square)
            close += float(value)
        out[place] = squares / close if close > 0 else 0.0, close
