"""The first process of a launch by ``mpiexec`` or ``srun``: it runs the command, and ends after it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from rankfold.cluster.mpi.rendezvous import RENDEZVOUS, open_rendezvous

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
"""Signals that are passed on to the command."""


def run_command(words: Sequence[str], folder: Path, workers: int) -> int:
    """Run a command of rankfold on ``workers`` workers, and return its exit code.

    ``words`` are the command and its arguments; ``folder`` is the rendezvous at which the workers wait.
    """
    command = [sys.executable, "-m", "rankfold", *words, "--cluster", "mpi"]
    environment = {**os.environ, RENDEZVOUS: f"{workers}:{folder}"}
    with open_rendezvous(folder, workers):
        # In its own session: a signal to all processes of a launch reaches it once.
        process = subprocess.Popen(command, env=environment, start_new_session=True)

        def pass_on(number: int, _: FrameType | None) -> None:
            process.send_signal(number)

        for each in PASSED_ON:
            signal.signal(each, pass_on)
        code = process.wait()
    return code if code >= 0 else 128 - code
