"""Genotypes of PLINK 1: ``FILE.bed`` with ``FILE.bim`` and ``FILE.fam`` beside it, as samples x variants.

Genotypes take two bits each, four to a byte, the first in the lowest bits. Each variant (or, in an old order,
each sample) begins with a byte of its own. An element is the number of copies of the first allele of
``.bim``, A1, that a sample has: 2, 1, 0, or NaN where the call is missing, as bed-reader and ``plink --recode
A`` count. Which allele is A1 may differ between files, so names of variants end in it.

Bytes are unpacked by a lookup table with 256 entries into a small buffer, and transposed from there if the
file is stored by variant. The file does not store the numbers of samples and variants: lines of the other two
files are counted when it is opened, and its length must match exactly.

https://www.cog-genomics.org/plink/1.9/formats#bed, also #bim and #fam.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.encoding import scratch
from rankfold.pipeline.chunks.geometry import Piece, Span
from rankfold.pipeline.chunks.reads import SCRATCH_BYTES, TURN_BYTES, open_plain, read_rectangle
from rankfold.pipeline.data.alleles import variant_name
from rankfold.pipeline.data.dtypes import require_matrix
from rankfold.pipeline.data.grid import Grid, regular_grids
from rankfold.pipeline.data.names import Axis, Names
from rankfold.pipeline.data.selection import Readable
from rankfold.pipeline.data.source import Matrix
from rankfold.pipeline.errors import ChunkError, InputError, SourceNotFoundError
from rankfold.pipeline.formats.open_files import file_version
from rankfold.pipeline.regular import bounded_lines, open_regular

MAGIC = b"\x6c\x1b"
LINES_BY = {0: "rows", 1: "columns"}
"""Lines that are stored contiguously, samples (rows) or variants (columns), by the third byte of the file."""

HEADER_BYTES = len(MAGIC) + 1

CALLS = np.array([2, np.nan, 1, 0], np.float32)
"""Copies of A1 by the value of two bits: both alleles A1, missing, one of each, both A2."""

CALLS_OF_BYTE = CALLS[np.arange(256)[:, None] >> np.array([0, 2, 4, 6]) & 3]
"""Copies of A1 in the four genotypes of each value of a byte, (256, 4)."""

CALLS_BYTES = 4 * CALLS.itemsize
"""Bytes of the four unpacked genotypes of one byte."""

BLOCK_BYTES = TURN_BYTES // CALLS_BYTES
"""Largest number of bytes of the file, four genotypes each, that are unpacked together."""

SAMPLE_FIELDS, VARIANT_FIELDS = 2, 5
"""Fewest fields of a line of ``.fam`` and of ``.bim``; the latter may lack the position in centimorgans."""


@dataclass(frozen=True, slots=True, repr=False)
class BedSource(Readable, Matrix):
    """Genotypes of a ``.bed`` file as a matrix of samples x variants."""

    name: str
    path: str
    shape: tuple[int, int]
    by: str
    """Axis of the lines that are stored contiguously: ``rows`` (samples) or ``columns`` (variants)."""

    codec = "2 bits"

    @property
    def format(self) -> str:
        """Kind of file and its order, as text."""
        return f"PLINK 1, by {'variant' if self.by == 'columns' else 'sample'}"

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements: float32, which has NaN for missing calls."""
        return CALLS.dtype

    @property
    def grids(self) -> tuple[Grid, ...]:
        """One chunk along each axis, which can be cut anywhere."""
        return regular_grids(self.shape, self.shape, splittable=True)

    def read_boxes(self, pieces: Sequence[Piece]) -> None:
        """Read every box into ``out`` of its piece; see ``Volume``."""
        with open_plain(self.path, self.name, self._cut_short) as fd:
            for piece in pieces:
                lines, across = piece.box if self.by == "rows" else piece.box[::-1]
                self._read(fd, piece.out if self.by == "rows" else piece.out.T, lines, across)

    def _cut_short(self) -> str:
        return f"{self.name} was cut short while it was read. Restore the file"

    def _read(self, fd: int, out: npt.NDArray[Any], lines: Span, across: Span) -> None:
        """Read genotypes ``across`` of ``lines`` from the open file ``fd`` into ``out``, (lines, across).

        Lines are samples or variants, whichever the file stores contiguously. A few are unpacked at a time.
        """
        pitch = self._line_bytes
        start, stop = across[0] // 4, -(-across[1] // 4)
        wide = max(1, min(stop - start, BLOCK_BYTES))
        tall = max(1, BLOCK_BYTES // wide)
        for left in range(start, stop, wide):
            right = min(stop, left + wide)
            first, last = max(across[0], 4 * left), min(across[1], 4 * right)
            for top in range(*lines, tall):
                bottom = min(lines[1], top + tall)
                shape, size = (bottom - top, right - left), (bottom - top) * (right - left)
                packed = scratch.get("packed", size).reshape(shape)
                read_rectangle(fd, packed, offset=HEADER_BYTES + top * pitch + left, pitch=pitch)
                calls = scratch.get("turned", size * CALLS_BYTES).view(CALLS.dtype)
                np.take(CALLS_OF_BYTE, packed, axis=0, out=calls.reshape(*shape, 4), mode="clip")
                part = calls.reshape(shape[0], -1)[:, first - 4 * left : last - 4 * left]
                out[top - lines[0] : bottom - lines[0], first - across[0] : last - across[0]] = part

    def read_bytes(self, rows: int, columns: int) -> int:
        """Upper bound in bytes on the memory of one ``read_into`` of that size, beside ``out``.

        It covers a block of bytes as stored, and unpacked.
        """
        packed = min(BLOCK_BYTES, (rows + 8) * (columns + 8) // 4)
        return SCRATCH_BYTES + (1 + CALLS_BYTES) * (packed + packed // 8)

    @property
    def _line_bytes(self) -> int:
        rows, columns = self.shape
        across: int = rows if self.by == "columns" else columns
        return -(-across // 4)

    def check(self) -> None:
        """Raise ``ChunkError`` if the file is gone or of another length than when it was opened."""
        try:
            _require_length(self.path, os.path.getsize(self.path), self.shape, self.by)
        except (OSError, InputError) as error:
            raise ChunkError(f"{self.name} cannot be read: {error}") from error

    def fingerprint(self) -> str:
        """Digest of the shape, and of size and time of the three files."""
        versions = [file_version(path) for path in (self.path, *_files_beside(self.path))]
        text = f"bed {self.shape} {self.by} {' '.join(versions)}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def stored_bytes(self) -> int:
        """Bytes of the file."""
        return os.path.getsize(self.path)

    def names(self, axis: int) -> Names | None:
        """Names of the samples (axis 0) or variants (axis 1), from ``.fam`` or ``.bim``."""
        path = _files_beside(self.path)[1 - axis]
        read = _variant_names if axis else _sample_names
        labels = _Labels(read(path), self.shape[axis])
        return Names.of([Axis.of(("sample", "variant")[axis], self.shape[axis], labels)])


class _Labels:
    """Labels that are read in order, slice by slice, for ``Axis.of``."""

    def __init__(self, labels: Iterator[str], length: int) -> None:
        self.labels, self.shape = labels, (length,)

    def __getitem__(self, span: slice) -> list[str]:
        return list(itertools.islice(self.labels, span.stop - span.start))


def bed_source(path: str) -> BedSource:
    """The matrix in a ``.bed`` file, with the shape that the ``.fam`` and ``.bim`` beside it imply.

    Raises
    ------
    InputError
        The file is not a ``.bed`` of PLINK 1, or is longer than genotypes of that shape take;
        ``SourceNotFoundError`` if ``.bim`` or ``.fam`` does not exist.
    ChunkError
        The file is shorter than genotypes of that shape take.
    """
    with open_regular(path) as file:
        head, size = file.read(HEADER_BYTES), os.fstat(file.fileno()).st_size
    if len(head) < HEADER_BYTES or not head.startswith(MAGIC) or head[-1] not in LINES_BY:
        raise InputError(
            f"{path} begins with the bytes {head.hex(' ') or 'of an empty file'}, and a .bed file of PLINK 1 "
            "with 6c 1b 01. Intervals (BED of genome browsers) are no matrix; .ped, .pgen and .vcf become "
            "one by `plink2 --vcf DATA.vcf --make-bed --out DATA`"
        )
    variants, samples = _files_beside(path)
    for beside in (variants, samples):
        if not os.path.exists(beside):
            raise SourceNotFoundError(
                f"{path} is of PLINK 1, which keeps names of variants and samples beside it, and {beside} "
                "does not exist. Give all three files the same name"
            )
    shape = sum(1 for _ in _fields(samples, SAMPLE_FIELDS)), sum(1 for _ in _fields(variants, VARIANT_FIELDS))
    require_matrix(path, shape, CALLS.dtype)
    by = LINES_BY[head[-1]]
    _require_length(path, size, shape, by)
    return BedSource(path, os.path.abspath(path), shape, by)


def _require_length(path: str, size: int, shape: tuple[int, int], by: str) -> None:
    """Raise unless ``size``, the bytes of a file, is that of genotypes of ``shape``, (samples, variants).

    ``by`` is ``rows`` if samples are stored contiguously, else ``columns``. ``ChunkError`` for a shorter
    file, ``InputError`` for a longer one.
    """
    samples, variants = shape
    lines, across = (samples, variants) if by == "rows" else (variants, samples)
    length = HEADER_BYTES + lines * -(-across // 4)
    if size == length:
        return
    found = (
        f"{path} holds {size} bytes, but {samples} samples of its .fam and {variants} variants of its .bim"
    )
    if size < length:
        raise ChunkError(
            f"{found} take {length}. Restore the file, or give the .fam and .bim that belong to it"
        )
    raise InputError(f"{found} take {length}. Give the .fam and .bim that belong to it")


def _files_beside(path: str) -> tuple[str, str]:
    """Paths of the ``.bim`` and the ``.fam`` that belong to a ``.bed`` file."""
    stem = os.path.splitext(path)[0]
    return f"{stem}.bim", f"{stem}.fam"


def _fields(path: str, fewest: int) -> Iterator[list[str]]:
    """Yield the words of each line of a file that is not empty.

    ``InputError`` if a line has fewer words than ``fewest``.
    """
    with open_regular(path, "r", encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(bounded_lines(file, path), start=1):
            words = line.split()
            if 0 < len(words) < fewest:
                raise InputError(
                    f"line {number} of {path} has {len(words)} of at least {fewest} words. Restore the file"
                )
            if words:
                yield words


def _sample_names(path: str) -> Iterator[str]:
    """Yield the names of samples from ``.fam``: within families, or ``FAMILY_SAMPLE`` if these repeat."""
    # Hashes represent names, of which there may be a million: 8 bytes for each.
    marks = np.fromiter((hash(words[1]) for words in _fields(path, SAMPLE_FIELDS)), np.int64)
    several = len(np.unique(marks)) < len(marks)
    for family, sample, *_ in _fields(path, SAMPLE_FIELDS):
        yield f"{family}_{sample}" if several else sample


def _variant_names(path: str) -> Iterator[str]:
    """Yield the names of variants from ``.bim``, with the allele that is counted; see ``variant_name``."""
    for chromosome, name, *_, position, counted, other in _fields(path, VARIANT_FIELDS):
        yield variant_name((chromosome, position), name, (counted, other), (counted,))
