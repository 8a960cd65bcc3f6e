"""Arrays of ``.npz`` files, read in place if they are not compressed.

A ``.npz`` is a ZIP of ``.npy`` files. A member that is stored without compression is plain bytes in the file,
and any part of it can be read. A deflated member can only be read from its beginning, so it is imported
first.

The members of a sparse matrix include three vectors, which are read as those of a group in AnnData's layout.
"""

from __future__ import annotations

import lzma
import math
import os
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.dtypes import require_matrix, whole_lengths
from rankfold.pipeline.errors import ChunkError, InputError, SeveralArraysError, SourceNotFoundError
from rankfold.pipeline.formats.csr import CsrSource
from rankfold.pipeline.formats.npy import NO_HEADER, NpySource, header_in, matrix_in, vector_in
from rankfold.pipeline.formats.zarr.vector import Vector
from rankfold.pipeline.regular import open_regular, require_regular
from rankfold.pipeline.text import shell_words

LOCAL_HEADER = struct.Struct("<4s22xHH")
"""Local header of a ZIP member: signature, and the lengths of the name and extra field that follow."""


DAMAGE_ERRORS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError)
"""Exceptions for a member that cannot be decompressed."""


class Member(NamedTuple):
    """An array in a ``.npz`` file."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    stored: bool
    """True if its bytes are stored without compression."""

    def __str__(self) -> str:
        return f"{self.name} {self.shape} {self.dtype}"


def npz_members(path: str) -> dict[str, Member]:
    """The arrays of a ``.npz`` file by name; other members are left out."""
    members = {}
    with open_zip(path) as archive:
        for entry in archive.infolist():
            if not entry.filename.endswith(".npy"):
                continue
            name = entry.filename.removesuffix(".npy")
            try:
                with archive.open(entry) as file:
                    shape, _, dtype = header_in(file)
            except (OSError, RuntimeError, *NO_HEADER, *DAMAGE_ERRORS):
                continue
            members[name] = Member(name, shape, dtype, entry.compress_type == zipfile.ZIP_STORED)
    return members


def open_zip(path: str) -> zipfile.ZipFile:
    """Open a file as a ZIP; ``ChunkError`` if truncated, since the table of contents is at its end."""
    require_regular(path)
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError) as error:
        raise ChunkError(f"{path} is not a whole .npz file: {error}. Restore the file") from error


def is_sparse(path: str) -> bool:
    """True if ``scipy.sparse.save_npz`` wrote the file."""
    return {"format", "shape", "data"} <= set(npz_members(path))


def choose_member(path: str, name: str) -> Member:
    """The array ``name`` of the ``.npz`` file ``path``, or its only matrix if the name is empty."""
    members = npz_members(path)
    if name in members:
        return members[name]
    names = ", ".join(map(str, members.values())) or "no arrays"
    if name:
        raise SourceNotFoundError(f"{path} has no array {name}. It holds {names}")
    matrices = [member for member in members.values() if len(member.shape) == 2]
    if len(matrices) == 1:
        return matrices[0]
    if not matrices:
        raise InputError(f"{path} holds {names}: none of them is a matrix")
    raise SeveralArraysError.of(
        f"{path} holds {names}. Name one: {path}::{matrices[0].name}", [each.name for each in matrices]
    )


def npz_source(path: str, text: str) -> NpySource | CsrSource:
    """The matrix of a ``.npz`` file that ``text`` names, or its only one if empty; read in place.

    ``InputError`` if it is compressed.
    """
    if not text and is_sparse(path):
        return sparse_npz(path)
    member = choose_member(path, text)
    name = f"{path}::{member.name}"
    _require_stored(name, member, name)
    with open_regular(path) as file:
        file.seek(_begin(path, member))
        return matrix_in(file, path, name, kind="npz")


def _require_stored(name: str, member: Member, whole: str) -> None:
    if not member.stored:
        raise InputError(
            f"{name} is compressed, so it can only be read from its beginning. Import it first: "
            f"rankfold import {shell_words([whole])} STORE.zarr"
        )


def _begin(path: str, member: Member) -> int:
    """Byte of the file at which the ``.npy`` header of a stored member starts."""
    with open_zip(path) as archive:
        start = archive.getinfo(f"{member.name}.npy").header_offset
    with open_regular(path) as file:
        file.seek(start)
        signature, name_bytes, extra_bytes = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
    if signature != b"PK\x03\x04":
        raise ChunkError(
            f"{path}::{member.name} is not where the file says it is. Restore {os.path.basename(path)}"
        )
    return int(start + LOCAL_HEADER.size + name_bytes + extra_bytes)


# Sparse matrices ----------------------------------------------------------------------------------


FEW_BYTES = 4096
"""Largest size in bytes of a member that is read whole, such as the name of a sparse layout, or a shape."""

LAYOUTS = {"csr": "rows", "csc": "columns"}
"""Lines that are stored contiguously, rows or columns, by SciPy's name of the layout."""


@dataclass(frozen=True, slots=True, repr=False)
class NpzVector(Vector, NpySource):
    """A vector in a file as a matrix of shape ``(1, n)``."""

    def stored_bytes(self) -> int:
        """Bytes of its values, not of the whole file."""
        return self.length * self.dtype.itemsize


def sparse_npz(path: str) -> CsrSource:
    """The matrix that ``scipy.sparse.save_npz(path, x, compressed=False)`` wrote, read in place."""
    members = npz_members(path)
    layout, shape = (_few(path, members[name]) for name in ("format", "shape"))
    text = layout.item() if layout.size == 1 else layout
    by = LAYOUTS.get(text.decode("latin-1") if isinstance(text, bytes) else str(text))
    names = ("data", "indices", "indptr")
    if by is None or not set(names) <= set(members):
        raise InputError(
            f"{path} is a sparse matrix, but not one of compressed rows or columns. Import it first: "
            f"rankfold import {shell_words([path])} STORE.zarr"
        )
    for name in names:
        _require_stored(path, members[name], path)
    rows, columns = whole_lengths(path, shape)
    data, indices, indptr = (_vector(path, members[name]) for name in names)
    require_matrix(path, (rows, columns), data.dtype)
    for vector in (indices, indptr):
        if vector.dtype.kind not in "iu":
            raise ChunkError(
                f"{vector.name} holds {vector.dtype}, but numbers of places are whole. Restore the file"
            )
    return CsrSource(path, (rows, columns), data, indices, indptr, by)


def _few(path: str, member: Member) -> npt.NDArray[Any]:
    """Read a small member (a shape, or text) whole; an empty array if it is larger or holds objects."""
    if math.prod(member.shape) * member.dtype.itemsize > FEW_BYTES or member.dtype.hasobject:
        return np.empty(0)
    try:
        with open_zip(path) as archive, archive.open(f"{member.name}.npy") as file:
            few: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
            return few
    except (OSError, RuntimeError, *NO_HEADER, *DAMAGE_ERRORS) as error:
        raise ChunkError(f"{path}::{member.name} is damaged: {error}. Restore the file") from error


def _vector(path: str, member: Member) -> NpzVector:
    with open_regular(path) as file:
        file.seek(_begin(path, member))
        return NpzVector(*vector_in(file, path, f"{path}::{member.name}", kind="npz"))
