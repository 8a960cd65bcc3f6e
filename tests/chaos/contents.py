"""What stores hold, read without the help of Zarr or rankfold, so that a byte that differs is seen."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
FINGERPRINT = re.compile(r'"[0-9a-f]{32}"')
"""Of inputs, in facts about a result."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a store holds: metadata and chunks of its arrays, by path."""

    parts: Mapping[str, bytes | str] = field(default_factory=dict)
    strays: tuple[str, ...] = ()
    """Hidden files, and files that belong to no array."""

    def difference(self, other: Contents) -> str:
        """Where two stores differ, in words; nothing if they do not."""
        for name in sorted({*self.parts, *other.parts}):
            if self.parts.get(name) != other.parts.get(name):
                how = (
                    "lacks" if name not in self.parts else "adds" if name not in other.parts else "differs in"
                )
                return f"{how} {name}"
        return ""


def contents(stores: list[Path], *, chained: bool = False) -> Contents:
    """Arrays and attributes of stores, read without the help of Zarr or rankfold.

    ``chained``: each reads what another wrote, so that facts about the input tell when that was written.
    """
    parts: dict[str, bytes | str] = {}
    strays: list[str] = []
    for store in stores:
        if not store.is_dir():
            continue
        for path in sorted(store.rglob("*")):
            name = str(path.relative_to(store.parent))
            if path.is_symlink() or not path.is_file():
                if not path.is_dir():
                    parts[name] = "not a file"
            elif path.name in METADATA:
                parts[name] = _metadata(path.read_bytes(), chained=chained)
            elif _is_chunk(path, store):
                parts[name] = path.read_bytes()
            elif path.name.startswith("."):
                strays.append(name)
    return Contents(parts, tuple(strays))


def _metadata(data: bytes, *, chained: bool) -> str:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return f"no JSON: {data[:200]!r}"
    text = json.dumps(value, sort_keys=True)
    return FINGERPRINT.sub('"*"', text) if chained else text


def _is_chunk(path: Path, store: Path) -> bool:
    """Whether a file is a chunk: below the folder ``c`` of an array."""
    return "c" in path.relative_to(store).parts and not path.name.startswith(".")
