"""Compiled loops of sums, each run once on a few numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rankfold.kernels.sums.laws import Law
from rankfold.kernels.sums.tree import SumTree
from rankfold.kernels.sums.tree_sums import Sources
from rankfold.methods.sums.kernels import Kernel
from rankfold.methods.sums.points import TREE_COLUMNS, SourcePoints
from rankfold.methods.sums.work import Summation, Targets, Way


def warm_sums(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Compile the Numba loops of sums; all points are float64, whatever the matrix is."""
    _warm(many=shape[1] > TREE_COLUMNS)


@functools.cache
def _warm(*, many: bool) -> None:
    columns = TREE_COLUMNS + many
    x, ids, weights = np.zeros((40, columns)), np.arange(40), np.ones(40)
    x[:, 0] = ids
    sources = None if many else Sources.of(SumTree.of(x, ids), weights)
    points = SourcePoints(x, ids, weights, sources)
    summation = Summation(Kernel(Law.GAUSSIAN, 1.0), forces=True)
    targets = Targets.among(points, ids[:2], leave_out=True)
    summation.at(points, targets, Way(0.5))
    summation.exactly(points, targets)
