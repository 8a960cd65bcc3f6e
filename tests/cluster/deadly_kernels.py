"""Kernels that are not made ready: for workers, which load this module as tests do."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DeadlyKernels:
    """As many workers as are to die are killed as they compile them; the others take a moment."""

    folder: Path
    deaths: int

    def warm(self) -> None:
        for number in range(self.deaths):
            try:
                (self.folder / f"death-{number}").touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class EndlessKernels:
    """Workers note that they compile them, and never come to an end."""

    folder: Path

    def warm(self) -> None:
        (self.folder / f"begun-{os.getpid()}").touch()
        time.sleep(3600)
