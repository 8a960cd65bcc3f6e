"""Readers of files that an import reads from beginning to end.

reader          the protocols of all readers, and of matrices that are first unpacked
wide_table      .parquet of very many columns
npz             compressed .npz, SciPy's
h5ad            AnnData in HDF5
matrix_market   .mtx, also .gz
cell_ranger     .mtx of genes x cells, with files of names next to it
compressed      CSR, CSC and triplets in vectors
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rankfold.pipeline.data.source import CompressedSource
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats.cell_ranger import files_at
from rankfold.pipeline.formats.csr import CsrSource
from rankfold.pipeline.formats.locate import is_address, matching_files, split_location
from rankfold.pipeline.formats.tables.options import ReadOptions
from rankfold.pipeline.formats.tables.parquet import ParquetReader
from rankfold.pipeline.formats.tables.several import table_paths, table_reader
from rankfold.pipeline.importing.readers.cell_ranger import cell_ranger_reader
from rankfold.pipeline.importing.readers.compressed import CompressedReader, LinesReader, Vector
from rankfold.pipeline.importing.readers.h5ad import h5ad_reader
from rankfold.pipeline.importing.readers.matrix_market import MATRIX_MARKET_ENDINGS, matrix_market_reader
from rankfold.pipeline.importing.readers.npz import npz_reader
from rankfold.pipeline.importing.readers.reader import Archive, EntryReader, RowReader
from rankfold.pipeline.importing.readers.wide_table import fit_columns

__all__ = ["Reader", "open_reader", "sparse_reader"]

Reader = RowReader | EntryReader | Archive


def open_reader(location: str, options: ReadOptions) -> Reader | None:
    """Reader of the file at ``location``, from its beginning; None for one of which any part can be read.

    ``InputError`` for ``options`` that do not suit the kind of file.
    """
    if is_address(location):
        return None
    path, part = split_location(location)
    if not options.selects and (files := files_at(path)) is not None:
        return cell_ranger_reader(files, part, options)
    if paths := table_paths(location):
        table = table_reader(location, paths, options.of_column(part))
        return fit_columns(table, options.memory_bytes) if isinstance(table, ParquetReader) else table
    if options.selects or options.of_text or options.numeric or options.index_col is not None:
        raise InputError(
            f"{location} is no table with named columns: they are chosen in .csv, .tsv, .txt and .parquet"
        )
    if matching_files(location) is not None:
        return None
    if path.endswith(".npz"):
        return npz_reader(path, part)
    if path.endswith(".h5ad"):
        return h5ad_reader(path, part)
    return matrix_market_reader(path, options) if path.endswith(MATRIX_MARKET_ENDINGS) else None


def sparse_reader(source: CompressedSource) -> CompressedReader | LinesReader:
    """Reader of the stored values of a sparse matrix, of which any part can be read."""
    if not isinstance(source, CsrSource):
        return LinesReader(source)

    @contextlib.contextmanager
    def vectors() -> Iterator[dict[str, Vector]]:
        yield {"data": source.data, "indices": source.indices, "indptr": source.indptr}

    return CompressedReader(source.name, source.shape, source.dtype, source.nnz, source.by, vectors)
