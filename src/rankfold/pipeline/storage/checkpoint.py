"""Checkpoints that survive a kill, and a loss of power: parts that are known to be whole.

A part is a file of named arrays. It is written under a temporary name in the same folder and renamed in one
step, so whatever kills the process, a reader finds a whole part or none. A machine that loses power may
leave less, and people copy files. So each array carries its checksum, and the part its own name within the
run: a part that is cut short, altered, or belongs elsewhere is treated as missing, and is made again.

The trap: a file that exists is not always a whole part. Ask ``load_if_whole``, never ``exists``.

CRC-32C of arrays and bytes, to check that a block is whole.

It finds every change of up to 32 bits in a row, and all others but one in four thousand million. It does not
protect against deliberate forgery.

Ledgers: locations and checksums of written blocks, so that files are used only while they are whole.

In addition to their accumulators (such as sums over rows), sweeps write blocks of scratch (intermediate files
of a run) and chunks of the result. The thread that works on a segment of a sweep records each such block:
path within the run, first byte, length, checksum. Records are stored with the accumulator that they belong
to, and merged like accumulators, so the total of a sweep lists everything that the sweep wrote.

A process trusts what it wrote itself. Blocks of an earlier attempt are read once and compared before use.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import struct
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from rankfold.pipeline.durable import begin_flush, flush, rename, rename_new
from rankfold.pipeline.errors import DamagedStateError, DiskSpaceError, OutputError, argument
from rankfold.pipeline.regular import METADATA_BYTES, open_regular, read_json
from rankfold.pipeline.removal import remove

LOG = logging.getLogger("rankfold")

State = dict[str, npt.NDArray[Any]]
"""Arrays by name: accumulators of a sweep, such as sums over its rows, as a checkpoint stores them."""

MAGIC = b"rankfold"
ALIGNMENT = 64
_HEAD = struct.Struct("<8sII")
"""First bytes of a part: magic bytes, length of the header, checksum of the header."""

MOST_HEADER_BYTES = 2**24
SEAL = "checksum"
_RUN_FOLDER = re.compile(r"(state|scratch|result|rankfold)-[0-9a-f]{32}(\.zarr)?")


FORBIDDEN = (
    *(errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.ENOTDIR, errno.ENOENT, errno.ELOOP, errno.ENAMETOOLONG),
)
"""Error numbers (``errno``) of paths at which nothing can be written, whatever is tried."""


@contextlib.contextmanager
def atomic_file(path: Path, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Open a file that appears under ``path`` if the block ends without an error.

    With ``durable``, the file and its name are then flushed to the disk. That costs milliseconds a file, and
    a sweep may write many.
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
    """Turn ``OSError`` of a full disk, a forbidden path or a file size limit into errors of rankfold.

    ``path`` is what the block writes, for messages.
    """
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
        if error.errno in FORBIDDEN:
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
    """Free a path that a run writes a file to: remove what is there.

    A folder or link outside the folders of a run's state, scratch and result is renamed instead.
    """
    if name_in_run(path) is None and (path.is_symlink() or path.is_dir()):
        move_aside(path)
    else:
        remove(path)


def move_aside(path: Path) -> Path:
    """Rename something that rankfold did not make, within its folder, and log that; returns the new path."""
    backup = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
    rename_new(path, backup)
    LOG.warning("%s is in the way of a file of the run: it is renamed to %s", path, backup.name)
    return backup


def make_folder(path: Path) -> None:
    """Make a folder of a run; files in place of it, or of a folder above it in the run, are removed."""
    with disk_errors(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            for place in (*reversed(path.parents), path):
                if name_in_run(place) is not None and os.path.lexists(place) and not place.is_dir():
                    set_aside(place, "is a file where a folder belongs")
            path.mkdir(parents=True, exist_ok=True)


def set_aside(path: Path, reason: str) -> None:
    """Remove a file that is not whole or does not belong there, and log that it is made again.

    ``reason`` goes on after the path in the log, as "is missing".
    """
    LOG.warning("%s %s: it is left out and made again", path, reason)
    with disk_errors(path):
        give_way(path)


def name_in_run(path: Path) -> str | None:
    """Path of a file relative to its run, beginning with the folder of the state, scratch or result.

    None for a file outside of such folders.

    For a run within the state of another, the inner one counts.

    >>> name_in_run(Path("/data/r.zarr.run/state-00112233445566778899aabbccddeeff/pass-01/total.part"))
    'state-00112233445566778899aabbccddeeff/pass-01/total.part'
    """
    for index, name in reversed(list(enumerate(path.parts))):
        if _RUN_FOLDER.fullmatch(name):
            return "/".join(path.parts[index:])
    return None


def _own_name(path: Path) -> str:
    """Name of a part, which it stores in its header: at another path the part is not valid."""
    return name_in_run(path) or "/".join(path.parts[-2:])


def save_arrays(
    path: Path, arrays: Mapping[str, npt.ArrayLike], *, name: Path | None = None, durable: bool = False
) -> None:
    """Write named arrays as one part; ``name`` is the path that it will have later, if that differs.

    Without ``durable``, the part may be lost after a loss of power.
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
    """Save a part at ``path`` unless an earlier attempt did; returns the path.

    All attempts at a result then compute with the same values.
    """
    if load_if_whole(path) is None:
        save_arrays(path, arrays)
    return path


def load_arrays(path: Path, name: str | None = None) -> State:
    """Read a part that must exist: its arrays by name, or only the array ``name``.

    Raises
    ------
    DamagedStateError
        It is missing, or not whole: the caller's run makes it again.
    """
    try:
        with open_regular(path) as file:
            table, first = _table(file, path)
            return {key: _array(file, first, table[key]) for key in ([name] if name else table)}
    except _DAMAGE as error:
        raise DamagedStateError(path, _reason(error)) from error


def load_if_whole(path: Path, name: str | None = None) -> State | None:
    """Read a part: its arrays by name, or only the array ``name``.

    None if the part is missing, or is not whole and therefore removed.
    """
    try:
        return load_arrays(path, name)
    except DamagedStateError as error:
        if os.path.lexists(path):
            set_aside(path, error.reason)
        return None


_DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error, MemoryError)
"""Exceptions of reading a file that is no part, or not a whole one."""


def _reason(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return "is missing"
    return "is not whole" + (f" ({error})" if isinstance(error, _NotWhole) else "")


class _NotWhole(ValueError):
    """A part is not whole; the message says why."""


def _table(file: IO[bytes], path: Path) -> tuple[dict[str, list[Any]], int]:
    """Read and check the header of a part.

    Returns the entries of its arrays by name, [type, shape, order, offset, checksum], and the byte at which
    the first array begins.
    """
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
    """The array, contiguous, and its memory order, ``C`` or ``F``.

    The order is kept, since matrix products may round differently in another.
    """
    array = np.asarray(values)
    if array.dtype.hasobject:
        raise TypeError("parts hold numbers and text, not objects")
    if array.flags.f_contiguous and not array.flags.c_contiguous:
        return array, "F"
    return (array if array.flags.c_contiguous else array.copy("C")), "C"


def _round_up(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def save_json(path: Path, value: object, *, durable: bool = True) -> None:
    """Write a value as JSON with sorted keys: a line for each entry, and for each object in a list."""
    with atomic_file(path, durable=durable) as file:
        file.write(_lines_of(value).encode() + b"\n")


def _lines_of(value: object) -> str:
    """JSON of a value, a line for each entry: without ``indent``, Python's encoder is ten times as fast."""
    if not isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    entries = (f"  {json.dumps(name)}: {_entry_of(value[name])}" for name in sorted(value))
    return "{\n" + ",\n".join(entries) + "\n}"


def _entry_of(value: object) -> str:
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        return "[\n    " + ",\n    ".join(json.dumps(each, sort_keys=True) for each in value) + "\n  ]"
    return json.dumps(value, sort_keys=True)


def save_with_checksum(path: Path, values: Mapping[str, Any], *, durable: bool = True) -> None:
    """Write a mapping to a JSON file, with a checksum of its content as one more entry."""
    save_json(path, {**values, SEAL: _seal_of(values)}, durable=durable)


def load_with_checksum(path: Path) -> dict[str, Any] | None:
    """Read what ``save_with_checksum`` wrote, or an earlier version without checksum.

    None if it is damaged or missing.
    """
    values = load_json(path, dict)
    if values is not None and SEAL in values and values.pop(SEAL) != _seal_of(values):
        return None
    return values  # type: ignore[no-any-return]


def is_sealed(path: Path) -> bool:
    """True if ``save_with_checksum`` wrote a file, and nobody has changed it since."""
    values = load_json(path, dict)
    return values is not None and values.pop(SEAL, None) == _seal_of(values)


def _seal_of(values: Mapping[str, Any]) -> int:
    return checksum(json.dumps(values, sort_keys=True).encode())


def load_json(path: Path, kind: type[Any] = object, most: int = METADATA_BYTES) -> Any:
    """Read a JSON value; None if it is missing, damaged, larger than ``most`` bytes, or not a ``kind``."""
    try:
        value = read_json(path, most)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, kind) else None


PIECE_BYTES = 2**26
READ_BYTES = 2**24


def checksum(data: npt.NDArray[Any] | bytes, value: int = 0) -> int:
    """CRC-32C of bytes, or of a contiguous array in memory order; 7 GB/s.

    ``value`` is the checksum of preceding bytes.

    >>> hex(checksum(b"123456789"))
    '0xe3069283'
    """
    flat = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else flat_bytes(data)
    for start in range(0, len(flat), PIECE_BYTES):
        value = google_crc32c.extend(value, flat[start : start + PIECE_BYTES])
    return int(value)


def file_checksum(file: int, start: int, length: int) -> int | None:
    """CRC-32C of ``length`` bytes of an open file from byte ``start`` on; None if the file ends earlier.

    ``file`` is its descriptor; 16 MiB are read at a time.
    """
    value, end = 0, start + length
    buffer = np.empty(min(length, READ_BYTES), np.uint8)
    for first in range(start, end, READ_BYTES):
        piece = buffer[: min(READ_BYTES, end - first)]
        if os.preadv(file, [piece.data], first) != len(piece):
            return None
        value = checksum(piece, value)
    return value


def flat_bytes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The bytes of a contiguous array, as a vector that shares its memory."""
    if not array.size:
        return np.empty(0, np.uint8)
    return (array if array.flags.c_contiguous else array.T).reshape(-1).view(np.uint8)


BLOCKS, NAMES = ".blocks", ".names"
"""Names of the two arrays of a part that hold a ledger: its blocks, and the names of their files."""

_WRITER = threading.local()


@dataclass(slots=True)
class Ledger:
    """Written blocks by file: ``{path within the run: {first byte: (length in bytes, checksum)}}``."""

    blocks: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)

    def note(self, path: Path, start: int, data: npt.NDArray[Any]) -> None:
        """Add ``data``, written to a file from byte ``start`` on; it replaces an earlier block there."""
        self.blocks.setdefault(name_in_run(path) or str(path), {})[start] = (data.nbytes, checksum(data))

    def add(self, other: Ledger) -> None:
        """Add all blocks of another ledger."""
        for name, blocks in other.blocks.items():
            self.blocks.setdefault(name, {}).update(blocks)

    def as_arrays(self) -> State:
        """The ledger as arrays to be stored in a part (checkpoint file); no arrays if nothing was written."""
        if not self.blocks:
            return {}
        rows = [
            (index, start, *block)
            for index, blocks in enumerate(self.blocks.values())
            for start, block in blocks.items()
        ]
        names = np.frombuffer(json.dumps(list(self.blocks)).encode(), np.uint8)
        return {BLOCKS: np.array(rows, np.int64), NAMES: names}

    @classmethod
    def taken_from(cls, state: State) -> Ledger:
        """Remove the arrays of a ledger from ``state``, the arrays of a part, and return the ledger."""
        ledger = cls()
        if BLOCKS in state:
            names = json.loads(state.pop(NAMES).tobytes())
            for index, start, length, value in state.pop(BLOCKS).tolist():
                ledger.blocks.setdefault(names[index], {})[start] = (length, value)
        return ledger


@contextlib.contextmanager
def record_writes(ledger: Ledger | None) -> Iterator[None]:
    """Within the block, record in a ledger what this thread writes; None records nothing."""
    before = getattr(_WRITER, "ledger", None)
    _WRITER.ledger = ledger
    try:
        yield
    finally:
        _WRITER.ledger = before


def note_written(path: Path, start: int, data: npt.NDArray[Any]) -> None:
    """Record contiguous ``data`` that this thread wrote to a file at byte ``start``, and begin to flush it.

    Does nothing outside of ``record_writes``.
    """
    ledger: Ledger | None = getattr(_WRITER, "ledger", None)
    if ledger is not None:
        ledger.note(path, start, data)
        begin_flush(path, start, data.nbytes)


def damaged_block(path: Path, blocks: Iterable[tuple[int, tuple[int, int]]]) -> str | None:
    """Compare blocks ``(first byte, (length in bytes, checksum))`` with the file at ``path``.

    Returns a description of damage, such as "is missing"; None if all blocks are whole.
    """
    try:
        with open_regular(path, buffering=0) as file:
            for start, (length, block_sum) in sorted(blocks):
                value = file_checksum(file.fileno(), start, length)
                if value != block_sum:
                    return "has lost its end" if value is None else "is not what was written"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None
