"""Latitudes of the columns of a field (such as time x grid points), for weights by area: name, axes, units.

A regular grid has an axis of latitudes. A curvilinear or unstructured grid has latitudes along axes of other
names, such as ``lat(y, x)`` or ``lat(ncells)``.

The trap: the unit cannot be seen from the numbers. Some models write radians, which look like small degrees.
"""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.names import Axis
from rankfold.pipeline.data.origin import column_coordinate, column_coordinates, names_of
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats.open_files import Coordinate, coordinate_of, coordinates_of, plane_of
from rankfold.pipeline.prepare.given_weights import Coslat
from rankfold.pipeline.prepare.parse import Steps

Float64 = npt.NDArray[np.float64]

LATITUDE, LONG = "lat", "latitude"
"""Default name of latitudes, and an alternative, which is also their standard name in CF conventions."""

DEGREES = ("deg", "degree", "degrees", "degreen", "degreesn", "degreenorth", "degreesnorth", "°", "°n")
"""Spellings of degrees in CF conventions and elsewhere, in lower case, without spaces and underscores."""

RADIANS = ("rad", "rads", "radian", "radians")


def with_latitudes(x: object, source: Source, steps: Steps) -> Steps:
    """The preparation steps, where those that weight by latitude (``coslat``) get the latitudes of columns.

    ``x`` is what the caller passed as the matrix, ``source`` the matrix that was opened.
    """
    return tuple(_found(x, source, step) if isinstance(step, Coslat) else step for step in steps)


def _found(x: object, source: Source, step: Coslat) -> Coslat:
    """The step with the latitude of each column in degrees; without latitudes if none are found.

    ``x`` is what the caller passed as the matrix, ``source`` the matrix that was opened.
    """
    name = _called(x, source) if step.latitude == LATITUDE else step.latitude
    values, units = column_coordinate(source, name), _units_along(source, name)
    index = column_coordinates(source, name) if values is None else None
    if index is not None and not isinstance(x, Source):
        found = coordinate_of(x, name)
        values, units = found.values[index], found.units
    elif values is None and (plane := plane_of(x, name)) is not None:
        values, units = _of_plane(source, name, plane), plane.units
    if values is not None:
        values = to_degrees(values, units, name)
    elif near := _near(name, [*(axis.name for axis in _axes(source)), *coordinates_of(x)]):
        raise InputError(f"{step.missing()}. Did you mean coslat(latitude={near!r})?")
    return dataclasses.replace(step, latitude=name, values=values)


def _called(x: object, source: Source) -> str:
    """Name of the coordinate that holds latitudes: ``lat``, ``latitude``, or one with that standard name."""
    axes = {axis.name: axis.attributes.get("standard_name", "") for axis in _axes(source)}
    if LATITUDE in axes or column_coordinates(source, LATITUDE) is not None:
        return LATITUDE
    coordinates = coordinates_of(x)
    if LATITUDE in coordinates:
        return LATITUDE
    for known in (axes, coordinates):
        if LONG in known:
            return LONG
        standard = [name for name, said in known.items() if said == LONG]
        if len(standard) > 1:
            raise InputError(
                f"coslat: {' and '.join(standard)} are latitudes by their standard_name. Say which: "
                f"coslat(latitude={standard[0]!r})"
            )
        if standard:
            return standard[0]
    return LATITUDE


def _near(name: str, known: list[str]) -> str | None:
    """Name among ``known`` that may have been meant instead of ``name``; None if there is none."""
    others = [each for each in known if each != name]
    alike = [each for each in others if each.casefold().startswith("lat") or each == "nav_lat"]
    return next(iter(alike or difflib.get_close_matches(name, others, n=1)), None)


def _axes(source: Source) -> tuple[Axis, ...]:
    """Axes of the columns; empty if columns have no names."""
    names = names_of(source, 1)
    return () if names is None else names.axes


def _units_along(source: Source, name: str) -> str:
    return next((axis.attributes.get("units", "") for axis in _axes(source) if axis.name == name), "")


def to_degrees(values: Float64, units: str, name: str) -> Float64:
    """Latitudes converted to degrees from ``units``, which count as degrees if empty.

    ``InputError`` for other units; ``name`` is that of the coordinate in its message.

    >>> to_degrees(np.array([np.pi / 4]), "radians", "lat").tolist()
    [45.0]
    """
    spelled = units.casefold().replace("_", "").replace(" ", "")
    if spelled in RADIANS:
        return np.rad2deg(values)
    if spelled and spelled not in DEGREES:
        raise InputError(
            f"coslat: {name} is in units of {units!r}, which are neither degrees nor radians. Convert it, "
            "and say units of degrees_north, or give weights"
        )
    return values


def _of_plane(source: Source, name: str, plane: Coordinate) -> Float64:
    """Value (n,) of the coordinate ``plane`` at each column of ``source``; it may have axes as ``lat(y, x)``.

    ``name`` is that of the coordinate in the message.
    """
    places = [column_coordinates(source, axis) for axis in plane.axes]
    if any(place is None for place in places):
        raise InputError(
            f"{name} goes along {', '.join(plane.axes)}, not all of which are columns of {source.name}: give "
            "a coordinate along the columns alone, for instance with x.assign_coords, or weights"
        )
    return np.asarray(plane.values[tuple(cast(Any, places))])
