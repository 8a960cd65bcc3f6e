"""Text that may be compressed by gzip, whatever its name says: its first two bytes tell."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Iterator
from typing import IO, Any

MAGIC = b"\x1f\x8b"


def unpacked(raw: IO[bytes]) -> Any:
    """The text of a file that stands at its beginning; one that is called .gz must be compressed."""
    packed = raw.read(2) == MAGIC or raw.name.endswith(".gz")
    raw.seek(0)
    return gzip.GzipFile(fileobj=raw) if packed else raw


@contextlib.contextmanager
def open_unpacked(path: str) -> Iterator[Any]:
    """The text of the file at a path."""
    with open(path, "rb") as raw:
        yield unpacked(raw)
