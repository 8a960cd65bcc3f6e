"""Missing values: numbers that mark them, such as -9999, and their completion by a model of low rank.

The model is not measured when a matrix is opened: ``missing="em"`` fits it during a run, in passes over the
matrix. A result keeps the model, so that new rows with gaps are completed by it too.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.complete_rows import RowModel, fill_rows
from rankfold.pipeline.data.source import Source, compressed
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.prepare.measured_columns import Fitted
from rankfold.pipeline.prepare.steps import Measured, Numbers, Shifted, Step, require

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class MarkMissing:
    """Replace a number that marks missing values by NaN."""

    value: float

    name: ClassVar[str] = "mark_missing"
    by_row: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require(self, "value")

    def measure(self, source: Source) -> dict[str, Array]:
        """Return no measurements; raise ``InputError`` if 0 marks missing values in a sparse matrix."""
        if self.value == 0 and compressed(source) is not None:
            raise InputError(
                f"{self.name}(0): {source.name} is sparse, and zeros that are not stored cannot be told from "
                "numbers that are missing. Store what is missing as NaN, or write the matrix dense"
            )
        return {}

    def fitted(self, found: Fitted) -> Step:
        """Return the step itself, since nothing is measured."""
        return self

    def affine(self, measured: Measured) -> Shifted:
        """Shift 0 and factor 1: present values stay."""
        return 0.0, 1.0

    def apply(self, numbers: Numbers) -> None:
        """Replace the mark by NaN, in place."""
        numbers.values[numbers.values == self.value] = np.nan


@dataclass(frozen=True, slots=True)
class ImputeLowRank:
    """Replace NaN by what a model of low rank expects from the present values of the row.

    See the argument ``missing="em"``.
    """

    rank: int

    name: ClassVar[str] = "impute_low_rank"
    of_run: ClassVar[bool] = True
    """True: its model is fitted by a run, not when the matrix is opened."""

    def measure(self, source: Source) -> dict[str, Array]:
        """Raise ``InputError``: only a run can fit the model, in several passes."""
        raise InputError(
            f"{self.name} is what missing='em' of svd and pca becomes: say that, and what is missing is "
            "completed by as many components as are asked for"
        )

    def fitted(self, found: Fitted) -> Step:
        """Step that completes rows by the fitted model, whose arrays are ``found``."""
        warm_filling()
        return CompleteRows.of(found)

    def affine(self, measured: Measured) -> Shifted:
        """Shift 0 and factor 1: present values stay."""
        return 0.0, 1.0


@functools.cache
def warm_filling() -> None:
    """Compile or load the kernel that completes rows, once in a process, before passes are timed."""
    model = RowModel(np.zeros(2), np.ones((2, 1)), np.eye(1), np.eye(1), np.ones(1))
    for dtype in (np.float32, np.float64):
        fill_rows(np.full((1, 2), np.nan, dtype), model)


@dataclass(frozen=True, slots=True, eq=False)
class CompleteRows:
    """Fill in the missing values of each row from its present ones, by a model of low rank."""

    model: RowModel

    name: ClassVar[str] = "impute_low_rank"
    by_row: ClassVar[bool] = True
    fills_zeros: ClassVar[bool] = True
    """True: rows of a sparse matrix are read with their zeros, since completion needs whole rows."""

    @classmethod
    def of(cls, found: Fitted) -> CompleteRows:
        """Make the step from the arrays of its model, as a result keeps them: those of ``found``."""
        arrays = {name: np.asarray(values, np.float64) for name, values in found.items()}
        loadings = arrays["loadings"]
        k = loadings.shape[1]
        spread = arrays["spread"].reshape(k, k)
        return cls(RowModel(arrays["mean"], loadings, loadings.T @ loadings, spread, arrays["noise"]))

    @property
    def found(self) -> dict[str, Array]:
        """Arrays of the model that a result keeps, by name.

        ``mean`` (n,), ``loadings`` (n, k), ``noise`` (1,), and ``spread`` (k * k,) as in ``RowModel``.
        """
        model = self.model
        arrays = {"mean": model.mean, "loadings": model.loadings, "noise": model.noise}
        return {**arrays, "spread": model.spread.ravel()}

    @property
    def kept_bytes(self) -> int:
        """Bytes of the model, and of the temporary arrays that filling in one row takes."""
        n, k = self.model.loadings.shape
        return int(8 * (n * (k + 3) + 8 * k**2))

    def apply(self, numbers: Numbers) -> None:
        """Fill in missing values, in place."""
        fill_rows(numbers.values, self.model)


def blank_completion(columns: int, rank: int) -> CompleteRows:
    """A ``CompleteRows`` whose model has the sizes for ``columns`` and ``rank``, but no fit: for plans."""
    square = np.zeros((rank, rank))
    vector = np.broadcast_to(0.0, (columns,))
    loadings = np.broadcast_to(0.0, (columns, rank))
    return CompleteRows(RowModel(vector, loadings, square, square, np.ones(1)))
