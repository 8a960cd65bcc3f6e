"""t-SNE beside openTSNE and scikit-learn: seconds by stage, divergence, trustworthiness, peak memory.

    python benchmarks/tsne.py --images fashion_mnist.npz --out benchmarks/results/tsne.json
    python benchmarks/tsne.py --million --out benchmarks/results/tsne_million.json

Images of 784 float32. Neighbors and two principal components are found once; openTSNE and rankfold have the
same of both, 250 early steps and 500 more, in two threads each and in turns, every run in a process of its
own. scikit-learn searches its own neighbors, and openTSNE's tree is slow: both take part with fewer images.
Seconds of the wall say little where others use the machine; those of the processor count what was computed.
With --million a million points on a surface are embedded once, and memory is what it is about.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import multiprocessing
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

THREADS = "2"
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = THREADS

import numpy as np

import rankfold as rf

PERPLEXITY, K, EARLY, LATE = 30, 90, 250, 500
FEW = 10_000
SAMPLE_ROWS = 5000

Array = np.ndarray[Any, Any]


def clocks() -> tuple[float, float]:
    """Of the wall and of the processor."""
    return time.perf_counter(), time.process_time()


def since(began: tuple[float, float]) -> dict[str, float]:
    wall, processor = clocks()
    return {"wall": round(wall - began[0], 2), "processor": round(processor - began[1], 2)}


def ours(folder: Path) -> dict[str, Any]:
    """The call, with all that it does besides, after a short one that loads compiled loops."""
    start = np.load(folder / "start.npy")
    small = rf.knn(np.random.default_rng(0).standard_normal((4000, 3)), 15)
    rf.tsne(small, perplexity=5, n_iter=2, early_exaggeration_iter=2, init="random", threads=2)
    began = clocks()
    out = folder / "ours.zarr"
    result = rf.tsne(folder / "near.zarr", init=start, n_iter=LATE, threads=2, out=out, overwrite=True)
    seconds = {"all": since(began)}
    np.save(folder / "rankfold.npy", result.embedding[...])
    run = result.run
    graph = run["steps"]["graph"][-1]
    stages = {"affinities": graph["seconds"], "descent": run["attempts"][-1]["seconds"]}
    facts = {name: result.attrs[name] for name in ("kl_divergence", "repulsion_error", "grid_spacing")}
    return {"seconds": seconds, "stages": stages, **facts}


def theirs(folder: Path, method: str) -> dict[str, Any]:
    """openTSNE with the neighbors that were found."""
    from openTSNE import TSNEEmbedding, affinity, initialization, nearest_neighbors

    near = rf.open_result(folder / "near.zarr")
    lists = np.asarray(near.indices[...]), np.asarray(near.distances[...])
    seconds, began = {}, clocks()
    search = nearest_neighbors.PrecomputedNeighbors(*lists)
    weights = affinity.PerplexityBasedNN(knn_index=search, perplexity=PERPLEXITY, n_jobs=2)
    seconds["affinities"] = since(began)
    start = initialization.rescale(np.load(folder / "start.npy").astype(np.float64))
    embedding = TSNEEmbedding(start, weights, negative_gradient_method=method, n_jobs=2)
    for name, steps, how in (("early", EARLY, {"exaggeration": 12}), ("late", LATE, {})):
        stage = clocks()
        embedding = embedding.optimize(steps, momentum=0.8, max_step_norm=5, **how)
        seconds[name] = since(stage)
    seconds["all"] = since(began)
    np.save(folder / f"openTSNE {method}.npy", np.asarray(embedding))
    return {"seconds": seconds, "kl_divergence": float(embedding.kl_divergence)}


def scikit(folder: Path) -> dict[str, Any]:
    """scikit-learn from the same start, with its own neighbors and steps."""
    from sklearn.manifold import TSNE

    start, began = np.load(folder / "start.npy"), clocks()
    start = (start / start[:, 0].std() * 1e-4).astype(np.float32)
    x = np.load(folder / "x.npy")
    fit = TSNE(init=start, max_iter=EARLY + LATE, n_jobs=2, random_state=0).fit(x)
    np.save(folder / "scikit-learn.npy", fit.embedding_)
    return {"seconds": {"all": since(began)}, "kl_divergence": float(fit.kl_divergence_)}


def apart(work: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What it says in a process of its own, and how much memory that took."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_with_memory, (work, arguments))


def _with_memory(work: Callable[..., dict[str, Any]], arguments: tuple[Any, ...]) -> dict[str, Any]:
    told = work(*arguments)
    # Of this process alone: what getrusage tells includes the one that it was forked from.
    (peak,) = (
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    return {**told, "peak MiB": int(peak.split()[1]) // 1024}


def compare(
    x: Array, folder: Path, peers: dict[str, tuple[Any, ...]], rounds: int, near: Path | None = None
) -> dict[str, Any]:
    """All of them in turns, from one search and one start."""
    np.save(folder / "x.npy", x)
    told: dict[str, Any] = {"rows": len(x), "runs": {name: [] for name in peers}}
    if near is None:
        began = clocks()
        rf.knn(x, K, min_recall=0.99, threads=2, out=folder / "near.zarr", overwrite=True)
        told["search"] = since(began)
    else:
        shutil.copytree(near, folder / "near.zarr")
    np.save(folder / "start.npy", np.asarray(rf.pca(x, 2, tol=1e-2, threads=2).scores[...]))
    for _ in range(rounds):
        for name, (work, *arguments) in peers.items():
            told["runs"][name].append(apart(work, folder, *arguments))
            print(name, json.dumps(told["runs"][name][-1]), flush=True)
    for name in peers:
        embedding = np.load(folder / f"{name}.npy").astype(np.float32)
        how = {"sample_rows": min(len(x), SAMPLE_ROWS)}
        told["runs"][name][-1]["trustworthiness"] = float(rf.trustworthiness(x, embedding, 15, **how))
        told["runs"][name][-1]["continuity"] = float(rf.continuity(x, embedding, 15, **how))
        print(name, told["runs"][name][-1], flush=True)
    return told


def million(folder: Path) -> dict[str, Any]:
    """A million points on a rolled surface in three dimensions."""
    rng, rows = np.random.default_rng(0), 1_000_000
    turn = 1.5 * np.pi * (1 + 2 * rng.random(rows))
    x = np.stack([turn * np.cos(turn), 21 * rng.random(rows), turn * np.sin(turn)], axis=1)
    began = clocks()
    near = rf.knn(x, 30, threads=2, out=folder / "near.zarr")
    search = since(began)
    began = clocks()
    how = {"perplexity": 10, "n_iter": 100, "early_exaggeration_iter": 100, "memory": "2GiB", "threads": 2}
    result = rf.tsne(near, init=x[:, :2], out=folder / "r.zarr", **how)
    attempt = result.run["attempts"][-1]
    memory = {name: attempt[name] // 2**20 for name in ("measured_bytes", "peak_bytes")}
    facts = ("steps", "kl_divergence", "affinities", "repulsion_error", "grid_spacing")
    told = {"rows": rows, "search": search, "seconds": since(began), "MiB": memory}
    return {**told, **{name: result.attrs[name] for name in facts}}


def main() -> None:
    """Compare, say, and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--images", type=Path, default=os.environ.get("RANKFOLD_IMAGES"))
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--near", type=Path, help="what rf.knn(x, 90) of all images wrote, if it did")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    names = ("numpy", "numba", "scipy", "scikit-learn") + ("openTSNE",) * (not arguments.million)
    versions = {name: importlib.metadata.version(name) for name in names}
    told: dict[str, Any] = {"machine": platform.machine(), "cores": os.cpu_count(), "threads": 2}
    told["load before"], told["versions"] = os.getloadavg()[0], versions
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.million:
            told["million"] = million(folder)
        else:
            x = np.load(arguments.images)["X"].astype(np.float32)
            grids = {"rankfold": (ours,), "openTSNE fft": (theirs, "fft")}
            told["all"] = compare(x, folder, grids, arguments.rounds, arguments.near)
            arguments.out.write_text(json.dumps(told, indent=1) + "\n")
            few = {**grids, "openTSNE bh": (theirs, "bh"), "scikit-learn": (scikit,)}
            some = np.random.default_rng(0).permutation(len(x))[:FEW]
            told["few"] = compare(x[np.sort(some)], folder, few, 1)
    told["load after"] = os.getloadavg()[0]
    arguments.out.write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
