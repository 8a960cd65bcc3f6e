"""Reports of progress (rows done in each stream), sent from workers to the driver, the process that called
rankfold.

A stream is a part of a pass that is summed in order. Reports pass through the Dask scheduler, which takes as
long for a message as for a task, and less for one more item within a message. So where a report is due, it is
sent with the end of a task. Where the scheduler is in the driver's process, it handles the report itself and
does not forward it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.worker import Worker
from tornado.ioloop import PeriodicCallback

from rankfold.pipeline.engine.attempt import note_progress, progress_of_all

TOPIC = "rankfold-progress"
REPORT_SECONDS = 0.5
"""Shortest interval between two reports of a worker, in seconds."""

REPORTS_PER_SECOND = 10
"""Largest number of reports per second of all workers; as many again may be sent with the ends of tasks."""


def report_seconds(workers: int) -> float:
    """Seconds between two reports of one of ``workers`` workers."""
    return max(REPORT_SECONDS, workers / REPORTS_PER_SECOND)


class Reports:
    """Sends the progress reports of one worker, ``seconds`` apart."""

    def __init__(self, worker: Worker, seconds: float) -> None:
        self._worker, self._seconds, self._time = worker, seconds, time.monotonic()
        self._rows: dict[str, dict[int, int]] = {}
        self._timer = PeriodicCallback(self._send, 1000 * seconds)

    def start(self) -> None:
        """Begin to send a report at every interval."""
        self._timer.start()

    def stop(self) -> None:
        """Stop sending reports at intervals."""
        self._timer.stop()

    def send_along(self) -> None:
        """Send a report now, in place of the next, unless the last one is less than half an interval old."""
        if time.monotonic() - self._time >= self._seconds / 2:
            self._timer.stop()
            self._send()
            self._timer.start()

    def _send(self) -> None:
        self._time = time.monotonic()
        for lease, rows_by_stream in progress_of_all().items():
            last_rows = self._rows.setdefault(lease, {})
            news = {stream: rows for stream, rows in rows_by_stream.items() if last_rows.get(stream) != rows}
            if news:
                last_rows.update(news)
                self._worker.log_event(TOPIC, {"ticket": lease, "reached": list(news.items())})


@contextlib.contextmanager
def take_reports(client: Any, name: str) -> Iterator[None]:
    """Record the progress that the workers of a client report during the block.

    ``name`` is that of the plugin, if the scheduler is in this process and takes one.
    """
    scheduler = getattr(client.cluster, "scheduler", None)
    if isinstance(scheduler, Scheduler):
        scheduler.add_plugin(Listener(), name=name)
        try:
            yield
        finally:
            with contextlib.suppress(ValueError):  # closed, and without plugins
                scheduler.remove_plugin(name)
        return
    client.subscribe_topic(TOPIC, lambda event: _take_in(event[1]))
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # a scheduler that is gone has no topics
            client.unsubscribe_topic(TOPIC)


class Listener(SchedulerPlugin):
    """Receiver of progress reports for a scheduler in this process."""

    def log_event(self, topic: str, msg: Any) -> None:
        """Called by Dask for each event that a worker logs; records reports of progress."""
        if topic == TOPIC:
            _take_in(msg)


def _take_in(report: dict[str, Any]) -> None:
    note_progress(report["ticket"], dict(report["reached"]))
