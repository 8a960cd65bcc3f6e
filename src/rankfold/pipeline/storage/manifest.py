"""Manifest of a result: every file with its length and checksum, in ``manifest.json`` in its folder.

It is written last, and reveals damage: files that are missing, are cut short, or hold other bytes than were
written. Lengths are compared whenever a result is used, checksums on request. Checksums of the small files
of metadata are always compared.
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
from rankfold.pipeline.storage.checkpoint import atomic_file, checksum, damaged_block, file_checksum

NAME = "manifest.json"

DRAFT_NAME = re.compile(r"\..+\.[0-9a-f]{32}|.*\.[0-9a-f]{32}\.partial")
"""Pattern of the names of unfinished files: hidden ones are written by ``atomic_file``, others by Zarr."""

_IN_STORE = re.compile(r"(.+/)?(zarr\.json|c(/\d+)*)")
"""Pattern of the paths of files in a Zarr store of version 3: a group, arrays, and their chunks."""

COMPARISON = ContextVar("COMPARISON", default=False)
"""True if each check of a result in this context compares checksums, whatever the size of the result."""

SMALL_BYTES = 2**26
"""Largest number of bytes of a result whose checksums are always compared: it takes 20 ms."""

PRINT_LENGTH = 3
"""Largest number of damaged files that a message names."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Contents of a manifest: the request that a result answers, and its ``files``.

    These are (length in bytes, checksum), by the path of the file in the result.
    """

    request: str
    """Digest of the request that the result answers."""

    files: dict[str, tuple[int, int]]


def write_manifest(result: Path, request: str, blocks: Mapping[str, tuple[int, int]]) -> None:
    """Write the manifest of a finished result.

    ``request`` is the digest of its request. ``blocks`` are (length in bytes, checksum) of files by their
    path in the result, where they are known already; other files are read. Unfinished files of killed writers
    are removed.

    Raises
    ------
    DamagedStateError
        A file in ``blocks`` is missing, or has another length.
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
    """Remove unfinished files of a result, which a writer has left there when its folder was renamed."""
    for _, path in _files(result):
        if DRAFT_NAME.fullmatch(path.name):
            remove(path)


def read_manifest(result: Path) -> Manifest | None:
    """The manifest of a result; None if it has none.

    Raises
    ------
    DataError
        The manifest is not whole.
    PermissionError
        The manifest may not be read.
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
    """Entries in the folder of a result, or of an imported store, that were not written with it, in order.

    These are entries that its manifest lacks; without a manifest, all that are no files of a Zarr store. An
    empty folder is foreign. An unfinished file is not, and neither is a file of a known name with other
    content, or in place of a known folder.
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
        if own is None:
            return name == NAME or bool(_IN_STORE.fullmatch(name))
        return name in own or (name in own_folders and not os.path.islink(result / name))

    occupied = {folder for name in files for folder in _folders_above(name)}
    empty = (f"{name}/" for name in folders if name not in occupied | own_folders and not is_own(name))
    return sorted([*(name for name in files if not is_own(name)), *empty])


def _folders_above(name: str) -> Iterator[str]:
    while name := name.rpartition("/")[0]:
        yield name


def not_ours(result: Path) -> str | None:
    """Reason why the folder ``result`` may not be replaced, as the end of a sentence; None if it may."""
    if result.is_symlink():
        return "is a link"
    if foreign := foreign_entries(result):
        return f"holds {foreign[0]}, which was not made by rankfold"
    return None


def request_in(result: Path) -> str | None:
    """Digest of the request that a result answers, from its manifest; None without a valid one."""
    try:
        manifest = read_manifest(result)
    except (DataError, PermissionError):
        return None
    return None if manifest is None else manifest.request


def damage_of(result: Path, *, sums: bool = False, below: str = "") -> list[str]:
    """Descriptions of damaged files of a result, or of its array ``below``; empty if none is damaged.

    With ``sums``, files are read and checksums compared, as is always done for small results; else only
    lengths are compared. Results of versions that wrote no manifest are searched for missing chunks.
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
    """Descriptions of files of the result at ``path`` that differ from what was written; reads all files.

    Raises
    ------
    SourceNotFoundError
        The folder does not exist.
    """
    if not path.exists():
        require_finished(path)
        raise SourceNotFoundError(f"there is no result at {path}")
    if not path.is_dir() or not ((path / NAME).exists() or (path / "zarr.json").exists()):
        raise InputError(f"{path} is not a result of rankfold")
    return damage_of(path, sums=True)


def require_whole(result: Path, *, sums: bool = False, below: str = "") -> None:
    """Raise ``DataError``, with a remedy, if files of a result, or of its array ``below``, are damaged.

    ``sums`` as in ``damage_of``.
    """
    damage = damage_of(result, sums=sums, below=below)
    if damage:
        raise DataError(
            f"{damage_in_words(result, damage)}. Give the command that made it once more: it makes it again"
        )


def require_whole_input(path: str | None) -> None:
    """Raise ``DataError`` if the store of an input matrix has a manifest, and its files differ from that."""
    if path is None or not os.path.isfile(os.path.join(path, NAME)):
        return
    store = Path(path)
    try:
        read_manifest(store)
    except DataError:  # perhaps not by rankfold, so it says nothing about these files
        return
    if damage := damage_of(store):
        raise DataError(
            f"{damage_in_words(store, damage)}. Restore it, or make it again. If it was changed on purpose, "
            f"remove its {NAME}, which says what was written"
        )


def graph_shape(result: Path) -> tuple[int, int] | None:
    """Shape of the sparse matrix ``graph`` (such as of neighbors) in a result; None if it has none.

    ``DataError`` if it is damaged.
    """
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
    """One line that says that a result is damaged, with the first ``PRINT_LENGTH`` items of ``damage``."""
    more = f", and {len(damage) - PRINT_LENGTH} more" if len(damage) > PRINT_LENGTH else ""
    return f"{result} is damaged: {'; '.join(damage[:PRINT_LENGTH])}{more}"


def _missing_chunks(result: Path) -> Iterator[str]:
    """Describe chunks that a result without a manifest lacks: Zarr would read them as zeros."""
    import zarr

    from rankfold.pipeline.chunks.regular_store import zarr_node

    folders = sorted(path.parent for _, path in _files(result) if path.name == "zarr.json")
    if result not in folders:
        yield "zarr.json is missing"
    try:
        for folder in folders:
            array = zarr_node(folder)
            if isinstance(array, zarr.Array):
                # Files are counted, not looked up by name: a damaged shape may have any number of chunks.
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
