"""Place of execution whose processes ``mpiexec`` or ``srun`` has started: a worker in each but the first."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rankfold.cluster.mpi.rendezvous import RENDEZVOUS, call_workers, end_call
from rankfold.cluster.slurm.allocation import PROFILE, Allocation
from rankfold.cluster.slurm.profile import find_profile
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.units import parse_bytes


class MpiStep:
    """Workers in the other processes of a launch, which end with their scheduler; a ``Step``.

    ``logs`` and ``rendezvous`` are folders, ``workers`` is the number of workers to start.
    """

    def __init__(self, logs: Path, rendezvous: Path, workers: int) -> None:
        self.logs, self.output, self.any_worker_came = logs, "", False
        self._rendezvous, self._workers = rendezvous, workers

    def start(self, command: Sequence[str], settings: Mapping[str, str]) -> None:
        """Ask the other processes to start a worker each."""
        call_workers(self._rendezvous, command, settings, logs=self.logs, workers=self._workers)

    def check(self) -> None:
        """No-op: ``mpiexec`` or ``srun`` watches the processes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end_call(self._rendezvous)


@dataclasses.dataclass(frozen=True, slots=True)
class MpiProcesses(Allocation):
    """The processes of a launch by MPI or ``srun`` as a place of execution; an ``Executor``."""

    @classmethod
    def of(cls, workers: int | None, threads: int | None, memory: str | int | None) -> Self:
        """The other processes of the launch that this command runs in, at most ``workers`` of them.

        ``threads`` and ``memory`` are those of each; ``memory`` must be given.
        """
        count, _, folder = os.environ.get(RENDEZVOUS, "").partition(":")
        if not folder:
            raise InputError(
                "cluster=mpi uses the processes that a launcher has started, and there are none here. Give "
                "mpiexec -n 5 rankfold mpi -- COMMAND"
            )
        if memory is None:
            raise InputError("say how much memory a worker may use: memory='4GiB' (--memory 4GiB)")
        profile = find_profile(os.environ.get(PROFILE) or "slurm")
        side_by_side = profile.threads_for(threads, profile.cores)
        readers = max(1, profile.cores // max(profile.gpus, 1) - 1)
        several = min(int(count), workers or 2**31)
        budget = Budget(parse_bytes(memory), side_by_side, several, profile.gpus, readers)
        return cls(profile, budget, 1, folder, 0)

    def facts(self) -> dict[str, Any]:
        """Kind and size of the place of execution, by name, for the record of a run."""
        return {
            "kind": "mpi",
            "workers": self.budget.workers,
            "threads": self.budget.threads,
            "profile": self.profile.model_dump(exclude_defaults=True),
        }

    def _open_step(self, logs: Path) -> MpiStep:
        return MpiStep(logs, Path(self.job), self.budget.workers)

    def _command(self, scheduler: str, output: str, options: list[str]) -> list[str]:
        return self._worker(scheduler, options)
