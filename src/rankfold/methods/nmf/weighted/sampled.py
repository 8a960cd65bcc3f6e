"""Iterations on a sample of rows in memory, before any on all rows: gaps need dozens of iterations.

Alternation in effect fills a gap with the value of the model. Each iteration thus corrects a share of the
error of the start, which comes from zeros in gaps. On a sample of rows that costs no read.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from rankfold.kernels.nonnegative.weighted_rows import descend_weighted_rows, pair_count, pair_products
from rankfold.methods.nmf.alternation import SWEEPS, Factors, Model
from rankfold.methods.nmf.row_solvers import FIRST_SWEEPS
from rankfold.methods.nmf.start import remaining_decrease, sample_row_count
from rankfold.methods.nmf.weighted.alternation import Weighting, improve_weighted_short
from rankfold.methods.nmf.weighted.panels import is_by_rows
from rankfold.methods.nmf.weighted.sources import PairedSource
from rankfold.pipeline.storage.checkpoint import State

Float64 = npt.NDArray[np.float64]

LARGEST_SHARE, FEW_ROWS = 8, 1024
"""The sample has at most one row in ``LARGEST_SHARE``, or ``FEW_ROWS`` rows if that is more."""

LARGEST_BYTES = 2**25
"""Most bytes of the sample in float64."""

LARGEST_SUMS = 2**28
"""Most bytes of Gram matrices of the short side, of which memory holds a few copies."""

FEWEST_ROWS = 8
"""Least rows of a sample for each component: fewer do not improve the short factor."""

PLACES = 16
"""Number of runs of rows in a sample, spread evenly along the matrix."""

READS, FLOPS = 2, 2e10
"""Limit on the work of iterations: that of ``READS`` passes over the matrix, or ``FLOPS`` if that is more."""

LEAST_ITERATIONS, MOST_ITERATIONS = 20, 200


def row_count(model: Model) -> int:
    """Number of rows of a sample; 0 with penalties, too few rows, or too large Gram matrices."""
    view, rank = model.view, model.parameters.rank
    if any(model.penalties()) or 8 * view.short * pair_count(rank) > LARGEST_SUMS:
        return 0
    most = min(max(view.long // LARGEST_SHARE, FEW_ROWS), view.long, LARGEST_BYTES // (8 * view.short))
    rows = min(sample_row_count(rank), most)
    return 0 if rows < FEWEST_ROWS * rank else rows - rows % PLACES


def sample_bytes(weighting: Weighting) -> int:
    """Bytes for reading a sample, and for iterations on it; 0 if there is none."""
    view, alone, rank = weighting.pair_view, weighting.model.view, weighting.model.parameters.rank
    rows, short, pairs = row_count(weighting.model), alone.short, pair_count(rank)
    if not rows:
        return 0
    each = rows // PLACES
    reading = view.read_bytes(each) + each * view.short * view.source.dtype.itemsize
    sums = 8 * short * (rank + pairs)
    return reading + 8 * rows * (4 * short + 2 * pairs + 8 * rank) + 3 * sums + 8 * short * pairs


def improve_start(weighting: Weighting, short: Float64) -> Float64:
    """Improve the short factor by iterations of least squares on a sample, whatever the loss."""
    rank, view = len(short), weighting.model.view
    rows = row_count(weighting.model)
    if not rows:
        return short
    x, counts = read_sample(weighting, rows)
    factors, long = Factors(short), np.zeros((rows, rank))
    affordable = max(READS * view.long // rows, int(FLOPS / (4 * rows * view.short * pair_count(rank))))
    most = min(max(LEAST_ITERATIONS, affordable), MOST_ITERATIONS)
    model, costs = weighting.model, list[float]()
    known = counts.any(axis=0)
    while len(costs) < most:
        state = _iterate(x, counts, factors, long, fresh=not costs)
        update = improve_weighted_short(model, factors, state)
        # A column without any weight in the sample may have some in other rows: it keeps its start.
        factors.short = np.where(known, update.short, short)
        total = float(state["squares"][0])
        squares = max(float(state["residual"][0]) + update.change, 0.0)
        costs.append(float(np.sqrt(squares / total)) if total > 0 else 0.0)
        if remaining_decrease(costs) <= model.parameters.tol * costs[-1]:
            break
    return factors.short


def read_sample(weighting: Weighting, rows: int) -> tuple[Float64, Float64]:
    """Read sampled long rows and their weights, both (rows, short); bad or missing entries get weight 0."""
    with ThreadPoolExecutor(1) as thread:  # its end frees the buffers that chunks are decoded in
        return thread.submit(_read, weighting, rows).result()


def _read(weighting: Weighting, rows: int) -> tuple[Float64, Float64]:
    view, alone, each = weighting.pair_view, weighting.model.view, rows // PLACES
    x, counts = np.empty((rows, alone.short)), np.ones((rows, alone.short))
    for i in range(PLACES):
        panel = np.empty(view.panel_shape(each), view.source.dtype)
        start = view.long * i // PLACES
        view.read(panel, start, start + each)
        here = slice(i * each, (i + 1) * each)
        numbers = panel
        if isinstance(view.source, PairedSource):
            numbers, beside = view.source.split(panel)
            counts[here] = beside if is_by_rows(view) else beside.T
        x[here] = numbers if is_by_rows(view) else numbers.T
    # The first pass reports bad entries.
    counts[~(np.isfinite(x) & (counts > 0) & (counts < np.inf))] = 0
    x[counts == 0] = 0
    return np.maximum(x, 0), counts


def _iterate(x: Float64, counts: Float64, factors: Factors, long: Float64, *, fresh: bool) -> State:
    """Improve the long factor of a sample in place; returns the same sums as a pass over the matrix."""
    rank, right = len(factors.short), np.ascontiguousarray(factors.short.T)
    pairs = np.empty((len(right), pair_count(rank)))
    pair_products(right, out=pairs)
    weighted, grams = x * counts, counts @ pairs
    descend_weighted_rows(grams, weighted @ right, w=long, sweeps=FIRST_SWEEPS if fresh else SWEEPS)
    pair_products(long, out=grams)
    residual = counts * (x - long @ factors.short) ** 2
    return {
        "grams": grams.T @ counts,
        "product": long.T @ weighted,
        "gram": long.T @ long,
        "sums": long.sum(axis=0),
        "squares": np.array([(weighted * x).sum()]),
        "residual": np.array([residual.sum()]),
    }
