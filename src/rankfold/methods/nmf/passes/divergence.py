"""One iteration of nonnegative factors under the Kullback-Leibler divergence, in one read.

The long factor L is improved by multiplicative updates. The numerators of the update of the short factor S
are sums over quotients ``x / (L S)`` of the data and the product, computed again from the final rows of L. A
panel is the rows read at a time, a grain those of one product.

References
----------
Lee, Seung, Algorithms for non-negative matrix factorization, NIPS 13, 2001: the multiplicative updates. Here
rows of the long factor get several updates for each read, and quotients are computed once more for the short
one.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.center_scale import subtract
from rankfold.kernels.linear.products import add_gram, add_product, add_squares, product
from rankfold.kernels.nonnegative.kl_divergence import quotients
from rankfold.kernels.nonnegative.nnls import descend_rows
from rankfold.methods.nmf.row_solvers import FILL, FIRST_SWEEPS
from rankfold.methods.parts.panels import BAD, Grain, OverPanels, Panels, count_negative
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, Constant, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]

UPDATES = 2
"""Number of updates of the long factor in a read: each costs as much as the sums for the short factor."""

LEAST_SHARE = 1e-12
"""Least divergence from independence, over the sum of the matrix: below it there is only rounding."""


@dataclass(frozen=True, slots=True)
class DivergencePass(OverPanels):
    """Fold of one iteration under the Kullback-Leibler divergence over a dense matrix."""

    panels: Panels
    constants: Path
    """Checkpoint file with the short factor ``right`` (short, k), its ``gram`` (k, k), terms of penalties
    ``linear`` and ``diagonal`` (k,), and ``scale`` (1,), the typical size of numbers in the long factor."""

    before: ScratchMatrix | None
    """(long, k) long factor of the previous iteration; None in the first one."""

    after: ScratchMatrix
    """(long, k) new long factor, which the pass writes."""

    first_pass: bool
    """True to count bad and negative numbers and to sum entropies, as only the first pass does."""

    row_seconds: float

    kernels = (subtract, product, add_gram, add_product, add_squares, quotients, descend_rows)

    def buffers(self) -> Mapping[str, Buffer]:
        """Arrays of the update, ``left`` and ``product``.

        ``right`` (short, k) is the short factor, ``gram`` (k, k) its Gram matrix, ``linear`` and ``diagonal``
        (k,) are terms of penalties, ``scale`` (1,) is the typical size of numbers in the long factor L.
        ``left`` (grain rows, k) holds rows of L, ``product`` (k, short) what they add to the sum of that
        name. The divergence of intermediate updates is added to ``unread`` (1,), which nobody reads.
        """
        (short, rank), dtype, part = (
            (self.panels.view.short, self.after.columns),
            self.after.dtype,
            self.constants,
        )
        return {
            "right": Constant((short, rank), dtype, part),
            "gram": Constant((rank, rank), dtype, part),
            "linear": Constant((rank,), dtype, part),
            "diagonal": Constant((rank,), dtype, part),
            "scale": Constant((1,), dtype, part),
            "left": Buffer((self.panels.grain_rows, rank), dtype),
            "product": Buffer((rank, short), dtype),
            "unread": Buffer((1,)),
        }

    @property
    def temporary_bytes(self) -> int:
        """Bytes of quotients of a grain, of a copy of them, and of products and denominators of an update."""
        rows, short, rank = self.panels.grain_rows, self.panels.view.short, self.after.columns
        return self.after.dtype.itemsize * (2 * rows * short + 6 * rows * rank)

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all rows of the matrix X, with L the new long factor and S the short one.

        ``product`` (k, short) is ``L'`` times the quotients ``X / (L S)``, ``gram`` (k, k) is ``L'L``,
        ``sums`` (k,) are column sums of L, ``divergence`` (1,) is that of X from L S. The first pass also
        sums ``columns`` (short,) of X, ``entropy`` (2,) for ``independence_divergence``, ``squares`` (1,) of
        X, and counts of bad and negative numbers.
        """
        short, rank = self.panels.view.short, self.after.columns
        return {
            "product": Sum((rank, short)),
            "gram": Sum((rank, rank)),
            "sums": Sum((rank,)),
            "divergence": Sum((1,)),
            "columns": Sum((short,)),
            "entropy": Sum((2,)),
            "squares": Sum((1,)),
            "bad": BAD,
            "negative": BAD,
        }

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers, panels, and ``quotient`` for a grain, laid out as the data; fill in ``sums``.

        ``sums`` (k,) are those of the components of the short factor.
        """
        work = OverPanels.workspace(self, device)
        work.sums = work.right.sum(axis=0, dtype=np.float64).astype(self.after.dtype)
        work.unread[:] = 0.0
        work.quotient = device.empty(self.panels.view.panel_shape(self.panels.grain_rows), self.after.dtype)
        return work

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Update rows ``start:stop`` of the long factor, grain by grain, and add to the sums in ``state``.

        The first pass also checks the numbers of the panel.
        """
        for grain in self.panels.grains(work.panels, start, stop, slot):
            if self.first_pass and not self._is_sound(state, work, grain):
                continue
            d = raw = grain.raw
            if raw.dtype != self.panels.dtype:
                ones = np.ones_like(raw, np.float64, shape=raw.shape[1])
                d = self.panels.condition(work.panels, raw, ones - 1, ones)
            if self.first_pass:
                self._measure(state, work, d)
            self._advance(state, work, grain.first, grain.last, d)

    def _is_sound(self, state: State, work: Workspace, grain: Grain) -> bool:
        if not self.is_finite(state, work, grain, grain.raw.sum(dtype=np.float64)):
            return False
        count = functools.partial(count_negative, state, grain.staged, *self.panels.corner(grain.first))
        return work.device.holds(grain.raw.min() >= 0, count)

    def _measure(self, state: State, work: Workspace, d: Array) -> None:
        """Add to ``entropy``, ``columns`` and ``squares`` in ``state`` for a grain ``d`` of the matrix."""
        rows = self.panels.view.as_rows(d)
        level = work.quotient[: d.shape[0], : d.shape[1]]
        sums = rows.sum(axis=1, dtype=np.float64)
        total = sums.sum()
        # Relative to their mean, numbers of any size lose no digits to terms that cancel.
        mean = np.where(total > 0, total / d.size, 1.0).astype(level.dtype)
        level[...] = mean
        mean = mean.astype(np.float64)
        own = np.zeros_like(sums, shape=1)
        quotients(d, level, total=own)
        state["entropy"][0] += own[0] + total - d.size * mean + total * np.log(mean)
        state["entropy"][1] += (sums * np.log(np.where(sums > 0, sums, 1))).sum()
        state["columns"] += rows.sum(axis=0, dtype=np.float64)
        add_squares(d, total=state["squares"])

    def _advance(self, state: State, work: Workspace, first: int, last: int, d: Array) -> None:
        view, left = self.panels.view, work.left[: last - first]
        quotient = work.quotient[: d.shape[0], : d.shape[1]]
        if self.before is None:
            left[...] = 0
            b = view.as_rows(d) @ work.right
            descend_rows(work.gram, b - work.linear, w=left, sweeps=FIRST_SWEEPS)
            np.maximum(left, left.dtype.type(FILL) * work.scale, out=left)
        else:
            work.device.fill(left, functools.partial(self.before.read_into, start=first))
        for _ in range(UPDATES):
            self._divide(work, left, d, quotient, work.unread)
            left *= view.as_rows(quotient) @ work.right
            left /= below(left, work.sums + work.linear, work.diagonal)
            np.maximum(left, np.finfo(left.dtype).eps * work.scale, out=left)
        work.device.send(left, functools.partial(self.after.write, first))
        self._divide(work, left, d, quotient, state["divergence"])
        add_product(left, view.as_rows(quotient), total=state["product"], work=work.product)
        add_gram(left, total=state["gram"])
        state["sums"] += left.sum(axis=0, dtype=np.float64)

    def _divide(self, work: Workspace, left: Array, d: Array, quotient: Array, total: Array) -> None:
        """Write quotients ``d / (L S)`` of a grain ``d``, laid out as it is stored, to ``quotient``.

        ``left`` (rows, k) are its rows of the long factor L, and S is the short one. The divergence of ``d``
        from L S is added to ``total`` (1,).
        """
        if self.panels.view.orientation is Orientation.ROWS:
            product(left, work.right.T, out=quotient)
        else:
            product(work.right, left.T, out=quotient)
        quotients(d, quotient, total=total)


def below(above: Array, linear: Array, quadratic: Array) -> Array:
    """Denominator of a multiplicative update: new numbers w of a factor are ``above`` (r, k) divided by it.

    ``linear w + quadratic w^2 / 2 - above log w`` bounds the divergence and is least at ``2 above`` over
    ``linear + sqrt(linear^2 + 4 quadratic above)``; scikit-learn's ``linear + quadratic w`` may overshoot.
    """
    root = np.hypot(linear, 2 * np.sqrt(quadratic) * np.sqrt(above))
    return np.maximum((linear + root) / 2, np.finfo(above.dtype).tiny)  # type: ignore[no-any-return]


def independence_divergence(state: State) -> float:
    """Divergence of the data from the product of its row and column sums over its sum, the best rank-1 model.

    ``state`` has ``columns`` and ``entropy`` of a first pass. The value is at least the rounding of the sums,
    so that a matrix of rank 1 does not give 0.
    """

    def entropy(x: npt.NDArray[np.float64]) -> float:
        return float((x * np.log(np.where(x > 0, x, 1))).sum())

    own, rows = (float(v) for v in state["entropy"])
    columns = state["columns"]
    divergence = own - rows - entropy(columns) + entropy(columns.sum(keepdims=True))
    return max(divergence, LEAST_SHARE * float(columns.sum()))
