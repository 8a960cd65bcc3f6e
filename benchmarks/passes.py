"""What a pass costs, how many it takes, and what memory: ours beside the physical limit, in one run.

The limit of a pass is reading every chunk with ``readinto`` into buffers that are used again, and the two
bare matrix products on it, with the same threads. Runs of ours and of the limit alternate; medians count.

    python benchmarks/passes.py --folder /tmp/rankfold-data --out benchmarks/results/passes.json
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
from matrices import COLUMNS, matrix

import rankfold as rf
from rankfold.pipeline.machine import core_type

RANK = 50
BUDGET = "512MiB"
CASES = (("spiked", 400_000), ("slow", 400_000), ("spiked", 1_600_000))


def limit_seconds(store: Path, width: int, grain: int, threads: int) -> float:
    """One pass at the limit: chunks dealt to threads, each with one buffer of its own."""
    chunks = sorted(path for path in (store / "c").rglob("*") if path.is_file())
    basis = np.ones((COLUMNS, width), np.float32)

    def work(mine: list[Path]) -> None:
        buffer = np.empty((chunks[0].stat().st_size // (4 * COLUMNS), COLUMNS), np.float32)
        y, z = np.empty((grain, width), np.float32), np.empty((COLUMNS, width), np.float32)
        for path in mine:
            with open(path, "rb", buffering=0) as file:
                file.readinto(memoryview(buffer).cast("B"))
            for start in range(0, len(buffer), grain):
                d = buffer[start : start + grain]
                np.matmul(d, basis, out=y[: len(d)])
                np.matmul(d.T, y[: len(d)], out=z)

    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, [chunks[i::threads] for i in range(threads)]))
    return time.perf_counter() - began


def turn(store: Path, threads: int, out: Path) -> None:
    """What a fresh process does: a pass at the limit, our run, a pass at the limit."""
    plan = rf.plan("svd", store, RANK, solver="krylov", memory=BUDGET, threads=threads)
    before = limit_seconds(store, plan.width, plan.panel_rows, threads)
    rf.svd(store, rank=RANK, solver="krylov", memory=BUDGET, threads=threads, out=out)
    after = limit_seconds(store, plan.width, plan.panel_rows, threads)
    print(json.dumps([before, after]))


def our_run(store: Path, threads: int, folder: Path) -> dict:
    """One turn in a process of its own: limits, passes, seconds of each, memory."""
    out = folder / "out.zarr"
    for path in (out, folder / "out.zarr.run"):
        shutil.rmtree(path, ignore_errors=True)
    command = [sys.executable, __file__, "--child", str(store), "--threads", str(threads), "--out", str(out)]
    child = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result = rf.open_result(out)
    attempt = result.run["attempts"][-1]
    return {
        "s": result.s.tolist(),
        "limit_seconds": json.loads(child.stdout),
        "passes": result.attrs["passes"],
        "estimate": result.attrs["largest_error_estimate"],
        "pass_seconds": [v for k, v in attempt["sweep_seconds"].items() if k.startswith("pass")],
        "seconds": attempt["seconds"],
        "baseline": attempt["baseline_bytes"],
        "planned": attempt["planned_bytes"],
        "measured": attempt["measured_bytes"],
    }


def case(folder: Path, kind: str, rows: int, threads: int, repeats: int) -> dict:
    """One matrix, ours and the limit in turn."""
    store, sigma = matrix(folder, kind, rows)
    runs = [our_run(store, threads, folder) for _ in range(repeats)]
    found = np.array(runs[-1]["s"])
    limits = [seconds for run in runs for seconds in run["limit_seconds"]]
    limit = statistics.median(limits)
    positions = [
        statistics.median(run["pass_seconds"][i] for run in runs) / limit for i in range(runs[-1]["passes"])
    ]
    return {
        "matrix": kind,
        "rows": rows,
        "error": float(np.max(np.abs(found - sigma[:RANK]) / sigma[:RANK])),
        "estimate": runs[-1]["estimate"],
        "passes": runs[-1]["passes"],
        "limit_seconds": limits,
        "pass_seconds": [run["pass_seconds"] for run in runs],
        "ratio_of_each_pass": positions,
        "seconds": [run["seconds"] for run in runs],
        "planned_MiB": runs[-1]["planned"] / 2**20,
        "measured_MiB": max(run["measured"] for run in runs) / 2**20,
        "baseline_MiB": runs[-1]["baseline"] / 2**20,
    }


def main() -> None:
    """Run the cases and keep the raw numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/rankfold-data"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/passes.json"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cases", type=int, nargs="*", default=range(len(CASES)))
    parser.add_argument("--child")
    arguments = parser.parse_args()
    if arguments.child:
        turn(Path(arguments.child), arguments.threads, arguments.out)
        return
    machine = {"system": platform.platform(), "python": platform.python_version(), "blas": core_type()}
    results = {"machine": machine, "threads": arguments.threads, "cases": []}
    for index in arguments.cases:
        results["cases"].append(case(arguments.folder, *CASES[index], arguments.threads, arguments.repeats))
        print(json.dumps(results["cases"][-1], indent=1), flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
