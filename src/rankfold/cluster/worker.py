"""What every worker process does besides its tasks: get ready, tell how far it is, stop in good order."""

from __future__ import annotations

from typing import Any

import numpy as np
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.worker import Worker
from tornado.ioloop import PeriodicCallback

from rankfold.pipeline.attempt import all_reached, stop_all
from rankfold.pipeline.memory import note_baseline
from rankfold.pipeline.warm import warm_kernels

TOPIC = "rankfold-progress"
REPORT_MILLISECONDS = 500


class RankfoldWorker(WorkerPlugin):
    """Put on every worker of a run, those that come later too.

    The end of a worker, by whatever signal leaves it time, lets its segments end after their panel with a
    checkpoint. A worker whose driver is gone ends by itself, and so do its segments.
    """

    name = "rankfold"
    idempotent = True

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype

    def setup(self, worker: Worker) -> None:
        """Compile kernels, take the baseline of memory, begin to report."""
        warm_kernels(self.dtype)
        note_baseline()
        told: dict[str, dict[int, int]] = {}

        def report() -> None:
            for ticket, reached in all_reached().items():
                known = told.setdefault(ticket, {})
                news = {stream: rows for stream, rows in reached.items() if known.get(stream) != rows}
                if news:
                    known.update(news)
                    worker.log_event(TOPIC, {"ticket": ticket, "reached": list(news.items())})

        self._reports = PeriodicCallback(report, REPORT_MILLISECONDS)
        self._reports.start()

    def teardown(self, worker: Worker) -> None:
        """Stop what runs here."""
        self._reports.stop()
        stop_all()
