"""What a result consists of: every file with its length and checksum, in ``manifest.json`` in its folder.

It is written last, and makes damage known: files that have gone, have lost their end, or hold other bytes
than were written. Lengths are compared whenever a result is used, checksums where that is asked for, and
those of the small files that say what arrays are always.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankfold.pipeline.chunks.absence import chunk_count
from rankfold.pipeline.errors import DamagedStateError, DataError, InputError, SourceNotFoundError
from rankfold.pipeline.outputs import require_finished
from rankfold.pipeline.regular import TABLE_BYTES, open_regular, read_json
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.checkpoint import atomic_file
from rankfold.pipeline.storage.checksum import checksum, file_checksum
from rankfold.pipeline.storage.ledger import damaged_block

NAME = "manifest.json"

DRAFT_NAME = re.compile(r"\..+\.[0-9a-f]{32}|.*\.[0-9a-f]{32}\.partial")
"""Names of files that are being written: hidden ones are ours (``atomic_file``), the others Zarr's."""

_IN_STORE = re.compile(r"(.+/)?(zarr\.json|c(/\d+)*)")
"""Paths of files in a Zarr store of version 3: a group, arrays, and their chunks."""

COMPARISON = ContextVar("COMPARISON", default=False)
"""Whether checksums of results of any size are compared whenever one is looked at."""

SMALL_BYTES = 2**26
"""Of results that are read whenever they are looked at: it takes 20 ms."""

PRINT_LENGTH = 3
"""Files that a message names."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Files of a result by their path in it: (bytes, checksum)."""

    request: str
    """Digest of what it is the answer to."""

    files: dict[str, tuple[int, int]]


def write_manifest(result: Path, request: str, blocks: Mapping[str, tuple[int, int]]) -> None:
    """Take stock of a finished result; ``blocks`` are checksums that need not be computed again.

    What killed writers left is removed.

    Raises
    ------
    DamagedStateError
        A file that is known is missing, or has another length.
    """
    remove(result / NAME)
    files: dict[str, list[int]] = {}
    for name, path in _files(result):
        if path.name.startswith(".") or DRAFT_NAME.fullmatch(path.name):  # nothing of a result is hidden
            remove(path)
            continue
        size = path.stat().st_size
        if name in blocks and blocks[name][0] != size:
            raise DamagedStateError(path, "has lost its end")
        files[name] = [size, blocks[name][1] if name in blocks else _sum_of(path, size)]
    for name in blocks:
        if name not in files:
            raise DamagedStateError(result / name, "is missing")
    with atomic_file(result / NAME, durable=False) as file:
        file.write(json.dumps({"request": request, "checksum": _own_sum(request, files), "files": files},
                              sort_keys=True, indent=0).encode() + b"\n")  # fmt: skip


def remove_drafts(result: Path) -> None:
    """Remove what a writer left half-written as its folder was renamed."""
    for _, path in _files(result):
        if DRAFT_NAME.fullmatch(path.name):
            remove(path)


def read_manifest(result: Path) -> Manifest | None:
    """The manifest of a result; None where there is none.

    Raises
    ------
    DataError
        There is one that is not whole.
    PermissionError
        There is one that may not be read.
    """
    path = result / NAME
    try:
        record = read_json(path, TABLE_BYTES)
        files = {str(name): (int(size), int(file_sum)) for name, (size, file_sum) in record["files"].items()}
        if record["checksum"] == _own_sum(record["request"], record["files"]):
            return Manifest(str(record["request"]), files)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        pass
    raise DataError(f"{path} is not whole, so nothing can be said of the result")


def foreign_entries(result: Path) -> list[str]:
    """What lies in the folder of a result, or of an imported store, and was not written with it, in order.

    Its manifest tells; without one, whatever is no file of a Zarr store. Folders without files are foreign.
    Files that were being written are not, and neither is damage: another file under a name of ours.
    """
    try:
        manifest = read_manifest(result)
    except (DataError, PermissionError):
        manifest = None
    own = None if manifest is None else {NAME, *manifest.files}
    own_folders = {folder for name in own or () for folder in _folders_above(name)}
    files, folders = list[str](), list[str]()
    for parent, inner, names in os.walk(result):
        at = os.path.relpath(parent, result)
        prefix = "" if at == os.curdir else f"{at}/"
        links = {name for name in inner if os.path.islink(os.path.join(parent, name))}
        folders += (f"{prefix}{name}" for name in inner if name not in links)
        files += (f"{prefix}{name}" for name in (*names, *links) if not DRAFT_NAME.fullmatch(name))

    def is_own(name: str) -> bool:
        return name == NAME or bool(_IN_STORE.fullmatch(name)) if own is None else name in own

    occupied = {folder for name in files for folder in _folders_above(name)}
    empty = (f"{name}/" for name in folders if name not in occupied | own_folders and not is_own(name))
    return sorted([*(name for name in files if not is_own(name)), *empty])


def _folders_above(name: str) -> Iterator[str]:
    while name := name.rpartition("/")[0]:
        yield name


def not_ours(result: Path) -> str | None:
    """Why a folder may not be replaced, in words that end a sentence; None if it may."""
    if result.is_symlink():
        return "is a link"
    if foreign := foreign_entries(result):
        return f"holds {foreign[0]}, which was not made by rankfold"
    return None


def request_in(result: Path) -> str | None:
    """Digest of what a result is the answer to, by its manifest; None where that does not tell."""
    try:
        manifest = read_manifest(result)
    except (DataError, PermissionError):
        return None
    return None if manifest is None else manifest.request


def damage_of(result: Path, *, sums: bool = False, below: str = "") -> list[str]:
    """What is wrong with the files of a result, or of one array of it; nothing if all is well.

    ``sums``: read them and compare checksums, as is done for small results in any case; else lengths are
    compared. Results of versions that wrote no manifest are looked through for chunks that have gone.
    """
    try:
        manifest = read_manifest(result)
    except DataError:
        return [f"{NAME} is not whole"]
    if manifest is None:
        return list(_missing_chunks(result))
    sums = sums or COMPARISON.get() or sum(size for size, _ in manifest.files.values()) <= SMALL_BYTES
    faults = []
    for name, (size, file_sum) in sorted(manifest.files.items()):
        if below and not name.startswith(f"{below}/"):
            continue
        path = result / name
        try:
            length = path.stat().st_size
        except OSError:
            faults.append(f"{name} is missing")
            continue
        if length != size:
            faults.append(f"{name} has {length} bytes of {size}")
        elif sums or path.name == "zarr.json":
            reason = damaged_block(path, [(0, (size, file_sum))])
            if reason is not None:
                faults.append(f"{name} {reason}")
    return faults


def changed_files(path: Path) -> list[str]:
    """Files of a result that are not what was written: all are read.

    Raises
    ------
    SourceNotFoundError
        There is no such folder.
    """
    if not path.exists():
        require_finished(path)
        raise SourceNotFoundError(f"there is no result at {path}")
    if not path.is_dir() or not ((path / NAME).exists() or (path / "zarr.json").exists()):
        raise InputError(f"{path} is not a result of rankfold")
    return damage_of(path, sums=True)


def require_whole(result: Path, *, sums: bool = False, below: str = "") -> None:
    """Raise ``DataError`` for a result, or an array of it, that is damaged; it says where and what to do."""
    damage = damage_of(result, sums=sums, below=below)
    if damage:
        raise DataError(
            f"{damage_in_words(result, damage)}. Give the command that made it once more: it makes it again"
        )


def require_whole_input(path: str | None) -> None:
    """Raise ``DataError`` where a matrix lies in a store that tells of its files, and these are others."""
    if path is None or not os.path.isfile(os.path.join(path, NAME)):
        return
    store = Path(path)
    try:
        read_manifest(store)
    except DataError:  # of somebody else, perhaps: it tells nothing of these files
        return
    if damage := damage_of(store):
        raise DataError(
            f"{damage_in_words(store, damage)}. Restore it, or make it again. If it was changed on purpose, "
            f"remove its {NAME}, which says what was written"
        )


def graph_shape(result: Path) -> tuple[int, int] | None:
    """Rows and columns of the graph of a result, if it has one; ``DataError`` where that is not whole."""
    from rankfold.pipeline.formats.csr import csr_source

    if not (result / "graph").exists():
        return None
    try:
        graph = csr_source(str(result), "graph")
        graph.check_lengths()
    except InputError as error:
        raise DataError(f"{result} is damaged: {error}") from error
    return graph.shape


def damage_in_words(result: Path, damage: list[str]) -> str:
    """One line of what is wrong."""
    more = f", and {len(damage) - PRINT_LENGTH} more" if len(damage) > PRINT_LENGTH else ""
    return f"{result} is damaged: {'; '.join(damage[:PRINT_LENGTH])}{more}"


def _missing_chunks(result: Path) -> Iterator[str]:
    """Chunks that results without a manifest lack: Zarr would read them as zeros."""
    import zarr

    from rankfold.pipeline.chunks.regular_store import zarr_node

    folders = sorted(path.parent for _, path in _files(result) if path.name == "zarr.json")
    if result not in folders:
        yield "zarr.json is missing"
    try:
        for folder in folders:
            array = zarr_node(folder)
            if isinstance(array, zarr.Array):
                # Files are counted, and not asked for by name: a damaged shape may have any number of chunks.
                stored = sum(path.name != "zarr.json" for _, path in _files(folder))
                count = chunk_count(array.shape, array.shards or array.chunks)
                if stored < count:
                    name = "the matrix" if folder == result else folder.relative_to(result).as_posix()
                    yield f"{count - stored} of {count} chunks of {name} have gone"
    except (KeyError, ValueError, OSError, TypeError, AttributeError, ZeroDivisionError) as error:
        yield f"it cannot be read ({type(error).__name__})"


def _files(result: Path) -> Iterator[tuple[str, Path]]:
    start = len(os.path.join(result, ""))
    for parent, _, names in os.walk(result):
        for name in names:
            path = os.path.join(parent, name)
            yield path[start:].replace(os.sep, "/"), Path(path)


def _sum_of(path: Path, size: int) -> int:
    with open_regular(path, buffering=0) as file:
        value = file_checksum(file.fileno(), 0, size)
    if value is None:
        raise DamagedStateError(path, "has lost its end")
    return value


def _own_sum(request: Any, files: Any) -> int:
    return checksum(json.dumps([request, files], sort_keys=True).encode())
