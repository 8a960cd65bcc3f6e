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
"""Upper bound on the length of a step of a vertex, in units of the embedding, as in openTSNE."""

PIECE_ROWS = 2048
"""Rows that a thread takes at a time."""

ROWS_OF_STEPS = 25_000_000
"""Upper bound on rows times steps from one full exchange, which includes velocities and gains, to the next:
some seconds."""


STEP = "step"
"""Name of the array (2,) in a checkpoint: number of steps, and whether the descent has ended."""


@dataclass(slots=True)
class DescentState:
    """Positions, velocities and gains of all vertices during a descent, (n, d) each.

    Velocities and gains of vertices that other processes move are as of the last full exchange.
    """

    positions: Float32
    velocities: Float32
    gains: Float32
    step: int = 0
    history: list[tuple[float, float, float]] = field(default_factory=list)
    """For each measurement: steps done before it, divergence, and length of the gradient."""

    over: bool = False
    """True once the descent has ended and its last divergence has been measured."""

    @classmethod
    def start(cls, positions: Float32) -> DescentState:
        """State before the first step: vertices at rest at ``positions`` (n, d)."""
        return cls(positions, np.zeros_like(positions), np.ones_like(positions))

    @classmethod
    def load(cls, arrays: State) -> DescentState:
        """State from the arrays of a checkpoint, as ``arrays`` returns them."""
        step, over = arrays[STEP].tolist()
        history = [tuple(each) for each in arrays["history"].tolist()]
        motion = arrays["positions"], arrays["velocities"], arrays["gains"]
        return cls(*motion, step, history, bool(over))

    def rest(self) -> None:
        """Set all velocities to 0, and all gains to 1, as at the start."""
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
    """Number of steps for ``rows`` rows between exchanges that include velocities and gains."""
    return max(1, min(MEASURED, ROWS_OF_STEPS // rows))


@dataclass(frozen=True, slots=True)
class DescentRounds:
    """Rounds of a descent: each takes a step of all vertices, the last one only measures the divergence."""

    stored: StoredAffinities
    parameters: TsneArguments
    rows: int

    name = "descent"
    checkpoint = "state.part"
    counter = STEP

    @property
    def rounds(self) -> int:
        """Upper bound on the number of rounds: all steps, and one for the last measurement."""
        return self.parameters.steps + 1

    def made(self, counter: Int64) -> int:
        """Return the number of rounds made, from ``counter`` (2,), the array ``step`` of a checkpoint.

        It is the number of all rounds once the descent has ended, perhaps early.
        """
        step, over = counter.tolist()
        return self.rounds if over else int(step)

    def part(self, state: State, share: Share) -> GradientDescent:
        """Return the descent as it is in a checkpoint ``state``, in a process that moves ``share``."""
        return GradientDescent(self, DescentState.load(state), share)

    def work_before(self) -> Int64:
        """Return the work to share: (rows + 1,) number of edges before those of each vertex, and in all."""
        return self.stored.pointers()

    def message_bytes(self, rows: int) -> int:
        """Return an upper bound on the bytes of an exchange by a process that moves ``rows`` vertices.

        These are positions, or 8 bytes of sums for each vertex.
        """
        return max(8, 4 * self.parameters.n_components) * rows

    def require_files(self) -> None:
        """Raise ``ClusterError`` if this process does not see the folder of the graph."""
        graph = self.stored.graph
        if not graph.is_dir():
            raise ClusterError(
                f"a worker does not see {graph}, the graph of affinities: the run must lie on a file system "
                "that all share. Say out= or scratch= there"
            )


@dataclass(slots=True)
class GradientDescent:
    """Descent of all vertices in one process, and the share of vertices that this process moves."""

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
        """Number of rounds that were made; the number of all rounds if the descent has ended."""
        return self.rounds.rounds if self.state.over else self.state.step

    def arrays(self) -> State:
        """Arrays of a checkpoint: see ``DescentState.arrays``."""
        return self.state.arrays()

    def run(self, on_round: Callable[[], None]) -> None:
        """Take all steps that are left, and call ``on_round`` after each. All processes do so together."""
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
        """Compute repulsive forces on the vertices of this process, into ``mover.pushes``; returns Z.

        Z is the sum of ``1 / (1 + d^2)`` over all ordered pairs. ``sums`` (rows,) is overwritten with the
        part of Z of each vertex, where Z is summed from these.
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
        """Factors of the current step: exaggeration, 1 / Z, learning rate and momentum.

        ``total`` is Z, the sum of ``1 / (1 + d^2)`` over all pairs.
        """
        step, rows = self.state.step, len(self.state.positions)
        exaggeration, inverse = self.parameters.exaggeration_of(step), 1 / total if total > 0 else 0.0
        rate, momentum = self.parameters.rate_of(step, rows), self.parameters.momentum_of(step)
        return Descent(exaggeration, inverse, rate, momentum, LONGEST)

    def _measure(self, mover: _Mover, now: Descent, constant: float, total: float) -> None:
        """Append the divergence and the length of the gradient before this step to the history.

        ``now`` has the factors of this step, ``constant`` is the sum of p log p over all edges, ``total`` is
        Z.
        """
        losses = np.empty((len(self.state.positions), 2), np.float32)
        mover.measure(self.state.positions, now, losses[mover.first : mover.last])
        self._exchange(losses)
        loss, square = losses.sum(axis=0, dtype=np.float64).tolist()
        divergence = constant + loss + (math.log(total) if total > 0 else 0.0)
        self.state.history.append((self.state.step, divergence, math.sqrt(square)))

    def _is_flat(self) -> bool:
        """True if the last gradient is shorter than ``min_grad_norm``, and early exaggeration is over."""
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
        """Send own rows of ``array`` (rows, ...) to all other processes, and fill in theirs, in place."""
        self.share.swap(array, self.share.bounds)


@dataclass(slots=True)
class _Mover:
    """Computes forces on vertices ``first:last``, which are "own" below, and moves them, in all threads.

    ``pushes`` (m, d) holds their repulsive forces, not yet divided by Z.
    """

    affinities: Affinities
    first: int
    last: int
    pushes: Float32
    pool: ThreadPoolExecutor
    threads: int

    def push(self, repulsion: Repulsion, near: Float64) -> None:
        """Write repulsive forces on own vertices to ``pushes``.

        If Z is summed from the vertices, also write the part of Z of each to ``near`` (m,).
        """
        self._each(lambda some: repulsion.push(self.first + some.start, self.pushes[some], near[some]))

    def move(self, positions: Float32, now: Descent, motion: Motion, out: Float32) -> None:
        """Write new positions of own vertices to ``out`` (m, d), and change their ``motion`` in place.

        ``positions`` (n, d) are those of all vertices, ``now`` has the factors of the step.
        """

        def move(some: slice) -> None:
            first, affinities, pushes = self.first + some.start, self._affinities(some), self.pushes[some]
            own = Motion(motion.velocities[some], motion.gains[some])
            descend(positions, first, affinities, pushes, descent=now, motion=own, out=out[some])

        self._each(move)

    def measure(self, positions: Float32, now: Descent, out: Float32) -> None:
        """Write loss over edges, and squared length of the gradient, of own vertices to ``out`` (m, 2)."""

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
    """Subtract the mean from all positions (n, d), in place; forces do not depend on it."""
    positions -= positions.mean(axis=0, dtype=np.float64).astype(np.float32)


def warm_descent(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the compiled loops of a descent once, for ``shape[0]`` rows and the dimensions of ``request``."""
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
    """Bytes in memory of ``edges`` edges of ``vertices`` vertices, in a graph of ``rows`` rows."""
    return 8 * (vertices + 1) + edges * (4 + (4 if rows < 2**31 else 8))


@dataclass(frozen=True, slots=True)
class StoredAffinities:
    """A stored graph of affinities, by its path; picklable."""

    graph: Path

    @classmethod
    def of(cls, graph: Result) -> StoredAffinities:
        """The graph in a result."""
        return cls(graph.path / NAME)

    def pointers(self) -> Int64:
        """(rows + 1,) number of edges before those of each vertex, and in all."""
        return StoredRows(self.graph).pointers

    def read(self, first: int, last: int) -> Affinities:
        """Read the edges of vertices ``first:last`` into memory; pointers count from the first of them."""
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
    """(m,) ``sum w log w`` over the edges of each vertex, w being their weights."""
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
