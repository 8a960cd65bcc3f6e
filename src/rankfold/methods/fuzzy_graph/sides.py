"""Weights that a row assigns to its neighbors, and the weight of an edge from both of its rows."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.kernels.graph.fuzzy import membership
from rankfold.kernels.graph.perplexity import affinities

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]


class EdgeWeighting(Protocol):
    """Rules for weights: of neighbors of a row, and of an edge from its two rows. Picklable."""

    @property
    def kind(self) -> str:
        """Kind of the graph: ``"fuzzy_graph"`` or ``"affinities"``."""

    @property
    def by_mean_distance(self) -> bool:
        """True if weights depend on the mean of all distances."""

    def request(self) -> dict[str, Any]:
        """Parameters that identify the rules."""

    def weigh(self, distances: Array, mean: float, out: Float32) -> None:
        """Compute weights ``out`` of neighbors at ``distances``, both (r, k); ``mean`` is over all rows."""

    def join(self, one: Float32, other: Float32) -> Float32:
        """Weights of edges, (edges,), from the weights ``one`` and ``other`` that their two rows assign.

        The weight from a row is 0 if it does not have the other row as neighbor.
        """


@dataclass(frozen=True, slots=True)
class FuzzySides:
    """Rules of UMAP: an edge has weight ``mix (a + b - a b) + (1 - mix) a b``, from weights a, b of its rows.

    See ``rankfold.kernels.graph.fuzzy``.
    """

    set_op_mix_ratio: float
    local_connectivity: float
    kind: str = "fuzzy_graph"
    by_mean_distance: bool = True

    def request(self) -> dict[str, Any]:
        """Parameters that identify the rules: ``set_op_mix_ratio`` and ``local_connectivity``."""
        return {"set_op_mix_ratio": self.set_op_mix_ratio, "local_connectivity": self.local_connectivity}

    def weigh(self, distances: Array, mean: float, out: Float32) -> None:
        """Compute fuzzy memberships ``out`` of neighbors at ``distances``, both (r, k)."""
        membership(distances, mean, local_connectivity=self.local_connectivity, out=out)

    def join(self, one: Float32, other: Float32) -> Float32:
        """Weights of edges: the mix of fuzzy union and intersection of the weights from both rows."""
        mix = np.float32(self.set_op_mix_ratio)
        product = one * other
        return mix * (one + other - product) + (np.float32(1) - mix) * product


@dataclass(frozen=True, slots=True)
class AffinitySides:
    """Rules of t-SNE: an edge has weight ``(a + b) / (2 m)``, from affinities a, b of its rows, m in all.

    These weights sum to 1 over all pairs. See ``rankfold.kernels.graph.perplexity``.
    """

    perplexities: tuple[float, ...]
    rows: int
    kind: str = "affinities"
    by_mean_distance: bool = False

    def request(self) -> dict[str, Any]:
        """Parameters that identify the rules: the perplexities."""
        return {"perplexities": list(self.perplexities)}

    def weigh(self, distances: Array, mean: float, out: Float32) -> None:
        """Compute affinities ``out`` of neighbors at ``distances``, both (r, k); those of a row sum to 1."""
        affinities(distances, np.array(self.perplexities, np.float64), out=out)

    def join(self, one: Float32, other: Float32) -> Float32:
        """Weights of edges: the mean of the affinities from both rows, over the number of rows."""
        return np.asarray((one + other) * np.float32(0.5 / self.rows))


def warm_weights(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the compiled loop for weights of neighbors once: affinities if the request has perplexities."""
    warm_affinities() if "perplexities" in request else _warm_membership()


@functools.cache
def _warm_membership() -> None:
    for wide in (np.zeros((2, 2)), np.zeros((2, 4))[:, :2]):
        membership(wide, 0.0, out=np.empty((2, 2), np.float32))


@functools.cache
def warm_affinities() -> None:
    """Run the compiled loop for affinities once, on lists in either order of memory."""
    for wide in (np.ones((2, 2)), np.ones((2, 4))[:, :2]):
        affinities(wide, np.ones(1), out=np.empty((2, 2), np.float32))
