"""Sums at some targets in the chosen way: source by source, or over the tree."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.sums import tree_sums as kernels
from rankfold.kernels.sums.laws import Law
from rankfold.kernels.sums.nearest import nearest_sources
from rankfold.kernels.sums.pairs import GROUP, no_shifts, sum_pairs
from rankfold.kernels.sums.tree import SumTree
from rankfold.kernels.sums.tree_sums import NODES_SUMMED, PAIRS_SUMMED, Groups, sum_in_tree
from rankfold.methods.sums.kernels import Kernel
from rankfold.methods.sums.points import TREE_COLUMNS, SourcePoints
from rankfold.pipeline.errors import DataError

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

EXACT_CUTOFF = 2.0**-60
"""Share of a sum that may be left out where it has to be exact: no bit of it changes."""


@dataclass(frozen=True, slots=True)
class Way:
    """Parameters of how sums are computed: over a tree or source by source, and how exactly."""

    opening: float = 0.0
    """Largest ratio of radius to distance of a node that is summed as a whole; 0 for source by source."""

    order: int = 2
    cutoff: float = EXACT_CUTOFF
    """Share of a sum that may be left out, for kernels that decay."""

    @property
    def is_exact(self) -> bool:
        """True if sums go source by source, and leave out nothing that counts."""
        return self.opening == 0 and self.cutoff <= EXACT_CUTOFF


@dataclass(frozen=True, slots=True)
class Targets:
    """Points where sums are wanted, in an order that keeps neighbors together."""

    x: Float64
    places: Int64
    """(m,) index of each target among the sources in the order of the tree; -1 if it is none of them."""

    own: Float64
    """(m,) weight of each target among the sources, whose own term is left out; 0 for none."""

    @classmethod
    def among(cls, points: SourcePoints, places: Int64, *, leave_out: bool) -> Targets:
        """Targets that are sources themselves, by their indices in ``points.rows``.

        With ``leave_out``, a target's own term is not in its sum.
        """
        if not leave_out:
            return cls.others(points.rows[places])
        return cls(points.rows[places], places, points.row_weights[places])

    @classmethod
    def others(cls, x: Float64) -> Targets:
        """Targets at any points ``x``; no source is left out of their sums."""
        return cls(x, np.full(len(x), -1), np.zeros(len(x)))

    def part(self, start: int, stop: int) -> Targets:
        """Targets ``start:stop``."""
        return Targets(self.x[start:stop], self.places[start:stop], self.own[start:stop])


@dataclass(frozen=True, slots=True)
class Summation:
    """Sums of one kernel over sources, with or without forces."""

    kernel: Kernel
    forces: bool
    shifted: bool = False
    """True if sums are relative to the term of the nearest source: see ``logarithms``."""

    def width(self, columns: int) -> int:
        """Number of columns of sums and forces for each target."""
        return 1 + columns * self.forces

    def at(
        self, points: SourcePoints, targets: Targets, way: Way, edges: Int64 | None = None
    ) -> tuple[Float64, Int64]:
        """(m, width) sums and forces at targets; and (2,) numbers of pairs and nodes summed.

        ``edges`` are the first target of each group that shares nodes, and the end; by default groups have
        ``GROUP`` targets.
        """
        count = len(targets.x)
        out = np.empty((count, self.width(points.x.shape[1])))
        shifts, floors = self._bounds(points, targets)
        how: dict[str, Any] = {"law": int(self.kernel.law), "scale": self.kernel.scale, "out": out}
        prunes = self.kernel.decays or self.kernel.is_compact
        if points.sources is None or (way.is_exact and not prunes):
            sum_pairs(points.x, points.weights, targets.x, targets.own, shifts, **how)
            return out, np.array([count * len(points.x), 0])
        if edges is None:
            edges = np.append(np.arange(0, count, GROUP), count)
        counts = np.empty((len(edges) - 1, 2), np.int64)
        groups = Groups(targets.x, targets.own, shifts, floors, edges)
        expansion = kernels.Way(int(self.kernel.law), self.kernel.scale, way.opening, way.order, way.cutoff)
        sum_in_tree(points.sources, groups, expansion, counts=counts, out=out)
        return out, counts[:, [PAIRS_SUMMED, NODES_SUMMED]].sum(axis=0)

    def exactly(self, points: SourcePoints, targets: Targets, *, magnitudes: bool = False) -> Float64:
        """Sums source by source, (m, width); or sums of magnitudes, (m, 2) with the lengths of forces."""
        out = np.zeros((len(targets.x), 2 if magnitudes and self.forces else self.width(points.x.shape[1])))
        shifts, _ = self._bounds(points, targets)
        how: dict[str, Any] = {"law": int(self.kernel.law), "scale": self.kernel.scale}
        sum_pairs(
            points.x, points.weights, targets.x, targets.own, shifts, **how, magnitudes=magnitudes, out=out
        )
        return out

    def logarithms(self, points: SourcePoints, targets: Targets, sums: Float64) -> Float64:
        """(m,) logarithms of sums; ``sums`` are relative to the term of the nearest source."""
        with np.errstate(divide="ignore"):
            return np.log(sums) - self._bounds(points, targets)[0]

    def _bounds(self, points: SourcePoints, targets: Targets) -> tuple[Float64, Float64]:
        """(m,) shifts of the targets, and (m,) logarithms of lower bounds of their sums without shifts."""
        count = len(targets.x)
        if not self.kernel.decays:
            return no_shifts(count), no_shifts(count)
        squares, places = np.empty(count), np.empty(count, np.int64)
        if points.sources is not None:
            nearest_sources(points.tree, targets.x, targets.places, squares=squares, places=places)
        else:
            _nearest(points.x, targets, squares, places)
        with np.errstate(divide="ignore"):
            floors = np.log(np.abs(points.weights[places]))
        exponents = (squares if self.kernel.law == Law.GAUSSIAN else np.sqrt(squares)) * self.kernel.scale
        alone = places < 0
        exponents[alone], floors[alone] = 0.0, -np.inf
        return (exponents if self.shifted else no_shifts(count)), floors - exponents


def _nearest(x: Float64, targets: Targets, squares: Float64, places: Int64) -> None:
    """Find the nearest source of each target without a tree, a few sources at a time.

    Writes squared distances to ``squares``, and indices of sources to ``places``.
    """
    squares[:], places[:] = np.inf, -1
    step = max(1, 2**20 // max(1, len(targets.x)))
    rows = np.arange(len(targets.x))
    for start in range(0, len(x), step):
        some = x[start : start + step]
        s = np.zeros((len(targets.x), len(some)))
        for column in range(x.shape[1]):
            s += (targets.x[:, column, None] - some[:, column]) ** 2
        inside = (targets.places >= start) & (targets.places < start + len(some))
        s[rows[inside], targets.places[inside] - start] = np.inf
        best = s.argmin(axis=1)
        nearer = s[rows, best] < squares
        squares[nearer], places[nearer] = s[rows, best][nearer], start + best[nearer]


def require_numbers(values: Float64, start: int, name: str) -> None:
    """Raise ``DataError`` where a sum is not finite."""
    wrong = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if wrong.any():
        raise DataError(
            f"the sum at target {start + int(wrong.argmax())} (from 0) is too large for a number: "
            f"a source of {name} is too near for the law. Give a softening, or scale coordinates and weights"
        )


def warm_sums(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the compiled loops of sums once; all points are float64, whatever the matrix is."""
    _warm_sums(many=shape[1] > TREE_COLUMNS)


@functools.cache
def _warm_sums(*, many: bool) -> None:
    columns = TREE_COLUMNS + many
    x, ids, weights = np.zeros((40, columns)), np.arange(40), np.ones(40)
    x[:, 0] = ids
    sources = None if many else kernels.Sources.of(SumTree.of(x, ids), weights)
    points = SourcePoints(x, ids, weights, sources)
    summation = Summation(Kernel(Law.GAUSSIAN, 1.0), forces=True)
    targets = Targets.among(points, ids[:2], leave_out=True)
    summation.at(points, targets, Way(0.5))
    summation.exactly(points, targets)
