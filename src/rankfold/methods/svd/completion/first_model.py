"""The model that completion begins with: fitted in memory to a sample of rows, as later to all rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.complete_rows import COUNT_BINS, TOTALS, RowModel, RowSums, fit_rows
from rankfold.kernels.linear.products import add_product
from rankfold.methods.parts.panels import numbers
from rankfold.methods.parts.start import leading_block, random_block
from rankfold.methods.svd.completion.low_rank_model import next_model, row_model
from rankfold.pipeline.data.view import View
from rankfold.pipeline.errors import DataError

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

PLACES = 16
"""Number of runs of consecutive rows in a sample, evenly spaced along the matrix."""

ROWS = 64, 8
"""Largest and smallest number of rows of a sample for each component, the smallest even if they exceed
``BYTES``; all rows if the matrix has no more."""

BYTES = 32 * 2**20
"""Largest number of bytes of the rows of a sample, unless the smallest number of rows takes more."""

ROUNDS = 12
"""Largest number of times that the model is updated on the sample."""

KEEPING_ROUNDS = 3
"""Number of first rounds, in which no component is pruned."""

SETTLED = 1e-3
"""Norm of the change of missing numbers in a round, relative to that of the completed rows less column means,
at which rounds end."""

LEAST_SQUARES = 1e-200
"""Sum of squares below which products of squares leave the range of float64."""

LEAST_SHARE = 1e-2
"""Smallest initial length of loadings, relative to the standard deviation of the noise: for directions that a
sample does not show."""


@dataclass(frozen=True, slots=True)
class RowSample:
    """Sample of a matrix: ``places`` runs of ``rows_per_place`` consecutive rows, evenly spaced."""

    view: View
    places: int
    rows_per_place: int

    @classmethod
    def of(cls, view: View, rank: int) -> RowSample:
        """The sample of the rows of ``view`` for a model of ``rank`` components."""
        row_bytes = view.short * max(view.source.dtype.itemsize, 8)
        rows = max(ROWS[1] * rank, min(ROWS[0] * rank, BYTES // row_bytes))
        rows = min(rows, view.long)
        places = min(PLACES, rows)
        return cls(view, places, rows // places)

    @property
    def rows(self) -> int:
        """Number of rows in the sample."""
        return self.places * self.rows_per_place

    @property
    def memory_bytes(self) -> int:
        """Bytes of all sampled rows three times in float64, of one run of rows as stored, and of a read."""
        view = self.view
        place = self.rows_per_place * view.short * view.source.dtype.itemsize
        return self.rows * view.short * 3 * 8 + place + view.read_bytes(self.rows_per_place)

    def read(self) -> Iterator[tuple[int, Array]]:
        """Yield the index of the first row of each run, and its rows in float64, (rows_per_place, n)."""
        view, each = self.view, self.rows_per_place
        for i in range(self.places):
            first = view.long * i // self.places
            block = view.panel_buffer(each, view.source.dtype)
            view.read(block, first, first + each)
            yield first, np.asarray(numbers(block), np.float64)


def first_model(
    sample: RowSample, rank: int, seed: int, held_out: tuple[int, int], *, exact: bool
) -> RowModel:
    """Fit a model to a sample, without the numbers held out of it.

    Parameters
    ----------
    sample : RowSample
        Infinite numbers count as missing here: passes refuse them.
    rank, seed : int
        Number of components, and key of the random start.
    held_out : (key, period)
        They choose the numbers held out: see ``fit_rows``.
    exact : bool
        True if each column has its own sum S_j: see ``low_rank_model.py``.

    Raises
    ------
    DataError
        Squares leave the range of float64.
    """
    places = list(sample.read())
    for _, block in places:
        block[np.isinf(block)] = np.nan
    n, rows = sample.view.short, sample.rows
    mean = _column_means([block for _, block in places])
    nothing = row_model(mean, np.zeros((n, 1)), np.zeros((1, 1)), 1.0)
    d, _ = _take(places, nothing, nothing, held_out, exact=True)
    with np.errstate(over="ignore"):
        level = float((d**2).sum())
    if not np.isfinite(level) or 0 < level < LEAST_SQUARES:
        raise out_of_range(sample.view)
    count = max(int(np.count_nonzero(d)), 1)
    q = leading_block(d, rank, seed)["q"] if rank < min(n, rows) else random_block(n, rank, seed)
    y = d @ q
    _, s, turn = np.linalg.svd(y.T @ y / rows)
    noise = max((level - rows * float(s.sum())) / count, 1e-3 * level / count)
    noise = noise if noise > 0 else 1.0
    loadings = (q @ turn.T) * np.sqrt(np.maximum(s, LEAST_SHARE**2 * noise))
    model = before = row_model(mean, loadings, noise / rows * np.eye(rank), noise)
    for i in range(ROUNDS):
        _, sums = _take(places, model, before, held_out, exact=exact)
        # First rounds find directions: none of them is pruned early.
        model, before = next_model(model, sums, rows, prunes=i >= KEEPING_ROUNDS), model
        totals = sums["totals"]
        if i > KEEPING_ROUNDS and totals[4] <= SETTLED**2 * totals[5]:
            break
    # The spread of the loadings is not known yet: it is set to that for all rows.
    noise = float(model.noise[0])
    return row_model(model.mean, model.loadings, noise / sample.view.long * np.eye(rank), noise)


def out_of_range(view: View) -> DataError:
    """The error to raise for a matrix with squares that are too large or too small."""
    return DataError(
        f"squares of {view.source.name} leave the range of {view.dtype}: its elements are too large, too "
        "small or differ too much in size. Rescale it, or store it as float64."
    )


def _column_means(blocks: list[Array]) -> Float64:
    """Means (n,) of the known numbers of each column, NaN left out; 0 for a column without any."""
    total, count = np.zeros(blocks[0].shape[1]), np.zeros(blocks[0].shape[1])
    for block in blocks:
        there = ~np.isnan(block)
        total += np.where(there, block, 0.0).sum(axis=0)
        count += there.sum(axis=0)
    return total / np.maximum(count, 1)


def _take(
    places: list[tuple[int, Array]],
    model: RowModel,
    before: RowModel,
    held_out: tuple[int, int],
    *,
    exact: bool,
) -> tuple[Float64, dict[str, Array]]:
    """Fit ``model`` to the rows of a sample; return their deviations (rows, n), and the sums of ``RowSums``.

    ``places`` are pairs of the index of a run's first row and its rows; ``before`` is the model of the round
    before; ``held_out`` and ``exact`` are as for ``first_model``.
    """
    (n, k), rows = model.loadings.shape, sum(len(block) for _, block in places)
    q = (k + 1) * (k + 2) // 2
    shapes = ((n if exact else 0, q), (q,), (q,), (n, k + 1), (3, n), (TOTALS,), (4, COUNT_BINS))
    sums = RowSums(*(np.zeros(shape) for shape in shapes))
    d, z, work, top = np.empty((rows, n)), np.empty((rows, k + 1)), np.empty((n, k + 1)), 0
    for first, block in places:
        here = slice(top, top + len(block))
        fit_rows(block, first, *held_out, model, before, d=d[here], z=z[here], sums=sums)
        add_product(d[here], z[here], total=sums.products, work=work)
        top += len(block)
    return d, sums._asdict()
