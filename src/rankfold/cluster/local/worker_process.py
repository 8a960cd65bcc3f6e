"""One worker process, which a ``SpecCluster`` starts and ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from distributed.deploy.spec import ProcessInterface

from rankfold.pipeline.regular import open_regular, read_last_lines

GRACE_SECONDS = 10.0
"""Seconds for the segments (units of work) of a worker to leave a checkpoint."""


class WorkerProcess(ProcessInterface):
    """A worker process in a session of its own, so that Ctrl-C reaches the driver (the
    calling process) alone.
    """

    def __init__(
        self,
        scheduler: str,
        *,
        name: object,
        threads: int,
        local: str,
        logs: str,
        settings: dict[str, str],
        devices: tuple[str, ...] = (),
        certificates: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self._command = [
            *(sys.executable, "-m", "rankfold.cluster.local.lifeline", local),
            *("distributed.cli.dask_worker", scheduler, "--no-nanny"),
            *("--name", str(name), "--nthreads", str(threads), "--memory-limit", "0"),
            *("--host", "127.0.0.1", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"),
            *("--local-directory", local, "--death-timeout", "60", *certificates),
        ]
        self._log = Path(logs) / f"worker-{name}.log"
        self._settings = dict(settings)
        if devices:
            # A successor has the number of the worker before it, but another name.
            number = int(str(name).partition("+")[0])
            self._settings["CUDA_VISIBLE_DEVICES"] = devices[number]
        self._process: asyncio.subprocess.Process | None = None
        self._lifeline: int | None = None
        """Write end of the pipe to the process; the kernel closes it when this process ends: see
        ``lifeline``.
        """

    async def start(self) -> None:
        """Start the process, which registers with the scheduler by itself."""
        end, self._lifeline = os.pipe()
        try:
            with open_regular(self._log, "wb") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=end,
                    stdout=log,
                    stderr=log,
                    env=self._settings,
                    start_new_session=True,
                )
        finally:
            os.close(end)
        await super().start()

    async def close(self) -> None:
        """Ask the process to end; kill it if it does not."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), GRACE_SECONDS)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        await super().close()

    @property
    def has_ended(self) -> bool:
        """True if the process was started and has ended."""
        return self._process is not None and self._process.returncode is not None

    def last_words(self) -> str:
        """Reason of its end, with the last line that it wrote if it ended by itself."""
        code = self._process.returncode if self._process is not None else None
        if code is not None and code < 0:
            return f"killed by {signal.Signals(-code).name}"
        lines = [line for line in read_last_lines(self._log) if line.strip()] if self._log.exists() else []
        return ": ".join([f"exit status {code}", *lines[-1:]])
