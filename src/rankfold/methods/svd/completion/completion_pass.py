"""One pass over a matrix with missing numbers: fit a model to every row, and sum what the next model needs.

Rows are read by panels (rows in memory at a time) and handled by grains (rows of one matrix product).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.complete_rows import COUNT_BINS, TOTALS, RowModel, RowSums, fit_rows
from rankfold.kernels.linear.products import add_product
from rankfold.methods.parts.finite import BAD
from rankfold.methods.parts.panels import Grain, OverPanels, Panels, numbers
from rankfold.methods.svd.completion.low_rank_model import row_model
from rankfold.pipeline.data.view import working_dtype
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, Constant, Sum, Workspace
from rankfold.pipeline.prepare.gaps import warm_filling
from rankfold.pipeline.storage.checkpoint import State

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class CompletionPass(OverPanels):
    """Fold that sums over all rows what the next model is computed from: see ``low_rank_model.py``."""

    panels: Panels
    model: Path
    """Path of the file with arrays of the current model and of the one before: ``as_arrays``."""

    rank: int
    key: int
    """Key that chooses the numbers held out: see ``fit_rows``."""

    period: int
    """Length of runs of columns: one number of each run is held out."""

    exact: bool
    """True if each column has its own sum S_j: see ``low_rank_model.py``."""

    row_seconds: float

    kernels = (fit_rows, add_product)

    def buffers(self) -> Mapping[str, Buffer]:
        """Current model and the one before; deviations ``d`` (grain rows, n), coordinates ``z`` (grain rows,
        k + 1), and their product ``d' z``."""
        short, k, rows, dtype = self.panels.view.short, self.rank, self.panels.grain_rows, self.panels.dtype
        shapes = {"mean": (short,), "loadings": (short, k), "gram": (k, k), "spread": (k, k), "noise": (1,)}
        models = {
            name + suffix: Constant(shape, part=self.model)
            for suffix in ("", "_before")
            for name, shape in shapes.items()
        }
        return {
            **models,
            "d": Buffer((rows, short), dtype),
            "z": Buffer((rows, k + 1), dtype),
            "product": Buffer((short, k + 1), dtype),
        }

    def sums(self) -> Mapping[str, Sum]:
        """Sums of ``RowSums`` over all rows; ``bad`` holds count and first position of infinite numbers."""
        short, k = self.panels.view.short, self.rank
        triangle = (k + 1) * (k + 2) // 2
        own = {"squares": Sum((short, triangle))} if self.exact else {}
        return {
            **own,
            "shared": Sum((triangle,)),
            "moments": Sum((triangle,)),
            "products": Sum((short, k + 1)),
            "columns": Sum((3, short)),
            "totals": Sum((TOTALS,)),
            "by_count": Sum((4, COUNT_BINS)),
            "bad": BAD,
        }

    @property
    def temporary_bytes(self) -> int:
        """Additional bytes of a step: four vectors along a row, and eight (k + 1, k + 1) matrices."""
        return 4 * 8 * self.panels.view.short + 8 * 8 * (self.rank + 1) ** 2

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers and panels; ``models`` are the current ``RowModel`` and the one before."""
        work = OverPanels.workspace(self, device)
        work.models = [
            RowModel(*(getattr(work, name + suffix) for name in RowModel._fields))
            for suffix in ("", "_before")
        ]
        return work

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Fit the model to the rows of a panel, grain by grain, and add to the sums."""
        for grain in self.panels.grains(work.panels, start, stop, slot):
            self._add(state, work, grain)

    def _add(self, state: State, work: Workspace, grain: Grain) -> None:
        raw = numbers(grain.raw)
        if raw.dtype.kind == "f" and np.isinf(raw).any():
            mark_infinite(state, raw, grain.first)
            return
        d, z = work.d[: len(raw)], work.z[: len(raw)]
        none = {"squares": np.empty((0, len(state["shared"])))}
        sums = RowSums(**{name: (none | state)[name] for name in RowSums._fields})
        fit_rows(raw, grain.first, self.key, self.period, *work.models, d=d, z=z, sums=sums)
        add_product(d, z, total=state["products"], work=work.product)


def mark_infinite(state: State, raw: Array, first: int) -> None:
    """Add to ``state["bad"]`` the count of infinite numbers in ``raw``, and row and column of the first.

    ``raw`` holds rows of the matrix from the row ``first``, and at least one infinite number.
    """
    rows, columns = np.nonzero(np.isinf(raw))
    here = np.array([len(rows), first + rows[0], columns[0]], np.int64)
    state["bad"] = BAD.combine(state["bad"], here)


@functools.cache
def warm_completion(dtype: np.dtype[Any], working: np.dtype[Any] | None) -> None:
    """Compile the loops of completion by running each once: on a matrix's types, on float64, and the filling.

    ``dtype`` is the type of the matrix, ``working`` that of products with it, None for the default.
    """
    warm_filling()
    model = row_model(np.zeros(4), np.ones((4, 1)), np.eye(1), 1.0)
    double = np.dtype(np.float64)
    for raw, out in ((dtype, working or working_dtype(dtype)), (double, double)):
        x = numbers(np.ones((2, 4), raw))
        sums = RowSums(
            *(np.zeros(shape) for shape in ((4, 3), (3,), (3,), (4, 2), (3, 4), (TOTALS,), (4, COUNT_BINS)))
        )
        fit_rows(x, 0, 1, 20, model, model, d=np.empty((2, 4), out), z=np.empty((2, 2), out), sums=sums)
