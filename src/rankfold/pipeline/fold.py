"""What a sweep over rows does with each panel: the contract that all folds fulfill."""

from __future__ import annotations

from typing import Any, Protocol

from rankfold.pipeline.blocks import Cut
from rankfold.pipeline.checkpoint import State


class Fold(Protocol):
    """What a sweep does with each panel. Pickles; holds paths and small arrays, never an open store."""

    @property
    def cut(self) -> Cut:
        """Panels and streams of the long axis."""

    @property
    def slots(self) -> int:
        """Buffers for panels: 2 to read ahead while working, 1 not to."""

    @property
    def row_seconds(self) -> float:
        """Nominal time of one row of one panel, to cut segments by."""

    def start(self) -> State:
        """Accumulator of no rows."""

    def workspace(self) -> Any:
        """Everything a segment needs to allocate."""

    def read(self, work: Any, start: int, stop: int, slot: int) -> None:
        """Fetch rows ``start:stop`` into a slot."""

    def step(self, state: State, work: Any, start: int, stop: int, slot: int) -> None:
        """Fold the panel in a slot into ``state``, in place."""

    def merge(self, total: State, other: State) -> None:
        """Add ``other`` to ``total``, in place."""
