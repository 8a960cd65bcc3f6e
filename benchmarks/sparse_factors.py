"""Nonnegative factors of sparse counts beside scikit-learn's, from one start and to one objective.

Ours makes a number of passes. Scikit-learn's solver, ``cd`` for least squares and ``mu`` for the divergence,
is given the fewest iterations that come as low, up to 1e-5 of the objective. Then both are timed in turns:
processor time of one thread, whole calls, medians.

python benchmarks/sparse_factors.py --folder /tmp/rankfold-data --out benchmarks/results/sparse_factors.json
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import NMF
from sklearn.decomposition._nmf import _beta_divergence
from sparse_matrices import matrix

import rankfold as rf

CASES = (
    ("documents", "frobenius", 10),
    ("cells", "frobenius", 12),
    ("cells", "kullback-leibler", 5),
)
"""Matrix, loss, and passes that ours makes."""

RANK, CLOSE = 16, 1e-5

Factors = tuple[Any, Any]


def start(x: sp.csr_matrix) -> Factors:
    """Random factors of the size of the matrix."""
    rng, size = np.random.default_rng(0), float(np.sqrt(x.mean() / RANK))
    w, h = (np.abs(rng.standard_normal(shape)) for shape in ((x.shape[0], RANK), (RANK, x.shape[1])))
    return (w * size).astype(np.float32), (h * size).astype(np.float32)


def seconds_of(call: Callable[[], Factors]) -> tuple[float, Factors]:
    """Processor time of a call, and what it gives."""
    began = time.process_time()
    factors = call()
    return time.process_time() - began, factors


def measure(kind: str, loss: str, passes: int, folder: Path, turns: int) -> dict[str, Any]:
    """Seconds of both, and what they come to."""
    x = sp.csr_matrix(matrix(kind, folder))
    w, h = start(x)
    beta = 2 if loss == "frobenius" else 1

    def objective(factors: Factors) -> float:
        wide = [np.asarray(factor, np.float64) for factor in factors]
        return float(_beta_divergence(x.astype(np.float64), *wide, beta))

    def ours() -> Factors:
        result = rf.nmf(x, RANK, init=(w, h), tol=0, passes=passes, threads=1, loss=loss)
        return result.W[...], result.H[...]

    def peer(iterations: int) -> Factors:
        solver = "cd" if beta == 2 else "mu"
        options = {"init": "custom", "solver": solver, "beta_loss": loss, "tol": 0}
        model = NMF(RANK, max_iter=iterations, **options)
        return model.fit_transform(x, W=w.copy(), H=h.copy()), model.components_

    target = objective(ours())
    below, enough = 0, 4
    while objective(peer(enough)) > target * (1 + CLOSE):
        below, enough = enough, 2 * enough
    while enough - below > 1:
        middle = (below + enough) // 2
        if objective(peer(middle)) > target * (1 + CLOSE):
            below = middle
        else:
            enough = middle
    times: dict[str, list[float]] = {"ours": [], "scikit-learn": []}
    for _ in range(turns):
        times["ours"].append(seconds_of(ours)[0])
        times["scikit-learn"].append(seconds_of(lambda: peer(enough))[0])
    found = {name: median(each) for name, each in times.items()}
    counts = {"passes": passes, "iterations": enough, "objective": target}
    return {"matrix": kind, "loss": loss, "rank": RANK, **counts, **found}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/rankfold-data"))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    results = []
    for kind, loss, passes in CASES:
        found = measure(kind, loss, passes, arguments.folder, arguments.turns)
        results.append(found)
        ratio = found["scikit-learn"] / found["ours"]
        print(f"{kind}, {loss}: {ratio:.2f} times the speed of scikit-learn", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
