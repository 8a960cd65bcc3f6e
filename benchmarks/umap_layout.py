"""Layouts of one graph from one start: seconds and quality, ours beside umap-learn's.

    python benchmarks/umap_layout.py --images fashion_mnist.npz --out benchmarks/results/umap_layout.json

Images of 784 float32, 15 neighbors with the image itself, a start from two principal components. Layouts
take turns, in one thread, where umap-learn keeps to its seed, and in two, where it does not. Seconds are of
umap-learn's epochs alone, and of the whole call of ours: of the processor in one thread, by the wall in two.
Quality is that of each seed: trustworthiness and continuity of a sample of rows, and preservation of all.
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import itertools
import json
import os
import platform
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["NUMBA_NUM_THREADS"] = "2"

import numba
import numpy as np
from umap.layouts import optimize_layout_euclidean
from umap.umap_ import make_epochs_per_sample

import rankfold as rf
from rankfold.methods.umap.request import LayoutRequest
from rankfold.methods.umap.start import start_positions

SEEDS = (0, 1, 2)
THREADS = (1, 2)
K = 14
EPOCHS = 200
SAMPLE_ROWS = 5000

Array = np.ndarray[Any, Any]


def theirs(graph: Any, start: Array, seed: int, threads: int, epochs: int = EPOCHS) -> Array:
    """A layout of umap-learn: by its seed in one thread."""
    edges, positions = graph.tocoo(), start.copy()
    keep = edges.data >= edges.data.max() / EPOCHS
    ends = edges.row[keep], edges.col[keep]
    periods = make_epochs_per_sample(edges.data[keep], EPOCHS)
    state = np.random.RandomState(seed).randint(-(2**31), 2**31 - 1, 3).astype(np.int64)
    how = (epochs, len(start), periods, *LayoutRequest().curve(), state)
    numba.set_num_threads(threads)
    return optimize_layout_euclidean(positions, positions, *ends, *how, parallel=threads > 1, move_other=True)


def ours(graph: rf.Result, start: Array, seed: int, threads: int, folder: Path) -> Array:
    """A layout of ours, with all that a run does besides."""
    out = folder / f"ours-{seed}-{threads}.zarr"
    result = rf.umap(graph, init=start, n_epochs=EPOCHS, seed=seed, threads=threads, out=out)
    return np.asarray(result.embedding[...])


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
    sides = {
        "umap-learn": functools.partial(theirs, weights, start),
        "rankfold": functools.partial(ours, graph, given, folder=folder),
    }
    for threads in THREADS:
        theirs(weights, start, 0, threads, epochs=1)  # compiles
    rf.umap(graph, init=given, n_epochs=1)
    found: dict[str, Any] = {}
    for seed, threads, (name, layout) in itertools.product(SEEDS, THREADS, sides.items()):
        clock = time.process_time if threads == 1 else time.perf_counter
        began = clock()
        embedding = layout(seed=seed, threads=threads)
        run = {"seconds": clock() - began, **quality(x, embedding, neighbors)}
        found.setdefault(_title(name, threads), []).append(run)
    ratios = {threads: _times_faster(found, threads) for threads in THREADS}
    return {**found, "times faster, median": ratios}


def _title(name: str, threads: int) -> str:
    return name if threads == 1 else f"{name}, {threads} threads"


def _times_faster(found: dict[str, Any], threads: int) -> float:
    peer, own = (found[_title(name, threads)] for name in ("umap-learn", "rankfold"))
    return statistics.median(a["seconds"] / b["seconds"] for a, b in zip(peer, own, strict=True))


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
