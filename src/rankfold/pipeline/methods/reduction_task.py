"""A reduction as ``execution`` takes it: a request that was checked, and its matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankfold.pipeline.layout import lay_out
from rankfold.pipeline.methods.qr import qr
from rankfold.pipeline.methods.reduction import reduce
from rankfold.pipeline.plan import Plan, make_plan
from rankfold.pipeline.request import Request
from rankfold.pipeline.run import Run
from rankfold.pipeline.scheduler import Budget
from rankfold.pipeline.source import Source


@dataclass(frozen=True, slots=True)
class Reduction:
    """A request and its matrix, as ``execution`` takes them."""

    asked: Request
    source: Source

    def request(self) -> dict[str, Any]:
        """See the protocol."""
        return self.asked.as_dict()

    def plan(self, budget: Budget) -> Plan:
        """See the protocol."""
        return make_plan(self.asked, self.source, budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """See the protocol."""
        carry_out = qr if self.asked.kind == "qr" else reduce
        return carry_out(run, lay_out(self.asked, self.source), self.asked, fingerprint)
