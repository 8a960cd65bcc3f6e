"""Weights of rows, equivalent to a rank-one matrix of weights, which is never formed.

    sum_i r_i |x_i - w_i H|^2 = |diag(r)^(1/2) X - (diag(r)^(1/2) W) H|^2

Rows are scaled as they are read, the scaled matrix is factorized, and rows of W are divided by their scale in
the end. The Kullback-Leibler divergence weighted by rows is that of diag(r) X from diag(r) W H. A pass costs
the same as without weights, for sparse matrices too.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.nmf.alternation import Factors, Model
from rankfold.methods.nmf.nmf import NmfFit, Nonnegative, compression_of
from rankfold.methods.nmf.request import FactorRequest
from rankfold.methods.nmf.start import FactorStart
from rankfold.methods.parts.row_weights import (
    BLOCK_ROWS,
    NO_WEIGHT,
    RowWeights,
    open_row_weights,
    require_weights,
)
from rankfold.methods.svd.strategy import Strategy, choose_strategy
from rankfold.pipeline.chunks.geometry import Span
from rankfold.pipeline.data.dtypes import ConvertedSource
from rankfold.pipeline.data.source import (
    CompressedSource,
    Csr,
    SamePlaces,
    Source,
    compressed,
    require_compressed,
)
from rankfold.pipeline.data.view import working_dtype
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.manifest import require_whole_input
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

BLOCK_BYTES = 2**20
"""Bytes of rows of W that are divided by the scales of their rows at a time."""

USUAL = 1e6
"""Weights are not rescaled if the largest lies between this and its inverse."""


@dataclass(frozen=True, slots=True, eq=False)
class RowFactors(RowWeights):
    """A weight for each row, and the factor by which the row is multiplied."""

    root: bool
    """True if the factor is the square root of the weight, as for least squares."""

    unit: float = 1.0
    """Power of two that all weights are multiplied by, which does not change W and H."""

    def factors(self, start: int, stop: int, dtype: np.dtype[Any]) -> Float64:
        """(stop - start,) factors by which rows ``start:stop`` are multiplied; 0 if too small for a normal
        number of ``dtype``."""
        weights = self.read(start, stop) * self.unit
        with np.errstate(invalid="ignore"):
            factors = np.sqrt(weights) if self.root else weights
        return np.where(factors < np.finfo(dtype).tiny, 0.0, factors)

    def largest(self) -> float:
        """Largest finite weight."""
        rows, largest = self.source.shape[0], 0.0
        for start in range(0, rows, BLOCK_ROWS):
            weights = self.read(start, min(start + BLOCK_ROWS, rows))
            largest = max(largest, float(weights[weights < np.inf].max(initial=0.0)))
        return largest

    def count_zeros(self, dtype: np.dtype[Any]) -> int:
        """Number of rows whose factor is 0 in ``dtype``; ``DataError`` for invalid weights, or all 0."""
        zeros, rows = 0, self.source.shape[0]
        for start in range(0, rows, BLOCK_ROWS):
            weights = self.read(start, min(start + BLOCK_ROWS, rows))
            require_weights(weights, start)
            zeros += int((self.factors(start, start + len(weights), dtype) == 0).sum())
        if zeros == rows:
            raise DataError(NO_WEIGHT)
        return zeros


@dataclass(frozen=True, slots=True, eq=False)
class ScaledRows(SamePlaces):
    """A matrix in the working type whose rows are multiplied, as they are read, by factors from weights."""

    inner: Source
    weights: RowFactors

    @property
    def dtype(self) -> np.dtype[Any]:
        """Working type: float32 if it holds the stored type, else float64."""
        return working_dtype(self.inner.dtype)

    def read_into(self, out: Array, rows: Span, columns: Span) -> None:
        """Copy ``self[rows, columns]`` into ``out``; see ``Source``."""
        self._numbers().read_into(out, rows, columns)
        factors = self.weights.factors(*rows, self.dtype).astype(self.dtype)
        out *= factors[:, None]
        out[factors == 0] = 0

    def _numbers(self) -> Source:
        return self.inner if self.inner.dtype == self.dtype else ConvertedSource(self.inner, self.dtype)

    def read_bytes(self, rows: int, columns: int) -> int:
        """Upper bound on the memory of one ``read_into``."""
        return max(self._numbers().read_bytes(rows, columns), self.weights.read_bytes(rows))

    def fingerprint(self) -> str:
        """Fingerprint of the matrix without its weights, whose fingerprint the request of a task has."""
        return self.inner.fingerprint()


@dataclass(frozen=True, slots=True, eq=False)
class ScaledSparseRows(ScaledRows):
    """A sparse matrix whose rows are multiplied, as they are read, by factors from weights."""

    inner: CompressedSource

    @property
    def by(self) -> str:
        """``rows`` or ``columns``: the lines that are stored contiguously."""
        return self.inner.by

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return self.inner.nnz

    def pointers(self, top: int, bottom: int) -> npt.NDArray[np.int64]:
        """Numbers of entries stored before each of the lines ``top:bottom`` and after the last, as in the
        matrix that is scaled; see ``CompressedSource``."""
        return self.inner.pointers(top, bottom)

    def read_sparse(self, lines: Span) -> Csr:
        """Read scaled ``lines``, the first and the end, into new arrays; see ``CompressedSource``."""
        part = require_compressed(self.inner).read_sparse(lines)
        if self.by == "rows":
            factors = np.repeat(self.weights.factors(*lines, self.dtype), np.diff(part.indptr))
        else:
            factors = self.weights.factors(0, self.shape[0], self.dtype)[part.indices]
        data = part.data * factors
        data[factors == 0] = 0
        return Csr(part.indptr, part.indices, data.astype(self.dtype))

    def sparse_bytes(self, numbers: int) -> int:
        """Upper bound on the bytes for reading ``numbers`` stored numbers, in addition to these."""
        rows = self.shape[0] if self.by == "columns" else 0
        return self.inner.sparse_bytes(numbers) + numbers * (self.inner.dtype.itemsize + 3 * 8) + 32 * rows


def scale_rows(source: Source, weights: RowFactors) -> ScaledRows:
    """Source that reads a dense or sparse matrix with its rows multiplied by factors from their weights."""
    stored = compressed(source)
    return ScaledRows(source, weights) if stored is None else ScaledSparseRows(stored, weights)


def open_row_factors(value: object, source: Source, *, root: bool) -> RowFactors:
    """Open ``value``, the weights of the rows of ``source``.

    Very large or small weights are rescaled by a power of two. ``root`` is True if rows are to be multiplied
    by the square roots of their weights.
    """
    weights = RowFactors(open_row_weights(value, source, "row_weights"), root)
    largest = weights.largest()
    if largest == 0 or 1 / USUAL <= largest <= USUAL:
        return weights
    return dataclasses.replace(weights, unit=float(np.ldexp(1.0, 1 - int(np.frexp(largest)[1]))))


# The task -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowWeightedNonnegative(Nonnegative):
    """Task of a nonnegative factorization: a matrix, weights of its rows, and parameters of the factors."""

    row_weights: RowFactors | None = None

    @property
    def scaled(self) -> Source:
        """Matrix that is factorized: with its rows multiplied by factors from weights, if they have any."""
        return self.source if self.row_weights is None else scale_rows(self.source, self.row_weights)

    def _layout(self, device: str) -> Strategy:
        return choose_strategy(compression_of(self.parameters, self.source), self.scaled, device)

    def request(self) -> dict[str, Any]:
        """Parameters, and the fingerprint of the weights of rows: they determine the result."""
        request = Nonnegative.request(self)
        if self.row_weights is not None:
            request["row_weights"] = self.row_weights.source.fingerprint()
        return request

    def _begin(self, run: Run, layout: Strategy) -> tuple[FactorStart, Model]:
        if self.row_weights is not None:
            source = self.row_weights.source
            source.check()
            require_whole_input(getattr(source, "path", None))
            zeros = self.row_weights.count_zeros(self.scaled.dtype)
            if zeros:
                run.warnings.append(
                    f"{zeros} rows are of weight zero, or of one too small beside the largest for "
                    f"{self.scaled.dtype.name}: their rows of W are 0"
                )
        return Nonnegative._begin(self, run, layout)

    def _write(
        self, run: Run, layout: Strategy, model: Model, fit: NmfFit, fingerprint: str
    ) -> dict[str, Any]:
        if self.row_weights is not None:
            fit = dataclasses.replace(fit, factors=self._divide(run, model, fit.factors))
        return Nonnegative._write(self, run, layout, model, fit, fingerprint)

    def _divide(self, run: Run, model: Model, factors: Factors) -> Factors:
        """Convert factors of the scaled matrix to those of the matrix itself: divide rows of W by the scales
        of the rows. Returns new factors."""
        assert self.row_weights is not None  # noqa: S101  asked before
        rows, dtype = self.row_weights.source.shape[0], self.scaled.dtype
        if not model.by_rows:
            inverse = _inverse(self.row_weights.factors(0, rows, dtype))
            return dataclasses.replace(factors, short=model.round_to_type(factors.short * inverse))
        before, sizes = factors.require_long()
        after = ScratchMatrix(run.scratch / "divided.bin", rows, before.columns, before.dtype)

        def divide() -> State:
            run.require(before.path)
            height = max(1, BLOCK_BYTES // before.row_bytes)
            for start in range(0, rows, height):
                stop = min(start + height, rows)
                block = np.empty((stop - start, before.columns), before.dtype)
                before.read_into(block, start)
                inverse = _inverse(self.row_weights.factors(start, stop, dtype))  # type: ignore[union-attr]
                after.write(start, (block * inverse[:, None]).astype(before.dtype))
            return {}

        run.prepare(run.part("divided.part"), divide)
        return Factors(factors.short, after, sizes)


def _inverse(factors: Float64) -> Float64:
    return np.divide(1.0, factors, out=np.zeros_like(factors), where=factors > 0)


def check_row_weights(parameters: FactorRequest) -> None:
    """Raise ``InputError`` for parameters that cannot be combined with weights of rows."""
    if parameters.alpha_w or parameters.alpha_h or parameters.has_constraints:
        raise InputError(
            "row_weights go with neither penalties nor constraints, which would be those of scaled rows of "
            "W: leave out alpha_W, alpha_H, constraint_W and constraint_H, or give weights, a matrix"
        )
    if parameters.init == "custom":
        raise InputError("row_weights begin with no factors of a caller: leave out init, or row_weights")
