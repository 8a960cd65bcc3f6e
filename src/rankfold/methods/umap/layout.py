"""Epochs that move all vertices, a group after the other.

Vertices of a group move at once, each by its own edges, from the positions before the move. Results are the
same bytes whichever threads and processes move which vertices. Groups are drawn by a hash of the vertex, so
that few neighbors move together. If all moved together, each would jump to where the other has been, and
back.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.layout.forces import (
    FIRST_FACTOR,
    STEP,
    Density,
    Edges,
    Epoch,
    Forces,
    closeness_of,
    epoch_key,
    forces_of,
)
from rankfold.kernels.layout.radii import measure_radii
from rankfold.kernels.layout.vertices import move_vertices
from rankfold.methods.random_keys import Purpose
from rankfold.methods.umap.arguments import UmapArguments
from rankfold.methods.umap.density import Densities, DensityGoal
from rankfold.methods.umap.edges import PullingEdges
from rankfold.pipeline.engine.rounds import Share
from rankfold.pipeline.errors import ClusterError
from rankfold.pipeline.storage.checkpoint import State

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

GROUPS = 8
"""Largest number of groups of vertices. With one, neighbors move together, and trustworthiness falls; with
more than eight it rises no further."""

PIECES = 4
"""Number of pieces for each thread into which a group of vertices is cut: they differ in numbers of edges."""


POSITIONS, MOVES, SPREAD = "positions", "moves", "spread"
"""Names of the arrays of a checkpoint: positions of all vertices, number of moves that were made, and
``Layout.spread``."""


@dataclass(frozen=True, slots=True)
class LayoutRounds:
    """Rounds of a layout: in each, one group of vertices moves; an epoch has a round for each group."""

    edges: PullingEdges
    parameters: UmapArguments
    rows: int
    goal: DensityGoal | None = None
    """Radii that the layout is to follow; None if there are no density forces."""

    name = "layout"
    checkpoint = "positions.part"
    counter = MOVES

    @property
    def rounds(self) -> int:
        """Number of rounds in all: epochs times groups."""
        return self.edges.epochs * len(vertex_groups(min(self.rows, 1000)))

    def start(self, positions: Float32) -> State:
        """Arrays of a checkpoint before the first move, with vertices at ``positions`` (rows, d)."""
        state: State = {POSITIONS: positions, MOVES: np.array([0])}
        if self.goal is not None:
            state[SPREAD] = np.zeros((len(positions), 2), np.float32)
        return state

    def made(self, counter: Int64) -> int:
        """Return the number of moves made, from ``counter`` (1,), the array ``moves`` of a checkpoint."""
        return int(counter[0])

    def part(self, state: State, share: Share) -> Layout:
        """Return the layout as it is in a checkpoint ``state``, in a process that moves ``share``."""
        return Layout(self, state[POSITIONS], int(state[MOVES][0]), share, state.get(SPREAD))

    def work_before(self) -> Int64:
        """Return the work to share: (rows + 1,) number of edges before those of each vertex, and in all."""
        return self.edges.pointers()

    def message_bytes(self, rows: int) -> int:
        """Return an upper bound on the bytes of an exchange by a process that moves ``rows`` vertices.

        These are new positions, and radii where they are measured. A group has an eighth of all vertices, but
        a hash decides how many of a share: all of them are counted.
        """
        return 4 * (self.parameters.n_components + (0 if self.goal is None else 2)) * rows

    def require_files(self) -> None:
        """Raise ``ClusterError`` if this process does not see the folder of the graph."""
        graph = self.edges.graph
        if not graph.is_dir():
            raise ClusterError(
                f"a worker does not see {graph}, the graph that is laid out: it must lie on a file "
                "system that all share. Make it there, rf.fuzzy_graph(neighbors, out=...)"
            )


@dataclass(slots=True)
class Layout:
    """Positions of all vertices during a layout, and the share of vertices that this process moves."""

    rounds: LayoutRounds
    positions: Float32
    made: int
    """Number of moves of groups that were made, over all epochs."""

    share: Share
    spread: Float32 | None = None
    """(n, 2) mean square of the lengths of the edges of each vertex, and sum of their closeness, both at its
    last move; None where density does not count."""

    is_whole = True
    """Always True: positions of all vertices are replaced together, once processes have exchanged them."""

    def arrays(self) -> State:
        """Arrays of a checkpoint: positions, number of moves made, and ``spread`` if there is one."""
        state: State = {POSITIONS: self.positions, MOVES: np.array([self.made])}
        return state if self.spread is None else {**state, SPREAD: self.spread}

    def run(self, on_round: Callable[[], None]) -> None:
        """Make all moves of groups that are left, and call ``on_round`` after each."""
        parameters, share, goal = self.rounds.parameters, self.share, self.rounds.goal
        curve, columns = parameters.curve(), self.positions.shape[1]
        forces = forces_of(*curve, parameters.repulsion_strength)
        densities = None if goal is None else Densities(goal, curve)
        groups = vertex_groups(len(self.positions))
        cuts = [np.searchsorted(group, share.bounds).tolist() for group in groups]
        mine = [slice(*cut[share.part : share.part + 2]) for cut in cuts]
        edges = self.rounds.edges.read([group[own] for group, own in zip(groups, mine, strict=True)])
        with ThreadPoolExecutor(share.threads, "rankfold-layout") as pool:
            for move in range(self.made, self.rounds.rounds):
                epoch, number = divmod(move, len(groups))
                group, own = groups[number], mine[number]
                density, closeness = self._density(densities, epoch)
                after = np.empty((len(group), columns + 2 * (closeness is not None)), np.float32)
                some = group[own], edges[number]
                after[own] = self._move(*some, self._now(epoch), forces, density, closeness, pool)
                share.swap(after, cuts[number])
                self.positions[group] = after[:, :columns]
                if self.spread is not None and closeness is not None:
                    self.spread[group] = after[:, columns:]
                self.made = move + 1
                on_round()

    def _density(self, densities: Densities | None, epoch: int) -> tuple[Density | None, Float32 | None]:
        """Density forces of an epoch, from 0 on, and table to measure radii by; None if not in use."""
        if densities is None or self.spread is None or epoch + 1 < densities.goal.first_epoch:
            return None, None
        is_early = epoch < densities.goal.first_epoch
        return None if is_early else densities.now(self.spread), densities.closeness

    def _now(self, epoch: int) -> Epoch:
        parameters = self.rounds.parameters
        rate = parameters.learning_rate * (1 - epoch / self.rounds.edges.epochs)
        key = epoch_key(parameters.seed, Purpose.LAYOUT_SAMPLES, epoch)
        return Epoch(epoch + 1, key, rate, parameters.negative_sample_rate)

    def _move(
        self,
        group: Int64,
        edges: Edges,
        epoch: Epoch,
        forces: Forces,
        density: Density | None,
        closeness: Float32 | None,
        pool: ThreadPoolExecutor,
    ) -> Float32:
        """New positions (m, d) of some vertices of a group, with two more columns if radii are measured.

        ``group`` (m,) are the vertices, ``edges`` their edges. ``closeness`` is the table to measure radii
        by, or None.
        """
        after = np.empty((len(group), self.positions.shape[1]), np.float32)
        radii = np.empty((len(group), 0 if closeness is None else 2), np.float32)

        def move(ends: tuple[int, int]) -> None:
            some, part = slice(*ends), edges.part(*ends)
            where = self.positions, group[some], part
            move_vertices(*where, forces=forces, epoch=epoch, out=after[some], density=density)
            if closeness is not None:
                measure_radii(self.positions, after[some], part, closeness=closeness, out=radii[some])

        threads = self.share.threads
        pieces = 1 if threads == 1 else PIECES * threads
        cuts = [len(group) * i // pieces for i in range(pieces + 1)]
        for _ in pool.map(move, itertools.pairwise(cuts)):
            pass
        return after if closeness is None else np.hstack([after, radii])


def vertex_groups(rows: int) -> list[Int64]:
    """Vertices of each group, in ascending order: up to ``GROUPS`` arrays; each vertex is in one of them."""
    words: npt.NDArray[Any] = np.arange(1, rows + 1, dtype=np.uint64) * np.uint64(STEP)
    words ^= words >> np.uint64(30)
    words *= np.uint64(FIRST_FACTOR)
    groups = (words >> np.uint64(32)) % np.uint64(GROUPS)
    members = [np.flatnonzero(groups == np.uint64(group)) for group in range(GROUPS)]
    return [each for each in members if len(each)]


def warm_layout(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the compiled loops that move vertices once, for ``request`` and a graph of ``shape[0]`` rows."""
    index = np.dtype(np.int32 if shape[0] < 2**31 else np.int64)
    _warm_moves(min(3, int(request["n_components"])), index, bool(request.get("density")))


@functools.cache
def _warm_moves(width: int, index: np.dtype[Any], is_spread: bool) -> None:
    edges = Edges(np.arange(3), np.array([1, 0], index), np.ones(2, np.uint32))
    positions, forces = np.zeros((2, width), np.float32), forces_of(1.0, 1.0, 1.0)
    now = Epoch(1, 0, 1.0, 1)
    move_vertices(positions, np.arange(2), edges, forces=forces, epoch=now, out=positions.copy())
    if is_spread:
        closeness, pushes = closeness_of(1.0, 1.0), np.ones((2, 2), np.float32)
        density, moved = Density(closeness, 1.0, pushes), positions.copy()
        move_vertices(positions, np.arange(2), edges, forces=forces, epoch=now, out=moved, density=density)
        measure_radii(positions, moved, edges, closeness=closeness, out=pushes)
