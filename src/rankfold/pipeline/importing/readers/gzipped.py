"""Text that may be compressed by gzip, whatever its name says: its first two bytes tell."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Iterator
from typing import IO, Any

from rankfold.pipeline.regular import open_regular

GZIP_MAGIC = b"\x1f\x8b"

GZIP_ERRORS = (OSError, EOFError, zlib.error)
"""What a file that is damaged or cut short raises when it is read."""


def unpack_stream(raw: IO[bytes]) -> Any:
    """The text of a file that stands at its beginning; one that is called .gz must be compressed."""
    is_gzip = raw.read(2) == GZIP_MAGIC or raw.name.endswith(".gz")
    raw.seek(0)
    return gzip.GzipFile(fileobj=raw) if is_gzip else raw


@contextlib.contextmanager
def open_text(path: str) -> Iterator[Any]:
    """The text of the file at a path."""
    with open_regular(path) as raw:
        yield unpack_stream(raw)
