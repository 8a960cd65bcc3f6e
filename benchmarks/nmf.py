"""Nonnegative factors in memory: seconds to an error, ours beside scikit-learn's and the bare products.

    python benchmarks/nmf.py --out benchmarks/results/nmf.json

20 000 x 2000 float64, 32 components, one thread, one process; contenders take turns and medians count. An
error is that of a run that ends there: by its tolerance, or scikit-learn's by its iterations. The limit
of an iteration is its two bare products.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
from sklearn import decomposition

import rankfold as rf
from rankfold.pipeline.warm import warm_kernels

ROWS, COLUMNS, RANK = 20_000, 2000, 32
ERRORS = (0.1, 0.05, 0.03, 0.027)


def matrix() -> np.ndarray:
    """Products of sparse parts; about 2.6 % of the norm is noise that no 32 components hold."""
    rng = np.random.default_rng(0)
    x = rng.gamma(0.5, size=(ROWS, RANK)) @ rng.gamma(0.5, size=(RANK, COLUMNS))
    noise = np.abs(rng.standard_normal(x.shape))
    return x + noise * (0.05 * x.mean())


def ours(x: np.ndarray, tol: float) -> dict[str, Any]:
    """One run to a tolerance."""
    began = time.perf_counter()
    found = rf.nmf(x, RANK, tol=tol, threads=1)
    seconds = time.perf_counter() - began
    told = {"passes": found.attrs["passes"], "error": found.attrs["relative_error"]}
    return {"who": "rankfold", "tol": tol, "seconds": seconds, **told}


def theirs(x: np.ndarray, norm: float, solver: str, iterations: int) -> dict[str, Any]:
    """One run of so many iterations, from random factors."""
    model = decomposition.NMF(RANK, init="random", solver=solver, max_iter=iterations, tol=0, random_state=0)
    began = time.perf_counter()
    model.fit(x)
    seconds = time.perf_counter() - began
    error = model.reconstruction_err_ / norm
    return {"who": f"scikit-learn {solver}", "iterations": iterations, "seconds": seconds, "error": error}


def limit(x: np.ndarray) -> float:
    """Seconds of the two products of an iteration."""
    h, w = np.ones((COLUMNS, RANK)), np.ones((ROWS, RANK))
    began = time.perf_counter()
    for start in range(0, ROWS, 500):
        part = x[start : start + 500]
        part @ h
        w[start : start + 500].T @ part
    return time.perf_counter() - began


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    x = matrix()
    norm = float(np.linalg.norm(x))
    warm_kernels(x.dtype)
    runs: list[dict[str, Any]] = []
    limits = []
    for _ in range(arguments.turns):
        limits.append(limit(x))
        runs += [ours(x, tol) for tol in (0.3, 0.05, 1e-2, 1e-3)]
        runs += [theirs(x, norm, "cd", iterations) for iterations in (20, 30, 40, 50, 60, 70, 80)]
    runs += [theirs(x, norm, "mu", iterations) for iterations in (50, 200)]
    told: dict[str, Any] = {"limit of an iteration": statistics.median(limits), "to an error": {}}
    names = sorted({run["who"] for run in runs})
    for error in ERRORS:
        told["to an error"][str(error)] = {who: fastest(runs, who, error) for who in names}
    machine = {"machine": platform.machine(), "python": platform.python_version(), "numpy": np.__version__}
    print(json.dumps(told, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps({**machine, **told, "runs": runs}, indent=1) + "\n")


def fastest(runs: list[dict[str, Any]], who: str, error: float) -> dict[str, Any] | None:
    """The settings that take the least to get there, by their median."""
    best = None
    name = "tol" if who == "rankfold" else "iterations"
    for setting in sorted({r[name] for r in runs if r["who"] == who}):
        same = [r for r in runs if r["who"] == who and r[name] == setting]
        seconds = statistics.median(r["seconds"] for r in same)
        if same[0]["error"] <= error and (best is None or seconds < best["seconds"]):
            best = {"seconds": seconds, name: setting}
    return best


if __name__ == "__main__":
    main()
