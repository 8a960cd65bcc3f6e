"""One ``srun`` command in a SLURM job, whose tasks are the workers."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rankfold.cluster.slurm.shell_lines import log_pattern
from rankfold.pipeline.errors import ClusterError, NoWorkersError
from rankfold.pipeline.regular import open_regular, read_last_lines

END_SECONDS = 20.0
"""Seconds for workers to end by themselves when their scheduler has ended."""

KILL_SECONDS = 10.0


class SrunStep:
    """Workers that one ``srun`` starts, and that are ended when the block ends,
    whatever they do; a ``Step``.
    """

    def __init__(self, logs: Path, tag: str) -> None:
        self.logs = logs
        self.output = log_pattern(logs, f"worker-{tag}-%t.log")
        """Path pattern of the log of each task, for srun; unique to this start of the job."""

        self.any_worker_came = False
        """True if any worker has registered: if all end after that, it is an accident,
        not a mistake in a profile.
        """

        self._tag, self._log = tag, logs / f"srun-{tag}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], settings: Mapping[str, str]) -> None:
        """Start the tasks with additional environment variables; they register by themselves."""
        with open_regular(self._log, "wb") as log:
            # In its own session: Ctrl-C is for the driver, which lets segments end first.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **settings},
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise if ``srun`` has ended while its workers are needed."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return
        words = f"the workers of the allocation have ended, exit status {code}: {self._last_words()}"
        if self.any_worker_came:
            raise NoWorkersError(f"{words}. What was finished is kept; the same command goes on")
        raise ClusterError(f"{words}. Logs are in {self.logs}")

    def _last_words(self) -> str:
        logs = [*self.logs.glob(f"worker-{self._tag}-*.log"), self._log]
        for log in logs:
            lines = [line for line in read_last_lines(log) if line.strip()]
            telling = [line for line in lines if " - INFO - " not in line]
            if telling:
                return telling[-1].strip()
        return "nothing was said"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
                return
            self._process.terminate()  # srun kills its tasks, and waits for them
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(KILL_SECONDS)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
