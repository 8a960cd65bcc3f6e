"""Space on file systems: which one holds a folder, how much is free there, and how much a folder takes.

Folders need not exist yet: a result and scratch are planned before they are made.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def nearest_folder(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def device_of(folder: Path) -> int:
    """Device number (``st_dev``) of the file system that holds, or will hold, a folder."""
    return os.stat(nearest_folder(folder)).st_dev


def free_bytes(folder: Path) -> int:
    """Free bytes on the file system that holds, or will hold, a folder."""
    return shutil.disk_usage(nearest_folder(folder)).free


def bytes_under(folder: Path) -> int:
    """Total size of all files in a folder; 0 if it does not exist."""
    return sum(
        os.lstat(os.path.join(parent, name)).st_size for parent, _, names in os.walk(folder) for name in names
    )
