"""Datasets in HDF5 files, of any number of axes, through h5py.

A description holds the path. Its file stays open from the first read as long as the description exists. HDF5
has one global lock, so threads take turns. Its cache of chunks is kept small: reads are cut along the chunks.

HDF5 silently reads chunks that were never written as fill value: ``check`` counts the chunks that exist.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.absence import Absence, chunk_count
from rankfold.pipeline.chunks.geometry import Piece, Span, requests
from rankfold.pipeline.data.cf_attributes import (
    MARKS,
    NAMES,
    OTHER_MARKS,
    SCALES,
    Attributes,
    Unwritten,
    attributes_in,
    meaning_of,
    say_fill,
)
from rankfold.pipeline.data.decoded import decode_volume
from rankfold.pipeline.data.dtypes import native, require_matrix, require_numbers
from rankfold.pipeline.data.grid import Grid, regular_grids
from rankfold.pipeline.data.names import Axis
from rankfold.pipeline.data.selection import select
from rankfold.pipeline.data.source import MOST_FILES, Source, Volume
from rankfold.pipeline.data.stacked import Rows, axis_names, stack_volume
from rankfold.pipeline.errors import ChunkError, InputError, RankfoldError, SourceNotFoundError
from rankfold.pipeline.formats.csr import CsrSource
from rankfold.pipeline.formats.frame_columns import frame_volume
from rankfold.pipeline.formats.hdf5_contents import (
    HDF5_SUFFIXES,
    MOST_LINKS,
    Found,
    find_matrix,
    link_out,
    matrices_beside,
)
from rankfold.pipeline.formats.locate import split_location
from rankfold.pipeline.formats.naming import UNREADABLE, hdf5_axis
from rankfold.pipeline.formats.open_files import (
    Handles,
    beside,
    file_fingerprint,
    library,
    open_hdf5,
    refuse_damage,
    require_regular_parts,
)
from rankfold.pipeline.formats.zarr.vector import Vector
from rankfold.pipeline.regular import open_regular

REQUEST_BYTES = 8 * 2**20
"""Largest number of bytes of chunks that are read together; a larger chunk is read by itself."""

CACHE_BYTES = 2**20
"""Size in bytes of the cache of decoded chunks of each open file."""

LOOKS, LOOK_NUMBERS = 16, 64
"""Number of positions where a dataset is sampled for its fingerprint, and elements along each axis there."""

OVERHEAD_BYTES = 4 * 2**20
"""Bytes of memory that HDF5 itself takes: index of chunks, metadata, selections."""

SIGNATURE = b"\x89HDF\r\n\x1a\n"


DAMAGE = (OSError, RuntimeError, LookupError, ValueError, TypeError, OverflowError)
"""Exceptions that h5py raises for a damaged file."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Hdf5Volume:
    """A dataset of any number of axes in an HDF5 file, described by path, shape and type; picklable."""

    name: str
    path: str
    dataset: str
    """Path of the dataset in the file."""

    shape: tuple[int, ...]
    axes: tuple[str, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]
    """Shape of a chunk; of the whole dataset if it is contiguous."""

    chunked: bool
    filters: bool
    """True if chunks are compressed or otherwise encoded, and so are read whole."""

    codec: str
    missing: str
    unwritten: Unwritten | None = None
    """Value that netCDF-4 puts where nothing was written, if it is the fill value of the dataset."""

    has_neighbors: bool = False
    """True if other datasets may be added to the file, so that its time does not identify this dataset."""

    @property
    def format(self) -> str:
        """Kind of store, as text."""
        return "HDF5" if self.chunked else "HDF5, contiguous"

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Native chunks along every axis."""
        return regular_grids(self.shape, self.chunks, splittable=not self.filters)

    def read_boxes(self, pieces: Sequence[Piece]) -> None:
        """Read every box into ``out`` of its piece; see ``Volume``."""
        dataset = self._open()
        # A chunk that is not encoded, or a dataset without chunks, can be read in part.
        unit = self.chunks if self.filters else (1,) * len(self.shape)
        for piece in pieces:
            for box, out in requests(piece, unit, REQUEST_BYTES // self.dtype.itemsize):
                selection = tuple(slice(*span) for span in box)
                try:
                    if out.flags.c_contiguous:
                        dataset.read_direct(out, selection)
                    else:
                        out[...] = dataset[selection]
                except MemoryError:
                    raise
                except Exception as error:
                    where = ", ".join(f"{axis} {a}:{b}" for axis, (a, b) in zip(self.axes, box, strict=True))
                    raise ChunkError(
                        f"{self.name} cannot be read ({where}): {error}. Restore the file"
                    ) from error
                if self.unwritten is not None:
                    self.unwritten.mask(self.name, out)

    def read_bytes(self, elements: int) -> int:
        """Upper bound in bytes on the memory of one read of that many elements, beside its destination.

        It covers what is read at once, and a chunk as stored and decoded.
        """
        item = self.dtype.itemsize
        chunk = math.prod(self.chunks) * item if self.filters else 0
        request = max(chunk, min(REQUEST_BYTES, elements * item))
        return OVERHEAD_BYTES + CACHE_BYTES + request + 2 * chunk

    def check(self) -> None:
        """Raise ``ChunkError`` if the file cannot be opened, or lacks chunks that may not be missing."""
        try:
            require_hdf5(self.path)
        except (OSError, InputError) as error:
            raise ChunkError(f"{self.name} cannot be read: {error}. Restore the file") from error
        with refuse_damage(self.name):
            self._require_written(self._open())

    def _require_written(self, dataset: Any) -> None:
        if self.missing == "fill":
            return
        total, count = _written(dataset)
        if count < total:
            which = f": {total - count} of {total} chunks were" if self.chunked else " was"
            raise ChunkError(f"{self.name}{which} never written; {_FILL}")

    def absent_chunks(self, most: int = MOST_FILES) -> Absence:
        """Number of chunks that were never written, by the count in the file."""
        with refuse_damage(self.name):
            dataset = self._open()
            total, there = _written(dataset)
            return Absence(total - there, total, (str(dataset.fillvalue),))

    def axis(self, number: int) -> Axis:
        """Axis ``number`` with its labels."""
        return hdf5_axis(self.path, self.dataset, number, self.axes[number], self.shape[number])

    @property
    def attributes(self) -> Attributes:
        """Attributes of the values, such as units; empty if they cannot be read."""
        with contextlib.suppress(*UNREADABLE):
            return attributes_in(self._open().attrs, of=self.dataset)
        return {}

    def fingerprint(self) -> str:
        """Digest of the dataset's shape and type, and of size and time of the file.

        If other datasets may be added to the file, size and time are replaced by offsets and sizes of some
        chunks and samples of the values.
        """
        if self.has_neighbors:
            with refuse_damage(self.name):
                return hashlib.blake2b(self._look().encode(), digest_size=16).hexdigest()
        return file_fingerprint(self.path, self.dataset, self.shape, self.dtype.str)

    def _look(self) -> str:
        dataset = self._open()
        facts = [self.dataset, self.shape, self.dtype.str, dataset.id.get_storage_size()]
        count = dataset.id.get_num_chunks() if self.chunked else 0
        for i in sorted({count * i // LOOKS for i in range(LOOKS)} & set(range(count))):
            chunk = dataset.id.get_chunk_info(i)
            facts += [chunk.byte_offset, chunk.size]
        rest = tuple(slice(0, min(n, LOOK_NUMBERS)) for n in self.shape[1:])
        for start in sorted({self.shape[0] * i // LOOKS for i in range(LOOKS)}):
            part = np.ascontiguousarray(dataset[(slice(start, start + LOOK_NUMBERS), *rest)])
            facts.append(hashlib.blake2b(part.data, digest_size=16).hexdigest())
        return " ".join(map(str, facts))

    def stored_bytes(self) -> int:
        """Bytes that the dataset takes in the file."""
        with refuse_damage(self.name):
            return int(self._open().id.get_storage_size())

    def _open(self) -> Any:
        """The dataset in the file that this process has open."""
        try:
            return _handles.get(self, self.path)[self.dataset]
        except DAMAGE as error:
            raise ChunkError(f"{self.name} cannot be read: {error}. Restore the file") from error


def _written(dataset: Any) -> tuple[int, int]:
    """Number of chunks of an open dataset, and of those written; without chunks it counts as one."""
    if dataset.is_virtual:
        return 1, 1
    if dataset.chunks is None:
        # Small datasets are stored in the header and have no offset of their own.
        return 1, int(dataset.id.get_offset() is not None or dataset.id.get_storage_size() > 0)
    return chunk_count(dataset.shape, dataset.chunks), dataset.id.get_num_chunks()


_FILL = (
    "HDF5 would read them as fill value. If that is meant, say missing_chunks='fill' (--missing-chunks "
    "fill); else restore the file"
)


def hdf5_arrays(location: str) -> tuple[str, ...]:
    """Paths of the arrays of the HDF5 file at ``location``, first its default matrix.

    The software that wrote the file determines the default, such as ``X`` of AnnData. Empty if there is none,
    and for locations ``FILE::array``.
    """
    path, array = split_location(location)
    if array or not path.lower().endswith(HDF5_SUFFIXES) or not os.path.isfile(path):
        return ()
    h5py = library("h5py", extra="formats", what=f"reading {path}")
    with contextlib.suppress(RankfoldError, *DAMAGE):  # opening the matrix reports these
        require_hdf5(path)
        with open_hdf5(path) as file:
            return matrices_beside(h5py, file, path)
    return ()


def hdf5_matrix(path: str, text: str, *, missing: str | None, rows: Rows = None, followed: int = 0) -> Source:
    """A dataset, or a sparse group, of an HDF5 file as a matrix.

    Parameters
    ----------
    path, text : str
        The file, and the path in it; empty for the default matrix of its kind of file.
    missing : {"fill", "error"}, optional
        Read chunks that were never written as fill value, or refuse them.
    rows : optional
        The axes that become the rows. The default for loom and MATLAB is the last of two axes.
    followed : int
        Number of links from file to file that led here.
    """
    h5py = library("h5py", extra="formats", what=f"reading {path}")
    try:
        require_hdf5(path)
        with open_hdf5(path) as file:
            if (link := link_out(h5py, file, path, text)) is not None:
                place = _linked(path, text, link, followed)
                return hdf5_matrix(
                    place, link[1].strip("/"), missing=missing, rows=rows, followed=followed + 1
                )
            found = find_matrix(h5py, file, path, text)
            if isinstance(file[found.path], h5py.Group) and found.layout is None:
                matrix: Source = stack_volume(_frame(file[found.path], path, found, missing), rows)
            elif isinstance(file[found.path], h5py.Group):
                if rows is not None:
                    raise InputError(f"{path} is a matrix already: leave out row_axes={rows!r} (--row-axes)")
                matrix = _compressed(file[found.path], path, found, missing)
            else:
                matrix = stack_volume(
                    _decoded(file[found.path], path, found, missing), found.rows(path, rows)
                )
    except RankfoldError:
        raise
    except DAMAGE as error:
        raise ChunkError(f"{path} cannot be opened: {error}. Is it complete?") from error
    return select(matrix, rows=None, columns=found.columns)


def _linked(path: str, text: str, link: tuple[str, str], followed: int) -> str:
    """Path of the file that ``path::text`` leads to, which is the link ``link``, (file, path in it).

    ``followed`` is the number of links that were followed before. ``SourceNotFoundError`` if the file is not
    there, or after too many links.
    """
    place = beside(path, link[0])
    if not os.path.isfile(place) or followed == MOST_LINKS:
        why = f"more than {MOST_LINKS} links" if followed == MOST_LINKS else f"{place}, which is not there"
        raise SourceNotFoundError(f"{path}::{text} is a link, and leads to {why}")
    return place


def _decoded(dataset: Any, path: str, found: Found, missing: str | None) -> Volume:
    """``Volume`` of an open dataset of the file ``path``, which ``found`` describes.

    Its values are decoded by its attributes: missing values, scale and offset. ``missing`` is the option
    ``missing_chunks``.
    """
    name = f"{path}::{found.path}"
    volume = _volume(dataset, name, os.path.abspath(path), missing, has_neighbors=found.grows)
    volume = dataclasses.replace(volume, axes=found.axes or volume.axes)
    said, fill = _said(dataset), _declared_fill(dataset)
    unwritten = Unwritten.of(
        native(dataset.dtype), {each: said[each] for each in (*MARKS, *OTHER_MARKS) if each in said}
    )
    if fill is None or unwritten is None or unwritten.mark != fill:
        meaning = meaning_of(name, native(dataset.dtype), said)
        say_fill(name, fill, meaning)
        return decode_volume(volume, meaning)
    if any(each in said for each in SCALES):
        return decode_volume(volume, meaning_of(name, native(dataset.dtype), said, fill=fill))
    volume = dataclasses.replace(volume, unwritten=unwritten)
    return decode_volume(volume, meaning_of(name, native(dataset.dtype), said))


def _declared_fill(dataset: Any) -> float | int | None:
    """Fill value that a dataset of real numbers declares; None if it declares none."""
    import h5py

    said = dataset.id.get_create_plist().fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED
    return dataset.fillvalue.item() if said and dataset.dtype.kind in "iuf" else None


def _said(dataset: Any) -> dict[str, Any]:
    """Attributes that say how stored numbers are decoded, such as missing values, scale and offset."""
    return {name: dataset.attrs[name] for name in NAMES if name in dataset.attrs}


def _volume(
    dataset: Any, name: str, path: str, missing: str | None, *, has_neighbors: bool = False
) -> Hdf5Volume:
    """Make the picklable description of an open dataset, called ``name`` in messages, of the file ``path``.

    ``missing`` is the option ``missing_chunks``; ``has_neighbors`` is that of ``Hdf5Volume``.
    """
    if dataset.is_virtual and missing != "fill":
        raise InputError(
            f"{name} is a virtual dataset: HDF5 reads parts whose files are not there as fill value. Say "
            "missing_chunks='fill' (--missing-chunks fill) to read it nevertheless"
        )
    require_numbers(name, dataset.dtype)
    require_regular_parts(path, dataset)
    return Hdf5Volume(
        name=name,
        path=path,
        dataset=dataset.name,
        shape=dataset.shape,
        axes=axis_names(dataset.shape, [_axis_name(dataset, axis) for axis in range(dataset.ndim)]),
        dtype=native(dataset.dtype),
        chunks=dataset.chunks or dataset.shape,
        chunked=dataset.chunks is not None,
        filters=dataset.id.get_create_plist().get_nfilters() > 0,
        codec=_codec(dataset),
        missing=missing or "fill",
        has_neighbors=has_neighbors,
    )


# Sparse groups ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hdf5Vector(Vector):
    """A dataset of one axis as a matrix of one row, (1, n)."""

    name: str
    shape: tuple[int, int]
    volume: Hdf5Volume

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self.volume.dtype

    @property
    def path(self) -> str:
        """Path of the file."""
        return self.volume.path

    @property
    def format(self) -> str:
        """Kind of store, as text."""
        return self.volume.format

    @property
    def codec(self) -> str:
        """Filters of the chunks, as text."""
        return self.volume.codec

    def axis_of_group(self, number: int, name: str, length: int) -> Axis:
        """Axis ``number`` (0 or 1) of the sparse matrix of this vector, with the labels that the file has."""
        return hdf5_axis(self.path, os.path.dirname(self.volume.dataset), number, name, length)

    def read_into(self, out: npt.NDArray[Any], rows: Span, columns: Span) -> None:
        """Copy elements in the span ``columns`` into ``out``, (1, n); ``rows`` is not used."""
        self.volume.read_boxes([Piece((columns,), out[0])])

    def read_bytes(self, rows: int, columns: int) -> int:
        """Upper bound in bytes on the memory of one read of ``columns`` elements, beside ``out``."""
        return self.volume.read_bytes(columns)

    def check(self) -> None:
        """Raise ``ChunkError`` if the file cannot be opened, or lacks chunks that may not be missing."""
        self.volume.check()

    def absent_chunks(self, most: int = MOST_FILES) -> Absence:
        """Number of chunks that were never written, by the count in the file."""
        return self.volume.absent_chunks(most)

    def fingerprint(self) -> str:
        """Digest that changes when the values may have changed; see ``Hdf5Volume``."""
        return self.volume.fingerprint()

    def stored_bytes(self) -> int:
        """Bytes in the file."""
        return self.volume.stored_bytes()


def _frame(group: Any, path: str, found: Found, missing: str | None) -> Volume:
    """``Volume`` that joins the columns of a data frame of AnnData, an open group of the file ``path``.

    ``missing`` is the option ``missing_chunks``.
    """

    def volume_of(column: Any, name: str) -> Volume:
        return _volume(column, name, os.path.abspath(path), missing, has_neighbors=True)

    return frame_volume(
        group, f"{path}::{found.path}", (os.path.abspath(path), found.path), hdf5_axis, volume_of
    )


def _compressed(group: Any, path: str, found: Found, missing: str | None) -> CsrSource:
    name, layout = f"{path}::{found.path}", found.layout
    if layout is None:
        raise TypeError(f"{name} is no sparse matrix")
    lacking = [part for part in layout.parts if not hasattr(group.get(part), "shape")]
    if lacking:
        raise ChunkError(f"{name} has no {' and no '.join(lacking)}, so it is not whole. Restore the file")
    shape = layout.lengths(name)
    vectors = []
    for part in layout.parts:
        volume = _volume(
            group[part], f"{name}/{part}", os.path.abspath(path), missing, has_neighbors=found.grows
        )
        if len(volume.shape) != 1 or (part != layout.parts[0] and volume.dtype.kind not in "iu"):
            raise ChunkError(f"{volume.name} is {volume.dtype} {volume.shape}. Restore the file")
        vectors.append(Hdf5Vector(volume.name, (1, volume.shape[0]), volume))
    data, indices, indptr = vectors
    require_matrix(name, shape, data.dtype)
    return CsrSource(name, shape, data, indices, indptr, layout.by)


# Files --------------------------------------------------------------------------------------------


def require_hdf5(path: str) -> None:
    """Raise ``InputError`` or ``OSError`` unless a file is HDF5 and as long as its superblock states.

    HDF5 itself does not check again a file that it has open. The superblock may lie behind a user block:
    https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html
    """
    size = os.path.getsize(path)
    with open_regular(path) as file:
        for at in itertools.chain([0], (512 << i for i in range(40))):
            file.seek(at)
            block = file.read(64)
            if block.startswith(SIGNATURE):
                break
            if at >= size:
                what = "does not begin as an HDF5 file does" if size else "is empty"
                hint = " MATLAB writes one with save(..., '-v7.3')" if path.endswith(".mat") else ""
                raise InputError(f"{path} {what}; is its name right, and is the copy complete?{hint}")
    version = block[8]
    width, first = (block[9], 12) if version >= 2 else (block[13], 24 + 4 * version)
    end = int.from_bytes(block[first + 2 * width : first + 3 * width], "little")
    if size < end or len(block) < first + 3 * width:
        raise OSError(f"it is truncated: it holds {size} bytes, its superblock promises {end}")


def _axis_name(dataset: Any, axis: int) -> str:
    """Label of an axis, or the name of the dimension scale that is attached to it; empty if neither."""
    dimension = dataset.dims[axis]
    if dimension.label:
        return str(dimension.label)
    return str(dimension[0].name).rpartition("/")[2] if len(dimension) else ""


def _codec(dataset: Any) -> str:
    """Text that lists the filters of the chunks; ``none`` without filters."""
    plist = dataset.id.get_create_plist()
    names = [
        plist.get_filter(i)[3].decode() or str(plist.get_filter(i)[0]) for i in range(plist.get_nfilters())
    ]
    return " + ".join(names) or "none"


def _open_file(path: str) -> Any:
    return open_hdf5(path, rdcc_nbytes=CACHE_BYTES)


_handles = Handles(_open_file)


def close(path: str | os.PathLike[str]) -> None:
    """Close a file that this process has open for reading, so that it can be written."""
    _handles.close(os.fspath(path))
