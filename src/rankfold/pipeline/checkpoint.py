"""What survives a kill: parts written whole or not at all.

A part goes to a temporary name beside its own and takes that name in one rename, so whatever kills the
process, a reader finds a whole part or none. A crash of the machine can leave less: totals of sweeps are
flushed to the disk, parts of streams are checked when read, scratch is neither.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tokenize
import uuid
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import DiskSpaceError, OutputError

State = dict[str, npt.NDArray[Any]]
"""Arrays by name: what a fold accumulates and a checkpoint keeps."""


@contextlib.contextmanager
def atomic_file(path: Path, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """A file that appears under ``path`` when the block ends without an error.

    ``durable`` files are on the disk by then; flushing costs milliseconds, for each of many streams.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with disk_errors(path), open(temporary, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a full disk or a forbidden path into the error that says so."""
    try:
        yield
    except OSError as error:
        if isinstance(error, DiskSpaceError):
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskSpaceError(
                f"the disk is full: writing {path} failed ({error.strerror}). Everything finished so far "
                "is kept: free some space and give the same command again to go on from there. "
                "With scratch elsewhere (--scratch DIR) it starts over."
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOENT):
            raise OutputError(f"cannot write {path}: {error.strerror}. Choose another --out.") from error
        raise


def save_arrays(path: Path, arrays: Mapping[str, npt.ArrayLike], *, durable: bool = True) -> None:
    """Write named arrays as one part."""
    with atomic_file(path, durable=durable) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def kept(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> Path:
    """The part as an earlier attempt stored it, or as it is now: the same numbers in every attempt."""
    if not path.exists():
        save_arrays(path, arrays)
    return path


def load_arrays(path: Path) -> State:
    """Read a part."""
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def load_if_whole(path: Path, name: str | None = None) -> State | None:
    """A part, or one array of it; None when there is no such part, or a crash has left it damaged."""
    try:
        with zipfile.ZipFile(path) as stored:
            names = [entry.removesuffix(".npy") for entry in stored.namelist()] if name is None else [name]
            return {key: _member(stored, key) for key in names} or None
    except _DAMAGE:
        return None


_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    RuntimeError,
    MemoryError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What a damaged zip file or array header raises; RuntimeError covers flags of methods we never write."""


def _member(stored: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    with stored.open(name + ".npy") as file:
        array = np.lib.format.read_array(file, allow_pickle=False)
        if file.read(1):  # the checksum is compared when the end is reached
            raise ValueError("bytes are left over")
    return array


def save_json(path: Path, value: object) -> None:
    """Write JSON as one part, keys sorted."""
    with atomic_file(path) as file:
        file.write(json.dumps(value, indent=2, sort_keys=True).encode() + b"\n")


def load_json(path: Path) -> Any:
    """Read JSON, or None when there is none."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
