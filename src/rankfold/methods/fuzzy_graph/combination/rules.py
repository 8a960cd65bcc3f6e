"""Rules for the weight of an edge in two graphs, or in a graph whose vertices have labels.

References
----------
McInnes, Healy, Melville, UMAP, arXiv:1802.03426, for unions and intersections of fuzzy sets. Numbers are
those of ``general_simplicial_set_union``, ``general_simplicial_set_intersection`` and
``discrete_metric_simplicial_set_intersection`` of umap-learn 0.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rankfold.methods.fuzzy_graph.stored_rows import Edges, StoredRows

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

SMALLEST = 1e-8
"""Least weight assumed for an edge absent from a graph; otherwise half of the smallest weight there."""

MOST_RIGHT = 1e-4
"""Largest weight assumed for an edge absent from the second graph of an intersection."""

UNKNOWN = -1
"""Label of a row whose label is unknown."""

UNKNOWN_DISTANCE = 1.0
FARTHEST = 1e12
"""Distance between different labels if only labels count (weight 1)."""


class Rule(Protocol):
    """Protocol of a rule for new weights of edges, from the weights in two graphs or from labels."""

    def weigh(self, edges: Edges, others: Float64 | None) -> Float64:
        """New weights (edges,) from edges of the first graph, and their weights ``others`` in the second.

        ``others`` is None without a second graph. Edges absent from a graph have weight 0 there.
        """


def least_weight(graph: StoredRows) -> float:
    """Weight assumed for edges absent from a graph: half of its smallest weight, at least ``SMALLEST``."""
    return max(graph.smallest() / 2, SMALLEST)


@dataclass(frozen=True, slots=True)
class Union:
    """Fuzzy union ``a + b - a b`` of the weights in two graphs.

    ``left`` and ``right`` are weights assumed for edges absent from the first and from the second graph.
    """

    left: float
    right: float

    def weigh(self, edges: Edges, others: Float64 | None) -> Float64:
        """Fuzzy union of the weights in both graphs."""
        assert others is not None  # noqa: S101
        a = np.where(edges.weights > 0, edges.weights, self.left).astype(np.float64)
        b = np.where(others > 0, others, self.right)
        return a + b - a * b


@dataclass(frozen=True, slots=True)
class Intersection:
    """Intersection ``a b`` of the weights in two graphs, one to a power that lowers its influence.

    ``left`` and ``right`` are weights assumed for edges absent from the first and from the second graph.
    """

    left: float
    right: float
    weight: float
    """Weight of the second graph, between 0 and 1."""

    def weigh(self, edges: Edges, others: Float64 | None) -> Float64:
        """Weighted product of the weights in both graphs."""
        assert others is not None  # noqa: S101
        a = np.where(edges.weights > 0, edges.weights, self.left).astype(np.float64)
        b = np.where(others > 0, others, self.right)
        joined: Float64 = a + b
        known = (a > self.left) | (b > self.right)
        w = self.weight
        product = a * b ** (w / (1 - w)) if w < 0.5 else a ** ((1 - w) / w) * b
        return np.where(known, product, joined)


@dataclass(frozen=True, slots=True)
class SameLabel:
    """Rule that lowers weights of edges between rows of different or unknown labels."""

    labels: Int64
    """(rows,) label of each row, or ``UNKNOWN``."""

    weight: float
    """Weight of the labels, between 0 and 1."""

    def weigh(self, edges: Edges, others: Float64 | None) -> Float64:
        """Multiply weights by a factor for equal, different or unknown labels."""
        far = 2.5 / (1 - self.weight) if self.weight < 1 else FARTHEST
        own, their = self.labels[edges.rows], self.labels[edges.columns]
        unknown = (own == UNKNOWN) | (their == UNKNOWN)
        factor = np.where(unknown, np.exp(-UNKNOWN_DISTANCE), np.where(own == their, 1.0, np.exp(-far)))
        return np.asarray(edges.weights * factor)
