"""What every method gives: a task that can be planned and carried out, wherever it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rankfold.pipeline.data.source import Source
    from rankfold.pipeline.engine.run import Run
    from rankfold.pipeline.engine.scheduler import Budget
    from rankfold.pipeline.planning.plan import Plan


class Task(Protocol):
    """What a call wants done with a matrix."""

    @property
    def source(self) -> Source:
        """The matrix that is swept."""

    def request(self) -> dict[str, Any]:
        """Everything that decides the numbers besides the matrix, for JSON."""

    def plan(self, budget: Budget) -> Plan:
        """Its numbers; raises ``PlanError`` for what does not fit."""

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Write the result into ``run.result``; its facts, ``warnings`` among them."""
