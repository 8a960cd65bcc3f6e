"""Write any matrix as a Zarr store with chunks that passes over it read fast: ``rankfold import``.

This also helps if the chunks of a store are too tall for the memory. A matrix of which any part can be read
is copied tile by tile. A file that is read from its beginning yields rows or stored values, or is first
unpacked. The store appears under its name only when it is complete.

    readers      files that are read from beginning to end

    chunking     chunks, codec and tiles of a store
    tiles        copies of matrices of which any part can be read
    rows         copies of files that are read row by row
    csr_writer   copies of files that hold the stored values of a sparse matrix; sorts entries that come in
                 any order, and may exceed the memory
    identity     the source and request that a store was made from
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import logging
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np

from rankfold.pipeline.chunks.absence import REFUSAL
from rankfold.pipeline.data.dtypes import ConvertedSource, parse_dtype
from rankfold.pipeline.data.names import Axis, Names, names_as_json
from rankfold.pipeline.data.origin import attributes_of, names_of
from rankfold.pipeline.data.source import Source, absence_of, compressed
from rankfold.pipeline.engine.memory import bound_heaps
from rankfold.pipeline.errors import ArgumentError, InputError, OutputError, RankfoldError
from rankfold.pipeline.formats import ViewOptions, open_source
from rankfold.pipeline.formats.csr import CsrSource
from rankfold.pipeline.formats.locate import is_address, split_location
from rankfold.pipeline.formats.tables.columns import NumericTable
from rankfold.pipeline.formats.tables.options import ReadOptions
from rankfold.pipeline.formats.tables.several import SeveralTables, names_of_columns
from rankfold.pipeline.formats.zarr.source import ZarrSource
from rankfold.pipeline.formats.zarr.vector import VectorSource
from rankfold.pipeline.importing.csr_writer import copy_entries
from rankfold.pipeline.importing.identity import (
    file_mark,
    identity_of,
    made_of,
    require_unchanged,
    seal,
    source_mark,
)
from rankfold.pipeline.importing.readers import Reader, open_reader, sparse_reader
from rankfold.pipeline.importing.readers.cell_ranger import CellRangerReader
from rankfold.pipeline.importing.readers.reader import Archive, EntryReader
from rankfold.pipeline.importing.readers.wide_table import WideTable
from rankfold.pipeline.importing.rows import copy_rows
from rankfold.pipeline.importing.tiles import (
    Copy,
    Progress,
    Ticker,
    copy_tiles,
    plan_tiles,
    publish,
    require_apart,
    require_place,
    require_room,
    working_folder,
)
from rankfold.pipeline.storage.manifest import damage_in_words, damage_of, require_whole_input
from rankfold.pipeline.text import suggest_name

LOG = logging.getLogger("rankfold")

LAYOUTS = ("auto", "dense")


CHUNKS = ("missing_chunks", "missing")
"""Names of the option of ``open`` for missing chunks: the present one and the former one."""

OF_TABLES = ("numeric", "index_col")
"""Options of ``open`` that only hold for tables, which are read from their beginning."""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """Facts of a finished import."""

    shape: tuple[int, int]
    dtype: str
    chunks: tuple[int, int]
    """Rows and columns of a chunk; for a sparse matrix, 1 and the number of stored values in a chunk."""

    codec: str
    bytes_read: int
    """Decoded bytes that were read from the source, and from the intermediate copy if there was one."""

    bytes_written: int
    """Bytes of the chunk files of the new store, and of the intermediate copy."""

    seconds: float
    layout: str = "dense"
    """``dense``, or ``csr`` for a sparse group in AnnData's layout."""

    nnz: int | None = None
    """Number of stored values of a sparse matrix; None for a dense one."""

    notes: tuple[str, ...] = ()
    """Notes for the owner of the file: how it was understood where it was ambiguous."""

    done_before: bool = False
    """True if an earlier, equal import had made the store, so that nothing was done."""


@dataclass(frozen=True, slots=True)
class _Job:
    """Settings of one import."""

    target: Path
    memory_bytes: int
    chunk_bytes: int
    dtype: np.dtype[Any] | None
    dense: bool
    progress: Progress | None
    overwrite: bool
    request: dict[str, Any]
    """Settings that decide the content of the store, in addition to the matrix."""

    identity: str | None = None
    """Digest of source and request (``identity.identity_of``); None if the source cannot be identified."""

    identify: Callable[[], str | None] = lambda: None
    """Function that computes the identity again, from the present state of the source."""

    names: dict[str, Any] = field(default_factory=dict)
    """Names of the rows and columns, in a form for JSON."""

    def publish(self, path: Path) -> None:
        """Finish the store in the folder ``path``, and move it to ``target``.

        Identity, names and manifest are written into it. ``DataError`` if the source has changed meanwhile.
        """
        require_unchanged(self.target, self.identity, self.identify)
        seal(path, self.identity, self.names)
        publish(path, self.target, self.overwrite)


def import_array(
    matrix: object,
    destination: str | os.PathLike[str],
    *,
    memory_bytes: int = 256 * 2**20,
    chunk_bytes: int = 16 * 2**20,
    dtype: str | None = None,
    columns: Sequence[str] | None = None,
    without: Sequence[str] | None = None,
    header: str = "auto",
    decimal: str = "auto",
    thousands: str | None = None,
    skip_lines: int = 0,
    layout: str = "auto",
    overwrite: bool = False,
    progress: Progress | None = None,
    **view: Unpack[ViewOptions],
) -> ImportReport:
    """Copy a matrix to a new Zarr v3 array, or a sparse one to a CSR group in AnnData's layout.

    Parameters
    ----------
    matrix : path, array or Source
        The matrix to copy, which is checked for damage first. Besides what ``open_source`` takes: tables of
        any size (.csv, .tsv, .txt, .parquet or a folder of them, several by a name with ``*``), compressed
        .npz, .mtx, .h5ad, a folder of Cell Ranger.
    destination, overwrite : path, bool
        Folder of the new store; True to replace an existing store, at the very end.
    memory_bytes, chunk_bytes : int
        Largest number of bytes of memory that buffers, source and encoders take together. Bytes that a chunk
        of the new store is to have; it holds full rows (full columns of a matrix with more columns than
        rows), unless 256 of them take more than 64 MiB.
    dtype : str, optional
        Type of the new store. Values out of its range are an error; rounding is not.
    columns, without : names, optional
        Columns of a table to take, in this order, and to leave out.
    header : {"auto", "yes", "no"}
        ``yes`` if the first line of a .csv, .tsv or .txt holds names, ``auto`` to detect them.
    decimal : {"auto", ".", ","}
        Decimal sign in text. A comma is recognized if something else separates cells.
    thousands : {",", ".", " ", "'", "_"}, optional
        Sign between groups of three digits in text; unless it is given, such numbers are an error. A space
        also stands for no-break and thin spaces.
    skip_lines : int
        Lines at the start of a .csv, .tsv or .txt that are no part of the table, such as a title.
    layout : {"auto", "dense"}
        ``dense`` writes the zeros of a sparse matrix too.
    progress : callable, optional
        Called now and then with bytes done and bytes in all.
    view : optional
        Options of ``open``, for a matrix of which any part can be read.

    Returns
    -------
    ImportReport
        Shape, type, chunks, codec and bytes of what was written.

    Raises
    ------
    OutputError, MemoryBudgetError, DiskSpaceError, DataError
        A destination that exists or cannot be written; memory that is too small for a chunk; a full disk; a
        source that is damaged, or holds no numbers.

    Notes
    -----
    Reads the source once. If tiles do not match its chunks, it is copied by way of a plain file next to the
    destination, which is removed afterwards. The destination appears once it is complete.

    Examples
    --------
    >>> import numpy as np
    >>> import tempfile
    >>> import rankfold as rf
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = rf.import_array(np.ones((60, 8)), f"{folder}/x.zarr")
    ...     rf.open(f"{folder}/x.zarr").shape
    (60, 8)
    """
    for name in sorted(view.keys() - ViewOptions.__annotations__.keys()):
        known = (*inspect.signature(import_array).parameters, *ViewOptions.__annotations__)
        raise ArgumentError(f"import_array takes no {name}{suggest_name(name, known)}")
    bound_heaps()
    _require_local(destination)
    if layout not in LAYOUTS:
        raise InputError(f"layout={layout!r} is not known; say one of {', '.join(LAYOUTS)}")
    kind, target = parse_dtype(dtype) if dtype else None, Path(os.path.abspath(destination))
    numeric = bool(view.get("numeric"))
    options = ReadOptions(
        *(columns, without, header, kind, memory_bytes, numeric, decimal, thousands),
        index_col=view.get("index_col"),
        skip_lines=skip_lines,
    )
    request = {**_request(options), "layout": layout, "chunk_bytes": chunk_bytes}
    job = _Job(target, memory_bytes, chunk_bytes, kind, layout == "dense", progress, overwrite, request)
    return _import(matrix, options, view, job)


def _require_local(destination: str | os.PathLike[str]) -> None:
    """Raise ``OutputError`` for a destination that is a URL, also one that ``Path`` stripped of a slash."""
    if re.match("[a-z][a-z0-9]+:/", os.fsdecode(destination)):
        raise OutputError(
            f"{destination} is not on a file system, and an import writes a folder there. Choose one, and "
            "copy the store afterwards"
        )


def _request(options: ReadOptions) -> dict[str, Any]:
    """Options that decide how a file is read, by name, as JSON values."""
    return {
        "dtype": None if options.dtype is None else options.dtype.str,
        "columns": None if options.columns is None else list(options.columns),
        "without": None if options.without is None else list(options.without),
        "header": options.header,
        **options.later(),
    }


def _import(matrix: object, options: ReadOptions, view: ViewOptions, job: _Job) -> ImportReport:
    """Open the matrix and copy it: tile by tile, or read from its beginning if it can only be read so.

    ``options`` are for files that are read from their beginning, ``view`` those of ``open`` for others.
    """
    start = time.perf_counter()
    reader: Reader | None = None
    place: str | None = None
    if isinstance(matrix, str | os.PathLike):
        location = os.fsdecode(matrix)
        place = None if is_address(location) else split_location(location)[0]
        reader = open_reader(location, options)
    elif options.selects or options.has_style:
        raise InputError("columns are chosen by name in .csv, .tsv and .parquet files; cut the array instead")
    if reader is None:
        source = open_source(matrix, **view)
        require_apart(job.target, place or getattr(source, "path", None))
        absence = absence_of(source)
        lacking = absence is not None and absence.count > 0
        job = _with_identity(job, _choice(view, lacking=lacking), lambda: source_mark(source))
        job, before = _before(job, start)
        if before is not None:
            return before
        source.check()
        require_whole_input(getattr(source, "path", None))
        job = dataclasses.replace(job, names=_names_of_matrix(source))
        stored = compressed(source)
        if stored is None or job.dense:
            return _import_tiles(source, job, start, (f"{absence}; {REFUSAL}",) if lacking else ())
        reader = sparse_reader(stored)
    elif any(value not in (None, False) for name, value in view.items() if name not in (*CHUNKS, *OF_TABLES)):
        raise InputError(
            f"{reader.name} is read from its beginning, so row_axes= (--row-axes), select_rows= "
            "(--select-rows), "
            "select_columns= (--select-columns), drop_missing_columns=True (--drop-missing-columns) and "
            "drop_missing_rows=True (--drop-missing-rows) do not apply: import it, and select when the "
            "store is read"
        )
    else:
        require_apart(job.target, place)
        job = _with_identity(job, _choice(view), lambda: file_mark(location))
        job, before = _before(job, start)
        if before is not None:
            return before
        job = dataclasses.replace(job, names=_names_in_file(reader, location))
    return _import_file(reader, job, start)


def _names_of_matrix(source: Source) -> dict[str, Any]:
    return names_as_json(names_of(source, 0), names_of(source, 1), attributes_of(source))


def _names_in_file(reader: Reader, location: str) -> dict[str, Any]:
    """Names of columns, or of rows and columns, that the file of a reader holds, in a form for JSON."""
    if isinstance(reader, CellRangerReader):
        rows, genes = reader.axes
        return names_as_json(Names.of([rows]), Names.of([genes]))
    if (table := _table_of(reader)) is not None:
        return names_as_json(None, Names.of([Axis.of("column", table.columns, names_of_columns(table))]))
    with contextlib.suppress(RankfoldError):  # of layouts that are read from their beginning alone
        return _names_of_matrix(open_source(location))
    return {}


def _table_of(reader: Reader) -> NumericTable | SeveralTables | None:
    table = reader.table if isinstance(reader, WideTable) else reader
    return table if isinstance(table, NumericTable | SeveralTables) else None


def _with_row_names(job: _Job, reader: Reader) -> _Job:
    """The job with the names of the rows of a table, which its reader knows once all rows were read."""
    table = _table_of(reader)
    if table is None or table.row_names is None:
        return job
    return dataclasses.replace(
        job, names={**names_as_json(Names.of([table.row_names.axis()]), None), **job.names}
    )


def _choice(view: ViewOptions, *, lacking: bool = False) -> str:
    """Value of the option for missing chunks in ``view``, under its present or former name.

    By default it is ``fill`` if ``lacking``, that is if chunks are missing, else ``error``.
    """
    return view.get("missing_chunks") or view.get("missing") or ("fill" if lacking else "error")


def _with_identity(job: _Job, missing: str, mark_source: Callable[[], str | None]) -> _Job:
    """The job with the identity of its store: a digest of the request and of the state of the source.

    ``missing`` is the value of the option for missing chunks, which is part of the request. ``mark_source``
    returns the fingerprint of the source, or None if it has none.
    """
    request = {**job.request, "missing": missing}

    def identify() -> str | None:
        mark = mark_source()
        return None if mark is None else identity_of(request, mark)

    return dataclasses.replace(job, identity=identify(), identify=identify)


def _import_tiles(source: Source, job: _Job, start: float, notes: tuple[str, ...]) -> ImportReport:
    """Import a matrix of which any part can be read, tile by tile.

    ``start`` is the time at which the import began, by ``time.perf_counter``; ``notes`` are for the report.
    """
    plan = plan_tiles(_convert(source, job), job.target.parent, job.memory_bytes, job.chunk_bytes)
    ticker = Ticker(job.progress, plan.ticks)
    with working_folder(job.target, plan.need) as folder:
        copy = copy_tiles(plan, folder, ticker)
        job.publish(folder / "array")
    return _dense_report(copy, start, notes)


def _import_file(reader: Reader, job: _Job, start: float) -> ImportReport:
    """Import a file that can only be read from its beginning; the import began at ``start``."""
    ticker, dtype = Ticker(job.progress, reader.total_bytes), None
    with working_folder(job.target, reader.total_bytes) as folder:
        if isinstance(reader, Archive):
            require_room(reader.total_bytes, folder, reader.name)
            copy = _dense(reader.unpack(folder, ticker.at), job, folder, ticker)
        elif isinstance(reader, EntryReader):
            dtype = job.dtype or reader.dtype
            source = copy_entries(
                reader, folder / "sparse", dtype, memory_bytes=job.memory_bytes, ticker=ticker
            )
            if not job.dense:
                report = _sparse_report(source, start, reader.notes)
                job.publish(folder / "sparse")
                return report
            copy = _dense(source, job, folder, ticker)
        else:
            dtype = job.dtype or reader.dtype
            sizes = {"memory_bytes": job.memory_bytes, "chunk_bytes": job.chunk_bytes}
            copy = copy_rows(reader, folder, dtype, **sizes, ticker=ticker)
        _with_row_names(job, reader).publish(folder / "array")
    return _dense_report(copy, start, reader.notes)


def _dense(source: Source, job: _Job, folder: Path, ticker: Ticker) -> Copy:
    """Copy a matrix, which was unpacked into the working folder, into the chunks of the new store."""
    plan = plan_tiles(_convert(source, job), folder, job.memory_bytes, job.chunk_bytes)
    ticker.total += plan.ticks
    return copy_tiles(plan, folder, ticker)


def _convert(source: Source, job: _Job) -> Source:
    # Never `dtype in (None, ...)`: NumPy takes None for float64 where it compares types.
    return source if job.dtype is None or job.dtype == source.dtype else ConvertedSource(source, job.dtype)


def _dense_report(copy: Copy, start: float, notes: tuple[str, ...]) -> ImportReport:
    source = copy.source
    return ImportReport(
        source.shape,
        source.dtype.name,
        source.chunks,
        copy.codec.words,
        copy.bytes_read,
        copy.bytes_written,
        time.perf_counter() - start,
        notes=notes,
    )


def _before(job: _Job, start: float) -> tuple[_Job, ImportReport | None]:
    """The job, and the report of the complete store that an equal import has made; None without such a store.

    A damaged store of an equal import is to be replaced, which the job then says; anything else at the
    destination raises an error, unless the job overwrites. ``start`` is the time at which the import began.
    """
    if made_of(job.target, job.identity):
        damage = damage_of(job.target, sums=job.overwrite)
        if not damage:
            return job, _report_before(job.target, start)
        LOG.warning("%s. It is made again", damage_in_words(job.target, damage))
        job = dataclasses.replace(job, overwrite=True)
    require_place(job.target, job.overwrite)
    return job, None


def _report_before(target: Path, start: float) -> ImportReport:
    """Report of the complete store at ``target`` that existed already, so that nothing was read.

    ``start`` is the time at which the import began, by ``time.perf_counter``.
    """
    source, seconds = open_source(target), time.perf_counter() - start
    if isinstance(source, CsrSource):
        report = dataclasses.replace(_sparse_report(source, start, ()), bytes_read=0)
    else:
        whole = cast("ZarrSource", source)
        name, size = whole.dtype.name, whole.stored_bytes()
        report = ImportReport(whole.shape, name, whole.chunks, whole.codec, 0, size, seconds)
    return dataclasses.replace(report, done_before=True)


def _sparse_report(source: CsrSource, start: float, notes: tuple[str, ...]) -> ImportReport:
    return ImportReport(
        source.shape,
        source.dtype.name,
        cast(VectorSource, source.data).chunks,
        source.codec,
        source.nnz * (source.dtype.itemsize + source.indices.dtype.itemsize),
        source.stored_bytes(),
        time.perf_counter() - start,
        "csr",
        source.nnz,
        notes,
    )
