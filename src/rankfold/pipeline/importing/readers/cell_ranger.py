"""MatrixMarket files of Cell Ranger, genes x cells, as cells x genes with names from the files next to them.

See ``formats.cell_ranger`` for the files. Names are read once before the numbers; if an axis has more than
are kept, such as barcodes, they are read a piece at a time.
"""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.names import Axis, distinct
from rankfold.pipeline.errors import ChunkError, InputError, SourceNotFoundError
from rankfold.pipeline.formats.cell_ranger import Files, features_of_type
from rankfold.pipeline.formats.packed import UNPACK_ERRORS, open_text
from rankfold.pipeline.formats.tables.options import ReadOptions
from rankfold.pipeline.importing.readers.matrix_market import CoordinateReader, matrix_market_reader
from rankfold.pipeline.importing.readers.reader import Entries
from rankfold.pipeline.regular import bounded_lines

WHOLE = "matrix"
"""Name after ``::`` in a path that selects all features, not only genes."""

MOST_FEATURES = 2**24
"""Largest number of features of a file whose names are read."""


@dataclass(frozen=True, slots=True)
class CellRangerReader:
    """Reader of a cells x genes matrix from a MatrixMarket file, one entry to a line."""

    inner: CoordinateReader
    """Reader of the genes x cells matrix in the file."""

    axes: tuple[Axis, Axis]
    """Axes of cells and genes."""

    places: npt.NDArray[np.int64] | None
    """Column of the matrix for each feature of the file, (n,), -1 if left out; None for all in order."""

    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the file in messages."""
        return self.inner.name

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of cells and genes."""
        return self.axes[0].length, self.axes[1].length

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """Type of the values, by the field of the header."""
        return self.inner.dtype

    @property
    def entry_count(self) -> int:
        """Number of entries in the file, including those of features that are left out."""
        return self.inner.entry_count

    @property
    def in_row_order(self) -> bool:
        """False: the format promises no order."""
        return False

    @property
    def total_bytes(self) -> int:
        """Bytes of the file."""
        return self.inner.total_bytes

    def blocks(self, memory_bytes: int) -> Iterator[tuple[Entries, int]]:
        """Yield the entries of some lines at a time, rows and columns exchanged, with the bytes read so far.

        See ``EntryReader``.
        """
        for entries, count in self.inner.blocks(memory_bytes):
            cells, genes, values = entries.columns, entries.rows, entries.values
            if self.places is not None:
                genes = self.places[genes]
                kept = genes >= 0
                cells, genes, values = cells[kept], genes[kept], values[kept]
            yield Entries(cells, genes, values), count


def cell_ranger_reader(files: Files, part: str, options: ReadOptions) -> CellRangerReader:
    """Reader of a matrix of Cell Ranger; ``part`` chooses its features.

    It is empty for genes, ``matrix`` for all features, ``matrix/TYPE`` for those of a type.
    """
    inner = matrix_market_reader(files.matrix, options)
    if not isinstance(inner, CoordinateReader):
        raise InputError(
            f"{files.matrix} is dense, which Cell Ranger never writes: import it without {files.barcodes}"
        )
    word, _, kind = part.partition("/")
    if word not in ("", WHOLE):
        raise SourceNotFoundError(
            f"{files.matrix} has no part {part}: {WHOLE} names all features, {WHOLE}/TYPE those of a type"
        )
    genes, cells = inner.shape
    if genes > MOST_FEATURES:
        raise InputError(
            f"{files.matrix} has {genes} rows, but at most {MOST_FEATURES} features are read by name"
        )
    names, types = _features(files.features, genes)
    folder = os.path.dirname(files.matrix) or files.matrix
    chosen = None if part == WHOLE else features_of_type(folder, f"{folder}::{WHOLE}", types, kind)
    places = None
    if chosen is not None:
        places = np.where(chosen, np.cumsum(chosen) - 1, -1)
        names = [name for name, keep in zip(names, chosen, strict=True) if keep]
    barcodes, features = os.path.basename(files.barcodes), os.path.basename(files.features)
    note = f"genes x cells of Cell Ranger: rows are the cells of {barcodes}, columns the genes of {features}"
    axes = Axis.of("obs", cells, _Labels(files.barcodes, cells)), distinct(Axis.of("var", len(names), names))
    return CellRangerReader(inner, axes, places, (note,))


def _features(path: str, count: int) -> tuple[list[str], list[str]]:
    """Names and types of the ``count`` features in the file at ``path``; no types if the file lacks them."""
    names, types = [], []
    for line in _Labels(path, count):
        fields = line.split("\t")
        names.append(fields[1] if len(fields) > 1 else fields[0])
        types += fields[2:3]
    return names, types if len(types) == count else []


class _Labels:
    """Lines of a file, one for each row or column, from which slices are taken in order."""

    def __init__(self, path: str, count: int) -> None:
        self.path, self.shape, self.lines = path, (count,), self._read(path, count)

    def __iter__(self) -> Iterator[str]:
        return self.lines

    def __getitem__(self, part: slice) -> list[str]:
        return list(itertools.islice(self.lines, part.stop - part.start))

    @staticmethod
    def _read(path: str, count: int) -> Iterator[str]:
        """Yield lines without their ends; ``ChunkError`` if there are fewer or more than ``count``."""
        number, before = 0, ""
        try:
            with open_text(path) as raw, io.TextIOWrapper(raw, "utf-8", "replace") as text:
                for number, line in enumerate(bounded_lines(text, path), 1):
                    if number > 1:
                        yield before
                    before = line.rstrip("\n")
                    if number > count:
                        break
        except UNPACK_ERRORS as error:
            raise ChunkError(f"{path} cannot be read: {error}. Restore the file") from error
        if number != count:
            raise ChunkError(
                f"{path} has {'more than ' * (number > count)}{min(number, count)} lines, but the matrix "
                f"beside it is of {count}, so they do not belong together. Restore the files"
            )
        yield before
