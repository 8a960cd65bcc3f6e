"""Choose the fold of an iteration by whether the matrix is dense or sparse."""

from __future__ import annotations

import numpy as np

from rankfold.methods.nmf.passes.divergence import DivergencePass
from rankfold.methods.nmf.passes.frobenius import NmfIteration, NonnegativePass
from rankfold.methods.nmf.passes.sparse import (
    DivergenceIteration,
    OverStoredFactors,
    SparseDivergencePass,
    SparseNonnegativePass,
)
from rankfold.methods.parts.panels import Panels
from rankfold.methods.svd.strategy import Strategy
from rankfold.pipeline.storage.checkpoint import State


def nonnegative_pass(
    layout: Strategy, panels: Panels, iteration: NmfIteration, seconds: float, *, first_pass: bool
) -> NonnegativePass | SparseNonnegativePass:
    """Fold of one iteration of least squares; a sparse fold takes only ``slots`` from ``panels``.

    ``seconds`` is the nominal time of a row. ``first_pass`` is True to check the numbers of the matrix.
    """
    if layout.fullest:
        return SparseNonnegativePass(layout.sparse_panels(panels.slots), iteration, first_pass, seconds)
    return NonnegativePass(panels, iteration, first_pass, seconds)


def divergence_pass(
    layout: Strategy, panels: Panels, iteration: DivergenceIteration, seconds: float, *, first_pass: bool
) -> DivergencePass | SparseDivergencePass:
    """Fold of one iteration under the Kullback-Leibler divergence, over panels or stored numbers alone.

    ``seconds`` is the nominal time of a row. ``first_pass`` is True to check the numbers of the matrix.
    """
    if layout.fullest:
        return SparseDivergencePass(layout.sparse_panels(panels.slots), iteration, first_pass, seconds)
    each = iteration.constants, iteration.before, iteration.after
    return DivergencePass(panels, *each, first_pass, seconds)


def finish(fold: object, state: State) -> State:
    """Bring the sums of a sparse pass into the layout of a dense one: ``product`` as (k, short), not (short,
    k). Sums of a dense ``fold`` are returned as they are."""
    if isinstance(fold, OverStoredFactors):
        return {**state, "product": np.ascontiguousarray(state["product"].T)}
    return state
