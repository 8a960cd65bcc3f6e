"""What survives a kill, and a loss of power: parts that are whole, and known to be.

A part is a file of named arrays. It goes to a temporary name beside its own and takes that name in one
rename, so whatever kills the process, a reader finds a whole part or none. A machine that loses power may
leave less, and people copy files: each array carries its checksum, and the part carries its own name within
the run, so that what is cut short, altered, or belongs elsewhere counts as no part, and is made again.

The trap: a file that exists is not a part that is whole. Ask ``load_if_whole``, never ``exists``.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import struct
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.durable import flush, rename, rename_new
from rankfold.pipeline.errors import DamagedStateError, DiskSpaceError, OutputError
from rankfold.pipeline.regular import METADATA_BYTES, open_regular, read_json
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.checksum import checksum, flat_bytes
from rankfold.pipeline.wording import argument

LOG = logging.getLogger("rankfold")

State = dict[str, npt.NDArray[Any]]
"""Arrays by name: what a fold accumulates and a checkpoint keeps."""

MAGIC = b"rankfold"
ALIGNMENT = 64
_HEAD = struct.Struct("<8sII")
"""Magic, length of the header, checksum of the header."""

MOST_HEADER_BYTES = 2**24
SEAL = "checksum"
_RUN_FOLDER = re.compile(r"(state|scratch|result|rankfold)-[0-9a-f]{32}(\.zarr)?")


@contextlib.contextmanager
def atomic_file(path: Path, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """A file that appears under ``path`` when the block ends without an error.

    ``durable`` files are on the disk by then, name and all; flushing costs milliseconds, for each of many
    streams.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with disk_errors(path), open(temporary, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        with disk_errors(path):
            try:
                rename(temporary, path)
            except IsADirectoryError:
                give_way(path)
                rename(temporary, path)
            if durable:
                flush(path.parent)
    except BaseException:
        remove(temporary)
        raise


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
                "With scratch= (--scratch) elsewhere it starts over."
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOENT):
            name = "scratch" if (name_in_run(path) or "").startswith("rankfold-") else "out"
            raise OutputError(
                f"cannot write {path}: {error.strerror}. Choose another {argument(name)}."
            ) from error
        if error.errno == errno.EFBIG:
            raise OutputError(
                f"cannot write {path}: {error.strerror}. A limit of this process (ulimit -f) or of the file "
                "system allows no larger file. Raise it, or choose another place"
            ) from error
        if error.filename is None:
            error.filename = str(path)
        raise


def give_way(path: Path) -> None:
    """Free the name of a file of ours. A folder or link outside of a run's own folders gets another name."""
    if name_in_run(path) is None and (path.is_symlink() or path.is_dir()):
        move_aside(path)
    else:
        remove(path)


def move_aside(path: Path) -> Path:
    """Give what is not ours another name beside it, and say so; the new name."""
    backup = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
    rename_new(path, backup)
    LOG.warning("%s is in the way of a file of the run: it is renamed to %s", path, backup.name)
    return backup


def make_folder(path: Path) -> None:
    """Have a folder of a run; a file in its place, or in that of a folder around it, gives way."""
    with disk_errors(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            for place in (*reversed(path.parents), path):
                if name_in_run(place) is not None and os.path.lexists(place) and not place.is_dir():
                    set_aside(place, "is a file where a folder belongs")
            path.mkdir(parents=True, exist_ok=True)


def set_aside(path: Path, reason: str) -> None:
    """Remove what cannot be trusted, and say so: it is made again."""
    LOG.warning("%s %s: it is left out and made again", path, reason)
    with disk_errors(path):
        give_way(path)


def name_in_run(path: Path) -> str | None:
    """The path of a file from the folder of a run's state, scratch or result on; None if it is in none.

    A run within the state of another is the one that counts.

    >>> name_in_run(Path("/data/r.zarr.run/state-00112233445566778899aabbccddeeff/pass-01/total.part"))
    'state-00112233445566778899aabbccddeeff/pass-01/total.part'
    """
    for index, name in reversed(list(enumerate(path.parts))):
        if _RUN_FOLDER.fullmatch(name):
            return "/".join(path.parts[index:])
    return None


def _own_name(path: Path) -> str:
    """What a part calls itself: it counts only where it was put."""
    return name_in_run(path) or "/".join(path.parts[-2:])


def save_arrays(
    path: Path, arrays: Mapping[str, npt.ArrayLike], *, name: Path | None = None, durable: bool = False
) -> None:
    """Write named arrays as one part, or as the part that it will be under another ``name``.

    One that is not ``durable`` may be gone after a loss of power.
    """
    ordered_arrays = {key: _in_memory_order(values) for key, values in arrays.items()}
    end = 0
    table: dict[str, list[Any]] = {}
    for key, (values, order) in ordered_arrays.items():
        start = _round_up(end)
        table[key] = [values.dtype.str, list(values.shape), order, start, checksum(values)]
        end = start + values.nbytes
    header = json.dumps({"of": _own_name(name or path), "bytes": end, "arrays": table}).encode()
    with atomic_file(path, durable=durable) as file:
        first = _round_up(_HEAD.size + len(header))
        file.write(_HEAD.pack(MAGIC, len(header), checksum(header)))
        file.write(header.ljust(first - _HEAD.size, b"\0"))
        at = 0
        for values, _ in ordered_arrays.values():
            file.write(b"\0" * (_round_up(at) - at))
            file.write(flat_bytes(values).data)
            at = _round_up(at) + values.nbytes


def save_once(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> Path:
    """The part as an earlier attempt stored it, or as it is now: the same numbers in every attempt."""
    if load_if_whole(path) is None:
        save_arrays(path, arrays)
    return path


def load_arrays(path: Path, name: str | None = None) -> State:
    """Read a part that must be there, or one array of it.

    Raises
    ------
    DamagedStateError
        It is not there, or not whole: the caller's run makes it again.
    """
    try:
        with open_regular(path) as file:
            table, first = _table(file, path)
            return {key: _array(file, first, table[key]) for key in ([name] if name else table)}
    except _DAMAGE as error:
        raise DamagedStateError(path, _reason(error)) from error


def load_if_whole(path: Path, name: str | None = None) -> State | None:
    """A part, or one array of it; None when there is none, or when it is not whole and so is removed."""
    try:
        return load_arrays(path, name)
    except DamagedStateError as error:
        if os.path.lexists(path):
            set_aside(path, error.reason)
        return None


_DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error, MemoryError)
"""What a file that is no part, or not all of one, can raise while it is read."""


def _reason(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return "is missing"
    return "is not whole" + (f" ({error})" if isinstance(error, _NotWhole) else "")


class _NotWhole(ValueError):
    """Says what is wrong with a part."""


def _table(file: IO[bytes], path: Path) -> tuple[dict[str, list[Any]], int]:
    """The arrays of a part that has the right size and name, and where the first of them begins."""
    magic, length, header_sum = _HEAD.unpack(file.read(_HEAD.size))
    if magic != MAGIC or length > MOST_HEADER_BYTES:
        raise _NotWhole("it is not a part of a run")
    header = file.read(length)
    if checksum(header) != header_sum:
        raise _NotWhole("its checksum differs")
    facts = json.loads(header)
    first = _round_up(_HEAD.size + length)
    if os.fstat(file.fileno()).st_size != first + facts["bytes"]:
        raise _NotWhole("its length differs")
    if facts["of"] != _own_name(path):
        raise _NotWhole(f"it belongs to {facts['of']}")
    return facts["arrays"], first


def _array(file: IO[bytes], first: int, entry: list[Any]) -> npt.NDArray[Any]:
    dtype, shape, order, start, array_sum = entry
    values = np.empty(shape[::-1] if order == "F" else shape, np.dtype(dtype))
    file.seek(first + start)
    flat = flat_bytes(values)
    if file.readinto(flat.data) != values.nbytes or checksum(flat) != array_sum:  # type: ignore[attr-defined]
        raise _NotWhole("its checksum differs")
    return values.T if order == "F" else values


def _in_memory_order(values: npt.ArrayLike) -> tuple[npt.NDArray[Any], str]:
    """An array in one piece, and whether its first index runs fastest: products may round by that."""
    array = np.asarray(values)
    if array.dtype.hasobject:
        raise TypeError("parts hold numbers and text, not objects")
    if array.flags.f_contiguous and not array.flags.c_contiguous:
        return array, "F"
    return (array if array.flags.c_contiguous else array.copy("C")), "C"


def _round_up(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def save_json(path: Path, value: object, *, durable: bool = True) -> None:
    """Write JSON as one part, keys sorted."""
    with atomic_file(path, durable=durable) as file:
        file.write(json.dumps(value, indent=2, sort_keys=True).encode() + b"\n")


def save_with_checksum(path: Path, values: Mapping[str, Any], *, durable: bool = True) -> None:
    """Write JSON with a checksum of its own."""
    save_json(path, {**values, SEAL: _seal_of(values)}, durable=durable)


def load_with_checksum(path: Path) -> dict[str, Any] | None:
    """What was saved, with a checksum or by a version without; None if it is damaged or not there."""
    values = load_json(path, dict)
    if values is not None and SEAL in values and values.pop(SEAL) != _seal_of(values):
        return None
    return values  # type: ignore[no-any-return]


def _seal_of(values: Mapping[str, Any]) -> int:
    return checksum(json.dumps(values, sort_keys=True).encode())


def load_json(path: Path, kind: type[Any] = object, most: int = METADATA_BYTES) -> Any:
    """Read JSON of a kind; None when there is none, or when it is damaged."""
    try:
        value = read_json(path, most)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, kind) else None
