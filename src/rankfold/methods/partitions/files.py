"""Files on scratch between sweeps of one round: rows by partition, then lists by partition.

A panel of the matrix (rows read at a time) leaves its rows, sorted by partition, in a range of positions of
its own: a *run*, which may be shorter than its range, with an index of where each partition begins in it. A
batch of partitions then leaves the lists of its rows, sorted by row, in a range of its own, with an index of
where each panel of lists begins in it. So rows are sorted by partition, and lists sorted back by row, by
writing long pieces once and reading pieces, whatever the memory is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.knn.row_blocks import row_dtype
from rankfold.methods.partitions.layout import Layout
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]

WIDE, ID, PARTITION = np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.int32)


@dataclass(frozen=True, slots=True)
class Runs:
    """Files of rows sorted by partition within each panel of the matrix (a run).

    ``places`` is the number of positions in a file: ``each`` for every row of the matrix.
    """

    rows: ScratchMatrix
    """(places, n) rows, in the type that they have in memory."""

    ids: ScratchMatrix
    """(places, 1) number in the matrix of each of these rows."""

    farthest: ScratchMatrix
    """(places, 1) largest distance (key) in the list that a row had before."""

    index: ScratchMatrix
    """(panels, partitions + 1) number of rows of each run before each partition."""

    partitions: ScratchMatrix | None
    """(places, spill) partitions that a row is in, nearest first; None in files of rows by the partitions
    that they visit."""

    each: int
    """Number of positions reserved for each row: the most partitions that it is in, or visits."""

    @classmethod
    def of(cls, layout: Layout, folder: Path, round_index: int, partitions: int) -> Runs:
        """Files in ``folder`` for the rows of a round, sorted by the partitions that they are in.

        ``round_index`` is counted from 0; ``partitions`` is the number of partitions.
        """
        at = folder / f"round-{round_index + 1:02d}"
        known = ScratchMatrix(_under(at, "partitions.bin"), layout.places, layout.spill, PARTITION)
        return cls._of(layout, at, partitions, layout.spill, known)

    @classmethod
    def of_visitors(cls, layout: Layout, folder: Path, round_index: int, partitions: int) -> Runs:
        """Files in ``folder`` for the rows after a round, sorted by the partitions that they visit.

        A row visits partitions that hold its neighbors and not itself. ``round_index`` is counted from 0;
        ``partitions`` is the number of partitions.
        """
        return cls._of(layout, folder / f"visits-{round_index + 1:02d}", partitions, layout.visits, None)

    @classmethod
    def _of(cls, layout: Layout, at: Path, partitions: int, each: int, known: ScratchMatrix | None) -> Runs:
        places, n = each * layout.rows, layout.source.shape[1]
        return cls(
            ScratchMatrix(_under(at, "rows.bin"), places, n, row_dtype(layout.source.dtype)),
            ScratchMatrix(_under(at, "ids.bin"), places, 1, ID),
            ScratchMatrix(_under(at, "farthest.bin"), places, 1, WIDE),
            ScratchMatrix(_under(at, "row-index.bin"), len(layout.cut.panels) - 1, partitions + 1, ID),
            known,
            each,
        )


@dataclass(frozen=True, slots=True)
class Lists:
    """Two scratch files (rows, k) of the nearest neighbors found so far: distance keys, and ids.

    See ``kernels/neighbors/lists.py``.
    """

    keys: ScratchMatrix
    ids: ScratchMatrix

    @classmethod
    def of(cls, at: Path, name: str, rows: int, k: int) -> Lists:
        """The two files for lists of ``k`` neighbors of ``rows`` rows; their names begin with the path ``at``
        and with ``name``."""
        return cls(
            ScratchMatrix(_under(at, f"{name}-keys.bin"), rows, k, WIDE),
            ScratchMatrix(_under(at, f"{name}-neighbors.bin"), rows, k, ID),
        )

    @classmethod
    def after(cls, layout: Layout, folder: Path, name: str) -> Lists:
        """The files in ``folder`` for lists of all rows after the sweep ``name``, which ends a round or its
        visits."""
        return cls.of(folder / name, "lists", layout.rows, layout.k)

    def read_into(self, keys: Array, ids: Array, start: int) -> None:
        """Read lists of successive rows, from row ``start`` on, into ``keys`` and ``ids`` (r, k)."""
        self.keys.read_into(keys, start)
        self.ids.read_into(ids, start)

    def write(self, start: int, keys: Array, ids: Array) -> None:
        """Write lists ``keys`` and ``ids`` (r, k) of successive rows, from row ``start`` on."""
        self.keys.write(start, np.ascontiguousarray(keys))
        self.ids.write(start, np.ascontiguousarray(ids))


@dataclass(frozen=True, slots=True)
class Found:
    """Files of the lists found within partitions, in batches of partitions, before they are merged by row.

    ``places`` is the number of positions in a file: as in ``Runs``.
    """

    ids: ScratchMatrix
    """(places, 1) number of the row of each list, in order within a batch."""

    lists: Lists
    index: ScratchMatrix
    """(batches, panels + 1) number of lists of each batch before each panel (rows whose lists are merged at a
    time)."""

    visits: ScratchMatrix | None
    """(places, visits) partitions that a row should visit, since its neighbors are there and it is not; None
    for lists that visits have found."""

    @classmethod
    def of(cls, layout: Layout, folder: Path, round_index: int, batches: int) -> Found:
        """Files in ``folder`` for the lists found within partitions in round ``round_index``, from 0.

        ``batches`` is the number of batches of partitions.
        """
        at = folder / f"round-{round_index + 1:02d}"
        visits = ScratchMatrix(_under(at, "list-visits.bin"), layout.places, layout.visits, PARTITION)
        return cls._of(layout, at, batches, layout.places, visits)

    @classmethod
    def of_visitors(cls, layout: Layout, folder: Path, round_index: int, batches: int) -> Found:
        """Files in ``folder`` for the lists that rows find in partitions that they visit after a round.

        ``round_index`` is counted from 0; ``batches`` is the number of batches of partitions.
        """
        places = layout.visits * layout.rows
        return cls._of(layout, folder / f"visits-{round_index + 1:02d}", batches, places, None)

    @classmethod
    def _of(cls, layout: Layout, at: Path, batches: int, places: int, visits: ScratchMatrix | None) -> Found:
        return cls(
            ScratchMatrix(_under(at, "list-ids.bin"), places, 1, ID),
            Lists.of(at, "found", places, layout.k),
            ScratchMatrix(_under(at, "list-index.bin"), batches, len(layout.merges.panels), ID),
            visits,
        )


def visits_of(layout: Layout, folder: Path, round_index: int) -> ScratchMatrix:
    """File in ``folder`` of the partitions that each row visits after a round, (rows, visits).

    ``round_index`` is the number of the round, from 0.
    """
    at = folder / f"round-{round_index + 1:02d}"
    return ScratchMatrix(_under(at, "visits.bin"), layout.rows, layout.visits, PARTITION)


def _under(folder: Path, name: str) -> Path:
    """Path of an intermediate file, with the name of ``folder`` as prefix: scratch has no subfolders."""
    return folder.with_name(f"{folder.name}-{name}")
