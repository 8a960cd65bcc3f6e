"""Common parts of HDF5 and netCDF files: choice of a dataset, open files, coordinates, columns of AnnData.

A file is opened when a dataset is first read, and stays open as long as the description of the dataset
exists. Opening it for every read takes milliseconds. If it stayed open longer, this process could not write
the file again.

Optional libraries are imported when a source needs one; if one is missing, the error says how to install it.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import importlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.named_objects import names_of_values
from rankfold.pipeline.data.names import Names, distinct, find_places
from rankfold.pipeline.data.origin import names_of
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import (
    ChunkError,
    InputError,
    RankfoldError,
    SeveralArraysError,
    SourceNotFoundError,
)
from rankfold.pipeline.formats.frame_columns import column_of, columns_of, text_of
from rankfold.pipeline.formats.locate import (
    is_address,
    matching_files,
    node_kind,
    require_path,
    split_location,
    store_around,
)
from rankfold.pipeline.regular import is_regular, require_regular

MOST_NAMES = 8
"""Largest number of datasets that a message names."""

Shapes = Mapping[str, tuple[int, ...]]
"""Shape of every dataset by its path in the file."""


def choose(path: str, text: str, shapes: Shapes) -> str:
    """Path of the dataset that ``text`` names, or of the only one of two axes or more if it is empty.

    ``shapes`` are those of the datasets of the file at ``path``, which an ``InputError`` lists otherwise.
    """
    if text in shapes:
        return text
    wide = {name: shape for name, shape in shapes.items() if len(shape) >= 2}
    if text:
        near = difflib.get_close_matches(text, wide or shapes, n=1)
        hint = f" Did you mean {path}::{near[0]}?" if near else ""
        raise SourceNotFoundError(f"{path} has no dataset {text}.{hint} {list_names(path, shapes)}")
    if len(wide) == 1:
        return next(iter(wide))
    message = f"{path} holds several datasets or none. {list_names(path, shapes)}"
    raise SeveralArraysError.of(message, _in_order(wide)) if wide else InputError(message)


def list_names(path: str, shapes: Shapes) -> str:
    """Sentence that lists the datasets of the file at ``path``, those with most axes first.

    Vectors are listed only if there is nothing else.
    """
    if not shapes:
        return "It holds no datasets"
    shapes = {name: shape for name, shape in shapes.items() if len(shape) >= 2} or shapes
    names = _in_order(shapes)
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    lines = ", ".join(f"{name} {shapes[name]}" for name in names[:MOST_NAMES])
    return f"It holds {lines}{more}. Name one: {path}::{names[0]}"


def _in_order(shapes: Shapes) -> list[str]:
    return sorted(shapes, key=lambda name: (-len(shapes[name]), name))


class Handles:
    """Open files of this process, one for each owner, closed when the owner is garbage collected."""

    def __init__(self, opener: Callable[[str], Any]) -> None:
        self.opener = opener
        self.lock = threading.Lock()
        self.entries: weakref.WeakKeyDictionary[Any, tuple[object, Any]] = weakref.WeakKeyDictionary()

    def get(self, owner: Any, path: str) -> Any:
        """The open file that belongs to ``owner``: what ``opener`` returns for ``path``.

        It is opened at the first call, and again if the file has changed.
        """
        version = os.getpid(), file_version(path)
        with self.lock:
            entry = self.entries.get(owner)
            if entry is None or entry[0] != version:
                require_regular(path)
                entry = self.entries[owner] = version, self.opener(path)
        return entry[1]

    def close(self, path: str) -> None:
        """Close a file for all owners in this process; the next read opens it again."""
        with self.lock:
            for owner, (_, file) in list(self.entries.items()):
                if os.path.abspath(file.filename) == os.path.abspath(path):
                    file.close()
                    del self.entries[owner]


def file_version(path: str) -> str:
    """Text of size and modification time of a file, which changes once the file is rewritten."""
    state = os.stat(path)
    return f"{state.st_size} {state.st_mtime_ns}"


def file_fingerprint(path: str, *facts: object) -> str:
    """Digest of size and time of a file, and of the text of ``facts`` about a dataset in it."""
    text = " ".join(map(str, (file_version(path), *facts)))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


# Optional libraries -------------------------------------------------------------------------------


PACKAGES = {"xarray": "xarray netCDF4"}
"""Packages to install, by library, if the library needs others to be useful."""


def library(module: str, *, extra: str, what: str) -> Any:
    """Import a module of an optional library.

    If it is missing, an ``InputError`` says that ``what`` needs it, and that the ``extra`` of rankfold
    installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise InputError(
            f"{what} needs {package}, which cannot be imported ({error}): pip install "
            f"{PACKAGES.get(package, package)} (part of the extra {extra!r})"
        ) from error


def open_hdf5(path: str | os.PathLike[str], mode: str = "r", **flags: Any) -> Any:
    """Open an HDF5 file whose external links lead to regular files: HDF5 follows these links when reading.

    ``mode`` and ``flags`` are those of ``h5py.File``, which is returned.

    Raises
    ------
    UnfitFileError
        The path, or a target of one of its links, is something else than a regular file.
    ChunkError
        It is damaged.
    """
    h5py = library("h5py", extra="formats", what=f"reading {path}")
    require_regular(path)
    file, places = h5py.File(path, mode, **flags), set[str]()

    def look(name: str, link: Any) -> None:
        if isinstance(link, h5py.ExternalLink):
            places.add(beside(path, link.filename))

    try:
        file.visititems_links(look)
        for place in sorted(places):
            is_regular(place)
    except (RuntimeError, SystemError) as error:  # links that lead out of the file; h5py raises both
        file.close()
        raise ChunkError(f"{path} cannot be opened: {error}. Is it complete?") from error
    except BaseException:
        file.close()
        raise
    return file


NETCDF_SUFFIXES = (".nc", ".nc4")
"""Endings of names of netCDF files."""


def open_netcdf(path: str, *, group: str = "", **options: Any) -> Any:
    """Open a group of a netCDF file with xarray; all groups and variables of a file share one handle.

    HDF5 ends the process if a file is opened, opened again, its text read through the second handle, this
    handle closed, and the file opened once more: https://github.com/HDFGroup/hdf5/issues/5359. Therefore
    this process never has two handles of a file.

    ``options`` are those of ``xarray.open_dataset``.
    """
    xarray = library("xarray", extra="xarray", what=f"reading {path}")
    try:
        store = _netcdf_store(path, group)
    except ImportError:  # xarray reads with h5netcdf or SciPy then
        return xarray.open_dataset(path, group=group or None, **options)
    return xarray.open_dataset(store, **options)


def netcdf_groups(path: str) -> list[str]:
    """Paths of all groups in a netCDF file, the outer ones first; that of the file itself is empty."""
    try:
        with contextlib.closing(_netcdf_store(path, "")) as store:
            return list(_groups_below(store.ds))
    except ImportError:
        xarray = library("xarray", extra="xarray", what=f"reading {path}")
        groups = xarray.open_groups(path, cache=False, decode_times=False)
        for dataset in groups.values():
            dataset.close()
        return [group.strip("/") for group in groups]


def _groups_below(group: Any, path: str = "") -> Iterator[str]:
    yield path
    for name, inner in group.groups.items():
        yield from _groups_below(inner, f"{path}/{name}".strip("/"))


def _netcdf_store(path: str, group: str) -> Any:
    """Store of xarray for a group of a netCDF file; all stores of one version of a file share a handle."""
    netcdf4, xarray = (importlib.import_module(each) for each in ("netCDF4", "xarray.backends.netCDF4_"))
    place, lock = os.path.abspath(path), xarray.NETCDF4_PYTHON_LOCK
    handle = f"rankfold {os.getpid()} {file_version(place)}"
    manager = xarray.CachingFileManager(netcdf4.Dataset, place, mode="r", lock=lock, manager_id=handle)
    return xarray.NetCDF4DataStore(manager, group=group or None, mode="r", lock=lock)


def require_regular_parts(path: str, dataset: Any) -> None:
    """Raise ``UnfitFileError`` unless other files that hold parts of an HDF5 dataset are regular."""
    parts = [name for name, *_ in dataset.external or ()]
    parts += [part.file_name for part in dataset.virtual_sources()] if dataset.is_virtual else []
    for part in sorted({*parts} - {"."}):
        for place in (part, beside(path, part)):  # relative to the working folder, or to that of the file
            is_regular(place)


def beside(path: str | os.PathLike[str], name: str) -> str:
    """Path of a file that another one names by its place in the same folder, or by an absolute path."""
    return os.path.join(os.path.dirname(os.path.abspath(path)), name)


# Coordinates --------------------------------------------------------------------------------------


@contextlib.contextmanager
def opened(like: Any, along: str | None = None) -> Iterator[Any]:
    """Yield a DataArray, open during the block.

    ``like`` is a DataArray, the path ``FILE::variable``, or such a path with ``*`` for several files. These
    are concatenated along the axis ``along``, by default the first.
    """
    if not isinstance(like, str | os.PathLike):
        yield like
        return
    xarray = library("xarray", extra="xarray", what=f"reading coordinates of {like}")
    places = matching_files(os.fsdecode(like)) or [os.fsdecode(like)]
    with contextlib.ExitStack() as files:
        parts = [_variable(xarray, place, files) for place in places]
        if len(parts) == 1:
            yield parts[0]
            return
        # Numbers are not read, only coordinates; those along other axes are taken from the first file.
        first = {"coords": "minimal", "compat": "override", "join": "override", "combine_attrs": "override"}
        yield xarray.concat([part.chunk() for part in parts], along or parts[0].dims[0], **first)


def _variable(xarray: Any, place: str, files: contextlib.ExitStack) -> Any:
    """The variable at the location ``place``, ``STORE::name``, as a DataArray, open until ``files`` close."""
    store, name = store_around(*split_location(place))
    require_path(store)
    if not os.path.isdir(store):
        require_regular(store)
    group, _, leaf = name.rpartition("/")
    open_ = xarray.open_zarr if os.path.isdir(store) else xarray.open_dataset
    # netCDF-4 is HDF5 under any name, and xarray chooses its engine by the ending of the name.
    if os.path.splitext(store)[1].lower() in (*NETCDF_SUFFIXES, ".h5", ".hdf5"):
        open_ = open_netcdf
    try:
        try:
            dataset = files.enter_context(open_(store, group=group))
        except ValueError:  # times in units that xarray does not decode, such as months, stay numbers
            dataset = files.enter_context(open_(store, group=group, decode_times=False))
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"xarray cannot open {store}: {error}") from error
    if not leaf and len(dataset) == 1:
        return dataset[next(iter(dataset))]
    if leaf not in dataset:
        which = f"no variable {name!r}" if leaf else "not one variable"
        example = "" if leaf or not len(dataset) else f": name one, as {store}::{next(iter(dataset))}"
        raise InputError(f"{store} has {which}; it has {', '.join(map(str, dataset))}{example}")
    return dataset[leaf]


@dataclass(frozen=True, slots=True)
class Coordinate:
    """A coordinate of a DataArray: names of its axes, its values, and their units (empty if not given)."""

    axes: tuple[str, ...]
    values: npt.NDArray[np.float64]
    units: str

    @classmethod
    def of(cls, found: Any) -> Coordinate:
        """Convert a coordinate of xarray."""
        units = found.attrs.get("units", "")
        return cls(tuple(map(str, found.dims)), np.asarray(found.values, np.float64), str(units))


def coordinate_of(x: Any, axis: str) -> Coordinate:
    """The coordinate of an axis of a DataArray, or of the variable at a path, as xarray reads it."""
    place = os.fsdecode(x) if isinstance(x, str | os.PathLike) else None
    with opened(x) as data:
        coordinates = getattr(data, "coords", {})
        if axis not in coordinates:
            names = ", ".join(map(str, coordinates)) or "none"
            raise InputError(f"{place or 'the data'} has no coordinate {axis!r}; it has {names}")
        return Coordinate.of(coordinates[axis])


def plane_of(x: Any, name: str) -> Coordinate | None:
    """The coordinate ``name`` of a DataArray, or variable at a path, if it has axes of other names; or None.

    Such as ``lat(y, x)`` of curvilinear grids, or ``lat(ncells)`` of unstructured ones.
    """
    with _coordinates(x) as known:
        found = known.get(name)
        return None if found is None or found.dims in ((), (name,)) else Coordinate.of(found)


def coordinates_of(x: Any) -> dict[str, str]:
    """The ``standard_name`` (or empty) of each coordinate with an axis, of a DataArray or variable at a path.

    It is by the name of the coordinate.
    """
    with _coordinates(x) as known:
        return {
            str(name): str(each.attrs.get("standard_name", "")) for name, each in known.items() if each.dims
        }


@contextlib.contextmanager
def _coordinates(x: Any) -> Iterator[Mapping[Any, Any]]:
    """Yield the coordinates, by name, of a DataArray or of the variable at a path, the first of several.

    Empty for anything else.
    """
    if isinstance(x, list | tuple) and x and isinstance(x[0], str | os.PathLike):
        x = x[0]
    if isinstance(x, str | os.PathLike):
        x = (matching_files(os.fsdecode(x)) or [os.fsdecode(x)])[0]
        if is_address(x) or ("::" not in x and not x.endswith(NETCDF_SUFFIXES)):
            x = None
    with contextlib.ExitStack() as files:
        data = None
        if isinstance(x, str) or hasattr(x, "coords"):
            with contextlib.suppress(InputError):  # files that xarray cannot open have no coordinates
                data = files.enter_context(opened(x))
        yield getattr(data, "coords", {})


def annotation_of(x: Any, part: str, name: str) -> tuple[npt.NDArray[Any], str]:
    """Values of a column of ``obs`` or ``var`` of AnnData, and their type as text.

    ``x`` is an AnnData object, or the path of a file or store; ``part`` is ``obs`` or ``var``, ``name`` that
    of the column. The array of values may be empty if they are not booleans.
    """
    if not isinstance(x, str | os.PathLike):
        frame: Any = getattr(x, part, None)
        if not hasattr(frame, "columns"):
            raise InputError(
                f"{name!r} names a column of {part}, and a {type(x).__qualname__} has no {part}. Give an "
                "array of True and False"
            )
        _require_column(f"the {type(x).__qualname__}", part, name, frame.columns)
        column = frame[name]
        kind = str(column.dtype)
        return np.asarray(column.fillna(False).to_numpy(bool) if kind == "boolean" else column), kind
    store, array = store_around(*split_location(os.fsdecode(x)))
    require_path(store)
    part = f"raw/{part}" if array.startswith("raw/") and part == "var" else part
    with refuse_damage(store), _annotated(store) as root:
        if part not in root:
            raise InputError(
                f"{store} has no {part}, in which {name!r} is to be. Give an array of True and False"
            )
        frame = root[part]
        _require_column(store, part, name, columns_of(frame))
        column = column_of(frame, name)
        if hasattr(column, "shape"):
            is_category = "categories" in getattr(column, "attrs", ())  # before AnnData 0.8
            return np.asarray(column[...]), "category" if is_category else str(column.dtype)
        if {"values", "mask"} <= set(column):  # of pandas' nullable types
            values = np.asarray(column["values"][...])
            absent = np.asarray(column["mask"][...], np.bool_)
            return values & ~absent if values.dtype == np.bool_ else values, str(values.dtype)
        kind = text_of(column.attrs.get("encoding-type")) or "a group"
        return np.empty(0, object), "category" if "categories" in column else kind


@contextlib.contextmanager
def refuse_damage(place: str) -> Iterator[None]:
    """Turn any error of a library in the block, about a damaged file or store, into ``ChunkError``.

    ``place`` is the name of the file or store in its message.
    """
    try:
        yield
    except (RankfoldError, MemoryError):
        raise
    except Exception as error:
        raise ChunkError(f"{place} cannot be read: {type(error).__name__}: {error}. Restore it") from error


@contextlib.contextmanager
def _annotated(store: str) -> Iterator[Any]:
    """Yield the root group of an HDF5 file, or of a Zarr store in a folder, open during the block."""
    if os.path.isdir(store):
        from rankfold.pipeline.chunks.regular_store import zarr_group

        if node_kind(store) != "group":
            raise InputError(f"{store} is no group of AnnData. Give an array of True and False")
        yield zarr_group(store, consolidated=False)
        return
    try:
        file = open_hdf5(store)
    except OSError as error:
        raise InputError(
            f"{store} has no obs and var: it is not HDF5. Give an array of True and False"
        ) from error
    with file:
        yield file


def _require_column(place: str, part: str, name: str, names: Any) -> None:
    known = [str(each) for each in names]
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1)
    hint = f". Did you mean {near[0]}?" if near else f"; it has {', '.join(known[:MOST_NAMES]) or 'none'}"
    raise InputError(f"{part} of {place} has no column {name!r}{hint}")


def mask_of(x: Any, part: str, mask: Any, source: Source) -> npt.NDArray[np.bool_]:
    """Boolean mask (n,) of the rows (``part`` is ``obs``) or columns (``var``) of the matrix ``source``.

    ``mask`` is the mask, or the name of a column of ``obs`` or ``var`` of AnnData; ``x`` is the object or
    path of AnnData that ``source`` was opened from.
    """
    axis = ("obs", "var").index(part)
    what, length = ("rows", "columns")[axis], source.shape[axis]
    if isinstance(mask, str):
        values, kind = annotation_of(x, part, mask)
        if values.dtype != np.bool_:
            raise InputError(f"mask_{part}={mask!r} is a column of {kind}, not of True and False")
    else:
        values = by_name(mask, source, axis, f"mask_{part}")
        if values.dtype != np.bool_ or values.ndim != 1:
            raise InputError(
                f"mask_{part} must be a name, or True or False for each of the {what}, not {values.dtype} of "
                f"shape {values.shape}"
            )
    if len(values) != length:
        raise InputError(f"mask_{part} says True or False {len(values)} times, and there are {length} {what}")
    return values


def by_name(values: Any, source: Source, axis: int, whose: str) -> npt.NDArray[Any]:
    """``values`` as an array (n,), one for each row (``axis`` 0) or column (1) of the matrix ``source``.

    A Series or DataArray is brought into the order of the matrix by its names. ``whose`` names the values in
    messages.
    """
    own, found = names_of_values(values), np.asarray(values)
    wanted = names_of(source, axis) if own is not None and found.ndim == 1 else None
    if own is not None and wanted is not None and not own.is_like(wanted):
        own = Names(tuple(map(distinct, own.axes)))  # as is done for names of cells and genes
    places = find_places(own, wanted, ("row", "column")[axis], whose, source.name)
    return found if places is None else found[places]
