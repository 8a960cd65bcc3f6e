"""Fetch results that a worker cannot get from another directly, by way of the Dask scheduler.

A network may be cut between two nodes that both reach the driver. Dask then asks the scheduler who has the
missing result, is referred to the same worker, and repeats this for ever, without a message. Workers here
exchange paths and numbers only: the scheduler can carry those.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from typing import Any, NamedTuple

from distributed.worker import Worker
from distributed.worker_state_machine import (
    GatherDepDoneEvent,
    GatherDepNetworkFailureEvent,
    GatherDepSuccessEvent,
)

from rankfold.pipeline.storage.journal import Journal

LOG = logging.getLogger("distributed.worker")

PATIENCE_SECONDS = 10.0
"""Seconds to wait for a worker that does not answer. If it has ended, the scheduler
notices earlier than that.
"""

AGAIN_SECONDS = 60.0
"""Seconds after which a worker that did not answer is asked directly again."""

FETCHES = 50
"""Largest number of fetches at once. Dask limits only those of large values: a worker that is sent the
reports of thousands would ask all the others together, which takes as long as if none of them answered.
"""

RELAY_SECONDS = 60.0
"""Seconds for the scheduler to answer; it may not reach the other worker either."""


class _Silence(NamedTuple):
    """Since when a worker has not answered, and when it is asked again (``time.monotonic``)."""

    since: float
    end: float = 0.0
    """Time from which it is asked directly again; 0 if it has been asked every time so far."""


class Relay:
    """Replacement of Dask's ``Worker.gather_dep``, which fetches from the scheduler if
    the other worker is silent.

    As long as the other worker answers, it calls the original method.
    """

    def __init__(self, worker: Worker, journal: Journal) -> None:
        self._worker, self._journal = worker, journal
        self._fetch = worker.gather_dep
        self._silent: dict[str, _Silence] = {}
        self._slots = asyncio.Semaphore(FETCHES)

    async def __call__(
        self, peer: str, to_gather: Collection[Any], total_nbytes: int, *, stimulus_id: str
    ) -> Any:
        """Fetch the results of tasks, by key, from a worker; returns the event of Dask
        that describes the outcome.
        """
        async with self._slots:
            silence = self._silent.get(peer, _Silence(since=time.monotonic()))
            due = time.monotonic() >= silence.end
            event = await self._ask(peer, to_gather, total_nbytes, stimulus_id) if due else None
        if event is not None and not isinstance(event, GatherDepNetworkFailureEvent):
            self._silent.pop(peer, None)
            return event
        if event is not None and time.monotonic() - silence.since < PATIENCE_SECONDS:
            self._silent[peer] = silence
            return event
        return await self._relay(peer, to_gather, total_nbytes, silence)

    async def _ask(self, peer: str, to_gather: Collection[Any], total_nbytes: int, stimulus_id: str) -> Any:
        """Event that Dask's own fetch from the other worker returns; None if it takes too long."""
        try:
            return await asyncio.wait_for(
                self._fetch(peer, to_gather, total_nbytes, stimulus_id=stimulus_id), PATIENCE_SECONDS
            )
        except TimeoutError:
            return None

    async def _relay(
        self, peer: str, to_gather: Collection[Any], total_nbytes: int, silence: _Silence
    ) -> GatherDepDoneEvent:
        if not silence.end:
            LOG.warning("%s does not answer: what it has comes by way of the scheduler", peer)
            self._journal.note("unreachable", worker=str(self._worker.name), peer=peer)
        self._silent[peer] = silence._replace(end=time.monotonic() + AGAIN_SECONDS)
        name = f"rankfold-relay-{time.time()}"
        try:
            data = await asyncio.wait_for(self._fetch_by_the_scheduler([*to_gather]), RELAY_SECONDS)
        except Exception as error:  # noqa: BLE001  # whatever it is, Dask must learn how the fetch ended
            self._silent[peer] = _Silence(silence.since)
            LOG.warning("nor does the scheduler have what %s had (%s: %s)", peer, type(error).__name__, error)
            return GatherDepNetworkFailureEvent(worker=peer, total_nbytes=total_nbytes, stimulus_id=name)
        return GatherDepSuccessEvent(worker=peer, total_nbytes=total_nbytes, data=data, stimulus_id=name)

    async def _fetch_by_the_scheduler(self, keys: list[Any]) -> dict[Any, object]:
        """Results by key, fetched through the scheduler. It is not asked for lost keys:
        it would log an error.
        """
        scheduler = self._worker.scheduler
        owners = await scheduler.who_has(keys=keys)
        if not all(owners.get(key) for key in keys):
            raise LookupError("lost, and made again")
        answer = await scheduler.gather(keys=keys)
        if answer["status"] != "OK":
            raise OSError(answer["status"])
        return dict(answer["data"])
