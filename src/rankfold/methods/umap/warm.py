"""Compiled loops of a layout, and those that weigh neighbors, run once on a few numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rankfold.kernels.layout.forces import Edges, Epoch, forces_of
from rankfold.kernels.layout.vertices import move_vertices


def warm_layout(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """What moves vertices, in a plane or elsewhere."""
    _warm(min(3, int(request["n_components"])), np.dtype(np.int32 if shape[0] < 2**31 else np.int64))


@functools.cache
def _warm(width: int, index: np.dtype[Any]) -> None:
    edges = Edges(np.arange(3), np.array([1, 0], index), np.ones(2, np.uint32))
    positions, forces = np.zeros((2, width), np.float32), forces_of(1.0, 1.0, 1.0)
    now = Epoch(1, 0, 1.0, 1)
    move_vertices(positions, np.arange(2), edges, forces=forces, epoch=now, out=positions.copy())
