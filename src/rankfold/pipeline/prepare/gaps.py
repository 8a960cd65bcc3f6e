"""What is missing in a row: numbers that mark it, and what a model of low rank expects there.

The model is not measured when a matrix is opened: ``missing="em"`` fits it by sweeps of a run, and a result
keeps it, so that new rows with gaps go through the same.
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
from rankfold.pipeline.prepare.measured_rows import Fitted
from rankfold.pipeline.prepare.steps import Measured, Numbers, Shifted, Step, require

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class MarkMissing:
    """A number that stands for what is missing becomes NaN."""

    value: float

    name: ClassVar[str] = "mark_missing"
    by_row: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require(self, "value")

    def measure(self, source: Source) -> dict[str, Array]:
        """Nothing is looked at."""
        if self.value == 0 and compressed(source) is not None:
            raise InputError(
                f"{self.name}(0): {source.name} is sparse, and zeros that are not stored cannot be told from "
                "numbers that are missing. Store what is missing as NaN, or write the matrix dense"
            )
        return {}

    def fitted(self, found: Fitted) -> Step:
        """See ``MeasuredStep``."""
        return self

    def affine(self, measured: Measured) -> Shifted:
        """See ``Affine``: numbers that are there stay."""
        return 0.0, 1.0

    def apply(self, numbers: Numbers) -> None:
        """See ``Step``."""
        numbers.values[numbers.values == self.value] = np.nan


@dataclass(frozen=True, slots=True)
class ImputeLowRank:
    """NaN becomes what a model of low rank expects there of the rest of its row: see ``missing="em"``."""

    rank: int

    name: ClassVar[str] = "impute_low_rank"
    of_run: ClassVar[bool] = True
    """Whether a run measures it, of which it is a part."""

    def measure(self, source: Source) -> dict[str, Array]:
        """A run measures it, in sweeps."""
        raise InputError(
            f"{self.name} is what missing='em' of svd and pca becomes: say that, and what is missing is "
            "completed by as many components as are asked for"
        )

    def fitted(self, found: Fitted) -> Step:
        """See ``MeasuredStep``."""
        warm_filling()
        return CompleteRows.of(found)

    def affine(self, measured: Measured) -> Shifted:
        """See ``Affine``: numbers that are there stay."""
        return 0.0, 1.0


@functools.cache
def warm_filling() -> None:
    """Compile what completes rows, or load it: once in a process, and not while a sweep is measured."""
    model = RowModel(np.zeros(2), np.ones((2, 1)), np.eye(1), np.eye(1), np.ones(1))
    for dtype in (np.float32, np.float64):
        fill_rows(np.full((1, 2), np.nan, dtype), model)


@dataclass(frozen=True, slots=True, eq=False)
class CompleteRows:
    """What is missing in a row, by what is there of it."""

    model: RowModel

    name: ClassVar[str] = "impute_low_rank"
    by_row: ClassVar[bool] = True
    fills_zeros: ClassVar[bool] = True
    """It takes all numbers of a sparse matrix, zeros too."""

    @classmethod
    def of(cls, found: Fitted) -> CompleteRows:
        """From what a result keeps."""
        arrays = {name: np.asarray(values, np.float64) for name, values in found.items()}
        loadings = arrays["loadings"]
        k = loadings.shape[1]
        spread = arrays["spread"].reshape(k, k)
        return cls(RowModel(arrays["mean"], loadings, loadings.T @ loadings, spread, arrays["noise"]))

    @property
    def found(self) -> dict[str, Array]:
        """What a result keeps."""
        model = self.model
        arrays = {"mean": model.mean, "loadings": model.loadings, "noise": model.noise}
        return {**arrays, "spread": model.spread.ravel()}

    @property
    def kept_bytes(self) -> int:
        """Memory of the model, and of what the row in work takes."""
        n, k = self.model.loadings.shape
        return int(8 * (n * (k + 3) + 8 * k**2))

    def apply(self, numbers: Numbers) -> None:
        """See ``Step``."""
        fill_rows(numbers.values, self.model)


def blank_completion(columns: int, rank: int) -> CompleteRows:
    """A completion that nothing is known of yet, of the size that it will have: for plans."""
    square = np.zeros((rank, rank))
    vector = np.broadcast_to(0.0, (columns,))
    loadings = np.broadcast_to(0.0, (columns, rank))
    return CompleteRows(RowModel(vector, loadings, square, square, np.ones(1)))
