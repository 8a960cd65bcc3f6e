"""Open whatever a user passes as a matrix, as a ``Source``: a matrix that can be read a rectangle at a time.

    locate         paths of the form STORE::array, and the arrays that a store holds
    arrays         NumPy and SciPy arrays, lists, tensors, AnnData objects
    frames         frames of pandas, polars and Dask
    vectors        columns of lists of numbers in memory, such as embeddings; tables of Arrow
    zarr           Zarr arrays in a folder
    csr            sparse matrices in AnnData's layout
    remote         Zarr arrays in object stores
    npy            .npy, .fbin, .u8bin and .i8bin files
    npz            .npz files that are not compressed
    plink          .bed files of genotypes
    hdf5           HDF5 files, through h5py
    hdf5_contents  which matrix of an HDF5 file is meant: of AnnData, 10x Genomics, loom, MATLAB
    cell_ranger    names of cells and genes in files of 10x Genomics
    frame_columns  data frames of AnnData as matrices; obs and var of AnnData
    netcdf         netCDF files and xarray objects
    dask           Dask arrays
    open_files     choice of a dataset in a file, files that stay open, optional libraries
    tables         .csv, .txt and .parquet files and their like
    packed         text files that may be compressed
    series         several files as one matrix
    contents       description of a store of several arrays, or of an array of several axes
    naming         names of rows and columns in containers
    latitudes      latitudes of the columns of a field, such as time x (latitude, longitude)
    open_like      new rows for a result, opened as the rows of its matrix were

Zarr, Dask and all optional libraries are imported only when they are needed: objects are recognized by the
module of their type.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypedDict, TypeGuard, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse

from rankfold.pipeline.chunks.absence import CHOICES
from rankfold.pipeline.data.index_selection import Selection
from rankfold.pipeline.data.missing_columns import without_missing_columns
from rankfold.pipeline.data.missing_rows import without_missing_rows
from rankfold.pipeline.data.names import Axis
from rankfold.pipeline.data.origin import names_of
from rankfold.pipeline.data.selection import select
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.stacked import Rows, axis_names, row_axes, stack_volume, with_axes
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats.arrays import (
    array_of_lists,
    array_of_tensor,
    array_source,
    array_volume,
    axes_of_cells,
    axes_of_lists,
    is_cells,
    is_kept_sparse,
    matrix_of_cells,
    sparse_source,
    without_mask,
)
from rankfold.pipeline.formats.cell_ranger import files_at
from rankfold.pipeline.formats.csr import compressed_kind, csr_source
from rankfold.pipeline.formats.dask import dask_source, dask_volume
from rankfold.pipeline.formats.frames import (
    array_of_frame,
    array_of_polars,
    axes_of_frame,
    dask_array_of_frame,
    is_frame,
    numeric_frame,
    plain_columns,
    split_names,
    without_subclass,
)
from rankfold.pipeline.formats.hdf5 import hdf5_matrix
from rankfold.pipeline.formats.hdf5_contents import HDF5_SUFFIXES
from rankfold.pipeline.formats.latitudes import with_latitudes
from rankfold.pipeline.formats.locate import (
    is_address,
    matching_files,
    node_kind,
    require_path,
    split_location,
    store_around,
)
from rankfold.pipeline.formats.netcdf import netcdf_matrix, xarray_matrix
from rankfold.pipeline.formats.npy import TYPES, big_ann_source, npy_matrix
from rankfold.pipeline.formats.npz import npz_source
from rankfold.pipeline.formats.open_files import NETCDF_SUFFIXES, by_name, mask_of
from rankfold.pipeline.formats.plink import bed_source
from rankfold.pipeline.formats.remote import remote_matrix
from rankfold.pipeline.formats.series import series
from rankfold.pipeline.formats.tables.options import name_rows
from rankfold.pipeline.formats.tables.several import TABLE_ENDINGS, is_table_file, table_paths, table_source
from rankfold.pipeline.formats.vectors import array_of_vectors, frame_of_arrow, is_arrow, vector_column
from rankfold.pipeline.formats.zarr.layout import matrix_at, matrix_of
from rankfold.pipeline.prepare.chosen_columns import choose_columns
from rankfold.pipeline.prepare.parse import Prepare, parse_steps
from rankfold.pipeline.prepare.prepared import PreparedSource, prepare_source, select_prepared
from rankfold.pipeline.text import shell_words

__all__ = ["ViewOptions", "open_source"]

Mask = str | Sequence[bool] | npt.NDArray[np.bool_] | None
"""Rows (or columns) to keep: the name of a boolean column of ``obs`` (or ``var``) of AnnData, or a mask."""

IMPORT_SUFFIXES = (".mtx", ".mtx.gz")
"""Endings of names of files that are imported, not read in place: they can only be read in sequence."""

FIRST_STEPS = {
    ".xz": "unpack it first: `xz --decompress --keep {words}`",
    ".zst": "unpack it first: `zstd --decompress {words}`",
    ".zarr.zip": "unpack it first: `unzip {words} -d {folder}`",
    ".zip": "unpack it first: `unzip {words}`",
    ".feather": "write it as Parquet first: pandas.read_feather({path!r}).to_parquet({parquet!r})",
    ".arrow": "write it as Parquet first: pandas.read_feather({path!r}).to_parquet({parquet!r})",
    ".orc": "write it as Parquet first: pandas.read_orc({path!r}).to_parquet({parquet!r})",
    ".xlsx": "write it as Parquet first: pandas.read_excel({path!r}).to_parquet({parquet!r})",
    ".pkl": "write it as Parquet first: pandas.read_pickle({path!r}).to_parquet({parquet!r})",
}
"""Template of advice in the error for files that are not read as they are, by the ending of their names."""


class ViewOptions(TypedDict, total=False):
    """Options of ``open_source`` that select, mask and prepare, as a dict of keyword arguments."""

    missing_chunks: str | None
    missing: str | None
    row_axes: Rows
    select_rows: Selection
    select_columns: Selection
    drop_missing_columns: bool
    drop_missing_rows: bool
    prepare: Prepare
    mask_var: Mask
    mask_obs: Mask
    numeric: bool
    index_col: str | None


def open_source(
    x: object,
    *,
    missing_chunks: str | None = None,
    row_axes: Rows = None,
    select_rows: Selection = None,
    select_columns: Selection = None,
    drop_missing_columns: bool = False,
    drop_missing_rows: bool = False,
    prepare: Prepare = None,
    mask_var: Mask = None,
    mask_obs: Mask = None,
    missing: str | None = None,
    numeric: bool = False,
    index_col: str | None = None,
) -> Source:
    """Open a matrix.

    Parameters
    ----------
    x : str, path, array or Source
        ``STORE`` or ``STORE::path/in/group`` for a Zarr store in a folder or an object store
        (``s3://bucket/store.zarr``), a sparse group in AnnData's layout, a ``.npy``, ``.npz``, ``.fbin``,
        ``.bed`` (PLINK 1), HDF5 or netCDF file (``FILE.nc::variable``), a table of up to 32 MiB of numbers
        (``.csv``, ``.tsv``, ``.txt``, ``.parquet``), a list of rows, a NumPy, SciPy, Zarr, Dask or xarray
        array, a tensor of PyTorch on the CPU, an h5py dataset, a pandas, polars or Dask DataFrame of numbers,
        a table of pyarrow, a column of lists of one length (a Series, or the only column of a frame), an
        AnnData object (its X), a ``Source``. Several files are one matrix, rows of one below those of the
        other: a list of paths, or a name with ``*`` (``"days-*.nc::t2m"``), sorted.
    missing_chunks : {"fill", "error"}
        How a chunk of Zarr or HDF5 (or an inner chunk of a shard) is read that the store does not hold:
        as fill value, as the format says, where the result states the number of such chunks; or it is an
        error. In a store that is a result of rankfold it is an error in any case.
    row_axes : str, int or list of them, optional
        Axes that become the rows, by name or number, as ``"time"`` or ``"time,level"``; the others are
        stacked into columns in their order. Needed for arrays of more than two axes.
    select_rows, select_columns : str, slice or list, optional
        Indices of the rows and columns that are kept, in the order in which they are given, as ``"0:1000"``
        or ``"0:50,60,70:80"``; or a boolean mask.
    drop_missing_columns : bool
        Leave out columns that are NaN in the first rows kept, 64 MiB of them, as places on land are; a number
        in one of them later on is an error when it is read.
    drop_missing_rows : bool
        Leave out rows that are NaN throughout, as months without a measurement are. To find them, the matrix
        is read here until a number was seen in each row; the number of rows left out is logged.
    prepare : str, or list of str and dict, optional
        Steps that numbers go through as they are read, in their order, after all else:
        ``"normalize_total(1e4), log1p"``, or ``[{"arcsinh": {"cofactor": 5}}, "sqrt"]``. There are
        normalize_total, log1p, sqrt, arcsinh, binarize and mark_missing, and, for which the matrix is read
        once here, normalize_total to the median, tfidf, highly_variable, scale, impute_mean and patterson;
        weights takes an array: ``[{"weights": {"values": w}}]``. Names and defaults are those of scanpy,
        scikit-learn and NumPy; docs/data.md has them all.
    mask_var, mask_obs : str or array of bool, optional
        Which columns, or rows, are kept: by the name of a column of ``var`` or ``obs`` of AnnData, or True
        and False for each. Rows are chosen before all steps of ``prepare``; columns after the steps that see
        whole rows, as normalize_total does, so new rows for a result must come with all columns.
    missing : {"fill", "error"}, optional
        The former name of ``missing_chunks``.
    numeric : bool
        Leave out columns of a table or a DataFrame that hold something else than numbers, True and False. A
        warning names them.
    index_col : str, optional
        Column of a table or a DataFrame that names the rows, and is no column of the matrix. By default, a
        first column without a name, or the index that pandas wrote, names them.

    Returns
    -------
    Source
        The matrix, with its shape, type and chunks; ``read_into`` reads a rectangle of it. Every function
        that takes a matrix takes it.

    Raises
    ------
    InputError
        ``x`` is not a matrix of a supported type; ``SourceNotFoundError`` if it is not there.

    Notes
    -----
    Only metadata are read, and, of a sparse matrix, the positions where rows begin. In addition,
    ``drop_missing_columns`` reads the first rows, ``drop_missing_rows`` at most the whole matrix; each
    measured step, and a selection of columns of a sparse matrix, reads the matrix once.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> matrix = rf.open(np.ones((60, 4, 2)), row_axes=0)  # or a path
    >>> matrix.shape
    (60, 8)
    """
    choice = require_choice(x, missing if missing_chunks is None else missing_chunks)
    source, steps = _matrix(x, choice, row_axes, bool(numeric), index_col), parse_steps(prepare)
    _require_one_choice("rows", select_rows, "mask_obs", mask_obs)
    _require_one_choice("columns", select_columns, "mask_var", mask_var)
    select_rows, select_columns = _by_name(select_rows, source, 0), _by_name(select_columns, source, 1)
    if mask_obs is not None:
        select_rows = mask_of(x, "obs", mask_obs, source)
    if isinstance(source, PreparedSource):
        if drop_missing_columns or drop_missing_rows:
            what = "columns" if drop_missing_columns else "rows"
            raise InputError(
                f"{source.name} went through steps: leave out {what} of nothing before them, when the "
                "matrix itself is opened"
            )
        source = select_prepared(source, rows=select_rows, columns=select_columns)
    else:
        source = select(source, rows=select_rows, columns=select_columns)
        source = without_missing_rows(source, names_of(source, 0)) if drop_missing_rows else source
        source = without_missing_columns(source) if drop_missing_columns else source
    if mask_var is not None:
        steps = choose_columns(steps, mask_of(x, "var", mask_var, source))
    return prepare_source(source, with_latitudes(x, source, steps))


def _by_name(selection: Selection, source: Source, axis: int) -> Selection:
    """The selection; a boolean Series or DataArray becomes a mask in the order of rows (0) or columns (1).

    Its names are matched with those of ``source``. Any other selection is returned unchanged.
    """
    if getattr(selection, "dtype", None) != np.bool_ or isinstance(selection, np.ndarray):
        return selection
    return by_name(selection, source, axis, f"select_{('rows', 'columns')[axis]}")


def require_choice(x: object, missing_chunks: str | None) -> str | None:
    """Return the option ``missing_chunks``; ``InputError`` if unknown, or if given for an open ``Source``."""
    if missing_chunks is not None and missing_chunks not in CHOICES:
        words = ", ".join(map(repr, CHOICES))
        raise InputError(f"missing_chunks={missing_chunks!r} is not known; say one of {words}")
    if missing_chunks is not None and isinstance(x, Source):
        raise InputError(
            f"{x.name} is open already: say missing_chunks={missing_chunks!r} where it is opened, "
            f"rankfold.open(x, missing_chunks={missing_chunks!r})"
        )
    return missing_chunks


def _require_one_choice(what: str, selection: Selection, name: str, mask: Mask) -> None:
    if selection is not None and mask is not None:
        raise InputError(f"select_{what}= and {name}= both choose {what}: say one of them")


def _matrix(
    x: object, missing: str | None, rows: Rows, numeric: bool = False, index_col: str | None = None
) -> Source:
    """Open the whole matrix that ``x`` is, before any selection or preparation.

    ``missing`` is the option ``missing_chunks`` of ``open_source``, ``rows`` is its ``row_axes``; ``numeric``
    and ``index_col`` are the options of these names.
    """
    if (table := _table(x, rows, numeric, index_col)) is not None:
        return table
    if numeric or index_col is not None:
        if isinstance(x, str | os.PathLike):
            _require_readable(os.fsdecode(x))
        _refuse_choice_of_columns(index_col)
    if isinstance(x, str | os.PathLike):
        return _at(os.fsdecode(x), missing, rows)
    if isinstance(x, np.ndarray):
        return _of_numpy(without_mask(x), rows)
    module = _library(x)
    if module == "dask" and hasattr(type(x), "blocks"):
        return _of_dask(x, rows)
    if module == "zarr":
        return _of_zarr(x, missing, rows)
    if module == "xarray":
        return xarray_matrix(x, rows=rows)
    if scipy.sparse.issparse(x):
        return sparse_source(x)
    if are_paths(x):
        return _series([os.fsdecode(each) for each in x], missing, rows)
    if isinstance(x, list | tuple):
        array = array_of_lists(x)
        source = _of_numpy(array, rows)
        return source if array.ndim != 2 else _named(source, axes_of_lists(x, array.shape))
    if all(hasattr(x, name) for name in ("__dlpack__", "__dlpack_device__", "dtype")):
        return _of_numpy(array_of_tensor(x), rows)
    if is_cells(x):
        cells = _matrix(matrix_of_cells(x), missing, rows)
        return _named(cells, axes_of_cells(x, cells.shape))
    if is_kept_sparse(x):
        return _of_kept_sparse(x, missing)
    if module == "h5py":
        return _of_hdf5(x, missing, rows)
    if isinstance(x, Source) and module != "dask":  # a Delayed object has any attribute
        if rows is not None:
            raise InputError(f"{x.name} is a matrix already: row_axes= is for arrays and places of arrays")
        return x
    if isinstance(x, Mapping) and hasattr(x, "dimensions"):  # a result, whose module imports this one
        matrices = [name for name in x if len(x.dimensions(name)) == 2]
        matrices.sort(key=lambda name: x.dimensions(name)[0] != "row")  # coordinates of rows are meant mostly
        able = f"give one of its arrays, {' or '.join(f'r.{name}' for name in matrices)}"
        raise InputError(f"a result is not a matrix: {able if matrices else 'it holds none'}")
    ways = [f"x.{name}()" for name in ("to_pandas", "to_numpy") if hasattr(type(x), name)]
    first = f"pass {ways[0]}, or " if ways else ""
    raise InputError(
        f"cannot read a {module}.{type(x).__qualname__}; {first}give the path of a Zarr store or .npy file, "
        "or a list of rows, a NumPy, SciPy, Zarr, Dask or xarray array, a DataFrame, an AnnData object"
    )


def _refuse_choice_of_columns(index_col: str | None) -> NoReturn:
    """Raise ``InputError``: ``index_col`` or ``numeric`` was given for something that is not a table."""
    if index_col is not None:
        raise InputError(
            f"{name_rows(index_col)} is a column of a table or a DataFrame that names rows, and this is none"
        )
    raise InputError(
        "numeric=True (--numeric) leaves out columns of tables and DataFrames, and this is none; choose "
        "columns with select_columns= (--select-columns)"
    )


def are_paths(x: object) -> TypeGuard[Sequence[str | os.PathLike[str]]]:
    """True for a non-empty list of paths, which are the files of one matrix."""
    return isinstance(x, list | tuple) and bool(x) and all(isinstance(each, str | os.PathLike) for each in x)


def _table(x: object, rows: Rows, numeric: bool, index_col: str | None) -> Source | None:
    """A DataFrame, or a table in files, as a matrix; None for anything else. Options as for ``_matrix``."""
    if isinstance(x, str | os.PathLike):
        location = os.fsdecode(x)
        paths = () if is_address(location) else table_paths(location)
        if paths:
            _refuse_axes(location, rows)
            column = split_location(location)[1]
            return table_source(location, paths, numeric=numeric, index_col=index_col, column=column)
        return None
    if are_paths(x):
        locations = [os.fsdecode(each) for each in x]
        if not all(map(is_table_file, locations)):
            return None
        for each in locations:
            require_path(each)
        _refuse_axes(locations[0], rows)
        name = _name_of_several(locations)
        return table_source(name, locations, numeric=numeric, index_col=index_col)
    x = frame_of_arrow(x) if is_arrow(x) else x
    if not is_frame(x):
        return None
    x = without_subclass(x)
    frame, names = split_names(x, index_col)
    if (column := vector_column(frame)) is not None:
        array = array_of_vectors(column)
        return _named(_of_numpy(array, rows), axes_of_frame(column, array.shape, names))
    module = _library(x)
    frame = plain_columns(frame)
    frame = numeric_frame(frame) if numeric else frame
    if module == "dask":
        blocks = dask_array_of_frame(frame)
        return _named(_of_dask(blocks, rows), axes_of_frame(frame, blocks.shape, names))
    array = array_of_frame(frame) if module == "pandas" else array_of_polars(frame)
    return _named(_of_numpy(array, rows), axes_of_frame(frame, array.shape, names))


def _named(source: Source, axes: tuple[Axis, Axis]) -> Source:
    """The source with the labels of ``axes``, (of rows, of columns); unchanged if its file has its own."""
    return cast(Source, with_axes(source, axes))


def _library(x: object) -> str:
    """Name of the library that defines the class of an object, or the nearest base class outside rankfold."""
    classes = (each for each in type(x).__mro__ if each is not np.lib.mixins.NDArrayOperatorsMixin)
    names = (each.__module__.partition(".")[0] for each in classes)
    return next((name for name in names if name != "rankfold"), "rankfold")


def _at(location: str, missing: str | None, rows: Rows) -> Source:
    """Open the matrix at a path, or at all that match a pattern with ``*``. Options as for ``_matrix``."""
    if (locations := matching_files(location)) is not None:
        return _series(locations, missing, rows)
    store, array = split_location(location)
    if is_address(store):
        return remote_matrix(store, array, missing=missing, rows=rows)
    require_path(store)
    store, array = store_around(store, array)
    if compressed_kind(os.path.join(store, array)):
        _refuse_axes(store, rows)
        return csr_source(store, array, missing)
    if os.path.isdir(store):
        if node_kind(store) is None:
            _refuse_files(store)
        return matrix_at(store, array, missing=missing, rows=rows)
    _refuse_unread(store)
    return OPENERS[_suffix(store)](store, array, missing, rows)


def _require_readable(location: str) -> None:
    """Raise ``InputError`` if opening a location would fail, since it is missing or not read in place."""
    store, array = split_location(location)
    if matching_files(location) is not None or is_address(store):
        return
    require_path(store)
    if compressed_kind(os.path.join(store, array)):
        return
    if not os.path.isdir(store):
        _refuse_unread(store)
    elif node_kind(store) is None:
        _refuse_files(store)


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _refuse_unread(store: str) -> None:
    """Raise ``InputError`` for a file that is not read in place, with advice on what to do first."""
    if _suffix(store) in OPENERS:
        return
    importable = store.endswith(IMPORT_SUFFIXES)
    hint = f"; import it first: rankfold import {shell_words([store])} STORE.zarr" if importable else ""
    step = next((step for end, step in FIRST_STEPS.items() if store.lower().endswith(end)), None)
    if step is not None:
        stem = os.path.splitext(store)[0]
        words, folder = shell_words([store]), shell_words([stem])
        done = step.format(path=store, words=words, folder=folder, parquet=f"{stem}.parquet")
        raise InputError(f"{store} is not read as it is; {done}")
    raise InputError(
        f"{store} is neither a Zarr store (a folder) nor a file that is read in place, "
        f"{', '.join(OPENERS)}, nor a table, {', '.join(TABLE_ENDINGS)}{hint}"
    )


def _refuse_files(folder: str) -> None:
    """Raise ``InputError`` for a folder of files that are read in another way, with what to pass instead."""
    if files_at(folder) is not None:
        raise InputError(
            f"{folder} is a folder of Cell Ranger; import it first: rankfold import {shell_words([folder])} "
            "STORE.zarr"
        )
    with os.scandir(folder) as entries:
        files = [entry.name for entry in entries if not entry.name.startswith(".")]
    endings = {os.path.splitext(name)[1] for name in files}
    if len(endings) == 1 and (ending := endings.pop()) in (*OPENERS, *TABLE_ENDINGS):
        raise InputError(
            f"{folder} is a folder of {ending} files. To read them, say which: "
            f"'{os.path.join(folder, '*' + ending)}'"
        )


def _series(locations: Sequence[str], missing: str | None, rows: Rows) -> Source:
    """The matrices at several paths as one, their rows stacked in order. Options as for ``_matrix``."""
    return series(_name_of_several(locations), [_at(each, missing, rows) for each in locations])


def _name_of_several(locations: Sequence[str]) -> str:
    return locations[0] if len(locations) == 1 else f"{locations[0]} to {os.path.basename(locations[-1])}"


def _refuse_axes(name: str, rows: Rows) -> None:
    if rows is not None:
        raise InputError(f"{name} is a matrix already: leave out row_axes={rows!r} (--row-axes)")


def _npz(path: str, array: str, missing: str | None, rows: Rows) -> Source:
    _refuse_axes(path, rows)
    return npz_source(path, array)


def _big_ann(path: str, array: str, missing: str | None, rows: Rows) -> Source:
    _refuse_axes(path, rows)
    _refuse_array(path, array)
    return big_ann_source(path)


def _bed(path: str, array: str, missing: str | None, rows: Rows) -> Source:
    _refuse_axes(path, rows)
    _refuse_array(path, array)
    return bed_source(path)


def _refuse_array(path: str, array: str) -> None:
    if array:
        raise InputError(f"{path} is a file, not a Zarr store, so it holds no array {array}")


def _npy(path: str, array: str, missing: str | None, rows: Rows) -> Source:
    _refuse_array(path, array)
    return npy_matrix(path, rows)


def _hdf5(path: str, array: str, missing: str | None, rows: Rows) -> Source:
    return hdf5_matrix(path, array, missing=missing, rows=rows)


def _netcdf(path: str, array: str, missing: str | None, rows: Rows) -> Source:
    return netcdf_matrix(path, array, rows=rows)


OPENERS: dict[str, Callable[[str, str, str | None, Rows], Source]] = {
    ".npy": _npy,
    ".npz": _npz,
    **dict.fromkeys(TYPES, _big_ann),
    ".bed": _bed,
    **dict.fromkeys(HDF5_SUFFIXES, _hdf5),
    **dict.fromkeys(NETCDF_SUFFIXES, _netcdf),
}
"""Functions that open files, by suffix.

They are called with the path, the path within the file, ``missing_chunks`` and ``row_axes``.
"""


def _of_numpy(x: npt.NDArray[Any], rows: Rows) -> Source:
    """A NumPy array as a matrix whose rows are the axes that ``rows`` names; the others become columns."""
    axes = axis_names(x.shape, None)
    if row_axes("array", axes, x.shape, rows) == (0,) and x.ndim == 2:
        return array_source(x)
    return stack_volume(array_volume(x, axes), rows)


def _of_dask(x: Any, rows: Rows) -> Source:
    """A Dask array as a matrix whose rows are the axes that ``rows`` names; the others become columns."""
    axes = axis_names(x.shape, None)
    if row_axes("dask array", axes, x.shape, rows) == (0,) and x.ndim == 2:
        return dask_source(x)
    return stack_volume(dask_volume(x, axes), rows)


def _of_hdf5(dataset: Any, missing: str | None, rows: Rows) -> Source:
    """A dataset or group that the caller opened by h5py, opened again by its path; options: ``_matrix``."""
    if not dataset:
        raise InputError("the h5py object is of a file that was closed: give its path, FILE.h5::path/in/file")
    dataset.file.flush()
    return hdf5_matrix(dataset.file.filename, dataset.name.strip("/"), missing=missing, rows=rows)


def _of_kept_sparse(x: Any, missing: str | None) -> Source:
    """A sparse matrix that AnnData keeps on disk, read in place in a Zarr folder or HDF5 file, or loaded."""
    group = x.group
    root = getattr(getattr(group, "store", None), "root", None)
    if type(group).__module__.partition(".")[0] == "zarr" and root is not None:
        return csr_source(os.path.abspath(root), group.path, missing)
    if type(group).__module__.partition(".")[0] == "h5py":
        return hdf5_matrix(group.file.filename, group.name.strip("/"), missing=missing)
    return sparse_source(x.to_memory())


def _of_zarr(x: object, missing: str | None, rows: Rows) -> Source:
    """A Zarr array, or group, that the caller opened, as a matrix; ``InputError`` for other objects."""
    import zarr

    root = getattr(getattr(x, "store", None), "root", None)
    if isinstance(x, zarr.Group) and root is not None:  # in a folder, as by its path
        return _at(f"{os.path.abspath(root)}::{x.path}" if x.path else os.path.abspath(root), missing, rows)
    if isinstance(x, zarr.Group):
        raise InputError(
            f"{x} is a Zarr group, not an array; pass one of its arrays: {', '.join(x.array_keys())}"
        )
    if not isinstance(x, zarr.Array):
        raise InputError(f"cannot read a {type(x).__qualname__}; pass a zarr.Array or the path of its store")
    if root is not None:
        store, array = store_around(os.path.abspath(root), x.path)
        if array != x.path:  # opened by a path into a store
            return matrix_at(store, array, missing=missing, rows=rows)
    return matrix_of(x, missing=missing, rows=rows)
