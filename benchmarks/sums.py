"""Forces between points by a tree, beside all pairs and beside peers; densities beside SciPy's.

    python benchmarks/sums.py --points 1000000 --out benchmarks/results/sums.json
    python benchmarks/sums.py ... --peers /path/to/python      which has pytreegrav and pykeops

All pairs are measured with the same loops and threads on a sample of targets, half of it before the tree and
half after, and scaled to all targets: a source takes as long for one target as for any other. Errors are of
forces at 2000 targets that the tree has not chosen its opening by, relative to exact forces. Peers run in
processes of their own, after each other and beside ours in the same call; what is compiled is compiled
before.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

PAIRS = 4e9
"""Of all pairs, that are measured before the tree, and again after it."""

CHECKED = 2000
"""Targets that errors are measured at."""

TOL = 1e-3

PARTS = ["forces", "densities", "peers"]


def points(kind: str, count: int) -> np.ndarray:
    """Points in three dimensions, of one kind."""
    r = np.random.default_rng(7)
    if kind == "uniform":
        return r.random((count, 3))
    if kind == "plummer":
        direction = r.standard_normal((count, 3))
        radius = 1 / np.sqrt(r.random(count) ** (-2 / 3) - 1)
        return radius[:, None] * direction / np.linalg.norm(direction, axis=1)[:, None]
    if kind == "clustered":
        centers = 5 * r.standard_normal((100, 3))
        return centers[r.integers(0, 100, count)] + 0.05 * r.standard_normal((count, 3))
    if kind == "line":
        return np.outer(r.random(count), [1.0, 2.0, 3.0])
    return r.random((count // 10, 3))[r.integers(0, count // 10, count)]  # ten at a place


KINDS = ("uniform", "plummer", "clustered", "line", "duplicates")


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call gives, and its seconds."""
    began = time.perf_counter()
    value = call()
    return value, time.perf_counter() - began


def exact(x: np.ndarray, rows: np.ndarray, threads: int) -> np.ndarray:
    """Forces of gravity at some rows, over all pairs."""
    from rankfold.kernels.sums.laws import Law
    from rankfold.kernels.sums.pairs import no_shifts, sum_pairs

    ones, out = np.ones(len(x)), np.empty((len(rows), 4))

    def some(part: np.ndarray) -> None:
        of = np.zeros((len(part), 4))
        targets = np.ascontiguousarray(x[rows[part]])
        how = {"law": int(Law.INVERSE), "scale": 0.0, "out": of}
        sum_pairs(x, ones, targets, ones[: len(part)], no_shifts(len(part)), **how)
        out[part] = of

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(some, np.array_split(np.arange(len(rows)), 16 * threads)))
    return -out[:, 1:]


def errors_of(forces: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Relative errors of forces."""
    errors = np.linalg.norm(forces - truth, axis=1) / np.linalg.norm(truth, axis=1)
    return {"median": float(np.median(errors)), "p99": float(np.quantile(errors, 0.99))}


def forces(kind: str, count: int, threads: int) -> dict[str, Any]:
    """The tree between two halves of a sample of all pairs."""
    import rankfold as rf

    x, r = points(kind, count), np.random.default_rng(11)
    sample = r.permutation(count)[: max(64, int(PAIRS / count))]
    checked = r.permutation(count)[:CHECKED]
    rf.kernel_sum(x[:3000])
    exact(x[:3000], np.arange(64), threads)
    before = timed(lambda: exact(x, sample, threads))[1]
    result, seconds = timed(lambda: rf.kernel_sum(x, tol=TOL, threads=threads, memory="2GiB"))
    after = timed(lambda: exact(x, sample, threads))[1]
    direct = (before + after) / (2 * len(sample)) * count
    values = np.asarray(result.forces[...])[checked]
    facts = {key: result.attrs[key] for key in ("error", "error_bound", "opening", "order", "pairs", "nodes")}
    return {
        "kind": kind,
        "points": count,
        "seconds": round(seconds, 2),
        "direct_seconds": round(direct, 1),
        "direct_targets": 2 * len(sample),
        "times_faster": round(direct / seconds, 1),
        "errors": errors_of(values, exact(x, checked, threads)),
        **facts,
    }


def exponent(rows: list[dict[str, Any]]) -> float:
    """Of the number of points in the seconds, fitted to their logarithms."""
    logs = np.log([[row["points"], row["seconds"]] for row in rows])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


# Densities ------------------------------------------------------------------------------------------


def densities(count: int, targets: int, threads: int) -> list[dict[str, Any]]:
    """Log densities of a gaussian, of three columns, beside SciPy's and scikit-learn's."""
    from scipy.stats import gaussian_kde
    from sklearn.neighbors import KernelDensity

    import rankfold as rf

    r = np.random.default_rng(3)
    x, t = r.standard_normal((count, 3)), r.standard_normal((targets, 3))
    h = count ** (-1 / 7)
    rf.density(x[:2000], t[:100], bandwidth=h)
    truth = rf.density(x, t, bandwidth=h, tol=0.0, threads=threads).log_density[...]
    scale = np.sqrt(np.cov(x.T).trace() / 3)
    model = KernelDensity(bandwidth=h).fit(x)
    loose = KernelDensity(bandwidth=h, rtol=1e-4).fit(x)
    ways: dict[str, Callable[[], Any]] = {
        "rankfold, exact": lambda: rf.density(x, t, bandwidth=h, tol=0.0, threads=threads).log_density[...],
        "rankfold, tol 1e-4": lambda: rf.density(x, t, bandwidth=h, threads=threads).log_density[...],
        "scikit-learn, exact, one thread": lambda: model.score_samples(t),
        "scikit-learn, rtol 1e-4, one thread": lambda: loose.score_samples(t),
        # SciPy's bandwidth is a factor of the covariance of the samples.
        "SciPy gaussian_kde": lambda: gaussian_kde(x.T, bw_method=h / scale).logpdf(t.T),
    }
    rows = []
    for name, way in ways.items():
        values, seconds = timed(way)
        error = float(np.quantile(np.abs(np.expm1(values - truth)), 0.99))
        rows.append(
            {"name": name, "points": count, "targets": targets, "seconds": round(seconds, 2), "p99": error}
        )
    return rows


# Peers ------------------------------------------------------------------------------------------------

PYTREEGRAV = """
import sys, time, json, numpy as np
import pytreegrav
file, theta, threads = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
x = np.load(file); m = np.ones(len(x)); h = np.zeros(len(x))
how = dict(theta=theta, parallel=threads > 1, method="tree", quadrupole=True)
pytreegrav.Accel(x[:5000], m[:5000], h[:5000], **how)
began = time.perf_counter()
a = pytreegrav.Accel(x, m, h, **how)
seconds = time.perf_counter() - began
np.save(file + ".out.npy", a)
print(json.dumps({"seconds": seconds}))
"""

PYKEOPS = """
import sys, time, json, numpy as np
from pykeops.numpy import LazyTensor
file, targets = sys.argv[1], int(sys.argv[2])
x = np.load(file)
def forces(t, x):
    gap = LazyTensor(x[None, :, :]) - LazyTensor(t[:, None, :])
    return (gap * ((gap ** 2).sum(-1) + 1e-30).rsqrt() ** 3).sum(axis=1)
forces(x[:100], x[:100])
began = time.perf_counter()
forces(x[:targets], x)
print(json.dumps({"seconds": (time.perf_counter() - began) / targets * len(x)}))
"""


def peers(python: str, count: int, threads: int) -> list[dict[str, Any]]:
    """What other packages take for the same forces: uniform points, errors as above."""
    x, r = points("uniform", count), np.random.default_rng(11)
    checked = r.permutation(count)[:CHECKED]
    truth, rows = exact(x, checked, threads), []
    settings = {**os.environ, **dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), str(threads))}
    settings.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/x.npy"
        np.save(file, x)
        for theta in ("0.5", "0.35"):
            numbers = ask(python, settings, PYTREEGRAV, file, theta, str(threads))
            if numbers is not None:
                found = np.load(f"{file}.out.npy")[checked]
                rows.append(
                    {
                        "name": "pytreegrav",
                        "theta": float(theta),
                        **numbers,
                        "errors": errors_of(found, truth),
                    }
                )
        numbers = ask(python, settings, PYKEOPS, file, str(min(count, 4000)))
        if numbers is not None:
            rows.append({"name": "pykeops, all pairs, scaled from 4000 targets", **numbers})
    return [{**row, "points": count} for row in rows]


def ask(python: str, settings: dict[str, str], script: str, *words: str) -> dict[str, Any] | None:
    """What a script prints last; None where the peer is not there."""
    outcome = subprocess.run(
        [python, "-c", script, *words], env=settings, capture_output=True, text=True, check=False
    )
    if outcome.returncode:
        print(outcome.stderr[-500:], file=sys.stderr)
        return None
    numbers: dict[str, Any] = json.loads(outcome.stdout.strip().splitlines()[-1])
    return numbers


def versions(python: str | None) -> dict[str, str]:
    """Of what was measured."""
    here = {name: version(name) for name in ("numpy", "numba", "scipy", "scikit-learn")}
    if python is None:
        return here
    code = (
        "import importlib.metadata as m, json; "
        "print(json.dumps({n: m.version(n) for n in ('pytreegrav', 'pykeops')}))"
    )
    outcome = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return here if outcome.returncode else {**here, **json.loads(outcome.stdout)}


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peers", help="a Python that has pytreegrav and pykeops")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS, help="others stay as they are")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    count, threads = arguments.points, arguments.threads
    report: dict[str, Any] = {}
    if arguments.out and arguments.out.exists() and arguments.parts != PARTS:
        report = json.loads(arguments.out.read_text())
    report |= {
        "command": f"benchmarks/sums.py --points {count} --threads {threads}",
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "versions": {**report.get("versions", {}), **versions(arguments.peers)},
        "tol": TOL,
    }

    def keep(name: str, values: Any) -> None:
        report[name] = values
        report[f"{name}_load"] = [round(each, 1) for each in os.getloadavg()]
        print(json.dumps({name: values}), flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps(report, indent=1) + "\n")

    if "forces" in arguments.parts:
        measure_forces(count, threads, keep)
    if "densities" in arguments.parts:
        keep("densities", densities(count // 10, count // 500, threads))
    if "peers" in arguments.parts and arguments.peers:
        keep("peers", peers(arguments.peers, count // 10, threads))


def measure_forces(count: int, threads: int, keep: Callable[[str, Any], None]) -> None:
    """Every kind of points, and of two kinds the exponent."""
    every: list[dict[str, Any]] = []
    for kind in KINDS:
        sizes = (count // 100, count // 10, count) if kind in ("uniform", "plummer") else (count,)
        rows = [forces(kind, size, threads) for size in sizes]
        every += rows
        keep("forces", every)
        if len(rows) > 1:
            keep(f"exponent_{kind}", exponent(rows))


if __name__ == "__main__":
    main()
