"""One weighted iteration by multiplicative updates in one read, for either loss.

Numerators are products of one factor with the weighted data, and denominators with the weighted model. Sums
over all rows are therefore two matrices of the size of the short factor. Under Kullback-Leibler the weighted
divergence is that of the weighted data from the weighted model: quotients of data and model do not change,
and weights multiply numerators and denominators. A panel is the rows read at a time, a grain some of them.

References
----------
Lee, Seung, Algorithms for non-negative matrix factorization, NIPS 13, 2001: the updates without weights. The
functions that bound the objective there are sums over entries, and each term may have a weight.
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
from rankfold.kernels.nonnegative.kl_divergence import quotients
from rankfold.kernels.nonnegative.nnls import descend_rows
from rankfold.kernels.nonnegative.weighted_rows import descend_weighted_rows, pair_count, pair_products
from rankfold.methods.nmf.passes.divergence import LEAST_SHARE, UPDATES, below
from rankfold.methods.nmf.row_solvers import FILL, FIRST_SWEEPS
from rankfold.methods.nmf.weighted.least_squares import gram_rows
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


PAIR_BYTES = 2**26
"""Rows of the long factor start by weighted least squares if the products of every two rows of the short
factor, which that needs, take at most this many bytes."""


@dataclass(frozen=True, slots=True)
class WeightedRatios(OverWeightedPanels):
    """Fold of one iteration of multiplicative updates over a matrix and its weights."""

    panels: Panels
    view: View
    constants: Path
    """Checkpoint file with the short factor ``right`` (short, k), its ``gram`` (k, k), terms of penalties
    ``linear`` and ``diagonal`` (k,), and ``scale`` (1,), the typical size of numbers in the long factor."""

    before: ScratchMatrix | None
    after: ScratchMatrix
    ignore: bool
    first_pass: bool
    pow2_scale: float
    divergence: bool
    """True if the loss is Kullback-Leibler, False for least squares."""

    row_seconds: float

    kernels = (
        product,
        add_gram,
        add_product,
        quotients,
        descend_rows,
        pair_products,
        descend_weighted_rows,
    )

    @property
    def _solves_rows(self) -> bool:
        """True if rows of the long factor start by weighted least squares, as in a first pass if that takes
        little memory."""
        pairs = pair_count(self.after.columns)
        return self.first_pass and pairs * self.view.short * self.after.dtype.itemsize <= PAIR_BYTES

    def buffers(self) -> Mapping[str, Buffer]:
        """Buffers of a grain, its weighted values, and rows of the long factor; arrays of ``constants``.

        ``left`` (grain rows, k) holds rows of the long factor. ``pairs`` (short, pairs) and ``grams`` (rows,
        pairs) are for rows that start by weighted least squares, as in ``WeightedPass``. ``product`` (k,
        short) is what a grain adds to a sum; ``unread`` (1,) takes losses that nobody reads.
        """
        rows, short, rank = self.panels.grain_rows, self.view.short, self.after.columns
        dtype, part, pairs = self.after.dtype, self.constants, pair_count(rank) * self._solves_rows
        return {
            **self.grain_buffers("weighted"),
            "pairs": Buffer((short, pairs), dtype),
            "grams": Buffer((min(gram_rows(rank), rows), pairs), dtype),
            "right": Constant((short, rank), dtype, part),
            "gram": Constant((rank, rank), dtype, part),
            "linear": Constant((rank,), dtype, part),
            "diagonal": Constant((rank,), dtype, part),
            "scale": Constant((1,), dtype, part),
            "left": Buffer((rows, rank), dtype),
            "product": Buffer((rank, short), dtype),
            "unread": Buffer((1,)),
        }

    @property
    def temporary_bytes(self) -> int:
        """Bytes of masks, of products and denominators of an update, of transposed rows, and of vectors."""
        rows, short, rank = self.panels.grain_rows, self.view.short, self.after.columns
        item = self.after.dtype.itemsize
        return self.mask_bytes + item * 8 * rows * rank + 8 * 8 * (rows + short) + 16 * rank**2

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all rows, with L the new long factor.

        ``product`` and ``below`` (k, short) are numerators and denominators of the update of the short
        factor, ``gram`` (k, k) is ``L'L``, ``sums`` (k,) are column sums of L, and ``loss`` (1,) is that of L
        and the old short factor. ``entropy`` (1,), ``columns`` and ``level`` (short,) are for
        ``plain_divergence``.
        """
        short, rank = self.view.short, self.after.columns
        return {
            "product": Sum((rank, short)),
            "below": Sum((rank, short)),
            "gram": Sum((rank, rank)),
            "sums": Sum((rank,)),
            "loss": Sum((1,)),
            "entropy": Sum((1,)),
            "columns": Sum((short,)),
            "level": Sum((short,)),
            **self.check_sums(),
        }

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers and panels; fill in ``pairs``, the products of every two columns of ``right``, if
        they are used."""
        work = OverWeightedPanels.workspace(self, device)
        work.unread[:] = 0.0
        if self._solves_rows:
            pair_products(work.right, out=work.pairs)
        return work

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Update rows ``start:stop`` of the long factor, grain by grain, and add to the sums in ``state``.

        The first pass also checks the numbers and weights of the panel.
        """
        for grain in self.panels.grains(work.panels, start, stop, slot):
            rows = self.weigh(state, work, grain)
            if rows is None:
                continue
            weighted = self.view.as_rows(self.view.part(work.weighted, 0, grain.last - grain.first))
            np.multiply(rows.x, rows.weights, out=weighted)
            if self.first_pass and self.divergence:
                self._measure(state, rows, weighted)
            self._advance(state, work, grain.first, rows, weighted)

    def _measure(self, state: State, rows: WeightedGrain, weighted: Array) -> None:
        """Add to ``entropy``, ``columns`` and ``level`` in ``state`` for a grain: see ``plain_divergence``.

        ``weighted`` (rows, short) are its values times their weights.
        """
        sums, weight = (each.sum(axis=1, dtype=np.float64) for each in (weighted, rows.weights))
        total, whole = sums.sum(), weight.sum()
        # Relative to their mean, numbers of any size lose no digits to terms that cancel.
        mean = rows.rest.dtype.type(total / whole if total > 0 else 1.0)
        np.multiply(rows.weights, mean, out=rows.rest)
        model, own = rows.rest.sum(dtype=np.float64), np.zeros(1)
        self._divide(weighted, rows.rest, own)
        means = np.divide(sums, weight, out=np.zeros_like(sums), where=weight > 0)
        log = np.log(np.where(means > 0, means, 1))
        state["entropy"] += own[0] + total - model + total * np.log(np.float64(mean)) - (sums * log).sum()
        state["columns"] += weighted.sum(axis=0, dtype=np.float64)
        state["level"] += np.einsum("i,ij->j", means, rows.weights, dtype=np.float64)

    def _advance(
        self, state: State, work: Workspace, first: int, rows: WeightedGrain, weighted: Array
    ) -> None:
        left, weights = work.left[: len(weighted)], rows.weights
        least = np.finfo(left.dtype).eps * work.scale
        if self.before is None:
            self._begin_rows(work, rows, weighted @ work.right, left)
            np.maximum(left, left.dtype.type(FILL) * work.scale, out=left)
        else:
            work.device.fill(left, functools.partial(self.before.read_into, start=first))
        idle = ~weights.any(axis=1)
        for _ in range(UPDATES):
            above, under = self._ratio(work, left, rows, weighted, work.unread)
            above, under = left * (above @ work.right), under @ work.right
            left[...] = above / self.denominator(above, under, left, work.linear, work.diagonal)
            np.maximum(left, least, out=left)
            left[idle] = 0
        work.device.send(left, functools.partial(self.after.write, first))
        above, under = self._ratio(work, left, rows, weighted, state["loss"])
        add_product(left, above, total=state["product"], work=work.product)
        add_product(left, under, total=state["below"], work=work.product)
        add_gram(left, total=state["gram"])
        state["sums"] += left.sum(axis=0, dtype=np.float64)

    def _begin_rows(self, work: Workspace, rows: WeightedGrain, b: Array, left: Array) -> None:
        """Write starting rows ``left`` (rows, k) of the long factor, found by least squares from zero.

        ``b`` (rows, k), overwritten, is the weighted data times the short factor. Multiplicative updates
        alone would reach such rows only slowly.
        """
        left[...], weights = 0, rows.weights
        if not self._solves_rows:
            # As if all entries of a row had its mean weight, which is nearly right for random gaps.
            mean = weights.mean(axis=1, keepdims=True, dtype=np.float64).astype(left.dtype)
            np.divide(b, mean, out=b, where=mean > 0)
            descend_rows(work.gram, b - work.linear, w=left, sweeps=FIRST_SWEEPS)
            return
        b -= work.linear
        for start, stop in grains(0, len(left), len(work.grams)):
            part, grams = slice(start, stop), work.grams[: stop - start]
            product(weights[part], work.pairs, out=grams)
            descend_weighted_rows(grams, b[part], w=left[part], sweeps=FIRST_SWEEPS)

    def denominator(self, above: Array, under: Array, factor: Array, linear: Array, diagonal: Array) -> Array:
        """Denominator of a multiplicative update; the new factor is ``above`` divided by it.

        ``above`` is the numerator of the update times ``factor``, ``under`` the denominator without
        penalties, ``linear`` and ``diagonal`` are the terms of penalties; all broadcast to the shape of
        ``factor``. For a divergence see ``passes.divergence.below``.
        """
        if self.divergence:
            return below(above, under + linear, diagonal)
        return np.asarray(np.maximum(under + linear + diagonal * factor, np.finfo(above.dtype).tiny))

    def _ratio(
        self, work: Workspace, left: Array, rows: WeightedGrain, weighted: Array, loss: Array
    ) -> tuple[Array, Array]:
        """Two arrays (rows, short) for a grain, from which either factor is updated.

        Their products with one factor are the numerator and the denominator of an update of the other.
        ``left`` (rows, k) are rows of the long factor, ``weighted`` the values of the grain times their
        weights. The loss of the current factors is added to ``loss`` (1,), unless that is ``work.unread``.
        """
        x, weights, rest = rows
        if is_by_rows(self.view):
            product(left, work.right.T, out=rest)
        else:
            product(work.right, left.T, out=rest.T)
        if self.divergence:
            rest *= weights
            self._divide(weighted, rest, loss)
            rest *= weights
            return rest, weights
        if loss is not work.unread:  # the grain is not used any more, x may be overwritten
            np.subtract(x, rest, out=x)
            loss += self.squares(x, weights)
        rest *= weights
        return weighted, rest

    def _divide(self, weighted: Array, model: Array, total: Array) -> None:
        """Replace ``model`` by quotients ``weighted / model``, both (rows, short); add the divergence of
        ``weighted`` from ``model`` to ``total`` (1,)."""
        if is_by_rows(self.view):
            quotients(weighted, model, total=total)
        else:
            quotients(weighted.T, model.T, total=total)


def plain_divergence(state: State) -> float:
    """Weighted divergence of a matrix from the product of its row and column means over the overall mean.

    All means are weighted. With equal weights that model is independence of rows and columns. ``state`` has
    the sums of a first pass: ``weight``, ``columns``, ``level`` and ``entropy``. At least the rounding of the
    sums is returned.
    """
    weight, columns = state["weight"], state["columns"]
    total, whole = float(columns.sum()), float(weight.sum())
    if not total > 0:
        return 0.0
    means, mean = np.divide(columns, weight, out=np.zeros_like(columns), where=weight > 0), total / whole
    model = float((means * state["level"]).sum()) / mean
    log = np.log(np.where(means > 0, means, 1))
    divergence = float(state["entropy"][0]) - float((columns * log).sum()) + total * float(np.log(mean))
    return max(divergence - total + model, LEAST_SHARE * total)
