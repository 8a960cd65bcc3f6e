"""A pass on threads, on processes, and with reads that wait, each beside what it is measured against.

threads, processes    the same sweep, in turn
waiting reads         30 ms added to every chunk, beside the larger of reading alone and computing alone

python benchmarks/places.py --folder /tmp/rankfold-data --out benchmarks/results/places.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

TESTS = Path(__file__).parents[1] / "tests" / "cluster"
sys.path.insert(0, str(TESTS))
os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])  # for the workers

import numpy as np
from matrices import matrix
from slow_source import SlowSource

import rankfold as rf

RANK, PASSES, BUDGET = 50, 3, "512MiB"


def passes(source: Any, folder: Path, **where: Any) -> list[float]:
    """Seconds of each pass of a run."""
    with tempfile.TemporaryDirectory(dir=folder) as inner:
        options = {"solver": "krylov", "passes": PASSES, "tol": 1e-12, "with_rows": False, "memory": BUDGET}
        result = rf.svd(source, RANK, out=Path(inner) / "out.zarr", **options, **where)
        attempt = result.run["attempts"][-1]
    return [v for k, v in attempt["sweep_seconds"].items() if k.startswith("pass")]


def read_alone(source: Any, panel_rows: int, threads: int) -> float:
    """Seconds to read every panel once, each thread into one buffer."""
    rows, columns = source.shape
    starts = range(0, rows, panel_rows)

    def work(mine: list[int]) -> None:
        buffer = np.empty((panel_rows, columns), source.dtype)
        for start in mine:
            stop = min(start + panel_rows, rows)
            source.read_into(buffer[: stop - start], (start, stop), (0, columns))

    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, [list(starts[i::threads]) for i in range(threads)]))
    return time.perf_counter() - began


def main() -> None:
    """Run all in turn and keep the raw numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/rankfold-data"))
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--milliseconds", type=float, default=30.0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/places.json"))
    arguments = parser.parse_args()
    store, _ = matrix(arguments.folder, "spiked", arguments.rows)
    source, cores = rf.open(store), arguments.cores
    slow = SlowSource(source, arguments.milliseconds / 1000)
    panel = rf.plan("svd", source, RANK, solver="krylov", memory=BUDGET, threads=cores).panel_rows
    turns = []
    for _ in range(arguments.repeats):
        turns.append(
            {
                "threads": passes(source, arguments.folder, threads=cores),
                "processes": passes(source, arguments.folder, workers=cores, threads=1),
                "waiting": passes(slow, arguments.folder, threads=cores),
                "reading alone": [read_alone(slow, panel, cores)],
            }
        )
    medians = [{name: statistics.median(seconds) for name, seconds in turn.items()} for turn in turns]
    results = {
        "machine": {"system": platform.platform(), "python": platform.python_version()},
        "cores": cores,
        "turns": turns,
        "processes_over_threads": statistics.median(m["processes"] / m["threads"] for m in medians),
        "waiting_over_limit": statistics.median(
            m["waiting"] / max(m["reading alone"], m["threads"]) for m in medians
        ),
    }
    print(json.dumps(results, indent=1))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
