"""Ownership of folders of a run: contents that others may change are not trusted.

The state of a run (its checkpoints) decides the result, so it must belong to the user who runs the command,
and not be writable by all.
A group may write if the site allows it, as in folders of a project with the set-group-ID bit: its members can
corrupt numbers there, as they can those of the input and of the result. They cannot inject code: see
``by_reference``.

The trap: some file systems give all files to one owner, or have no permissions (root over NFS, FAT, shares of
containers). The owner and mode of a newly made file reveal this.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
import tempfile
from pathlib import Path

from rankfold.pipeline.errors import OutputError
from rankfold.pipeline.text import shell_words


def make_own_folder(path: Path) -> None:
    """Make a folder of a run with default permissions; if these let others write, others get none at all.

    An existing folder stays as it is: ``require_own`` checks it.
    """
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & stat.S_IWOTH:
        path.chmod(mode & ~stat.S_IRWXO)


def require_own(path: Path, option: str = "--out") -> None:
    """Raise unless a folder belongs to this user, and is not writable by everybody.

    Raises
    ------
    OutputError
        It belongs to another user, or all may write; ``option`` is the option that chooses the folder.
    """
    about = path.stat()
    foreign, open_to_all = about.st_uid != os.geteuid(), bool(about.st_mode & stat.S_IWOTH)
    if foreign or open_to_all:
        usual = _made_now(path)
        foreign = foreign and (usual is None or usual.st_uid != about.st_uid)
        open_to_all = open_to_all and (usual is None or not usual.st_mode & stat.S_IWOTH)
    if foreign:
        owner = _user(about.st_uid)
        raise OutputError(
            f"{path} belongs to {owner}, and you are {_user(os.geteuid())}: what a run has left decides its "
            f"result, so only its owner may go on with it. Have it removed by {owner}, or choose another "
            f"{option}"
        )
    if open_to_all:
        raise OutputError(
            f"{path} may be written by everybody (mode {stat.S_IMODE(about.st_mode):o}): what lies in it "
            f"decides the result, and may be anybody's. Remove it; or, if nobody else was there, give the "
            f"same command again after chmod -R o-w {shell_words([str(path)])}"
        )


def _made_now(folder: Path) -> os.stat_result | None:
    """Owner and mode of a new private file in a folder; None if no file can be made."""
    with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=folder) as file:
        return os.fstat(file.fileno())
    return None


def _user(number: int) -> str:
    with contextlib.suppress(KeyError):
        return f"{pwd.getpwuid(number).pw_name} (user {number})"
    return f"user {number}"
