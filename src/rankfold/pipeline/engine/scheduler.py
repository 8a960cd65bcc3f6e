"""Interface of sweeps to the place where they run.

The pipeline builds graphs and hands them over. It never makes a pool or a client: ``rankfold.cluster`` does.

Data that tasks have in common: an object in this process, a file that each other process reads once.

Tables of grains and arrays in memory may be large, and tasks are many, but a scheduler must hold little for
each of them. Large arrays get files of their own, which other processes map: the kernel can reclaim mapped
pages.

Loading a pickle can run any code, so the digest of the file travels with the task: no worker loads a file
that this driver has not written, whoever may write in the folder of the run.
"""

from __future__ import annotations

import functools
import hashlib
import io
import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import DamagedStateError
from rankfold.pipeline.regular import open_regular
from rankfold.pipeline.storage.checkpoint import atomic_file

if TYPE_CHECKING:
    from dask.delayed import Delayed


@dataclass(frozen=True, slots=True)
class Budget:
    """Memory, threads and devices that one worker process may use, and the number of processes."""

    memory_bytes: int
    """Bytes of working memory above the baseline of the process, shared by its threads."""

    threads: int
    """Largest number of tasks that one process runs at once."""

    workers: int = 1
    """Number of worker processes."""

    gpus: int = 0
    """Number of GPUs reserved for each process; 0 to compute on the host."""

    readers: int = 1
    """Number of threads that read panels for a segment on a GPU."""

    bandwidth: float = 0.0
    """Bytes per second that the file system gives all processes together; 0 if that is not known."""

    @property
    def device(self) -> str:
        """Device of folds that have code for it: ``"gpu"`` or ``"cpu"``."""
        return "gpu" if self.gpus else "cpu"


class Warmup(Protocol):
    """Preparation that a process does once before it computes for a run; it is sent to workers."""

    def warm(self) -> None:
        """Compile and load the kernels that the run uses."""


class Scheduler(Protocol):
    """Place where the graphs of sweeps run: threads, processes or a cluster; one graph at a time."""

    @property
    def has_workers(self) -> bool:
        """True if other processes take tasks, and this one does not."""

    def members(self) -> tuple[str, ...]:
        """Addresses of the processes that take tasks now, of which some may go and others join.

        Raises
        ------
        ClusterError
            No process will join any more.
        """

    def compute(
        self, root: Delayed, *, concurrency: int, watch: Callable[[], None], stop: Callable[[], bool]
    ) -> Any:
        """Run a graph; returns the value of ``root``.

        At most ``concurrency`` tasks run at a time in one process.

        ``watch`` is called a few times a second while the graph runs. When it or the graph raises, or the
        user interrupts, ``stop`` is called in every process that works for it, until it returns True, as no
        task is left there. Only then is the error raised. ``stop`` is picklable.
        """


LARGE_BYTES = 8 * 2**20
BLOCK_BYTES = 4 * 2**20

_FILES: set[Path] = set()
"""Paths of files of large arrays that this process has written."""

T = TypeVar("T")


class ByReference(Generic[T]):
    """A value that pickles as path and digest of a file, which is written when it is first pickled."""

    def __init__(self, value: T, path: Path, seal: str = "") -> None:
        self.value, self.path = value, path
        self._seal, self._lock = seal, threading.Lock()

    def __reduce__(self) -> tuple[Callable[[str, str], ByReference[T]], tuple[str, str]]:
        # A scheduler pickles it with every task: only the first time touches the file system.
        with self._lock:
            if not self._seal:
                buffer = io.BytesIO()
                _Pickler(buffer, self.path.parent.parent).dump(self.value)
                with atomic_file(self.path, durable=False) as file:
                    file.write(buffer.getbuffer())
                self._seal = _seal_of(buffer.getbuffer())
        return _load, (str(self.path), self._seal)

    def __dask_tokenize__(self) -> str:
        # Dask would pickle it to name it: a hash, and a copy on disk, of every matrix in memory.
        return str(self.path)


@functools.lru_cache(maxsize=1)
def _load(name: str, seal: str) -> ByReference[Any]:
    path = Path(name)
    try:
        with open_regular(path) as file:
            data = file.read()
    except OSError as error:
        raise DamagedStateError(path, "is missing") from error
    if _seal_of(data) != seal:
        raise DamagedStateError(path, "is not what the driver of this run has written")
    return ByReference(pickle.loads(data), path, seal)


def _seal_of(data: bytes | memoryview) -> str:
    return hashlib.blake2b(data, digest_size=32).hexdigest()


class _Pickler(pickle.Pickler):
    """Pickler that writes large arrays to files in ``folder``, named by their content: once for a run."""

    def __init__(self, file: Any, folder: Path) -> None:
        super().__init__(file)
        self._folder = folder

    def reducer_override(self, value: Any) -> Any:
        """Replace a large array by its file, which is mapped when loaded; others are pickled as usual."""
        if not isinstance(value, np.ndarray) or value.nbytes < LARGE_BYTES or value.dtype.hasobject:
            return NotImplemented
        path = self._folder / f"array-{_digest(value)}.npy"
        if path not in _FILES or not path.exists():
            # A file that an earlier attempt left may be damaged: it is written again.
            with atomic_file(path, durable=False) as file:
                np.save(file, value)
            _FILES.add(path)
        return functools.partial(np.load, mmap_mode="r"), (path,)


def _digest(array: npt.NDArray[Any]) -> str:
    state = hashlib.blake2b(f"{array.dtype.str} {array.shape}".encode(), digest_size=12)
    step = max(1, BLOCK_BYTES * len(array) // array.nbytes)
    for first in range(0, len(array), step):
        state.update(np.ascontiguousarray(array[first : first + step]).data)
    return state.hexdigest()
