"""Compressed ``.npz`` files, and those that ``scipy.sparse.save_npz`` writes.

A deflated member can only be read forward. A matrix is unpacked next to the destination, whatever its order
in memory, so that any part of it can be read; the vectors of a sparse one are read in step.
"""

from __future__ import annotations

import contextlib
import math
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.dtypes import cut, native, require_matrix, whole_lengths
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import ChunkError, InputError
from rankfold.pipeline.formats.npy import header_in, npy_source
from rankfold.pipeline.formats.npz import Member, choose_member, is_sparse, npz_members, open_zip
from rankfold.pipeline.importing.readers.compressed import (
    CompressedReader,
    TripletReader,
    Vector,
    require_vectors,
)
from rankfold.pipeline.importing.readers.reader import Archive, copy_stream

MEMBER_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError)

HEADER_BYTES = 2**16
"""Upper bound on the bytes of the ``.npy`` header of a member."""

MEMBER_LAYOUTS = {"csr": "rows", "csc": "columns"}


@dataclass(frozen=True, slots=True)
class PackedMember:
    """A deflated member that holds a matrix."""

    name: str
    path: str
    member: Member

    @property
    def total_bytes(self) -> int:
        """Bytes of the member once unpacked."""
        return math.prod(self.member.shape) * self.member.dtype.itemsize

    @property
    def notes(self) -> tuple[str, ...]:
        """Empty: nothing about it is ambiguous."""
        return ()

    def unpack(self, folder: Path, progress: Any) -> Source:
        """Write the decompressed member to a ``.npy`` file in ``folder``, and open it.

        ``progress`` is called with the number of bytes written so far.
        """
        target = folder / "member.npy"
        with open_zip(self.path) as archive:
            try:
                with archive.open(f"{self.member.name}.npy") as file:
                    copy_stream(file, target, progress, most=self.total_bytes + HEADER_BYTES)
            except MEMBER_ERRORS as error:
                raise _damage_error(self.name, error) from error
        source = npy_source(str(target))
        source.check()
        return source


def npz_reader(path: str, part: str) -> Archive | CompressedReader | TripletReader | None:
    """Reader of the matrix ``part`` of a ``.npz`` file from its beginning; None for a dense, plain one.

    A plain one is not compressed, so any part of it can be read. If ``part`` is empty, it is the only matrix
    of the file, which may be sparse.
    """
    if not part and is_sparse(path):
        return _sparse(path, npz_members(path))
    member = choose_member(path, part)
    require_matrix(f"{path}::{member.name}", member.shape, member.dtype)
    return None if member.stored else PackedMember(f"{path}::{member.name}", path, member)


def _sparse(path: str, members: dict[str, Member]) -> CompressedReader | TripletReader:
    """Reader of a file of ``scipy.sparse.save_npz``; ``members`` are its arrays by name."""
    with open_zip(path) as archive:
        small = {name: _whole(archive, path, name) for name in ("format", "shape")}
    if small["format"].size != 1:
        raise InputError(f"{path} says that its layout is {cut(small['format'])}. Restore the file")
    layout = small["format"].item()
    layout = layout.decode() if isinstance(layout, bytes) else str(layout)
    names = ("row", "col", "data") if layout == "coo" else ("indices", "indptr", "data")
    if layout not in (*MEMBER_LAYOUTS, "coo") or not set(names) <= set(members):
        raise InputError(
            f"{path} is a sparse matrix in layout {layout!r}; csr, csc and coo are read. Save it as "
            "scipy.sparse.csr_matrix(x)"
        )
    rows, columns = whole_lengths(path, small["shape"])
    data = members["data"]
    require_matrix(path, (rows, columns), np.dtype(data.dtype))
    require_vectors(path, {part: (members[part].shape, np.dtype(members[part].dtype)) for part in names})
    count, dtype = data.shape[0], native(np.dtype(data.dtype))
    if layout == "coo":
        return TripletReader(path, (rows, columns), dtype, count, lambda: _open_vectors(path, names))
    if members["indices"].shape != data.shape:
        raise ChunkError(
            f"{path}: data has {count} numbers, indices {members['indices'].shape[0]}. Restore the file"
        )
    return CompressedReader(
        path, (rows, columns), dtype, count, MEMBER_LAYOUTS[layout], lambda: _open_vectors(path, names)
    )


@contextlib.contextmanager
def _open_vectors(path: str, names: tuple[str, ...]) -> Iterator[dict[str, Vector]]:
    with contextlib.ExitStack() as stack:
        archive = stack.enter_context(open_zip(path))
        yield {
            name: ForwardVector(f"{path}::{name}", stack.enter_context(archive.open(f"{name}.npy")))
            for name in names
        }


class ForwardVector:
    """One-dimensional member of a ``.npz`` file, read in order; a ``Vector``."""

    def __init__(self, name: str, file: IO[bytes]) -> None:
        self.name, self.file = name, file
        (self.length,), _, self.dtype = header_in(file)

    def take(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Read the next ``stop - start`` elements; ``start`` must be the ``stop`` of the previous call."""
        byte_count = (stop - start) * self.dtype.itemsize
        try:
            data = self.file.read(byte_count)
        except MEMBER_ERRORS as error:
            raise _damage_error(self.name, error) from error
        if len(data) != byte_count:
            raise ChunkError(f"{self.name} ends before number {stop} of {self.length}. Restore the file")
        return np.frombuffer(data, self.dtype).astype(native(self.dtype), copy=False)


def _whole(archive: zipfile.ZipFile, path: str, name: str) -> npt.NDArray[Any]:
    try:
        with archive.open(f"{name}.npy") as file:
            numbers: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
            return numbers
    except MEMBER_ERRORS as error:
        raise _damage_error(f"{path}::{name}", error) from error


def _damage_error(name: str, error: Exception) -> ChunkError:
    return ChunkError(f"{name} is damaged or cut short: {error}. Restore the file")
