"""Initial positions of vertices: random, from an array or a result, or among neighbors with positions.

Initial positions by eigenvectors of the graph: each component in a box of its own.

Eigenvectors say nothing about the relative positions of components. These get boxes side by side, in
proportion to their numbers of rows, by repeated bisection of the unit box.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.gaussian import TILE_ROWS, gaussian_rows
from rankfold.methods.fuzzy_graph.stored_rows import StoredRows, row_spans
from rankfold.methods.random_keys import Purpose
from rankfold.methods.registry import METHODS
from rankfold.pipeline.data.named_objects import names_along
from rankfold.pipeline.data.names import Names, find_places, names_of_result
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.storage.result import Result

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Float32 = npt.NDArray[np.float32]

STARTS = ("pca", "umap", "spectral", "diffusion_map", "isomap", "tsne")
"""Methods whose results may hold initial positions."""

WIDTH = 10.0
"""Width, along each axis, of the box of initial positions."""

NOISE = 1e-4
"""Standard deviation of noise added to given positions, in the box of width 10: vertices in one place would
stay together."""


def given_positions(init: object, rows: int, columns: int, wanted: Names | None = None) -> Float64:
    """Initial positions from a caller, (rows, columns) or fewer rows: an array, a result, or the path of one.

    ``wanted`` are the names of the rows that are laid out, or None: positions with names, of a frame, a
    DataArray or a result, are sorted like these.
    """
    own = names_along(init, 0)
    if isinstance(init, (str, Path)):
        init = Result(init)
    if isinstance(init, Result):
        kind = str(init.attrs.get("kind"))
        if kind not in STARTS:
            *names, last = STARTS
            raise InputError(
                f"{init.path} is the result of {kind}: rows begin at one of {', '.join(names)} or {last}"
            )
        init.require_whole()
        name = METHODS[kind].matrices[0]
        if name not in init:
            raise InputError(
                f"{init.path} has no {name} to begin at: give a result that has, or an array of positions"
            )
        own = names_of_result(init.path, init.attrs, 0)
        init = init[name][:, :columns]
    try:
        positions = np.array(init, np.float64, order="C")
    except (TypeError, ValueError):
        raise InputError("init must be a name, an array of positions, or a result of pca or umap") from None
    if positions.ndim != 2 or positions.shape[1] != columns or not 1 <= len(positions) <= rows:
        raise InputError(
            f"positions to begin at have shape {positions.shape}, but {rows} rows of {columns} coordinates "
            "are laid out: give those of all rows, or of the first of them"
        )
    if not np.isfinite(positions).all():
        raise InputError("positions to begin at must be finite numbers")
    wanted = wanted and wanted.take(np.arange(len(positions)) if len(positions) < len(wanted) else None)
    places = find_places(own, wanted, "row", "init", "what is laid out")
    return positions if places is None else positions[places]


def digest(positions: Float64 | None) -> str:
    """Hash, in hexadecimal, of given positions, to compare requests; empty for None."""
    return "" if positions is None else hashlib.blake2b(positions.data, digest_size=16).hexdigest()


def start_positions(given: Float64 | None, rows: int, columns: int, seed: int) -> Float32:
    """(rows, columns) initial positions in a box of width 10: functions of seed, row, and those given.

    ``given`` (g, columns) are positions from a caller, which are scaled to the box; None for random ones of
    ``rows`` rows.
    """
    if given is None:
        return anywhere(rows, columns, seed)
    return _with_noise(_unit_box(given), seed)


def extend_positions(first: Float32, anywhere: Float32, graph: Path, seed: int) -> Float32:
    """Initial positions of all rows, of which the first rows have given ones.

    A row gets the mean of its neighbors that have positions, by weight. One whose neighbors have none waits
    until they do. One that no path of edges joins to a placed row keeps its random position.

    Parameters
    ----------
    first : (n, d) float32
        Positions of the first rows.
    anywhere : (m, d) float32, n < m
        Random positions of all rows, kept where there is nothing better; changed in place and returned.
    graph : Path
        The graph of all rows. It is read once for each edge on the longest path to a placed row.
    seed : int
        Key of the noise that separates rows with the same neighbors.
    """
    positions, rows = anywhere, len(anywhere)
    positions[: len(first)] = first
    placed = np.arange(rows) < len(first)
    stored, noise = StoredRows(graph), jitter(seed, (len(first), rows), first.shape[1])
    while True:
        found: list[tuple[Any, Any]] = []
        for top, bottom in row_spans([stored]):
            if placed[top:bottom].all():
                continue
            edges = stored.between(top, bottom)
            leads = ~placed[edges.rows] & placed[edges.columns]
            own, weights = edges.rows[leads] - top, edges.weights[leads].astype(np.float64)
            total = np.bincount(own, weights, bottom - top)
            some = np.flatnonzero(total > 0)
            ends = positions[edges.columns[leads]].astype(np.float64)
            sums = [np.bincount(own, weights * end, bottom - top)[some] for end in ends.T]
            found.append((some + top, np.stack(sums, axis=1) / total[some, None]))
        new = np.concatenate([each for each, _ in found]) if found else np.empty(0, np.int64)
        if not len(new):
            return positions
        positions[new] = np.concatenate([means for _, means in found]) + noise[new - len(first)]
        placed[new] = True


def spectral_positions(result: Result, seed: int) -> tuple[Float32, int]:
    """(rows, d) initial positions by eigenvectors, a box for each component; and number of random ones.

    ``result`` holds eigenvectors of each component by itself, and labels of components.
    """
    coordinates, labels = (np.asarray(result[name][...]) for name in ("embedding", "labels"))
    rows, columns = coordinates.shape
    places, at_random = place_components(coordinates, labels, anywhere(rows, columns, seed) / WIDTH)
    return _with_noise(places, seed), at_random


def _unit_box(given: Float64) -> Float64:
    low, high = given.min(axis=0), given.max(axis=0)
    with np.errstate(over="ignore"):
        span = high - low
    halves = np.where(np.isfinite(span), 1.0, 0.5)
    span = high * halves - low * halves
    return np.asarray((given * halves - low * halves) / np.where(span > 0, span, 1))


def _with_noise(unit: Float64, seed: int) -> Float32:
    """Positions ``unit`` (rows, d) in the unit box, scaled to the box of width 10, with noise added."""
    noise = jitter(seed, (0, len(unit)), unit.shape[1])
    positions: Float32 = (WIDTH * unit + noise).astype(np.float32)
    return positions


def jitter(seed: int, rows: tuple[int, int], columns: int) -> Float64:
    """(r, columns) noise for rows ``rows[0]:rows[1]``, which separates those that begin in one place."""
    return NOISE * gaussian_rows(seed, Purpose.LAYOUT_START, rows, columns)


def anywhere(rows: int, columns: int, seed: int) -> Float32:
    """(rows, columns) random positions in the box of initial positions, uniformly distributed."""
    positions = np.empty((rows, columns), np.float32)
    key = np.array([seed, Purpose.LAYOUT_START], np.uint64)
    for tile, top in enumerate(range(0, rows, TILE_ROWS)):
        bits = np.random.Philox(key=key, counter=[0, 0, 0, tile])
        numbers = np.random.Generator(bits).random((TILE_ROWS, columns))
        positions[top : top + TILE_ROWS] = WIDTH * numbers[: rows - top]
    return positions


Int64 = npt.NDArray[np.int64]

INSIDE = 0.8
"""Share of its box that a component fills along each axis, if there are several components."""


def boxes(sizes: Int64, columns: int) -> tuple[Float64, Float64]:
    """(c, columns) lower and upper corners of boxes that fill the unit box, with volumes as ``sizes`` (c,).

    >>> low, high = boxes(np.array([2, 1, 1]), 2)
    >>> low.tolist(), high.tolist()
    ([[0.0, 0.0], [0.5, 0.0], [0.5, 0.5]], [[0.5, 1.0], [1.0, 0.5], [1.0, 1.0]])
    """
    low, high = np.zeros((len(sizes), columns)), np.ones((len(sizes), columns))
    before = np.concatenate([[0], np.cumsum(sizes)])
    open_ = [(0, len(sizes))]
    while open_:
        first, last = open_.pop()
        if last - first < 2:
            continue
        half = (before[first] + before[last]) / 2
        cut = int(np.clip(np.searchsorted(before, half), first + 1, last - 1))
        share = (before[cut] - before[first]) / (before[last] - before[first])
        axis = int((high[first] - low[first]).argmax())
        place = low[first, axis] + share * (high[first, axis] - low[first, axis])
        high[first:cut, axis] = low[cut:last, axis] = place
        open_ += [(first, cut), (cut, last)]
    return low, high


def place_components(coordinates: Float64, labels: Int64, anywhere: Any) -> tuple[Float64, int]:
    """(m, d) positions in the unit box; and number of rows at random positions within their box.

    Parameters
    ----------
    coordinates : (m, d) float64
        Coordinates of each component by itself; all 0 where it has none.
    labels : (m,) int64
        Component of each row, from 0 on; -1 for rows without edges, which may be anywhere.
    anywhere : (m, d)
        Random positions in the unit box.
    """
    places, order = np.array(anywhere, np.float64), np.argsort(labels, kind="stable")
    sizes = np.bincount(labels[labels >= 0])
    ends = (labels < 0).sum() + np.concatenate([[0], np.cumsum(sizes)])
    low, high = boxes(sizes, coordinates.shape[1])
    inside = INSIDE if len(sizes) > 1 else 1.0
    at_random = int(ends[0])
    for one in range(len(sizes)):
        rows = order[ends[one] : ends[one + 1]]
        own = coordinates[rows]
        span = np.ptp(own, axis=0)
        if not span.any():
            at_random += len(rows)
        unit = np.where(span > 0, (own - own.min(axis=0)) / np.where(span > 0, span, 1), places[rows])
        width = high[one] - low[one]
        places[rows] = low[one] + width * ((1 - inside) / 2 + inside * unit)
    return places, at_random
