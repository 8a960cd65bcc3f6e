"""Numbers that a Zarr store holds packed, as xarray writes them: value = stored x scale + offset.

The conventions are those of climate and forecast metadata (CF), chapter 8.1 and 2.5.1. Without this a store
written from packed netCDF would be reduced as the integers that it holds, gaps and all.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankfold.pipeline.chunks.geometry import Piece, requests
from rankfold.pipeline.chunks.row_marks import RowMarks
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.selection import unit
from rankfold.pipeline.data.source import Volume, Wrapper, row_marks
from rankfold.pipeline.errors import InputError

REQUEST_BYTES = 4 * 2**20
"""Stored numbers that are decoded at once, unless one chunk holds more."""


@dataclass(frozen=True, slots=True)
class DecodedVolume(Wrapper):
    """A volume whose numbers are scaled and whose missing values are NaN."""

    inner: Volume
    dtype: np.dtype[Any]
    scale: float
    offset: float
    missing: tuple[float, ...]
    """Stored numbers that stand for nothing."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of every axis."""
        return self.inner.shape

    @property
    def axes(self) -> tuple[str, ...]:
        """Name of every axis."""
        return self.inner.axes

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Native chunks along every axis."""
        return self.inner.grids

    @property
    def format(self) -> str:
        """Kind of store."""
        return f"{self.inner.format}, packed as {self.inner.dtype}"

    def read_boxes(self, pieces: Sequence[Piece]) -> None:
        """Copy every box to its place, decoded; see ``Volume``."""
        whole = tuple(unit(grid) for grid in self.grids)
        for piece in pieces:
            for request in requests(piece, whole, REQUEST_BYTES // self.inner.dtype.itemsize):
                self._decode(request)

    def _decode(self, request: Piece) -> None:
        """One box, whose stored numbers are gone before there are others."""
        box, out = request
        raw = np.empty(out.shape, self.inner.dtype)
        self.inner.read_boxes([Piece(box, raw)])
        out[...] = raw
        out *= self.scale
        out += self.offset
        for value in self.missing:
            out[raw == value] = np.nan

    def read_bytes(self, elements: int) -> int:
        """That of the store, the stored numbers, and which of them are missing."""
        item = self.inner.dtype.itemsize
        values = max(REQUEST_BYTES // item, math.prod(unit(grid) for grid in self.grids))
        return self.inner.read_bytes(elements) + values * (item + 1)

    def fingerprint(self) -> str:
        """Digest of the store and of how it is decoded."""
        text = f"{self.inner.fingerprint()} {self.dtype.str} {self.scale} {self.offset} {self.missing}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def row_marks(self, rows: int) -> RowMarks:
        """See ``GrowingSource``."""
        return row_marks(self.inner, rows).beside(self.dtype.str, self.scale, self.offset, self.missing)


def is_packed(dtype: np.dtype[Any], attributes: Mapping[str, Any]) -> bool:
    """Whether numbers of a type with these attributes mean something else than they say."""
    return _has_scale(attributes) or any(not np.isnan(value) for value in _missing(dtype, attributes))


def decode_volume(
    volume: Volume, attributes: Mapping[str, Any], *, fill: float | int | None = None
) -> Volume:
    """The volume as its attributes say it is meant; itself if they say nothing.

    ``fill`` is the fill value of a store of version 2, which is where xarray then keeps that of packed data.
    """
    if not is_packed(volume.dtype, attributes):
        return volume
    missing = set(_missing(volume.dtype, attributes))
    if fill is not None and _has_scale(attributes):
        missing.add(float(fill))
    try:
        scale, offset = float(attributes.get("scale_factor", 1)), float(attributes.get("add_offset", 0))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{volume.name} has a scale_factor or add_offset that is no number: {error}"
        ) from error
    dtype = volume.dtype
    if dtype.kind != "f":
        exact = dtype.itemsize <= 2 and not _has_scale(attributes)
        dtype = np.dtype(np.float32 if exact else np.float64)
    return DecodedVolume(volume, dtype, scale, offset, tuple(sorted(v for v in missing if not np.isnan(v))))


def _has_scale(attributes: Mapping[str, Any]) -> bool:
    return "scale_factor" in attributes or "add_offset" in attributes


def _missing(dtype: np.dtype[Any], attributes: Mapping[str, Any]) -> list[float]:
    """Numbers that stand for nothing; xarray writes those of floats in version 3 as base64 of a double."""
    marks: list[float] = []
    for name in ("_FillValue", "missing_value"):
        value = attributes.get(name)
        values = value if isinstance(value, list) else [] if value is None else [value]
        for each in values:
            try:
                number = struct.unpack("<d", base64.b64decode(each))[0] if isinstance(each, str) else each
                marks.append(float(np.asarray(number).astype(dtype)))
            except (struct.error, binascii.Error, TypeError, ValueError, OverflowError):
                continue
    return marks
