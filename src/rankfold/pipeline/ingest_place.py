"""Where an import works: a folder beside the destination, which appears under its name when complete.

Until then the store lies in ``DESTINATION.partial-HOST-PID``. The host is part of the name because on a
shared file system a process that lives elsewhere looks dead.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from rankfold.pipeline.durable import flush, flush_tree
from rankfold.pipeline.errors import DiskSpaceError, OutputError
from rankfold.pipeline.manifest import NAME as MANIFEST
from rankfold.pipeline.rundir import lies_in
from rankfold.pipeline.sources.locate import node_kind
from rankfold.pipeline.units import format_bytes

FULL = (errno.ENOSPC, errno.EDQUOT)


def require_place(target: Path, overwrite: bool) -> None:
    """Raise unless a store may be made, or replaced, at ``target``."""
    if not target.parent.is_dir():
        raise OutputError(f"{target} cannot be written: the folder {target.parent} does not exist. Create it")
    if not os.path.lexists(target):
        return
    if not overwrite:
        raise OutputError(f"{target} exists. Say --overwrite to replace it, or give another name")
    if node_kind(str(target)) is None and not (target / MANIFEST).is_file():
        raise OutputError(
            f"{target} exists and is not a Zarr store, so it is not replaced. Remove it yourself"
        )


def require_apart(target: Path, source: str | None) -> None:
    """Raise if a store at ``target`` would replace the file or folder ``source``, or lie in or around it."""
    if source is None:
        return
    if lies_in(target, source) or lies_in(source, target):
        raise OutputError(f"{target} would lie in, on or around its own input {source}. Give another name")


def require_room(need: int, folder: Path, name: str) -> None:
    """Raise ``DiskSpaceError`` unless so many bytes are free where ``folder`` lies, or will lie."""
    free = shutil.disk_usage(folder).free
    if need > free:
        raise DiskSpaceError(
            f"importing {name} needs about {format_bytes(need)} more in {folder.parent}, but "
            f"{format_bytes(free)} are free. Free {format_bytes(need - free)}, or write elsewhere"
        )


@contextlib.contextmanager
def working_folder(target: Path, need: int) -> Iterator[Path]:
    """A folder beside ``target`` that is gone afterwards, whatever happens in between."""
    _remove_leftovers(target)
    free = shutil.disk_usage(target.parent).free
    folder = target.with_name(f"{target.name}.partial-{socket.gethostname()}-{os.getpid()}")
    try:
        folder.mkdir()
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error}") from error
    try:
        yield folder
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise DiskSpaceError(
            f"the disk of {target} is full ({error}): the import takes about {format_bytes(need)}, and "
            f"{format_bytes(free)} were free when it began. Nothing is left of it; free some space"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_leftovers(target: Path) -> None:
    """Remove what imports to the same name left on this host when they were killed."""
    start = f"{target.name}.partial-{socket.gethostname()}-"
    for entry in target.parent.iterdir():
        pid = entry.name.removeprefix(start)
        if entry.name.startswith(start) and pid.isdigit() and not _alive(int(pid)):
            shutil.rmtree(entry, ignore_errors=True)


def _alive(pid: int) -> bool:
    """Whether there is such a process on this host."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def publish(made: Path, target: Path, overwrite: bool) -> None:
    """Give a complete store its name once it is on the disk; what had it goes with the working folder."""
    flush_tree(made)
    replaced = made.with_name("replaced")
    if overwrite and os.path.lexists(target):
        os.rename(target, replaced)
    try:
        os.rename(made, target)
    except OSError as error:
        if os.path.lexists(replaced):
            os.rename(replaced, target)
        raise OutputError(f"{target} cannot be written: {error}") from error
    flush(target.parent)
