"""Whatever a user may point at, as a ``Source``.

    zarr.py      arrays in a Zarr folder          npy.py       .npy files
    dask.py      Dask arrays                      memory.py    NumPy arrays
    locate.py    STORE::array, or what is there   matrix.py    what counts as a matrix
    big_ann.py   .fbin, .u8bin, .i8bin           npz.py       .npz files that are not compressed
    csr.py       sparse groups in Zarr           converted.py another type, as it is read
    rectangle.py positioned reads of files        chunk_files.py, encoding.py, shard.py, zarr_codecs.py,
                                                  vector.py, zarr_layout.py    the parts of a Zarr array

Neither Zarr nor Dask is imported before it is needed: a Dask array is known by the module of its type.
"""

from __future__ import annotations

import os

import numpy as np

from rankfold.pipeline.errors import InputError
from rankfold.pipeline.source import Source
from rankfold.pipeline.sources.big_ann import TYPES, big_ann_source
from rankfold.pipeline.sources.csr import compressed_kind, csr_source
from rankfold.pipeline.sources.dask import dask_source
from rankfold.pipeline.sources.locate import require_path, split_location
from rankfold.pipeline.sources.memory import array_source
from rankfold.pipeline.sources.npy import npy_source
from rankfold.pipeline.sources.npz import npz_source
from rankfold.pipeline.sources.zarr_layout import source_at, source_of

__all__ = ["open_source"]

MISSING = ("error", "fill")

IMPORTED = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq", ".mtx", ".mtx.gz", ".h5ad")
"""Ends of names of what an import reads, but only from the beginning."""


def open_source(x: object, *, missing: str = "error") -> Source:
    """Open a matrix.

    Parameters
    ----------
    x : str, path, array or Source
        ``STORE`` or ``STORE::path/in/group`` for a Zarr store in a folder, a ``.npy`` file, a NumPy,
        Zarr or Dask array. A ``Source`` is handed back as it is.
    missing : {"error", "fill"}
        What a Zarr chunk without a file is: an error, or its fill value.

    Raises
    ------
    InputError
        ``x`` is not a matrix of a supported type; ``SourceNotFoundError`` if it is not there.
    """
    if missing not in MISSING:
        raise InputError(f"missing={missing!r} is not known; say one of {', '.join(map(repr, MISSING))}")
    if isinstance(x, str | os.PathLike):
        return _at(os.fspath(x), missing)
    if isinstance(x, np.ndarray):
        return array_source(x)
    module = type(x).__module__.partition(".")[0]
    if module == "dask" and hasattr(x, "blocks"):
        return dask_source(x)
    if module == "zarr":
        return _of_zarr(x, missing)
    if isinstance(x, Source):
        return x
    raise InputError(
        f"cannot read a {module}.{type(x).__qualname__}; give the path of a Zarr store or .npy file, "
        "or a NumPy, Zarr or Dask array"
    )


def _at(location: str | bytes, missing: str) -> Source:
    """What lies at a path."""
    store, array = split_location(os.fsdecode(location))
    require_path(store)
    if compressed_kind(os.path.join(store, array)):
        return csr_source(store, array)
    if store.endswith(".npz"):
        return npz_source(store, array)
    if os.path.isdir(store):
        return source_at(store, array, missing=missing)
    if array:
        raise InputError(f"{store} is a file, not a Zarr store, so it holds no array {array}")
    if os.path.splitext(store)[1] in TYPES:
        return big_ann_source(store)
    if not store.endswith(".npy"):
        hint = f"; import it first: rankfold import {store} STORE.zarr" if store.endswith(IMPORTED) else ""
        raise InputError(f"{store} is neither a Zarr store (a folder) nor a .npy file{hint}")
    return npy_source(store)


def _of_zarr(x: object, missing: str) -> Source:
    """A Zarr object that someone has opened."""
    import zarr

    if isinstance(x, zarr.Group):
        raise InputError(
            f"{x} is a Zarr group, not an array; pass one of its arrays: {', '.join(x.array_keys())}"
        )
    if not isinstance(x, zarr.Array):
        raise InputError(f"cannot read a {type(x).__qualname__}; pass a zarr.Array or the path of its store")
    return source_of(x, missing=missing)
