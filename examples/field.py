"""Patterns of a field over time (EOFs), with places that were never measured.

Two waves over a map with a continent in it. `row_axes="time"` makes each point in time a row, places that
never hold a number are left out, and `coslat` lets every place count by its area. `to_xarray` gives patterns
back on the map, with its coordinates.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

import rankfold as rf


def waves(times: int = 400, rows: int = 40, columns: int = 80) -> xr.DataArray:
    """Two waves of different period and size, noise, and land."""
    rng = np.random.default_rng(0)
    t, y, x = np.arange(times)[:, None, None], np.linspace(-1, 1, rows)[:, None], np.linspace(0, 2, columns)
    first = 3 * np.sin(2 * np.pi * t / 60) * np.exp(-4 * y**2) * np.cos(np.pi * x)
    second = 1.5 * np.cos(2 * np.pi * t / 23) * y * np.sin(2 * np.pi * x)
    field = first + second + 0.5 * rng.standard_normal((times, rows, columns))
    field[:, (y + 0.1) ** 2 / 0.3 + (x - 1.2) ** 2 / 0.1 < 1] = np.nan
    coordinates = {"lat": 60 * y[:, 0], "lon": 90 * x}
    return xr.DataArray(field, coordinates, dims=("time", "lat", "lon"), name="height")


def main(picture: Path) -> None:
    """Draw the two leading patterns, and what they do over time."""
    field = waves()
    sea = rf.open(field, row_axes="time", drop_missing_columns=True, prepare="coslat")
    patterns = rf.pca(sea, rank=4).to_xarray(like=field)

    figure, axes = plt.subplots(2, 2, figsize=(9, 4), layout="constrained")
    for i in range(2):
        patterns.components[i].plot(ax=axes[i, 0], cmap="RdBu", add_colorbar=False)
        share = float(patterns.explained_variance_ratio[i])
        axes[i, 0].set_title(f"pattern {i + 1}: {share:.0%} of the variance")
        axes[i, 1].plot(patterns.scores[i], lw=1)
        axes[i, 1].set_xlabel("time")
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "field.png"))
