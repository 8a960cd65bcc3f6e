"""xarray objects, and netCDF files read through xarray, which decodes scale, offset and missing values.

Data in memory and in Dask arrays are used directly. Data that xarray has only opened are read box by box:
indexing such a variable reads no more, and leaves the object as it was. Its ``values`` must never be
accessed: they would be loaded whole and kept.

The length of a classic netCDF file is compared with its header first: the library silently reads zeros
beyond the end of a truncated file. The format:
https://docs.unidata.ucar.edu/netcdf-c/current/file_format_specifications.html
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import math
import os
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np

from rankfold.pipeline.chunks.geometry import Piece, requests
from rankfold.pipeline.data.cf_attributes import (
    MARKS,
    OTHER_MARKS,
    SCALES,
    Attributes,
    Meaning,
    Unwritten,
    attributes_in,
    bounds_of_decoded,
    meaning_of,
)
from rankfold.pipeline.data.decoded import decode_volume
from rankfold.pipeline.data.dtypes import native, require_numbers
from rankfold.pipeline.data.grid import Grid, regular_grids
from rankfold.pipeline.data.named_objects import axes_of_array
from rankfold.pipeline.data.names import Axis, Named
from rankfold.pipeline.data.source import Source, Volume
from rankfold.pipeline.data.stacked import Rows, StackedSource, axis_names, row_axes, stack_volume, with_axes
from rankfold.pipeline.errors import ChunkError, InputError
from rankfold.pipeline.formats.arrays import array_source, array_volume
from rankfold.pipeline.formats.dask import dask_source, dask_volume
from rankfold.pipeline.formats.hdf5 import require_hdf5
from rankfold.pipeline.formats.naming import UNREADABLE, coordinate
from rankfold.pipeline.formats.open_files import (
    Handles,
    choose,
    file_fingerprint,
    file_version,
    library,
    list_names,
    netcdf_groups,
    open_netcdf,
)
from rankfold.pipeline.regular import open_regular

TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}
"""Bytes of a value by the code of its type in a classic file.

Codes are: byte, char, short, int, float, double, then those of CDF-5.
"""


class _Variable(NamedTuple):
    begin: int
    size: int
    record: bool


def expected_bytes(path: str) -> int:
    """Least size in bytes of a complete classic netCDF file; ``EOFError`` or ``ValueError`` if invalid."""
    with open_regular(path) as file:
        return _Header(file).length()


class _Header:
    """Header of a classic netCDF file; numbers are big-endian, names and values padded to 4 bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.size = file, file.seek(0, os.SEEK_END)
        file.seek(0)
        version = self._bytes(4)[3]
        self.count, self.offset = {1: (4, 4), 2: (4, 8), 5: (8, 8)}[version]
        self.records = self._number(self.count)
        self.streaming = self.records == 2 ** (8 * self.count) - 1
        self.dimensions = [self._dimension() for _ in range(self._list())]
        self._attributes()
        self.variables = [self._variable() for _ in range(self._list())]

    def length(self) -> int:
        """Number of bytes of the file up to the end of its last variable."""
        records = [variable for variable in self.variables if variable.record]
        # Records of a single variable are not padded.
        step = sum(_pad(each.size) for each in records) if len(records) > 1 else sum(r.size for r in records)
        ends = [v.begin + v.size for v in self.variables if not v.record]
        if self.records and not self.streaming:
            ends += [v.begin + (self.records - 1) * step + v.size for v in records]
        return max(ends, default=0)

    def _variable(self) -> _Variable:
        self._name()
        lengths = [self.dimensions[self._number(self.count)] for _ in range(self._number(self.count))]
        self._attributes()
        kind = TYPE_BYTES[self._number(4)]
        self._number(self.count)  # the size as stored, which overflows for large variables
        record = bool(lengths) and lengths[0] == 0
        return _Variable(self._number(self.offset), math.prod(lengths[record:]) * kind, record)

    def _dimension(self) -> int:
        self._name()
        return self._number(self.count)

    def _attributes(self) -> None:
        for _ in range(self._list()):
            self._name()
            kind = TYPE_BYTES[self._number(4)]
            self._skip(_pad(self._number(self.count) * kind))

    def _list(self) -> int:
        """Read the head of a list in the header, and return its number of elements."""
        self._number(4)  # kind of the elements
        return self._number(self.count)

    def _name(self) -> None:
        self._skip(_pad(self._number(self.count)))

    def _number(self, size: int) -> int:
        return int.from_bytes(self._bytes(size), "big")

    def _skip(self, size: int) -> None:
        """Skip ``size`` bytes; ``EOFError`` if the file ends before."""
        if self.file.tell() + size > self.size:
            raise EOFError("the header itself is cut short")
        self.file.seek(size, os.SEEK_CUR)

    def _bytes(self, size: int) -> bytes:
        read = self.file.read(size)
        if len(read) < size:
            raise EOFError("the header itself is cut short")
        return read


def _pad(size: int) -> int:
    return -(-size // 4) * 4


# Through xarray -----------------------------------------------------------------------------------


REQUEST_BYTES = 8 * 2**20
"""Largest number of bytes of chunks that are read together; a larger chunk is read by itself."""

DECODING = 4
"""Memory that xarray takes for a read, as a multiple of the bytes that it reads; measured.

It holds values as stored, with NaN, and scaled, and heaps keep some of what was freed.
"""

CACHE_BYTES = 64 * 2**20
"""Largest number of bytes of the chunk cache that the netCDF library allocates by default."""

OVERHEAD_BYTES = 4 * 2**20
"""Bytes of memory that the netCDF library and xarray take in addition to values and that cache."""

COMPRESSORS = ("zlib", "szip", "zstd", "bzip2", "blosc", "shuffle", "fletcher32")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class FileVariable:
    """A variable of a netCDF file, given by path and name.

    The file is opened when the variable is indexed.
    """

    path: str
    group: str
    name: str

    def __getitem__(self, key: Any) -> Any:
        return _handles(self.group).get(self, self.path)[self.name].variable[key]

    def axis(self, name: str, length: int) -> Axis:
        """Axis ``name`` of the variable, with labels of its group, or of the nearest around it with any."""
        group = self.group
        with contextlib.suppress(*UNREADABLE):
            while True:
                with _open(self.path, group) as dataset:
                    if name in dataset.variables:
                        found = dataset[name]
                        return Axis.of(name, length, coordinate(found.values, found.attrs), found.attrs)
                if not group:
                    break
                group = group.rpartition("/")[0]
        return Axis(name, length)

    def require_whole(self, name: str) -> None:
        """Raise ``ChunkError`` about ``name`` if the file is gone, cut short or cannot be opened."""
        try:
            _require_complete(self.path)
            self[...]
        except Exception as error:
            raise ChunkError(f"{name} cannot be read: {error}. Restore the file") from error

    def digest(self) -> str:
        """Digest of size and time of the file, and of the names of group and variable."""
        return file_fingerprint(self.path, self.group, self.name)


@dataclass(frozen=True, slots=True)
class LazyVariable:
    """A variable that the caller has opened with xarray."""

    variable: Any

    def __getitem__(self, key: Any) -> Any:
        return self.variable[key]

    def require_whole(self, name: str) -> None:
        """No-op: damage cannot be found without reading."""

    def digest(self) -> str:
        """Digest of how the values are computed from files, and of size and time of these files.

        Two slices of one array come from the same file, so the file alone is not enough.
        """
        digest = hashlib.blake2b(_recipe(self.variable), digest_size=16)
        source = str(self.variable.encoding.get("source", ""))
        for path in _files_below(source):
            digest.update(file_version(path).encode())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class XarrayVolume(Named):
    """A variable of xarray or of a netCDF file, read when it is indexed."""

    name: str
    variable: FileVariable | LazyVariable
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]
    whole: bool
    """True if chunks are decoded whole."""

    format: str
    codec: str
    unwritten: Unwritten | None = None
    """Value where nothing was written, if the variable has no attribute that marks missing values."""

    named: tuple[Axis, ...] = field(default=(), kw_only=True)
    attributes: Attributes = field(default_factory=dict, kw_only=True)

    def axis(self, number: int) -> Axis | None:
        """Axis ``number`` with its labels, which a file stores in other variables."""
        if not isinstance(self.variable, FileVariable):
            return Named.axis(self, number)
        return self.variable.axis(self.axes[number], self.shape[number])

    @property
    def path(self) -> str | None:
        """Path of the file; None for a variable that the caller has opened."""
        return self.variable.path if isinstance(self.variable, FileVariable) else None

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Native chunks along every axis."""
        return regular_grids(self.shape, self.chunks, splittable=not self.whole)

    def read_boxes(self, pieces: Sequence[Piece]) -> None:
        """Read every box into ``out`` of its piece; see ``Volume``."""
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
                if self.unwritten is not None:
                    self.unwritten.mask(self.name, out)

    def read_bytes(self, elements: int) -> int:
        """Upper bound in bytes on the memory of a read: values in all states of decoding, and a cache."""
        item = self.dtype.itemsize
        chunk = math.prod(self.chunks) * item if self.whole else 0
        cache = min(CACHE_BYTES, math.prod(self.shape) * item) if self.whole else 0
        return OVERHEAD_BYTES + cache + DECODING * max(chunk, min(REQUEST_BYTES, elements * item))

    def check(self) -> None:
        """Raise ``ChunkError`` for a file that is gone, cut short or cannot be opened."""
        self.variable.require_whole(self.name)

    def fingerprint(self) -> str:
        """Digest of shape and type, and of the file or files that the values come from."""
        text = f"{self.variable.digest()} {self.shape} {self.dtype.str}"
        return self.named_digest(hashlib.blake2b(text.encode(), digest_size=16).hexdigest())

    def stored_bytes(self) -> int:
        """Bytes of the file, which may hold other variables too; 0 without a file."""
        return os.path.getsize(self.path) if self.path else 0


def netcdf_matrix(path: str, text: str, *, rows: Rows = None) -> StackedSource:
    """Variable ``text`` of a netCDF file (if empty, the only one) as a matrix; its rows are axes ``rows``."""
    library("xarray", extra="xarray", what=f"reading {path}")
    group = text.rpartition("/")[0]
    try:
        _require_complete(path)
        with _open(path, group) as dataset:
            shapes = _shapes(dataset, group)
            if text not in shapes and all(len(shape) < 2 for shape in shapes.values()):
                among = _shapes_in_groups(path)
                if among.keys() - shapes.keys():
                    return netcdf_matrix(path, choose(path, text, among), rows=rows)
            _require_no_coordinate(path, text, dataset, shapes)
            name = choose(path, text, shapes).rpartition("/")[2]
            variable = FileVariable(os.path.abspath(path), group, name)
            volume = _volume(f"{path}::{text or name}", dataset[name].variable, variable)
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
    return stack_volume(volume, rows)


def _require_no_coordinate(path: str, text: str, dataset: Any, shapes: dict[str, tuple[int, ...]]) -> None:
    """Raise ``InputError`` if ``text``, a path in a file, names the coordinate of an axis, not a matrix."""
    leaf = text.rpartition("/")[2]
    if text not in shapes and leaf in dataset.coords:
        count = math.prod(dataset.coords[leaf].shape)
        raise InputError(
            f"{path}::{text} is the coordinate of an axis, {count} values; a matrix has two axes. "
            f"{list_names(path, shapes)}"
        )


def xarray_matrix(x: Any, *, rows: Rows = None) -> Source:
    """A DataArray as a matrix whose rows are the axes that ``rows`` names; ``InputError`` for a Dataset."""
    if hasattr(x, "data_vars"):
        names = ", ".join(f"{name} {dict(value.sizes)}" for name, value in list(x.data_vars.items())[:8])
        first = next(iter(x.data_vars), "NAME")
        raise InputError(
            f"an xarray Dataset holds several arrays; pass one of its variables, as x[{str(first)!r}]: "
            f"{names or 'it has none'}"
        )
    if not hasattr(x, "dims") or not hasattr(x, "variable"):
        raise InputError(f"cannot read an xarray {type(x).__name__}; pass a DataArray")
    found = with_axes(_of_array(x, rows), axes_of_array(x), attributes_in(x.attrs, of=x.name))
    if not isinstance(found, StackedSource):
        found = replace(found, dims=tuple(map(str, x.dims)))
    return cast(Source, found)


def _shapes(dataset: Any, group: str) -> dict[str, tuple[int, ...]]:
    """Shape of every variable of ``dataset``, the open group ``group`` of a file, by its path in the file."""
    within = f"{group}/" if group else ""
    return {f"{within}{name}": value.shape for name, value in dataset.data_vars.items()}


def _shapes_in_groups(path: str) -> dict[str, tuple[int, ...]]:
    """Shape of every variable of all groups of a file, by its path there."""
    shapes: dict[str, tuple[int, ...]] = {}
    for group in netcdf_groups(path):
        with _open(path, group) as dataset:
            shapes |= _shapes(dataset, group)
    return shapes


def _of_array(x: Any, rows: Rows) -> Source:
    name = f"xarray {x.name}" if x.name is not None else "xarray DataArray"
    axes = axis_names(x.shape, [str(axis) for axis in x.dims])
    first_of_two = row_axes(name, axes, x.shape, rows) == (0,) and x.ndim == 2
    if x.chunks is not None or x.variable._in_memory:
        _require_decoded(name, x)
        marks = _unseen_marks(name, x.dtype, x.encoding)
        if marks and (x.chunks is not None or np.isin(x.values, np.array(marks, x.dtype)).any()):
            x = x.where(~x.isin(np.array(marks, x.dtype)))
    if x.chunks is not None:
        return dask_source(x.data) if first_of_two else stack_volume(dask_volume(x.data, axes), rows)
    # Not public, but the only way to find out if values are in memory without loading them.
    if x.variable._in_memory:
        return array_source(x.values) if first_of_two else stack_volume(array_volume(x.values, axes), rows)
    return stack_volume(_volume(name, x.variable, LazyVariable(x.variable)), rows)


def _require_decoded(name: str, x: Any) -> None:
    """Raise ``InputError`` if values of the DataArray ``x``, in memory or of Dask, were not decoded.

    Their attributes say that they are packed, or they hold numbers that mark missing values.
    """
    said = _undecoded(x.attrs)
    if meaning_of(name, native(x.dtype), said) is not None:
        raise InputError(
            f"{name} was not decoded, or its attributes speak of other numbers: {', '.join(said)}. Decode it "
            "with xarray.decode_cf, or remove them"
        )
    others = {each: x.attrs[each] for each in OTHER_MARKS if each in x.attrs}
    meaning = meaning_of(name, native(x.dtype), others) if others and x.chunks is None else None
    if meaning is not None and any((x.values == mark).any() for mark in meaning.missing):
        raise InputError(
            f"{name} holds {meaning.missing[0]:g}, which its {next(iter(others))} says is missing: pass "
            f"x.where(x != {meaning.missing[0]:g})"
        )


def _undecoded(
    attributes: Mapping[str, Any], encoding: Mapping[str, Any] | None = None, name: str = ""
) -> dict[str, Any]:
    """The ones of ``attributes`` that may say that values are still to be decoded.

    These are attributes that xarray moves to ``encoding`` when it decodes a variable, and those that it does
    not know.

    ``encoding`` says how values that are not in memory were decoded; None for values in memory. ``name`` is
    that of the variable in the message.

    Raises
    ------
    InputError
        Values were scaled, and an attribute that xarray does not know names a stored number.
    """
    found = {each: attributes[each] for each in (*MARKS, *SCALES, "_Unsigned") if each in attributes}
    others = {each: attributes[each] for each in OTHER_MARKS if each in attributes and encoding is not None}
    if others and encoding is not None and any(each in encoding for each in SCALES):
        raise InputError(
            f"{name} has an attribute {next(iter(others))} that names a stored number, and is scaled: call "
            "it _FillValue, which xarray knows"
        )
    return found | others


def _volume(name: str, array: Any, variable: FileVariable | LazyVariable) -> Volume:
    """``Volume`` of ``array`` of xarray, read by indexing ``variable``; it decodes what xarray does not."""
    require_numbers(name, array.dtype)
    encoding = array.encoding
    sizes = encoding.get("chunksizes") or encoding.get("chunks")
    # A slice of an array keeps the encoding of all of it, with chunks that lie elsewhere.
    if sizes and (len(sizes) != array.ndim or encoding.get("original_shape", array.shape) != array.shape):
        sizes = None
    chunks = tuple(min(size, length) for size, length in zip(sizes or array.shape, array.shape, strict=True))
    names = [each for each in COMPRESSORS if encoding.get(each)]
    dtype = native(array.dtype)
    meaning = (
        meaning_of(name, dtype, array.attrs)
        if _undecoded(array.attrs, encoding, name)
        else bounds_of_decoded(name, dtype, array.attrs, encoding)
    )
    if marks := _unseen_marks(name, dtype, encoding):
        meaning = replace(meaning or Meaning(dtype), missing=marks)
    volume = XarrayVolume(
        name=name,
        variable=variable,
        shape=array.shape,
        axes=axis_names(array.shape, [str(axis) for axis in array.dims]),
        dtype=dtype,
        chunks=chunks,
        whole=sizes is not None,
        format="netCDF" if isinstance(variable, FileVariable) else "xarray, opened",
        codec=" + ".join(names) or "none",
        unwritten=_unwritten(array, variable),
        attributes=attributes_in(array.attrs, of=getattr(variable, "name", None)),
    )
    return decode_volume(volume, meaning)


def _unseen_marks(name: str, dtype: np.dtype[Any], encoding: Mapping[str, Any]) -> tuple[float | int, ...]:
    """Marks of missing values that xarray did not recognize when it decoded a variable, in the stored type.

    It compares float32 with a mark of 64 bits, such as 1e20, which equals none of them, and it compares
    numbers with a mark that is text. ``encoding`` is that of the variable of xarray.

    Raises
    ------
    InputError
        Values were scaled, so that the stored numbers are gone; or xarray cannot scale them.
    """
    for each in SCALES:
        if isinstance(encoding.get(each), str):
            raise InputError(
                f"{name} has a {each} that is text, {encoding[each]!r:.60}, by which xarray does not decode "
                "it: make it a number"
            )
    stored = np.dtype(encoding.get("dtype") or dtype)
    if stored.kind not in "iuf":
        return ()
    unseen: dict[float | int, str] = {}
    for each in ("_FillValue", "missing_value"):
        for number in np.atleast_1d(encoding.get(each, np.nan)).tolist():
            meaning = meaning_of(name, stored, {each: number})
            if meaning is not None and number not in meaning.missing:
                unseen |= dict.fromkeys(meaning.missing, each)
    if unseen and any(each in encoding for each in SCALES):
        mark, each = next(iter(unseen.items()))
        raise InputError(
            f"{name} is scaled, and xarray does not find the mark of missing values that its {each} gives, "
            f"{encoding[each]!r:.60}: make it a number of the stored type, {mark:g} of {stored}"
        )
    return tuple(sorted(unseen))


def _unwritten(array: Any, variable: FileVariable | LazyVariable) -> Unwritten | None:
    """Rule for the fill value that netCDF puts where nothing was written, in a variable of a netCDF file.

    ``array`` is the variable of xarray, ``variable`` what is indexed to read it. None for other stores, and
    if an attribute marks missing values.
    """
    encoding, attributes = array.encoding, array.attrs
    if not isinstance(variable, FileVariable) and not os.path.isfile(str(encoding.get("source", ""))):
        return None
    if any(each in attributes for each in (*MARKS, *OTHER_MARKS)):
        return None
    said = {each: encoding[each] for each in (*MARKS, *SCALES, "_Unsigned") if each in encoding}
    return Unwritten.of(np.dtype(encoding.get("dtype") or array.dtype), said)


def _require_complete(path: str) -> None:
    """Raise an error unless a file is netCDF and at least as long as its header states."""
    with open_regular(path) as file:
        head = file.read(3)
    if head != b"CDF":
        require_hdf5(path)
        return
    length, size = expected_bytes(path), os.path.getsize(path)
    if size < length:
        raise OSError(f"it is truncated: it holds {size} bytes, its header promises {length}")


def _open(path: str, group: str) -> Any:
    """Dataset of xarray for a group of a netCDF file; its times stay numbers, in whatever unit."""
    return open_netcdf(
        path,
        group=group,
        cache=False,
        decode_times=False,
        decode_timedelta=False,
        decode_coords=False,
    )


@functools.cache
def _handles(group: str) -> Handles:
    """Handles of this process for files of which the group ``group`` is read; made once for each group."""
    return Handles(functools.partial(_open, group=group))


class _Recipe(pickle.Pickler):
    """Pickles how values are computed, for a digest that is the same each time the files are opened.

    Files are pickled by name, and locks and ids that differ with each opening are left out.
    """

    def reducer_override(self, obj: Any) -> Any:
        """What is pickled in place of a file manager or lock; ``NotImplemented`` for all other objects."""
        from xarray.backends import FileManager

        if isinstance(obj, FileManager):
            return str, (repr(getattr(obj, "_args", "")),)
        if type(obj).__name__.endswith("Lock"):
            return str, ("lock",)
        return NotImplemented


def _recipe(variable: Any) -> bytes:
    buffer = io.BytesIO()
    recipe = _Recipe(buffer, protocol=5)
    # Without references to objects written before: equal objects must pickle the same as identical ones.
    recipe.fast = True
    try:
        recipe.dump(variable._data)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"this xarray object cannot be carried to workers ({error}); open it with chunks={{}}, which "
            "makes it a Dask array, or load() it"
        ) from error
    return buffer.getvalue()


def _files_below(source: str) -> list[str]:
    """Paths: ``source`` itself if it is a file, else all files below the folder ``source``."""
    if os.path.isfile(source):
        return [source]
    return sorted(os.path.join(folder, name) for folder, _, names in os.walk(source) for name in names)
