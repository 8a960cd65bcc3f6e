"""Room on file systems: on which a folder lies, how much is free there, and what a folder takes of it.

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
    """Number of the file system that a folder lies, or will lie, on."""
    return os.stat(nearest_folder(folder)).st_dev


def free_bytes(folder: Path) -> int:
    """Bytes free where a folder lies, or will lie."""
    return shutil.disk_usage(nearest_folder(folder)).free


def bytes_under(folder: Path) -> int:
    """Sizes of all files in a folder; 0 if there is none."""
    return sum(
        os.lstat(os.path.join(parent, name)).st_size for parent, _, names in os.walk(folder) for name in names
    )
