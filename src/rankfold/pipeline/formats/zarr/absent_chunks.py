"""Count the chunks of a Zarr array that no file holds, by existing files and by the indexes of shards."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.absence import Absence, chunk_count, estimate_absence, inner_counts
from rankfold.pipeline.chunks.files import ABSENT as NO_FILE
from rankfold.pipeline.chunks.files import LISTING_LIMIT, absent_message
from rankfold.pipeline.chunks.shard import ABSENT, read_index
from rankfold.pipeline.errors import ChunkError, RankfoldError
from rankfold.pipeline.formats.zarr.metadata import Layout
from rankfold.pipeline.regular import open_descriptor

FETCHES = 16
"""Number of indexes of shards that are read at the same time."""

ReadIndex = Callable[[str, int, int], npt.NDArray[np.uint64]]
"""Function that reads the index of a shard, by key, size in bytes and number of inner chunks."""


def count_absent(layout: Layout, most: int = LISTING_LIMIT) -> Absence:
    """Number of chunks that an array lacks, from at most ``most`` of its files; 0 if ``most`` is 0.

    Raises
    ------
    ChunkError
        The index of a shard cannot be read.
    """
    absent = examined = 0
    for place, state in layout.files.sample(most):
        inside = chunks_inside(layout, place)
        examined += math.prod(inside)
        if state.size == NO_FILE:
            absent += math.prod(inside)
        elif is_indexed(layout):
            absent += absent_inside(layout, state.key, state.size, inside, _reader(layout))
    return estimate_absence(absent, examined, chunk_count(layout.shape, layout.chunks), layout.fill)


def count_listed(
    layout: Layout, present: Mapping[tuple[int, ...], int], read: ReadIndex, most: int
) -> Absence:
    """Number of chunks that an array lacks, from a listing and at most ``most`` indexes of shards.

    ``present`` maps the grid index of each existing file to its size.
    """
    total, places = chunk_count(layout.shape, layout.chunks), sorted(present)
    inside = sum(math.prod(chunks_inside(layout, place)) for place in places)
    count = min(len(places), most) if is_indexed(layout) else 0
    if not count:
        return estimate_absence(total - inside, total, total, layout.fill)
    sample = [places[i * len(places) // count] for i in range(count)]

    def absent(place: tuple[int, ...]) -> int:
        key, within = layout.files.key(*place), chunks_inside(layout, place)
        return absent_inside(layout, key, present[place], within, read)

    with ThreadPoolExecutor(FETCHES) as pool:
        found = sum(pool.map(absent, sample))
    examined = sum(math.prod(chunks_inside(layout, place)) for place in sample)
    inner = estimate_absence(found, examined, inside, layout.fill)
    return Absence(total - inside + inner.count, total, inner.fills, inner.sampled)


def is_indexed(layout: Layout) -> bool:
    """True if files are shards whose indexes are read here."""
    return bool(layout.encoding.index_at) and layout.encoding.index_plain


def chunks_inside(layout: Layout, place: tuple[int, ...]) -> tuple[int, ...]:
    """Number of chunks along every axis in the file at a grid index, without those beyond the array."""
    return inner_counts(layout.shape, layout.files.extent, layout.chunks, place)


def absent_inside(layout: Layout, key: str, size: int, inside: tuple[int, ...], read: ReadIndex) -> int:
    """Number of inner chunks that a shard lacks, without those beyond the end of the array.

    ``key`` and ``size`` are those of its file, ``inside`` is the number of its chunks along every axis.
    """
    counts = [extent // chunk for extent, chunk in zip(layout.files.extent, layout.chunks, strict=True)]
    try:
        offsets = read(key, size, math.prod(counts))[:, 0].reshape(counts)
    except RankfoldError:
        raise
    except (ValueError, EOFError, OSError) as error:
        raise ChunkError(
            f"{layout.name}: the index of chunk {key} cannot be read: {error}. Restore the store"
        ) from error
    return int((offsets[tuple(map(slice, inside))] == ABSENT).sum())


def require_inner(layout: Layout, place: tuple[int, ...]) -> None:
    """Raise ``ChunkError`` if the shard at a grid index lacks inner chunks."""
    key, inside = layout.files.key(*place), chunks_inside(layout, place)
    size = os.stat(layout.files.path(key)).st_size
    if absent := absent_inside(layout, key, size, inside, _reader(layout)):
        name = f"{layout.name}, shard {key}"
        raise ChunkError(absent_message(name, absent, math.prod(inside), layout.fill))


def _reader(layout: Layout) -> ReadIndex:
    def read(key: str, size: int, count: int) -> npt.NDArray[np.uint64]:
        fd = open_descriptor(layout.files.path(key))
        try:
            return read_index(fd, size, count, layout.encoding)
        finally:
            os.close(fd)

    return read
