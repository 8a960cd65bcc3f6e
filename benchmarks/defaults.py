"""What ``solver="auto"`` takes, beside every solver that could: time, passes, whether the tolerance is met.

Matrices of many shapes and of five spectra. Solvers alternate within a round; those that come near are run
again, and medians count.

    python benchmarks/defaults.py --out benchmarks/results/defaults.json
    python benchmarks/defaults.py --page docs/defaults-benchmark.md
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
import numpy.typing as npt
import scipy.sparse

import rankfold as rf
from rankfold.pipeline.machine import core_type

Array = npt.NDArray[Any]

RESULTS = Path(__file__).parent / "results" / "defaults.json"

SOLVERS = ("auto", "gram", "krylov", "lanczos")

SHAPES = (
    (2_000, 6, 2),
    (2_000_000, 5, 2),
    (200_000, 100, 10),
    (60_000, 300, 5),
    (60_000, 300, 50),
    (60_000, 784, 20),
    (20_000, 1_000, 10),
    (20_000, 1_000, 50),
    (30_000, 1_000, 100),
    (3_000, 2_000, 10),
    (3_000, 2_000, 50),
    (20_000, 2_000, 20),
    (500, 20_000, 10),
    (50, 20_000, 5),
    (6_000, 4_000, 20),
)
"""Rows, columns and rank."""

SPARSE_SHAPES = ((20_000, 2_000, 20), (100_000, 5_000, 10))

DENSITY = 0.02

SPECTRA = ("flat", "slow", "steep", "gap", "clusters")

LARGEST_HELD = 20_000_000
"""Numbers of a dense matrix that ``lanczos`` is asked for."""

NEAR = 1.5
"""A solver this much slower than the fastest is not run again."""

MEMORY = "8GiB"


def spectrum(kind: str, count: int, rank: int) -> Array:
    """Standard deviations of so many directions, decreasing."""
    order = 1.0 + np.arange(count)
    return {
        "flat": np.ones(count),
        "slow": order**-0.5,
        "steep": order**-1.5 + 1e-6,
        "gap": np.where(order <= 2 * rank, 10.0, 0.3),
        "clusters": 2.0 ** -np.floor((order - 1) / rank) + 1e-4,
    }[kind]


def dense(rows: int, columns: int, rank: int, kind: str) -> Array:
    """A float32 matrix whose rows are Gaussian, with a spectrum along turned axes."""
    rng = np.random.default_rng([55, rows, columns])
    count = min(rows, columns)
    deviations = spectrum(kind, count, rank).astype(np.float32)
    if kind == "flat":
        return rng.standard_normal((rows, columns), dtype=np.float32)
    turn = np.linalg.qr(rng.standard_normal((count, count), dtype=np.float32))[0]
    if rows >= columns:
        return (rng.standard_normal((rows, count), dtype=np.float32) * deviations) @ turn
    return (turn * deviations) @ rng.standard_normal((count, columns), dtype=np.float32)


def sparse(rows: int, columns: int, rank: int, kind: str) -> Any:
    """Counts of some topics, or of none."""
    rng = np.random.default_rng([56, rows, columns])
    x = scipy.sparse.random_array((rows, columns), density=DENSITY, rng=rng, dtype=np.float32, format="csr")
    if kind != "flat":
        x = x @ scipy.sparse.diags_array(spectrum(kind, columns, rank).astype(np.float32))
    return scipy.sparse.csr_array(x)


def once(x: Any, rank: int, solver: str) -> dict[str, Any]:
    """One run."""
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rf.RankfoldWarning)
        result = rf.pca(x, rank, solver=solver, threads=1, memory=MEMORY)
    seconds, attrs = time.perf_counter() - began, result.attrs
    return {
        "seconds": [seconds],
        "method": attrs["method"],
        "passes": attrs["passes"],
        "converged": bool(attrs["converged"]),
    }


def compare(x: Any, rank: int, rounds: int) -> dict[str, Any]:
    """All solvers on one matrix: once, and those that come near more often."""
    held = scipy.sparse.issparse(x) or x.size <= LARGEST_HELD
    found = {solver: once(x, rank, solver) for solver in SOLVERS if held or solver != "lanczos"}
    for _ in range(rounds - 1):
        for solver in _near(found):
            found[solver]["seconds"] += once(x, rank, solver)["seconds"]
    for each in found.values():
        each["seconds"] = statistics.median(each["seconds"])
    return found


def _near(found: dict[str, Any]) -> list[str]:
    fastest = min(min(each["seconds"]) for each in found.values())
    return [s for s, each in found.items() if s == "auto" or min(each["seconds"]) <= NEAR * fastest]


def run(rounds: int, shapes: Sequence[tuple[int, int, int]] = SHAPES) -> dict[str, Any]:
    """Every shape and spectrum."""
    for make in (dense, sparse):
        compare(make(4_000, 300, 5, "slow"), 5, 1)  # compiles
    cases = []
    plans = [(shape, dense) for shape in shapes] + [(shape, sparse) for shape in SPARSE_SHAPES]
    for (rows, columns, rank), make in plans:
        for kind in SPECTRA if make is dense else SPECTRA[:3]:
            x = make(rows, columns, rank, kind)
            case = {
                "rows": rows,
                "columns": columns,
                "rank": rank,
                "spectrum": kind,
                "sparse": make is sparse,
            }
            cases.append({**case, "found": compare(x, rank, rounds)})
            print(json.dumps(cases[-1]), flush=True)
    machine = {
        "cpu": core_type(),
        "python": platform.python_version(),
        "rankfold": rf.__version__,
        "threads": 1,
    }
    return {"machine": machine, "tol": 1e-4, "rounds": rounds, "cases": cases}


# The page -----------------------------------------------------------------------------------------


INTRODUCTION = """# What the default takes

The table compares `pca` with `solver="auto"` to every solver that could take the matrix. It has seconds on
one core, and passes over the matrix. Runs in brackets ended above `tol` = 1e-4. The last column is the time
of the default over that of the fastest solver that met `tol`. Dense matrices are float32, sparse ones have a
density of 0.02. The page is made by `benchmarks/defaults.py` from `benchmarks/results/defaults.json` (medians
of {rounds} runs for solvers that come near the fastest; {cpu}).

"""


def page(results: dict[str, Any]) -> str:
    """The table, and what stands out in it."""
    lines = [
        "| matrix | rank | spectrum | default | gram | krylov | lanczos | default / fastest |",
        "|---|---|---|---|---|---|---|---|",
    ]
    ratios, above, in_time = [], 0, 0
    for case in results["cases"]:
        found = case["found"]
        met = [each["seconds"] for each in found.values() if each["converged"]]
        ratio = found["auto"]["seconds"] / min(met) if met else 1.0
        ratios.append(ratio)
        if met and not found["auto"]["converged"]:
            above += 1
            in_time += min(met) <= found["auto"]["seconds"]
        name = f"{case['rows']:,} x {case['columns']:,}".replace(",", " ") + ", sparse" * case["sparse"]
        cells = [_cell(found[s]) if s in found else "" for s in SOLVERS[1:]]
        default = f"`{found['auto']['method']}` {_cell(found['auto'])}"
        row = (name, str(case["rank"]), case["spectrum"], default, *cells, f"{ratio:.2f}")
        lines.append(f"| {' | '.join(row)} |")
    slow = sum(ratio > 1.3 for ratio in ratios)
    summary = (
        f"\nOf {len(ratios)} matrices the default was more than 1.3 times slower than the fastest solver on "
        f"{slow} (most {max(ratios):.1f} times; median {statistics.median(ratios):.2f}). It ended above "
        f"`tol` on {above} where another solver did not. On {in_time} of these the other solver took "
        "no longer.\n"
    )
    machine = results["machine"]
    head = INTRODUCTION.format(rounds=results["rounds"], cpu=machine["cpu"])
    return head + "\n".join(lines) + "\n" + summary


def _cell(found: dict[str, Any]) -> str:
    text = f"{found['seconds']:.2f} s, {found['passes']}"
    return text if found["converged"] else f"({text})"


def main() -> None:
    """Run, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.out:
        arguments.out.write_text(json.dumps(run(arguments.rounds), indent=1) + "\n")
    if arguments.page:
        arguments.page.write_text(page(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
