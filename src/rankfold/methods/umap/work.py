"""Run a layout in this process, or by workers that each hold the edges of some vertices.

Both write the same checkpoints, and resume from those of the other. Workers hold the positions of all
vertices, and exchange those that have moved after every group: each group starts from the positions that the
previous one has reached, whichever process has moved it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rankfold.methods.umap.arguments import UmapArguments
from rankfold.methods.umap.density import DensityGoal
from rankfold.methods.umap.edges import PullingEdges
from rankfold.methods.umap.layout import Layout, moves
from rankfold.pipeline.engine import sweep
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.team import Member, Team, equal_shares
from rankfold.pipeline.errors import ClusterError
from rankfold.pipeline.storage.checkpoint import State, load_arrays, load_if_whole, save_arrays

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

FOLDER, POSITIONS, MOVES, SPREAD = "layout", "positions", "moves", "spread"


def lay_out(
    run: Run,
    edges: PullingEdges,
    parameters: UmapArguments,
    start: Callable[[], Float32],
    parts: range,
    goal: DensityGoal | None = None,
) -> Float32:
    """Positions at the end of a layout that resumes from an earlier checkpoint, or begins at ``start()``.

    ``parts`` are the numbers of processes that it may be split among, if there are workers.
    """
    part, began = run.part(FOLDER, f"{POSITIONS}.part"), time.perf_counter()
    state = load_if_whole(part)
    if state is None or MOVES not in state:
        state = {POSITIONS: start(), MOVES: np.array([0])}
        if goal is not None:
            state[SPREAD] = np.zeros((len(state[POSITIONS]), 2), np.float32)
    if run.scheduler.has_workers:
        if load_if_whole(part, MOVES) is None:
            save_arrays(part, state, durable=run.file_policy.is_remote)
        rows = len(state.pop(POSITIONS))
        run.worker_bytes = max(run.worker_bytes, _on_workers(run, edges, parameters, part, rows, parts, goal))
        positions: Float32 = load_arrays(part)[POSITIONS]
    else:
        positions = _run_in_process(run, edges, parameters, part, state, goal)
    run.seconds[FOLDER] = time.perf_counter() - began
    return positions


def _run_in_process(
    run: Run,
    edges: PullingEdges,
    parameters: UmapArguments,
    part: Path,
    state: State,
    goal: DensityGoal | None,
) -> Float32:
    """Run the whole layout in this process."""
    positions, first, last_save = state[POSITIONS], int(state[MOVES][0]), time.monotonic()
    rows = len(positions)
    end = moves(rows, edges.epochs)
    layout = Layout(positions, edges, parameters, edges.epochs, run.concurrency)
    layout.goal, layout.spread = goal, state.get(SPREAD)

    def on_step(done: int) -> None:
        nonlocal last_save
        if run.file_policy.resumable and time.monotonic() - last_save > sweep.SEGMENT_SECONDS:
            save_arrays(part, _state(layout, done))
            last_save = time.monotonic()
        if run.progress and done % (end // edges.epochs) == 0:
            run.progress(FOLDER, rows * done // end, rows)

    layout.run(first, on_step)
    return layout.positions


def _state(layout: Layout, done: int) -> State:
    """Arrays of a checkpoint after ``done`` moves."""
    state: State = {POSITIONS: layout.positions, MOVES: np.array([done])}
    return state if layout.spread is None else {**state, SPREAD: layout.spread}


def _on_workers(
    run: Run,
    edges: PullingEdges,
    parameters: UmapArguments,
    part: Path,
    rows: int,
    parts: range,
    goal: DensityGoal | None,
) -> int:
    """Run the layout on workers, which save the last positions at the path ``part``.

    Returns the most memory of a worker.
    """
    pointers, end = edges.pointers(), moves(rows, edges.epochs)

    def work(count: int) -> tuple[LayoutWork, list[int]]:
        bounds = equal_shares(pointers, count)
        # A group has an eighth of all vertices, but a hash decides how many of a part: allow for all of them.
        columns = parameters.n_components + (0 if goal is None else 2)
        most = [4 * columns * (b - a) for a, b in itertools.pairwise(bounds)]
        return LayoutWork(edges, parameters, part, bounds, sweep.SEGMENT_SECONDS, goal), most

    def standing() -> int:
        state = load_if_whole(part, MOVES)
        return 0 if state is None else int(state[MOVES][0])

    def watch(done: int) -> None:
        if run.progress:
            run.progress(FOLDER, done, rows)

    team = Team.of(run, part, parts, work, standing)
    return team.run(end, run.scheduler, watch)


@dataclass(frozen=True, slots=True)
class LayoutWork:
    """Work of a team of processes: each moves the vertices of its part, the first one writes checkpoints."""

    edges: PullingEdges
    parameters: UmapArguments
    state: Path
    bounds: tuple[int, ...]
    checkpoint_seconds: float
    goal: DensityGoal | None = None

    def do_part(self, member: Member) -> None:
        """Move own vertices from the last checkpoint to the end, or until this process is to stop."""
        graph = self.edges.graph
        if not graph.is_dir():
            raise ClusterError(
                f"a worker does not see {graph}, the graph that is laid out: it must lie on a file "
                "system that all share. Make it there, rf.fuzzy_graph(neighbors, out=...)"
            )
        state, part = load_arrays(self.state), member.part
        positions, first = state[POSITIONS], int(state[MOVES][0])
        rows, done, last_save = len(positions), first, time.monotonic()
        end = moves(rows, self.edges.epochs)
        threads, epochs = member.threads, self.edges.epochs
        layout = Layout(positions, self.edges, self.parameters, epochs, threads, self.bounds, part)
        layout.goal, layout.spread = self.goal, state.get(SPREAD)

        def on_step(number: int) -> None:
            nonlocal done, last_save
            done = number
            member.look()
            if part == 0:
                member.attempt.reach(0, rows * done // end)
                if time.monotonic() - last_save > self.checkpoint_seconds:
                    member.save(self.state, _state(layout, done))
                    last_save = time.monotonic()

        try:
            layout.run(first, on_step, member.swap)
        finally:
            # Positions only change between two moves: however the run ends, they are those after ``done``
            # moves.
            if part == 0 and done > first:
                member.save(self.state, _state(layout, done))
