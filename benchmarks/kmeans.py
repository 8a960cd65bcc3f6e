"""Clusters: inertia and seconds of a step, ours beside scikit-learn's, and FAISS's where it is installed.

    python benchmarks/kmeans.py --data FOLDER --out benchmarks/results/kmeans.json

Steps: images of 784 float32 in 100 clusters, from the same first centers, 10 steps and to rest, whatever the
movement; one thread, runs take turns and medians count, also those of ratios within a turn. Seconds are
processor time of a whole call over its steps: what each spends besides is in them. "product" is that of all
images and all centers by BLAS alone, in tiles: no step that looks at all pairs takes less.

Inertia: real sets in FOLDER, each of some seeds against the best of ten runs of scikit-learn with its
defaults. A set that is not there is left out, and said to be.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
import scipy.sparse
import sklearn
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

import rankfold as rf
from rankfold.methods.warm import MethodWarmup

IMAGE_CLUSTERS = 100
SEEDS = 5
THEIR_SEEDS = 10
STEPS = (10, 300)
"""Most of a run: first ones alone, and more than it takes to rest."""

TILE = 256

warnings.simplefilter("ignore", rf.RankfoldWarning)
warnings.simplefilter("ignore", ConvergenceWarning)


def images(folder: Path) -> np.ndarray:
    return np.load(folder / "fashion_mnist.npz")["X"].astype(np.float32) / 255


def cells(folder: Path) -> np.ndarray:
    """The 1000 columns of most variance, as cells are prepared."""
    counts = scipy.sparse.load_npz(folder / "pbmc3k_counts.npz").toarray()
    x = np.log1p(counts / counts.sum(axis=1, keepdims=True) * 1e4).astype(np.float32)
    return np.ascontiguousarray(x[:, np.argsort(-x.var(axis=0))[:1000]])


def sea(folder: Path) -> np.ndarray:
    """Places by months."""
    file = np.load(folder / "sst_ersst.npz")
    x = next(file[name] for name in file.files if file[name].ndim > 1)
    return np.ascontiguousarray(x.reshape(len(x), -1).T.astype(np.float32))


SETS: dict[str, tuple[Callable[[Path], np.ndarray], int]] = {
    "images": (lambda folder: images(folder)[::7].copy(), 20),
    "descriptors": (lambda folder: np.load(folder / "sift5k.npz")["X"].astype(np.float32), 50),
    "cells": (cells, 10),
    "sea": (sea, 12),
    "cities": (lambda folder: np.load(folder / "geo_points.npz")["cities_xyz"], 50),
}


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time of a run by one thread, which others on the machine change less than the wall's."""
    began = time.process_time()
    made = run()
    return time.process_time() - began, made


def ours(x: np.ndarray, first: np.ndarray, most: int) -> dict[str, Any]:
    taken, made = seconds(lambda: rf.kmeans(x, init=first, passes=most, tol=0, threads=1))
    steps = made.attrs["steps"]
    return {"who": "rankfold", "seconds": taken, "steps": steps, "inertia": made.attrs["final_inertia"]}


def theirs(x: np.ndarray, first: np.ndarray, algorithm: str, most: int) -> dict[str, Any]:
    model = KMeans(len(first), init=first, n_init=1, max_iter=most, tol=0, algorithm=algorithm)
    taken, _ = seconds(lambda: model.fit(x))
    who = f"scikit-learn {algorithm}"
    return {"who": who, "seconds": taken, "steps": model.n_iter_, "inertia": float(model.inertia_)}


def product(x: np.ndarray, first: np.ndarray) -> dict[str, Any]:
    """What BLAS takes for all pairs."""
    centers, out = np.ascontiguousarray(first.T), np.empty((TILE, len(first)), x.dtype)

    def multiply() -> None:
        for start in range(0, len(x) - TILE, TILE):
            np.matmul(x[start : start + TILE], centers, out=out)

    taken, _ = seconds(multiply)
    return {"who": "product", "seconds": taken, "steps": 1, "inertia": None}


def faiss_runs(x: np.ndarray, first: np.ndarray, steps: int) -> list[dict[str, Any]]:
    """One run of as many steps, if it is installed."""
    if importlib.util.find_spec("faiss") is None:
        return []
    import faiss

    faiss.omp_set_num_threads(1)
    most = len(x)
    model = faiss.Kmeans(x.shape[1], len(first), niter=steps, max_points_per_centroid=most)
    taken, _ = seconds(lambda: model.train(x, init_centroids=first))
    return [{"who": "FAISS", "seconds": taken, "steps": steps, "inertia": float(model.obj[-1])}]


def compare_steps(x: np.ndarray, most: int, repeats: int) -> list[dict[str, Any]]:
    """Seconds of a step by each, runs by turns."""
    first = x[np.random.default_rng(0).choice(len(x), IMAGE_CLUSTERS, replace=False)]
    MethodWarmup(x.dtype, {"kind": "kmeans", "init": "custom"}, x.shape).warm()
    turns: list[dict[str, dict[str, Any]]] = []
    for _ in range(repeats):
        runs = [product(x, first), ours(x, first, most)]
        runs.extend(theirs(x, first, algorithm, most) for algorithm in ("lloyd", "elkan"))
        runs.extend(faiss_runs(x, first, runs[-1]["steps"]))
        turns.append({run["who"]: {**run, "step_seconds": run["seconds"] / run["steps"]} for run in runs})
    rows = []
    for who, run in turns[0].items():
        own = [turn[who]["step_seconds"] for turn in turns]
        ratio = statistics.median(
            turn[who]["step_seconds"] / turn["rankfold"]["step_seconds"] for turn in turns
        )
        row = {**run, "most_steps": most, "step_seconds": statistics.median(own), "over_ours": ratio}
        rows.append({**row, "seconds": statistics.median(turn[who]["seconds"] for turn in turns)})
        print(
            f"{who:20} {row['step_seconds']:8.4f} s a step, {ratio:5.2f} of ours, {run['steps']:4} steps, "
            f"inertia {run['inertia'] or float('nan'):.7g}",
            flush=True,
        )
    return rows


def compare_inertia(name: str, folder: Path) -> dict[str, Any]:
    """Inertia of ours over the best of theirs."""
    load, k = SETS[name]
    try:
        x = load(folder)
    except FileNotFoundError as error:
        print(f"{name:12} left out: {error}")
        return {"set": name, "left_out": str(error)}
    runs = [seconds(lambda s=s: KMeans(k, random_state=s).fit(x).inertia_) for s in range(THEIR_SEEDS)]
    best = min(inertia for _, inertia in runs)
    rf.kmeans(x[:2000], k, threads=1)
    own = [seconds(lambda s=s: rf.kmeans(x, k, seed=s, threads=1)) for s in range(SEEDS)]
    ratios = [made.attrs["final_inertia"] / best for _, made in own]
    row = {
        "set": name,
        "shape": list(x.shape),
        "k": k,
        "best_of_theirs": float(best),
        "their_ratios": [float(inertia / best) for _, inertia in runs],
        "our_ratios": ratios,
        "start_ratios": [float(made.inertia[0]) / best for _, made in own],
        "our_passes": [made.attrs["passes"] for _, made in own],
        "our_seconds": statistics.median(taken for taken, _ in own),
        "their_seconds_of_one": statistics.median(taken for taken, _ in runs),
    }
    told = f"ours {min(ratios):.4f} .. {max(ratios):.4f} of their best of ten"
    theirs_told = f"their worst {max(row['their_ratios']):.4f}"
    print(f"{name:12} {x.shape[0]:6} x {x.shape[1]:5}, k {k:4}: {told}, {theirs_told}", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real sets")
    parser.add_argument("--out", type=Path, help="where raw numbers go, as JSON")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with threadpool_limits(1):
        steps = []
        if (arguments.data / "fashion_mnist.npz").exists():
            x = images(arguments.data)
            steps = [row for most in STEPS for row in compare_steps(x, most, arguments.repeats)]
        inertia = [compare_inertia(name, arguments.data) for name in SETS]
    if arguments.out:
        machine = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count()}
        versions = {"numpy": np.__version__, "sklearn": sklearn.__version__, "rankfold": rf.__version__}
        told = {"machine": machine, "versions": versions, "steps": steps, "inertia": inertia}
        arguments.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
