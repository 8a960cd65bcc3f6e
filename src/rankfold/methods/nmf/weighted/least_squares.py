"""One iteration of weighted least squares in one read, which lowers sum_ij v_ij (x_ij - (L S)_ij)^2.

A row of L has weights of its own, and so a Gram matrix of its own, G_i = S diag(v_i) S'. The Gram matrices of
many rows are one matrix product: their weights with the products of every two rows of S. They are computed at
the speed of BLAS. A column of S has a Gram matrix of its own too, sum_i v_ij l_i l_i'. These are summed over
all rows of L, again by one product, in k (k + 1) / 2 numbers (pairs of components) for each column. From
them S is solved when the pass ends, with the same result as after a second read. A panel is the rows read at
a time, a grain some of them.

References
----------
Kim, Choi, Weighted nonnegative matrix factorization, ICASSP 2009: alternating nonnegative least squares with
weights. Here rows are improved by coordinate descent, and one read serves both factors.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.products import add_gram, add_product, product
from rankfold.kernels.nonnegative.weighted_rows import (
    descend_weighted_rows,
    gradient_weighted_rows,
    pair_count,
    pair_places,
    pair_products,
)
from rankfold.methods.nmf.row_solvers import FIRST_SWEEPS
from rankfold.methods.nmf.weighted.sources import OverWeightedPanels, WeightedGrain, is_by_rows
from rankfold.methods.parts.panels import Panels
from rankfold.pipeline.data.view import View
from rankfold.pipeline.engine.blocks import grains
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, Constant, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

GRAM_BYTES = 2**22
"""Bytes of Gram matrices of rows that are computed together, to stay in cache; more if ``GRAM_ROWS`` of them
take more."""

GRAM_ROWS = 128
"""Least number of rows whose Gram matrices are computed together: with fewer, memory would limit the speed of
sums over rows."""


def gram_rows(rank: int) -> int:
    """Number of rows whose Gram matrices, of ``rank`` components, are computed together.

    >>> gram_rows(8), gram_rows(100)
    (14563, 128)
    """
    return max(GRAM_ROWS, GRAM_BYTES // (8 * pair_count(rank)))


@dataclass(frozen=True, slots=True)
class WeightedPass(OverWeightedPanels):
    """Fold of one iteration of weighted least squares over a matrix and its weights."""

    panels: Panels
    view: View
    constants: Path
    """Checkpoint file with the short factor ``right`` (short, k), and terms of penalties: ``linear`` (k,) is
    subtracted from products, ``diagonal`` (k,) is added to the diagonals of Gram matrices."""

    before: ScratchMatrix | None
    after: ScratchMatrix
    ignore: bool
    first_pass: bool
    pow2_scale: float
    sweeps: int
    row_seconds: float

    kernels = (
        product,
        add_gram,
        add_product,
        pair_products,
        descend_weighted_rows,
        gradient_weighted_rows,
    )

    @property
    def rank(self) -> int:
        """Number of components."""
        return self.after.columns

    @property
    def _gram_rows(self) -> int:
        return min(gram_rows(self.rank), self.panels.grain_rows)

    def buffers(self) -> Mapping[str, Buffer]:
        """Buffers of a grain of the matrix, arrays of ``constants``, rows of the long factor L, and Gram
        matrices of these rows.

        ``across`` (k, short) is ``right`` transposed, ``pairs`` (short, pairs) the products of every two
        columns of ``right``, ``b`` (grain rows, k) the weighted data times ``right``, ``left`` (grain rows,
        k) rows of L, ``grams`` (rows, pairs) packed Gram matrices. ``product`` and ``gram_product`` are what
        a grain adds to the sums ``product`` and ``grams``.
        """
        rows, short, rank = self.panels.grain_rows, self.view.short, self.rank
        dtype, part, pairs = self.after.dtype, self.constants, pair_count(rank)
        return {
            **self.grain_buffers(),
            "right": Constant((short, rank), dtype, part),
            "across": Buffer((rank, short), dtype),
            "pairs": Buffer((short, pairs), dtype),
            "linear": Constant((rank,), dtype, part),
            "diagonal": Constant((rank,), dtype, part),
            "b": Buffer((rows, rank), dtype),
            "left": Buffer((rows, rank), dtype),
            "grams": Buffer((self._gram_rows, pairs), dtype),
            "product": Buffer((rank, short), dtype),
            "gram_product": Buffer((pairs, short), dtype),
        }

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all rows, with X the matrix, V its weights and L the new long factor.

        ``product`` (k, short) is L' times the weighted X, ``grams`` (pairs, short) are the packed Gram
        matrices of columns, ``gram`` (k, k) is ``L'L``, ``sums`` (k,) are column sums of L, ``gradient`` (k,)
        squares of the projected gradient at the old L, ``residual`` (1,) weighted squares of the residual.
        """
        short, rank = self.view.short, self.rank
        return {
            "product": Sum((rank, short)),
            "grams": Sum((pair_count(rank), short)),
            "gram": Sum((rank, rank)),
            "sums": Sum((rank,)),
            "gradient": Sum((rank,)),
            "residual": Sum((1,)),
            **self.check_sums(),
        }

    @property
    def temporary_bytes(self) -> int:
        """Bytes of masks, of the Gram matrix of a grain of the long factor, and of copies of vectors."""
        return self.mask_bytes + 16 * self.rank**2 + 8 * 2 * (self.view.short + self.panels.grain_rows)

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers and panels, and fill in ``across`` and ``pairs``; ``on_diagonal`` (k,) are the
        places of diagonals in packed Gram matrices."""
        work = OverWeightedPanels.workspace(self, device)
        np.copyto(work.across, work.right.T)
        pair_products(work.right, out=work.pairs)
        work.on_diagonal = np.diag(pair_places(self.rank))
        return work

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Improve rows ``start:stop`` of the long factor, grain by grain, and add to the sums in ``state``.

        The first pass also checks the numbers and weights of the panel.
        """
        for grain in self.panels.grains(work.panels, start, stop, slot):
            rows = self.weigh(state, work, grain)
            if rows is not None:
                self._advance(state, work, grain.first, rows)

    def _advance(self, state: State, work: Workspace, first: int, rows: WeightedGrain) -> None:
        x, weights, rest = rows
        left, b = work.left[: len(x)], work.b[: len(x)]
        np.multiply(x, weights, out=rest)
        product(rest, work.right, out=b)
        b -= work.linear
        if self.before is None:
            left[...] = 0
        else:
            work.device.fill(left, functools.partial(self.before.read_into, start=first))
        left[~weights.any(axis=1)] = 0
        for start, stop in grains(0, len(x), self._gram_rows):
            part = slice(start, stop)
            grams = work.grams[: stop - start]
            product(weights[part], work.pairs, out=grams)
            grams[:, work.on_diagonal] += work.diagonal
            state["gradient"] += gradient_weighted_rows(grams, b[part], left[part])
            sweeps = FIRST_SWEEPS if self.before is None else self.sweeps
            descend_weighted_rows(grams, b[part], w=left[part], sweeps=sweeps)
            pair_products(left[part], out=grams)
            add_product(grams, weights[part], total=state["grams"], work=work.gram_product)
        work.device.send(left, functools.partial(self.after.write, first))
        state["sums"] += left.sum(axis=0, dtype=np.float64)
        add_gram(left, total=state["gram"])
        add_product(left, rest, total=state["product"], work=work.product)
        self._add_residual(state, work, left, rows)

    def _add_residual(self, state: State, work: Workspace, left: Array, rows: WeightedGrain) -> None:
        """Add weighted squares of the residual of a grain, with its new rows ``left`` (rows, k) of the long
        factor, to ``residual`` in ``state``."""
        x, weights, rest = rows
        if is_by_rows(self.view):
            product(left, work.across, out=rest)
        else:
            product(work.right, left.T, out=rest.T)
        np.subtract(x, rest, out=rest)
        state["residual"] += self.squares(rest, weights)
