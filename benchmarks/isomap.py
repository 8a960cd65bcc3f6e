"""Embeddings of a swiss roll by shortest paths: seconds, residual variance, peak memory, beside scikit-learn.

    python benchmarks/isomap.py --rows 5000 20000 --times 3 --out benchmarks/results/isomap.json

From rows in memory to coordinates, neighbors and all, each in a process of its own, in turns. Seconds are
by the wall, after compiled loops are loaded; peaks are of the process, above what it takes after imports.
scikit-learn holds all distances: of 20000 rows 3 GiB, several times. Residual variance is one less squared
correlation of paths with distances in the plane, over pairs of 500 rows with all; paths are from SciPy.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np
from scipy.sparse.csgraph import dijkstra
from scipy.spatial.distance import cdist
from sklearn.datasets import make_swiss_roll
from sklearn.manifold import Isomap
from sklearn.neighbors import kneighbors_graph

import rankfold as rf

K = 10
LANDMARKS = 500
SAMPLE_ROWS = 500

SIDES = ("rankfold, 500 landmarks", "rankfold, 500 random landmarks", "scikit-learn")


def roll(rows: int, noise: float = 0.05) -> np.ndarray[Any, Any]:
    return make_swiss_roll(rows, noise=noise, random_state=0)[0]


def embed(side: str, x: np.ndarray[Any, Any], threads: int) -> np.ndarray[Any, Any]:
    """Coordinates in a plane."""
    if side == SIDES[-1]:
        return Isomap(n_neighbors=K, n_jobs=threads).fit_transform(x)
    how = "random" if "random" in side else "farthest"
    marks = min(LANDMARKS, len(x))
    neighbors = rf.knn(x, K, threads=threads)
    result = rf.isomap(neighbors, n_landmarks=marks, landmarks=how, threads=threads)
    return np.asarray(result.embedding[...])


def memory_peak(*, anew: bool = False) -> int:
    """Most bytes that this process has held, since it was asked for anew: a child begins at its parent's."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def child(side: str, rows: int, threads: int, out: Path) -> None:
    """One embedding, its time and peak as a line of JSON."""
    warnings.simplefilter("ignore")
    embed(side, roll(300), threads)
    x = roll(rows)
    before = memory_peak(anew=True)
    began, worked = time.perf_counter(), time.process_time()
    embedding = embed(side, x, threads)
    seconds, processor = time.perf_counter() - began, time.process_time() - worked
    peak = memory_peak() - before
    np.save(out, embedding)
    print(json.dumps({"seconds": seconds, "processor seconds": processor, "peak MiB": peak / 2**20}))


def residual_variance(rows: int, embedding: np.ndarray[Any, Any]) -> float:
    """Of pairs of some rows with all."""
    x = roll(rows)
    graph = kneighbors_graph(x, K, mode="distance")
    some = np.random.default_rng(1).choice(rows, min(rows, SAMPLE_ROWS), replace=False)
    paths = dijkstra(graph, directed=False, indices=some)
    plane = cdist(embedding[some], embedding)
    return float(1 - np.corrcoef(paths.ravel(), plane.ravel())[0, 1] ** 2)


def compare(rows: int, times: int, threads: int, folder: Path, sides: tuple[str, ...]) -> dict[str, Any]:
    """Runs of all sides in turns."""
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for _ in range(times):
        for side in sides:
            out = folder / "embedding.npy"
            command = [sys.executable, __file__, "--child", side, "--rows", str(rows), "--out", str(out)]
            command += ["--threads", str(threads)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            facts = json.loads(done.stdout.splitlines()[-1])
            found[side].append({**facts, "residual variance": residual_variance(rows, np.load(out))})
            print(rows, side, json.dumps(found[side][-1]), flush=True)
    medians = {side: statistics.median(each["seconds"] for each in runs) for side, runs in found.items()}
    ours = medians[SIDES[0]]
    return {**found, "times faster, median": {side: each / ours for side, each in medians.items()}}


def main() -> None:
    """Compare, say, and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000])
    parser.add_argument("--peer-rows", type=int, default=20_000, help="most that scikit-learn is given")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--child", choices=SIDES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.rows[0], arguments.threads, arguments.out)
        return
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for rows in arguments.rows:
            sides = SIDES if rows <= arguments.peer_rows else SIDES[:-1]
            found[str(rows)] = compare(rows, arguments.times, arguments.threads, Path(folder), sides)
    versions = {
        name: importlib.metadata.version(name) for name in ("scikit-learn", "scipy", "numba", "numpy")
    }
    facts = {"machine": platform.machine(), "cores": os.cpu_count(), "threads": arguments.threads, "k": K}
    arguments.out.write_text(json.dumps({**facts, "versions": versions, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
