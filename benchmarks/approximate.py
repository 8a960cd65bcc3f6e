r"""Neighbors: seconds, memory and recall, exact and nearly so, ours beside peers at several settings.

    pip install '.[bench]'
    python benchmarks/approximate.py --folder /tmp/rankfold-data --out benchmarks/results/approximate.json
    python benchmarks/approximate.py --sets /tmp/rankfold-sets --of digits words \
        --out benchmarks/results/neighbors_of_sets.json
    python benchmarks/approximate.py --page docs/approximate-benchmark.md

1 000 000 x 128 clustered rows are generated once, 512 MB: 1000 clusters whose sizes fall like one over the
root of their number; centers from a plane of 24 dimensions; each cluster spread in 12 directions of its own
that fall off like one over the root, and in all by 0.05. With ``--sets``, the real sets of ``real_sets.py``.
15 neighbors, two threads. Each contender runs in a process of its own, warmed up on a few rows; they take
turns, and medians count. Peers hold the matrix in memory; ours reads the file, within a quarter of the
matrix and the lists. Memory is the most that a process held above what it held before the search, the matrix
of a peer included. Recall is the share of neighbors as near as the exact ones, in float64 on 1000 rows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import real_sets
from knn import machine, without_self

from rankfold.pipeline.engine.memory import watched_memory

K, THREADS, ROWS, COLUMNS, TRUE_ROWS = 15, 2, 1_000_000, 128, 1000
SEED = 7
NEIGHBORS_OF = ("digits", "clothes", "words", "text", "weather", "patches")
"""Real sets whose neighbors are looked for."""

Lists = tuple[np.ndarray, dict[str, Any]]


def rankfold(path: Path, *, min_recall: float | None) -> Lists:
    import rankfold as rf

    rows, columns = np.load(path, mmap_mode="r").shape
    memory = max(rows * columns * 4 // 4 + rows * K * 16, 256 * 2**20)
    out = path.with_suffix(".zarr")
    shutil.rmtree(out, ignore_errors=True)
    where: dict[str, Any] = {"threads": THREADS, "memory": memory, "out": out, "overwrite": True}
    if min_recall is None:
        found = rf.knn(path, K, **where)
    else:
        found = rf.knn(path, K, solver="approximate", min_recall=min_recall, **where)
    last = found.run["attempts"][-1]
    told = {name: last[name] for name in ("planned_bytes", "measured_bytes", "sweep_seconds")}
    told |= {
        name: found.attrs[name] for name in ("recall", "recall_interval", "rounds") if name in found.attrs
    }
    return found.indices, told


def pynndescent(path: Path, *, neighbors: int) -> Lists:
    from pynndescent import NNDescent

    x = np.load(path)
    search = NNDescent(x, n_neighbors=neighbors, n_jobs=THREADS, random_state=0)
    names, distances = (each[:, : K + 1] for each in search.neighbor_graph)
    return without_self(names, distances)[0], {}


def hnswlib(path: Path, *, construction: int, search: int) -> Lists:
    import hnswlib

    x = np.load(path)
    index = hnswlib.Index("l2", x.shape[1])
    index.init_index(len(x), M=16, ef_construction=construction, random_seed=0)
    index.add_items(x, num_threads=THREADS)
    index.set_ef(search)
    names, squares = index.knn_query(x, K + 1, num_threads=THREADS)
    return without_self(names.astype(np.int64), squares)[0], {}


def faiss_flat(path: Path) -> Lists:
    import faiss

    x = np.load(path)
    faiss.omp_set_num_threads(THREADS)
    index = faiss.IndexFlatL2(x.shape[1])
    index.add(x)
    squares, names = index.search(x, K + 1)
    return without_self(names, squares)[0], {}


def faiss_ivf(path: Path, *, probes: int) -> Lists:
    import faiss

    x = np.load(path)
    faiss.omp_set_num_threads(THREADS)
    index: Any = faiss.index_factory(x.shape[1], f"IVF{int(np.sqrt(len(x)))},Flat")
    index.train(x[:: max(1, len(x) // 100_000)])
    index.add(x)
    index.nprobe = probes
    squares, names = index.search(x, K + 1)
    return without_self(names, squares)[0], {}


def faiss_descent(path: Path, *, rounds: int) -> Lists:
    import faiss

    x = np.load(path)
    faiss.omp_set_num_threads(THREADS)
    index = faiss.IndexNNDescentFlat(x.shape[1], 32)
    index.nndescent.iter = rounds
    index.add(x)
    squares, names = index.search(x, K + 1)
    return without_self(names, squares)[0], {}


CONTENDERS: dict[str, tuple[Callable[..., Lists], dict[str, Any]]] = {
    "rankfold, exact": (rankfold, {"min_recall": None}),
    "rankfold, min_recall 0.95": (rankfold, {"min_recall": 0.95}),
    "rankfold, min_recall 0.98": (rankfold, {"min_recall": 0.98}),
    "rankfold, min_recall 0.995": (rankfold, {"min_recall": 0.995}),
    "faiss flat, exact": (faiss_flat, {}),
    "pynndescent, as it comes": (pynndescent, {"neighbors": K + 1}),
    "pynndescent, 30 neighbors": (pynndescent, {"neighbors": 30}),
    "faiss IVF, 4 probes": (faiss_ivf, {"probes": 4}),
    "faiss IVF, 16 probes": (faiss_ivf, {"probes": 16}),
    "hnswlib, 100 and 32": (hnswlib, {"construction": 100, "search": 32}),
    "hnswlib, 200 and 64": (hnswlib, {"construction": 200, "search": 64}),
}


def clustered(path: Path, rows: int = ROWS) -> Path:
    """The matrix of the head of this file, written once."""
    if path.exists():
        return path
    rng = np.random.default_rng(SEED)
    clusters, plane, own = 1000, 24, 12
    basis = rng.standard_normal((plane, COLUMNS)) / np.sqrt(plane)
    centers = 2 * rng.standard_normal((clusters, plane)) @ basis
    share = 1 / np.sqrt(np.arange(1, clusters + 1))
    labels = rng.choice(clusters, rows, p=share / share.sum())
    spread = 1.5 / np.sqrt(own * (1 + np.arange(own)))
    directions = rng.standard_normal((clusters, own, COLUMNS)) * spread[:, None]
    x = np.lib.format.open_memmap(path.with_suffix(".part"), "w+", np.float32, (rows, COLUMNS))
    for start in range(0, rows, 10_000):
        some = labels[start : start + 10_000]
        noise = 0.05 * rng.standard_normal((len(some), COLUMNS))
        within = np.einsum("ij,ijk->ik", rng.standard_normal((len(some), own)), directions[some])
        x[start : start + 10_000] = centers[some] + within + noise
    x.flush()
    path.with_suffix(".part").rename(path)
    return path


def exact_farthest(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Some rows, and the squared distance of the last of their true neighbors, in float64."""
    rows = np.sort(np.random.default_rng(1).choice(len(x), TRUE_ROWS, replace=False))
    queries = x[rows].astype(np.float64)
    best = np.full((len(rows), K), np.inf)
    for start in range(0, len(x), 20_000):
        y = x[start : start + 20_000].astype(np.float64)
        apart = (queries**2).sum(1)[:, None] + (y**2).sum(1) - 2 * queries @ y.T
        here = np.flatnonzero((rows >= start) & (rows < start + len(y)))
        apart[here, rows[here] - start] = np.inf
        best = np.partition(np.concatenate([best, apart], axis=1), K - 1, axis=1)[:, :K]
    return rows, best.max(axis=1)


def recall(x: np.ndarray, names: np.ndarray, rows: np.ndarray, farthest: np.ndarray) -> float:
    near = x[names[rows]].astype(np.float64) - x[rows].astype(np.float64)[:, None]
    return float((np.einsum("ijk,ijk->ij", near, near) <= farthest[:, None] * (1 + 1e-9)).mean())


def child(name: str, path: Path, out: Path) -> None:
    """Be a contender once; the lists go to a file."""
    search, setting = CONTENDERS[name]
    x = np.load(path, mmap_mode="r")
    with tempfile.TemporaryDirectory() as folder:
        few = Path(folder) / "few.npy"
        np.save(few, x[:3000])
        search(few, **setting)
    with watched_memory() as memory:
        began = time.perf_counter()
        names, told = search(path, **setting)
        told["seconds"] = time.perf_counter() - began
    told["memory_bytes"] = memory.above_baseline
    np.save(out, np.asarray(names))
    print(json.dumps(told))


def run(path: Path, turns: int, only: list[str]) -> dict[str, Any]:
    x = np.load(path, mmap_mode="r")
    rows, farthest = exact_farthest(x)
    runs: dict[str, list[dict[str, Any]]] = {
        name: [] for name in CONTENDERS if any(part in name for part in only)
    }
    for _ in range(turns):
        for name, each in runs.items():
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "names.npy"
                command = [sys.executable, "-W", "ignore", __file__, "--child", name]
                blas = str(THREADS if "faiss" in name else 1)
                threads = {"OPENBLAS_NUM_THREADS": blas, "OMP_NUM_THREADS": str(THREADS)}
                environment = {**os.environ, **threads, "NUMBA_NUM_THREADS": str(THREADS)}
                command += ["--matrix", str(path), "--out", str(out)]
                told = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
                each.append(json.loads(told.stdout.splitlines()[-1]))
                each[-1]["true_recall"] = recall(x, np.load(out), rows, farthest)
            told = each[-1]
            print(
                f"  {name}: {told['seconds']:.1f} s, recall {told['true_recall']:.4f}, "
                f"{told['memory_bytes'] / 2**20:.0f} MiB",
                flush=True,
            )
    return {"shape": list(x.shape), "runs": runs}


def rows_of_page(told: dict[str, Any]) -> list[str]:
    """Of a table."""
    lines = ["| | seconds | recall | MiB above the start |", "|---|---|---|---|"]
    for name, each in told["runs"].items():
        seconds, memory = (statistics.median(one[key] for one in each) for key in ("seconds", "memory_bytes"))
        share = statistics.median(one["true_recall"] for one in each)
        lines.append(f"| {name} | {seconds:.1f} | {share:.4f} | {memory / 2**20:.0f} |")
    return lines


def page(results: Path) -> str:
    lines = [
        "# Neighbors, exact and nearly so, beside their peers",
        "",
        "Made by `benchmarks/approximate.py`.",
        "",
    ]
    clusters = json.loads((results / "approximate.json").read_text())
    real = json.loads((results / "neighbors_of_sets.json").read_text())
    sets = {"made-up clusters": (clusters, clusters["machine"])}
    sets |= {name: (told, real["machine"]) for name, told in real["sets"].items()}
    for name, (told, where) in sets.items():
        rows, columns = told["shape"]
        lines += [
            f"## {name.capitalize()}",
            "",
            f"{rows} x {columns}, {K} neighbors, {THREADS} threads; {where['processor']}.",
            "",
        ]
        lines += [*rows_of_page(told), ""]
        for setting, each in told["runs"].items():
            if "recall_interval" in each[-1]:
                low, high = each[-1]["recall_interval"]
                lines.append(
                    f"- {setting}: {each[-1]['rounds']} rounds, reported recall {each[-1]['recall']:.4f} "
                    f"({low:.4f} to {high:.4f}); {each[-1]['measured_bytes'] / 2**20:.0f} of "
                    f"{each[-1]['planned_bytes'] / 2**20:.0f} MiB planned"
                )
        lines.append("")
    lines += [
        "Numbers of hnswlib are `ef_construction` and `ef`. Memory of peers has the matrix, which they hold. "
        "Recall is the share of neighbors that are as near as the exact ones, on 1000 rows.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/rankfold-data"))
    parser.add_argument("--sets", type=Path, help="folder of the real sets, which are fetched into it")
    parser.add_argument("--of", nargs="+", choices=list(real_sets.SETS), default=list(NEIGHBORS_OF))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/approximate.json"))
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--page", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--matrix", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.matrix, options.out)
    elif options.page:
        options.page.write_text(page(options.out.parent))
    else:
        options.folder.mkdir(parents=True, exist_ok=True)
        told: dict[str, Any] = {"machine": machine()}
        if options.sets:
            told["sets"] = {}
            for name in options.of:
                path = options.folder / f"{name}.npy"
                np.save(path, real_sets.load(options.sets, name)[0])
                print(name, flush=True)
                told["sets"][name] = run(path, options.turns, options.only)
                options.out.write_text(json.dumps(told, indent=1) + "\n")
                path.unlink()
        else:
            path = clustered(options.folder / "clustered_1000000.npy")
            told |= run(path, options.turns, options.only)
            options.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
