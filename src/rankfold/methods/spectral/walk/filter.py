"""Leading eigenvectors of a walk by filters of many steps, where each step is one read of the graph.

A Chebyshev polynomial of the walk stays within -1 and 1 on unwanted eigenvalues, and grows fast beyond: a
block of random vectors to which it is applied turns to the leading eigenvectors. That takes three blocks of
vectors and no products between them. Vectors are made orthonormal only between filters, which shows where the
next filter has to begin, and whether one is needed.

References
----------
Zhou, Saad, Tiago, Chelikowsky, Self-consistent-field calculations using Chebyshev-filtered subspace
iteration, Journal of Computational Physics 219, 2006: a filter begins at the least Ritz value of the block.
Unlike there the other end is known, -1; vectors of the eigenvalue 1 are known and projected out; and a filter
has as many steps as the largest error needs, up to a growth after which Ritz values have to be computed
again. That is in design note 30.

Ritz pairs of the walk, and estimates of their errors.

An eigenvalue lies within the residual r of a Ritz value, and within r^2 / gap where the gap is that to what
lies outside the block. All columns of a block come from one Rayleigh-Ritz step, so that a residual is
orthogonal to each of them: the gap is to values outside the block, not to the next value. Where values lie
within their residuals of each other, any may have the error of any other, and their residuals are combined.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.kernels.graph.walk import Steps, join_edges, step_rows
from rankfold.kernels.linear.gaussian import gaussian_rows
from rankfold.kernels.linear.orthonormal import orthonormalize
from rankfold.methods.random_keys import Purpose
from rankfold.methods.spectral.walk.blocks import Walk
from rankfold.methods.spectral.walk.vertices import Vertices, inverse
from rankfold.methods.svd.in_memory.basis import cholesky_qr
from rankfold.pipeline.engine import sweep
from rankfold.pipeline.storage.checkpoint import load_if_whole, save_arrays

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

SPARE = 6
"""Fewest vectors of a block beyond the wanted ones. A filter damps all eigenvalues below the smallest Ritz
value of the block."""

NARROWEST, WIDEST = 8, 32
"""Fewest columns of a block of vectors, so that rows fill cache lines; and width up to which widths are
powers of two: as many columns are multiplied at a time."""

GROWTH = 10.0
"""Upper bound on the growth of the last wanted vector by a filter, relative to unwanted ones."""

LONGEST = 1e8
"""Upper bound on the growth by a filter of vectors of the eigenvalue 1, of which rounding leaves a trace in
the block."""

LEAST_STEPS = 2
MOST_STEPS = 2000


def block_width(wanted: int) -> int:
    """Number of columns of the block of vectors for this many eigenvectors.

    >>> [block_width(k) for k in (1, 2, 3, 10, 11, 26, 27, 100)]
    [8, 8, 16, 16, 32, 32, 40, 136]
    """
    if wanted + SPARE <= WIDEST:
        return max(NARROWEST, 1 << (wanted + SPARE - 1).bit_length())
    return -(-(wanted + wanted // 4 + SPARE) // NARROWEST) * NARROWEST


@dataclass(slots=True)
class Filter:
    """Block of b vectors that converges to the leading eigenvectors by one Chebyshev filter after the other.

    ``tol`` is the wanted relative error of eigenvalues, ``most_reads`` bounds the reads of the graph.
    """

    walk: Walk
    vertices: Vertices
    groups: tuple[Int64 | slice, ...]
    """Rows of each group in which eigenvectors are sought by themselves; vectors are 0 in other rows."""

    wanted: int
    """Number of eigenvectors sought in each group."""

    tol: float
    most_reads: int

    x: Float64
    """(m, b) leading Ritz vectors, orthonormal in each group."""

    y: Float64
    """(m, b) products N x, where N is the symmetric matrix of the walk."""

    pairs: list[RitzPairs]
    """Ritz pairs of each group of rows."""

    @classmethod
    def begin(
        cls,
        walk: Walk,
        vertices: Vertices,
        groups: tuple[Int64 | slice, ...],
        wanted: int,
        asked: tuple[float, int, int],
    ) -> Filter:
        """Filter that begins at a random block of vectors; ``asked`` are tol, most reads and seed."""
        tol, most_reads, seed = asked
        rows, width = len(vertices.scale), block_width(wanted)
        x = gaussian_rows(seed, Purpose.WALK_VECTORS, (0, rows), width)
        inside = np.zeros(rows, bool)
        for group in groups:
            inside[group] = True
        x[~inside | (vertices.scale == 0)] = 0
        return cls(walk, vertices, groups, wanted, tol, most_reads, x, np.empty(0), [])

    def run(self, part: Path | None, tell: Callable[[float], None]) -> None:
        """Filter until errors are small enough, or all reads are used.

        Calls ``tell`` before each filter with the largest error relative to its target.

        ``part`` is the path where the block is saved meanwhile, or None.
        """
        last_save = time.monotonic()
        if part is None or not self._resume(part):
            self._turn(self.x)
        while self.excess > 1 and self.walk.reads < self.most_reads:
            tell(self.excess)
            self._turn(self._filtered(self._step_count()))
            if part is not None and time.monotonic() - last_save > sweep.SEGMENT_SECONDS:
                self._save(part)
                last_save = time.monotonic()

    @property
    def excess(self) -> float:
        """Largest error of an eigenvalue over the error allowed, in all components; 1 is enough."""
        return max(pairs.excess(self.wanted, self.tol) for pairs in self.pairs)

    def _save(self, part: Path) -> None:
        values, residuals = (np.stack(each) for each in zip(*self.pairs, strict=True))
        arrays = {"x": self.x, "y": self.y, "values": values, "residuals": residuals}
        save_arrays(part, {**arrays, "reads": np.array([self.walk.reads])})

    def _resume(self, part: Path) -> bool:
        """Load the block that an earlier attempt has saved at ``part``; False if there is none."""
        state = load_if_whole(part)
        if state is None:
            return False
        self.x, self.y, self.walk.reads = state["x"], state["y"], int(state["reads"][0])
        self.pairs = [RitzPairs(*both) for both in zip(state["values"], state["residuals"], strict=True)]
        return True

    def _step_count(self) -> int:
        """Number of steps of the next filter, for the group of rows that needs most of them."""
        steps = [LEAST_STEPS]
        for pairs in self.pairs:
            needed = min(2 * pairs.needed(self.wanted, self.tol), GROWTH)
            if pairs.excess(self.wanted, self.tol) > 1:
                last = _rate(pairs.values[self.wanted - 1], pairs.values[-1])
                steps.append(math.ceil(math.acosh(max(needed, 1.5)) / last))
        # The longest vector, of the eigenvalue 1, grows most where a filter begins lowest.
        most = min(int(math.acosh(LONGEST) / _rate(1.0, pairs.values[-1])) for pairs in self.pairs)
        return max(LEAST_STEPS, min(max(steps), most, MOST_STEPS, self.most_reads - self.walk.reads))

    def _filtered(self, steps: int) -> Float64:
        """(m, b) block after a filter of ``steps`` steps; the first step uses the known product ``y``."""
        ends = np.ones(len(self.vertices.scale)), np.ones(len(self.vertices.scale))
        for group, pairs in zip(self.groups, self.pairs, strict=True):
            ends[0][group], ends[1][group] = _interval(pairs.values[-1])
        center, half = ends
        # Steps are those of the walk itself, of vectors u = s x, which need no factor before the sum.
        u = self.x * self.vertices.scale[:, None]
        before, now = u, (self.y * self.vertices.scale[:, None] - center[:, None] * u) / half[:, None]
        coefficients = Steps(2 * self.vertices.scale**2 / half, -2 * center / half, -1.0)
        spare = np.empty(u.shape)
        for _ in range(steps - 1):
            self.walk.step(now, before, coefficients, spare)
            before, now, spare = now, spare, before
        now *= inverse(self.vertices.scale)[:, None]
        return now

    def _turn(self, z: Float64) -> None:
        """Rayleigh-Ritz step: set ``x``, ``y`` and ``pairs`` from the span of ``z`` (m, b), overwritten."""
        self._take_out(z)
        for group in self.groups:
            some = z[group]
            factors = cholesky_qr(some)
            z[group] = orthonormalize(some) if factors is None else factors[0]
        self._take_out(z)
        steps = Steps(self.vertices.scale, np.zeros(len(z)), 0.0)
        y = self.walk.step(z * self.vertices.scale[:, None], None, steps)
        self.pairs = []
        for group in self.groups:
            small = z[group].T @ y[group]
            values, turn = np.linalg.eigh((small + small.T) / 2)
            values, turn = values[::-1].copy(), np.ascontiguousarray(turn[:, ::-1])
            z[group], y[group] = z[group] @ turn, y[group] @ turn
            residuals = np.linalg.norm(y[group] - z[group] * values, axis=0)
            self.pairs.append(RitzPairs(values, residuals))
        self.x, self.y = z, y

    def _take_out(self, z: Float64) -> None:
        """Project the known eigenvectors of the eigenvalue 1 out of the block ``z`` (m, b), in place."""
        constants, labels = self.vertices.constants(), self.vertices.labels + 1
        for column in z.T:
            sums = np.bincount(labels, constants * column, len(self.vertices.sizes) + 1)
            column -= constants * sums[labels]


def _interval(least: float) -> tuple[float, float]:
    """Center and half-width of the interval of eigenvalues that a filter damps, from -1 to ``least``."""
    half = max((least + 1) / 2, 1e-6)
    return half - 1, half


def _rate(value: float, least: float) -> float:
    """Logarithm of the growth of a vector of eigenvalue ``value`` by one of many steps.

    The filter damps eigenvalues from -1 to ``least``.
    """
    center, half = _interval(least)
    return math.acosh(max((value - center) / half, 1 + 1e-12))


def warm_walk(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the compiled loops that multiply graphs with vectors and find components, once, for ``request``."""
    width = block_width(int(request["n_components"]))
    _warm_walk(np.dtype(np.float32), width)  # fuzzy_graph has such weights even of distances in float64
    if dtype != np.float32:
        _warm_walk(np.dtype(np.float64), width)


@functools.cache
def _warm_walk(dtype: np.dtype[Any], width: int) -> None:
    for index in (np.int32, np.int64):
        graph = np.arange(3), np.array([1, 0], index), np.ones(2, dtype)
        join_edges(*graph, 0, parents=np.arange(2))
        for columns in (1, width):
            u = np.ones((2, columns))
            steps = Steps(np.ones(2), np.zeros(2), 0.0)
            step_rows(*graph, u, own=u, before=u, steps=steps, out=np.empty(u.shape))


ROUNDING = 64 * float(np.finfo(np.float64).eps)
"""Error of an eigenvalue (all lie between -1 and 1) that more steps do not lower."""

SAFETY = 4.0
"""Factor of error estimates, which take residuals to be small relative to gaps between eigenvalues."""


class RitzPairs(NamedTuple):
    """Ritz pairs of a block of vectors on some rows, from the largest Ritz value on."""

    values: Float64
    """(b,) Ritz values."""

    residuals: Float64
    """(b,) lengths of N x - theta x, with N the symmetric matrix of the walk."""

    def errors(self, wanted: int) -> Float64:
        """(wanted,) estimated errors of the first values: amounts that they may still rise by.

        References
        ----------
        Parlett, The Symmetric Eigenvalue Problem, 1980: theorem 11.5.1 for the residuals of all wanted pairs
        together, section 10.1 (Kato and Temple) for their squares. The value outside is the least upper bound
        that a Ritz pair beyond the wanted ones gives for itself. It is an estimate: values that a block has
        not found yet have no bound.
        """
        values, residuals = self.values[:wanted], self.residuals[:wanted]
        together = float(np.linalg.norm(residuals))
        outside = float((self.values + self.residuals)[wanted:].min(initial=np.inf))
        near = np.abs(values[:, None] - self.values) <= residuals[:, None] + self.residuals
        mixed = np.sqrt(near @ self.residuals**2)
        gap = np.maximum(values - outside, np.maximum(mixed, np.finfo(np.float64).tiny))
        return np.asarray(np.minimum(SAFETY * mixed * (mixed / gap), together) + ROUNDING)

    def targets(self, wanted: int, tol: float) -> Float64:
        """(wanted,) errors that are small enough: ``tol`` times 1 minus the value, or rounding."""
        return np.asarray(np.maximum(tol * (1 - self.values[:wanted]), 2 * ROUNDING))

    def excess(self, wanted: int, tol: float) -> float:
        """Largest error of the first ``wanted`` values relative to its target; 1 or less is enough."""
        return float((self.errors(wanted) / self.targets(wanted, tol)).max())

    def needed(self, wanted: int, tol: float) -> float:
        """Largest factor by which a residual of the first ``wanted`` pairs has to shrink to meet ``tol``."""
        outside = float(self.values[wanted]) if len(self.values) > wanted else -1.0
        target = self.targets(wanted, tol)
        gap = np.maximum(self.values[:wanted] - outside, 0.0)
        enough = np.maximum(np.sqrt(target * gap / SAFETY), target / np.sqrt(wanted))
        return float((self.residuals[:wanted] / enough).max())
