"""Matrices with known answers, and what is compared."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import zarr

import rankfold as rf


def decaying(
    rows: int, columns: int, dtype: Any = np.float64, *, power: float = 0.7, mean: float = 5.0
) -> np.ndarray:
    """Singular values near sqrt(max) i^-power about column means of that size."""
    rng = np.random.default_rng(rows * 100_003 + columns)
    short = min(rows, columns)
    left = np.linalg.qr(rng.standard_normal((rows, short)))[0]
    right = np.linalg.qr(rng.standard_normal((columns, short)))[0]
    values = np.sqrt(max(rows, columns)) * np.arange(1.0, short + 1) ** -power
    return ((left * values) @ right.T + mean * rng.random(columns)).astype(dtype)


def exact(x: np.ndarray, kind: str, *, scale: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Dense SVD in float64 of what the method is to see."""
    x = x.astype(np.float64)
    if kind == "pca":
        x = x - x.mean(axis=0)
    if scale:
        x = x / x.std(axis=0, ddof=1)
    return np.linalg.svd(x, full_matrices=False)


def factors(result: rf.Result) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Left vectors times values, values, right vectors in rows."""
    if result.attrs["kind"] == "svd":
        s = result.s
        return np.asarray(result.U[...], np.float64) * s, s, np.asarray(result.Vt, np.float64)
    return (
        np.asarray(result.scores[...], np.float64),
        result.singular_values,
        np.asarray(result.components, np.float64),
    )


def to_zarr(path: Path, x: np.ndarray, chunks: tuple[int, int], **options: Any) -> str:
    """Write an array as a store of its own."""
    options.setdefault("compressors", None)
    array = zarr.create_array(path, shape=x.shape, chunks=chunks, dtype=x.dtype, overwrite=True, **options)
    array[...] = x
    return str(path)


def to_group(folder: Path, x: Any, chunk: int = 997, **options: Any) -> str:
    """Write a compressed sparse matrix in AnnData's layout, as it lies."""
    group = zarr.open_group(folder, mode="w")
    group.attrs.update({"encoding-type": f"{x.format}_matrix", "encoding-version": "0.1.0"})
    group.attrs["shape"] = list(x.shape)
    for name in ("data", "indices", "indptr"):
        values = getattr(x, name)
        kept = {"chunks": (min(chunk, max(1, len(values))),), **options}
        group.create_array(name, shape=values.shape, dtype=values.dtype, **kept)[:] = values
    return str(folder)


def stored_arrays(result: rf.Result) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays of a result by name, and those of its graph."""
    arrays = {name: np.ascontiguousarray(getattr(result, name)[...]) for name in result}
    if (result.path / "graph").exists():
        graph = result.graph
        arrays |= {f"graph {name}": getattr(graph, name) for name in ("data", "indices", "indptr")}
    return arrays


def same_bytes(result: rf.Result) -> str:
    """Digest of arrays, those of a graph too, and attributes."""
    digest = hashlib.sha256(json.dumps(result.attrs, sort_keys=True).encode())
    for name, values in stored_arrays(result).items():
        digest.update(name.encode() + str(values.dtype).encode() + values.tobytes())
    return digest.hexdigest()
