r"""Queries in an index on disk: processor seconds and recall, ours beside faiss IVF and hnswlib.

    pip install '.[bench]'
    python benchmarks/queries.py --folder /tmp/rankfold-data --out benchmarks/results/queries.json
    python benchmarks/queries.py --page docs/queries-benchmark.md

200 000 x 64 rows and 20 000 queries are generated once, as in ``approximate.py`` but of 64 columns. 10
neighbors, one thread. Ours reads rows and queries from files, writes the index and the lists to files, and
finds its recall by a sample of the queries; peers hold all in memory, and are told how much to search.
Seconds are those of the processor, user and system, of making the index and of answering all queries;
contenders take turns, and medians count. Recall is the share of neighbors as near as the exact ones, over
all queries.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import approximate
from knn import machine

ROWS, QUERIES, COLUMNS, K = 200_000, 20_000, 64, 10

Answers = Iterator[tuple[str, float, np.ndarray, dict[str, Any]]]
"""A setting, its seconds, squared or plain distances, and what is told of it."""


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    value = call()
    return time.process_time() - began, value


def ours(folder: Path, scratch: Path) -> Answers:
    import rankfold as rf

    rf.knn(
        np.load(folder / "q.npy")[:900], K, index=rf.index(np.load(folder / "x.npy")[:3000]), min_recall=0.5
    )
    where: dict[str, Any] = {"threads": 1, "memory": "256MiB"}
    making, index = seconds(lambda: rf.index(folder / "x.npy", out=scratch / "index.zarr", **where))
    for recall in (0.9, 0.95, 0.98, 0.99, None):
        out = scratch / f"{recall}.zarr"
        asked = {"index": index, "min_recall": recall, "out": out, **where}
        taken, found = seconds(lambda asked=asked: rf.knn(folder / "q.npy", K, **asked))
        last = found.run["attempts"][-1]
        told = {
            name: found.attrs[name] for name in ("recall", "recall_interval", "probes") if name in found.attrs
        }
        told |= {"making": making, "sweep_seconds": last["sweep_seconds"]}
        told |= {name: last[name] for name in ("planned_bytes", "measured_bytes")}
        yield f"min_recall {recall}" if recall else "exact", taken, np.asarray(found.distances), told
    x, q = folder / "x.npy", folder / "q.npy"
    taken, found = seconds(lambda: rf.knn(x, K, queries=q, out=scratch / "pairs.zarr", **where))
    yield "exact, without an index", taken, np.asarray(found.distances), {"making": 0.0}


def faiss(folder: Path, scratch: Path) -> Answers:
    import faiss as library

    library.omp_set_num_threads(1)
    x, q = np.load(folder / "x.npy"), np.load(folder / "q.npy")
    index: Any = library.index_factory(COLUMNS, f"IVF{int(np.sqrt(len(x)))},Flat")

    def make() -> None:
        index.train(x[::2])
        index.add(x)

    making, _ = seconds(make)
    for probes in (1, 2, 4, 8):
        index.nprobe = probes
        taken, (squares, _) = seconds(lambda: index.search(q, K))
        yield f"{probes} probes", taken, np.sqrt(squares), {"making": making}


def hnswlib(folder: Path, scratch: Path) -> Answers:
    import hnswlib as library

    x, q = np.load(folder / "x.npy"), np.load(folder / "q.npy")
    index = library.Index("l2", COLUMNS)
    index.init_index(len(x), M=16, ef_construction=100, random_seed=0)
    making, _ = seconds(lambda: index.add_items(x, num_threads=1))
    for width in (16, 32, 64, 128):
        index.set_ef(width)
        taken, (_, squares) = seconds(lambda: index.knn_query(q, K, num_threads=1))
        yield f"ef {width}", taken, np.sqrt(squares), {"making": making}


CONTENDERS = {"rankfold": ours, "faiss IVF": faiss, "hnswlib": hnswlib}


def generated(folder: Path) -> None:
    """Rows and queries, and the exact distance of the last neighbor of each query."""
    if (folder / "farthest.npy").exists():
        return
    approximate.COLUMNS = COLUMNS
    both = np.load(approximate.clustered(folder / "both.npy", ROWS + QUERIES))
    x, q = both[:ROWS], both[ROWS:]
    np.save(folder / "x.npy", x)
    np.save(folder / "q.npy", q)
    farthest = np.empty(QUERIES)
    wide = x.astype(np.float64)
    for start in range(0, QUERIES, 500):
        some = q[start : start + 500].astype(np.float64)
        apart = (some**2).sum(1)[:, None] + (wide**2).sum(1) - 2 * some @ wide.T
        farthest[start : start + 500] = np.sqrt(np.partition(apart, K - 1, axis=1)[:, K - 1].clip(0))
    np.save(folder / "farthest.npy", farthest)


def child(name: str, folder: Path) -> None:
    """Be a contender once."""
    farthest = np.load(folder / "farthest.npy")[:, None]
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for setting, taken, distances, told in CONTENDERS[name](folder, Path(scratch)):
            # Peers tell distances in float32, of sums that cancel.
            share = float((distances <= farthest * (1 + 1e-4)).mean())
            line = {"setting": f"{name}, {setting}", "seconds": taken, "true_recall": share, **told}
            print(json.dumps(line), flush=True)


def run(folder: Path, turns: int) -> dict[str, Any]:
    runs: dict[str, list[dict[str, Any]]] = {}
    one = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "NUMBA", "MKL")}
    for _ in range(turns):
        for name in CONTENDERS:
            command = [sys.executable, "-W", "ignore", __file__, "--child", name, "--folder", str(folder)]
            environment = {**os.environ, **one}
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            for text in done.stdout.splitlines():
                told = json.loads(text)
                runs.setdefault(told.pop("setting"), []).append(told)
                print(text, flush=True)
    return runs


def page(results: Path) -> str:
    told = json.loads(results.read_text())
    lines = ["# Queries in an index beside their peers", "", "Made by `benchmarks/queries.py`.", ""]
    lines += [
        f"{ROWS} x {COLUMNS}, {QUERIES} queries, {K} neighbors, one thread; {told['machine']['processor']}.",
        "",
    ]
    lines += ["| | index, s | queries, s | recall |", "|---|---|---|---|"]
    for name, each in told["runs"].items():
        making, taken, share = (
            statistics.median(one[key] for one in each) for key in ("making", "seconds", "true_recall")
        )
        lines.append(f"| {name} | {making:.1f} | {taken:.2f} | {share:.4f} |")
    lines.append("")
    for name, each in told["runs"].items():
        if "recall_interval" in each[-1]:
            (low, high), last = each[-1]["recall_interval"], each[-1]
            sweeps = last["sweep_seconds"]
            lines.append(
                f"- {name}: {last['probes']} probes; reported recall {last['recall']:.4f} ({low:.4f} to "
                f"{high:.4f}); of its wall time {sweeps['queries']:.2f} s for all queries, "
                f"{sweeps['truth']:.2f} s for the true neighbors of the sample; "
                f"{last['measured_bytes'] / 2**20:.0f} of "
                f"{last['planned_bytes'] / 2**20:.0f} MiB planned"
            )
    lines += [
        "",
        "Seconds are those of the processor. Ours has measured its recall in them, and reads and writes "
        "files; peers hold rows, queries and index in memory, and are told how much to search.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/rankfold-data"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/queries.json"))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.page:
        options.page.write_text(page(options.out))
    elif options.child:
        child(options.child, options.folder)
    else:
        options.folder.mkdir(parents=True, exist_ok=True)
        generated(options.folder)
        told = {"machine": machine(), "runs": run(options.folder, options.turns)}
        options.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
