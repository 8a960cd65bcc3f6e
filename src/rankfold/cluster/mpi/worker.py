"""All processes of a launch by ``mpiexec`` or ``srun`` but the first: each runs a worker while the first asks
for one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from rankfold.cluster.mpi.rendezvous import Call, come, read_beat, read_call, require_own
from rankfold.pipeline.errors import ClusterError
from rankfold.pipeline.regular import open_regular

LOG = logging.getLogger("rankfold")

POLL_SECONDS = 0.5

WAIT_SECONDS = 600.0
"""Seconds to wait until the first process shows that it is alive."""

SILENCE_SECONDS = 120.0
"""Seconds after its last sign of life when the first process counts as gone."""

END_SECONDS, KILL_SECONDS = 20.0, 10.0
"""Seconds for a worker to end by itself, then seconds to end after it was asked to."""

AGAIN_SECONDS = 5.0
"""Seconds before a worker that ended while it was still wanted is started again."""


def serve(folder: Path, number: int) -> None:
    """Run a worker whenever the first process asks for one; returns when that process has ended.

    ``folder`` is the rendezvous, ``number`` that of this process, from 1.

    Raises
    ------
    ClusterError
        The first process has given no sign, or gives none any more.
    """
    worker, current = None, ""
    with contextlib.ExitStack() as last:
        last.callback(lambda: _end(worker))
        for wanted in _calls(folder, number):
            call = wanted if wanted is not None and number <= wanted.workers else None
            if call is None or call.name != current:
                _end(worker)
                worker, current = None, ""
            if call is not None and (worker is None or worker.poll() is not None):
                if worker is not None:
                    LOG.warning("worker %d has ended with %s: starting it again", number, worker.returncode)
                    time.sleep(AGAIN_SECONDS)
                worker, current = _start(call, number), call.name


def _calls(folder: Path, number: int) -> Iterator[Call | None]:
    """Yield the current request for workers, or None, twice a second, until the rendezvous folder is gone."""
    seen, since, alive = read_beat(folder), time.monotonic(), False
    while True:
        beat = read_beat(folder)
        if beat is not None and beat != seen:
            if not alive:
                require_own(folder)
                come(folder, number)
            seen, since, alive = beat, time.monotonic(), True
        if alive and not folder.is_dir():
            return
        silence = time.monotonic() - since
        if silence > (SILENCE_SECONDS if alive else WAIT_SECONDS):
            raise ClusterError(
                f"the first process of this launch is silent since {silence:.0f} s: was it killed? Do all "
                f"processes see {folder.parent}? It must be a folder that they share"
            )
        yield read_call(folder) if alive else None
        time.sleep(POLL_SECONDS)


def _start(call: Call, number: int) -> subprocess.Popen[bytes]:
    with open_regular(Path(call.logs) / f"worker-{call.name[:8]}-{number}.log", "ab") as log:
        return subprocess.Popen(
            call.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **call.settings},
            start_new_session=True,
        )


def _end(worker: subprocess.Popen[bytes] | None) -> None:
    """Wait for a worker, which ends when its scheduler does; after some seconds terminate it, then
    kill it.
    """
    if worker is None:
        return
    for seconds, action in ((END_SECONDS, worker.terminate), (KILL_SECONDS, worker.kill)):
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.wait(seconds)
            return
        action()
    worker.wait()


@contextlib.contextmanager
def end_by_signals() -> Iterator[None]:
    """Turn signals to end into ``SystemExit``, so that what runs within the block ends in order, with its
    worker.
    """

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, leave)
    yield
