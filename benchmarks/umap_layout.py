"""Layouts of one graph from one start: seconds and quality, ours beside umap-learn's.

    python benchmarks/umap_layout.py --images fashion_mnist.npz --out benchmarks/results/umap_layout.json

Images of 784 float32, 15 neighbors with the image itself, a start from two principal components. Layouts
take turns, in one thread. Seconds are processor time: of umap-learn its epochs alone, of ours the whole call.
Quality is that of each seed: trustworthiness and continuity of a sample of rows, and preservation of all.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
from umap.layouts import optimize_layout_euclidean
from umap.umap_ import make_epochs_per_sample

import rankfold as rf
from rankfold.methods.umap.request import LayoutRequest
from rankfold.methods.umap.start import start_positions

SEEDS = (0, 1, 2)
K = 14
EPOCHS = 200
SAMPLE_ROWS = 5000

Array = np.ndarray[Any, Any]


def theirs(graph: Any, start: Array, seed: int, epochs: int = EPOCHS) -> Array:
    """A seeded layout of umap-learn."""
    edges, positions = graph.tocoo(), start.copy()
    keep = edges.data >= edges.data.max() / EPOCHS
    ends = edges.row[keep], edges.col[keep]
    periods = make_epochs_per_sample(edges.data[keep], EPOCHS)
    state = np.random.RandomState(seed).randint(-(2**31), 2**31 - 1, 3).astype(np.int64)
    how = (epochs, len(start), periods, *LayoutRequest().curve(), state)
    return optimize_layout_euclidean(positions, positions, *ends, *how, move_other=True)


def ours(graph: rf.Result, start: Array, seed: int, folder: Path) -> tuple[Array, float]:
    """A layout of ours, and its processor time, with all that a run does besides."""
    began = time.process_time()
    result = rf.umap(
        graph, init=start, n_epochs=EPOCHS, seed=seed, threads=1, out=folder / f"ours{seed}.zarr"
    )
    return np.asarray(result.embedding[...]), time.process_time() - began


def quality(x: Array, embedding: Array, neighbors: rf.Result) -> dict[str, float]:
    near = rf.knn(embedding.astype(np.float32), K)
    return {
        "trustworthiness": float(rf.trustworthiness(x, embedding, K + 1, sample_rows=SAMPLE_ROWS)),
        "continuity": float(rf.continuity(x, embedding, K + 1, sample_rows=SAMPLE_ROWS)),
        "preservation": float(rf.neighborhood_preservation(neighbors, near)),
    }


def compare(x: Array, folder: Path) -> dict[str, Any]:
    neighbors = rf.knn(x, K, out=folder / "neighbors.zarr")
    graph = rf.fuzzy_graph(neighbors, out=folder / "graph.zarr")
    given, weights = np.asarray(rf.pca(x, 2).scores[...]), graph.graph
    start = start_positions(given, len(x), 2, 0)
    theirs(weights, start, 0, epochs=1)  # compiles
    rf.umap(graph, init=given, n_epochs=1)
    found: dict[str, Any] = {"umap-learn": [], "rankfold": []}
    for seed in SEEDS:
        began = time.process_time()
        embedding = theirs(weights, start, seed)
        seconds = time.process_time() - began
        found["umap-learn"].append({"seconds": seconds, **quality(x, embedding, neighbors)})
        embedding, seconds = ours(graph, given, seed, folder)
        found["rankfold"].append({"seconds": seconds, **quality(x, embedding, neighbors)})
    ratios = [a["seconds"] / b["seconds"] for a, b in zip(*found.values(), strict=True)]
    return {**found, "times faster, median": statistics.median(ratios)}


def main() -> None:
    """Compare, say, and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    x = np.load(arguments.images)["X"].astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        found = compare(x, Path(folder))
    versions = {name: importlib.metadata.version(name) for name in ("umap-learn", "numba", "numpy")}
    facts = {"machine": platform.machine(), "cores": os.cpu_count(), "rows": len(x), "epochs": EPOCHS}
    arguments.out.write_text(json.dumps({**facts, "versions": versions, **found}, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
