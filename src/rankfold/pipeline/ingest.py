"""Write any matrix as a Zarr store that sweeps read well: ``rankfold import``.

Also the way out when the chunks of a store are too tall for the memory. The store appears under its
name only when it is complete; until then it lies in a folder ``DESTINATION.partial-HOST-PID``. The
host is part of the name because on a shared file system a process that lives elsewhere looks dead.

Codecs decode whole chunks. Where the chunks of the source run across those wanted (columns into rows),
every tile would decode all of them again; then the source is first written out plainly, chunk by chunk.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import DiskSpaceError, OutputError
from rankfold.pipeline.ingest_layout import (
    STAGING_PAYS,
    Layout,
    choose_codec,
    chunk_shape,
    decoded_again,
    fit_tile,
    staging,
)
from rankfold.pipeline.source import Source
from rankfold.pipeline.sources import open_source
from rankfold.pipeline.sources.locate import node_kind
from rankfold.pipeline.sources.rectangle import tiles
from rankfold.pipeline.sources.zarr import ZarrSource
from rankfold.pipeline.sources.zarr_layout import source_at
from rankfold.pipeline.units import format_bytes

if TYPE_CHECKING:
    import zarr

FULL = (errno.ENOSPC, errno.EDQUOT)

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import made."""

    shape: tuple[int, int]
    dtype: str
    chunks: tuple[int, int]
    codec: str
    bytes_read: int
    """Decoded bytes of the matrix that were asked of the source, and of the copy between if there was one."""

    bytes_written: int
    """Bytes of the chunk files of the new store, and of the copy between."""

    seconds: float


def import_array(
    matrix: object,
    destination: str | os.PathLike[str],
    *,
    memory_bytes: int = 256 * 2**20,
    chunk_bytes: int = 16 * 2**20,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Copy a matrix to a new Zarr v3 array.

    Parameters
    ----------
    matrix : path, array or Source
        Checked first.
    destination : path
        Folder of the new store. What is there is replaced, at the very end, if ``overwrite``.
    memory_bytes : int
        Most memory of the buffers, the source and the encoders together.
    chunk_bytes : int
        Size of a chunk: full rows, unless 256 of them take more than 64 MiB.
    progress : callable, optional
        Called now and then with bytes done and bytes in all.

    Raises ``OutputError`` for a destination that is there or cannot be written, ``MemoryBudgetError`` when
    not even a chunk fits, ``DiskSpaceError``, and ``ChunkError`` for a source that is damaged.
    """
    started = time.perf_counter()
    source = open_source(matrix)
    target = Path(os.path.abspath(destination))
    _require_place(target, overwrite)
    source.check()
    chunks = chunk_shape(source, chunk_bytes)
    layout = fit_tile(source, chunks, choose_codec(source, chunks), memory_bytes)
    stage = staging(source, memory_bytes) if decoded_again(source, layout.tile) > STAGING_PAYS else None
    need = _require_space(source, target, layout, staged=stage is not None)
    ticker = _Ticker(progress, _data_bytes(source) * (2 if stage else 1))
    with _working_folder(target, need) as folder:
        origin, read, written = source, 0.0, 0
        if stage:
            origin = _copy(source, folder / "stage", stage, ticker)
            read, written = _data_bytes(source) * decoded_again(source, stage.tile), origin.stored_bytes()
            layout = fit_tile(origin, chunks, layout.codec, memory_bytes)
        made = _copy(origin, folder / "array", layout, ticker)
        read += _data_bytes(source) * decoded_again(origin, layout.tile)
        written += made.stored_bytes()
        _publish(folder / "array", target, overwrite)
    seconds, words = time.perf_counter() - started, layout.codec.words
    return ImportReport(source.shape, source.dtype.name, chunks, words, int(read), written, seconds)


def _copy(source: Source, folder: Path, layout: Layout, ticker: _Ticker) -> ZarrSource:
    """Copy tile by tile; every thread has a buffer of its own and takes the next tile that is left."""
    array = _create(folder, source, layout)
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
    source: Source, array: zarr.Array[Any], buffer: npt.NDArray[Any], corner: tuple[int, int], layout: Layout
) -> None:
    """One tile through ``buffer``, written in whole chunks: parts of chunks would race with each other."""
    rows = corner[0], min(corner[0] + layout.tile[0], source.shape[0])
    columns = corner[1], min(corner[1] + layout.tile[1], source.shape[1])
    shape = rows[1] - rows[0], columns[1] - columns[0]
    held = buffer[: shape[0] * shape[1]].reshape(shape)
    source.read_into(held, rows, columns)
    for chunk in tiles(held, rows, columns, layout.chunks):
        array[slice(*chunk.rows), slice(*chunk.columns)] = chunk.out


def _create(folder: Path, source: Source, layout: Layout) -> zarr.Array[Any]:
    """An empty array. Chunks of nothing but fill value are written too: a missing one is an error here."""
    import zarr
    from zarr.codecs import BloscCodec
    from zarr.storage import LocalStore

    blosc = BloscCodec(
        cname=cast("Any", layout.codec.name if layout.codec.level else "lz4"),
        clevel=layout.codec.level,
        shuffle="shuffle",
        typesize=source.dtype.itemsize,
    )
    return zarr.create_array(
        LocalStore(folder),
        shape=source.shape,
        chunks=layout.chunks,
        dtype=source.dtype,
        compressors=blosc if layout.codec.level else None,
        fill_value=0,
        config={"write_empty_chunks": True},
    )


class _Ticker:
    """Counts bytes of all threads and tells whoever wants to know."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0
        self.lock = threading.Lock()

    def add(self, count: int) -> None:
        """Count a tile. The callback runs in the thread that copied it, one at a time."""
        with self.lock:
            self.done += count
            if self.progress:
                self.progress(self.done, self.total)


def _data_bytes(source: Source) -> int:
    return source.shape[0] * source.shape[1] * source.dtype.itemsize


def _require_place(target: Path, overwrite: bool) -> None:
    """Raise unless a store may be made, or replaced, at ``target``."""
    if not target.parent.is_dir():
        raise OutputError(f"{target} cannot be written: the folder {target.parent} does not exist. Create it")
    if not os.path.lexists(target):
        return
    if not overwrite:
        raise OutputError(f"{target} exists. Say --overwrite to replace it, or give another name")
    if node_kind(str(target)) is None:
        raise OutputError(
            f"{target} exists and is not a Zarr store, so it is not replaced. Remove it yourself"
        )


def _require_space(source: Source, target: Path, layout: Layout, *, staged: bool) -> int:
    """Bytes that the import will take on the disk; raises ``DiskSpaceError`` when fewer are free."""
    data, padded = _data_bytes(source), source.dtype.itemsize
    for length, chunk in zip(source.shape, layout.chunks, strict=True):
        padded *= -(-length // chunk) * chunk
    need = int(padded / layout.codec.ratio) + (data if staged else 0)
    free = shutil.disk_usage(target.parent).free
    if need > free:
        between = f", {format_bytes(data)} of it for a copy in between" if staged else ""
        raise DiskSpaceError(
            f"importing {source.name} as {layout.codec.words} needs about {format_bytes(need)} in "
            f"{target.parent}{between}, but {format_bytes(free)} are free. "
            f"Free {format_bytes(need - free)}, or write elsewhere"
        )
    return need


@contextlib.contextmanager
def _working_folder(target: Path, need: int) -> Iterator[Path]:
    """A folder beside ``target`` that is gone afterwards, whatever happens in between."""
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
        shutil.rmtree(folder, ignore_errors=True)


def _remove_leftovers(target: Path) -> None:
    """Remove what imports to the same name left on this host when they were killed."""
    start = f"{target.name}.partial-{socket.gethostname()}-"
    for entry in target.parent.iterdir():
        pid = entry.name.removeprefix(start)
        if entry.name.startswith(start) and pid.isdigit() and not _alive(int(pid)):
            shutil.rmtree(entry, ignore_errors=True)


def _alive(pid: int) -> bool:
    """Whether there is such a process on this host."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _publish(made: Path, target: Path, overwrite: bool) -> None:
    """Give a complete store its name; what had the name goes with the working folder."""
    replaced = made.with_name("replaced")
    if overwrite and os.path.lexists(target):
        os.rename(target, replaced)
    try:
        os.rename(made, target)
    except OSError as error:
        if os.path.lexists(replaced):
            os.rename(replaced, target)
        raise OutputError(f"{target} cannot be written: {error}") from error
