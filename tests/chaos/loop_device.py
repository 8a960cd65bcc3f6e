"""A small ext4 file system in a file, which can lose its power.

``shut_down`` is what a machine that loses power does to a file system: what was not flushed is gone, and the
log ends where it stood. Needs root and loop devices; ``missing_loop`` says in words why there are none.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from command_server import EXT4_SHUTDOWN, NO_LOG_FLUSH

IMAGE, MOUNT, OWNER = "chaos.ext4", "chaos.mount", "chaos.owner"
MEBIBYTES = 192


def missing_loop(folder: Path) -> str | None:
    """Why no power can be lost here; None if it can."""
    if os.geteuid():
        return "mounting a file system takes root: run the tests as root to have power lost"
    for tool in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"there is no {tool}: install e2fsprogs and mount"
    clear_all_stale()
    try:
        with file_system(folder, mebibytes=8) as mount:
            shut_down(mount)
    except (OSError, subprocess.CalledProcessError) as error:
        said = error.stderr.decode().strip() if isinstance(error, subprocess.CalledProcessError) else error
        return f"a loop device with ext4 cannot be mounted, or shut down, here: {said}"
    return None


@contextlib.contextmanager
def file_system(folder: Path, options: str = "", mebibytes: int = MEBIBYTES) -> Iterator[Path]:
    """A fresh file system; unmounted at the end, and its loop device with it."""
    folder.mkdir(parents=True, exist_ok=True)
    clear_stale(folder)
    image, mount = folder / IMAGE, folder / MOUNT
    (folder / OWNER).write_text(str(os.getpid()))
    with open(image, "wb") as file:
        file.truncate(mebibytes * 2**20)
    _call("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(image))
    mount.mkdir(exist_ok=True)
    try:
        attach(folder, options)
        yield mount
    finally:
        detach(folder)
        image.unlink(missing_ok=True)
        shutil.rmtree(mount, ignore_errors=True)


def attach(folder: Path, options: str = "") -> None:
    """Mount the file system; what its log holds is replayed."""
    _call(
        "mount", "-o", ",".join(["loop", *filter(None, [options])]), str(folder / IMAGE), str(folder / MOUNT)
    )


def detach(folder: Path) -> None:
    """Unmount the file system, once nobody uses it."""
    mount = folder / MOUNT
    for _ in range(100):
        if not os.path.ismount(mount):
            return
        if not subprocess.run(["umount", mount], capture_output=True).returncode:
            return
        time.sleep(0.1)
    _call("umount", "-l", str(mount))


def clear_all_stale() -> None:
    """Take away what harnesses that were killed have left mounted, wherever that is."""
    for line in Path("/proc/mounts").read_text().splitlines():
        mount = Path(line.split()[1])
        if mount.name == MOUNT and not _is_alive(mount.parent / OWNER):
            clear_stale(mount.parent)


def _is_alive(owner: Path) -> bool:
    try:
        os.kill(int(owner.read_text()), 0)
    except (OSError, ValueError):
        return False
    return True


def clear_stale(folder: Path) -> None:
    """Take away what is mounted in a folder, and its loop device."""
    if (folder / MOUNT).exists():
        detach(folder)
    found = subprocess.run(["losetup", "-j", folder / IMAGE], capture_output=True, text=True)
    for line in found.stdout.splitlines():
        subprocess.run(["losetup", "-d", line.partition(":")[0]], capture_output=True)
    (folder / IMAGE).unlink(missing_ok=True)


def shut_down(mount: Path) -> None:
    """Let the file system lose its power, now."""
    opened = os.open(mount, os.O_RDONLY)
    try:
        fcntl.ioctl(opened, EXT4_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
    finally:
        os.close(opened)


def _call(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
