"""Files that are read from beginning to end, as an import takes them.

reader          what all of them offer; what is unpacked first
tables          what delimited and parquet have in common
delimited       .csv, .tsv, also .gz
gzipped         files that gzip wrote
parquet         .parquet, or a folder of them
npz             compressed .npz, SciPy's
h5ad            AnnData in HDF5
matrix_market   .mtx, also .gz
compressed      CSR, CSC and triplets in vectors
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats.csr import CsrSource
from rankfold.pipeline.formats.locate import node_kind, require_path, split_location
from rankfold.pipeline.importing.readers.compressed import CompressedReader, Vector
from rankfold.pipeline.importing.readers.delimited import SEPARATORS, delimited_reader
from rankfold.pipeline.importing.readers.h5ad import h5ad_reader
from rankfold.pipeline.importing.readers.matrix_market import MATRIX_MARKET_ENDINGS, matrix_market_reader
from rankfold.pipeline.importing.readers.npz import npz_reader
from rankfold.pipeline.importing.readers.parquet import parquet_paths, parquet_reader
from rankfold.pipeline.importing.readers.reader import Archive, EntryReader, ImportOptions, RowReader

__all__ = ["Reader", "open_reader", "sparse_reader"]

Reader = RowReader | EntryReader | Archive


def open_reader(location: str, options: ImportOptions) -> Reader | None:
    """How to read a file from its beginning; nothing for what can be read at any place."""
    if "://" in location:
        return None
    path, part = split_location(location)
    require_path(path)
    if reader := _table(path, options):
        if part:
            raise InputError(f"{path} is one table, so it holds no array {part}")
        return reader
    if options.selects or options.header != "auto":
        raise InputError(f"{path} is no table with named columns: they are chosen in .csv, .tsv and .parquet")
    if path.endswith(".npz"):
        return npz_reader(path, part)
    if path.endswith(".h5ad"):
        return h5ad_reader(path, part)
    return matrix_market_reader(path, options) if path.endswith(MATRIX_MARKET_ENDINGS) else None


def _table(path: str, options: ImportOptions) -> RowReader | Archive | None:
    if os.path.splitext(path.removesuffix(".gz"))[1] in SEPARATORS:
        return delimited_reader(path, options)
    if os.path.isdir(path) and node_kind(path) is not None:
        return None
    return parquet_reader(path, options) if parquet_paths(path) else None


def sparse_reader(source: CsrSource) -> CompressedReader:
    """A sparse matrix in Zarr, to be written anew."""

    @contextlib.contextmanager
    def vectors() -> Iterator[dict[str, Vector]]:
        yield {"data": source.data, "indices": source.indices, "indptr": source.indptr}

    return CompressedReader(source.name, source.shape, source.dtype, source.nnz, source.by, vectors)
