"""One iteration of nonnegative factors under the Kullback-Leibler divergence, in one read.

The long factor is improved by multiplicative updates, and what the short one is multiplied by accumulates
from quotients of the data and the product, formed anew once rows are as they will stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.nonnegative.kl_divergence import quotients
from rankfold.kernels.nonnegative.nnls import descend_rows
from rankfold.methods.nmf.row_solvers import FILL, FIRST_SWEEPS
from rankfold.methods.parts.finite import count_bad, count_negative, join_bad, no_bad
from rankfold.methods.parts.panels import Buffers, OverPanels, Panels
from rankfold.pipeline.data.view import Orientation, aligned_empty
from rankfold.pipeline.storage.checkpoint import State, load_arrays
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]

UPDATES = 2
"""Of the long factor in a read: each costs as much as what the read gains the short one."""

LEAST_SHARE = 1e-12
"""Of the sum of a matrix: divergences from independence below it are rounding."""

SUMS = ("product", "gram", "sums", "divergence", "columns", "entropy", "squares")


@dataclass(slots=True)
class Work:
    """Buffers of one segment."""

    panels: Buffers
    right: Array
    """(short, k)."""

    step: dict[str, Array]
    """Constants of the update: ``sums`` of the short factor, ``linear``, ``diagonal``, ``gram``."""

    left: Array
    quotient: Array
    """A grain as it lies."""


@dataclass(frozen=True, slots=True)
class DivergencePass(OverPanels):
    """Fold of the matrix."""

    panels: Panels
    constants: Path
    """A part with ``right`` (short, k), ``gram``, ``linear``, ``diagonal``, and ``scale`` (1,) of L."""

    before: ScratchMatrix | None
    after: ScratchMatrix
    measured: bool
    """Whether bad and negative numbers are counted, and entropies taken: once is enough."""

    row_seconds: float

    @property
    def memory_bytes(self) -> int:
        """Bytes of a workspace and of two accumulators."""
        rows, short, rank = self.panels.grain_rows, self.panels.view.short, self.after.columns
        item = self.after.dtype.itemsize
        buffers = item * (2 * rows * short + (short + 7 * rows) * rank)
        return self.panels.memory_bytes + buffers + 2 * self.accumulator_bytes + 2 * self.accumulator_bytes

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of the sums of a stream."""
        short, rank = self.panels.view.short, self.after.columns
        return 8 * (short * (rank + 2) + rank * rank)

    def start(self) -> State:
        """Sums of no rows."""
        short, rank = self.panels.view.short, self.after.columns
        return {
            "product": np.zeros((rank, short)),
            "gram": np.zeros((rank, rank)),
            "sums": np.zeros(rank),
            "divergence": np.zeros(1),
            "columns": np.zeros(short),
            "entropy": np.zeros(2),
            "squares": np.zeros(1),
            "bad": no_bad(),
            "negative": no_bad(),
        }

    def workspace(self) -> Work:
        """Allocate the buffers."""
        view, dtype, rows = self.panels.view, self.after.dtype, self.panels.grain_rows
        stored = load_arrays(self.constants)
        right = np.ascontiguousarray(stored.pop("right"), dtype)
        step = {name: value.astype(dtype) for name, value in stored.items()}
        step["sums"] = right.sum(axis=0, dtype=np.float64).astype(dtype)
        left = aligned_empty((rows, self.after.columns), dtype)
        return Work(self.panels.buffers(), right, step, left, view.panel_buffer(rows, dtype))

    def read(self, work: Work, start: int, stop: int, slot: int) -> None:
        """Fetch a panel."""
        self.panels.read(work.panels, start, stop, slot)

    def step(self, state: State, work: Work, start: int, stop: int, slot: int) -> None:
        """Take in a panel, grain by grain."""
        for first, last, raw in self.panels.grains(work.panels, start, stop, slot):
            if self.measured and not self._sound(state, raw, first):
                continue
            d = raw
            if raw.dtype != self.panels.dtype:
                ones = np.ones(raw.shape[1])
                d = self.panels.conditioned(work.panels, raw, ones - 1, ones)
            if self.measured:
                self._measure(state, work, d)
            self._advance(state, work, first, last, d)

    def _sound(self, state: State, raw: Array, first: int) -> bool:
        if not np.isfinite(raw.sum(dtype=np.float64)):
            count_bad(state, raw, *self.panels.corner(first))
            return False
        if raw.min() < 0:
            count_negative(state, raw, *self.panels.corner(first))
            return False
        return True

    def _measure(self, state: State, work: Work, d: Array) -> None:
        """Sums that tell the divergence from independent rows and columns: see ``left_by_independence``."""
        rows = self.panels.view.as_rows(d)
        level = work.quotient[: d.shape[0], : d.shape[1]]
        sums = rows.sum(axis=1, dtype=np.float64)
        total = float(sums.sum())
        # Set against their mean, numbers of any size lose nothing to what is subtracted again.
        level[...] = total / d.size or 1.0
        mean = float(level[0, 0])
        own = quotients(d, level) + total - d.size * mean + total * np.log(mean)
        state["entropy"] += own, float((sums * np.log(np.where(sums > 0, sums, 1))).sum())
        state["columns"] += rows.sum(axis=0, dtype=np.float64)
        state["squares"] += np.einsum("ij,ij->", d, d, dtype=np.float64)

    def _advance(self, state: State, work: Work, first: int, last: int, d: Array) -> None:
        view, left, step = self.panels.view, work.left[: last - first], work.step
        quotient = work.quotient[: d.shape[0], : d.shape[1]]
        if self.before is None:
            left[...] = 0
            b = view.as_rows(d) @ work.right
            descend_rows(step["gram"], b - step["linear"], w=left, sweeps=FIRST_SWEEPS)
            np.maximum(left, left.dtype.type(FILL) * step["scale"], out=left)
        else:
            self.before.read_into(left, first)
        for _ in range(UPDATES):
            self._divide(work, left, d, quotient)
            left *= view.as_rows(quotient) @ work.right
            left /= below(left, step["sums"] + step["linear"], step["diagonal"])
            np.maximum(left, np.finfo(left.dtype).eps * step["scale"], out=left)
        self.after.write(first, left)
        state["divergence"] += self._divide(work, left, d, quotient)
        state["product"] += left.T @ view.as_rows(quotient)
        state["gram"] += left.T @ left
        state["sums"] += left.sum(axis=0, dtype=np.float64)

    def _divide(self, work: Work, left: Array, d: Array, quotient: Array) -> float:
        """Data over product, as the data lie; the divergence."""
        if self.panels.view.orientation is Orientation.ROWS:
            np.matmul(left, work.right.T, out=quotient)
        else:
            np.matmul(work.right, left.T, out=quotient)
        return quotients(d, quotient)

    def merge(self, total: State, other: State) -> None:
        """Add the sums."""
        for name in SUMS:
            total[name] += other[name]
        for name in ("bad", "negative"):
            total[name] = join_bad(total[name], other[name])


def below(above: Array, linear: Array, quadratic: Array) -> Array:
    """What a numerator ``above`` is divided by.

    ``linear w + quadratic w^2 / 2 - above log w`` bounds the divergence and is least at ``2 above`` over
    ``linear + sqrt(linear^2 + 4 quadratic above)``; scikit-learn's ``linear + quadratic w`` may overshoot.
    """
    root = np.hypot(linear, 2 * np.sqrt(quadratic) * np.sqrt(above))
    return np.maximum((linear + root) / 2, np.finfo(above.dtype).tiny)  # type: ignore[no-any-return]


def left_by_independence(state: State) -> float:
    """Divergence of the data from the product of its row and column sums over its sum: the best of rank 1.

    At least the rounding of the sums that it follows from, lest a matrix of rank 1 count as nothing.
    """

    def entropy(x: npt.NDArray[np.float64]) -> float:
        return float((x * np.log(np.where(x > 0, x, 1))).sum())

    own, rows = (float(v) for v in state["entropy"])
    columns = state["columns"]
    left = own - rows - entropy(columns) + entropy(columns.sum(keepdims=True))
    return max(left, LEAST_SHARE * float(columns.sum()))
