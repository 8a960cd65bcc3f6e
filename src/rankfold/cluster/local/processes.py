"""Worker processes on this machine.

They are started from the command line of Dask's worker and not forked or spawned from this process, so
that a script that calls rankfold needs no ``if __name__ == "__main__"``. They end when this process does,
however it ends.

One worker process, which a ``SpecCluster`` starts and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import importlib.util
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from distributed.deploy.spec import ProcessInterface

from rankfold.cluster.certificates import make_certificates
from rankfold.cluster.local.client import Client, prepare_scheduler
from rankfold.cluster.local.watchdog import Watchdog
from rankfold.pipeline.engine.scheduler import Budget, Warmup
from rankfold.pipeline.errors import DeviceError, NoWorkersError
from rankfold.pipeline.gpu import count_devices, require_device
from rankfold.pipeline.regular import open_regular, read_last_lines
from rankfold.pipeline.storage.run_directory import RunDirectory

if TYPE_CHECKING:
    from distributed import SpecCluster


LOG = logging.getLogger("rankfold")
START_SECONDS = 120.0
REGISTER_SECONDS = 60.0
"""Seconds within which a process must register. One that takes longer counts as stopped or hung, and is
replaced; its successor has the rest of ``START_SECONDS``.
"""
POLL_SECONDS = 1.0

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "BLIS_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "ZARR_THREADING__MAX_WORKERS": "1",
}
"""Environment of workers: one thread for every library, since parallelism comes from
concurrent segments (units of work).
"""

WORKER_SETTINGS = {
    # What a worker holds is planned. Dask would pause it near its planned peak, and never resume it.
    "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "False",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "120s",
    "PYTHONUNBUFFERED": "1",
}

WITHOUT_LOCKS = {"DASK_DISTRIBUTED__WORKER__USE_FILE_LOCKING": "False"}
"""Environment of workers whose folder belongs to one run, so that it never holds files
of an earlier run to remove.
"""

SCHEDULER_SETTINGS = {
    # Segments wait at the scheduler until a thread is free: a worker that comes late finds work.
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.allowed-failures": 10,
    # The watchdog checks liveness: Dask's own timer would close a successor of the same name.
    "distributed.deploy.lost-worker-timeout": "365d",
    "distributed.comm.timeouts.connect": "120s",
    "distributed.worker.use-file-locking": False,
    # Dask checks 50 times a second whether its loop is late, to warn of delays of seconds.
    "distributed.admin.tick.interval": "500ms",
}

FRESH_OBJECTS = 50_000
"""Number of new objects after which Python searches for cycles among them. A scheduler makes and keeps some
80 for each task: at Python's default of 700, the searches took 2.3 of 34 seconds of its thread in a pass of
9363 tasks.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Processes:
    """Worker processes on this machine as a place of execution; an ``Executor``."""

    budget: Budget
    is_remote: ClassVar[bool] = False

    def limited_to(self, workers: int) -> Processes:
        """A copy of this place of execution with at most ``workers`` processes."""
        budget = dataclasses.replace(self.budget, workers=min(workers, self.budget.workers))
        return dataclasses.replace(self, budget=budget)

    def check(self) -> None:
        """Raise if workers compute on GPUs and there are too few."""
        self._devices()

    def facts(self) -> dict[str, Any]:
        """Kind and size of the place of execution, by name, for the record of a run."""
        return {"kind": "processes", "workers": self.budget.workers, "threads": self.budget.threads}

    @contextlib.contextmanager
    def open_scheduler(self, run: RunDirectory, kernels: Warmup) -> Iterator[Client]:
        """Start the scheduler and the processes for a run; yield once all have registered."""
        from distributed import Client as DaskClient
        from distributed import Scheduler, SpecCluster

        devices = self._devices()
        logs = run.folder / "logs"
        logs.mkdir(exist_ok=True)
        with (
            scheduler_settings(run) as local,
            make_certificates(run.folder, tls=False) as (security, certificates),
        ):
            options = {
                "threads": self.budget.threads,
                "local": str(local),
                "logs": str(logs),
                "settings": {**os.environ, **ONE_THREAD, **WORKER_SETTINGS, **WITHOUT_LOCKS},
                "devices": devices,
                "certificates": tuple(certificates),
            }
            with (
                SpecCluster(
                    scheduler={
                        "cls": Scheduler,
                        "options": {**scheduler_options("127.0.0.1"), **security},
                    },
                    workers={
                        i: {"cls": WorkerProcess, "options": options} for i in range(self.budget.workers)
                    },
                    worker={"cls": WorkerProcess, "options": options},
                    silence_logs=logging.CRITICAL,
                    security=security.get("security"),
                ) as cluster,
                Watchdog(
                    cluster,
                    self.budget.workers,
                    find_ended=_find_ended,
                    every_seconds=POLL_SECONDS,
                    register_seconds=REGISTER_SECONDS,
                    journal=run.journal,
                ) as watchdog,
                DaskClient(cluster, set_as_default=False) as client,
            ):
                announce_dashboard(cluster)
                _wait(watchdog, self.budget.workers)
                workers, watch = self.budget.workers, watchdog.check
                with prepare_scheduler(client, run, kernels, workers=workers, watch=watch) as scheduler:
                    yield scheduler

    def _devices(self) -> tuple[str, ...]:
        """Names of the GPUs of the workers, one for each; empty on the CPU. Raises if there are too few."""
        if not self.budget.gpus:
            return ()
        devices = visible_devices()
        if not devices:
            require_device()
        if len(devices) < self.budget.workers:
            raise DeviceError(
                f"{self.budget.workers} workers take a GPU each, and CuPy finds {len(devices)} here: lower "
                "workers= (--workers), look at CUDA_VISIBLE_DEVICES, or leave out device='gpu' (--device gpu)"
            )
        return devices


def visible_devices() -> tuple[str, ...]:
    """GPUs that this process may use, by the names that ``CUDA_VISIBLE_DEVICES`` takes."""
    names = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    count = count_devices()
    return tuple(names[:count]) if names else tuple(str(device) for device in range(count))


@contextlib.contextmanager
def scheduler_settings(run: RunDirectory, more: Mapping[str, Any] = MappingProxyType({})) -> Iterator[Path]:
    """Apply the settings of a scheduler in this process; yield a folder that is removed when the block ends.

    ``more`` are further settings of Dask, by name. The folder takes the files that Dask would otherwise write
    next to its temporary files, or into the working directory where there is no place for those.
    """
    import dask

    with (
        tempfile.TemporaryDirectory(prefix="dask-", dir=run.state, ignore_cleanup_errors=True) as local,
        dask.config.set({**SCHEDULER_SETTINGS, **more, "temporary-directory": local}),
        _rare_searches_for_cycles(),
    ):
        yield Path(local)


@contextlib.contextmanager
def _rare_searches_for_cycles() -> Iterator[None]:
    """Raise the threshold of Python's search for cycles in the block, and restore it afterwards."""
    before = gc.get_threshold()
    if not 0 < before[0] < FRESH_OBJECTS:  # never, or rarely enough
        yield
        return
    gc.set_threshold(FRESH_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def scheduler_options(host: str) -> dict[str, Any]:
    """Options of a scheduler in this process that listens on one address only, its dashboard too."""
    dashboard = importlib.util.find_spec("bokeh") is not None
    return {"host": host, "port": 0, "dashboard": dashboard, "dashboard_address": f"{host}:0"}


def announce_dashboard(cluster: SpecCluster) -> None:
    """Log the address of the dashboard, and how to reach it from another machine."""
    import getpass
    import socket

    if importlib.util.find_spec("bokeh") is None:
        return
    address = cluster.dashboard_link.split("//")[1].split("/")[0]
    port = address.rpartition(":")[2]
    LOG.info(
        "dashboard http://%s/status; from another machine: ssh -N -L %s:%s %s@%s, then http://localhost:%s",
        address, port, address, getpass.getuser(), socket.gethostname(), port,
    )  # fmt: skip


def _find_ended(workers: dict[Any, Any], names: set[Any]) -> dict[Any, str]:
    """Reasons why processes have ended, by name of the worker; a ``watchdog.FindEnded``."""
    return {name: worker.last_words() for name, worker in workers.items() if worker.has_ended}


def _wait(watchdog: Watchdog, count: int) -> None:
    """Wait until all workers have registered, which takes a second or two."""
    until = time.monotonic() + START_SECONDS
    while watchdog.count_registered() < count:
        watchdog.check()
        if time.monotonic() > until:
            raise NoWorkersError(
                f"{watchdog.count_registered()} of {count} worker processes came up within "
                f"{START_SECONDS:.0f} s. The same command tries again; if they never do, "
                f"{sys.executable} -m distributed.cli.dask_worker --help says what keeps them"
            )
        time.sleep(0.05)


GRACE_SECONDS = 10.0
"""Seconds for the segments (units of work) of a worker to leave a checkpoint."""


class WorkerProcess(ProcessInterface):
    """A worker process in a session of its own, so that Ctrl-C reaches only the driver, the calling process.

    Parameters
    ----------
    scheduler
        Address of the Dask scheduler.
    name
        Name of the worker: its number, from 0, or that of the worker that it succeeds, ``+`` and a number.
    threads
        Tasks that it runs at once.
    local, logs
        Folders for its own files, removed if this process ends, and for its log.
    settings
        Its environment variables, all of them.
    devices
        Names of the GPUs of all workers, by their numbers; empty on the CPU.
    certificates
        Options of Dask's worker that name its TLS files.
    """

    def __init__(
        self,
        scheduler: str,
        *,
        name: object,
        threads: int,
        local: str,
        logs: str,
        settings: dict[str, str],
        devices: tuple[str, ...] = (),
        certificates: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self._command = [
            *(sys.executable, "-m", "rankfold.cluster.local.lifeline", local),
            *("distributed.cli.dask_worker", scheduler, "--no-nanny"),
            *("--name", str(name), "--nthreads", str(threads), "--memory-limit", "0"),
            *("--host", "127.0.0.1", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"),
            *("--local-directory", local, "--death-timeout", "60", *certificates),
        ]
        self._log = Path(logs) / f"worker-{name}.log"
        self._settings = dict(settings)
        if devices:
            # A successor has the number of the worker before it, but another name.
            number = int(str(name).partition("+")[0])
            self._settings["CUDA_VISIBLE_DEVICES"] = devices[number]
        self._process: asyncio.subprocess.Process | None = None
        self._lifeline: int | None = None
        """Write end of the pipe to the process; the kernel closes it when this process ends: see
        ``lifeline``.
        """

    async def start(self) -> None:
        """Start the process, which registers with the scheduler by itself."""
        end, self._lifeline = os.pipe()
        try:
            with open_regular(self._log, "wb") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=end,
                    stdout=log,
                    stderr=log,
                    env=self._settings,
                    start_new_session=True,
                )
        finally:
            os.close(end)
        await super().start()

    async def close(self) -> None:
        """Ask the process to end; kill it if it does not."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), GRACE_SECONDS)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        await super().close()

    @property
    def has_ended(self) -> bool:
        """True if the process was started and has ended."""
        return self._process is not None and self._process.returncode is not None

    def last_words(self) -> str:
        """Reason of its end, with the last line that it wrote if it ended by itself."""
        code = self._process.returncode if self._process is not None else None
        if code is not None and code < 0:
            return f"killed by {signal.Signals(-code).name}"
        lines = [line for line in read_last_lines(self._log) if line.strip()] if self._log.exists() else []
        return ": ".join([f"exit status {code}", *lines[-1:]])
