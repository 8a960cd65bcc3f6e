"""Give a folder a second name: hard links to the same files, or copies if the file system has no links.

A result that has its name is never written to again, so both names keep their bytes when one is removed.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from rankfold.pipeline.disk import bytes_under
from rankfold.pipeline.durable import flush, flush_all
from rankfold.pipeline.errors import DiskSpaceError
from rankfold.pipeline.units import format_bytes

NO_LINKS = (errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""Error numbers of file systems without hard links, or where only the owner of a file may link it."""


def duplicate(source: Path, target: Path) -> None:
    """Give the folder ``source`` a second name ``target``, which must not exist yet; on the disk on return.

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
