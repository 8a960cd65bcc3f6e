"""Identity of an imported store: a digest kept in it, by which a repeated import is known to be done.

The attributes of the store hold the identity, and its manifest lengths and checksums of its files. Both are
written before the store gets its name, so a store has them even if the import was killed right after that.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.formats.locate import is_address, matching_files, split_location
from rankfold.pipeline.formats.zarr.metadata import ATTRIBUTE as NAMES
from rankfold.pipeline.storage.checkpoint import load_json
from rankfold.pipeline.storage.manifest import request_in, write_manifest
from rankfold.pipeline.storage.run_directory import digest

ATTRIBUTE = "rankfold_import"

EDITION = 1
"""Version of the output of an import; raised when the same source and request give other bytes."""


def identity_of(request: dict[str, Any], mark: str) -> str:
    """Digest of the request and of ``mark``, the fingerprint of the source."""
    return digest({"request": request, "input": mark, "edition": EDITION})


def source_mark(source: Source) -> str | None:
    """Fingerprint of a source; None for one that cannot be identified."""
    try:
        return source.fingerprint()
    except InputError:
        return None


def file_mark(location: str) -> str:
    """Digest of the sizes and times of the files at a location; of a URL, the URL itself.

    These are a file, all files of a folder, or those that a name with ``*`` matches.
    """
    if is_address(location):
        return location
    if (places := matching_files(location)) is not None:
        return digest([file_mark(place) for place in places])
    path, part = split_location(location)
    files = [path]
    if os.path.isdir(path):
        files = sorted(os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    marks = [part] if part else []
    for file in files:
        stat = os.stat(file)
        marks.append(f"{os.path.relpath(file, path)} {stat.st_size} {stat.st_mtime_ns}")
    return digest(marks)


def seal(folder: Path, identity: str | None, names: dict[str, Any]) -> None:
    """Write into the finished store in ``folder`` its identity, names of rows and columns, and its manifest.

    ``identity`` is None if the source cannot be identified; ``names`` are those of ``names_as_json``.
    """
    import zarr

    from rankfold.pipeline.chunks.regular_store import RegularStore

    said: dict[str, Any] = {} if identity is None else {ATTRIBUTE: identity}
    said |= {NAMES: names} if names else {}
    if said:
        zarr.open(RegularStore(folder), mode="r+").update_attributes(said)
    write_manifest(folder, identity or "", {})


def require_unchanged(target: Path, identity: str | None, identify: Callable[[], str | None]) -> None:
    """Refuse a store if the source was written to during the read: it would mix two states.

    ``target`` is the name of the store, ``identity`` was computed at the start of the import, ``identify``
    computes it again.

    Raises
    ------
    DataError
        The identity from the present state of the source differs from that at the start of the import.
    """
    try:
        same = identity is None or identify() == identity
    except OSError:
        same = False
    if not same:
        raise DataError(
            f"the source of {target} has changed since this import began: what was read before and after do "
            "not belong together, so no store is made of them. Give the command again when nothing writes to "
            "it any more"
        )


def made_of(target: Path, identity: str | None) -> bool:
    """True if the store at ``target``, complete or damaged, was made by an import with this identity."""
    return identity is not None and identity in (_attribute(target), request_in(target))


def _attribute(target: Path) -> object:
    facts = load_json(target / "zarr.json", dict) or {}
    attributes = facts.get("attributes")
    return attributes.get(ATTRIBUTE) if isinstance(attributes, dict) else None
