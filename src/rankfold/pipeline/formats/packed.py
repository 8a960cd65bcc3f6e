"""Text that may be compressed by gzip or bzip2, whatever its name says: its first bytes tell."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from rankfold.pipeline.regular import open_regular

PACKED: dict[str, tuple[bytes, Callable[[IO[bytes]], Any]]] = {
    ".gz": (b"\x1f\x8b", lambda raw: gzip.GzipFile(fileobj=raw)),
    ".bz2": (b"BZh", lambda raw: bz2.BZ2File(raw)),
}
"""By the end of its name, what compressed text begins with, and what unpacks it."""

UNPACK_ERRORS = (OSError, EOFError, zlib.error)
"""What a file that is damaged or cut short raises when it is read."""


def plain_name(path: str) -> str:
    """A name without the ending of what compressed it.

    >>> plain_name("x.csv.bz2"), plain_name("x.csv")
    ('x.csv', 'x.csv')
    """
    for ending in PACKED:
        path = path.removesuffix(ending)
    return path


def unpack_stream(raw: IO[bytes]) -> Any:
    """The text of a file that stands at its beginning; one that is called .gz or .bz2 must be compressed."""
    head = raw.read(max(len(magic) for magic, _ in PACKED.values()))
    raw.seek(0)
    for ending, (magic, unpack) in PACKED.items():
        if head.startswith(magic) or raw.name.endswith(ending):
            return unpack(raw)
    return raw


@contextlib.contextmanager
def open_text(path: str) -> Iterator[Any]:
    """The text of the file at a path."""
    with open_regular(path) as raw:
        yield unpack_stream(raw)
