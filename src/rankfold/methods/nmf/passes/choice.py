"""The fold of an iteration, by what a matrix is stored as."""

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
    """One iteration of least squares; dense ``panels`` say how many are held at once."""
    if layout.fullest:
        return SparseNonnegativePass(layout.sparse_panels(panels.slots), iteration, first_pass, seconds)
    return NonnegativePass(panels, iteration, first_pass, seconds)


def divergence_pass(
    layout: Strategy, panels: Panels, iteration: DivergenceIteration, seconds: float, *, first_pass: bool
) -> DivergencePass | SparseDivergencePass:
    """One iteration of the Kullback-Leibler divergence."""
    if layout.fullest:
        return SparseDivergencePass(layout.sparse_panels(panels.slots), iteration, first_pass, seconds)
    each = iteration.constants, iteration.before, iteration.after
    return DivergencePass(panels, *each, first_pass, seconds)


def finish(fold: object, state: State) -> State:
    """What a pass has summed, as of one over dense panels."""
    if isinstance(fold, OverStoredFactors):
        return {**state, "product": np.ascontiguousarray(state["product"].T)}
    return state
