"""Earlier results of a stage: ``STAGE.earlier/0007-2026-11-25T030000Z.zarr`` next to ``STAGE.zarr``.

The number gives the order, even if clocks were changed; the time is that at which the result was made.

Before a stage begins that will replace its result, that result gets a second name here. When the new one has
its name, the oldest surplus results are removed. So at every moment the newest finished result has at least
one name, and a kill leaves at most one result too many, which is removed after the next run.

The trap: only results that ``earlier.json`` lists, with the same seal (digest of files and checksums), are
ever removed. All else in the folder was put there by somebody else.

A second name is a folder of hard links to the same files, or of copies if the file system has no links. A
result that has its name is never written to again, so both names keep their bytes when one is removed.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankfold.pipeline.durable import flush, flush_all, rename_durably
from rankfold.pipeline.errors import DiskSpaceError, InputError, OutputError
from rankfold.pipeline.machine import bytes_under
from rankfold.pipeline.regular import TABLE_BYTES, read_bounded
from rankfold.pipeline.removal import remove, remove_empty
from rankfold.pipeline.storage.checkpoint import load_json, load_with_checksum, save_with_checksum
from rankfold.pipeline.storage.journal import is_text
from rankfold.pipeline.storage.manifest import DRAFT_NAME, damage_of, foreign_entries
from rankfold.pipeline.storage.manifest import NAME as MANIFEST
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.units import format_bytes

LOG = logging.getLogger("rankfold")

INDEX = "earlier.json"
NAME = re.compile(r"(\d{4,})-\d{4}-\d\d-\d\dT\d{6}Z\.zarr")
DRAFT, DOOMED = ".keeping-", ".removing-"
"""Prefixes of names of results that are being made here, and of those being removed."""


@dataclass(frozen=True, slots=True)
class EarlierResult:
    """A result that a newer one has replaced, or is about to replace."""

    path: Path
    seal: str
    """Digest of its list of files and checksums: equal for two results if all their bytes are equal."""

    made: str
    rows: int | None

    @property
    def number(self) -> int:
        """Number in the order in which results were kept, from its name."""
        return _number(self.path.name)

    @property
    def size_bytes(self) -> int:
        """Bytes of its files."""
        return bytes_under(self.path)

    def is_own(self) -> bool:
        """True if ``path`` still holds the result that was kept there, by its seal."""
        named = NAME.fullmatch(self.path.name) and not self.path.is_symlink()
        return bool(named) and self.seal == content_digest(self.path)

    def as_dict(self) -> dict[str, Any]:
        """Facts of the result, for JSON."""
        return {"out": str(self.path), "made": self.made, "rows": self.rows, "bytes": self.size_bytes}


@dataclass(frozen=True, slots=True)
class EarlierResults:
    """Earlier results of a stage; ``result`` is the path of its newest result."""

    result: Path

    @property
    def folder(self) -> Path:
        """Folder of the earlier results."""
        return self.result.with_name(self.result.name.removesuffix(".zarr") + ".earlier")

    def all(self) -> list[EarlierResult]:
        """Results before the newest, the oldest first."""
        entries = self._entries()
        if entries and entries[-1].seal == content_digest(self.result):
            entries.pop()  # a second name of the newest: a stage has begun that will replace it
        return entries

    def surplus(self, most: int) -> list[Path]:
        """Results to remove when a new result is complete, if ``most`` results may stay, including the new
        one.
        """
        there = [self.result] if self.result.exists() else []
        after = [*(entry.path for entry in self.all()), *there]
        return after[: max(0, len(after) - (most - 1))]

    def keep(self, most: int) -> None:
        """Give the newest result a second name, before it is replaced; at most ``most`` results are kept.

        Raises
        ------
        OutputError, DiskSpaceError
            It cannot be kept. The result stays as it is.
        """
        if most == 1 and self._index() is None:
            return
        with self._disk_errors():
            self.folder.mkdir(exist_ok=True)
            self._require_own()
            self._tidy()
            entries, seal = self._entries(), content_digest(self.result)
            if most == 1 or not seal or (entries and entries[-1].seal == seal):
                self._save(entries, most)
                return
            made = _made(self.result)
            path = self.folder / f"{self._next_number():04d}-{made}.zarr"
            draft = path.with_name(DRAFT + path.name)
            try:
                duplicate(self.result, draft)
                if damage := damage_of(draft):
                    LOG.warning("%s is damaged (%s), so it is not kept", self.result, damage[0])
                    self._save(entries, most)
                    return
                # Listed first: a result that has its name but is not listed would stay for ever.
                self._save([*entries, EarlierResult(path, seal, made, rows_of(self.result))], most)
                rename_durably(draft, path)
            finally:
                remove(draft)

    def finish(self) -> None:
        """Remove surplus results, now that the newest is in its place, and leftovers of a kill."""
        index = self._index()
        if index is None:
            return
        try:
            self._tidy()
            most, entries = index["keep"], self.all()
            for entry in entries[: max(0, len(entries) - (most - 1))]:
                self._remove(entry)
            if (entries := self._entries()) or most > 1:
                self._save(entries, most)
            else:
                remove(self.folder / INDEX)
                remove_empty(self.folder)
        except OSError as error:  # surplus results stay: the new result is no failure for that
            LOG.warning("%s: earlier results that are too many stay (%s)", self.folder, error.strerror)

    def _entries(self) -> list[EarlierResult]:
        """Results that are listed and exist, the oldest first."""
        listed = (self._index() or {"results": {}})["results"]
        entries = [EarlierResult(self.folder / name, **facts) for name, facts in listed.items()]
        return sorted((one for one in entries if one.is_own()), key=lambda one: one.number)

    def _index(self) -> dict[str, Any] | None:
        """The list of results, and how many of them are kept; None if it is missing, damaged or foreign."""
        index = load_with_checksum(self.folder / INDEX)
        is_own = index is not None and isinstance(index.get("keep"), int) and _is_list(index.get("results"))
        return index if is_own else None

    def _require_own(self) -> None:
        """Raise ``OutputError`` if the file of the list is of somebody else.

        A damaged list lies next to the results that it listed, and is made again.
        """
        path = self.folder / INDEX
        if (
            os.path.lexists(path)
            and self._index() is None
            and not any(map(NAME.fullmatch, os.listdir(self.folder)))
        ):
            raise OutputError(
                f"{path} was not made by rankfold, and earlier results are listed in such a file. The result "
                "that is to be replaced stays as it is. Move that file away, or set keep: 1"
            )

    def _save(self, entries: list[EarlierResult], most: int) -> None:
        facts = {one.path.name: {k: v for k, v in asdict(one).items() if k != "path"} for one in entries}
        value = {"results": facts, "keep": most}
        if load_with_checksum(self.folder / INDEX) != value:
            save_with_checksum(self.folder / INDEX, value)

    def _next_number(self) -> int:
        """One more than the largest number used here, also by results that are being made or removed."""
        names = [name.removeprefix(DRAFT).removeprefix(DOOMED) for name in os.listdir(self.folder)]
        return 1 + max((_number(name) for name in names if NAME.fullmatch(name)), default=0)

    def _remove(self, entry: EarlierResult) -> None:
        """Remove an earlier result; it is renamed first, so that no reader sees a part of it.

        It stays, with a warning, if it holds a file of somebody else.
        """
        if strange := foreign_entries(entry.path):
            LOG.warning("%s stays: %s in it is of somebody else", entry.path, strange[0])
            return
        doomed = entry.path.with_name(DOOMED + entry.path.name)
        rename_durably(entry.path, doomed)
        remove(doomed)

    def _tidy(self) -> None:
        """Remove results that were being made or removed when a process was killed."""
        for name in os.listdir(self.folder):
            unfinished = re.fullmatch(rf"({re.escape(DRAFT)}|{re.escape(DOOMED)})(.+)", name)
            draft_of_list = DRAFT_NAME.fullmatch(name) and name.startswith(f".{INDEX}.")
            if draft_of_list or (unfinished and NAME.fullmatch(unfinished[2])):
                remove(self.folder / name)
        flush(self.folder)

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """Turn errors of the file system into errors of rankfold, with advice."""
        try:
            yield
        except OSError as error:
            if isinstance(error, DiskSpaceError):
                raise
            problem = f"the result that is to be replaced cannot be kept in {self.folder}"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskSpaceError(
                    f"{problem}: the disk is full. It stays as it is. Free some space, or set keep: 1"
                ) from error
            raise OutputError(
                f"{problem} ({error.strerror}). It stays as it is. Make that a folder that you may write "
                "to, or set keep: 1"
            ) from error


def content_digest(result: Path) -> str:
    """Digest of the manifest (files and checksums) of the result at a path, or else of its metadata.

    Empty if there is no result.
    """
    for name in (MANIFEST, "zarr.json"):
        with suppress(OSError):
            return hashlib.blake2b(read_bounded(result / name, TABLE_BYTES), digest_size=16).hexdigest()
    return ""


def rows_of(result: Path) -> int | None:
    """Number of rows of the matrix that a result was computed from, or of an imported one; None if unknown.

    ``result`` is the path of the result or of the imported store.
    """
    try:
        return int(Result(result).attrs["input"]["shape"][0])
    except (InputError, KeyError, TypeError, IndexError):
        facts = load_json(result / "zarr.json", dict) or {}
    for shape in (facts.get("shape"), (facts.get("attributes") or {}).get("shape")):
        if isinstance(shape, list) and shape:
            return int(shape[0])
    return None


def _is_list(results: object) -> bool:
    """True if a value from JSON maps names to facts of earlier results, as ``earlier.json`` does."""
    return isinstance(results, dict) and all(
        isinstance(one, dict)
        and one.keys() == {"seal", "made", "rows"}
        and is_text(one["seal"])
        and is_text(one["made"])
        and isinstance(one["rows"], int | None)
        for one in results.values()
    )


def _made(result: Path) -> str:
    """Time in UTC, as 2026-11-25T030000Z, when the result at a path was finished: that of its last file."""
    return time.strftime("%Y-%m-%dT%H%M%SZ", time.gmtime((result / "zarr.json").stat().st_mtime))


def _number(name: str) -> int:
    return int(name.partition("-")[0])


NO_LINKS = (errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""Error numbers of file systems without hard links, or where only the owner of a file may link it."""


def duplicate(source: Path, target: Path) -> None:
    """Give the folder ``source`` a second name ``target``, which must not exist yet; flushed to the disk.

    Costs a link for each file. Where there are no links, it costs reading and writing everything once.

    Raises
    ------
    DiskSpaceError
        There are no links, and copies do not fit.
    OSError
        It cannot be written; what was made before stays.
    """
    copies: list[Path] = []
    folders: list[Path] = []
    for parent, _, names in os.walk(source):
        twin = target / Path(parent).relative_to(source)
        twin.mkdir()
        folders.append(twin)
        for name in names:
            if not _link(Path(parent, name), twin / name):
                if not copies:
                    _require_room(source, target)
                shutil.copy2(Path(parent, name), twin / name)
                copies.append(twin / name)
    flush_all(copies)
    flush_all(reversed(folders))
    flush(target.parent)


def _link(source: Path, target: Path) -> bool:
    """Make a hard link; False if there are no links here."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        return False
    return True


def _require_room(source: Path, target: Path) -> None:
    need, free = bytes_under(source), shutil.disk_usage(target.parent).free
    if need > free:
        raise DiskSpaceError(
            f"{source} is to be kept as {target}. The file system makes no links, so it is copied, which "
            f"takes {format_bytes(need)}, and {format_bytes(free)} are free. "
            f"Free {format_bytes(need - free)}, or set keep: 1"
        )
