"""Kernel PCA and Nystroem features of clusters: seconds, errors, peak memory, beside scikit-learn.

    python benchmarks/kernels.py --rows 5000 --times 3 --large 100000 --out benchmarks/results/kernels.json

Each fit in a process of its own, in turns, from rows in memory; 30 columns in 12 clusters, ten components
of the rbf kernel. Seconds are by the wall and of the processor, after compiled loops are loaded; peaks are of
the process, above what it takes after imports. Eigenvalues are compared with those that LAPACK finds of the
dense matrix, relative to the largest. scikit-learn holds all pairs, of 100000 rows 80 GB: so many rows are
ours alone, from a store within 512 MiB. Nystroem: share of the trace that 100 landmarks leave, of 20000 rows
in six clusters of very different sizes, and what the result says of it.
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
    os.environ.setdefault(_name, "2")

import numpy as np
import scipy.linalg
import zarr
from sklearn.decomposition import KernelPCA
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import rbf_kernel

import rankfold as rf

COLUMNS, CLUSTERS, RANK, GAMMA = 30, 12, 10, 0.01
LANDMARKS, NYSTROEM_ROWS, NYSTROEM_GAMMA, SEEDS = 100, 20_000, 0.1, 3

COMPONENTS = ("rankfold", "scikit-learn, arpack", "scikit-learn, randomized")
FEATURES = ("rankfold, kmeans", "rankfold, rpcholesky", "rankfold, uniform", "scikit-learn")

Array = np.ndarray[Any, Any]


def clusters(rows: int) -> Array:
    rng = np.random.default_rng(0)
    centers = 2 * rng.standard_normal((CLUSTERS, COLUMNS))
    return (centers[rng.integers(0, CLUSTERS, rows)] + rng.standard_normal((rows, COLUMNS))).astype(
        np.float32
    )


def uneven(rows: int) -> Array:
    """Six clusters, each of a fifth of the rows of the one before."""
    rng = np.random.default_rng(0)
    sizes = [max(5, 4 * rows // 5 ** (i + 1)) for i in range(1, 6)]
    sizes = [rows - sum(sizes), *sizes]
    return np.vstack([rng.standard_normal((n, 10)) * 0.5 + 6 * rng.standard_normal(10) for n in sizes])


def components(side: str, x: Array, threads: int) -> Array:
    """Eigenvalues."""
    if side == "rankfold":
        return np.asarray(rf.kernel_pca(x, RANK, gamma=GAMMA, threads=threads).eigenvalues)
    solver = side.rpartition(" ")[2]
    fit = KernelPCA(RANK, kernel="rbf", gamma=GAMMA, eigen_solver=solver, random_state=0).fit(x)
    return np.asarray(fit.eigenvalues_)


def features(side: str, x: Array, seed: int, threads: int) -> dict[str, Any]:
    """What features leave of the trace, and what is said of it."""
    if side == "scikit-learn":
        made = Nystroem(gamma=NYSTROEM_GAMMA, n_components=LANDMARKS, random_state=seed).fit_transform(x)
        return {"trace error": float(1 - np.square(made).sum() / len(x))}
    way = side.rpartition(" ")[2]
    r = rf.nystroem(x, LANDMARKS, gamma=NYSTROEM_GAMMA, landmarks=way, seed=seed, threads=threads)
    error = float(1 - np.square(r.features[...]).sum() / len(x))
    said = {name.replace("_", " "): r.attrs[name] for name in ("trace_error_interval", "pair_error_interval")}
    return {"trace error": error, **said, "pair error": r.attrs["pair_error"], "passes": r.attrs["passes"]}


def memory_peak(*, anew: bool = False) -> int:
    """Most bytes that this process has held, since it was asked for anew: a child begins at its parent's."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def child(side: str, rows: int, seed: int, threads: int) -> None:
    """One fit, its time and peak as a line of JSON."""
    warnings.simplefilter("ignore")
    values = side in COMPONENTS
    small, x = (clusters(n) if values else uneven(n) for n in (600, rows))
    work = (
        (lambda y: components(side, y, threads)) if values else (lambda y: features(side, y, seed, threads))
    )
    work(small)
    before = memory_peak(anew=True)
    began, worked = time.perf_counter(), time.process_time()
    made: Any = work(x)
    times = {"seconds": time.perf_counter() - began, "processor seconds": time.process_time() - worked}
    facts = {"eigenvalues": made.tolist()} if values else made
    print(json.dumps({**times, "peak MiB": (memory_peak() - before) / 2**20, **facts}))


def run_child(side: str, rows: int, seed: int, threads: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", side, "--rows", str(rows), "--seed", str(seed)]
    done = subprocess.run(
        [*command, "--threads", str(threads), "--out", "-"], capture_output=True, text=True, check=True
    )
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


def compare_components(rows: int, times: int, threads: int) -> dict[str, Any]:
    """All sides in turns, and the dense answer."""
    k = rbf_kernel(clusters(rows).astype(np.float64), gamma=GAMMA)
    k -= k.mean(axis=0)
    k -= k.mean(axis=1)[:, None]
    right = scipy.linalg.eigh(k, eigvals_only=True, subset_by_index=(rows - RANK, rows - 1))[::-1]
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in COMPONENTS}
    for _ in range(times):
        for side in COMPONENTS:
            facts = run_child(side, rows, 0, threads)
            error = float(np.abs(np.array(facts.pop("eigenvalues")) - right).max() / right[0])
            runs[side].append({**facts, "largest error of an eigenvalue": error})
            print(rows, side, json.dumps(runs[side][-1]), flush=True)
    return {**runs, "medians": medians(runs)}


def compare_features(threads: int) -> dict[str, Any]:
    """All sides in turns, by seed."""
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in FEATURES}
    for seed in range(SEEDS):
        for side in FEATURES:
            runs[side].append(run_child(side, NYSTROEM_ROWS, seed, threads))
            print(side, json.dumps(runs[side][-1]), flush=True)
    return {**runs, "medians": medians(runs)}


def medians(runs: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, float]]:
    """Of every number."""
    return {
        side: {
            name: statistics.median(each[name] for each in of)
            for name, value in of[0].items()
            if isinstance(value, float | int)
        }
        for side, of in runs.items()
    }


def large(rows: int, threads: int, folder: Path) -> dict[str, Any]:
    """As many rows within 512 MiB, from a store."""
    x = clusters(rows)
    store = folder / "x.zarr"
    array = zarr.create_array(store, shape=x.shape, chunks=(8192, COLUMNS), dtype=x.dtype)
    array[:] = x
    began, worked = time.perf_counter(), time.process_time()
    out = folder / "r.zarr"
    r = rf.kernel_pca(store, RANK, gamma=GAMMA, memory="512MiB", threads=threads, out=out)
    times = {"seconds": time.perf_counter() - began, "processor seconds": time.process_time() - worked}
    attempt = r.run["attempts"][-1]
    peaks = {f"{name} MiB": attempt[f"{name}_bytes"] / 2**20 for name in ("planned", "measured")}
    estimate = r.attrs["largest_error_estimate"] / float(r.eigenvalues[0])
    return {**times, **peaks, "sweeps": r.attrs["passes"], "estimated error": estimate, "rows": rows}


def main() -> None:
    """Compare, say, and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--large", type=int, default=0, help="rows that are ours alone; 0 for none")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--child", choices=(*COMPONENTS, *FEATURES), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.rows, arguments.seed, arguments.threads)
        return
    names = ("rankfold", "scikit-learn", "scipy", "numba", "numpy")
    versions = {name: importlib.metadata.version(name) for name in names}
    facts: dict[str, Any] = {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": arguments.threads,
        "load": os.getloadavg()[0],
        "versions": versions,
    }
    facts[f"kernel PCA of {arguments.rows} rows"] = compare_components(
        arguments.rows, arguments.times, arguments.threads
    )
    arguments.out.write_text(json.dumps(facts, indent=1) + "\n")
    facts[f"Nystroem of {NYSTROEM_ROWS} rows"] = compare_features(arguments.threads)
    arguments.out.write_text(json.dumps(facts, indent=1) + "\n")
    if arguments.large:
        with tempfile.TemporaryDirectory() as folder:
            facts["kernel PCA from a store"] = large(arguments.large, arguments.threads, Path(folder))
    arguments.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
