"""What weighs an edge of two graphs, or of a graph whose vertices have labels.

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
"""Of what an edge weighs in a graph that does not have it; else half of the smallest weight there."""

MOST_RIGHT = 1e-4
"""That an edge weighs in a second graph that does not have it, in an intersection."""

UNKNOWN = -1
"""Label of a row of which none is known."""

UNKNOWN_DISTANCE = 1.0
FARTHEST = 1e12
"""Distance of different labels where they alone count."""


class Rule(Protocol):
    """From what is known of edges to their weights."""

    def weigh(self, edges: Edges, others: Float64 | None) -> Float64:
        """New weights of edges of the first graph, which weigh ``others`` in the second if there is one.

        Edges that one of the graphs does not have weigh 0 there.
        """


def least_weight(graph: StoredRows) -> float:
    """What an edge weighs in a graph that does not have it."""
    return max(graph.smallest() / 2, SMALLEST)


@dataclass(frozen=True, slots=True)
class Union:
    """``a + b - a b``."""

    left: float
    right: float

    def weigh(self, edges: Edges, others: Float64 | None) -> Float64:
        """See the protocol."""
        assert others is not None  # noqa: S101
        a = np.where(edges.weights > 0, edges.weights, self.left).astype(np.float64)
        b = np.where(others > 0, others, self.right)
        return a + b - a * b


@dataclass(frozen=True, slots=True)
class Intersection:
    """``a b`` with one of them to a power, which lets the other count more."""

    left: float
    right: float
    weight: float
    """Of the second graph, between 0 and 1."""

    def weigh(self, edges: Edges, others: Float64 | None) -> Float64:
        """See the protocol."""
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
    """Edges between rows of different labels weigh less."""

    labels: Int64
    """Of each row; ``UNKNOWN`` where there is none."""

    weight: float
    """Of the labels, between 0 and 1."""

    def weigh(self, edges: Edges, others: Float64 | None) -> Float64:
        """See the protocol."""
        far = 2.5 / (1 - self.weight) if self.weight < 1 else FARTHEST
        own, their = self.labels[edges.rows], self.labels[edges.columns]
        unknown = (own == UNKNOWN) | (their == UNKNOWN)
        factor = np.where(unknown, np.exp(-UNKNOWN_DISTANCE), np.where(own == their, 1.0, np.exp(-far)))
        return np.asarray(edges.weights * factor)
