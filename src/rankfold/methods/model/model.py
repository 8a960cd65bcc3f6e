"""A stored result with two factors as a model: it maps new rows to components, and components back to rows.

Right vectors are read in blocks of columns, since for a wide matrix they may exceed memory as well.
The trap: a result fitted without ``scale`` stores none, and an ``svd`` has neither mean nor scale.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.model.arguments import ORDERED
from rankfold.methods.registry import METHODS, Factors
from rankfold.pipeline.data.dtypes import ConvertedSource
from rankfold.pipeline.data.real_parts import Expanded, RealParts, numbers_dtype, parts_of, twice
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation, working_dtype
from rankfold.pipeline.errors import DataError, InputError, OutputError
from rankfold.pipeline.formats.open_like import open_like
from rankfold.pipeline.formats.zarr.layout import source_at
from rankfold.pipeline.prepare.affine import Affine, affine_of
from rankfold.pipeline.prepare.parse import parse_steps
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.storage.run_directory import lies_in

Float64 = npt.NDArray[np.float64]

BLOCK_BYTES = 4 * 2**20
"""Bytes, about, of the right vectors that are read at a time. The digest depends on it, so it never
changes."""

LARGEST_EXPONENT = {4: 100, 8: 900}
"""Largest absolute exponent of scales that are powers of two, by item size: products stay well in range."""


@dataclass(frozen=True, slots=True)
class FactorModel:
    """A stored result, its factors, and numbers derived from its facts."""

    result: Result
    """The result, referenced because a temporary store exists only as long as its result."""

    kind: str
    """Name of the method that made the result."""

    shape: tuple[int, int]
    """Shape of the matrix that the model was made from."""

    s: Float64
    """(k,) singular values; ones for components without order. For a complex matrix (2 k,): each appears
    twice, once per real part."""

    size: float
    """Spectral norm of the matrix; for components without order, Frobenius norm of the product of the
    factors."""

    whiten: bool
    """True if the left factor was scaled to unit variance in each column."""

    right: Source
    """(k, n) right singular vectors, or H; complex ones as real (2 k, 2 n), see ``Expanded``."""

    @property
    def paired(self) -> bool:
        """True if the matrix was complex: columns and components then count twice, once per real part."""
        return isinstance(self.right, Expanded)

    @property
    def rank(self) -> int:
        """Number of components, twice that if the matrix was complex: a row of ``right`` for each."""
        return self.right.shape[0]

    @property
    def components(self) -> int:
        """Number of components, complex ones counted once."""
        return self.rank // (1 + self.paired)

    @property
    def factor_dtype(self) -> np.dtype[Any]:
        """Type of the factors as stored, complex if the matrix was complex."""
        return numbers_dtype(self.dtype, paired=self.paired)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of both factors, or of their real parts if they are complex."""
        return self.right.dtype

    @property
    def left_name(self) -> str:
        """Name of the left factor: ``"U"``, ``"scores"`` or ``"W"``."""
        return METHODS[self.kind].matrices[0]

    @property
    def right_name(self) -> str:
        """Name of the right factor: ``"Vt"``, ``"components"`` or ``"H"``."""
        return METHODS[self.kind].matrices[1]

    @property
    def is_centered(self) -> bool:
        """True if the result has column means, which were subtracted from rows before the fit."""
        return "mean" in METHODS[self.kind].arrays

    @property
    def factors(self) -> Factors:
        """Description of the two factors: name of their singular values, and which of them is scaled."""
        factors = factors_of(self.kind)
        assert factors is not None  # noqa: S101  without any it is no model
        return factors

    @property
    def name(self) -> str:
        """Text that names the model in messages: path, kind and shape."""
        rows, columns = self.shape
        return f"{self.result.path} ({self.kind} of {rows} x {columns})"

    def left(self) -> Source:
        """The left factor (m, k), in real parts if complex; ``InputError`` for a result without it."""
        if self.left_name not in set(self.result):
            raise InputError(
                f"{self.name} has no {self.left_name}: it was fitted without rows, with_rows=False "
                "(--no-rows), "
                "or updated, so no row can be rebuilt from it. Fit again with rows, to all samples"
            )
        left = source_at(str(self.result.path), self.left_name, missing="error")
        return RealParts(left, Orientation.ROWS) if self.paired else left

    def vectors(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Right vectors of columns ``start:stop`` of the matrix, (stop - start, rank) in C order."""
        block = np.empty((self.rank, stop - start), self.dtype)
        self.right.read_into(block, (0, self.rank), (start, stop))
        return np.ascontiguousarray(block.T)

    def columns(self, start: int, stop: int) -> tuple[Float64, Float64]:
        """Vectors of the mean and divisor of columns ``start:stop``; 0 and 1 if not centered or scaled."""
        mean, scale, first = np.zeros(stop - start), np.ones(stop - start), start
        if self.paired:
            first, start, stop = start % 2, start // 2, -(-stop // 2)
        here = slice(first, first + len(mean)) if self.paired else slice(None)
        if self.is_centered:
            numbers = np.asarray(self.result.mean[start:stop])
            mean = np.asarray(parts_of(numbers) if self.paired else numbers, np.float64)[here]
        if "scale" in set(self.result):
            numbers = np.asarray(self.result.scale[start:stop], np.float64)
            scale = twice(numbers, paired=self.paired)[here]
        return mean, scale

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield (start, stop) of the blocks of columns in which right vectors are read."""
        columns = self.right.shape[1]
        step = max(1, BLOCK_BYTES // (self.rank * self.dtype.itemsize))
        for start in range(0, columns, step):
            yield start, min(start + step, columns)

    @property
    def block_columns(self) -> int:
        """Number of columns of the longest of ``blocks``."""
        return next(iter(self.blocks()))[1]

    def pow2_scale(self, dtype: np.dtype[Any]) -> float:
        """Power of two that brings a typical element of the matrix, centered and scaled, near 1 in ``dtype``.

        1 for factors without singular values.
        """
        return 1.0 if not self.factors.spectrum else _reciprocal(self._typical, dtype)

    def square_scale(self) -> float:
        """Power of two that scales raw numbers of the matrix before their squares are summed in float64."""
        blocks = (self.columns(start, stop)[1] for start, stop in self.blocks())
        # Constant columns have a divisor of 1, whatever the unit of the others is.
        scale = max(float(scales.max(initial=0.0, where=scales != 1)) for scales in blocks) or 1.0
        return _reciprocal(self._typical * scale, np.dtype(np.float64))

    def source(self, x: object) -> Source:
        """Open rows ``x`` as a matrix; raw rows get the preparation steps of the matrix of the model."""
        return self._in_parts(open_like(x, self.result, self.name))

    def _in_parts(self, source: Source) -> Source:
        """Convert rows to real parts if the model is complex; ``InputError`` if only the rows are."""
        if source.dtype.kind == "c" and not self.paired:
            raise InputError(
                f"{self.name} was fitted to real numbers, but {source.name} holds {source.dtype}: give the "
                "real part, or fit complex rows"
            )
        if not self.paired:
            return source
        if source.dtype.kind != "c":
            source = ConvertedSource(source, numbers_dtype(working_dtype(source.dtype), paired=True))
        return RealParts(source, Orientation.ROWS)

    @property
    def _typical(self) -> float:
        return self.size / float(np.sqrt(self.shape[0]))

    def significant(self) -> npt.NDArray[np.bool_]:
        """(k,) True for components whose singular value exceeds rounding, by the same rule as whitening."""
        noise = float(np.finfo(self.dtype).eps) * np.sqrt(max(self.shape)) * self.s[0]
        return np.asarray(self.s > noise)

    def score_weights(self) -> Float64:
        """(k,) factors that turn products of rows with the right vectors into rows of the left factor.

        They are 1, 1 / s, or sqrt(m - 1) / s to whiten; 0 where s does not exceed rounding.

        Raises
        ------
        InputError
            Singular values are so small that the factors overflow.
        """
        if not self.factors.left_is_unit and not self.whiten:
            return np.ones(self.rank)
        top = 1.0 if self.factors.left_is_unit else np.sqrt(max(self.shape[0] - 1, 1))
        with np.errstate(over="ignore"):
            weights = np.divide(top, self.s, out=np.zeros(self.rank), where=self.significant())
        if not np.isfinite(weights).all():
            raise InputError(
                f"singular values of {self.name} down to {self.s[np.isinf(weights)].min():.1e} are too small "
                "to divide by: fit the matrix in other units"
            )
        return weights

    def row_weights(self) -> Float64:
        """(k,) factors of the left factor's columns, so that its product with the right one is the matrix."""
        if self.factors.left_is_unit:
            return self.s
        return self.s / np.sqrt(max(self.shape[0] - 1, 1)) if self.whiten else np.ones(self.rank)

    def before_steps(self) -> Affine:
        """Shift and factor of columns by ``prepare=`` steps; ``InputError`` if these cannot be undone."""
        facts = self.result.attrs["input"]
        if any(step.name == "sample_weight" for step in parse_steps(facts.get("prepare"))):
            raise InputError(
                f"rows of {self.name} were weighed by sample_weight, and a result keeps no weights of rows: "
                "leave out physical"
            )
        return affine_of(facts, lambda name: np.asarray(self.result[name][...]))

    def digest(self) -> str:
        """Hash, in hexadecimal, of all that ``transform`` reads from the result, except its name and path."""
        fields = [self.kind, self.whiten, *self.shape, self.rank, self.dtype.name]
        mark = hashlib.blake2b(json.dumps(fields).encode(), digest_size=16)
        mark.update(np.ascontiguousarray(self.s).data)
        for start, stop in self.blocks():
            mark.update(self.vectors(start, stop).data)
            for numbers in self.columns(start, stop):
                mark.update(np.ascontiguousarray(numbers).data)
        return mark.hexdigest()


def _reciprocal(size: float, dtype: np.dtype[Any]) -> float:
    """Power of two near ``1 / size``, limited so that products in ``dtype`` stay in range; 1 for size 0."""
    most = LARGEST_EXPONENT[dtype.itemsize]
    return float(np.ldexp(1.0, int(np.clip(-np.frexp(size)[1], -most, most)))) if size > 0 else 1.0


def open_model(result: FactorModel | Result | str | Path, *, among: tuple[str, ...] = ORDERED) -> FactorModel:
    """Open a result, given itself or its path, as a model; a model is returned as it is.

    ``InputError`` if the method that made it is not in ``among``, ``DataError`` if it is damaged.
    """
    model = result if isinstance(result, FactorModel) else None
    if isinstance(result, FactorModel):
        result = result.result
    elif not isinstance(result, Result):
        result = Result(result)
    if model is None:
        result.require_whole()
    kind = str(result.attrs.get("kind"))
    if kind not in among:
        kinds = " and ".join([", ".join(among[:-1]), among[-1]])
        raise InputError(
            f"{result.path} is the result of {kind}; only results of {kinds} have components to "
            "transform by, to reconstruct from or to check"
        )
    if model is not None:
        return model
    rows, columns = result.attrs["input"]["shape"]
    factor, spectrum = METHODS[kind].matrices[1], _spectrum_of(kind)
    if lost := {spectrum or factor, factor}.difference(result):
        raise DataError(f"{result.path} is damaged: it has no {' and no '.join(sorted(lost))}. Restore it")
    right: Source = source_at(str(result.path), factor, missing="error")
    _require_sizes(result, kind, right.shape, int(columns))
    if not spectrum:
        values, size = np.ones(right.shape[0]), float(result.attrs["product_norm"])
    else:
        values = np.asarray(result[spectrum][...], np.float64)
        size = float(values[0])
    right = Expanded(right) if right.dtype.kind == "c" else right
    return FactorModel(
        result=result,
        kind=kind,
        shape=(int(rows), int(columns)),
        s=twice(values, paired=isinstance(right, Expanded)),
        size=size,
        whiten=bool(result.attrs["request"].get("whiten", False)),
        right=right,
    )


def factors_of(kind: str) -> Factors | None:
    """Description of the factors in results of the method named ``kind``; None if it makes none."""
    return METHODS[kind].factors if kind in METHODS else None


def _spectrum_of(kind: str) -> str:
    factors = factors_of(kind)
    return "" if factors is None else factors.spectrum


def _require_sizes(result: Result, kind: str, factor: tuple[int, ...], columns: int) -> None:
    """Raise ``DataError`` if shapes of arrays contradict the number of ``columns`` or components.

    ``factor`` is the shape of the right factor.
    """
    spectrum = _spectrum_of(kind)
    components = int(result[spectrum].size if spectrum else result.attrs["request"]["rank"])
    sizes: list[tuple[str, tuple[int, ...], tuple[int, ...]]]
    sizes = [(METHODS[kind].matrices[1], factor, (max(components, 1), columns))]
    sizes += [(spectrum, result[spectrum].shape, (components,))] if spectrum else []
    sizes += [(name, result[name].shape, (columns,)) for name in ("mean", "scale") if name in set(result)]
    for name, shape, size in sizes:
        if shape != size:
            raise DataError(
                f"{result.path} is damaged: {name} is of shape {shape}, not {size}, with {components} "
                f"components of {columns} columns. Restore it"
            )


def require_apart(out: str | Path | None, result: Result | str | Path) -> None:
    """Raise ``OutputError`` if path ``out`` equals, contains, or is inside the result it is made from."""
    if out is None:
        return
    path = result.path if isinstance(result, Result) else Path(result)
    if lies_in(out, path) or lies_in(path, out):
        raise OutputError(f"{out} would lie in, on or around the result {path}. Choose another out= (--out).")
