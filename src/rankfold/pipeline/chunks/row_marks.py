"""What tells whether the first rows of an array are still what they were, without a read of all of them.

Who appends to a Zarr store leaves files that are full as they are, and writes the last row of chunks anew
where that was not full. So sizes and times stand for files that hold none but the rows in question, and a
digest of their numbers for the rows whose files hold others too: one row of chunks at most is read.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from rankfold.pipeline.chunks.geometry import Piece, cells

READ_BYTES = 16 * 2**20
"""Numbers that are held at a time while they are digested, or those of a chunk."""


@dataclass(frozen=True, slots=True)
class RowMarks:
    """Digests of the first rows of an array."""

    layout: str
    """Of its type, its columns, and how it is cut and compressed."""

    files: str
    """Of sizes and times of the files that hold none but these rows."""

    numbers: str
    """Of the numbers in rows whose files hold others too."""

    def as_dict(self) -> dict[str, str]:
        """The digests by name, for JSON."""
        return asdict(self)

    def beside(self, *facts: object) -> RowMarks:
        """The same with more that must not change."""
        return replace(self, layout=digest_of(self.layout, *facts))

    def change_since(self, earlier: Mapping[str, Any]) -> str:
        """What has changed since earlier marks of as many rows, in words; nothing if nothing has."""
        mine = self.as_dict()
        changes = (WORDS[name] for name in mine if earlier.get(name) != mine[name])
        return next(changes, "")


WORDS = {
    "layout": "its type, columns, chunks or steps are others",
    "files": "files that hold none but these rows have another size or time",
    "numbers": "rows in its last chunks hold other numbers",
}
"""What has changed, by the digest that tells it."""


def join_marks(marks: Sequence[RowMarks]) -> RowMarks:
    """Of rows that lie in several arrays."""
    names = ("layout", "files", "numbers")
    return RowMarks(*(digest_of(*(getattr(each, name) for each in marks)) for name in names))


def digest_of(*facts: object) -> str:
    """Digest of what can be written as text."""
    return hashlib.blake2b("\0".join(map(str, facts)).encode(), digest_size=16).hexdigest()


def digest_of_rows(
    read_boxes: Callable[[list[Piece]], None],
    span: tuple[int, int],
    lengths: tuple[int, ...],
    chunks: tuple[int, ...],
    dtype: np.dtype[Any],
) -> str:
    """Digest of the numbers of some rows, chunk by chunk, each of which is decoded once.

    Parameters
    ----------
    read_boxes
        Of the array: see ``Volume``.
    span : (start, stop)
        Places along the first axis.
    lengths, chunks
        Lengths of the other axes; shape of a chunk along all of them.
    """
    digest = hashlib.blake2b(digest_size=16)
    box = (span, *((0, length) for length in lengths))
    # Only the shape of this one counts: nothing is written to it.
    whole = Piece(box, np.broadcast_to(np.zeros((), dtype), [stop - start for start, stop in box]))
    steps = [*chunks]
    wide = max(1, READ_BYTES // (math.prod(chunks) * dtype.itemsize))
    steps[-1] *= min(wide, -(-lengths[-1] // chunks[-1])) if lengths else 1
    for _, (part,) in cells([whole], tuple(steps)):
        numbers = np.empty(part.out.shape, dtype)
        read_boxes([Piece(part.box, numbers)])
        digest.update(numbers.data)
    return digest.hexdigest()
