"""Arrays of results, whose dimensions are named by what the array is called."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from rankfold.pipeline.storage.chunk_writer import create_array
from rankfold.pipeline.storage.result import write_small

DIMENSIONS = {
    "U": ("row", "component"),
    "s": ("component",),
    "Vt": ("component", "column"),
    "Q": ("row", "component"),
    "R": ("component", "column"),
    "W": ("row", "component"),
    "H": ("component", "column"),
    "W_gram": ("component", "other_component"),
    "W_product": ("component", "column"),
    "scores": ("row", "component"),
    "components": ("component", "column"),
    "mean": ("column",),
    "scale": ("column",),
    "explained_variance": ("component",),
    "explained_variance_ratio": ("component",),
    "singular_values": ("component",),
    "eigenvalues": ("component",),
    "residuals": ("component",),
    "left_residuals": ("component",),
    "right_residuals": ("component",),
    "error_estimates": ("component",),
    "convergence": ("pass",),
    "labels": ("row",),
    "centers": ("cluster", "column"),
    "means": ("cluster", "column"),
    "counts": ("cluster",),
    "inertia": ("pass",),
    "history": ("measure", "quantity"),
    "indices": ("row", "neighbor"),
    "distances": ("row", "neighbor"),
    "degrees": ("row",),
    "density": ("row",),
    "embedding": ("row", "component"),
    "radius_data": ("row",),
    "radius_embedding": ("row",),
    "sums": ("row",),
    "forces": ("row", "column"),
    "log_density": ("row",),
    "geodesics": ("row", "landmark"),
    "landmarks": ("landmark",),
    "landmark_eigenvalues": ("landmark",),
    "projection": ("landmark", "component"),
    "mean_squares": ("landmark",),
    "rows": ("place", "column"),
    "ids": ("place", "one"),
    "edges": ("edge",),
    "radii": ("cluster",),
    "offset": ("component",),
    "shift": ("column",),
    "features": ("row", "component"),
    "points": ("landmark", "column"),
    "normalization": ("landmark", "component"),
}


def create_output(
    group: Path, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike, chunks: tuple[int, ...]
) -> Path:
    """An array that is to be written chunk by chunk; chunks that an earlier attempt wrote are kept."""
    return create_array(group, name, shape, dtype, chunks, DIMENSIONS[name])


def write_outputs(group: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays that are in memory, each as one chunk."""
    for name, values in arrays.items():
        write_small(group, {name: values}, *DIMENSIONS[name])
