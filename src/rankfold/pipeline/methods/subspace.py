"""Blocks Q, Y = A Q and Z = A'Y of a growing orthonormal basis, kept on disk and read one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.checkpoint import save_arrays
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.finite import refuse_bad
from rankfold.pipeline.folds.local_columns import Centring
from rankfold.pipeline.folds.panel_pass import PanelPass
from rankfold.pipeline.layout import Layout
from rankfold.pipeline.methods.gram import divisors
from rankfold.pipeline.methods.start import Start
from rankfold.pipeline.narrow import Narrow
from rankfold.pipeline.quality import Ritz, ritz_values, ritz_vectors
from rankfold.pipeline.run import Run
from rankfold.pipeline.view import Orientation, View

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Block:
    """One block of the basis and its images."""

    path: Path
    """A part with ``q`` and ``z`` (short, width) and ``offset`` (width,)."""

    width: int
    y: Narrow
    """``A Q`` before the true mean was known: ``A Q = Y - 1 offset'``."""

    def load(self, name: str) -> Float64:
        """One array of the block."""
        with np.load(self.path) as stored:
            return stored[name]  # type: ignore[no-any-return]


@dataclass(slots=True)
class Subspace:
    """The basis ``[Q_1 ... Q_t]``, orthonormal, with the small matrix that describes A on it."""

    blocks: list[Block] = field(default_factory=list)
    products: Float64 = field(default_factory=lambda: np.zeros((0, 0)))
    """Q'Z = Q'A'A Q as computed: what it lacks of symmetry is the rounding error of the passes."""

    @property
    def width(self) -> int:
        """Columns of all blocks."""
        return sum(block.width for block in self.blocks)

    def each(self, name: str) -> Iterator[Float64]:
        """One array of every block, one at a time."""
        for block in self.blocks:
            yield block.load(name)

    def add(self, block: Block) -> None:
        """Take in a block: its products with all others, 4 short width (width of all) flops."""
        q, z = block.load("q"), block.load("z")
        below = [q.T @ other for other in self.each("z")]
        self.blocks.append(block)
        column = np.vstack([other.T @ z for other in self.each("q")])
        row = np.hstack([*below, column[-block.width :]])
        self.products = _bordered(self.products, column, row)

    def combine(self, name: str, coefficients: Float64) -> Float64:
        """``[Q_1 ...] @ coefficients`` or ``[Z_1 ...] @ coefficients``."""
        total, row = np.zeros((len(self.blocks[0].load(name)), coefficients.shape[1])), 0
        for block in self.blocks:
            total += block.load(name) @ coefficients[row : row + block.width]
            row += block.width
        return total

    def ritz(self, rank: int, keep: int) -> Ritz:
        """What the basis tells of the leading singular values: 4 short keep (width of all) flops."""
        theta, w = ritz_vectors(self.products, keep)
        image = self.combine("z", w)
        rest = self.combine("q", w)
        rest *= -theta
        rest += image
        residual = np.einsum("ij,ij->j", rest, rest)
        return ritz_values(self.products, theta, w, image, residual, rank)

    def offset(self, coefficients: Float64) -> Float64:
        """Offset of ``[Y_1 ...] @ coefficients``."""
        return np.concatenate([block.load("offset") for block in self.blocks]) @ coefficients


def _bordered(matrix: Float64, column: Float64, row: Float64) -> Float64:
    """A matrix with a new block column and block row, which share their last square."""
    old = len(matrix)
    return np.block([[matrix, column[:old]], [row[:, :old], column[old:]]])


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known of the columns of a tall matrix once all rows were seen."""

    mean: Float64
    deviation: Float64
    total: float
    """Sum of squares of the centred, scaled matrix, times unit squared; of any matrix."""


def multiply(
    run: Run,
    layout: Layout,
    centring: Centring,
    start: Start,
    q: Float64,
    *,
    index: int,
    known: Statistics | None,
) -> tuple[Block, Statistics]:
    """One fused pass with the basis block ``q`` (short, width).

    ``known`` statistics serve as the shift, and weigh columns; without them the pass takes sums about
    the provisional shift as it goes, and what it accumulated is centred afterwards:

        d = mean - shift,  o = (w q)'d,   Z = w (D'Y - m d o'),   A q = Y - 1 o'

    with D the shifted matrix, w the weights of columns, Y = D (w q).
    """
    view, name = layout.view, f"pass-{index:02d}"
    by_rows = view.orientation is Orientation.ROWS
    shift = start.shift if known is None or not centring.centre else known.mean
    weights = np.ones(view.short) if known is None or not by_rows else 1.0 / divisors(known.deviation)
    constants = run.part(name, "constants.npz")
    weighted = q * (weights * centring.unit)[:, None]
    if not constants.exists():
        save_arrays(constants, {"q": weighted, "shift": shift})
    y = layout.y(run.scratch, index, q.shape[1])
    fold = PanelPass(
        panels=layout.panels(run.slots),
        centring=centring,
        constants=constants,
        y=y,
        columns=layout.columns(run.scratch) if not by_rows and (centring.centre or centring.scale) else None,
        measured=known is None,
        row_seconds=layout.row_seconds(4 * q.shape[1]),
    )
    state = run.pass_over_data(name, fold)
    refuse_bad(state, view.source.name)
    _refuse_overflow(state, view)
    z, offset = state["z"] * (weights * centring.unit)[:, None], np.zeros(q.shape[1])
    if known is None:
        known = _statistics(state, view.long, start, centring, by_rows)
        if by_rows and centring.centre:
            d = known.mean - start.shift
            offset = weighted.T @ d
            z -= np.outer(view.long * centring.unit * d, offset)
    path = run.part(name, "block.npz")
    save_arrays(path, {"q": q, "z": z, "offset": offset})
    return Block(path, q.shape[1], y), known


def _refuse_overflow(state: dict[str, Float64], view: View) -> None:
    if not np.isfinite(state["z"]).all():
        raise DataError(
            f"products of {view.source.name} leave the range of {view.dtype}: its elements differ too "
            "much in size. Rescale it, or store it as float64."
        )


def _statistics(
    state: dict[str, Float64], count: int, start: Start, centring: Centring, by_rows: bool
) -> Statistics:
    total = float(state["squares"].sum())
    if not (by_rows and centring.centre):
        return Statistics(np.zeros(len(state["sums"])), np.ones(len(state["sums"])), total)
    d = state["sums"] / count
    return Statistics(start.shift + d / centring.unit, np.ones(len(d)), total - count * float(d @ d))
