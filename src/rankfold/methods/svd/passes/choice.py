"""Choice of the fold of a pass by the storage of a matrix: dense panels, or stored numbers alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from rankfold.methods.parts.column_statistics import ColumnStatistics
from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.sparse_panels import SparseStatistics
from rankfold.methods.random_keys import Purpose
from rankfold.methods.svd.passes.dense import PanelPass
from rankfold.methods.svd.passes.sparse import SparsePass
from rankfold.methods.svd.strategy import Strategy
from rankfold.pipeline.storage.scratch import ScratchMatrix

Float64 = npt.NDArray[np.float64]


def fused_pass(
    strategy: Strategy,
    slots: int,
    centering: Centering,
    constants: Path,
    y: ScratchMatrix,
    columns: ScratchMatrix | None,
    *,
    measures_columns: bool,
    sketch_rows: int,
    seed: int = 0,
    purpose: Purpose = Purpose.ROW_SIGNS,
    tf32: bool = False,
    is_double: bool = False,
) -> PanelPass | SparsePass:
    """The fold that computes Y = A Q and Z = A'Y in one pass, for a block Q of ``y.columns`` columns.

    Arguments are the fields of ``PanelPass`` and ``SparsePass``.
    """
    seconds = strategy.row_seconds(4 * y.columns)
    shared = (centering, constants, y, columns, measures_columns, seconds, sketch_rows, seed, purpose)
    if strategy.fullest:
        return SparsePass(strategy.sparse_panels(slots), *shared, is_double)
    return PanelPass(strategy.panels(slots), *shared, tf32)


def statistics_fold(
    strategy: Strategy, slots: int, shift: Float64, centering: Centering
) -> ColumnStatistics | SparseStatistics:
    """The fold of a pass that only sums columns and their squares, about ``shift``."""
    seconds = strategy.row_seconds(4)
    if strategy.fullest:
        return SparseStatistics(strategy.sparse_panels(slots), centering, shift, seconds)
    return ColumnStatistics(strategy.panels(slots), shift, centering.pow2_scale, seconds)
