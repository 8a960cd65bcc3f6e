"""Start of the first pass: a shift near the mean, a unit for the size of the numbers, and a block of vectors.

All come from a few rows at places spread along the matrix, so that a matrix sorted by time or batch is
centered about its middle and not about its beginning. They need not be accurate. The shift only has to be
close enough to the mean that the difference does not hide the variance, and passes correct for it exactly.
The block only decides the number of passes, and the first pass shows what it has missed.

The block is random, or holds approximate leading directions of some rows of the matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.center_scale import measure, subtract
from rankfold.kernels.linear.dense import adjoint, ritz_vectors
from rankfold.kernels.linear.gaussian import gaussian_rows
from rankfold.kernels.linear.orthonormal import orthonormalize
from rankfold.kernels.linear.panel import panel_product
from rankfold.methods.parts.panels import numbers
from rankfold.methods.parts.sample import Sample
from rankfold.methods.random_keys import Purpose
from rankfold.pipeline.data.real_parts import collapse, expand, is_complex, numbers_of_parts
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.storage.checkpoint import State, load_arrays, load_if_whole, save_arrays

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

ROUNDS = 3
"""Number of rounds of subspace iteration on sampled rows."""

GRAIN_ROWS = 1024
"""Number of sampled rows that are multiplied at a time."""

NO_BLOCK: State = {"q": np.zeros((0, 0)), "values": np.zeros(0)}
"""What ``leading_block`` returns where a sample gives no block: passes then begin with a random one."""

CHECKED = 4
"""Number of directions, images of random vectors under one half of a sample, whose share of the other half is
measured."""

CHANCE = 0.5
"""Smallest share of the squares of the other half, relative to that of as many random directions on average,
at which a sample is trusted."""


def random_block(short: int, width: int, seed: int, *, paired: bool = False) -> Float64:
    """Random orthonormal block, (short, width) float64; complex128 if ``paired``."""
    parts = gaussian_rows(seed, Purpose.RANDOM_BLOCK, (0, short), width * (1 + paired))
    return orthonormalize(numbers_of_parts(parts, paired=paired))


def leading_block(rows: Array, width: int, seed: int, *, paired: bool = False) -> State:
    """Approximate leading right singular vectors ``q`` of some rows of a matrix.

    Parameters
    ----------
    rows : (l, n) float32 or float64
        Centered and scaled like the matrix; the parts (l, 2 n) of a complex one.
    width : int, < n
    seed : int
    paired : bool
        True if the matrix is complex.

    Returns
    -------
    q : (n, width) float64 or complex128, orthonormal
    values : (width,) float64
        Squares that the rows have along its columns, decreasing.

    Notes
    -----
    Subspace iteration in memory with half as many columns again, 6 l n width flops a round. Errors of the
    vectors do not matter to the result, which passes find from any start.
    """
    short = rows.shape[1] // (1 + paired)
    q = random_block(short, min(short, width + width // 2), seed, paired=paired)
    for _ in range(ROUNDS - 1):
        q = orthonormalize(_image(rows, q))
    z = _image(rows, q)
    values, w = ritz_vectors(adjoint(q) @ z, width)
    return {"q": orthonormalize(z @ w), "values": values}


def tells_of_others(rows: Array, seed: int) -> bool:
    """True if leading directions of one half of a sample hold their share of the squares of the other half.

    The halves are every other row. The share is that of random directions on average, less an allowance.
    Where rows are unrelated, as in a graph of many components, a sample only describes its own rows. A block
    from it holds exact singular vectors that are not the leading ones, with small residuals, and nothing of
    the other rows.

    Parameters
    ----------
    rows : (l, n) float32 or float64
        As for ``leading_block``; the parts of a complex matrix.
    seed : int

    Notes
    -----
    8 l n ``CHECKED`` flops: images of random directions under one half, and the share of the other in them.
    """
    half, others = rows[::2], rows[1::2]
    test = gaussian_rows(seed, Purpose.SAMPLE_CHECK, (0, rows.shape[1]), CHECKED).astype(rows.dtype)
    q = orthonormalize((half.T @ (half @ test)).astype(np.float64))
    held = float(np.square(others @ q.astype(rows.dtype), dtype=np.float64).sum())
    total = float(np.square(others, dtype=np.float64).sum())
    return bool(held * rows.shape[1] >= CHANCE * CHECKED * total)


def _image(rows: Array, q: Float64) -> Float64:
    """``adjoint(rows) @ rows @ q``, (n, width), for ``rows`` (l, n), parts (l, 2 n) if complex."""
    paired, q = np.iscomplexobj(q), expand(q)
    z, work, narrow = np.zeros_like(q), np.empty(q.shape, rows.dtype), q.astype(rows.dtype)
    y = np.empty((min(GRAIN_ROWS, len(rows)), q.shape[1]), rows.dtype)
    for start in range(0, len(rows), GRAIN_ROWS):
        d = rows[start : start + GRAIN_ROWS]
        panel_product(d, narrow, y=y[: len(d)], z=z, work=work)
    return collapse(z, paired=paired)


# From a sample ------------------------------------------------------------------------------------


_EXPONENTS = {4: (-100, 100), 8: (-900, 900)}
"""Smallest and largest binary exponent of ``pow2_scale``, by item size: it multiplies a basis in that
type."""


@dataclass(frozen=True, slots=True)
class Start:
    """Provisional centering of the first pass, and the path of its block of vectors."""

    shift: Float64
    """(short,) provisional column means of a tall matrix, in units of the data; zeros for a wide one, or
    without centering."""

    pow2_scale: float
    """Power of two that brings the largest sampled element, once centered, near 1."""

    block_path: Path
    """Path of a checkpoint file with the result of ``leading_block`` on the sample, or ``NO_BLOCK``."""

    @property
    def from_sample(self) -> bool:
        """True if ``block`` comes from sampled rows; False if it is random."""
        return len(self._values) > 0

    def is_flat(self, rank: int, gap: float) -> bool:
        """True if the sample shows a flat spectrum below component ``rank``; False if it gives no block.

        A spectrum is flat if its squared singular value number ``rank`` is less than ``1 + gap`` times that
        of the last column of the block.
        """
        values = self._values
        return bool(len(values) > rank and values[rank - 1] < (1 + gap) * values[-1])

    @property
    def _values(self) -> Float64:
        return load_arrays(self.block_path, "values")["values"]

    def block(self, view: View, width: int, seed: int) -> Float64:
        """Orthonormal block of the first pass, (short, width): from the sample, or random by ``seed``."""
        q: Float64 = load_arrays(self.block_path)["q"]
        paired = is_complex(view.source)
        return q if q.size else random_block(view.short // (1 + paired), width, seed, paired=paired)


def sample_start(
    sample: Sample, block: Callable[[Array], State], *, center: bool, scale: bool, folder: Path
) -> Start:
    """Find the start from a sample, or load what an earlier attempt saved in ``folder``.

    ``block`` finds a block from the sampled rows (l, short), if these are enough; they are centered and
    scaled as ``center`` and ``scale`` say.
    """
    path, block_path = folder / "start.part", folder / "start-block.part"
    arrays = load_if_whole(path)
    if arrays is None or load_if_whole(block_path) is None:
        shift, pow2_scale, d = _condition_sample(sample, center=center, scale=scale)
        save_arrays(block_path, block(d) if sample.gives_block else NO_BLOCK)
        arrays = {"shift": shift, "unit": np.asarray(pow2_scale)}
        save_arrays(path, arrays)
    return Start(arrays["shift"], float(arrays["unit"]), block_path)


def _condition_sample(sample: Sample, *, center: bool, scale: bool) -> tuple[Float64, float, Array]:
    """Shift (short,), ``pow2_scale``, and the sample (rows, short), centered and scaled as in passes."""
    view = sample.view
    x = numbers(sample.read())
    columns = x.shape[1]
    mean = x.mean(axis=0, dtype=np.float64) if center else np.zeros(columns)
    d = x if x.dtype == view.dtype else np.empty(x.shape, view.dtype)
    subtract(x, mean, np.ones(columns), out=d)
    largest = max(float(d.max()), -float(d.min()))
    exponent = -int(np.frexp(largest)[1]) if largest > 0 else 0
    pow2_scale = float(np.ldexp(1.0, int(np.clip(exponent, *_EXPONENTS[view.dtype.itemsize]))))
    d *= d.dtype.type(pow2_scale)
    if scale:
        _, squares = measure(d, np.zeros(columns), 1.0)
        d /= np.where(squares > 0, np.sqrt(squares / len(d)), 1.0).astype(d.dtype)
    by_rows = view.orientation is Orientation.ROWS
    return mean if by_rows else np.zeros(view.short), pow2_scale, view.as_rows(d)
