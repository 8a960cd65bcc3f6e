"""Calls of alleles, one for each copy of a chromosome, as counts: variants x samples of VCF Zarr.

``call_genotype`` of VCF Zarr, which bio2zarr writes and sgkit reads, has the alleles of each call along an
axis of its own, ``ploidy``: 0 for the reference, more for others, -1 for a copy whose allele is missing, -2
where a sample has fewer copies than others. A count is the number of copies that are not the reference, as
``GenotypeArray.to_n_alt`` of scikit-allel counts, and NaN where one of the copies is missing.

https://github.com/sgkit-dev/vcf-zarr-spec
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rankfold.pipeline.chunks.geometry import Piece, requests
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.names import Axis
from rankfold.pipeline.data.selection import unit
from rankfold.pipeline.data.source import Volume, Wrapper

AXES = ("variants", "samples", "ploidy")
"""Names that the format gives the axes of calls."""

MISSING = -1
"""Code of a missing allele; smaller codes mean that there is no copy."""

REQUEST_BYTES = 4 * 2**20
"""Bytes of calls that are counted at once, unless one chunk holds more."""


def sample_axis(axes: tuple[str, ...]) -> int | None:
    """Number of the axis of samples, which become rows, if ``axes`` are those of calls; else None."""
    return 1 if axes == AXES else None


@dataclass(frozen=True, slots=True)
class AlleleCounts(Wrapper):
    """Allele counts (variants, samples): copies that are not the reference; NaN if an allele is missing."""

    inner: Volume

    dtype = np.dtype(np.float32)
    axes = AXES[:2]

    @property
    def shape(self) -> tuple[int, ...]:
        """Variants and samples."""
        return self.inner.shape[:2]

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Native chunks along variants and samples."""
        return self.inner.grids[:2]

    @property
    def attributes(self) -> Mapping[str, str]:
        """Empty: the attributes of calls are not those of counts."""
        return {}

    @property
    def format(self) -> str:
        """Kind of store, and that alleles are counted."""
        return f"{self.inner.format}, counts of {self.inner.shape[2]} alleles"

    def axis(self, number: int) -> Axis | None:
        """Axis ``number`` with its labels; None if the store describes none."""
        return self.inner.axis(number) if hasattr(self.inner, "axis") else None

    def read_boxes(self, pieces: Sequence[Piece]) -> None:
        """Read the calls of every box of variants and samples, and write counts into ``out`` of its piece."""
        whole = tuple(unit(grid) for grid in self.grids)
        most = REQUEST_BYTES // (self.inner.dtype.itemsize * self.inner.shape[2])
        for piece in pieces:
            for request in requests(piece, whole, max(1, most)):
                self._count(request)

    def _count(self, request: Piece) -> None:
        box, out = request
        copies = self.inner.shape[2]
        calls = np.empty((*out.shape, copies), self.inner.dtype)
        self.inner.read_boxes([Piece((*box, (0, copies)), calls)])
        out[...] = (calls > 0).sum(axis=2, dtype=np.float32)
        gone = (calls == MISSING) | np.isnan(calls)
        out[gone.any(axis=2) | ~(calls >= 0).any(axis=2)] = np.nan

    def read_bytes(self, elements: int) -> int:
        """Upper bound on the bytes that ``read_boxes`` of so many counts takes in addition to the output.

        That is what the store takes, and buffers of calls, masks and counts.
        """
        copies, item = self.inner.shape[2], self.inner.dtype.itemsize
        calls = max(REQUEST_BYTES // item, copies * math.prod(unit(grid) for grid in self.grids))
        return self.inner.read_bytes(elements * copies) + calls * (item + 3) + 8 * calls // copies

    def fingerprint(self) -> str:
        """Digest of the store, and that alleles are counted."""
        return hashlib.blake2b(
            f"{self.inner.fingerprint()} allele counts".encode(), digest_size=16
        ).hexdigest()
