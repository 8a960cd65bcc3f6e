"""The long factor of a decomposition, as a recipe to form it from scratch files: it is never whole in memory.

The long factor holds the singular vectors of the longer side: one row for each row of a tall matrix, or each
column of a wide one. Scratch is intermediate files of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.qr import r_of_gram
from rankfold.methods.parts.combination import Combination, NarrowGram, NarrowR, WriteRows
from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.outputs import create_output
from rankfold.methods.parts.panels import refuse_bad
from rankfold.methods.svd.solvers.preconditioned import Preconditioner, WritePreconditionedRows
from rankfold.methods.svd.solvers.whitening import r_of_parts
from rankfold.methods.svd.strategy import Strategy
from rankfold.pipeline.data.real_parts import collapse, expand, parts_of, twice
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.storage.checkpoint import save_arrays, save_once
from rankfold.pipeline.storage.scratch import ScratchMatrix

Float64 = npt.NDArray[np.float64]

ZERO = 32 * np.finfo(np.float64).eps
"""Size of a singular value, relative to the largest, up to which it counts as 0 and its left vector is
arbitrary."""


def zeros_in_words(zeros: int, rank: int) -> str:
    """Text of the warning that ``zeros`` of ``rank`` singular values are 0."""
    return (
        f"{zeros} of the {rank} singular values are below {ZERO:.0e} of the largest: they are written as 0, "
        "and their vectors are arbitrary"
    )


class LongFactor(Protocol):
    """Protocol of k orthonormal columns along the long side that can be written as an array."""

    def write(self, run: Run, layout: Strategy, array: Path, weights: Float64) -> Float64:
        """Write the columns times ``weights`` (k,) to the Zarr array at ``array``; return their Gram matrix.

        The array is (long, k), or (k, long) if the columns of the matrix are the long side. The Gram matrix
        (k, k) is that of the columns without weights.
        """


@dataclass(frozen=True, slots=True)
class FromMatrix:
    """Long factor ``Y @ coefficients``, where Y is the matrix times the basis of a preconditioner.

    Y is formed by one more pass over the matrix.
    """

    preconditioner: Preconditioner
    coefficients: Float64
    """(preconditioner.width, k) coefficients of the long factor on the columns of Y."""

    centering: Centering

    def write(self, run: Run, layout: Strategy, array: Path, weights: Float64) -> Float64:
        """Form the columns by one pass over the matrix, and write them: see ``LongFactor.write``."""
        constants, coefficients = run.part("rows.part"), expand(self.coefficients)
        rank, weights = coefficients.shape[1], twice(weights, paired=layout.paired)
        save_arrays(constants, {"coefficients": coefficients, "weights": weights})
        transposed = layout.view.orientation is Orientation.COLUMNS
        fold = WritePreconditionedRows(
            layout.wide_panels(run.slots),
            self.centering,
            self.preconditioner,
            layout.column_file(run.scratch, self.centering),
            constants,
            array,
            transposed,
            layout.view.dtype,
            rank,
            layout.row_seconds(2 * (self.preconditioner.width + rank)),
        )
        state = run.pass_over_data("rows", fold)
        refuse_bad(state, layout.view.source)
        return collapse(state["gram"], paired=layout.paired)


@dataclass(frozen=True, slots=True)
class Triplets:
    """Leading singular triplets of A times its factor; the long factor as a recipe."""

    s: Float64
    short: Float64
    """(short, k) singular vectors of the short side, signs fixed."""

    combination: Combination
    rotation: Float64
    """(combination.width, k): the long factor is ``combination @ rotation``."""

    residuals: Float64
    """(k,) norms of A'u - s v, relative to the largest s; upper bounds if by ``sketch``."""

    errors: Float64
    """(k,) estimated relative errors of ``s``."""

    def write(self, run: Run, layout: Strategy, array: Path, weights: Float64) -> Float64:
        """Form the long factor by one sweep over scratch, and write it: see ``LongFactor.write``."""
        return write_combination(run, layout, self.combination, self.rotation, weights, array)


def write_combination(
    run: Run, layout: Strategy, combination: Combination, rotation: Float64, weights: Float64, array: Path
) -> Float64:
    """Write ``(combination @ rotation) * weights`` along the long side: see ``LongFactor.write``.

    ``rotation`` is (combination.width, k). Returns the Gram matrix (k, k) of the columns without weights.
    """
    constants, rotation = run.part("rows.part"), expand(rotation)
    rank, weights = rotation.shape[1], twice(weights, paired=layout.paired)
    save_arrays(constants, {"rotation": rotation, "weights": weights})
    fold = WriteRows(
        combination,
        layout.narrow_cut(combination, rank),
        constants,
        array,
        layout.view.orientation is Orientation.COLUMNS,
        layout.view.dtype,
        rank,
        layout.row_seconds(4),
    )
    return collapse(run.sweep("rows", fold)["gram"], paired=layout.paired)


def create_long_array(run: Run, layout: Strategy, name: str, columns: int) -> Path:
    """Create the array ``name`` of the result, (long, columns) or transposed, for a long factor.

    It is transposed if the columns of the matrix are the long side. Returns its path.
    """
    view, chunk = layout.view, min(layout.out_chunk, layout.view.long)
    turn = -1 if view.orientation is Orientation.COLUMNS else 1
    shape, chunks = (view.long, columns)[::turn], (chunk, columns)[::turn]
    return create_output(run.result, name, shape, layout.dtype, chunks)


@dataclass(frozen=True, slots=True)
class OnScratch:
    """Matrix ``[Y_1 ... Y_t] - 1 offset'`` whose blocks Y (long, b) are on scratch, written by ``run``."""

    run: Run
    layout: Strategy
    parts: Sequence[ScratchMatrix]
    offset: Float64
    """(sum of b,) vector that is subtracted from each row."""

    rank: int
    """Number of columns of the long factor."""

    seed: int
    """Key of Gaussian columns that complete the long factor."""

    def combination(self, coefficients: Float64, name: str, *, random: int = 0) -> Combination:
        """Recipe of this matrix times ``coefficients``, followed by ``random`` Gaussian columns.

        ``coefficients`` are (sum of b, columns). The constants of the recipe are saved in a file called
        ``name``.
        """
        arrays = {"coefficients": expand(coefficients), "offset": parts_of(self.offset @ coefficients)}
        constants, twofold = save_once(self.run.part(f"{name}.part"), arrays), 1 + self.layout.paired
        columns = coefficients.shape[1] * twofold
        return Combination(tuple(self.parts), constants, columns, random * twofold, self.seed)

    def r_factor(self, combination: Combination, name: str) -> Float64:
        """R factor (width, width) of a combination, by one sweep over scratch called ``name``, or two.

        For nearly orthonormal columns, as products with Ritz vectors are up to rounding, the Gram matrix
        gives R as accurately as reflections, and several times as fast. Others take a second sweep by
        reflections.
        """
        seconds = combination.row_bytes * (1e-9 + 4 * combination.width / 8 * 1e-10)
        paired = self.layout.paired
        cut = self.layout.narrow_cut(combination, self.rank * (1 + paired))
        gram = self.run.sweep(name, NarrowGram(combination, cut, seconds))["gram"]
        r = r_of_gram(collapse(gram, paired=paired))
        if r is None:
            r = self.run.sweep(f"{name}-qr", NarrowR(combination, cut, seconds))["r"]
            r = r_of_parts(r, paired=paired)
        return np.asarray(r)

    def complete(self, coefficients: Float64) -> tuple[Combination, Float64]:
        """A recipe of ``rank`` orthonormal columns; the first ones span the product with ``coefficients``.

        For a matrix of lower rank than asked for. A second narrow sweep orthonormalizes random columns
        against those that the matrix does determine. Returns a combination C and a matrix T: ``C @ T`` has
        the orthonormal columns. Adds a warning to the run.
        """
        rank, positive = self.rank, coefficients.shape[1]
        combination = self.combination(coefficients, "completed", random=rank - positive)
        r = self.r_factor(combination, "completed")
        inverse = np.zeros_like(r)
        inverse[:positive, :positive] = np.linalg.inv(r[:positive, :positive])
        inverse[:, positive:] = np.linalg.inv(r)[:, positive:]
        self.run.warnings.append(zeros_in_words(rank - positive, rank))
        return combination, inverse
