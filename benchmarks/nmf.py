"""Nonnegative factors: seconds and passes to an error, ours beside scikit-learn's and the bare products.

    python benchmarks/nmf.py --out benchmarks/results/nmf.json
    python benchmarks/nmf.py --disk FOLDER --gigabytes 20 --out benchmarks/results/nmf_disk.json
    python benchmarks/nmf.py --page docs/nmf.md

In memory: 20 000 x 2000 float64, 32 components, one thread, one process; contenders take turns and medians
count. An error is that of a run that ends there: by its tolerance or passes, or scikit-learn's by its
iterations. The limit of an iteration is its two bare products; an iteration of ours is the last pass of a
run, one of scikit-learn's is what each of its last ones adds.

On disk: a tenth of the matrix and all of it, 2000 columns of float32, under 1 GiB, two threads, each in a
process of its own; the limit of a pass reads the chunks and makes the two products.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
import zarr
from sklearn import decomposition

import rankfold as rf
from rankfold.methods.warm import MethodWarmup

ROWS, COLUMNS, RANK = 20_000, 2000, 32
CHUNK_ROWS = 4000
ERRORS = (0.1, 0.05, 0.03, 0.027)


def matrix() -> np.ndarray:
    """Products of sparse parts; about 2.6 % of the norm is noise that no 32 components hold."""
    rng = np.random.default_rng(0)
    x = rng.gamma(0.5, size=(ROWS, RANK)) @ rng.gamma(0.5, size=(RANK, COLUMNS))
    noise = np.abs(rng.standard_normal(x.shape))
    return x + noise * (0.05 * x.mean())


def ours(x: np.ndarray, passes: int) -> dict[str, Any]:
    """One run of at most so many reads."""
    began = time.perf_counter()
    found = rf.nmf(x, RANK, passes=passes, threads=1)
    seconds = time.perf_counter() - began
    sweeps = found.run["attempts"][-1]["sweep_seconds"]
    last = max(name for name in sweeps if name.startswith("iteration"))
    told = {"error": found.attrs["relative_error"], "iteration_seconds": sweeps[last]}
    return {"who": "rankfold", "passes": passes, "seconds": seconds, **told}


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


def write(store: Path, rows: int) -> None:
    """Rows of the same kind of matrix in float32, in chunks of whole rows."""
    rng = np.random.default_rng(0)
    h = rng.gamma(0.5, size=(RANK, COLUMNS)).astype(np.float32)
    array = zarr.create_array(
        store, shape=(rows, COLUMNS), chunks=(CHUNK_ROWS, COLUMNS), dtype="float32", compressors=None
    )
    for first in range(0, rows, CHUNK_ROWS):
        count = min(CHUNK_ROWS, rows - first)
        part = rng.gamma(0.5, size=(count, RANK)).astype(np.float32) @ h
        part += np.abs(rng.standard_normal(part.shape, np.float32)) * (0.05 * 8.0)
        array[first : first + count] = part


MEASURED = """
import json, sys, time
import rankfold as rf
from pathlib import Path
began = time.perf_counter()
found = rf.nmf(sys.argv[1], int(sys.argv[2]), tol=float(sys.argv[3]), passes=int(sys.argv[4]), memory="1GiB",
               threads=2, out=sys.argv[5])
last = found.run["attempts"][-1]
print(json.dumps({"seconds": time.perf_counter() - began, "passes": found.attrs["passes"],
    "errors": found.attrs["errors"], "sweeps": last["sweep_seconds"], "planned": last["planned_bytes"],
    "measured": last["measured_bytes"]}))
"""


def on_disk(folder: Path, gigabytes: float, out: Path | None) -> None:
    """The default run, and one to the end, on two sizes."""
    told: dict[str, Any] = {}
    for share in (0.1, 1.0):
        rows = int(gigabytes * 1e9 * share) // (4 * COLUMNS)
        store = folder / f"nmf-{rows}.zarr"
        if not store.exists():
            write(store, rows)
        runs = {}
        for name, tol, passes in (("default", 1e-3, 8), ("converged", 1e-5, 7)):
            result = folder / "nmf-result.zarr"
            shutil.rmtree(result, ignore_errors=True)
            shutil.rmtree(f"{result}.run", ignore_errors=True)
            command = [sys.executable, "-W", "ignore", "-c", MEASURED, str(store), str(RANK), str(tol)]
            made = subprocess.run([*command, str(passes), str(result)], stdout=subprocess.PIPE, check=True)
            runs[name] = json.loads(made.stdout)
        told[f"{rows} x {COLUMNS} float32"] = {**runs, "limit of a pass": read_and_multiply(store, rows)}
        print(json.dumps(told, indent=1), flush=True)
    if out:
        out.write_text(json.dumps({**machine(), **told}, indent=1) + "\n")


def page(results: Path) -> str:
    """The document."""
    memory = json.loads((results / "nmf.json").read_text())
    disk = json.loads((results / "nmf_disk.json").read_text())
    each = memory["seconds of an iteration"]
    lines = [
        "# Nonnegative factors beside their peers",
        "",
        "Made by `benchmarks/nmf.py` from `benchmarks/results/nmf.json` and "
        "`benchmarks/results/nmf_disk.json`.",
        "",
        f"## In memory: {ROWS} x {COLUMNS} float64, {RANK} components, one thread",
        "",
        "Seconds of the fastest run that ends at such a relative error; at best 0.026 is left.",
        "scikit-learn starts from random factors; it ran up to 100 iterations of descent, 200 of updates.",
        "",
        "| error at most | rankfold | scikit-learn cd | scikit-learn mu |",
        "|---|---|---|---|",
    ]
    for error, found in memory["to an error"].items():
        mine = found["rankfold"]
        cells = [f"{mine['seconds']:.2f} s, {mine['passes']} reads"]
        for who in ("scikit-learn cd", "scikit-learn mu"):
            run = found[who]
            ratio = run and run["seconds"] / mine["seconds"]
            cells.append(f"{run['seconds']:.1f} s ({ratio:.1f} times ours)" if run else "not reached")
        lines.append(f"| {error} | {' | '.join(cells)} |")
    lines += [
        "",
        f"An iteration takes {each['rankfold']:.3f} s, with ten sweeps of each factor. Its two bare products",
        f"take {each['limit']:.3f} s ({each['rankfold'] / each['limit']:.2f} times that), an iteration of",
        f"scikit-learn's coordinate descent, of one sweep, {each['scikit-learn cd']:.3f} s.",
        "",
        "## On disk, under 1 GiB, two threads",
        "",
        "| matrix | reads | error | error in the end | seconds | a pass, its limit | memory: planned, used |",
        "|---|---|---|---|---|---|---|",
    ]
    for shape, runs in disk.items():
        if " x " in shape:
            lines.append(_disk_row(shape, runs))
    return "\n".join([*lines, "", "The limit of a pass reads the chunks and makes the two products.", ""])


def _disk_row(shape: str, runs: dict[str, Any]) -> str:
    run, end = runs["default"], runs["converged"]
    last = max(name for name in run["sweeps"] if name.startswith("iteration"))
    cells = [
        shape,
        str(run["passes"]),
        f"{run['errors'][-1]:.5f}",
        f"{end['errors'][-1]:.5f}",
        f"{run['seconds']:.0f}",
        f"{run['sweeps'][last]:.1f} s, {runs['limit of a pass']:.1f} s",
        f"{run['planned'] / 2**20:.0f}, {run['measured'] / 2**20:.0f} MiB",
    ]
    return f"| {' | '.join(cells)} |"


def machine() -> dict[str, str]:
    """What the numbers are of."""
    return {"machine": platform.machine(), "python": platform.python_version(), "numpy": np.__version__}


def read_and_multiply(store: Path, rows: int) -> float:
    """Seconds of two threads that read the chunks and make the two products of an iteration."""
    h = np.ones((COLUMNS, RANK), np.float32)
    w = np.ones((CHUNK_ROWS, RANK), np.float32)

    def one(chunk: int) -> None:
        with open(store / "c" / str(chunk) / "0", "rb", buffering=0) as file:
            part = np.fromfile(file, np.float32).reshape(-1, COLUMNS)
        for first in range(0, len(part), 1000):
            piece = part[first : first + 1000]
            piece @ h
            w[: len(piece)].T @ piece

    began = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, range(-(-rows // CHUNK_ROWS))))
    return time.perf_counter() - began


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--disk", type=Path)
    parser.add_argument("--page", type=Path, help="write the document from the results")
    parser.add_argument("--gigabytes", type=float, default=20)
    arguments = parser.parse_args()
    if arguments.page:
        arguments.page.write_text(page(Path(__file__).parent / "results"))
        return
    if arguments.disk:
        on_disk(arguments.disk, arguments.gigabytes, arguments.out)
        return
    warnings.simplefilter("ignore")
    x = matrix()
    norm = float(np.linalg.norm(x))
    MethodWarmup(x.dtype, {"kind": "nmf", "solver": "hals"}, x.shape).warm()
    runs: list[dict[str, Any]] = []
    limits = []
    for _ in range(arguments.turns):
        limits.append(limit(x))
        runs += [ours(x, passes) for passes in (2, 3)]
        runs += [theirs(x, norm, "cd", iterations) for iterations in (20, 40, 60, 80, 100)]
    runs += [theirs(x, norm, "mu", iterations) for iterations in (50, 200)]
    told: dict[str, Any] = {"seconds of an iteration": iterations(runs, limits), "to an error": {}}
    names = sorted({run["who"] for run in runs})
    for error in ERRORS:
        told["to an error"][str(error)] = {who: fastest(runs, who, error) for who in names}
    print(json.dumps(told, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps({**machine(), **told, "runs": runs}, indent=1) + "\n")


def iterations(runs: list[dict[str, Any]], limits: list[float]) -> dict[str, float]:
    """Of each contender, and the limit."""
    mine = [r["iteration_seconds"] for r in runs if r["who"] == "rankfold" and r["passes"] == 3]
    by_count = {
        count: statistics.median(
            r["seconds"] for r in runs if r.get("iterations") == count and "cd" in r["who"]
        )
        for count in (20, 80)
    }
    theirs = (by_count[80] - by_count[20]) / 60
    return {
        "limit": statistics.median(limits),
        "rankfold": statistics.median(mine),
        "scikit-learn cd": theirs,
    }


def fastest(runs: list[dict[str, Any]], who: str, error: float) -> dict[str, Any] | None:
    """The settings that take the least to get there, by their median."""
    best = None
    name = "passes" if who == "rankfold" else "iterations"
    for setting in sorted({r[name] for r in runs if r["who"] == who}):
        same = [r for r in runs if r["who"] == who and r[name] == setting]
        seconds = statistics.median(r["seconds"] for r in same)
        if same[0]["error"] <= error and (best is None or seconds < best["seconds"]):
            best = {"seconds": seconds, name: setting}
    return best


if __name__ == "__main__":
    main()
