"""Steps that move all vertices down the gradient of the divergence.

All vertices move at once from the positions before the step, each by the attraction along its edges and by
the repulsion from all others (a push). Results are the same bytes whichever threads and processes move which
vertices. Each process keeps the edges, velocities and gains of its own vertices, and the positions of all.
Everything else that all processes need is exchanged.

The divergence is ``sum p log p + sum p log(1 + d^2) + log Z``, with Z the sum of ``1 / (1 + d^2)`` over all
pairs. Its first term is computed once, the second whenever it is measured, and Z every step.

Edges of a stored graph of affinities, in memory: all of some consecutive vertices.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.layout.descent import Affinities, Descent, Motion, descend, measure_descent
from rankfold.methods.fuzzy_graph.stored_rows import StoredRows
from rankfold.methods.knn.graph import NAME
from rankfold.methods.tsne.arguments import MEASURED, TsneArguments
from rankfold.methods.tsne.repulsion import Repulsion, repulsion_of, warm_repulsion
from rankfold.pipeline.engine.rounds import Share
from rankfold.pipeline.errors import ClusterError, InputError
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.result import Result

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

LONGEST = 5.0
"""Longest step of a vertex, as in openTSNE."""

PIECE_ROWS = 2048
"""Rows that a thread takes at a time."""

ROWS_OF_STEPS = 25_000_000
"""Rows times steps between two full exchanges, which include velocities and gains: some seconds."""


STEP = "step"
"""Name of the array of a checkpoint that has the number of steps, and whether the descent has ended."""


@dataclass(slots=True)
class DescentState:
    """Positions, velocities and gains of all vertices during a descent.

    Velocities and gains of vertices that other processes move are as of the last full exchange.
    """

    positions: Float32
    velocities: Float32
    gains: Float32
    step: int = 0
    history: list[tuple[float, float, float]] = field(default_factory=list)
    """For each measure: steps done, divergence, and length of the gradient."""

    over: bool = False
    """True once the descent has ended and its last divergence is measured."""

    @classmethod
    def start(cls, positions: Float32) -> DescentState:
        """State before the first step: vertices at rest at these positions."""
        return cls(positions, np.zeros_like(positions), np.ones_like(positions))

    @classmethod
    def load(cls, arrays: State) -> DescentState:
        """State from the arrays of a checkpoint."""
        step, over = arrays[STEP].tolist()
        history = [tuple(each) for each in arrays["history"].tolist()]
        motion = arrays["positions"], arrays["velocities"], arrays["gains"]
        return cls(*motion, step, history, bool(over))

    def rest(self) -> None:
        """Set all velocities to 0, and gains to 1 as at the start."""
        self.velocities[...] = 0
        self.gains[...] = 1

    def arrays(self) -> State:
        """The state as arrays, for a checkpoint."""
        return {
            "positions": self.positions,
            "velocities": self.velocities,
            "gains": self.gains,
            STEP: np.array([self.step, self.over]),
            "history": np.array(self.history).reshape(-1, 3),
        }


def exchange_steps(rows: int) -> int:
    """Number of steps from one full exchange to the next."""
    return max(1, min(MEASURED, ROWS_OF_STEPS // rows))


@dataclass(frozen=True, slots=True)
class DescentRounds:
    """All steps of a descent, each a round; the last one only measures where vertices are."""

    stored: StoredAffinities
    parameters: TsneArguments
    rows: int

    name = "descent"
    checkpoint = "state.part"
    counter = STEP

    @property
    def rounds(self) -> int:
        """Largest number of steps, and one more for the last measure."""
        return self.parameters.steps + 1

    def made(self, counter: Int64) -> int:
        """Return the number of steps that were made, or of all if the descent has ended."""
        step, over = counter.tolist()
        return self.rounds if over else int(step)

    def part(self, state: State, share: Share) -> GradientDescent:
        """Return the descent in a process that moves the vertices of its share."""
        return GradientDescent(self, DescentState.load(state), share)

    def work_before(self) -> Int64:
        """Return the number of edges before those of each vertex, and in all, (rows + 1,)."""
        return self.stored.pointers()

    def message_bytes(self, rows: int) -> int:
        """Return the bytes of positions, or of two sums, of this number of vertices."""
        return max(8, 4 * self.parameters.n_components) * rows

    def require_files(self) -> None:
        """Raise ClusterError if this process does not see the graph."""
        graph = self.stored.graph
        if not graph.is_dir():
            raise ClusterError(
                f"a worker does not see {graph}, the graph of affinities: the run must lie on a file system "
                "that all share. Say out= or scratch= there"
            )


@dataclass(slots=True)
class GradientDescent:
    """Descent of all vertices, and the share of them that this process moves."""

    rounds: DescentRounds
    state: DescentState
    share: Share
    is_whole: bool = True
    """False within a step, and while velocities and gains of other processes are not up to date."""

    @property
    def parameters(self) -> TsneArguments:
        """Arguments of the descent."""
        return self.rounds.parameters

    @property
    def made(self) -> int:
        """Number of steps that were made, or of all if the descent has ended."""
        return self.rounds.rounds if self.state.over else self.state.step

    def arrays(self) -> State:
        """Arrays of a checkpoint."""
        return self.state.arrays()

    def run(self, on_round: Callable[[], None]) -> None:
        """Take all steps that are left, and call ``on_round`` after each."""
        rows, width = self.state.positions.shape
        own = self.share.own
        affinities = self.rounds.stored.read(own.start, own.stop)
        sums = np.empty(rows)
        sums[own] = entropies(affinities)
        self._exchange(sums)
        constant, every = math.fsum(sums), exchange_steps(rows)
        with ThreadPoolExecutor(self.share.threads, "rankfold-tsne") as pool:
            repulsion = repulsion_of(rows, width, pool, self.share.threads)
            pushes = np.empty((own.stop - own.start, width), np.float32)
            mover = _Mover(affinities, own.start, own.stop, pushes, pool, self.share.threads)
            while not self.state.over:
                self.is_whole = False
                step = self.state.step
                end = step == self.parameters.steps
                if step % MEASURED == 0 or end:
                    _center(self.state.positions)
                total = self._push(repulsion, mover, sums)
                now = self._descent(total)
                if step % MEASURED == 0 or end:
                    self._measure(mover, now, constant, total)
                    end = end or self._is_flat()
                if end:
                    self.state.over = True
                else:
                    self._step(mover, now)
                if end or self.share.is_all or (step + 1) % every == 0:
                    self._exchange(self.state.velocities)
                    self._exchange(self.state.gains)
                    self.is_whole = True
                on_round()

    def _push(self, repulsion: Repulsion, mover: _Mover, sums: Float64) -> float:
        """Compute repulsive forces on the vertices of this part; returns Z, a sum over all pairs.

        ``sums`` (rows,) is overwritten with the share of each vertex where Z is summed from these.
        """
        if not np.isfinite(self.state.positions).all():
            raise InputError(
                "forces have thrown rows out of the range of float32: ask for a smaller learning_rate, now "
                f"{self.parameters.rate_of(self.state.step, len(self.state.positions)):g}"
            )
        total = repulsion.prepare(self.state.positions)
        mover.push(repulsion, sums[mover.first : mover.last])
        if total is None:
            self._exchange(sums)
            total = float(sums.sum())
        return total

    def _descent(self, total: float) -> Descent:
        """Factors of the current step: exaggeration, 1 / Z, learning rate and momentum; ``total`` is Z."""
        step, rows = self.state.step, len(self.state.positions)
        exaggeration, inverse = self.parameters.exaggeration_of(step), 1 / total if total > 0 else 0.0
        rate, momentum = self.parameters.rate_of(step, rows), self.parameters.momentum_of(step)
        return Descent(exaggeration, inverse, rate, momentum, LONGEST)

    def _measure(self, mover: _Mover, now: Descent, constant: float, total: float) -> None:
        """Append the divergence and the length of the gradient before this step to the history.

        ``constant`` is the sum of p log p, ``total`` is Z.
        """
        losses = np.empty((len(self.state.positions), 2), np.float32)
        mover.measure(self.state.positions, now, losses[mover.first : mover.last])
        self._exchange(losses)
        loss, square = losses.sum(axis=0, dtype=np.float64).tolist()
        divergence = constant + loss + (math.log(total) if total > 0 else 0.0)
        self.state.history.append((self.state.step, divergence, math.sqrt(square)))

    def _is_flat(self) -> bool:
        """True if the gradient is as small as was asked for, and early exaggeration is over."""
        step = self.state.step
        early = step < self.parameters.early_exaggeration_iter
        return not early and self.state.history[-1][2] < self.parameters.min_grad_norm

    def _step(self, mover: _Mover, now: Descent) -> None:
        state, own = self.state, self.share.own
        if self.parameters.rests_before(state.step, len(state.positions)):
            state.rest()
        after = np.empty_like(state.positions)
        mover.move(state.positions, now, Motion(state.velocities[own], state.gains[own]), after[own])
        self._exchange(after)
        state.positions, state.step = after, state.step + 1

    def _exchange(self, array: Array) -> None:
        """Exchange the rows of an array that has one for each vertex."""
        self.share.swap(array, self.share.bounds)


@dataclass(slots=True)
class _Mover:
    """Computes forces on the vertices of one part and moves them, piece by piece in each thread."""

    affinities: Affinities
    first: int
    last: int
    pushes: Float32
    pool: ThreadPoolExecutor
    threads: int

    def push(self, repulsion: Repulsion, near: Float64) -> None:
        """Write repulsive forces on own vertices to ``pushes``; if summed, shares of Z to ``near``."""
        self._each(lambda some: repulsion.push(self.first + some.start, self.pushes[some], near[some]))

    def move(self, positions: Float32, now: Descent, motion: Motion, out: Float32) -> None:
        """Write new positions of own vertices to ``out``, and update their velocities and gains in place."""

        def move(some: slice) -> None:
            first, affinities, pushes = self.first + some.start, self._affinities(some), self.pushes[some]
            own = Motion(motion.velocities[some], motion.gains[some])
            descend(positions, first, affinities, pushes, descent=now, motion=own, out=out[some])

        self._each(move)

    def measure(self, positions: Float32, now: Descent, out: Float32) -> None:
        """Write the loss and the squared length of the gradient of each own vertex to ``out``, (m, 2)."""

        def measure(some: slice) -> None:
            first, affinities, pushes = self.first + some.start, self._affinities(some), self.pushes[some]
            measure_descent(positions, first, affinities, pushes, descent=now, out=out[some])

        self._each(measure)

    def _affinities(self, some: slice) -> Affinities:
        return self.affinities.part(some.start, some.stop)

    def _each(self, work: Callable[[slice], None]) -> None:
        count = self.last - self.first
        cuts = [*range(0, count, PIECE_ROWS), count]
        pieces = [slice(*ends) for ends in itertools.pairwise(cuts)]
        for _ in self.pool.map(work, pieces) if self.threads > 1 else map(work, pieces):
            pass


def _center(positions: Float32) -> None:
    """Subtract the mean from all positions; forces do not depend on it."""
    positions -= positions.mean(axis=0, dtype=np.float64).astype(np.float32)


def warm_descent(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the compiled loops that a descent with this many rows and dimensions uses once."""
    width = int(request["n_components"])
    _warm_steps(min(3, width), np.dtype(np.int32 if shape[0] < 2**31 else np.int64))
    warm_repulsion(shape[0], width)


@functools.cache
def _warm_steps(width: int, index: np.dtype[Any]) -> None:
    affinities = Affinities(np.arange(3), np.array([1, 0], index), np.ones(2, np.float32))
    positions, still = np.zeros((2, width), np.float32), np.zeros((2, width), np.float32)
    now, motion = Descent(1.0, 1.0, 1.0, 0.5, 5.0), Motion(still.copy(), still.copy())
    descend(positions, 0, affinities, still, descent=now, motion=motion, out=still.copy())
    measure_descent(positions, 0, affinities, still, descent=now, out=np.empty((2, 2), np.float32))


BLOCK = 2**16
"""Edges processed at a time: 41 bytes each."""


def pulls_bytes(rows: int, vertices: int, edges: int) -> int:
    """Bytes of the edges of some vertices, in a graph of ``rows`` rows."""
    return 8 * (vertices + 1) + edges * (4 + (4 if rows < 2**31 else 8))


@dataclass(frozen=True, slots=True)
class StoredAffinities:
    """Path of a stored affinity graph; picklable."""

    graph: Path

    @classmethod
    def of(cls, graph: Result) -> StoredAffinities:
        """Affinity graph of a result."""
        return cls(graph.path / NAME)

    def pointers(self) -> Int64:
        """Number of edges before each vertex, and in all, (rows + 1,)."""
        return StoredRows(self.graph).pointers

    def read(self, first: int, last: int) -> Affinities:
        """Edges of vertices ``first:last``, in memory."""
        stored = StoredRows(self.graph)
        ends = stored.ends(first, last)
        start, stop = int(ends[0]), int(ends[-1])
        weights = np.empty(stop - start, np.float32)
        neighbors = np.empty(stop - start, stored.column_dtype)
        for some in stored.chunks(start, stop):
            own = slice(some.start - start, some.stop - start)
            weights[own], neighbors[own] = stored.weights(some), stored.columns(some)
        return Affinities(ends - start, neighbors, weights)


def entropies(affinities: Affinities) -> Float64:
    """``sum w log w`` over the edges of each vertex, (m,)."""
    count = len(affinities.pointers) - 1
    sums = np.empty(count)
    first = 0
    while first < count:
        last = int(np.searchsorted(affinities.pointers, affinities.pointers[first] + BLOCK, side="right")) - 1
        last = min(count, max(first + 1, last))
        part = affinities.part(first, last)
        weights = part.weights.astype(np.float64)
        logarithms = np.log(np.where(weights > 0, weights, 1))
        own = np.repeat(np.arange(last - first), np.diff(part.pointers))
        sums[first:last] = np.bincount(own, weights * logarithms, last - first)
        first = last
    return sums
