"""A result as an xarray dataset, with the axes and coordinates of its data.

Rows and columns become axes again: stacked axes are unstacked, and positions left out are NaN. Where
a single axis was cut, its coordinates are cut too. Components are counted by ``mode`` from 1, as in xeofs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.cf_attributes import DESCRIBING, VARIABLE, Attributes, attributes_in
from rankfold.pipeline.data.named_objects import dates_among, times_of_calendar
from rankfold.pipeline.data.names import (
    Axis,
    attributes_of_result,
    find_along,
    names_of_result,
)
from rankfold.pipeline.errors import InputError, OutputError
from rankfold.pipeline.exporting.outcome import (
    SIDES,
    Outcome,
    exported_facts,
    kept_places,
    layout,
    names_in,
    whole_length,
)
from rankfold.pipeline.formats.open_files import library, opened
from rankfold.pipeline.outputs import file_output
from rankfold.pipeline.prepare.affine import affine_of, keeps_numbers
from rankfold.pipeline.regular import is_regular

Array = npt.NDArray[Any]

WHOLE_BYTES = 64 * 2**20
"""Largest size in bytes of an array that is in memory as a whole while it is written to a file."""

BLOCK_BYTES = 16 * 2**20
"""Bytes of a block of rows of a larger array; blocks are read and written one after the other."""

FACTORS_WITH_UNITS = ("scores", "singular_values", "s")
"""Arrays in units of the data, unless preparation steps (``prepare=``) changed these units."""


@dataclass(frozen=True, slots=True)
class Side:
    """Axes of the data, such as latitude and longitude, that were stacked to rows or columns of a matrix."""

    axes: tuple[str, ...]
    lengths: tuple[int, ...]
    places: Array | None
    """Flat index over the stacked axes, in C order, of each row (or column), (n,); None if all were kept."""

    @property
    def cuts(self) -> bool:
        """True if only a part of a single axis was kept: in a dataset, the axis is as long as that part."""
        return self.places is not None and len(self.axes) == 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes in a dataset."""
        return (len(self.places),) if self.cuts and self.places is not None else self.lengths

    def unstack(self, values: Array) -> Array:
        """Reshape (n, ...), where n is the number of rows (or columns) of the matrix, to (*axes, ...).

        Positions that were left out are NaN.
        """
        if self.places is not None and not self.cuts:
            kind = values.dtype if values.dtype.kind in "fc" else np.dtype(np.float64)
            whole = np.full((math.prod(self.lengths), *values.shape[1:]), np.nan, kind)
            whole[self.places] = values
            values = whole
        return values.reshape(*self.shape, *values.shape[1:])


Variable = tuple[tuple[str, ...], Any]
"""Names of the dimensions of an array of a dataset, and its values, an array of NumPy or Dask."""

Variables = Callable[["Outcome", str, dict[str, Side]], Variable]
"""Function that makes an array of a dataset from a result, the name of an array in it, and its sides.

The sides are the axes of rows and columns, by ``row`` and ``column``.
"""


def whole_variable(result: Outcome, name: str, sides: dict[str, Side]) -> Variable:
    """Names of the dimensions, and values, of the array ``name`` of a result for a dataset.

    The axis of components comes first, as ``mode``; rows and columns become axes of the data, by ``sides``.
    """
    return _arranged(np.asarray(result[name][...]), result.dimensions(name), sides)


def variable_in_blocks(result: Outcome, name: str, sides: dict[str, Side]) -> Variable:
    """Dimensions and values of an array, as of ``whole_variable``; a large one is an array of Dask.

    Its blocks of rows are read when they are computed. Rows along several axes are read at once.
    """
    array, kinds, rows = result[name], result.dimensions(name), sides["row"]
    row_bytes = array.dtype.itemsize * math.prod(array.shape[1:])
    is_along_rows = kinds[0] == "row" and len(rows.axes) == 1 and (rows.places is None or rows.cuts)
    if array.shape[0] * row_bytes <= WHOLE_BYTES or not is_along_rows:
        return whole_variable(result, name, sides)
    import dask.array
    from dask.delayed import delayed

    columns = {"column": sides["column"]}

    def read(start: int, stop: int) -> Array:
        return _arranged(np.asarray(array[start:stop]), kinds, columns)[1]

    dims, one = _arranged(np.asarray(array[:1]), kinds, columns)
    along, height = dims.index("row"), max(1, BLOCK_BYTES // row_bytes)
    ends = [(start, min(start + height, array.shape[0])) for start in range(0, array.shape[0], height)]
    shapes = [(*one.shape[:along], stop - start, *one.shape[along + 1 :]) for start, stop in ends]
    blocks = [
        dask.array.from_delayed(delayed(read, pure=False)(*block), shape, one.dtype)  # type: ignore[no-untyped-call]
        for block, shape in zip(ends, shapes, strict=True)
    ]
    values = dask.array.concatenate(blocks, along)  # type: ignore[no-untyped-call]
    return tuple(rows.axes[0] if dim == "row" else dim for dim in dims), values


def _arranged(
    values: Array, dimensions: Sequence[str], sides: Mapping[str, Side]
) -> tuple[tuple[str, ...], Array]:
    """Names of the dimensions, and values, of an array in a dataset: ``mode``, for components, comes first.

    ``dimensions`` are the kinds of the axes of ``values``; one that is in ``sides``, such as ``row``, is
    unstacked to the axes of that side.
    """
    kinds = list(dimensions)
    if "component" in kinds:
        place = kinds.index("component")
        values, kinds = np.moveaxis(values, place, 0), ["mode", *kinds[:place], *kinds[place + 1 :]]
    for place in reversed(range(len(kinds))):
        side = sides.get(kinds[place])
        if side is None:
            continue
        count = len(side.axes)
        values = side.unstack(np.moveaxis(values, place, 0))
        values = np.moveaxis(values, range(count), range(place, place + count))
        kinds[place : place + 1] = side.axes
    return tuple(kinds), values


def opened_like(result: Outcome, like: Any) -> AbstractContextManager[Any]:
    """Context that yields the data of a result: ``like``, opened if it is a path.

    Several files are joined along the first axis of rows.
    """
    return opened(like, next(iter(layout(result).get("row_axes", ())), None))


def dataset_of(
    result: Outcome, like: Any = None, *, physical: bool = False, variable: Variables = whole_variable
) -> Any:
    """An ``xarray.Dataset`` of all arrays of a result.

    Parameters
    ----------
    result : Result
    like : DataArray, optional
        The data, for its coordinates, attributes and names of axes. Only its metadata are read.
    physical : bool
        True to undo in mean and components what was done to columns, so that mean + scores times
        components (mean + ``U s Vt``) are the data in their units; NaN where a weight is 0.
    variable : function, optional
        Makes dimensions and values of an array: ``whole_variable``, or ``variable_in_blocks``.

    Raises
    ------
    InputError
        ``like`` has other axes, or lengths, than the data of the result; ``physical`` is asked for, and
        ``in_units`` fails.
    """
    xarray = library("xarray", extra="xarray", what="a dataset")
    if like is not None and not (hasattr(like, "dims") and hasattr(like, "variable")):
        raise InputError(
            f"like is a {type(like).__name__}: give a DataArray, such as dataset['name'], or where it lies, "
            "such as 'sst.nc::sst'"
        )
    rows, columns = sides_of(result, like)
    like = None if like is None else _in_order(result, like)
    sizes = {"row": rows, "column": columns}
    if like is None:
        said = attributes_of_result("the result", result.attrs)
        coordinates = _own_coordinates(result, rows, columns)
    else:
        said, coordinates = attributes_in(like.attrs, of=like.name), _coordinates(like, rows, columns)
    variables = {"X": _name_of_matrix(said, {*rows.axes, *columns.axes, *coordinates})}
    arrays = {variables.get(name, name): variable(result, name, sizes) for name in result}
    if physical:
        found = in_units(result)
        arrays[found.name] = arrays[found.name][0], np.moveaxis(columns.unstack(found.components.T), -1, 0)
        if "mean" in arrays or np.nan_to_num(found.mean).any():
            arrays["mean"] = columns.axes, columns.unstack(found.mean)
    dataset = xarray.Dataset(
        arrays, attrs={"rankfold": json.dumps(exported_facts(result, physical=physical), sort_keys=True)}
    )
    if "mode" in dataset.dims:
        dataset = dataset.assign_coords(mode=np.arange(1, dataset.sizes["mode"] + 1))
    for name, kept in _described(result, physical=physical).items():
        if (name := variables.get(name, name)) in dataset:
            dataset[name].attrs.update({each: said[each] for each in kept if each in said})
    return dataset.assign_coords(coordinates)


def _name_of_matrix(said: Attributes, others: Container[str]) -> str:
    """Name of a reconstructed matrix in a dataset: that of its variable, or ``X``, if not among ``others``.

    ``said`` are attributes of the data, ``others`` names of axes and coordinates of the dataset.
    """
    return next(name for name in (said.get(VARIABLE, "X"), "X", "reconstruction") if name not in others)


@dataclass(frozen=True, slots=True)
class InUnits:
    """Mean and components in units of the data: mean + scores (or ``U s``) times components is the data."""

    name: str
    """Name of the array of components."""

    components: Array
    """Components (k, n) in units of the data; NaN where a weight is 0."""

    mean: Array
    """Mean (n,) in units of the data; NaN where a weight is 0."""


def in_units(result: Outcome) -> InUnits:
    """Mean and components of a result of svd or pca, with all changes of columns undone.

    Raises
    ------
    InputError
        The result has no components, or a step changed the matrix other than by a shift and a factor.
    """
    name = next((each for each in ("components", "Vt") if each in set(result)), "")
    if not name:
        raise InputError("physical=True is for components, and this result has none: take pca or svd")
    before = affine_of(result.attrs["input"], lambda array: np.asarray(result[array][...]))
    asked = result.attrs["request"]
    components = np.asarray(result[name][...], np.result_type(result[name].dtype, np.float64))
    mean = np.asarray(result["mean"][...]) if "mean" in set(result) else np.zeros(components.shape[1])
    if asked.get("scale"):
        components *= np.asarray(result["scale"][...])
    if asked.get("whiten"):  # scores were divided by it
        components *= np.sqrt(np.asarray(result["explained_variance"][...]))[:, None]
    return InUnits(name, components / before.divisor, before.data(mean))


def write_netcdf(dataset: Any, path: Path, *, overwrite: bool) -> Path:
    """Write a dataset to a netCDF file, which appears under its name once complete; returns its path.

    With ``overwrite``, a file that rankfold wrote of a result is replaced.
    """
    output = file_output(path, _foreign_dataset, replaces=overwrite)
    library("netCDF4", extra="xarray", what=f"writing {path}")
    if any(array.dtype.kind == "c" for array in dataset.variables.values()):
        raise OutputError(
            f"{path}: netCDF holds no complex numbers. Take to_xarray(), and write real and imaginary parts, "
            "or a Zarr store"
        )
    import dask

    with output.draft() as begun:
        try:
            with dask.config.set(scheduler="synchronous"):  # one block after the other
                dataset.to_netcdf(begun, engine="netcdf4")
        except (NotImplementedError, ValueError, TypeError) as error:
            raise OutputError(f"{path} cannot be written: {error}") from error
    return output.path


def _foreign_dataset(path: Path) -> str | None:
    return None if facts_in_dataset(path) is not None else "is no file of a result of rankfold"


def _described(result: Outcome, *, physical: bool) -> dict[str, tuple[str, ...]]:
    """Names of the attributes of the data, such as units, that hold for arrays of a result, by array.

    If preparation steps changed values, they hold at most for the mean, where ``physical`` put it back into
    units of the data.
    """
    request, units = result.attrs["request"], ("units",)
    if "X" in set(result):  # a matrix has them where its numbers are those of the data
        return {"X": DESCRIBING}
    if not keeps_numbers(result.attrs["input"]):
        return {"mean": DESCRIBING} if physical else {}
    columns = {"mean": DESCRIBING, "scale": units}
    if request.get("scale") or request.get("whiten"):
        return columns
    return columns | dict.fromkeys(FACTORS_WITH_UNITS, units)


def facts_in_dataset(path: Path) -> dict[str, Any] | None:
    """Attributes of the result that rankfold wrote to a netCDF file; None for other files."""
    if not is_regular(path):
        return None
    xarray = library("xarray", extra="xarray", what=f"reading {path}")
    try:
        with xarray.open_dataset(path, engine="netcdf4") as dataset:
            text = dataset.attrs.get("rankfold")
    except (OSError, ValueError):
        return None
    return None if text is None else dict(json.loads(text))


def sides_of(result: Outcome, like: Any) -> tuple[Side, Side]:
    """Axes of the data that rows, and columns, of the matrix of a result are made of.

    They follow from what the result stores, and from the dimensions of the DataArray ``like``, if any. An
    axis that has the name of an axis of the result itself, such as ``mode``, is called ``data_mode``.

    Raises
    ------
    InputError
        ``like`` has other axes or lengths.
    """
    sides = _sides_by_layout(result) if "axes" in layout(result) else _sides_by_name(result, like)
    asked = result.attrs["request"]
    if asked.get("targets") is not None or asked.get("queries") not in (None, "input"):
        count = next((result[name].shape[0] for name in result if result.dimensions(name)[0] == "row"), 0)
        sides = Side(("row",), (count,), None), sides[1]  # the data have other rows
    axes = {name: length for side in sides for name, length in zip(side.axes, side.lengths, strict=True)}
    if like is not None:
        theirs = {str(name): int(length) for name, length in zip(like.dims, like.shape, strict=True)}
        if theirs != axes:
            order = layout(result).get("axes", axes)
            raise InputError(
                f"the result is of data with axes {', '.join(f'{name} {axes[name]}' for name in order)}, but "
                f"like has {', '.join(f'{name} {length}' for name, length in theirs.items())}. Give the data "
                "that it was made of"
            )
    kinds = {kind for name in result for kind in result.dimensions(name)} - {"row", "column"}
    own = {"mode" if kind == "component" else kind for kind in kinds}
    rows, columns = (
        replace(side, axes=tuple(f"data_{name}" if name in own else name for name in side.axes))
        for side in sides
    )
    return rows, columns


def _sides_by_layout(result: Outcome) -> tuple[Side, Side]:
    """Axes of rows, and of columns, of a matrix that was read directly from an array with names of axes."""
    found = layout(result)
    sizes = dict(zip(found["axes"], found["lengths"], strict=True))
    column_axes = [name for name in found["axes"] if name not in found["row_axes"]]
    rows, columns = (
        Side(tuple(names), tuple(int(sizes[name]) for name in names), kept_places(result, which))
        for names, which in ((found["row_axes"], "rows"), (column_axes, "columns"))
    )
    return rows, columns


def _sides_by_name(result: Outcome, like: Any) -> tuple[Side, Side]:
    """Axes of rows, and of columns, of other matrices, by names in the result, as of an imported field.

    An axis without a name is called ``row`` or ``column``. If rows and columns are one axis each, both are
    called as those of ``like``, if given.
    """
    both = [names_in(result, side) for side in SIDES]
    single = [names is None or len(names.axes) == 1 for names in both]
    called = [
        fallback if names is None else names.axes[0].name
        for names, fallback in zip(both, ("row", "column"), strict=True)
    ]
    if all(single) and like is not None and len(like.dims) == 2:
        called = [str(name) for name in like.dims]
    elif all(single) and called[0] == called[1]:
        called = ["row", "column"]
    rows, columns = (
        Side((name,), (whole_length(result, side),), kept_places(result, side))
        if names is None or len(names.axes) == 1
        else Side(
            tuple(axis.name for axis in names.axes), tuple(axis.length for axis in names.axes), names.places
        )
        for names, name, side in zip(both, called, SIDES, strict=True)
    )
    return rows, columns


def _in_order(result: Outcome, like: Any) -> Any:
    """``like`` with indices along its axes in the order of the result; ``InputError`` if one is lacking."""
    for number, side in enumerate(SIDES):
        names = names_of_result("the result", result.attrs, number)
        axes = () if names is None else names.axes
        for axis in axes:
            if axis.labels is None or axis.name not in like.dims or axis.name not in like.coords:
                continue
            place = like.dims.index(axis.name)
            own = Axis.of(
                axis.name, like.shape[place], like.coords[axis.name].values, like.coords[axis.name].attrs
            )
            if own.labels is None or own.is_like(axis):
                continue
            found = find_along(own, axis)
            if (found < 0).any():
                first = int(np.argmax(found < 0))
                raise InputError(
                    f"like has no {axis.name} {axis.labels[first]}, which is number {first} (from 0) along "
                    f"{axis.name} of the data of the result. Give the data that it was made of"
                )
            kept = kept_places(result, side) if len(axes) == 1 else None
            if kept is None:
                like = like.isel({axis.name: found})
            elif not np.array_equal(found, kept):
                raise InputError(
                    f"{axis.name} of like is in another order than in the data of the result, of which some "
                    "were left out. Give the data that it was made of"
                )
    return like


def _own_coordinates(result: Outcome, rows: Side, columns: Side) -> dict[str, Any]:
    """Coordinates that the result itself has kept, along axes that the dataset has.

    Each is (axis, values, attributes), by its name.
    """
    found = {}
    for number, side in enumerate((rows, columns)):
        names = names_of_result("the result", result.attrs, number)
        for axis, name, length in zip(
            () if names is None else names.axes, side.axes, side.shape, strict=False
        ):
            if axis.labels is not None and axis.length == length:
                said, values = dict(axis.attributes), dates_among(axis.labels)
                if "calendar" in said and axis.labels.dtype.kind == "U":
                    values = times_of_calendar(axis.labels, said.pop("calendar"))
                found[name] = (name, values, said)
    return found


def _coordinates(like: Any, rows: Side, columns: Side) -> dict[str, Any]:
    """Coordinates of ``like`` along axes that the dataset has, by name, cut where an axis was cut."""
    coordinates = {}
    for name, coordinate in like.coords.items():
        for side in (rows, columns):
            if coordinate.dims and set(coordinate.dims) <= set(side.axes):
                cut = {side.axes[0]: side.places} if side.cuts else {}
                coordinates[name] = coordinate.isel(cut).variable
        if not coordinate.dims:
            coordinates[name] = coordinate.variable
    return coordinates
