"""``rankfold verify``: checks that a result is unchanged since it was written.

Checksums and lengths are compared in ``pipeline/storage/manifest.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankfold.pipeline.text import json_text
from rankfold.workflows.options import Json, command
from rankfold.workflows.reporting import say


@command()
def verify(
    results: Annotated[list[Path], typer.Argument(metavar="RESULT...", help="what other commands wrote")],
    as_json: Json = False,
) -> None:
    """Read every file of a result and compare it with what was written."""
    import rankfold
    from rankfold.pipeline.errors import DataError

    damages = {str(path): rankfold.verify(path) for path in results}
    if as_json:
        say(json_text(damages, indent=1))
    else:
        for path, damage in damages.items():
            say(f"{path}: damaged" if damage else f"{path}: whole")
            for line in damage:
                say(f"  {line}")
    damaged_paths = [path for path, damage in damages.items() if damage]
    if damaged_paths:
        raise DataError(
            f"{', '.join(damaged_paths)}: damaged. Give the command that made it once more: it makes it again"
        )
