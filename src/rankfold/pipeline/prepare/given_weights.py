"""Weights given by a caller: of columns, directly or by their latitude, and of rows.

A result identifies arrays of weights by a digest, and keeps what new rows need: weights of columns, and the
mean of weighted rows. New rows have no weights of their own, and count once each.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.named_objects import names_of_values
from rankfold.pipeline.data.names import Names, require_order
from rankfold.pipeline.data.origin import kept_columns, kept_rows, names_of
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError, UnfitFileError
from rankfold.pipeline.prepare.measured_columns import Fitted
from rankfold.pipeline.prepare.moments import weighted_means
from rankfold.pipeline.prepare.steps import Measured, Numbers, Shifted, Step, require_flags
from rankfold.pipeline.regular import require_regular

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


def _take_numbers(step: Any) -> None:
    """Convert the weights ``step.values`` to a float64 vector, in place, and set their digest and names.

    They are an array, or the path of a ``.npy`` file.
    """
    if step.values is None:
        return
    object.__setattr__(step, "names", names_of_values(step.values))
    values = _read(step) if isinstance(step.values, str | os.PathLike) else np.asarray(step.values)
    if values.dtype.kind not in "iufb":
        raise InputError(f"{step.name}: {values.dtype} are no real numbers")
    values = values.ravel().astype(np.float64)
    object.__setattr__(step, "values", values)
    mark = hashlib.blake2b(values.tobytes(), digest_size=8)
    if step.names is not None:
        mark.update(repr([axis.mark for axis in step.names.axes]).encode())
    object.__setattr__(step, "digest", mark.hexdigest())


def _read(step: Any) -> Array:
    try:
        require_regular(step.values)
        values = np.load(step.values)
    except UnfitFileError:
        raise
    except OSError as error:
        raise InputError(f"{step.name}: {step.values} cannot be read as a .npy file: {error}") from error
    except (ValueError, EOFError) as error:  # NumPy takes any other file for pickled objects
        raise InputError(
            f"{step.name}: {step.values} is no .npy file of numbers; numpy.save writes one, or pass an array"
        ) from error
    if not isinstance(values, np.ndarray):
        raise InputError(f"{step.name}: {step.values} holds several arrays: give a .npy file of one")
    return values


def _of_kept(step: Any, source: Source, axis: int) -> Float64:
    """Values (rows,) or (columns,), by ``axis`` 0 or 1, that a caller gave to a step for a matrix.

    ``InputError`` if one is not finite.

    They may be given for these alone, or for the whole array that the matrix was selected from: values of
    rows or columns that were left out may be NaN.
    """
    values, what = _picked(step, source, axis), ("rows", "columns")[axis]
    if wrong := int((~np.isfinite(values)).sum()):
        raise InputError(
            f"{step.name}: {wrong} of {len(values)} numbers for the {what} of {source.name} are not finite"
        )
    return values


def _picked(step: Any, source: Source, axis: int) -> Float64:
    count, what = source.shape[axis], ("rows", "columns")[axis]
    if step.values is None:
        raise InputError(f"{step.name} takes an array of {count} numbers, or a .npy file of one")
    values: Float64 = step.values
    wanted = None if step.names is None else names_of(source, axis)
    if step.names is not None and axis == 1:
        require_order(step.names, wanted, step.name, source.name)
    if step.names is not None and wanted is not None:
        return values[_by_name(step, wanted, source.name, what)]
    whole, places = (kept_rows, kept_columns)[axis](source)
    if places is not None and len(values) == whole != count:
        return values[places]
    if len(values) != count:
        raise InputError(f"{step.name}: {len(values)} numbers for the {count} {what} of {source.name}")
    return values


def _by_name(step: Any, wanted: Names, name: str, what: str) -> npt.NDArray[np.int64]:
    """Index, among the values given to a step, of that for each wanted row or column, by name.

    ``name`` is that of the matrix and ``what`` is "rows" or "columns", for messages.
    """
    try:
        places = step.names.find_on_some_axes(wanted)
    except ValueError as error:
        raise InputError(f"{step.name}: the {what} of {name} have other names: {error}") from None
    if (places < 0).any():
        first = int(np.argmax(places < 0))
        found = "two numbers" if places[first] == -2 else "no number"
        raise InputError(f"{step.name}: there is {found} for {wanted.word(first)} of {name}")
    return np.asarray(places)


POLE = 1e-12
"""Cosine of a latitude below which it is a pole."""


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Multiply columns by given weights, for all columns or for the selected ones.

    ``values`` is an array, or the path of a ``.npy`` file.
    """

    values: Any = None
    digest: str | None = None
    """Digest of the weights, by which a result identifies them."""

    names: Names | None = field(default=None, init=False)
    name: ClassVar[str] = "weights"

    def __post_init__(self) -> None:
        _take_numbers(self)

    def measure(self, source: Source) -> dict[str, Array]:
        """The weights (n,) of the columns that the matrix has, as ``"values"``."""
        return {"values": _of_kept(self, source, 1)}

    def fitted(self, found: Fitted) -> Step:
        """Make the step that multiplies columns by the weights ``found`` by ``measure``."""
        return WeighColumns(np.asarray(found["values"]))

    def affine(self, measured: Measured) -> Shifted:
        """Shift 0, and the weights as factors."""
        return 0.0, measured("values")


@dataclass(frozen=True, slots=True, eq=False)
class WeighColumns:
    """Multiply columns by weights."""

    values: Float64

    name: ClassVar[str] = "weights"
    by_row: ClassVar[bool] = False
    takes_complex: ClassVar[bool] = True

    def apply(self, numbers: Numbers) -> None:
        """Multiply columns by their weights, in place."""
        numbers.values[...] *= numbers.along_columns(self.values).astype(numbers.values.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class SampleWeight:
    """Subtract the weighted mean from each row, and multiply it by the square root of its weight.

    Products of columns of ``sqrt(r_i) (x_ij - mean_j)``, with the weight ``r_i`` of row i, are those of the
    weighted covariance, so that ``svd``, or ``pca`` with ``center=False``, finds its components. Without
    ``center`` no mean is subtracted, and zeros stay.
    """

    values: Any = None
    center: bool = True
    digest: str | None = None
    """Digest of the weights, by which a result identifies them."""

    names: Names | None = field(default=None, init=False)
    name: ClassVar[str] = "sample_weight"

    def __post_init__(self) -> None:
        require_flags(self, "center")
        _take_numbers(self)
        if self.values is not None and ((self.values < 0).any() or not self.values.any()):
            raise InputError(f"{self.name}: weights must be at least 0, and not all of them 0")

    def measure(self, source: Source) -> dict[str, Array]:
        """The weighted mean (n,) of the columns, as ``"mean"``; empty without ``center``."""
        weights = _of_kept(self, source, 0)
        return {"mean": weighted_means(source, weights)} if self.center else {}

    def fitted(self, found: Fitted) -> Step:
        """Raise ``TypeError``: weights of rows need the matrix, so ``of_source`` is called instead."""
        raise TypeError("weights of rows are those of a matrix: see `of_source`")

    def of_source(self, found: Fitted, source: Source) -> Step:
        """Make the step for the rows of ``source``, from the mean ``found`` by ``measure``.

        It centers and weights rows of a fit; new rows without weights are only centered.
        """
        mean = np.asarray(found["mean"]) if self.center else None
        return WeighRows(mean, None if self.values is None else np.sqrt(_of_kept(self, source, 0)))

    def affine(self, measured: Measured) -> Shifted:
        """Weighted mean as shift if ``center``, else 0; factor 1, since weights multiply rows."""
        return measured("mean") if self.center else 0.0, 1.0


@dataclass(frozen=True, slots=True, eq=False)
class WeighRows:
    """Replace each row by ``(x - mean) * root``, where ``root`` is the square root of its weight."""

    mean: Float64 | None
    """Mean (n,) of the columns; None to subtract nothing."""

    roots: Float64 | None
    """Root of the weight of each row of the whole matrix, (m,); None if rows have no weights."""

    name: ClassVar[str] = "sample_weight"
    by_row: ClassVar[bool] = False

    @property
    def fills_zeros(self) -> bool:
        """True if zeros become other values, which differ from row to row."""
        return self.mean is not None

    def apply(self, numbers: Numbers) -> None:
        """Subtract the mean and multiply rows by the square roots of their weights, in place."""
        wide = numbers.values.astype(np.float64)
        if self.mean is not None:
            wide -= numbers.along_columns(self.mean)
        if self.roots is not None:
            wide *= numbers.along_all_rows(self.roots)
        numbers.values[...] = wide


@dataclass(frozen=True, slots=True, eq=False)
class Coslat:
    """Columns times the root of the cosine of their latitude, so that squares count by area."""

    latitude: str = "lat"
    """Name of the axis of latitudes, or of a coordinate along other axes.

    In degrees, or in radians if its units say so.
    """

    values: Any = None
    """Latitude of each column in degrees, found when the data are opened."""

    name: ClassVar[str] = "coslat"

    def missing(self) -> str:
        """Message for data without latitudes."""
        return (
            f"{self.name} takes data with an axis {self.latitude!r} among the columns and a coordinate "
            "of that name, or a coordinate along others of them: a DataArray, or a file that xarray "
            "opens, as FILE.nc::variable. Say coslat(latitude='...'), or give weights"
        )

    def measure(self, source: Source) -> dict[str, Array]:
        """Weights (n,) of the columns, the root of the cosine, as ``"values"``; 0 at the poles and beyond."""
        if self.values is None:
            raise InputError(self.missing())
        latitudes = np.asarray(self.values)
        if unknown := int((~np.isfinite(latitudes)).sum()):
            raise InputError(
                f"{self.name}: {self.latitude} is not known of {unknown} of {len(latitudes)} columns of "
                f"{source.name}: fill it in, or leave these columns out"
            )
        if np.abs(latitudes).max() > 90.001:
            raise InputError(
                f"{self.name}: {self.latitude} goes from {latitudes.min():g} to {latitudes.max():g}, which "
                "are no degrees of latitude"
            )
        cosines = np.cos(np.deg2rad(latitudes))
        # The cosine of 90 degrees is a rounding error, not 0.
        return {"values": np.sqrt(np.where(cosines > POLE, np.minimum(cosines, 1.0), 0.0))}

    def fitted(self, found: Fitted) -> Step:
        """Make the step that multiplies columns by the weights ``found`` by ``measure``."""
        return WeighColumns(np.asarray(found["values"]))

    def affine(self, measured: Measured) -> Shifted:
        """Shift 0, and the weights as factors."""
        return 0.0, measured("values")
