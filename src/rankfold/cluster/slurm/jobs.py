"""Worker jobs of SLURM or another queue system: submitted, watched, replaced, and none left behind.

A job holds one worker process, asks never to be requeued (a requeued worker finds its scheduler gone, or
is canceled by it), and ends when the scheduler in this process does. Jobs that are still pending then are
canceled by a shell that outlives this process and waits for its end: see ``leftovers``.

Replace workers before their jobs reach the time limit, so that no task waits and nothing is done twice.

A segment is the unit of work of a worker, 10 to 60 seconds. A successor is requested first. When one has
registered, the oldest worker is asked to hand over: it takes no more segments, its running segments leave a
checkpoint once they have added the rows that they hold, and go to other workers, and then it is closed. This
is done for one worker at a time, unless time is so short that all workers about to end hand over together,
with or without successors. The thread never blocks: each check finds the workers that are due and those
without segments.

The trap: a worker that is closed before its segments have ended hands nothing over. Dask starts them
elsewhere at once, from checkpoints that are older than those they are about to leave.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rankfold.cluster.certificates import PROTOCOL, make_certificates, wants_tls, worker_options
from rankfold.cluster.local.client import BASELINE_BYTES, STEALING, Client, prepare_scheduler
from rankfold.cluster.local.processes import announce_dashboard, scheduler_options, scheduler_settings
from rankfold.cluster.local.watchdog import Watchdog
from rankfold.cluster.queues.registry import name_of, new_name, queue_system
from rankfold.cluster.queues.system import JobScript, ListedStates, QueueSystem, WorkerJob
from rankfold.cluster.slurm.leftovers import no_job_left
from rankfold.cluster.slurm.profile import Profile
from rankfold.cluster.slurm.queue import Jobs, refusal, require_commands, require_final, slurm_states
from rankfold.cluster.slurm.shell_lines import exports, node_folder
from rankfold.pipeline.engine.scheduler import Budget, Warmup
from rankfold.pipeline.errors import ClusterError, InputError, NoWorkersError
from rankfold.pipeline.storage.run_directory import KEYS, RunDirectory
from rankfold.pipeline.text import Lines
from rankfold.pipeline.units import format_bytes, parse_bytes

LOG = logging.getLogger("rankfold")

POLL_SECONDS = 5.0
"""Seconds between two queries of the queue, each about all jobs."""

GRACE_SECONDS = 5.0
"""Seconds to wait for the other workers once the first has registered."""

SAY_SECONDS = 30.0

NANNY_BYTES = 128 * 2**20
MARGIN = 1.1


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerJobs:
    """Jobs with one worker each, by the settings of a profile, as a place of execution; an ``Executor``."""

    profile: Profile
    budget: Budget
    is_remote: ClassVar[bool] = True

    @classmethod
    def of(
        cls, profile: Profile, workers: int | None, threads: int | None, memory: str | int | None
    ) -> WorkerJobs:
        """Jobs with the settings of a profile; ``workers`` and ``threads``, if given, replace its own.

        ``memory`` is the working memory of a worker; by default it follows from the profile's for a job.
        """
        queue_system(profile.scheduler).check_profile(profile)
        if memory is not None:
            working = parse_bytes(memory)
        elif profile.memory is not None:
            working = int(profile.memory / MARGIN) - BASELINE_BYTES - NANNY_BYTES
        else:
            raise InputError(
                "say how much memory a worker may use: memory='4GiB' (--memory 4GiB), or memory: in the "
                f"profile {profile.name}"
            )
        if profile.memory is not None and job_bytes(working) > profile.memory:
            raise InputError(
                f"a working memory of {format_bytes(working)} takes jobs of "
                f"{format_bytes(job_bytes(working))}, but the profile {profile.name} gives them "
                f"{format_bytes(profile.memory)}. Lower memory= (--memory), or raise memory: there"
            )
        side_by_side = profile.threads_for(threads, profile.cores)
        readers = max(1, profile.cores // max(profile.gpus, 1) - 1)
        count = workers or profile.workers
        return cls(
            profile, Budget(working, side_by_side, count, profile.gpus, readers, profile.bandwidth or 0)
        )

    def limited_to(self, workers: int) -> WorkerJobs:
        """A copy of this place of execution with at most ``workers`` jobs."""
        budget = dataclasses.replace(self.budget, workers=min(workers, self.budget.workers))
        return dataclasses.replace(self, budget=budget)

    def check(self) -> None:
        """No-op: memory and threads of the workers are known only when they have started."""

    def facts(self) -> dict[str, Any]:
        """Kind and size of the place of execution, by name, for the record of a run."""
        return {
            "kind": self.profile.scheduler,
            "workers": self.budget.workers,
            "threads": self.budget.threads,
            "profile": self.profile.model_dump(exclude_defaults=True),
        }

    @contextlib.contextmanager
    def open_scheduler(self, run: RunDirectory, kernels: Warmup) -> Iterator[Client]:
        """Submit the jobs and start the scheduler for a run; yield once enough workers have registered."""
        from distributed import Client as DaskClient

        from rankfold.cluster.slurm.jobqueue import make_cluster

        kind, system = self.profile.scheduler, queue_system(self.profile.scheduler)
        require_commands(self.profile.name, *system.COMMANDS, of=system.TITLE)
        name = new_name(kind)
        (run.folder / "logs").mkdir(exist_ok=True)
        with (
            scheduler_settings(run, STEALING if self.profile.gpus else {}),
            no_job_left(name, run.folder),
            make_certificates(run.folder, tls=self.profile.tls) as (security, certificates),
            make_cluster(kind, **self._options(name, run.folder, certificates), **security) as cluster,
        ):
            _require_acceptance(system, cluster.job_script())
            announce_dashboard(cluster)
            cluster.scale(jobs=self.budget.workers)
            ask_states = slurm_states if kind == "slurm" else ListedStates(system)
            jobs = Jobs(run.folder / "logs", self.profile.walltime, ask_states)
            watchdog = Watchdog(
                cluster,
                self.budget.workers,
                find_ended=jobs,
                every_seconds=POLL_SECONDS,
                journal=run.journal,
            )

            def remaining_seconds(worker: Any) -> float:
                job = cluster.workers.get(worker)
                return float("inf") if job is None else jobs.seconds_left(job.job_id)

            with watchdog, DaskClient(cluster, set_as_default=False) as client:
                self._await(watchdog, name)
                margin, gpus = self.profile.drain_seconds, self.profile.gpus
                workers, watch = self.budget.workers, watchdog.check
                with (
                    prepare_scheduler(
                        client, run, kernels, workers=workers, watch=watch, gpus=gpus
                    ) as scheduler,
                    Rolling(
                        cluster, client, watchdog, remaining_seconds=remaining_seconds, margin_seconds=margin
                    ),
                ):
                    yield scheduler

    def script(self, what: str, folder: Path) -> JobScript:
        """Script of the jobs for a run in ``folder``, which need not exist; ``what`` is their purpose.

        Words in capitals replace what is known only when the run begins: the number of the run, the address
        of the driver.
        """
        from rankfold.cluster.slurm.jobqueue import submission, worker_script

        kind, tls = self.profile.scheduler, wants_tls(self.profile.tls)
        certificates = worker_options(folder.absolute() / f"{KEYS}RUN") if tls else []
        options = self.job_options(name_of(kind, "RUN"), folder, certificates)
        text = worker_script(kind, f"{PROTOCOL if tls else 'tcp'}://DRIVER:PORT", "WORKER", **options)
        return JobScript(what, text, submission(kind), self.budget.workers)

    def _options(self, name: str, folder: Path, certificates: Sequence[str] = ()) -> dict[str, Any]:
        options = self.job_options(name, folder, certificates)
        return {**options, "scheduler_options": self._scheduler_options(), "silence_logs": logging.CRITICAL}

    def job_options(self, name: str, folder: Path, certificates: Sequence[str] = ()) -> dict[str, Any]:
        """Options from which dask-jobqueue writes the script of a job.

        ``name`` is that of all jobs, ``folder`` that of the run, and ``certificates`` are options of Dask's
        worker that name its TLS files.
        """
        profile, system = self.profile, queue_system(self.profile.scheduler)
        memory_bytes = job_bytes(self.budget.memory_bytes)
        job = WorkerJob(
            profile,
            name,
            folder.absolute() / "logs",
            max(profile.cores, self.budget.threads),
            profile.memory or memory_bytes,
        )
        gpus = ["--resources", f"GPU={profile.gpus}"] if profile.gpus else []
        return {
            **system.job_options(job),
            "cores": self.budget.threads,
            "memory": f"{memory_bytes}B",
            "job_name": name,
            "interface": profile.interface,
            "local_directory": node_folder(profile.scratch, profile.scheduler),
            "job_script_prologue": [*system.prologue(job), *exports(), *profile.prologue],
            "worker_extra_args": ["--nanny", "--no-dashboard", *gpus, *map(shlex.quote, certificates)],
            # Replaces the shell, so that signals of SLURM reach the worker.
            "python": f"exec {shlex.quote(profile.python or sys.executable)}",
        }

    def _scheduler_options(self) -> dict[str, Any]:
        interface = self.profile.scheduler_interface or self.profile.interface
        return scheduler_options(address_of(interface))

    def _await(self, watchdog: Watchdog, name: str) -> None:
        def here() -> int:
            watchdog.check()
            return watchdog.count_registered()

        def why() -> str:
            jobs = queue_system(self.profile.scheduler).list_jobs() or ()
            return ", ".join(str(job) for job in jobs if job.name == name) or "no job in the queue"

        await_workers(self.budget.workers, here, self.profile, GRACE_SECONDS, why)


def await_workers(
    target: int, here: Callable[[], int], profile: Profile, grace_seconds: float, why: Callable[[], str]
) -> None:
    """Wait for the first worker, then at most ``grace_seconds`` for the others, up to ``target``; ``here``
    counts them.

    Raises
    ------
    NoWorkersError
        None registered in time; the message includes ``why()``.
    """
    began = last_message = time.monotonic()
    first: float | None = None
    while (count := here()) < target:
        now = time.monotonic()
        if count:
            first = first or now
            if now - first > grace_seconds:
                break
        elif now - began > profile.wait_seconds:
            raise NoWorkersError(
                f"no worker came within {profile.wait} (h:min:s): {why()}. The same command tries again; "
                f"wait: in the profile {profile.name} sets how long"
            )
        if now - last_message > SAY_SECONDS:
            last_message = now
            LOG.info("waiting for workers: %s", why())
        time.sleep(0.1)
    LOG.info("%d of %d workers are there", count, target)


def job_bytes(working: int) -> int:
    """Bytes to request for a job with one worker, whose working memory is ``working`` bytes.

    They include the baseline of a process, Dask's nanny process, and a margin.
    """
    return math.ceil((working + BASELINE_BYTES + NANNY_BYTES) * MARGIN)


def _require_acceptance(system: QueueSystem, script: str) -> None:
    """Raise with the queue system's own message if it refuses the job, as far as it can check that."""
    if (message := system.refused(script)) is not None:
        require_final(system.TITLE, message)
        words = (
            f"{system.TITLE} refuses the worker job: {refusal(message)}. Change the profile: `rankfold "
            f"doctor --cluster PROFILE` says what there is. Its job script was:"
        )
        raise ClusterError(Lines(words, Lines.of(script)))


def address_of(interface: str | None) -> str:
    """Address of an interface, or of this machine as others see it if ``interface`` is None."""
    from distributed.utils import get_ip, get_ip_interface

    if interface is None:
        return str(get_ip())
    try:
        return str(get_ip_interface(interface))
    except ValueError as error:
        raise ClusterError(f"no network interface {interface!r} here: {error}") from None


ROLL_SECONDS = 1.0

HAND_OVER_POLL = 0.1
"""Seconds between checks while segments leave their checkpoints."""

LAST_SECONDS = 120.0
"""Seconds before the end of its job at which a worker hands over even without a successor; or half of
``margin_seconds``, if that is shorter.
"""

END_SECONDS = 10.0
"""Seconds that a check in progress may take to finish when the run ends."""


class Rolling:
    """Replaces the workers of a watchdog (``watchdog.Watchdog``) before their jobs reach their time limits.

    ``remaining_seconds`` is a function of a worker's name. A worker is replaced when it has at most
    ``margin_seconds`` left, which is checked at intervals of ``every_seconds``.
    """

    def __init__(
        self,
        cluster: Any,
        client: Any,
        watchdog: Watchdog,
        *,
        remaining_seconds: Callable[[Any], float],
        margin_seconds: float,
        every_seconds: float = ROLL_SECONDS,
    ) -> None:
        self._cluster, self._client, self._watchdog = cluster, client, watchdog
        self._remaining_seconds, self._margin, self._every = remaining_seconds, margin_seconds, every_seconds
        self._last = min(margin_seconds / 2, LAST_SECONDS)
        self._earlier_workers: set[Any] = set()
        self._due: set[Any] = set()
        self._draining: set[Any] = set()
        self._replaced_workers: set[Any] = set()
        self._come = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rankfold-rolling", daemon=True)

    def __enter__(self) -> Rolling:
        self._earlier_workers |= self._here().keys()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(END_SECONDS)

    def _watch(self) -> None:
        while not self._stop.wait(min(self._every, HAND_OVER_POLL) if self._draining else self._every):
            try:
                self._look()
            except Exception as error:  # noqa: BLE001  # the watchdog replaces those that end in any case
                if not self._stop.is_set():
                    LOG.warning("could not replace a worker before its end, will try again: %s", error)

    def _here(self) -> dict[Any, str]:
        """Addresses of the registered workers by name."""
        workers = dict(self._cluster.scheduler_info["workers"])
        return {info["name"]: address for address, info in workers.items()}

    def _look(self) -> None:
        here = self._here()
        remaining_seconds = {
            name: self._remaining_seconds(name) for name in here if name not in self._replaced_workers
        }
        for name in remaining_seconds.keys() - self._due:
            if remaining_seconds[name] <= self._margin:
                self._due.add(name)
                LOG.info(
                    "worker %s has %.0f s left: starting another in its place", name, remaining_seconds[name]
                )
                self._watchdog.add_successor(name)
        self._draining &= remaining_seconds.keys()
        waiting = sorted(
            remaining_seconds.keys() & self._due - self._draining, key=remaining_seconds.__getitem__
        )
        # Jobs are alike: a new worker takes the place of the first of those that are due.
        self._come = min(self._come + len(here.keys() - self._earlier_workers), len(waiting))
        self._earlier_workers |= here.keys()
        urgent = [name for name in waiting if remaining_seconds[name] <= self._last]
        going = urgent or ([] if self._draining else waiting[: min(1, self._come)])
        if going:
            self._client.retire_workers([here[name] for name in going], close_workers=False, remove=False)
            self._draining |= {*going}
            self._come = max(0, self._come - len(going))
        if self._draining:
            self._close(
                {name: here[name] for name in sorted(self._draining, key=remaining_seconds.__getitem__)},
                remaining_seconds,
            )

    def _close(self, draining: dict[Any, str], remaining_seconds: dict[Any, float]) -> None:
        """Close those workers that have no segment left, or no time to wait until theirs have ended.

        ``draining`` has the addresses of workers that hand over, by name; so has ``remaining_seconds`` the
        seconds that they have left.
        """
        from rankfold.cluster.local.worker import hand_over

        busy = self._client.run(hand_over, workers=[*draining.values()], on_error="return")
        going = [
            name for name, at in draining.items() if busy.get(at) is not False or remaining_seconds[name] <= 0
        ]
        if not going or self._stop.is_set():
            return
        self._client.retire_workers([draining[name] for name in going], close_workers=True, remove=True)
        self._draining -= {*going}
        self._replaced_workers |= {*going}
        for name in going:
            self._watchdog.let_go(name)
            LOG.info("worker %s has handed over and is closed", name)
