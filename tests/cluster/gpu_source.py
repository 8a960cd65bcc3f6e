"""A matrix that notes who reads it: the process, its node, and the GPU that SLURM has given it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
from slow_source import SlowSource

from rankfold.pipeline.chunks.geometry import Span


@dataclass(frozen=True, slots=True)
class GpuSource(SlowSource):
    """Another source with a line in ``log`` for every read, and ``seconds`` added where there is one GPU."""

    log: str = ""

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "none")
        if gpu.isdigit():  # a worker: long enough for the others to come
            time.sleep(self.seconds)
        self.inner.read_into(out, rows, columns)
        with open(self.log, "a") as log:  # a short line is one write
            log.write(f"{os.getpid()} {os.environ.get('SLURMD_NODENAME', 'none')} {gpu}\n")


def readers(log: Path) -> dict[str, str]:
    """Node and GPU of each worker that has read."""
    found: dict[str, str] = {}
    for line in log.read_text().splitlines():
        process, place = line.split(maxsplit=1)
        if place[-1].isdigit() and "," not in place:
            assert found.setdefault(process, place) == place
    return found
