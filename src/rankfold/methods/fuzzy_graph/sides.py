"""What the rows of an edge say of it, and what it weighs by both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.kernels.graph.fuzzy import membership
from rankfold.kernels.graph.perplexity import affinities

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]


class Sides(Protocol):
    """How a row weighs its neighbors, and how an edge joins what its two rows say. Pickles."""

    @property
    def kind(self) -> str:
        """Of the graph."""

    @property
    def by_mean_distance(self) -> bool:
        """Whether rows are weighed by the mean of all distances."""

    def request(self) -> dict[str, Any]:
        """What tells these graphs from others."""

    def weigh(self, distances: Array, mean: float, out: Float32) -> None:
        """Weights of the neighbors of some rows."""

    def join(self, one: Float32, other: Float32) -> Float32:
        """Weights of edges, from what either row says: 0 where it does not have the other."""


@dataclass(frozen=True, slots=True)
class FuzzySides:
    """``mix (a + b - a b) + (1 - mix) a b``: see ``rankfold.kernels.graph.fuzzy``."""

    set_op_mix_ratio: float
    local_connectivity: float
    kind: str = "fuzzy_graph"
    by_mean_distance: bool = True

    def request(self) -> dict[str, Any]:
        """See the protocol."""
        return {"set_op_mix_ratio": self.set_op_mix_ratio, "local_connectivity": self.local_connectivity}

    def weigh(self, distances: Array, mean: float, out: Float32) -> None:
        """See the protocol."""
        membership(distances, mean, local_connectivity=self.local_connectivity, out=out)

    def join(self, one: Float32, other: Float32) -> Float32:
        """See the protocol."""
        mix = np.float32(self.set_op_mix_ratio)
        product = one * other
        return mix * (one + other - product) + (np.float32(1) - mix) * product


@dataclass(frozen=True, slots=True)
class AffinitySides:
    """``(a + b) / (2 m)``, which sum to 1 over all pairs: see ``rankfold.kernels.graph.perplexity``."""

    perplexities: tuple[float, ...]
    rows: int
    kind: str = "affinities"
    by_mean_distance: bool = False

    def request(self) -> dict[str, Any]:
        """See the protocol."""
        return {"perplexities": list(self.perplexities)}

    def weigh(self, distances: Array, mean: float, out: Float32) -> None:
        """See the protocol."""
        affinities(distances, np.array(self.perplexities, np.float64), out=out)

    def join(self, one: Float32, other: Float32) -> Float32:
        """See the protocol."""
        return np.asarray((one + other) * np.float32(0.5 / self.rows))
