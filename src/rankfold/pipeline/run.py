"""One run of one request: where its files are, where its tasks go, and what it has read so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankfold._version import __version__
from rankfold.pipeline.checkpoint import State
from rankfold.pipeline.editions import edition_of
from rankfold.pipeline.journal import FOLDER, Journal
from rankfold.pipeline.pair_sweep import PairFold, PairSweep
from rankfold.pipeline.scheduler import Scheduler
from rankfold.pipeline.source import Source
from rankfold.pipeline.sweep import Fold, Sweep

Progress = Callable[[str, int, int], None]
"""Called with the name of a sweep, the rows done, and the rows in all."""


@dataclass(slots=True)
class Run:
    """Files, scheduler and tallies of a run."""

    folder: Path
    """State of finished and unfinished sweeps."""

    scratch: Path
    """Narrow intermediates; on a file system that all workers see."""

    result: Path
    """The growing result."""

    scheduler: Scheduler
    concurrency: int
    slots: int
    progress: Progress | None = None
    groups: int = 0
    """Runs of blocks that tasks of a sweep over pairs hold."""

    at_once: int = 1
    """Tasks that run at once, in all processes."""

    passes: int = 0
    """Sweeps over the matrix so far, those of earlier attempts included."""

    warnings: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time of each sweep of this attempt."""

    notes: dict[str, Any] = field(default_factory=dict)
    """What is worth knowing of this attempt besides."""

    worker_bytes: int = 0
    """Most memory that a worker process held above its baseline, in this attempt."""

    def part(self, *names: str) -> Path:
        """Path of a part of the state; its folder exists."""
        path = self.folder.joinpath(*names)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def journal(self, sweep: str) -> Journal:
        """Where segments of a sweep note when they ran."""
        return Journal(self.folder / FOLDER, sweep)

    def sweep(self, name: str, fold: Fold) -> State:
        """Run a sweep, or take its accumulator from disk."""
        sweep = Sweep(name, fold, self.folder / name, self.concurrency, self.journal(name))
        began = time.perf_counter()
        state, peak = sweep.run(self.scheduler, self.progress)
        self.worker_bytes = max(self.worker_bytes, peak)
        self.seconds[name] = time.perf_counter() - began
        return state

    def pair_sweep(self, name: str, fold: PairFold, folder: Path) -> None:
        """Let all pairs of rows meet; accumulators are in ``folder``."""
        self.passes += 1
        groups, journal = fold.pairs.groups(self.groups), self.journal(name)
        sweep = PairSweep(name, fold, folder, groups, self.concurrency, self.at_once, journal)
        began = time.perf_counter()
        report = sweep.run(self.scheduler, self.progress)
        self.worker_bytes = max(self.worker_bytes, report.peak_bytes)
        self.seconds[name] = time.perf_counter() - began
        self.notes["read_bytes"] = report.read_bytes

    def pass_over_data(self, name: str, fold: Fold) -> State:
        """A sweep that reads the matrix."""
        self.passes += 1
        return self.sweep(name, fold)

    def facts(
        self, request: Mapping[str, Any], method: str, source: Source, fingerprint: str
    ) -> dict[str, Any]:
        """What was asked and of what, whoever answered: facts that a result of any kind has."""
        return {
            "kind": request["kind"],
            "method": method,
            "edition": edition_of(request["kind"]),
            "request": dict(request),
            "input": {
                "name": source.name.rpartition("/")[2],
                "shape": list(source.shape),
                "dtype": source.dtype.name,
                "fingerprint": fingerprint,
            },
            "version": __version__,
            "passes": self.passes,
            "warnings": list(self.warnings),
        }
