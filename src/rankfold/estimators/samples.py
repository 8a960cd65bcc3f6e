"""Samples as estimators take them."""

from __future__ import annotations

import os

TOL = 1e-8
"""What ``tol=0`` asks of singular values that passes converge to: scikit-learn means as exact as possible."""

MOST_PASSES = 20
"""Of methods that stop on a tolerance, where the caller did not say."""


def is_large(x: object) -> bool:
    """Whether this is a matrix that is read a panel at a time."""
    if isinstance(x, str | os.PathLike):
        return True
    return type(x).__module__.partition(".")[0] in ("zarr", "dask", "xarray", "rankfold")
