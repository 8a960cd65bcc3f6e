"""New rows of an update that are few: held as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rankfold.methods.parts.finite import BAD
from rankfold.methods.parts.panels import OverPanels, Panels
from rankfold.pipeline.engine.fold import Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State


@dataclass(frozen=True, slots=True)
class KeepRows(OverPanels):
    """Fold of a matrix into itself, in float64."""

    panels: Panels
    """Panels of rows."""

    row_seconds: float

    def sums(self) -> Mapping[str, Sum]:
        """The rows, each of which some stream has."""
        return {"rows": Sum(self.panels.view.source.shape), "bad": BAD}

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Put a panel in its place; NaN and Inf are counted and left out."""
        for grain in self.panels.grains(work.panels, start, stop, slot):
            if self.is_finite(state, work, grain, grain.raw):
                state["rows"][grain.first : grain.last] = grain.raw
