"""Neighbors of points in three dimensions, beside SciPy's k-d tree; a radius graph in a periodic box.

    python benchmarks/few_dimensions.py --points 10000000 --out benchmarks/results/few_dimensions.json

Points lie in a .npy file, and each measurement is a process of its own, in which everything is compiled. Ours
goes from the file to lists on disk within ``--memory``; SciPy's from the file to lists in memory, by
``--threads`` workers. Peak memory is the most that a process held in pages of its own, above what it held
before.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

K = 15
BOX = 100.0
SAMPLE = 200


def points(kind: str, count: int) -> np.ndarray:
    """Points of one kind: evenly spread, or half of them in clusters of a thousand, by a power law."""
    r = np.random.default_rng(0)
    x = r.random((count, 3)) * BOX
    if kind == "clustered":
        centers = r.random((max(1, count // 1000), 3)) * BOX
        some = count // 2
        x[:some] = centers[r.integers(0, len(centers), some)] + r.standard_cauchy((some, 3)) * 0.01
        r.shuffle(x)
    return x


class Peak:
    """Samples the anonymous memory of this process."""

    def __enter__(self) -> Peak:
        self.before = self.most = anonymous()
        self._end = threading.Event()
        self._watch = threading.Thread(target=self._sample, daemon=True)
        self._watch.start()
        return self

    def _sample(self) -> None:
        while not self._end.wait(0.01):
            self.most = max(self.most, anonymous())

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._watch.join()

    @property
    def above(self) -> int:
        """Bytes above the start."""
        return self.most - self.before


def anonymous() -> int:
    """Pages of this process's own, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def timed(call: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What a call gives, its seconds and its memory."""
    with Peak() as peak:
        began = time.perf_counter()
        value = call()
        seconds = time.perf_counter() - began
    return value, {"seconds": round(seconds, 2), "peak_MiB": round(peak.above / 2**20)}


def ours(file: Path, folder: Path, threads: int, memory: str) -> dict[str, Any]:
    """``rankfold.knn``, and some lists for comparison."""
    import rankfold as rf

    rf.knn(points("uniform", 5000), K, solver="tree")
    how: dict[str, Any] = {
        "threads": threads,
        "memory": memory,
        "out": folder / "knn.zarr",
        "overwrite": True,
    }
    result, numbers = timed(lambda: rf.knn(str(file), K, **how))
    attempt = result.run["attempts"][-1]
    rows = sample_of(len(np.load(file, mmap_mode="r")))
    lists = np.stack([result.indices[int(row)] for row in rows])
    return {
        **numbers,
        "planned_MiB": round(attempt["planned_bytes"] / 2**20),
        "measured_MiB": round(attempt["measured_bytes"] / 2**20),
        "lists": lists.tolist(),
    }


def sample_of(count: int) -> np.ndarray:
    """Rows whose lists are compared."""
    return np.unique(np.linspace(0, count - 1, SAMPLE).astype(np.int64))


def scipy_tree(file: Path, folder: Path, threads: int, memory: str) -> dict[str, Any]:
    """``cKDTree``, with all in memory."""
    from scipy.spatial import cKDTree

    x = np.load(file)
    tree, building = timed(lambda: cKDTree(x))
    (_, indices), query = timed(lambda: tree.query(x, K + 1, workers=threads))
    lists = indices[sample_of(len(x)), 1:]
    return {
        "seconds": round(building["seconds"] + query["seconds"], 2),
        "building_seconds": building["seconds"],
        "query_seconds": query["seconds"],
        "peak_MiB": building["peak_MiB"] + query["peak_MiB"],
        "lists": lists.tolist(),
    }


def radius_graph(file: Path, folder: Path, threads: int, memory: str) -> dict[str, Any]:
    """``rankfold.radius_neighbors`` in a periodic box, with some 50 neighbors each, beside brute force."""
    import rankfold as rf

    x = np.load(file)
    within = (50 / len(x) * BOX**3 * 3 / (4 * np.pi)) ** (1 / 3)
    rf.radius_neighbors(x[:5000], within, box=BOX)
    how: dict[str, Any] = {"threads": threads, "memory": memory, "box": BOX}
    out = folder / "radius.zarr"
    result, numbers = timed(lambda: rf.radius_neighbors(str(file), within, **how, out=out, overwrite=True))
    graph, wrong = result.graph, 0
    for row in sample_of(len(x)):
        apart = np.abs(x - x[row])
        apart = np.minimum(apart, BOX - apart)
        keys = np.sqrt((apart[:, 0] ** 2 + apart[:, 1] ** 2) + apart[:, 2] ** 2)
        near = np.flatnonzero(keys <= within)
        near = near[near != row]
        near = near[np.lexsort((near, keys[near]))]
        own = slice(graph.indptr[row], graph.indptr[row + 1])
        wrong += not np.array_equal(graph.indices[own], near)
    return {**numbers, "edges": result.attrs["edges"], "radius": within, "rows_that_differ": wrong}


CHILDREN = {"rankfold": ours, "scipy": scipy_tree, "radius": radius_graph}


def child(name: str, file: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """One measurement in a process of its own."""
    command = [sys.executable, __file__, "--child", name, "--file", str(file)]
    command += ["--folder", str(arguments.folder), "--threads", str(arguments.threads)]
    command += ["--memory", arguments.memory]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    numbers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return numbers


def main() -> None:
    """Measure, print, and keep what was asked to be kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=10**6)
    parser.add_argument("--radius-points", type=int, default=10**6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", default="2GiB")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", choices=CHILDREN)
    parser.add_argument("--file", type=Path)
    arguments = parser.parse_args()
    if arguments.child:
        where = arguments.file, arguments.folder, arguments.threads, arguments.memory
        print(json.dumps(CHILDREN[arguments.child](*where)))
        return
    record: dict[str, Any] = {
        "points": arguments.points,
        "k": K,
        "threads": arguments.threads,
        "machine": platform.processor() or platform.machine(),
        "versions": {name: version(name) for name in ("numpy", "scipy", "numba")},
    }
    file = arguments.folder / "points.npy"
    for kind in ("uniform", "clustered"):
        np.save(file, points(kind, arguments.points))
        found = {name: child(name, file, arguments) for name in ("rankfold", "scipy")}
        lists = [each.pop("lists") for each in found.values()]
        found["rows_that_differ"] = sum(a != b for a, b in zip(*lists, strict=True))
        record[kind] = found
        print(kind, json.dumps(found), flush=True)
    np.save(file, points("uniform", arguments.radius_points))
    record["radius"] = {"points": arguments.radius_points, **child("radius", file, arguments)}
    print("radius", json.dumps(record["radius"]), flush=True)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
