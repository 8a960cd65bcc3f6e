"""Targets one after the other, compiled. See ``kernels/grid/pairs.py``: sources are processed in vectors of
the processor, and their sums may be added up in any order, the same for each target."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

TILE = 1024
ZERO, ONE = np.float32(0), np.float32(1)
REORDERED = {"reassoc", "contract", "nsz"}


def push_sums(targets: Float32, sources: Float32, *, push: Float32, near: Float64) -> None:
    """See the contract. Sums of repulsive forces and of nearness from all sources, for each target."""
    loop = _push_in_plane if len(sources) == 2 else _push_in_space
    loop(targets, sources, push, near)


def _sums_of(x: Any, y: Any, xs: Float32, ys: Float32) -> Any:
    """Sums of q, q^2 dx and q^2 dy over sources at ``xs, ys``, for one target at (x, y).

    dx and dy are target less source, ``q = 1 / (1 + dx^2 + dy^2)``.
    """
    sum_q, sum_x, sum_y = ZERO, ZERO, ZERO
    for j in range(len(xs)):
        dx, dy = x - xs[j], y - ys[j]
        q = ONE / (ONE + dx * dx + dy * dy)
        sum_q += q
        q *= q
        sum_x += q * dx
        sum_y += q * dy
    return sum_q, sum_x, sum_y


_sums = compile_loop(_sums_of, fastmath=REORDERED, called_from_python=False)


@compile_loop
def _push_in_plane(targets: Float32, sources: Float32, push: Float32, near: Float64) -> None:
    xs, ys = sources[0], sources[1]
    for i in range(len(targets)):
        all_q = all_x = all_y = 0.0
        for start in range(0, sources.shape[1], TILE):
            stop = start + TILE
            sum_q, sum_x, sum_y = _sums(targets[i, 0], targets[i, 1], xs[start:stop], ys[start:stop])
            all_q, all_x, all_y = all_q + sum_q, all_x + sum_x, all_y + sum_y
        near[i], push[i, 0], push[i, 1] = all_q, all_x, all_y


def _nearness_of(target: Float32, sources: Float32, start: int, q: Float32) -> Any:
    """Fill ``q`` with ``1 / (1 + |y - s|^2)`` for a target y and the sources s from ``start`` on.

    Returns the sum of ``q``; ``sources`` is (d, n).
    """
    q[:] = ONE
    for d in range(len(target)):
        own, line = target[d], sources[d][start : start + len(q)]
        for j in range(len(q)):
            difference = own - line[j]
            q[j] += difference * difference
    total = ZERO
    for j in range(len(q)):
        q[j] = ONE / q[j]
        total += q[j]
    return total


def _push_of(own: Any, line: Float32, q: Float32) -> Any:
    total = ZERO
    for j in range(len(q)):
        total += q[j] * q[j] * (own - line[j])
    return total


_nearness = compile_loop(_nearness_of, fastmath=REORDERED, called_from_python=False)
_push = compile_loop(_push_of, fastmath=REORDERED, called_from_python=False)


@compile_loop
def _push_in_space(targets: Float32, sources: Float32, push: Float32, near: Float64) -> None:
    width, count = sources.shape
    buffer, totals = np.empty(TILE, np.float32), np.empty(width)
    for i in range(len(targets)):
        near[i] = 0
        totals[:] = 0
        for start in range(0, count, TILE):
            stop = min(start + TILE, count)
            q = buffer[: stop - start]
            near[i] += _nearness(targets[i], sources, start, q)
            for d in range(width):
                totals[d] += _push(targets[i, d], sources[d][start:stop], q)
        for d in range(width):
            push[i, d] = totals[d]
