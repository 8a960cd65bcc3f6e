"""Detect changes in the first rows of an array without reading all of them.

Appending to a Zarr store leaves full files as they are, and rewrites the last row of chunks if it was not
full. So files that hold only the first rows are compared by size and time. Those of the first rows whose
files also hold later rows are compared by a digest of their values: at most one row of chunks is read. These
digests are called row marks.
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
"""Bytes of values that are in memory at a time while their digest is computed; at least one chunk."""


@dataclass(frozen=True, slots=True)
class RowMarks:
    """Digests of the first rows of an array: they change if these rows do, but not if others are appended."""

    layout: str
    """Digest of the type and columns of the array, its chunks and its compression."""

    files: str
    """Digest of sizes and times of the files that hold only these rows."""

    numbers: str
    """Digest of the values in those of the first rows whose files also hold later rows."""

    def as_dict(self) -> dict[str, str]:
        """The digests by name, for JSON."""
        return asdict(self)

    def beside(self, *facts: object) -> RowMarks:
        """Copy whose ``layout`` also covers ``facts``, such as a selection of columns: a change shows."""
        return replace(self, layout=digest_of(self.layout, *facts))

    def change_since(self, earlier: Mapping[str, Any]) -> str:
        """Text that says what has changed since earlier marks of as many rows; empty if nothing has."""
        mine = self.as_dict()
        changes = (WORDS[name] for name in mine if earlier.get(name) != mine[name])
        return next(changes, "")


WORDS = {
    "layout": "its type, columns, chunks or steps are others",
    "files": "files that hold none but these rows have another size or time",
    "numbers": "rows in its last chunks hold other numbers",
}
"""Text that says what has changed, for each digest that differs."""


def join_marks(marks: Sequence[RowMarks]) -> RowMarks:
    """Marks of rows that are stored in several arrays, combined from the marks of each array."""
    names = ("layout", "files", "numbers")
    return RowMarks(*(digest_of(*(getattr(each, name) for each in marks)) for name in names))


def digest_of(*facts: object) -> str:
    """Digest of ``facts``, each as text, in order."""
    return hashlib.blake2b("\0".join(map(str, facts)).encode(), digest_size=16).hexdigest()


def digest_of_rows(
    read_boxes: Callable[[list[Piece]], None],
    span: tuple[int, int],
    lengths: tuple[int, ...],
    chunks: tuple[int, ...],
    dtype: np.dtype[Any],
) -> str:
    """Digest of the values of some rows, read chunk by chunk; each chunk is decoded once.

    Parameters
    ----------
    read_boxes : function
        ``read_boxes`` of the array, which fills the memory of pieces: see ``Volume``.
    span : (start, stop)
        Range of rows, which are indices along the first axis.
    lengths, chunks
        Lengths of the other axes; shape of a chunk along all axes, the first included.
    """
    digest = hashlib.blake2b(digest_size=16)
    box = (span, *((0, length) for length in lengths))
    # Only the shape of this array is used: nothing is written to it.
    whole = Piece(box, np.broadcast_to(np.zeros((), dtype), [stop - start for start, stop in box]))
    steps = [*chunks]
    wide = max(1, READ_BYTES // (math.prod(chunks) * dtype.itemsize))
    steps[-1] *= min(wide, -(-lengths[-1] // chunks[-1])) if lengths else 1
    for _, (part,) in cells([whole], tuple(steps)):
        numbers = np.empty(part.out.shape, dtype)
        read_boxes([Piece(part.box, numbers)])
        digest.update(numbers.data)
    return digest.hexdigest()
