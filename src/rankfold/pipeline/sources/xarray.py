"""xarray objects, and netCDF files through xarray, which decodes scale, offset and missing values.

Data in memory and in Dask arrays are taken as what they are. Data that xarray has only opened are read
box by box: indexing such a variable reads no more, and leaves the object as it was. Its ``values`` must
never be asked for, they would be loaded whole and kept.
"""

from __future__ import annotations

import functools
import hashlib
import io
import math
import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankfold.pipeline.blocks import Grid
from rankfold.pipeline.errors import ChunkError, InputError
from rankfold.pipeline.source import Source
from rankfold.pipeline.sources.array_volumes import array_volume, dask_volume
from rankfold.pipeline.sources.axes import Rows, axis_names, row_axes
from rankfold.pipeline.sources.dask import dask_source
from rankfold.pipeline.sources.datasets import Handles, choose, file_fingerprint, file_version
from rankfold.pipeline.sources.hdf5 import require_hdf5
from rankfold.pipeline.sources.libraries import library
from rankfold.pipeline.sources.matrix import native, require_numbers
from rankfold.pipeline.sources.memory import array_source
from rankfold.pipeline.sources.netcdf3 import expected_bytes
from rankfold.pipeline.sources.stacked import StackedSource, stacked
from rankfold.pipeline.sources.volume import Piece, Volume, requests

REQUEST_BYTES = 8 * 2**20
"""Chunks smaller than this are read together."""

DECODING = 4
"""Times what is read that xarray takes, measured: as stored, with NaN, scaled, and what heaps keep."""

CACHE_BYTES = 64 * 2**20
"""Most that the netCDF library gives to a cache of chunks by itself."""

OVERHEAD_BYTES = 4 * 2**20
"""What the library and xarray hold besides."""

COMPRESSORS = ("zlib", "szip", "zstd", "bzip2", "blosc", "shuffle", "fletcher32")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class FileVariable:
    """A variable of a netCDF file, opened when it is indexed."""

    path: str
    group: str
    name: str

    def __getitem__(self, key: Any) -> Any:
        return _handles(self.group).get(self, self.path)[self.name].variable[key]

    def require_whole(self, name: str) -> None:
        """Raise ``ChunkError`` if the file is gone, cut short or cannot be opened."""
        try:
            _require_complete(self.path)
            self[...]
        except Exception as error:
            raise ChunkError(f"{name} cannot be read: {error}. Restore the file") from error

    def digest(self) -> str:
        """Digest of size and time of the file."""
        return file_fingerprint(self.path, self.group, self.name)


@dataclass(frozen=True, slots=True)
class LazyVariable:
    """A variable that someone has opened with xarray."""

    variable: Any

    def __getitem__(self, key: Any) -> Any:
        return self.variable[key]

    def require_whole(self, name: str) -> None:
        """Nothing can be seen without reading."""

    def digest(self) -> str:
        """Digest of how the values come about, and of size and time of the files that they come from.

        A slice of an array and another slice have the same file, so the file is not enough.
        """
        digest = hashlib.blake2b(_recipe(self.variable), digest_size=16)
        source = str(self.variable.encoding.get("source", ""))
        for path in _files_below(source):
            digest.update(file_version(path).encode())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class XarrayVolume:
    """A variable that is read when it is indexed."""

    name: str
    variable: FileVariable | LazyVariable
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]
    whole: bool
    """Whether chunks are decoded whole."""

    format: str
    codec: str

    @property
    def path(self) -> str | None:
        """The file, if there is one."""
        return self.variable.path if isinstance(self.variable, FileVariable) else None

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Native chunks along every axis."""
        return tuple(
            Grid.regular(length, chunk, splittable=not self.whole)
            for length, chunk in zip(self.shape, self.chunks, strict=True)
        )

    def read_boxes(self, pieces: Sequence[Piece]) -> None:
        """Copy every box to its place; see ``Volume``."""
        unit = self.chunks if self.whole else (1,) * len(self.shape)
        for piece in pieces:
            for box, out in requests(piece, unit, REQUEST_BYTES // self.dtype.itemsize):
                try:
                    out[...] = self.variable[tuple(slice(*span) for span in box)].values
                except MemoryError:
                    raise
                except Exception as error:
                    where = ", ".join(f"{axis} {a}:{b}" for axis, (a, b) in zip(self.axes, box, strict=True))
                    raise ChunkError(
                        f"{self.name} cannot be read ({where}): {type(error).__name__}: {error}. "
                        "Restore the file"
                    ) from error

    def read_bytes(self, elements: int) -> int:
        """What is read at once in every state of decoding, and the cache of the library."""
        item = self.dtype.itemsize
        chunk = math.prod(self.chunks) * item if self.whole else 0
        cache = min(CACHE_BYTES, math.prod(self.shape) * item) if self.whole else 0
        return OVERHEAD_BYTES + cache + DECODING * max(chunk, min(REQUEST_BYTES, elements * item))

    def check(self) -> None:
        """Raise ``ChunkError`` for a file that is gone, cut short or cannot be opened."""
        self.variable.require_whole(self.name)

    def fingerprint(self) -> str:
        """Digest of shape and type and of where the values come from."""
        text = f"{self.variable.digest()} {self.shape} {self.dtype.str}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def stored_bytes(self) -> int:
        """Bytes of the file, of which the variable may be a part."""
        return os.path.getsize(self.path) if self.path else 0


def netcdf_matrix(path: str, asked: str, *, rows: Rows = None) -> StackedSource:
    """A variable of a netCDF file as a matrix whose rows are the axes that ``rows`` names."""
    library("xarray", extra="xarray", what=f"reading {path}")
    group, _, wanted = asked.rpartition("/")
    try:
        _require_complete(path)
        with _opened(path, group) as dataset:
            name = choose(path, wanted, {str(key): value.shape for key, value in dataset.data_vars.items()})
            variable = FileVariable(os.path.abspath(path), group, name)
            volume = _volume(f"{path}::{asked or name}", dataset[name].variable, variable)
    except InputError:
        raise
    except ValueError as error:
        if "engine" not in str(error) and "backend" not in str(error):
            raise ChunkError(f"{path} cannot be opened: {error}. Is it complete?") from error
        raise InputError(
            f"reading {path} needs netCDF4 or h5netcdf beside xarray: pip install netCDF4"
        ) from error
    except (OSError, EOFError, RuntimeError, LookupError) as error:
        raise ChunkError(f"{path} cannot be opened: {error}. Is it complete?") from error
    return stacked(volume, rows)


def xarray_matrix(x: Any, *, rows: Rows = None) -> Source:
    """An xarray object as a matrix."""
    if hasattr(x, "data_vars"):
        shown = ", ".join(f"{name} {dict(value.sizes)}" for name, value in list(x.data_vars.items())[:8])
        first = next(iter(x.data_vars), "NAME")
        raise InputError(
            f"an xarray Dataset holds several arrays; pass one of its variables, as x[{str(first)!r}]: "
            f"{shown or 'it has none'}"
        )
    if not hasattr(x, "dims") or not hasattr(x, "variable"):
        raise InputError(f"cannot read an xarray {type(x).__name__}; pass a DataArray")
    name = f"xarray {x.name}" if x.name is not None else "xarray DataArray"
    axes = axis_names(x.shape, [str(axis) for axis in x.dims])
    first_of_two = row_axes(name, axes, x.shape, rows) == (0,) and x.ndim == 2
    if x.chunks is not None:
        return dask_source(x.data) if first_of_two else stacked(dask_volume(x.data, axes), rows)
    # Not public, but the only way to ask whether values are here without fetching them.
    if x.variable._in_memory:
        return array_source(x.values) if first_of_two else stacked(array_volume(x.values, axes), rows)
    return stacked(_volume(name, x.variable, LazyVariable(x.variable)), rows)


def _volume(name: str, found: Any, variable: FileVariable | LazyVariable) -> Volume:
    """A variable that xarray has opened, as a description."""
    require_numbers(name, found.dtype)
    encoding = found.encoding
    sizes = encoding.get("chunksizes") or encoding.get("chunks")
    # A slice of an array keeps the encoding of all of it, with chunks that lie elsewhere.
    if sizes and (len(sizes) != found.ndim or encoding.get("original_shape", found.shape) != found.shape):
        sizes = None
    chunks = tuple(min(size, length) for size, length in zip(sizes or found.shape, found.shape, strict=True))
    names = [each for each in COMPRESSORS if encoding.get(each)]
    return XarrayVolume(
        name=name,
        variable=variable,
        shape=found.shape,
        axes=axis_names(found.shape, [str(axis) for axis in found.dims]),
        dtype=native(found.dtype),
        chunks=chunks,
        whole=sizes is not None,
        format="netCDF" if isinstance(variable, FileVariable) else "xarray, opened",
        codec=" + ".join(names) or "none",
    )


def _require_complete(path: str) -> None:
    """Raise unless a file is netCDF and as long as it says, as far as that can be seen."""
    with open(path, "rb") as file:
        head = file.read(3)
    if head != b"CDF":
        require_hdf5(path)
        return
    expected, size = expected_bytes(path), os.path.getsize(path)
    if size < expected:
        raise OSError(f"it is truncated: it holds {size} bytes, its header promises {expected}")


def _opened(path: str, group: str) -> Any:
    """The data set. Nothing but the values is decoded: times need not be known."""
    import xarray

    return xarray.open_dataset(
        path,
        group=group or None,
        cache=False,
        decode_times=False,
        decode_timedelta=False,
        decode_coords=False,
    )


@functools.cache
def _handles(group: str) -> Handles:
    """Open files, by the group that is read in them."""
    return Handles(functools.partial(_opened, group=group))


class _Recipe(pickle.Pickler):
    """Pickles how values come about: files by name, without locks and what every opening draws anew."""

    def reducer_override(self, obj: Any) -> Any:
        """What stands for an object, or ``NotImplemented`` for what it would be anyway."""
        from xarray.backends import FileManager

        if isinstance(obj, FileManager):
            return str, (repr(getattr(obj, "_args", "")),)
        if type(obj).__name__.endswith("Lock"):
            return str, ("lock",)
        return NotImplemented


def _recipe(variable: Any) -> bytes:
    written = io.BytesIO()
    recipe = _Recipe(written, protocol=5)
    # Without references to what was written before: whether equal things are one thing must not count.
    recipe.fast = True
    try:
        recipe.dump(variable._data)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"this xarray object cannot be carried to workers ({error}); open it with chunks={{}}, which "
            "makes it a Dask array, or load() it"
        ) from error
    return written.getvalue()


def _files_below(source: str) -> list[str]:
    """A file, or all files of a folder."""
    if os.path.isfile(source):
        return [source]
    return sorted(os.path.join(folder, name) for folder, _, names in os.walk(source) for name in names)
