"""``rankfold demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankfold.workflows.options import (
    Debug,
    Memory,
    Threads,
)
from rankfold.workflows.reporting import reported


def demo(
    folder: Annotated[Path, typer.Option("--out", help="folder for data, result and pictures")] = Path(
        "demo-output"
    ),
    memory: Memory = "256MiB",
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Components of half a million image patches."""
    with reported(debug):
        from rankfold.workflows.demo import run_demo
        from rankfold.workflows.progress import SweepProgress

        with SweepProgress() as bar:
            run_demo(folder, memory=memory or "256MiB", threads=threads, progress=bar)
