"""Checks of what a run needs from a machine: each returns one finding. They leave no files.

The same checks run here and, by ``node``, on a node of a cluster. None of them raises: what cannot be
determined is reported as such. The driver is the process in which a run was started; workers are its
processes elsewhere. Checks that ask SLURM or submit a job are in ``slurm`` and ``job``.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import importlib.util
import os
import platform
import resource
import shutil
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rankfold.cluster.local.threads import usable_cores
from rankfold.pipeline.durable import rename
from rankfold.pipeline.engine.memory import available_bytes, memory_limit
from rankfold.pipeline.errors import DeviceError, in_command
from rankfold.pipeline.gpu import require_device
from rankfold.pipeline.machine import core_type, one_blas_thread
from rankfold.pipeline.regular import read_bounded
from rankfold.pipeline.removal import remove
from rankfold.pipeline.text import Lines
from rankfold.pipeline.units import format_bytes

Verdict = Literal["ok", "warning", "failed", "not checked"]

PACKAGES = ("numpy", "scipy", "numba", "zarr", "dask", "distributed", "dask-jobqueue")
"""Packages whose versions a driver and its workers should share."""

TOO_NEW = (3, 14)

OPEN_FILES = 4096
"""Open files that a driver of about a hundred workers needs: four for each worker."""

FREE_BYTES = 10 * 2**30
MEMORY_BYTES = 2**30

WITHOUT_LOCKS = ("fuse.sshfs", "9p", "vboxsf", "fuse.s3fs")
"""File systems whose locks do not bind other machines."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check."""

    check: str
    verdict: Verdict
    found: str
    advice: str = ""
    """Advice on what to do; empty if there is nothing to do."""

    def __str__(self) -> str:
        advice = f". {self.advice}" * bool(self.advice)
        return Lines.joined(f"{self.verdict:<11}  {self.check:<27}  ", self.found, advice)


def local_findings(folder: Path) -> Iterator[Finding]:
    """Checks of this machine, and of a folder in which runs will work."""
    yield check_python()
    yield check_packages()
    yield check_blas()
    yield check_open_files()
    yield check_cores_and_memory()
    yield check_space(folder)
    yield check_writing(folder)
    yield check_compile_cache()
    yield check_gpu()
    yield check_dashboard()


def check_python() -> Finding:
    """Check that rankfold is tested with this interpreter."""
    interpreter = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info >= TOO_NEW:
        return Finding("python", "warning", interpreter, "rankfold is tested with 3.11 to 3.13")
    return Finding("python", "ok", interpreter)


def check_packages() -> Finding:
    """Check that the installed packages meet the requirements of rankfold."""
    from packaging.requirements import Requirement

    packages = ", ".join(f"{name} {version}" for name, version in versions().items())
    try:
        requirements = [Requirement(text) for text in importlib.metadata.requires("rankfold") or []]
    except importlib.metadata.PackageNotFoundError:
        return Finding("packages", "ok", f"{packages}; rankfold is run from its sources")
    wrong = []
    for one in requirements:
        if one.marker is None or one.marker.evaluate({"extra": ""}):
            version = _version(one.name)
            if version is None or not one.specifier.contains(version, prereleases=True):
                wrong.append(f"{one.name}{one.specifier} (there is {version or 'none'})")
    if wrong:
        return Finding("packages", "failed", packages, f"pip install: {', '.join(wrong)}")
    return Finding("packages", "ok", packages)


def versions() -> dict[str, str]:
    """Installed versions, by name, of the packages in ``PACKAGES``; missing ones are left out."""
    return {name: version for name in PACKAGES if (version := _version(name))}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_blas() -> Finding:
    """Find the BLAS library, and check that it uses one thread when limited to one."""
    from threadpoolctl import threadpool_info

    with one_blas_thread():
        threads = {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    if threads - {1}:
        advice = "Results may differ in the last bits: set OMP_NUM_THREADS=1"
        return Finding("BLAS", "warning", f"{core_type()}, {max(threads)} threads", advice)
    return Finding("BLAS", "ok", f"{core_type()}, one thread in sweeps")


def check_open_files() -> Finding:
    """Check how many files and connections this process may have open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < OPEN_FILES:
        most = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
        advice = f"Enough for some {soft // 4} workers; for more: ulimit -n {most}"
        return Finding("open files", "warning", f"{soft} of {most}", advice)
    return Finding("open files", "ok", str(soft))


def check_cores_and_memory() -> Finding:
    """Report the cores and the memory that a run uses by default."""
    there, limit = available_bytes(), memory_limit()
    capacity = f"{usable_cores()} cores of {os.cpu_count()}, {format_bytes(there)} of memory are free"
    if limit is not None:
        capacity += f", within a limit of {format_bytes(limit.limit_bytes)} on this process"
    if there < MEMORY_BYTES:
        return Finding("cores and memory", "warning", capacity, "Give a small --memory, or free some")
    return Finding("cores and memory", "ok", capacity)


def check_space(folder: Path) -> Finding:
    """Check the file system of the folder, and its free space."""
    kind = file_system(folder)
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding("working folder", "failed", f"{folder}: {error}", "Give a folder that is there")
    space = f"{folder.absolute()} on {kind or 'an unknown file system'}, {format_bytes(free)} free"
    if kind in WITHOUT_LOCKS:
        return Finding("working folder", "warning", space, "Its locks do not bind other machines")
    if kind in ("tmpfs", "ramfs"):
        return Finding("working folder", "warning", space, "It is memory: what lies there takes from workers")
    if free < FREE_BYTES:
        return Finding("working folder", "warning", space, "Results and scratch may not fit")
    return Finding("working folder", "ok", space)


def file_system(folder: Path) -> str | None:
    """Type of the file system that a folder lies on, where Linux says so."""
    path, best = str(folder.resolve()), ("", "")
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, point, kind, *_ = line.split()
            point = point.replace("\\040", " ")
            within = path == point or path.startswith(point.rstrip("/") + "/")
            if within and len(point) >= len(best[0]):
                best = (point, kind)
    return best[1] or None


def check_writing(folder: Path) -> Finding:
    """Write, lock and rename a file, as checkpoints and locks of runs do."""
    one, two = (folder / f".rankfold-doctor-{uuid.uuid4().hex[:8]}.{end}" for end in ("new", "done"))
    doing = "write"
    try:
        with open(one, "wb") as file:
            file.write(b"rankfold")
            os.fsync(file.fileno())
            doing = "lock"
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        doing = "rename"
        rename(one, two)
        doing = "read back"
        if read_bounded(two) != b"rankfold":
            raise OSError("other bytes than were written")
    except OSError as error:
        advice = "Runs cannot work here: choose another folder, such as scratch of the site"
        return Finding("writing there", "failed", f"{doing}: {error}", advice)
    finally:
        for path in (one, two):
            with contextlib.suppress(OSError):
                remove(path)
    return Finding("writing there", "ok", "write, lock, rename and read back")


def check_compile_cache() -> Finding:
    """Check that the folder in which compiled kernels are cached can be written to."""
    spec = importlib.util.find_spec("rankfold.kernels")
    beside = Path(spec.origin).parent if spec and spec.origin else Path()
    cache = Path(os.environ.get("NUMBA_CACHE_DIR") or beside)
    if os.access(cache, os.W_OK) or (not cache.exists() and os.access(cache.parent, os.W_OK)):
        return Finding("compile cache", "ok", str(cache))
    problem = f"{cache} cannot be written"
    advice = "Kernels go to your home, or are compiled by each process: set NUMBA_CACHE_DIR"
    return Finding("compile cache", "warning", problem, advice)


def check_gpu(*, must_exist: bool = False) -> Finding:
    """Check for a GPU that CuPy can compile for, allocate on and multiply with.

    If there is none, the check has failed with ``must_exist``, and else counts as not made.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    among = f" (CUDA_VISIBLE_DEVICES={visible})" if visible is not None else ""
    if importlib.util.find_spec("cupy") is None and not must_exist:
        return Finding("GPU", "not checked", f"CuPy is not installed{among}")
    try:
        cupy = require_device()
    except DeviceError as error:
        return Finding(
            "GPU", "failed" if must_exist else "not checked", f"{in_command(error.message)}{among}"
        )
    count, (free, total) = cupy.cuda.runtime.getDeviceCount(), cupy.cuda.Device(0).mem_info
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    memory = f"{format_bytes(free)} of {format_bytes(total)} free"
    return Finding("GPU", "ok", f"{count} by CuPy {cupy.__version__}: {name}, {memory}{among}")


def check_dashboard() -> Finding:
    """Check that a run with workers can show a dashboard."""
    import getpass
    import socket

    if importlib.util.find_spec("bokeh") is None:
        return Finding("dashboard", "not checked", "bokeh is not installed", "pip install bokeh")
    line = f"ssh -N -L PORT:ADDRESS:PORT {getpass.getuser()}@{socket.gethostname()}"
    return Finding("dashboard", "ok", f"each run says its port; from elsewhere: {line}")
