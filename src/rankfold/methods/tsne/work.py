"""Run a descent in this process, or by workers that each hold the edges of some vertices.

Both write the same checkpoints, and resume from those of the other. Workers hold the positions of all
vertices, from which each makes the same grid, and exchange those that have moved after every step.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rankfold.methods.tsne.arguments import TsneArguments
from rankfold.methods.tsne.descent import GradientDescent, State, StoredAffinities
from rankfold.pipeline.engine import sweep
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.team import Member, Team, equal_shares
from rankfold.pipeline.errors import ClusterError
from rankfold.pipeline.storage.checkpoint import load_arrays, load_if_whole, save_arrays

Float32 = npt.NDArray[np.float32]

FOLDER, STATE, STEP = "descent", "state", "step"


def optimize(
    run: Run, stored: StoredAffinities, request: TsneArguments, start: Callable[[], Float32], parts: range
) -> State:
    """State at the end of a descent that resumes from an earlier checkpoint, or begins at ``start()``.

    ``parts`` are the numbers of processes that it may be split among, if there are workers.
    """
    part, began = run.part(FOLDER, f"{STATE}.part"), time.perf_counter()
    arrays = load_if_whole(part)
    state = State.load(arrays) if arrays and STEP in arrays else State.start(start())
    run.seconds["start"] = time.perf_counter() - began
    began = time.perf_counter()
    if run.scheduler.has_workers:
        if load_if_whole(part, STEP) is None:
            save_arrays(part, state.arrays(), durable=run.file_policy.is_remote)
        rows = len(state.positions)
        del state, arrays
        peak = _on_workers(run, stored, request, part, rows, parts)
        run.worker_bytes = max(run.worker_bytes, peak)
        state = State.load(load_arrays(part))
    else:
        _run_in_process(run, GradientDescent(state, stored, request, run.concurrency), part)
    run.seconds[FOLDER] = time.perf_counter() - began
    return state


def _run_in_process(run: Run, descent: GradientDescent, part: Path) -> None:
    """Run the whole descent in this process."""
    rows, last_save = len(descent.state.positions), time.monotonic()

    def on_step(is_whole: bool) -> None:
        nonlocal last_save
        if run.file_policy.resumable and time.monotonic() - last_save > sweep.SEGMENT_SECONDS:
            save_arrays(part, descent.state.arrays())
            last_save = time.monotonic()
        if run.progress:
            run.progress(FOLDER, rows * descent.state.step // max(1, descent.request.steps), rows)

    descent.run(on_step)


def _on_workers(
    run: Run, stored: StoredAffinities, request: TsneArguments, part: Path, rows: int, parts: range
) -> int:
    """Run the descent on workers, which save the last state at the path ``part``.

    Returns the most memory of a worker.
    """
    pointers = stored.pointers()

    def work(count: int) -> tuple[DescentWork, list[int]]:
        bounds = equal_shares(pointers, count)
        widest = max(8, 4 * request.n_components)
        most = [widest * (after - before) for before, after in itertools.pairwise(bounds)]
        return DescentWork(stored, request, part, bounds, sweep.SEGMENT_SECONDS), most

    def standing() -> int:
        state = load_if_whole(part, STEP)
        step, over = (0, 0) if state is None else state[STEP].tolist()
        return request.steps + 1 if over else int(step)

    def watch(done: int) -> None:
        if run.progress:
            run.progress(FOLDER, done, rows)

    team = Team.of(run, part, parts, work, standing)
    return team.run(request.steps + 1, run.scheduler, watch)


@dataclass(frozen=True, slots=True)
class DescentWork:
    """Work of a team of processes: each moves the vertices of its part, the first one writes checkpoints."""

    stored: StoredAffinities
    request: TsneArguments
    state: Path
    bounds: tuple[int, ...]
    checkpoint_seconds: float

    def do_part(self, member: Member) -> None:
        """Move own vertices from the last checkpoint to the end, or until this process is to stop."""
        graph = self.stored.graph
        if not graph.is_dir():
            raise ClusterError(
                f"a worker does not see {graph}, the graph of affinities: the run must lie on a file system "
                "that all share. Say out= or scratch= there"
            )
        state, last_save = State.load(load_arrays(self.state)), time.monotonic()
        rows, part = len(state.positions), member.part
        descent = GradientDescent(
            state, self.stored, self.request, member.threads, self.bounds, part, member.swap
        )

        def on_step(is_whole: bool) -> None:
            nonlocal last_save
            member.look()
            if part != 0:
                return
            member.attempt.reach(0, rows * state.step // max(1, self.request.steps))
            late = time.monotonic() - last_save > self.checkpoint_seconds
            if state.over or (is_whole and late):
                member.save(self.state, state.arrays())
                last_save = time.monotonic()

        descent.run(on_step)
