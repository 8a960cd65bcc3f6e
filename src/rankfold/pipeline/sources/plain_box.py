"""Boxes of numbers that lie plainly in a file, in C order, read straight to where they belong.

Axes that are read whole and stay together are one run to the system. Where the last axis of the file
does not end up as neighbours in memory (a file of (lat, lon, time), rows = time), numbers pass through
a small buffer and are turned there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy.typing as npt

from rankfold.pipeline.sources.encoding import scratch
from rankfold.pipeline.sources.rectangle import read_rectangle
from rankfold.pipeline.sources.volume import Piece, local, requests

TURN_BYTES = 4 * 2**20
"""Buffer in which numbers are collected before they are turned."""


def read_plain_box(
    fd: int, out: npt.NDArray[Any], *, offset: int, shape: tuple[int, ...], at: tuple[slice, ...]
) -> None:
    """Fill ``out`` with box ``at`` of an array of ``shape`` that starts ``offset`` bytes into a file.

    Raises ``EOFError`` when the file ends first.
    """
    if out.shape[-1] == 1 or out.strides[-1] == out.itemsize:
        _read(fd, out, offset, shape, at)
        return
    whole = Piece(tuple((span.start, span.stop) for span in at), out)
    for box, part in requests(whole, (1,) * out.ndim, TURN_BYTES // out.itemsize):
        turned = scratch.get("turned", part.nbytes)[: part.nbytes].view(out.dtype).reshape(part.shape)
        _read(fd, turned, offset, shape, local(box, ((0, 0),) * out.ndim))
        part[...] = turned


def _read(fd: int, out: npt.NDArray[Any], offset: int, shape: tuple[int, ...], at: tuple[slice, ...]) -> None:
    """As above; the rows of ``out`` are contiguous."""
    while len(shape) > 1 and out.shape[-1] == shape[-1] and _together(out):
        wide, span = shape[-1], at[-2]
        out = out.reshape(*out.shape[:-2], out.shape[-2] * wide, copy=False)
        at = (*at[:-2], slice(span.start * wide, span.stop * wide))
        shape = (*shape[:-2], shape[-2] * wide)
    if len(shape) > 2:
        inner = math.prod(shape[1:]) * out.itemsize
        for i, part in enumerate(out):
            _read(fd, part, offset + (at[0].start + i) * inner, shape[1:], at[1:])
        return
    rows = out if out.ndim == 2 else out[None]
    pitch = shape[-1] * out.itemsize
    top = at[0].start if out.ndim == 2 else 0
    read_rectangle(fd, rows, offset=offset + top * pitch + at[-1].start * out.itemsize, pitch=pitch)


def _together(out: npt.NDArray[Any]) -> bool:
    """Whether the last two axes of ``out`` are one run of memory."""
    return bool(out.shape[-2] == 1 or out.strides[-2] == out.shape[-1] * out.itemsize)
