"""Keep the new rows of an update in memory, if they are few."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rankfold.methods.parts.finite import BAD
from rankfold.methods.parts.panels import OverPanels, Panels
from rankfold.pipeline.engine.fold import Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State


@dataclass(frozen=True, slots=True)
class KeepRows(OverPanels):
    """Fold that copies a matrix into memory as float64."""

    panels: Panels
    """Panels (rows read at a time) of the matrix."""

    row_seconds: float

    def sums(self) -> Mapping[str, Sum]:
        """All rows (m, n), of which each stream (part of the rows) fills in its own; count of bad numbers."""
        return {"rows": Sum(self.panels.view.source.shape), "bad": BAD}

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Copy a panel to its rows; grains with NaN or Inf are counted and left out."""
        for grain in self.panels.grains(work.panels, start, stop, slot):
            if self.is_finite(state, work, grain, grain.raw):
                state["rows"][grain.first : grain.last] = grain.raw
