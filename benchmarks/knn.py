"""Nearest neighbors of every row: seconds and recall, ours beside peers and bare products.

    pip install '.[bench]'
    python benchmarks/knn.py --data fashion_mnist.npz --out benchmarks/results/knn.json
    python benchmarks/knn.py --page docs/neighbors-benchmark.md

The file has an array ``X`` of 70 000 x 784 bytes (Fashion-MNIST); 15 neighbors, two threads. Each
contender has a process of its own, with threads as it wants them; they take turns, and medians count. The
limit is the products of every pair of rows, once (half the matrix of products) or twice, as peers make
them, in float32 by the same BLAS. Recall is the share of neighbors that are as near as the exact ones.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

K, THREADS, BLOCK = 15, 2, 4096
EXACT = ("rankfold", "faiss flat", "scikit-learn brute")
LIMITS = ("half the products", "all products")
APPROXIMATE = ("pynndescent", "hnswlib")

BLAS_THREADS = {"faiss flat": THREADS}
"""Of contenders that make no threads around BLAS; one for the others."""

Search = Callable[[np.ndarray], Any]


def rankfold(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    import rankfold as rf

    found = rf.knn(x, K, threads=THREADS, memory="2GiB")
    last = found.run["attempts"][-1]
    names = ("planned_bytes", "measured_bytes", "certain", "sweep_seconds")
    return found.indices, found.distances, {name: last[name] for name in names}


def faiss_flat(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    import faiss

    faiss.omp_set_num_threads(THREADS)
    index = faiss.IndexFlatL2(x.shape[1])
    index.add(x)
    squares, names = index.search(x, K + 1)
    return without_self(names, np.sqrt(np.maximum(squares, 0)))


def scikit_brute(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    from sklearn.neighbors import NearestNeighbors
    from threadpoolctl import threadpool_limits

    with threadpool_limits(THREADS, user_api="openmp"):
        distances, names = NearestNeighbors(n_neighbors=K, algorithm="brute").fit(x).kneighbors()
    return names, distances, {}


def pynndescent(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    import pynndescent

    search = pynndescent.NNDescent(x, n_neighbors=K + 1, n_jobs=THREADS, random_state=0)
    names, distances = search.neighbor_graph
    return without_self(names, distances)


def hnswlib(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    import hnswlib

    index = hnswlib.Index("l2", x.shape[1])
    index.init_index(len(x), M=16, ef_construction=200, random_seed=0)
    index.add_items(x, num_threads=THREADS)
    index.set_ef(64)
    names, squares = index.knn_query(x, K + 1, num_threads=THREADS)
    return without_self(names.astype(np.int64), np.sqrt(squares))


def without_self(names: np.ndarray, distances: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Leave out the row itself, or the farthest where it is not there."""
    own = names == np.arange(len(names))[:, None]
    own[~own.any(axis=1), -1] = True
    return names[~own].reshape(-1, K), distances[~own].reshape(-1, K), {}


def half_the_products(x: np.ndarray) -> None:
    multiply(x, half=True)


def all_products(x: np.ndarray) -> None:
    multiply(x, half=False)


def multiply(x: np.ndarray, *, half: bool) -> None:
    """Products of blocks with blocks, thrown away."""

    def row(i: int) -> None:
        out = np.empty((BLOCK, BLOCK), np.float32)
        for j in range(i if half else 0, len(x), BLOCK):
            a, b = x[i : i + BLOCK], x[j : j + BLOCK]
            if i == j and half:  # a block with itself has half of its pairs
                b = b[: len(b) // 2]
            np.matmul(a, b.T, out=out[: len(a), : len(b)])

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(row, range(0, len(x), BLOCK)))


CONTENDERS: dict[str, Search] = {
    "rankfold": rankfold,
    "faiss flat": faiss_flat,
    "scikit-learn brute": scikit_brute,
    "half the products": half_the_products,
    "all products": all_products,
    "pynndescent": pynndescent,
    "hnswlib": hnswlib,
}


def serve(name: str, data: Path) -> None:
    """Be a contender: warm up, then one search for every line on stdin; distances go to a file."""
    x = read(data)
    search = CONTENDERS[name]
    search(x[:2000])
    print("ready", flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        found = search(x)
        told = {"seconds": time.perf_counter() - began}
        if found is not None:
            np.savez(line.strip(), names=found[0], distances=found[1])
            told |= found[2]
        print(json.dumps(told), flush=True)


def read(data: Path) -> np.ndarray:
    return np.ascontiguousarray(np.load(data)["X"], np.float32)


def run(data: Path, rounds: int) -> dict[str, Any]:
    """All contenders, in turns."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTENDERS}
    folder = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    children = {}
    for name in CONTENDERS:
        threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(BLAS_THREADS.get(name, 1)))
        command = [sys.executable, "-W", "ignore", __file__, "--serve", name, "--data", str(data)]
        children[name] = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **threads, "OMP_NUM_THREADS": str(THREADS), "NUMBA_NUM_THREADS": str(THREADS)},
        )
        while children[name].stdout.readline() != "ready\n":
            pass
    for turn in range(rounds):
        for name, child in children.items():
            if turn and name in APPROXIMATE:
                continue
            child.stdin.write(f"{folder / name.replace(' ', '-')}.npz\n")
            child.stdin.flush()
            found[name].append(json.loads(child.stdout.readline()))
            print(name, round(found[name][-1]["seconds"], 2), flush=True)
    for child in children.values():
        child.stdin.close()
        child.wait()
    return {"runs": found, "recall": recalls(read(data), folder)}


def recalls(x: np.ndarray, folder: Path) -> dict[str, float]:
    """Share of what each found that is as near as the exact neighbors, measured in float64 on 2000 rows."""
    rows = np.linspace(0, len(x) - 1, 2000).astype(int)
    wide = x.astype(np.float64)
    squares = (wide**2).sum(axis=1)
    apart = squares[rows][:, None] + squares - 2 * wide[rows] @ wide.T  # integers: exact
    apart[np.arange(len(rows)), rows] = np.inf
    farthest = np.partition(apart, K - 1, axis=1)[:, K - 1]
    found = {}
    for name in (*EXACT, *APPROXIMATE):
        names = np.load(folder / f"{name.replace(' ', '-')}.npz")["names"][rows]
        near = np.take_along_axis(apart, np.maximum(names, 0), axis=1) <= farthest[:, None]
        found[name] = float((near & (names >= 0)).mean())
    return found


def machine() -> dict[str, Any]:
    from importlib.metadata import version

    packages = ("numpy", "scikit-learn", "faiss-cpu", "pynndescent", "hnswlib")
    return {
        "processor": next(
            (line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
            platform.processor(),
        ),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
    }


def page(results: Path) -> str:
    """The table of the documentation."""
    told = json.loads(results.read_text())
    runs, recall = told["runs"], told["recall"]
    median = {name: statistics.median(run["seconds"] for run in each) for name, each in runs.items()}
    ours = median["rankfold"]
    lines = [
        "# Neighbors beside their peers",
        "",
        "Made by `benchmarks/knn.py` from `benchmarks/results/knn.json`.",
        "",
        f"70 000 x 784 bytes as float32, {K} neighbors, {THREADS} threads; {told['machine']['processor']}.",
        "",
        "| | seconds | times ours | recall |",
        "|---|---|---|---|",
    ]
    for name in (*EXACT, *LIMITS, *APPROXIMATE):
        share = f"{recall[name]:.4f}" if name in recall else ""
        lines.append(f"| {name} | {median[name]:.1f} | {median[name] / ours:.2f} | {share} |")
    last = runs["rankfold"][-1]
    lines += [
        "",
        f"Ours takes {ours / median['half the products']:.2f} times the bare products of half the pairs. "
        f"Memory: {last['measured_bytes'] / 2**20:.0f} of {last['planned_bytes'] / 2**20:.0f} MiB planned, "
        f"beside the matrix; {100 * last['certain']:.4g} % of shortlists were certain at once.",
        "",
        "Recall is the share of neighbors that are as near as the exact ones, over 2000 rows. The products "
        "are those of every pair of rows, once or twice, in float32, and nothing else.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/knn.json"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.data)
    elif options.page:
        options.page.write_text(page(options.out))
    else:
        told = {"machine": machine(), **run(options.data, options.rounds)}
        options.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
