"""What an imported store was made of: kept in its attributes, so that the same import is found done.

It is written before the store has its name, so a store that was stopped right after that has it too.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.rundir import digest
from rankfold.pipeline.source import Source
from rankfold.pipeline.sources import open_source
from rankfold.pipeline.sources.locate import is_address, split_location

ATTRIBUTE = "rankfold_import"

EDITION = 1
"""Of what an import makes of the same source and request."""


def identity_of(request: dict[str, Any], mark: str) -> str:
    """Digest of what was asked for, and of the mark of the source."""
    return digest({"request": request, "input": mark, "edition": EDITION})


def source_mark(source: Source) -> str | None:
    """Fingerprint of a source; nothing for one that cannot be told from another."""
    try:
        return source.fingerprint()
    except InputError:
        return None


def file_mark(location: str) -> str:
    """Sizes and times of a file, or of the files of a folder; of an address itself alone."""
    if is_address(location):
        return location
    path, part = split_location(location)
    files = [path]
    if os.path.isdir(path):
        files = sorted(os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    marks = [part] if part else []
    for file in files:
        stat = os.stat(file)
        marks.append(f"{os.path.relpath(file, path)} {stat.st_size} {stat.st_mtime_ns}")
    return digest(marks)


def keep_identity(folder: Path, identity: str | None) -> None:
    """Write into a store of what it is made."""
    import zarr
    from zarr.storage import LocalStore

    if identity is not None:
        zarr.open(LocalStore(folder), mode="r+").update_attributes({ATTRIBUTE: identity})


def made_before(target: Path, identity: str | None) -> Source | None:
    """The store at ``target``, if it is whole and was made of the same source in the same way."""
    try:
        attributes = json.loads((target / "zarr.json").read_text(encoding="utf-8"))["attributes"]
        if identity is None or attributes[ATTRIBUTE] != identity:
            return None
        made = open_source(target)
        made.check()
    except (OSError, ValueError, LookupError, TypeError, RecursionError, DataError):
        return None
    return made
