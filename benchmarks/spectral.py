"""Eigenvectors of one graph: seconds, memory and what is missing, ours beside scikit-learn's solvers.

    python benchmarks/spectral.py --images fashion_mnist.npz --out benchmarks/results/spectral.json
    python benchmarks/spectral.py --images fashion_mnist.npz --rows 10000 --out small.json

scikit-learn's lobpcg stops after 20 steps, whatever is missing, and says so: what it leaves is no eigenvector
of a graph of neighbors. So SciPy's lobpcg is also run until residuals are as short as ours, and ARPACK as
umap-learn calls it.

Images of 784 float32, the graph of 15 neighbors with the image itself; two and ten components. Each call is a
process of its own, which loads the graph, calls once on a small graph, and is then measured: seconds by the
wall, the memory that it takes beyond, eigenvalues, and how long ``N u - lambda u`` is. Solvers take turns;
amg is left out where pyamg is not installed. ARPACK factorizes the graph: above 20 000 rows that takes hours,
and it is left out.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import rankfold as rf

K = 14
ROUNDS = 3
COMPONENTS = (2, 10)
SOLVERS = (
    "rankfold",
    "rankfold, one thread",
    "lobpcg",
    "lobpcg until it is as good",
    "umap-learn",
    "amg",
    "arpack",
)
ARPACK_ROWS = 20_000
SECONDS = 3600
TOL, MOST_STEPS = 3e-6, 2000
"""Length of residuals, as ours are, and steps of SciPy's lobpcg."""

Array = np.ndarray[Any, Any]


def embed(solver: str, graph: Path, count: int, out: Path | None) -> Array:
    """(m, count) by one of the solvers."""
    if solver.startswith("rankfold"):
        threads = 1 if "one" in solver else None
        return np.asarray(rf.spectral(graph, count, threads=threads, out=out).embedding[...])
    from sklearn.manifold import spectral_embedding

    weights = sp.csr_matrix(rf.open_result(graph).graph)
    if solver in ("lobpcg until it is as good", "umap-learn"):
        return of_scipy(solver, weights.astype(float), count)
    return np.asarray(
        spectral_embedding(weights, n_components=count, eigen_solver=solver, random_state=0)  # norm_laplacian
    )


def of_scipy(solver: str, weights: Any, count: int) -> Array:
    """By SciPy's solvers of the Laplacian."""
    from scipy.sparse.linalg import eigsh, lobpcg

    rows, roots = weights.shape[0], np.sqrt(np.asarray(weights.sum(axis=1)).ravel())
    scale = sp.diags(1 / roots)
    laplacian = sp.identity(rows, format="csr") - scale @ weights @ scale
    if solver == "umap-learn":
        most = max(2 * (count + 1) + 1, int(np.sqrt(rows)))
        how: dict[str, Any] = {
            "which": "SM",
            "ncv": most,
            "tol": 1e-4,
            "v0": np.ones(rows),
            "maxiter": 5 * rows,
        }
        vectors = eigsh(laplacian, count + 1, **how)[1][:, 1:]
    else:
        start = np.random.default_rng(0).standard_normal((rows, count))
        how = {"Y": roots[:, None], "tol": TOL, "maxiter": MOST_STEPS, "largest": False}
        vectors = lobpcg(laplacian.tocsr(), start, **how)[1]
    return np.asarray(vectors) / roots[:, None]


def resident() -> int:
    """Bytes of this process that are backed by no file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("RssAnon")))


def measure(solver: str, graph: Path, small: Path, count: int) -> dict[str, Any]:
    """One call in this process."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        embed(solver, small, count, Path(folder) / "small.zarr")
        base, peak, over = resident(), [0], threading.Event()

        def watch() -> None:
            while not over.wait(0.01):
                peak[0] = max(peak[0], resident())

        watcher = threading.Thread(target=watch)
        watcher.start()
        began = time.perf_counter()
        embedding = embed(solver, graph, count, Path(folder) / "r.zarr")
        seconds = time.perf_counter() - began
        over.set()
        watcher.join()
    return {"seconds": seconds, "bytes": max(0, peak[0] - base), **quality(graph, embedding)}


def quality(graph: Path, embedding: Array) -> dict[str, Any]:
    """Eigenvalues of the Laplacian as Rayleigh quotients, and residuals."""
    weights = rf.open_result(graph).graph.astype(float)
    roots = np.sqrt(np.asarray(weights.sum(axis=1)).ravel())
    vectors = embedding * roots[:, None]
    vectors /= np.linalg.norm(vectors, axis=0)
    images = (weights @ (vectors / roots[:, None])) / roots[:, None]
    values = (vectors * images).sum(axis=0)
    residuals = np.linalg.norm(images - vectors * values, axis=0)
    return {"eigenvalues": (1 - values).tolist(), "largest_residual": float(residuals.max())}


def compare(graph: Path, small: Path, solvers: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for count in COMPONENTS:
        each: dict[str, list[Any]] = {solver: [] for solver in solvers}
        for _ in range(ROUNDS):
            for solver, runs in each.items():
                command = [sys.executable, __file__, "--measure", solver, str(graph), str(small), str(count)]
                try:
                    done = subprocess.run(
                        command, capture_output=True, text=True, timeout=SECONDS, check=True
                    )
                    runs.append(json.loads(done.stdout))
                except subprocess.SubprocessError as error:
                    runs.append({"error": f"{error}\n{getattr(error, 'stderr', '')}"[-2000:]})
                print(count, solver, json.dumps(runs[-1]), file=sys.stderr, flush=True)
        found[str(count)] = each
    return found


def main() -> None:
    """Compare, say, and keep; or measure one call."""
    if sys.argv[1:2] == ["--measure"]:
        solver, graph, small, count = sys.argv[2:]
        print(json.dumps(measure(solver, Path(graph), Path(small), int(count))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--solvers", nargs="+", choices=SOLVERS)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    x = np.load(arguments.images)["X"][: arguments.rows].astype(np.float32)
    solvers = list(arguments.solvers or SOLVERS)
    if importlib.util.find_spec("pyamg") is None and "amg" in solvers:
        solvers.remove("amg")
    if len(x) > ARPACK_ROWS and "arpack" in solvers:
        solvers.remove("arpack")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rows, graph in ((len(x), "graph.zarr"), (2000, "small.zarr")):
            near = rf.knn(x[:rows], K, out=folder / f"near-{graph}")
            rf.fuzzy_graph(near, out=folder / graph)
        found = compare(folder / "graph.zarr", folder / "small.zarr", solvers)
    versions = {
        name: importlib.metadata.version(name) for name in ("scikit-learn", "scipy", "numba", "numpy")
    }
    facts = {"machine": platform.machine(), "cores": os.cpu_count(), "rows": len(x), "neighbors": K + 1}
    arguments.out.write_text(json.dumps({**facts, "versions": versions, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
