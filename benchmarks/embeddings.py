"""From a matrix to a picture, stage by stage: seconds, memory and quality, ours beside umap-learn.

    python benchmarks/embeddings.py fashion --images FILE.npz --out benchmarks/results/embeddings.json
    python benchmarks/embeddings.py million --folder SCRATCH --out benchmarks/results/embeddings_million.json

``fashion``: 70 000 images of 784 float32, 15 neighbors with the image itself. Each system makes a picture of
its own, from the matrix on, in a process of its own, two threads, in turns. ``million``: 1 000 000 x 50
float32 of clusters (see ``clusters``) in Zarr, one workflow in 2 GiB on two threads. Memory is the most above
that of a process that has imported its library and holds nothing. Quality is of 5000 rows and 15 neighbors.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import multiprocessing
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "2"

import numpy as np

K = 14
SAMPLE_ROWS = 5000
MOST_RETRIES = 2
MEMORY = "2GiB"
Array = np.ndarray[Any, Any]
Stages = dict[str, float]


class Clock:
    """Seconds of stages, one after the other."""

    def __init__(self) -> None:
        self.stages: Stages = {}
        self.last = time.perf_counter()

    def stage(self, name: str) -> None:
        now = time.perf_counter()
        self.stages[name], self.last = round(now - self.last, 2), now


def ours(images: Path, folder: Path, clock: Clock) -> Array:
    """Exact neighbors, the graph, components to begin at, the layout."""
    import rankfold as rf

    x = rf.open(images)
    neighbors = rf.knn(x, K, threads=2, out=folder / "near.zarr")
    clock.stage("neighbors")
    return _laid_out(x, neighbors, folder, clock)


def ours_approximate(images: Path, folder: Path, clock: Clock) -> Array:
    """The same with approximate neighbors."""
    import rankfold as rf

    x = rf.open(images)
    neighbors = rf.knn(x, K, min_recall=0.95, solver="approximate", threads=2, out=folder / "near.zarr")
    clock.stage("neighbors")
    return _laid_out(x, neighbors, folder, clock)


def _laid_out(x: Any, neighbors: Any, folder: Path, clock: Clock) -> Array:
    import rankfold as rf

    graph = rf.fuzzy_graph(neighbors, out=folder / "graph.zarr")
    clock.stage("graph")
    start = rf.pca(x, 2, tol=1e-2, threads=2, out=folder / "start.zarr")
    clock.stage("start")
    result = rf.umap(graph, init=start, threads=2, out=folder / "picture.zarr")
    clock.stage("layout")
    return np.asarray(result.embedding[...])


def umap_learn(images: Path, clock: Clock, *, seed: int | None) -> Array:
    """Its own neighbors, graph, spectral start and layout."""
    import umap
    from umap.umap_ import nearest_neighbors

    x = np.load(images)
    how = {"random_state": seed, "n_jobs": 1 if seed is not None else 2}
    state = np.random.RandomState(seed)
    lists = nearest_neighbors(x, K + 1, "euclidean", {}, False, state, n_jobs=how["n_jobs"])
    clock.stage("neighbors")
    model = umap.UMAP(precomputed_knn=lists, n_neighbors=K + 1, **how)
    picture: Array = model.fit_transform(x)
    clock.stage("graph, start and layout")
    return picture


def in_process(call: Callable[..., Array], arguments: tuple[Any, ...]) -> tuple[Array, Stages, int]:
    """What a call makes in a new process, the seconds of its stages, and its most memory above the start."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "picture.npy"
        process = context.Process(target=_measured, args=(call, arguments, out))
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(f"{call.__name__} ended with {process.exitcode}")
        facts = json.loads(out.with_suffix(".json").read_text())
        return np.load(out), facts["stages"], facts["bytes"]


def memory_peak(*, anew: bool = False) -> int:
    """Most bytes that this process has held, since it was asked for anew: a child begins at its parent's."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def _measured(call: Callable[..., Array], arguments: tuple[Any, ...], out: Path) -> None:
    warnings.simplefilter("ignore")
    if "umap_learn" in call.__name__:
        import umap  # noqa: F401
    else:
        import rankfold  # noqa: F401
    before = memory_peak(anew=True)
    clock = Clock()
    picture = call(*arguments, clock)
    most = memory_peak()
    np.save(out, picture)
    out.with_suffix(".json").write_text(json.dumps({"stages": clock.stages, "bytes": most - before}))


def seeded_umap_learn(images: Path, clock: Clock) -> Array:
    return umap_learn(images, clock, seed=0)


def parallel_umap_learn(images: Path, clock: Clock) -> Array:
    return umap_learn(images, clock, seed=None)


def quality(x: Array, picture: Array) -> dict[str, float]:
    import rankfold as rf

    near, there = rf.knn(picture.astype(np.float32), K + 1), rf.knn(x, K + 1, min_recall=0.99)
    return {
        "trustworthiness": round(float(rf.trustworthiness(x, picture, K + 1, sample_rows=SAMPLE_ROWS)), 4),
        "continuity": round(float(rf.continuity(x, picture, K + 1, sample_rows=SAMPLE_ROWS)), 4),
        "preservation": round(float(rf.neighborhood_preservation(there, near)), 4),
    }


def fashion(images: Path) -> dict[str, Any]:
    """All systems on all images, in turns."""
    x = np.load(images)["X"].astype(np.float32).reshape(70_000, -1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "x.npy", x)
        systems: dict[str, tuple[Callable[..., Array], tuple[Any, ...]]] = {
            "rankfold": (ours, (folder / "x.npy", folder)),
            "rankfold, approximate neighbors": (ours_approximate, (folder / "x.npy", folder)),
            "umap-learn, parallel": (parallel_umap_learn, (folder / "x.npy",)),
            "umap-learn, seeded": (seeded_umap_learn, (folder / "x.npy",)),
        }
        found: dict[str, list[dict[str, Any]]] = {label: [] for label in systems}
        for turn in range(MOST_RETRIES):
            for label, (call, arguments) in systems.items():
                for old in folder.glob("*.zarr*"):
                    shutil.rmtree(old)
                picture, stages, size = in_process(call, arguments)
                facts = {"seconds": round(sum(stages.values()), 2), "stages": stages, "bytes": size}
                found[label].append({**facts, **(quality(x, picture) if turn == 0 else {})})
                print(label, found[label][-1], flush=True)
    medians = {label: statistics.median(each["seconds"] for each in runs) for label, runs in found.items()}
    return {"rows": len(x), "median seconds": medians, "runs": found}


def clusters(path: Path, rows: int, columns: int = 50, count: int = 200) -> None:
    """Gaussian clusters of ten dimensions in fifty, of unequal sizes, in Zarr chunks of 16384 rows."""
    import zarr

    rng = np.random.default_rng(0)
    centers = 6 * rng.standard_normal((count, columns))
    shares = rng.dirichlet(np.full(count, 2.0))
    bases = rng.standard_normal((count, 10, columns)) / np.sqrt(columns)
    height = 16_384
    array = zarr.create_array(path, shape=(rows, columns), dtype="f4", chunks=(height, columns))
    for start in range(0, rows, height):
        size = min(height, rows - start)
        label = rng.choice(count, size, p=shares)
        inner = rng.standard_normal((size, 10)) * 4
        block = centers[label] + np.einsum("ij,ijk->ik", inner, bases[label])
        array[start : start + size] = block + 0.1 * rng.standard_normal((size, columns))


WORKFLOW = """\
workflow: picture
inputs:
  x: {store: x.zarr}
stages:
  near: {method: knn, input: x, k: 14, min_recall: 0.95}
  start: {method: pca, input: x, rank: 2, tol: 0.01}
  weights: {method: fuzzy_graph, neighbors: near}
  picture: {method: umap, neighbors: weights, init: start, quality: x}
outputs: results
resources: {memory: MEMORY, threads: 2}
"""


def million(folder: Path, rows: int) -> dict[str, Any]:
    """One workflow, as ``rankfold run`` carries it out."""
    import subprocess

    import rankfold as rf

    folder.mkdir(parents=True, exist_ok=True)
    clusters(folder / "x.zarr", rows)
    (folder / "picture.yaml").write_text(WORKFLOW.replace("MEMORY", MEMORY))
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "rankfold", "run", str(folder / "picture.yaml")], check=True)
    whole = time.perf_counter() - began
    stages = {}
    for name in ("near", "start", "weights", "picture"):
        result = rf.open_result(folder / "results" / f"{name}.zarr")
        steps = {**result.run.get("steps", {}), name: result.run["attempts"]}
        attempts = {step: each[-1] for step, each in steps.items()}
        stages[name] = {
            step: {key: each[key] for key in ("seconds", "planned_bytes", "measured_bytes")}
            for step, each in attempts.items()
        }
    names = ("trustworthiness", "continuity", "preservation")
    facts = {each: result.attrs[each] for name in names for each in (name, f"{name}_error")}
    recall = rf.open_result(folder / "results" / "near.zarr").attrs["recall_interval"]
    shutil.rmtree(folder)
    return {"rows": rows, "memory": MEMORY, "seconds": whole, "stages": stages, "recall": recall, **facts}


def main() -> None:
    """Compare, say, and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("fashion", "million"))
    parser.add_argument("--images", type=Path)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    found = (
        fashion(arguments.images)
        if arguments.what == "fashion"
        else million(arguments.folder, arguments.rows)
    )
    versions = {name: importlib.metadata.version(name) for name in ("umap-learn", "numba", "numpy")}
    facts = {"machine": platform.machine(), "cores": os.cpu_count(), "versions": versions}
    arguments.out.write_text(json.dumps({**facts, **found}, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
