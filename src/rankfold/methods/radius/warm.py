"""Compile the loops of a search within a radius, by running each once on a few numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankfold.methods.tree.warm import warm_within


def warm_radius(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Compile the loops of a search; points are float64 for any type of the matrix."""
    warm_within(periodic=request.get("box") is not None)
