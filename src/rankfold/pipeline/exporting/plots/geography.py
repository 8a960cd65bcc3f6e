"""Maps of the earth: names of axes of latitudes and levels, text of degrees, coastlines.

Coastlines are those of cartopy, if it is installed and has its files already. Nothing is downloaded, so a
picture never needs or waits for a network.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.names import Axis

Float64 = npt.NDArray[np.float64]

LATITUDES = ("lat", "latitude", "nav_lat")

LEVELS = (
    *("lev", "level", "levels", "plev", "pressure", "pressure_level", "isobaricinhpa", "model_level"),
    *("depth", "deptht", "height", "altitude", "layer", "z"),
)
"""Names of vertical axes, in lower case."""

ROUND = (1, 1.5, 2, 3, 4.5, 6, 9, 10)
"""Round steps between ticks in degrees, for ``MaxNLocator``: 3 gives 30, 4.5 gives 45."""

WIDE, NARROW = 100.0, 20.0
"""Widths of a map in degrees: coasts are coarse from ``WIDE`` on, and fine up to ``NARROW``."""


def is_vertical(axis: Axis) -> bool:
    """True if an axis has levels, heights or depths: by its name, or by its attributes in CF conventions."""
    said = axis.attributes
    return axis.name.casefold() in LEVELS or said.get("axis") == "Z" or "positive" in said


def in_degrees(value: float, *, east: bool) -> str:
    """A latitude, or a longitude where ``east``, as maps write it.

    >>> in_degrees(-30.0, east=False), in_degrees(190.0, east=True), in_degrees(0.0, east=True)
    ('30°S', '170°W', '0°')
    """
    if east:
        value = (value + 180) % 360 - 180
    value = round(float(value), 6) + 0.0
    ends = ("E", "W") if east else ("N", "S")
    letter = "" if value == 0 or (abs(value) == 180 and east) else ends[value < 0]
    return f"{abs(value):g}°{letter}"


def coastlines(left: float, right: float) -> list[Float64]:
    """(n, 2) longitudes and latitudes along each coast; empty without cartopy or its file.

    ``left`` and ``right`` bound the longitudes of the map; coasts are repeated around the earth.
    """
    path = _coast_file(right - left)
    if path is None:
        return []
    from cartopy.io.shapereader import Reader

    lines: list[Float64] = []
    for geometry in Reader(path).geometries():
        for part in getattr(geometry, "geoms", (geometry,)):
            line: Float64 = np.asarray(part.coords, np.float64)[:, :2]
            for turn in (-360.0, 0.0, 360.0):
                moved = line + np.array([turn, 0.0])
                if moved[:, 0].max() >= left and moved[:, 0].min() <= right:
                    lines.append(moved)
    return lines


def _coast_file(degrees: float) -> Path | None:
    """Path of a shapefile of coasts that cartopy has on this machine, for a map
    ``degrees`` wide; None without.
    """
    try:
        import cartopy
        from cartopy.io import Downloader
    except ImportError:
        return None
    details = ["110m", "50m", "10m"]
    fit = 0 if degrees >= WIDE else 1 if degrees > NARROW else 2
    for detail in sorted(details, key=lambda each: abs(details.index(each) - fit)):
        facts: dict[str, Any] = {"resolution": detail, "category": "physical", "name": "coastline"}
        known = Downloader.from_config(("shapefiles", "natural_earth", *facts.values()))
        facts["config"] = cartopy.config
        for path in (known.pre_downloaded_path(facts), known.target_path(facts)):
            if path is not None and path.is_file():
                return Path(path)
    return None
