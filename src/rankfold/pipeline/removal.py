"""The only module that removes files and folders. A table in its test lists who may call it, and for what.

Everything that is removed was made by rankfold and is recognized: a file that this process is writing, a
part of a run by its name and place, or a finished result by its list of files (``foreign_entries`` of
``storage/manifest.py``). A path that a user named is never passed to ``remove``: an existing file is first
checked by ``outputs.py``, then renamed, and only then removed.

The trap: a folder that rankfold made may hold files of other people.
"""

from __future__ import annotations

import contextlib
import os
import shutil


def remove(path: str | os.PathLike[str]) -> None:
    """Remove a file, a link, or a folder with all its contents; a missing one is ignored.

    Links are removed and never followed. Contents of a folder that cannot be removed stay.
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
    """Remove a folder if it is empty; True if it was removed."""
    with contextlib.suppress(OSError):
        os.rmdir(folder)
        return True
    return False
