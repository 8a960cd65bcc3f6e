"""All nodes of one SLURM job: the driver and its scheduler on the first, workers on all, by one ``srun``.

For machines that want few large jobs, and for those whose compute nodes may not submit. Each start of a
requeued job makes its own scheduler, ports and logs, so it never uses those of an earlier start. The driver
stops when SLURM warns that time is short, and leaves all it has on disk.

One ``srun`` command in a SLURM job, whose tasks are the workers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self

from rankfold.cluster.certificates import make_certificates
from rankfold.cluster.local.client import BASELINE_BYTES, STEALING, Client, prepare_scheduler
from rankfold.cluster.local.processes import (
    ONE_THREAD,
    WORKER_SETTINGS,
    announce_dashboard,
    scheduler_options,
    scheduler_settings,
)
from rankfold.cluster.slurm.jobs import MARGIN, NANNY_BYTES, address_of, await_workers, job_bytes
from rankfold.cluster.slurm.profile import Profile, find_profile
from rankfold.cluster.slurm.queue import require_commands
from rankfold.cluster.slurm.shell_lines import log_pattern, node_folder
from rankfold.pipeline.engine.memory import available_bytes
from rankfold.pipeline.engine.scheduler import Budget, Warmup
from rankfold.pipeline.errors import ClusterError, InputError, NoWorkersError, argument
from rankfold.pipeline.regular import open_regular, read_last_lines
from rankfold.pipeline.storage.run_directory import RunDirectory
from rankfold.pipeline.units import format_bytes, parse_bytes

PROFILE = "RANKFOLD_PROFILE"
"""Environment variable that names the profile that a job was submitted with."""

GRACE_SECONDS = 10.0
"""Seconds to wait for the other workers once the first has registered."""

DEATH_SECONDS = 120
"""Seconds without a scheduler after which a worker ends."""


class Step(Protocol):
    """Protocol of a context manager that starts the workers, and ends them when its block ends."""

    logs: Path
    """Folder of the logs."""

    output: str
    """Path of the log of each worker, if the command of the step sets it; else empty."""

    any_worker_came: bool

    def start(self, command: Sequence[str], settings: Mapping[str, str]) -> None:
        """Start the workers by a command line; they register by themselves.

        ``settings`` are environment variables that they get in addition.
        """

    def check(self) -> None:
        """Raise if the workers have ended while they are still needed."""

    def __enter__(self) -> Self:
        """Prepare to start the workers."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Make the workers end."""


@dataclasses.dataclass(frozen=True, slots=True)
class Allocation:
    """The nodes of one SLURM job as a place of execution; an ``Executor``."""

    profile: Profile
    budget: Budget
    per_node: int
    job: str
    attempt: int
    cores: int = 0
    """Cores of a worker with a GPU, of which only some compute segments (units of work); 0 without a GPU."""

    is_remote: ClassVar[bool] = True

    @classmethod
    def of(cls, workers: int | None, threads: int | None, memory: str | int | None) -> Self:
        """Place of execution made of the nodes of the SLURM job in which this process runs.

        There are at most ``workers`` workers, each with ``threads`` and ``memory``. By default there are as
        many on each node as the job has tasks, and they share its cores and its memory.
        """
        job = os.environ.get("SLURM_JOB_ID")
        if not job:
            raise InputError(
                "cluster=allocation uses the nodes of the SLURM job that the command runs in, and there is "
                "none here. Submit it: rankfold submit -- COMMAND...; or choose cluster=slurm, or the name "
                "of a profile, for jobs that this command starts"
            )
        profile = find_profile(os.environ.get(PROFILE) or "slurm")
        per_node = _number("SLURM_NTASKS_PER_NODE") or profile.workers_per_node
        nodes = _number("SLURM_JOB_NUM_NODES", "SLURM_NNODES") or 1
        cores = _number("SLURM_CPUS_PER_TASK") or max(1, (_number("SLURM_CPUS_ON_NODE") or 1) // per_node)
        side_by_side = profile.threads_for(threads, cores)
        count = min(nodes * per_node, workers or 2**31)
        readers = max(1, cores // max(profile.gpus, 1) - 1)
        working, bandwidth = _working(memory, per_node), profile.bandwidth or 0
        budget = Budget(working, side_by_side, count, profile.gpus, readers, bandwidth)
        beside = max(cores, side_by_side) if profile.gpus else 0
        return cls(profile, budget, per_node, job, _number("SLURM_RESTART_COUNT") or 0, beside)

    def limited_to(self, workers: int) -> Allocation:
        """A copy of this place of execution with at most ``workers`` workers."""
        budget = dataclasses.replace(self.budget, workers=min(workers, self.budget.workers))
        return dataclasses.replace(self, budget=budget)

    def check(self) -> None:
        """No-op: memory and threads of the workers are known only when they have started."""

    def facts(self) -> dict[str, Any]:
        """Kind and size of the place of execution, by name, for the record of a run."""
        return {
            "kind": "allocation",
            "workers": self.budget.workers,
            "threads": self.budget.threads,
            "job": self.job,
            "restarts": self.attempt,
            "profile": self.profile.model_dump(exclude_defaults=True),
        }

    @contextlib.contextmanager
    def open_scheduler(self, run: RunDirectory, kernels: Warmup) -> Iterator[Client]:
        """Start the scheduler, and all workers by one ``Step``; yield once enough have registered."""
        from distributed import Client as DaskClient
        from distributed import Scheduler, SpecCluster

        logs = run.folder / "logs"
        logs.mkdir(exist_ok=True)
        host = address_of(self.profile.scheduler_interface or self.profile.interface)
        with (
            make_certificates(run.folder, tls=self.profile.tls) as (security, options),
            scheduler_settings(run, STEALING if self.profile.gpus else {}),
            # The last to end: workers close by themselves when the scheduler does.
            self._open_step(logs) as step,
            SpecCluster(
                scheduler={"cls": Scheduler, "options": {**scheduler_options(host), **security}},
                workers={},
                silence_logs=logging.CRITICAL,
                security=security.get("security"),
            ) as cluster,
            DaskClient(cluster, set_as_default=False) as client,
        ):
            announce_dashboard(cluster)
            command = self._command(cluster.scheduler_address, step.output, options)
            step.start(command, {**ONE_THREAD, **WORKER_SETTINGS})
            self._await(cluster, step)
            workers, gpus = self.budget.workers, self.profile.gpus
            with prepare_scheduler(
                client, run, kernels, workers=workers, watch=step.check, gpus=gpus
            ) as scheduler:
                yield scheduler

    def _open_step(self, logs: Path) -> Step:
        require_commands("allocation", "srun")
        return SrunStep(logs, f"{self.job}-{self.attempt}")

    def _command(self, scheduler: str, output: str, options: list[str]) -> list[str]:
        """Command line that starts all workers, by ``srun``.

        ``scheduler`` is the address of the scheduler, ``output`` the path pattern of the logs, and
        ``options`` are further options of Dask's worker.
        """
        profile, workers = self.profile, self.budget.workers
        step = [
            *("srun", "--overlap", "--job-name=rankfold-workers", "--kill-on-bad-exit=0", "--wait=0"),
            *(f"--nodes={math.ceil(workers / self.per_node)}", f"--ntasks={workers}"),
            *(f"--ntasks-per-node={self.per_node}", f"--cpus-per-task={self.cores or self.budget.threads}"),
            *(f"--output={output}", f"--error={output}"),
        ]
        if profile.gpus:
            step.append(f"--gpus-per-task={profile.gpus}")
        return [*step, *self._worker(scheduler, options)]

    def _worker(self, scheduler: str, options: list[str]) -> list[str]:
        """Command line of one worker: ``scheduler`` is an address, ``options`` are those of Dask's worker."""
        profile = self.profile
        worker = [
            *(profile.python or sys.executable, "-m", "rankfold.cluster.slurm.node_worker", scheduler),
            *(
                "--nthreads",
                str(self.budget.threads),
                "--memory-limit",
                str(job_bytes(self.budget.memory_bytes)),
            ),
            *("--nanny", "--no-dashboard", "--death-timeout", str(DEATH_SECONDS), *options),
        ]
        if profile.interface:
            worker += ["--interface", profile.interface]
        if profile.gpus:
            worker += ["--resources", f"GPU={profile.gpus}"]
        # By a shell on the node, where variables of its folders are set.
        local = node_folder(profile.scratch)
        return ["sh", "-c", f"exec {shlex.join(worker)} --local-directory {local}"]

    def _await(self, cluster: Any, step: Step) -> None:
        def here() -> int:
            count = len(cluster.scheduler_info["workers"])
            if count < self.budget.workers:
                step.check()
            step.any_worker_came = step.any_worker_came or count > 0
            return count

        hint = f"their logs are in {step.logs}"
        await_workers(self.budget.workers, here, self.profile, GRACE_SECONDS, lambda: hint)


def node_bytes(working: int, per_node: int) -> int:
    """Bytes that a node needs for ``per_node`` workers, and on the first node for the driver as well.

    ``working`` is the working memory of a worker in bytes; the driver may take as much.
    """
    return per_node * job_bytes(working) + math.ceil((working + BASELINE_BYTES) * MARGIN)


def _working(memory: str | int | None, per_node: int) -> int:
    """Working memory of each of ``per_node`` workers in bytes: ``memory``, or by default all that nodes have.

    Raises ``InputError`` if the nodes of the job have less than ``memory``.
    """
    megabytes = _number("SLURM_MEM_PER_NODE")
    if megabytes is None and (each := _number("SLURM_MEM_PER_CPU")):
        megabytes = each * (_number("SLURM_CPUS_ON_NODE") or 1)
    there = megabytes * 2**20 if megabytes else available_bytes()
    overhead = (per_node + 1) * BASELINE_BYTES + per_node * NANNY_BYTES
    most = int((there / MARGIN - overhead) / (per_node + 1))
    working = most if memory is None else parse_bytes(memory)
    if working <= 0 or (memory is not None and working > most):
        request = "no memory is left for work" if memory is None else f"a working memory of {memory}"
        raise InputError(
            f"{per_node} workers of a node and the driver take "
            f"{format_bytes(node_bytes(max(0, working), per_node))} with {request}; the job has "
            f"{format_bytes(there)} on a node. Give at most "
            f"{argument('memory', f'{max(0, most) // 2**20}MiB')}, or raise "
            "memory: in the profile that it is submitted with"
        )
    return working


def _number(*names: str) -> int | None:
    """Number at the beginning of the first of these environment variables that has one above 0; or None."""
    for name in names:
        match = re.match(r"\d+", os.environ.get(name, ""))
        if match and int(match[0]):
            return int(match[0])
    return None


END_SECONDS = 20.0
"""Seconds for workers to end by themselves when their scheduler has ended."""

KILL_SECONDS = 10.0


class SrunStep:
    """Workers that one ``srun`` starts, and that are ended when the block ends, whatever they do; a ``Step``.

    ``logs`` is the folder for logs, and ``tag`` a part of their names, unique to this start of the job.
    """

    def __init__(self, logs: Path, tag: str) -> None:
        self.logs = logs
        self.output = log_pattern(logs, f"worker-{tag}-%t.log")
        """Path pattern of the log of each task, for srun; unique to this start of the job."""

        self.any_worker_came = False
        """True if any worker has registered: if all end after that, it is an accident,
        not a mistake in a profile.
        """

        self._tag, self._log = tag, logs / f"srun-{tag}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], settings: Mapping[str, str]) -> None:
        """Start the tasks by the command line ``command``, of ``srun``; they register by themselves.

        ``settings`` are environment variables that they get in addition.
        """
        with open_regular(self._log, "wb") as log:
            # In its own session: Ctrl-C is for the driver, which lets segments end first.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **settings},
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise if ``srun`` has ended while its workers are needed."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return
        words = f"the workers of the allocation have ended, exit status {code}: {self._last_words()}"
        if self.any_worker_came:
            raise NoWorkersError(f"{words}. What was finished is kept; the same command goes on")
        raise ClusterError(f"{words}. Logs are in {self.logs}")

    def _last_words(self) -> str:
        logs = [*self.logs.glob(f"worker-{self._tag}-*.log"), self._log]
        for log in logs:
            lines = [line for line in read_last_lines(log) if line.strip()]
            telling = [line for line in lines if " - INFO - " not in line]
            if telling:
                return telling[-1].strip()
        return "nothing was said"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
                return
            self._process.terminate()  # srun kills its tasks, and waits for them
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(KILL_SECONDS)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
