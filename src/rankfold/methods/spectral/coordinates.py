"""Coordinates of rows from eigenvectors of a walk, also of a disconnected graph.

Each component has a vector of the eigenvalue 1. Their span has one direction that says nothing, the constant
one; the others tell components apart. The basis is a matter of choice, since all have the same eigenvalue:
here each vector tells a component from all that are larger.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.dense import fix_signs
from rankfold.methods.spectral.walk.vertices import Vertices, inverse

Float64 = npt.NDArray[np.float64]


def contrasts(vertices: Vertices, count: int) -> Float64:
    """(m, count) eigenvectors of the eigenvalue 1 other than the constant one, orthonormal.

    The first tells the second largest component from the largest, the next the third from both, and so on; 0
    for components that are smaller, and for vertices without edges.
    """
    roots, labels, most = vertices.roots, vertices.labels + 1, len(vertices.sizes)
    volumes = np.bincount(labels, roots * roots, most + 1)[1:]
    before = np.cumsum(volumes)
    vectors = np.zeros((len(roots), count))
    for column, one in enumerate(range(1, count + 1)):
        levels = np.zeros(most + 1)
        levels[1 : one + 1] = np.sqrt(volumes[one] / (before[one - 1] * before[one]))
        levels[one + 1] = -np.sqrt(before[one - 1] / (volumes[one] * before[one]))
        vectors[:, column] = roots * levels[labels]
    return vectors


def coordinates(vertices: Vertices, vectors: Float64, factors: Float64, *, unit: bool) -> Float64:
    """(m, d) coordinates: orthonormal eigenvectors ``vectors`` (m, d) of the walk, times ``factors`` (d,).

    Eigenvectors are divided by the square roots of degrees. With ``unit`` their mean square is 1 in the
    walk's own distribution, where the constant vector is 1; else they are not scaled further.
    """
    roots = vertices.roots
    scaled = vectors * inverse(roots)[:, None]
    scaled *= factors * (np.sqrt((roots * roots).sum()) if unit else 1.0)
    scaled *= fix_signs(scaled)
    return scaled
