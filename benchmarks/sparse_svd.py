"""Whole calls of svd and pca of sparse matrices in memory, beside ARPACK, PROPACK and scikit-learn.

Each contender is called as its users do and gives both factors. Processor seconds of one thread; contenders
take turns, medians count. Errors are relative, of the worst singular value, beside ARPACK in float64 to its
last digit. ``smallest call`` is what is left of a call where there is hardly a matrix.

python benchmarks/sparse_svd.py --folder /tmp/rankfold-data --out benchmarks/results/sparse_svd.json
python benchmarks/sparse_svd.py --pbmc pbmc3k_counts.npz
"""

from __future__ import annotations

import argparse
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
import numpy.typing as npt
import scipy
import scipy.sparse as sp
import sklearn
from scipy.sparse.linalg import LinearOperator, svds
from sklearn.decomposition import PCA, TruncatedSVD
from sparse_matrices import matrix, normalized

import rankfold as rf

Array = npt.NDArray[Any]
Call = Callable[[], Array]
"""Singular values, largest first; both factors are formed."""

TOL = 1e-4


def svd_calls(x: sp.csr_matrix, rank: int) -> dict[str, Call]:
    """Contenders for leading triplets."""
    start = np.random.default_rng(0).standard_normal(min(x.shape))

    def by_svds(solver: str, y: sp.csr_matrix) -> Array:
        return np.sort(svds(y, k=rank, solver=solver, v0=start.astype(y.dtype))[1])[::-1]

    def randomized() -> Array:
        model = TruncatedSVD(rank, algorithm="randomized", n_iter=5, random_state=0)
        model.fit_transform(x)
        return np.asarray(model.singular_values_)

    wide = x.astype(np.float64)
    return {
        "rankfold": lambda: np.asarray(rf.svd(x, rank, tol=TOL, threads=1).s[...]),
        "arpack": lambda: by_svds("arpack", x),
        "arpack float64": lambda: by_svds("arpack", wide),
        "propack": lambda: by_svds("propack", wide),
        "randomized": randomized,
    }


def pca_calls(x: sp.csr_matrix, rank: int) -> dict[str, Call]:
    """Contenders for principal components."""

    def by_sklearn(solver: str) -> Array:
        model = PCA(rank, svd_solver=solver, random_state=0)
        model.fit_transform(x)
        return np.asarray(model.singular_values_)

    return {
        "rankfold": lambda: np.asarray(rf.pca(x, rank, tol=TOL, threads=1).singular_values[...]),
        "scikit-learn arpack": lambda: by_sklearn("arpack"),
    }


def exact_values(x: sp.csr_matrix, rank: int, *, centers: bool) -> Array:
    """By ARPACK in float64 to its last digit."""
    y = x.astype(np.float64)
    if not centers:
        return np.sort(svds(y, k=rank, return_singular_vectors=False))[::-1]
    mean = np.asarray(y.mean(axis=0)).ravel()
    centered = LinearOperator(
        y.shape,
        matvec=lambda v: y @ v.ravel() - mean @ v.ravel(),
        rmatvec=lambda u: y.T @ u.ravel() - mean * u.sum(),
        dtype=np.float64,
    )
    return np.sort(svds(centered, k=rank, return_singular_vectors=False))[::-1]


def measure(calls: dict[str, Call], exact: Array, turns: int) -> dict[str, dict[str, float]]:
    """Median processor seconds of each, and its worst error."""
    errors = {name: float(np.abs(call() / exact - 1).max()) for name, call in calls.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            began = time.process_time()
            call()
            seconds[name].append(time.process_time() - began)
    return {name: {"seconds": statistics.median(seconds[name]), "error": errors[name]} for name in calls}


def smallest_calls(turns: int) -> dict[str, float]:
    """Median processor seconds of calls that have next to nothing to compute."""
    rng = np.random.default_rng(0)
    thin = sp.csr_matrix(sp.random_array((100, 80), density=0.1, rng=rng, format="csr"))
    calls = {
        "svd sparse": lambda: rf.svd(thin, 5, threads=1),
        "pca sparse": lambda: rf.pca(thin, 5, threads=1),
        "svd dense": lambda: rf.svd(thin.toarray(), 5, threads=1),
        "nmf sparse": lambda: rf.nmf(abs(thin), 5, threads=1),
        "knn sparse": lambda: rf.knn(thin, 5, threads=1),
    }
    found = {}
    for name, call in calls.items():
        times = []
        for _ in range(turns + 1):
            began = time.process_time()
            call()
            times.append(time.process_time() - began)
        found[name] = statistics.median(times[1:])
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("/tmp/rankfold-data"))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--pbmc", type=Path, help="counts of genes, CSR in .npz, beside those that are drawn")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    cases: list[tuple[str, Any, int, bool]] = [
        ("cells, pca 50", matrix("cells", arguments.folder), 50, True),
        ("documents, svd 100", matrix("documents", arguments.folder), 100, False),
        ("graph, svd 20", matrix("graph", arguments.folder), 20, False),
    ]
    if arguments.pbmc:
        cases.insert(0, ("pbmc, pca 50", normalized(sp.load_npz(arguments.pbmc)), 50, True))
    results: dict[str, Any] = {}
    for name, x, rank, centers in cases:
        y = sp.csr_matrix(x).astype(np.float32)
        calls = pca_calls(y, rank) if centers else svd_calls(y, rank)
        found = measure(calls, exact_values(y, rank, centers=centers), arguments.turns)
        results[name] = {"shape": list(y.shape), "nnz": int(y.nnz), **found}
        for contender, numbers in found.items():
            ratio = numbers["seconds"] / found["rankfold"]["seconds"]
            line = f"{numbers['seconds']:7.2f} s  {ratio:5.2f}  error {numbers['error']:.0e}"
            print(f"{name:20} {contender:20} {line}", flush=True)
    results["smallest call"] = smallest_calls(arguments.turns)
    print(json.dumps(results["smallest call"]))
    machine = {"system": platform.platform(), "processor": platform.processor() or platform.machine()}
    versions = {"scipy": scipy.__version__, "scikit-learn": sklearn.__version__}
    if arguments.out:
        facts = {"machine": machine, "versions": versions, "turns": arguments.turns, **results}
        arguments.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
