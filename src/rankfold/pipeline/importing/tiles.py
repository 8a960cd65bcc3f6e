"""Copy a matrix of which any part can be read, tile by tile, in threads.

A tile is a block of whole chunks of the new store. Codecs decode whole chunks. If the chunks of the source
run across those of the new store (columns into rows), every tile would decode all of them again; then the
source is first copied uncompressed, chunk by chunk.

An import works in a folder next to the destination, which appears under its name when complete. Until then
the store lies in ``DESTINATION.partial-HOST-PID``. The host is part of the name because on a shared file
system a process of another host looks dead.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import os
import shutil
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.reads import tiles
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.durable import flush_tree, rename_new
from rankfold.pipeline.errors import DiskSpaceError, OutputError
from rankfold.pipeline.formats.zarr.layout import source_at
from rankfold.pipeline.formats.zarr.source import ZarrSource
from rankfold.pipeline.importing.chunking import (
    STAGING_PAYS,
    Chunking,
    Codec,
    choose_codec,
    chunk_shape,
    decoded_again,
    fit_tile,
    staging,
)
from rankfold.pipeline.outputs import APPEARED, publish_folder
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.manifest import NAME as MANIFEST
from rankfold.pipeline.storage.manifest import not_ours
from rankfold.pipeline.storage.run_directory import lies_in
from rankfold.pipeline.units import format_bytes

if TYPE_CHECKING:
    import zarr

Progress = Callable[[int, int], None]
"""Function that is called now and then with the number of bytes done, and of those in all."""


@dataclass(frozen=True, slots=True)
class TilePlan:
    """Plan of the copy of a matrix into a new store, made before anything is written."""

    source: Source
    layout: Chunking
    stage: Chunking | None
    """Layout of an intermediate uncompressed copy, if it saves time; else None."""

    memory_bytes: int
    need: int
    """Bytes needed on the disk, for the store and the intermediate copy."""

    @property
    def ticks(self) -> int:
        """Total bytes in reports of progress: those of the matrix, twice with an intermediate copy."""
        return data_bytes(self.source) * (2 if self.stage else 1)


@dataclass(frozen=True, slots=True)
class Copy:
    """A finished store, with the bytes that were read and written for it."""

    source: ZarrSource
    codec: Codec
    bytes_read: int
    bytes_written: int


def plan_tiles(source: Source, folder: Path, memory_bytes: int, chunk_bytes: int) -> TilePlan:
    """Choose chunks, codec and tiles for a copy of a matrix into ``folder``.

    ``memory_bytes`` bounds the memory, ``chunk_bytes`` is the size that chunks are to have.
    ``MemoryBudgetError`` or ``DiskSpaceError`` if memory or disk are too small.
    """
    chunks = chunk_shape(source, chunk_bytes)
    layout = fit_tile(source, chunks, choose_codec(source, chunks), memory_bytes)
    stage = staging(source, memory_bytes) if decoded_again(source, layout.tile) > STAGING_PAYS else None
    need = _require_space(source, folder, layout, staged=stage is not None)
    return TilePlan(source, layout, stage, memory_bytes, need)


def copy_tiles(plan: TilePlan, folder: Path, ticker: Ticker) -> Copy:
    """Copy the matrix of a plan into the new array ``folder / "array"``, and report to ``ticker``."""
    origin, layout, read, size = plan.source, plan.layout, 0.0, 0
    data = data_bytes(origin)
    if plan.stage:
        origin = _copy(plan.source, folder / "stage", plan.stage, ticker)
        read, size = data * decoded_again(plan.source, plan.stage.tile), origin.stored_bytes()
        layout = fit_tile(origin, layout.chunks, layout.codec, plan.memory_bytes)
    source = _copy(origin, folder / "array", layout, ticker)
    read += data * decoded_again(origin, layout.tile)
    return Copy(source, layout.codec, int(read), size + source.stored_bytes())


def _copy(source: Source, folder: Path, layout: Chunking, ticker: Ticker) -> ZarrSource:
    """Copy a matrix tile by tile into a new array in ``folder``.

    Every thread has its own buffer and takes the next remaining tile.
    """
    array = create(folder, source.shape, source.dtype, layout.chunks, layout.codec)
    (rows, columns), (height, width) = source.shape, layout.tile
    corners = iter([(top, left) for top in range(0, rows, height) for left in range(0, columns, width)])
    lock, stop = threading.Lock(), threading.Event()

    def work() -> None:
        buffer = np.empty(min(height, rows) * min(width, columns), source.dtype)
        while not stop.is_set():
            with lock:
                corner = next(corners, None)
            if corner is None:
                return
            _copy_tile(source, array, buffer, corner, layout)
            ticker.add(
                min(height, rows - corner[0]) * min(width, columns - corner[1]) * source.dtype.itemsize
            )

    with concurrent.futures.ThreadPoolExecutor(layout.threads) as pool:
        try:
            for future in concurrent.futures.as_completed([pool.submit(work) for _ in range(layout.threads)]):
                future.result()
        finally:
            stop.set()
    return source_at(str(folder), "", missing="error")


def _copy_tile(
    source: Source,
    array: zarr.Array[Any],
    buffer: npt.NDArray[Any],
    corner: tuple[int, int],
    layout: Chunking,
) -> None:
    """Copy the tile whose first element is at ``corner``, (row, column), from ``source`` to ``array``.

    It goes through ``buffer``, in whole chunks, since threads that write parts of one chunk would race.
    """
    rows = corner[0], min(corner[0] + layout.tile[0], source.shape[0])
    columns = corner[1], min(corner[1] + layout.tile[1], source.shape[1])
    shape = rows[1] - rows[0], columns[1] - columns[0]
    tile = buffer[: shape[0] * shape[1]].reshape(shape)
    source.read_into(tile, rows, columns)
    for chunk in tiles(tile, rows, columns, layout.chunks):
        array[slice(*chunk.rows), slice(*chunk.columns)] = chunk.out


def create(
    folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any], chunks: tuple[int, ...], codec: Codec
) -> zarr.Array[Any]:
    """Create an empty Zarr array in ``folder``; chunks of only the fill value are to be written too.

    Missing chunks are therefore errors.
    """
    import zarr
    from zarr.codecs import BloscCodec

    from rankfold.pipeline.chunks.regular_store import RegularStore

    blosc = BloscCodec(
        cname=cast("Any", codec.name if codec.level else "lz4"),
        clevel=codec.level,
        shuffle="shuffle",
        typesize=dtype.itemsize,
    )
    return zarr.create_array(
        RegularStore(folder),
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        compressors=blosc if codec.level else None,
        fill_value=0,
        config={"write_empty_chunks": True},
    )


class Ticker:
    """Counts the bytes that all threads have done, and reports them, and ``total``, to ``progress``."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0
        self.lock = threading.Lock()

    def at(self, done: int) -> None:
        """Report that ``done`` bytes are done, of a file that is read from beginning to end.

        What is reported never decreases, and never exceeds the total.
        """
        with self.lock:
            self.done = max(self.done, min(done, self.total))
            if self.progress:
                self.progress(self.done, self.total)

    def add(self, count: int) -> None:
        """Report ``count`` more bytes done. The callback runs in the calling thread, one call at a time."""
        with self.lock:
            self.done += count
            if self.progress:
                self.progress(self.done, self.total)


def data_bytes(source: Source) -> int:
    return source.shape[0] * source.shape[1] * source.dtype.itemsize


def _require_space(source: Source, folder: Path, layout: Chunking, *, staged: bool) -> int:
    """Bytes that an import will take on the disk of ``folder``; ``DiskSpaceError`` if fewer are free.

    ``staged`` adds those of an intermediate uncompressed copy.
    """
    data, itemsize = data_bytes(source), source.dtype.itemsize
    for length, chunk in zip(source.shape, layout.chunks, strict=True):
        itemsize *= -(-length // chunk) * chunk
    need = int(itemsize / layout.codec.ratio) + (data if staged else 0)
    free = shutil.disk_usage(folder).free
    if need > free:
        between = f", {format_bytes(data)} of it for a copy in between" if staged else ""
        raise DiskSpaceError(
            f"importing {source.name} as {layout.codec.words} needs about {format_bytes(need)} in "
            f"{folder}{between}, but {format_bytes(free)} are free. "
            f"Free {format_bytes(need - free)}, or write elsewhere"
        )
    return need


# Where an import works ----------------------------------------------------------------------------


PREVIOUS = "replaced"
"""Name, in the folder of an import, of the store that is being replaced."""

FULL = (errno.ENOSPC, errno.EDQUOT)


def require_place(target: Path, overwrite: bool) -> None:
    """Raise ``OutputError`` unless a store may be made at ``target``, or replaced there (``overwrite``)."""
    if not target.parent.is_dir():
        raise OutputError(f"{target} cannot be written: the folder {target.parent} does not exist. Create it")
    if not os.path.lexists(target):
        return
    if not overwrite:
        raise OutputError(
            f"{target} exists. Say overwrite=True (--overwrite) to replace it, or give another name"
        )
    if (reason := _foreign(target)) is not None:
        raise OutputError(
            f"{target} exists and {reason}, so it is never replaced. Give another name, or remove it yourself"
        )


def _foreign(target: Path) -> str | None:
    """Reason why the file or folder at ``target`` may not be replaced; None for a store of rankfold."""
    if not (target / MANIFEST).is_file():
        return "was not made by rankfold"
    return not_ours(target)


def require_apart(target: Path, source: str | None) -> None:
    """Raise ``OutputError`` if a store at ``target`` would lie on, in or around its input ``source``.

    ``source`` is the path of the file or folder; None if the matrix is not on disk.
    """
    if source is None:
        return
    if lies_in(target, source) or lies_in(source, target):
        raise OutputError(f"{target} would lie in, on or around its own input {source}. Give another name")


def require_room(need: int, folder: Path, name: str) -> None:
    """Raise ``DiskSpaceError`` unless ``need`` bytes are free on the disk of ``folder``, for ``name``."""
    free = shutil.disk_usage(folder).free
    if need > free:
        raise DiskSpaceError(
            f"importing {name} needs about {format_bytes(need)} more in {folder.parent}, but "
            f"{format_bytes(free)} are free. Free {format_bytes(need - free)}, or write elsewhere"
        )


@contextlib.contextmanager
def working_folder(target: Path, need: int) -> Iterator[Path]:
    """Make a folder next to ``target`` for an import, and remove it at the end of the block.

    ``need`` is the number of bytes that the import takes, for the message if the disk is full.
    """
    _remove_leftovers(target)
    free = shutil.disk_usage(target.parent).free
    folder = target.with_name(f"{target.name}.partial-{socket.gethostname()}-{os.getpid()}")
    try:
        folder.mkdir()
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error}") from error
    try:
        yield folder
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise DiskSpaceError(
            f"the disk of {target} is full ({error}): the import takes about {format_bytes(need)}, and "
            f"{format_bytes(free)} were free when it began. Nothing is left of it; free some space"
        ) from error
    finally:
        remove(folder)


def _remove_leftovers(target: Path) -> None:
    """Remove the working folders of imports to ``target`` that were killed on this host.

    A store that such an import was about to replace is moved back if there is none at ``target``.
    """
    start = f"{target.name}.partial-{socket.gethostname()}-"
    for entry in target.parent.iterdir():
        pid = entry.name.removeprefix(start)
        if entry.name.startswith(start) and pid.isdigit() and not _alive(int(pid)):
            if os.path.lexists(entry / PREVIOUS) and not os.path.lexists(target):
                rename_new(entry / PREVIOUS, target)  # its place is empty: it was being replaced
            remove(entry)


def _alive(pid: int) -> bool:
    """True if a process with this id runs on this host."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def publish(draft: Path, target: Path, overwrite: bool) -> None:
    """Flush the complete store in the folder ``draft`` to disk, and rename it to ``target``.

    If ``overwrite``, a store of that name moves into the working folder.

    Raises
    ------
    OutputError
        The name now belongs to something that may not be replaced; the store is kept under another name.
    """
    flush_tree(draft)
    try:
        reason = publish_folder(
            draft, target, draft.with_name(PREVIOUS), _foreign if overwrite else lambda path: APPEARED
        )
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error}") from error
    if reason is not None:
        kept = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}")
        rename_new(draft, kept)
        raise OutputError(
            f"{target} {reason}, so it is never replaced. The store is finished and kept as {kept}: rename it"
        )
