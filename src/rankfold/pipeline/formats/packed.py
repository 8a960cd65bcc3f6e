"""Text files that may be compressed by gzip or bzip2, recognized by their first bytes, not by their names."""

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
"""First bytes of a compressed file and the function that opens its text, by the ending of its name."""

UNPACK_ERRORS = (OSError, EOFError, zlib.error)
"""Exceptions that reading a damaged or truncated compressed file raises."""


def plain_name(path: str) -> str:
    """A name without the ending ``.gz`` or ``.bz2``.

    >>> plain_name("x.csv.bz2"), plain_name("x.csv")
    ('x.csv', 'x.csv')
    """
    for ending in PACKED:
        path = path.removesuffix(ending)
    return path


def unpack_stream(raw: IO[bytes]) -> Any:
    """Stream of decompressed bytes of an open file, which is at its beginning.

    A file whose name ends in .gz or .bz2 must be compressed; others may be.
    """
    head = raw.read(max(len(magic) for magic, _ in PACKED.values()))
    raw.seek(0)
    for ending, (magic, unpack) in PACKED.items():
        if head.startswith(magic) or raw.name.endswith(ending):
            return unpack(raw)
    return raw


@contextlib.contextmanager
def open_text(path: str) -> Iterator[Any]:
    """Open the file at a path as a stream of decompressed bytes."""
    with open_regular(path) as raw:
        yield unpack_stream(raw)
