"""Sums of a kernel over all sources, at some targets, in a chosen way: source by source or over a tree."""

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
"""Share of a sum that may be left out where the sum has to be exact: no bit of it changes."""


@dataclass(frozen=True, slots=True)
class Way:
    """Parameters of how sums are computed: over a tree or source by source, and how exactly.

    ``order`` is that of the expansions of nodes that are summed as a whole, 2 or 3.
    """

    opening: float = 0.0
    """Largest ratio of radius to distance at which a node of the tree is summed as a whole; 0 for source by
    source."""

    order: int = 2
    cutoff: float = EXACT_CUTOFF
    """Share of each sum that may be left out, for kernels that decay."""

    @property
    def is_exact(self) -> bool:
        """True if sums go source by source, and leave out nothing that changes a bit."""
        return self.opening == 0 and self.cutoff <= EXACT_CUTOFF


@dataclass(frozen=True, slots=True)
class Targets:
    """Points ``x`` (m, d) where sums are wanted, in an order that keeps neighbors together."""

    x: Float64
    places: Int64
    """(m,) index of each target in ``SourcePoints.rows``; -1 if the target is no source."""

    own: Float64
    """(m,) weight of each target as a source, whose own term is left out of its sum; 0 to leave out none."""

    @classmethod
    def among(cls, points: SourcePoints, places: Int64, *, leave_out: bool) -> Targets:
        """Targets that are sources themselves; ``places`` (m,) are their indices in ``points.rows``.

        With ``leave_out``, a target's own term is not in its sum.
        """
        if not leave_out:
            return cls.others(points.rows[places])
        return cls(points.rows[places], places, points.row_weights[places])

    @classmethod
    def others(cls, x: Float64) -> Targets:
        """Targets at any points ``x`` (m, d); no source is left out of their sums."""
        return cls(x, np.full(len(x), -1), np.zeros(len(x)))

    def part(self, start: int, stop: int) -> Targets:
        """Targets ``start:stop`` of these."""
        return Targets(self.x[start:stop], self.places[start:stop], self.own[start:stop])


@dataclass(frozen=True, slots=True)
class Summation:
    """Sums of one kernel over all sources, with or without forces."""

    kernel: Kernel
    forces: bool
    shifted: bool = False
    """True if sums are relative to the kernel at the nearest source, so that they do not underflow: see
    ``logarithms``."""

    def width(self, columns: int) -> int:
        """Number of values for each target: its sum, and its force in ``columns`` dimensions if wanted."""
        return 1 + columns * self.forces

    def at(
        self, points: SourcePoints, targets: Targets, way: Way, edges: Int64 | None = None
    ) -> tuple[Float64, Int64]:
        """(m, width) sums and forces at targets; and (2,), the numbers of pairs and nodes summed.

        Values are those of the law, without ``Kernel.factor``.

        Parameters
        ----------
        points : SourcePoints
        targets : Targets
        way : Way
        edges : (groups + 1,) int64, optional
            First target of each group that shares nodes, and m; by default groups have ``GROUP`` targets.
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
        """(m, width) sums and forces at targets, source by source, as by ``at``.

        With ``magnitudes``, sums of the magnitudes of all terms instead: of sums, (m, 1), or, with forces, of
        sums and of the lengths of forces, (m, 2).
        """
        out = np.zeros((len(targets.x), 2 if magnitudes and self.forces else self.width(points.x.shape[1])))
        shifts, _ = self._bounds(points, targets)
        how: dict[str, Any] = {"law": int(self.kernel.law), "scale": self.kernel.scale}
        sum_pairs(
            points.x, points.weights, targets.x, targets.own, shifts, **how, magnitudes=magnitudes, out=out
        )
        return out

    def logarithms(self, points: SourcePoints, targets: Targets, sums: Float64) -> Float64:
        """(m,) logarithms of sums; ``sums`` (m,) are relative to the kernel at the nearest source."""
        with np.errstate(divide="ignore"):
            return np.log(sums) - self._bounds(points, targets)[0]

    def _bounds(self, points: SourcePoints, targets: Targets) -> tuple[Float64, Float64]:
        """(m,) shifts of the targets; and (m,) logarithms of lower bounds of their sums, without shifts.

        A shift is the exponent of the nearest source if ``shifted``; else, and for kernels that do not decay,
        0.
        """
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

    ``x`` (n, d) are the sources. Writes squared distances to ``squares`` (m,), and indices of sources to
    ``places`` (m,); a target that is a source is not its own nearest.
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
    """Raise ``DataError`` where a sum is not finite.

    ``values`` (r, width) are those of targets from ``start`` on, ``name`` is that of the matrix of sources.
    """
    wrong = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if wrong.any():
        raise DataError(
            f"the sum at target {start + int(wrong.argmax())} (from 0) is too large for a number: "
            f"a source of {name} is too near for the law. Give a softening, or scale coordinates and weights"
        )


def warm_sums(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the compiled loops of sums for ``shape[1]`` columns once; points are always float64."""
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
