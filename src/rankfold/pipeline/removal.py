"""The only module that removes files and folders. Who may call it, and for what, is a table of its test.

Everything that is removed was made by rankfold and is known again: a file that this process is writing, a
part of a run by its name and place, or a finished result by its list of files (``foreign_entries`` of
``storage/manifest.py``). A path that a user named is never passed to ``remove``: what stands there is checked
by ``outputs.py`` first, takes another name, and only then goes.

The trap: a folder of ours may hold files that somebody else put there.
"""

from __future__ import annotations

import contextlib
import os
import shutil


def remove(path: str | os.PathLike[str]) -> None:
    """Remove a file, a link, or a folder with all that is in it; nothing if it is not there.

    Links are removed and never followed. What of a folder cannot be removed stays.
    """
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError:
        if not os.path.isdir(path) or os.path.islink(path):
            raise
        shutil.rmtree(path, ignore_errors=True)


def remove_empty(folder: str | os.PathLike[str]) -> bool:
    """Remove a folder that holds nothing; whether it has gone."""
    with contextlib.suppress(OSError):
        os.rmdir(folder)
        return True
    return False
