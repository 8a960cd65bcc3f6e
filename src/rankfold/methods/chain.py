"""A chain of tasks: each may need the results of earlier ones, and the last one makes the result."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankfold.methods.task import Output, Task
from rankfold.pipeline.errors import MemoryBudgetError

if TYPE_CHECKING:
    from rankfold.pipeline.data.source import Source
    from rankfold.pipeline.engine.run import Run
    from rankfold.pipeline.engine.scheduler import Budget
    from rankfold.pipeline.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class Link:
    """One task of a chain."""

    name: str
    """Name of the task within the chain, and of its result in the state folder of the run."""

    task: Task
    """The task as known before anything has run: enough to plan it."""

    make_task: Callable[[Mapping[str, Path]], Task] | None = None
    """Function that makes the task to run, from the paths of the results of earlier links by their names.
    None if ``task`` needs no earlier result and runs as it is."""

    def ready(self, results: Mapping[str, Path]) -> Task:
        """Make the task to run from ``results``: paths of the results of earlier links, by name of link."""
        return self.task if self.make_task is None else self.make_task(results)


@dataclass(frozen=True, slots=True)
class Chain:
    """Tasks that run one after the other, with one request (``identity``) and one plan.

    Each link but the last leaves its result in the state folder of the run. A resumed run finds it there.
    """

    identity: dict[str, Any]
    """Request of the last link, and everything else that determines the values of its result, as JSON types:
    see ``Task.request``."""

    links: tuple[Link, ...]

    @property
    def source(self) -> Source:
        """The matrix that the last link reads."""
        return self.links[-1].task.source

    def request(self) -> dict[str, Any]:
        """Return ``identity``: everything that determines the values of the result."""
        return self.identity

    def outputs(self) -> tuple[Output, ...]:
        """Declare the arrays of the result of the chain, which is that of the last link."""
        return self.links[-1].task.outputs()

    def plan(self, budget: Budget) -> Plan:
        """Plan of the chain: sweeps (reads of the data) of all links, and the largest memory that any needs.

        Raises
        ------
        MemoryBudgetError
            The error of the link that needs most memory: with that much, no other link is refused.
        """
        plans: list[Plan] = []
        refusals: dict[str, MemoryBudgetError] = {}
        for link in self.links:
            try:
                plans.append(link.task.plan(budget))
            except MemoryBudgetError as error:
                refusals[link.name] = error
        if refusals:
            most = max(refusals.values(), key=lambda error: error.need_bytes)
            # A remedy for one link does not help others. Arguments of the last are those of the chain.
            if [*refusals] == [self.links[-1].name]:
                raise most
            raise most.of_chain(way_out=len(refusals) == 1)
        return dataclasses.replace(
            plans[-1],
            passes=tuple(sweep for plan in plans for sweep in plan.passes),
            most_passes=sum(plan.most_passes for plan in plans),
            likely_passes=sum(plan.likely_passes for plan in plans),
            peak_bytes=max(plan.peak_bytes for plan in plans),
            driver_bytes=max(plan.driver_bytes for plan in plans),
            scratch_bytes=max(plan.scratch_bytes for plan in plans),
            checkpoint_bytes=sum(plan.result_bytes for plan in plans[:-1])  # in the state of the run
            + max(plan.checkpoint_bytes for plan in plans),
            useful_workers=max(plan.useful_workers for plan in plans),
        )

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Raise ``TypeError``: a chain has no work of its own, as its links are run one by one."""
        raise TypeError("a chain has no run of its own: its links have")
