"""Duties of every worker process besides its tasks: prepare, report progress, end in good order."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from distributed import Reschedule
from distributed.core import Status
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.worker import Worker

from rankfold.cluster.local.relay import Relay
from rankfold.cluster.local.reports import Reports, report_seconds
from rankfold.pipeline.engine.attempt import drop_idle, stop_all
from rankfold.pipeline.engine.memory import bound_heaps, forget_baseline, note_baseline
from rankfold.pipeline.engine.scheduler import Warmup
from rankfold.pipeline.storage.checkpoint import load_json
from rankfold.pipeline.storage.journal import Journal
from rankfold.pipeline.storage.run_directory import MARK


class RankfoldWorker(WorkerPlugin):
    """Dask plugin on every worker of a run, also on those that start later.

    When a worker ends by a signal that leaves it time, its segments (units of work) finish the rows that they
    hold and leave a checkpoint. A worker whose driver is gone ends by itself, and so do its segments.
    ``name`` is that of the plugin, ``marks`` are as for ``unseen_folder``, and ``workers`` is the number of
    workers.
    """

    def __init__(
        self, name: str, kernels: Warmup, marks: dict[str, str], journal: Journal, *, workers: int
    ) -> None:
        self.name, self.kernels, self.marks, self.journal = name, kernels, marks, journal
        self.report_seconds = report_seconds(workers)
        self._reports: Reports | None = None

    def setup(self, worker: Worker) -> None:
        """Limit unused heap memory, compile kernels, note the memory baseline, start
        reports, and install the relay.
        """
        if unseen := unseen_folder(self.marks):
            raise FileNotFoundError(f"{unseen} is not the folder that the driver sees under this name")
        # When a run ends, the scheduler is gone before its workers are: this needs no traceback.
        logging.getLogger("distributed.batched").setLevel(logging.WARNING)
        bound_heaps()
        self.kernels.warm()
        note_baseline()
        self.journal.note("came", worker=str(worker.name), threads=worker.state.nthreads)
        vars(worker)["gather_dep"] = Relay(worker, self.journal)  # in place of its own method
        self._reports = Reports(worker, self.report_seconds)
        self._reports.start()

    def transition(self, key: Any, start: str, finish: str, **more: Any) -> None:
        """Called by Dask for each change of a task's state, before the scheduler learns
        of it; sends a report when a task ends.
        """
        if self._reports and start == "executing":
            self._reports.send_along()

    def teardown(self, worker: Worker) -> None:
        """Stop reports, and segments (units of work) too if the worker ends. If only
        this run ends, other runs may go on.
        """
        if self._reports:
            self._reports.stop()
            self._reports = None  # tasks may still end
        vars(worker).pop("gather_dep", None)
        if all(each is self for each in worker.plugins.values() if isinstance(each, RankfoldWorker)):
            forget_baseline()
        self.journal.note("left", worker=str(worker.name))
        drop_idle() if worker.status == Status.running else hand_over()


def hand_over() -> bool:
    """Make the segments (units of work) of this process leave checkpoints and continue elsewhere; True if
    none is left.

    They do not fail: a task that moves with every worker that ends would run out of attempts.
    """
    return stop_all(Reschedule)


def unseen_folder(marks: dict[str, str]) -> str | None:
    """The first folder in which the driver's mark (a random text) is missing; None if all have it.

    ``marks`` maps folders to marks. A folder without it is another folder of that name, on another machine.
    """
    for folder, mark in marks.items():
        try:
            if load_json(Path(folder) / MARK) != mark:
                return folder
        except (OSError, ValueError):
            return folder
    return None
