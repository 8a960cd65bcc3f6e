"""``rankfold demo``: principal components of patches of two photographs, with a page of pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankfold.workflows.options import command


@command(shows_progress=True, keeps_state=True)
def demo(
    folder: Annotated[Path, typer.Option("--out", help="folder for data, result and pictures")] = Path(
        "demo-output"
    ),
    memory: Annotated[str, typer.Option(help="working memory")] = "256MiB",
    threads: Annotated[int | None, typer.Option(help="all cores by default")] = None,
) -> None:
    """Compute principal components of half a million image patches, and draw them."""
    from rankfold.pipeline.planning.progress import SweepProgress
    from rankfold.workflows.demo import run_demo

    with SweepProgress() as bar:
        run_demo(folder, memory=memory, threads=threads, progress=bar)
