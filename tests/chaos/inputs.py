"""What the attacked commands read: matrices, workflows, and earlier results. No attack on a command touches
them, but those that are meant for inputs, which put them back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse
import zarr

ROWS, COLUMNS = 20_000, 60
STREAM_ROWS = 300_000
"""Rows of 112 columns that make two streams: eight products of 8 MiB each."""

RUN = ("--memory", "1GiB", "--threads", "2")

FLOW = """\
workflow: chaos
inputs: {x: X}
outputs: results
resources: {memory: 1GiB, threads: 2}
stages:
  components: {method: pca, input: x, rank: 6, solver: subspace, tol: 1.0e-9, passes: 3}
  near: {method: knn, input: components.scores, k: 3}
  audit: {method: check, result: components, input: x}
"""
MEASURES = """\
workflow: measures
inputs: {x: X}
outputs: results
resources: {memory: 1GiB, threads: 2}
stages:
  components: {method: pca, input: x, rank: 4}
  near: {method: knn, input: x, k: 5}
  placed: {method: knn, input: components.scores, k: 5}
  trust: {method: trustworthiness, input: x, embedding: components.scores, k: 5}
  whole: {method: continuity, input: x, embedding: components.scores, k: 5}
  both: {method: neighborhood_preservation, first: near, second: placed}
"""
FLOWS = {"flow.yaml": (FLOW, "x.zarr"), "measures.yaml": (MEASURES, "cells.zarr")}
"""Files beside the outputs of a trial: text, and the matrix that stands for X."""

EARLIER = {
    "pca.zarr": ("pca", "{input}/x.zarr", *RUN, "--rank", "6"),
    "pca-2.zarr": ("pca", "{input}/x.zarr", *RUN, "--rank", "5"),
    "lists.zarr": ("knn", "{input}/cells.zarr", *RUN, "--k", "30"),
    "lists-2.zarr": ("knn", "{input}/cells.zarr", *RUN, "--k", "31"),
    "graph.zarr": ("fuzzy-graph", "{input}/lists.zarr", *RUN, "--k", "15"),
    "graph-2.zarr": ("fuzzy-graph", "{input}/lists.zarr", *RUN, "--k", "8"),
    "near.zarr": ("knn", "{input}/new.zarr", *RUN, "--k", "5"),
    "near-graph.zarr": ("fuzzy-graph", "{input}/near.zarr", *RUN, "--k", "5"),
    "near-2.zarr": ("knn", "{input}/new.zarr", *RUN, "--k", "5", "--symmetric", "union"),
    "index.zarr": ("index", "{input}/new.zarr", *RUN, "--partition-rows", "300"),
}
"""Commands that make results which others read, in this order."""


def filled(words: list[str] | tuple[str, ...], inputs: Path, trial: Path) -> list[str]:
    """Words with the folders in their places."""
    return [word.replace("{input}", str(inputs)).replace("{trial}", str(trial)) for word in words]


def write_inputs(folder: Path) -> list[list[str]]:
    """Write the matrices that the cases read; the commands that make the earlier results they need."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, COLUMNS)) * np.linspace(3, 1, COLUMNS)
    new = x[:3000] + 0.1
    cells = rng.standard_normal((1500, 20)) + 0.7 * rng.standard_normal((8, 20))[rng.integers(0, 8, 1500)]
    points = rng.random((6000, 3))
    stores = {
        "x": (x, 1000),
        "y": (np.abs(x), 1000),
        "z": (np.abs(x) * 0.5, 1000),
        "new": (new, 500),
        "newer": (new * 1.5, 500),
        "longer": (np.concatenate([new, x[3000:4000]]), 500),
        "long-2": (np.concatenate([new, x[4000:5000]]), 500),
        "cells": (cells, 250),
        "cells-2": (cells * 0.5, 250),
        "points": (points, 500),
        "points-2": (points[::-1] + 0.01, 500),
        "masses": (rng.random((6000, 1)), 500),
    }
    for name, (values, chunk) in stores.items():
        _write(folder / f"{name}.zarr", values.astype(np.float32), chunk)
    scales = np.linspace(3, 1, 112, dtype=np.float32)
    long = np.abs(rng.standard_normal((STREAM_ROWS, 112), dtype=np.float32)) * scales
    _write(folder / "long.zarr", long, 30_000)
    for name, seed in (("sparse", 1), ("sparse-2", 2)):
        matrix = scipy.sparse.random(20_000, 300, density=0.03, random_state=seed, dtype=np.float32)
        _write_sparse(folder / f"{name}.zarr", matrix.tocsr())
    np.save(folder / "x.npy", x.astype(np.float32))
    return [[*filled(words, folder, folder), "--out", str(folder / name)] for name, words in EARLIER.items()]


def _write(path: Path, values: npt.NDArray[np.float32], chunk: int) -> None:
    array = zarr.create_array(
        path, shape=values.shape, chunks=(chunk, values.shape[1]), dtype=values.dtype, compressors=None
    )
    array[...] = values


def _write_sparse(path: Path, matrix: scipy.sparse.csr_matrix) -> None:
    """Compressed rows, as AnnData lays them out."""
    group = zarr.open_group(path, mode="w")
    group.attrs.update(
        {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": list(matrix.shape)}
    )
    for name in ("data", "indices", "indptr"):
        values = getattr(matrix, name)
        chunks = (20_000 if name != "indptr" else len(values),)
        group.create_array(name, shape=values.shape, chunks=chunks, dtype=values.dtype)[:] = values


def write_trial(inputs: Path, trial: Path) -> None:
    """Put what a case finds in its folder there."""
    trial.mkdir(parents=True, exist_ok=True)
    for name, (text, matrix) in FLOWS.items():
        (trial / name).write_text(text.replace("{x: X}", f"{{x: {inputs}/{matrix}}}"))
