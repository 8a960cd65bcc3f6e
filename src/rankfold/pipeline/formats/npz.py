"""One array of a ``.npz`` file, in place where it is not compressed.

A ``.npz`` is a ZIP of ``.npy`` files: a member that is only stored is a run of plain numbers somewhere in
the file and is read at any place. One that is deflated can only be read from its beginning, so it is
imported first.
"""

from __future__ import annotations

import lzma
import os
import struct
import zipfile
import zlib
from typing import NamedTuple

import numpy as np

from rankfold.pipeline.errors import ChunkError, InputError, SourceNotFoundError
from rankfold.pipeline.formats.npy import NO_HEADER, NpySource, header_in, matrix_in

LOCAL_HEADER = struct.Struct("<4s22xHH")
"""Of a member: its signature, and the lengths of the name and of the extra field that follow."""


DAMAGE_ERRORS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError)
"""What a member raises that cannot be unpacked."""


class Member(NamedTuple):
    """An array in a ``.npz`` file."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    stored: bool
    """Whether its bytes lie in the file as they are."""

    def __str__(self) -> str:
        return f"{self.name} {self.shape} {self.dtype}"


def npz_members(path: str) -> dict[str, Member]:
    """The arrays of a ``.npz`` file by name; what is no array is left out."""
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
    """The file as a ZIP, whose table of contents lies at its end: it is found out here if cut short."""
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise ChunkError(f"{path} is not a whole .npz file: {error}. Restore the file") from error


def is_sparse(path: str) -> bool:
    """Whether ``scipy.sparse.save_npz`` wrote the file."""
    return {"format", "shape", "data"} <= set(npz_members(path))


def choose_member(path: str, name: str) -> Member:
    """The member that was asked for, or the only matrix there is."""
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
    raise InputError(f"{path} holds {names}. Name one: {path}::{matrices[0].name}")


def npz_source(path: str, text: str) -> NpySource:
    """The matrix ``wanted`` of a ``.npz`` file; only one that is not compressed."""
    if not text and is_sparse(path):
        raise InputError(f"{path} is a sparse matrix. Import it first: rankfold import {path} STORE.zarr")
    member = choose_member(path, text)
    name = f"{path}::{member.name}"
    if not member.stored:
        raise InputError(
            f"{name} is compressed, so it can only be read from its beginning. Import it first: "
            f"rankfold import {name} STORE.zarr"
        )
    with open_zip(path) as archive:
        start = archive.getinfo(f"{member.name}.npy").header_offset
    with open(path, "rb") as file:
        file.seek(start)
        signature, name_bytes, extra_bytes = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
        if signature != b"PK\x03\x04":
            raise ChunkError(f"{name} is not where the file says it is. Restore {os.path.basename(path)}")
        file.seek(start + LOCAL_HEADER.size + name_bytes + extra_bytes)
        return matrix_in(file, path, name, kind="npz")
