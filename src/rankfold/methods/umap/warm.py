"""Compiled loops of a layout, run once on a few numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rankfold.kernels.layout.forces import Density, Edges, Epoch, closeness_of, forces_of
from rankfold.kernels.layout.radii import measure_radii
from rankfold.kernels.layout.rows import NewRows, place_rows, row_keys
from rankfold.kernels.layout.vertices import move_vertices
from rankfold.methods.fuzzy_graph.warm import warm_weights


def warm_layout(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Compile the loops that move vertices, in a plane or elsewhere."""
    index = np.dtype(np.int32 if shape[0] < 2**31 else np.int64)
    _warm(min(3, int(request["n_components"])), index, bool(request.get("density")))


def warm_placement(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Compile the loops that weigh the neighbors of new rows and place these, in a plane or elsewhere."""
    warm_weights(dtype, request, shape)
    _warm_placement(min(3, request["n_components"]))


@functools.cache
def _warm_placement(width: int) -> None:
    start, indices = np.zeros((2, width), np.float32), np.zeros((2, 2), np.int64)
    rows = NewRows(indices, np.ones((2, 2), np.uint32), row_keys(indices, 0), start)
    forces, rates = forces_of(1.0, 1.0, 1.0), np.ones(1, np.float32)
    place_rows(start, rows, forces=forces, rates=rates, negatives=1, out=start.copy())


@functools.cache
def _warm(width: int, index: np.dtype[Any], is_spread: bool) -> None:
    edges = Edges(np.arange(3), np.array([1, 0], index), np.ones(2, np.uint32))
    positions, forces = np.zeros((2, width), np.float32), forces_of(1.0, 1.0, 1.0)
    now = Epoch(1, 0, 1.0, 1)
    move_vertices(positions, np.arange(2), edges, forces=forces, epoch=now, out=positions.copy())
    if is_spread:
        closeness, pushes = closeness_of(1.0, 1.0), np.ones((2, 2), np.float32)
        density, moved = Density(closeness, 1.0, pushes), positions.copy()
        move_vertices(positions, np.arange(2), edges, forces=forces, epoch=now, out=moved, density=density)
        measure_radii(positions, moved, edges, closeness=closeness, out=pushes)
