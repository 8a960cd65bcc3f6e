"""Choice of an opening: the widest whose errors, at targets drawn at random, are below ``tol``.

The opening is the largest ratio of the radius of a node of the tree to its distance from a group of targets
at which the node is summed as a whole. The wider, the fewer pairs and nodes are summed.

Sums at 1000 targets are computed source by source, and over the tree, by whole groups as in the later sweep.
The error of a target is that of its sum or its force, whichever is larger, relative to the exact one; where
weights have both signs, relative to the sum of the magnitudes of all contributions. What must be below
``tol`` is not the 99th percentile of the sample but the upper end of its confidence interval: the order
statistic that the percentile of all targets exceeds in one of twenty samples at most, by binomial counts.

For either order of expansions, bisection over a list of openings finds the widest that is accurate enough. Of
the two, the one that sums fewer pairs and nodes is chosen. Work is counted, not timed, so that the choice
does not depend on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from rankfold.kernels.sums.laws import SMOOTH
from rankfold.kernels.sums.tree_sums import ORDERS
from rankfold.methods.sums.points import SourcePoints
from rankfold.methods.sums.work import EXACT_CUTOFF, Summation, Targets, Way
from rankfold.pipeline.errors import PlanError

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
T = TypeVar("T")

SAMPLE = 1000
"""Number of targets drawn to measure errors: the upper end of the confidence interval is then the fifth
largest error."""

QUANTILE, CONFIDENCE = 0.99, 0.95

OPENINGS = (0.95, 0.8, 0.68, 0.58, 0.5, 0.42, 0.36, 0.3, 0.25, 0.2, 0.16, 0.12, 0.09)
NODE_PAIRS = {2: 2.0, 3: 4.0}
"""Number of pairs of a target and a source that take as long to sum as a node for a target, by order of
expansions."""

CUTOFF_SHARE = 1 / 64
"""Share of ``tol`` that is spent on what sums of kernels that decay may leave out."""

FEW_TARGETS = 2**18
"""Number of targets up to which no opening is sought for kernels that decay: trials would sum about as many
targets, eight or so times a thousand groups."""

PIECE = 16
"""Number of groups of targets that a thread takes at a time."""

FEW_PAIRS = 2**34
"""Largest number of pairs that are summed source by source where no opening is accurate enough: half a
minute."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Targets drawn at random, together with the other targets of their groups, for trials."""

    targets: Targets
    edges: Int64
    """(groups + 1,) first target of each group, and the number of ``targets``."""

    drawn: Int64
    """(drawn,) indices of the drawn targets in ``targets``."""

    population: int
    """Number of targets in all, from which they were drawn."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Chosen way of computing sums, with its error and work, measured at ``sample`` targets."""

    way: Way
    error: float = 0.0
    """Relative error that 99 of 100 targets of the sample do not exceed."""

    bound: float = 0.0
    """Upper bound on the relative error that 99 of 100 of all targets do not exceed, right in 19 of 20
    samples."""

    pairs: float = 0.0
    """Number of pairs summed for a target, on average; a node counts as several: see ``NODE_PAIRS``."""

    sample: int = 0

    def as_state(self) -> dict[str, npt.NDArray[Any]]:
        """The choice as arrays of a checkpoint."""
        way = self.way
        numbers = [way.opening, way.order, way.cutoff, self.error, self.bound, self.pairs, self.sample]
        return {"choice": np.array(numbers, np.float64)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Choice:
        """Choice from the arrays of a checkpoint, as ``as_state`` returns them."""
        opening, order, cutoff, error, bound, pairs, sample = state["choice"].tolist()
        return cls(Way(opening, int(order), cutoff), error, bound, pairs, int(sample))


def choose(summation: Summation, points: SourcePoints, sample: Sample, tol: float, threads: int) -> Choice:
    """Way of summing whose errors are within ``tol`` with least work, by trials at a sample, in all threads.

    It is source by source if nothing else is both accurate and faster. Raises ``PlanError`` if nothing else
    is accurate, and all pairs are too many.
    """
    with ThreadPoolExecutor(threads, "rankfold-sums") as pool:
        trial = Trial.of(summation, points, sample, pool)
        trials = [trial.measure(Way(cutoff=CUTOFF_SHARE * tol))] if summation.kernel.decays else []
        for order in ORDERS:
            trials += trial.widest(order, tol)
    count = len(points.x)
    passed = [each for each in trials if each.bound <= tol]
    best = min(passed, key=lambda each: each.pairs, default=None)
    if best is not None and best.pairs < count:
        return best
    if best is None and count * sample.population > FEW_PAIRS:
        near = min(trials, key=lambda each: each.bound)
        raise PlanError(
            f"no opening of the tree brings the error of 99 of 100 targets below tol={tol:g}: the least is "
            f"{near.bound:.2g}, at an opening of {near.way.opening:g}. Give tol={2 * near.bound:.1g}, "
            f"or tol=0 for exact sums of {count * sample.population:.2g} pairs"
        )
    return Choice(Way(), pairs=count, sample=len(sample.drawn))


def bounded_choice(summation: Summation, targets: int, tol: float) -> Choice | None:
    """Way to sum at few ``targets``, of a kernel that decays, without forces; None for other sums.

    It sums source by source, and leaves out only sources that add less than ``tol`` of a sum in all. Few
    targets take no longer than choosing an opening would. Nothing is measured: the error is a bound on what
    is left out, at every target.
    """
    if summation.forces or not summation.kernel.decays or targets > FEW_TARGETS:
        return None
    return Choice(Way(cutoff=tol), tol, tol)


def needs_choice(summation: Summation, points: SourcePoints, tol: float) -> bool:
    """True if sums may go over a tree, so that an opening is to be chosen."""
    return tol > 0 and points.sources is not None and summation.kernel.law in SMOOTH


@dataclass(frozen=True, slots=True)
class Trial:
    """Exact sums at the drawn targets of a sample, to which sums in other ways are compared.

    ``exact`` (drawn, width) are the exact sums and forces.
    """

    summation: Summation
    points: SourcePoints
    sample: Sample
    exact: Float64
    sizes: Float64
    """(drawn, 1 or 2) sizes that errors are divided by: of sums, and of forces if they are computed."""

    pool: ThreadPoolExecutor

    @classmethod
    def of(
        cls, summation: Summation, points: SourcePoints, sample: Sample, pool: ThreadPoolExecutor
    ) -> Trial:
        """Compute exact sums at the drawn targets, source by source, in the threads of ``pool``."""
        every, some = sample.targets, sample.drawn
        drawn = Targets(every.x[some], every.places[some], every.own[some])
        pieces = _pieces(len(drawn.x))
        one_sign = points.has_one_sign

        def exactly(piece: tuple[int, int], *, magnitudes: bool = False) -> Float64:
            return summation.exactly(points, drawn.part(*piece), magnitudes=magnitudes)

        exact = np.concatenate(list(pool.map(exactly, pieces)))
        if one_sign:
            sizes = [np.abs(exact[:, 0]), np.linalg.norm(exact[:, 1:], axis=1)][: 1 + summation.forces]
            return cls(summation, points, sample, exact, np.stack(sizes, axis=1), pool)
        whole = np.concatenate(list(pool.map(lambda piece: exactly(piece, magnitudes=True), pieces)))
        return cls(summation, points, sample, exact, whole, pool)

    def widest(self, order: int, tol: float) -> list[Choice]:
        """Trials with expansions of one order, by bisection over ``OPENINGS``.

        Among them is the widest opening whose errors are within ``tol``, or else the narrowest of all.
        """
        trials: list[Choice] = []
        low, high = 0, len(OPENINGS)  # those from ``high`` on will do, those before ``low`` will not
        while low < high:
            middle = (low + high) // 2
            trials.append(self.measure(Way(OPENINGS[middle], order, max(CUTOFF_SHARE * tol, EXACT_CUTOFF))))
            if trials[-1].bound <= tol:
                high = middle
            else:
                low = middle + 1
        return trials

    def measure(self, way: Way) -> Choice:
        """Error and work of one way of summing, at the sample."""
        sample, edges = self.sample, self.sample.edges
        firsts = range(0, len(edges) - 1, PIECE)

        def some(first: int) -> tuple[Float64, Int64]:
            own = edges[first : first + PIECE + 1]
            part = sample.targets.part(int(own[0]), int(own[-1]))
            return self.summation.at(self.points, part, way, own - own[0])

        parts = list(self.pool.map(some, firsts))
        sums = np.concatenate([out for out, _ in parts])[sample.drawn]
        pairs, nodes = np.sum([counts for _, counts in parts], axis=0).tolist()
        errors = self._errors(sums)
        each = (pairs + NODE_PAIRS[way.order] * nodes) / len(sample.targets.x)
        error, bound = quantile_with_bound(errors, sample.population)
        return Choice(way, error, bound, each, len(errors))

    def _errors(self, sums: Float64) -> Float64:
        apart = sums - self.exact
        gaps = [np.abs(apart[:, 0]), np.linalg.norm(apart[:, 1:], axis=1)][: self.sizes.shape[1]]
        errors = np.zeros(len(sums))
        for gap, size in zip(gaps, self.sizes.T, strict=True):
            with np.errstate(divide="ignore", invalid="ignore"):
                errors = np.maximum(errors, np.where(gap > 0, gap / size, 0.0))
        return np.where(np.isnan(errors), np.inf, errors)


def quantile_with_bound(errors: Float64, population: int) -> tuple[float, float]:
    """The 99th percentile of ``errors`` of a sample, and an upper bound on that of the whole population.

    The percentile of all ``population`` targets exceeds the bound in at most 1 of 20 samples.

    >>> quantile_with_bound(np.arange(1000.0), 10**6)
    (989.0, 995.0)
    """
    count, in_order = len(errors), np.sort(errors)
    place = math.ceil(QUANTILE * count) - 1
    if count == population:
        return float(in_order[place]), float(in_order[place])
    # The percentile exceeds the k-th smallest where k or more of the sample are below it.
    below, k = 0.0, count
    for k in range(count, 0, -1):
        log = math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
        below += math.exp(log + k * math.log(QUANTILE) + (count - k) * math.log1p(-QUANTILE))
        if below > 1 - CONFIDENCE:
            break
    bound = float(in_order[k]) if k < count else math.inf
    return float(in_order[place]), bound


def _pieces(count: int) -> Sequence[tuple[int, int]]:
    return [(start, min(start + PIECE, count)) for start in range(0, count, PIECE)]
