"""Layouts of one graph from one start: seconds and quality, ours beside umap-learn's.

    python benchmarks/umap_layout.py FOLDER --sets digits words --out benchmarks/results/umap_layout.json
    python benchmarks/umap_layout.py FOLDER --rows 15000 --starts components eigenvectors random ...

Sets of ``real_sets.py``, 15 neighbors with the row itself, 200 epochs. Layouts take turns from each start:
two principal components; eigenvectors of the graph, each system by its own way, which are its default;
anywhere. In one thread umap-learn keeps to its seed, in two it does not. Seconds are of umap-learn's epochs
alone, and of the whole call of ours, eigenvectors included: of the processor in one thread, by the wall in
two. Quality is that of each seed: trustworthiness and continuity of a sample of rows among all,
trustworthiness of a sample by itself, the share of rows whose class most of their 10 neighbors in the plane
have, and preservation of the neighbors of all rows.
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import itertools
import json
import os
import platform
import statistics
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["NUMBA_NUM_THREADS"] = "2"

import numba
import numpy as np
import real_sets
from umap.layouts import optimize_layout_euclidean
from umap.spectral import spectral_layout
from umap.umap_ import make_epochs_per_sample

import rankfold as rf
from rankfold.methods.embedding.start import start_positions
from rankfold.methods.umap.arguments import UmapArguments

K = 14
EPOCHS = 200
SAMPLE_ROWS = 5000
ROWS_BY_THEMSELVES = 4000
CLASS_NEIGHBORS = 10
COMPONENTS, EIGENVECTORS, ANYWHERE = STARTS = ("components", "eigenvectors", "random")

Array = np.ndarray[Any, Any]


def theirs(graph: Any, start: Array, seed: int, threads: int, epochs: int = EPOCHS) -> Array:
    """A layout of umap-learn: by its seed in one thread."""
    edges, positions = graph.tocoo(), start.copy()
    keep = edges.data >= edges.data.max() / EPOCHS
    ends = edges.row[keep], edges.col[keep]
    periods = make_epochs_per_sample(edges.data[keep], EPOCHS)
    state = np.random.RandomState(seed).randint(-(2**31), 2**31 - 1, 3).astype(np.int64)
    how = (epochs, len(start), periods, *UmapArguments().curve(), state)
    numba.set_num_threads(threads)
    return optimize_layout_euclidean(positions, positions, *ends, *how, parallel=threads > 1, move_other=True)


def ours(graph: rf.Result, start: object, seed: int, threads: int, folder: Path) -> Array:
    """A layout of ours, with all that a run does besides."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        how: dict[str, Any] = {"n_epochs": EPOCHS, "seed": seed, "threads": threads}
        result = rf.umap(graph, init=start, **how, out=Path(out) / "r.zarr")
        return np.asarray(result.embedding[...])


def starts_of(x: Array, graph: Any, names: Sequence[str]) -> dict[str, tuple[Array, object]]:
    """Positions that umap-learn begins at, and what ours is told, by the name of the start."""
    rows = len(x)
    components = np.asarray(rf.pca(x, 2).scores[...])
    found: dict[str, tuple[Array, object]] = {
        COMPONENTS: (start_positions(components, rows, 2, 0), components),
        ANYWHERE: (start_positions(None, rows, 2, 0), "random"),
    }
    if EIGENVECTORS in names:
        vectors = spectral_layout(x, graph, 2, np.random.RandomState(0))
        found[EIGENVECTORS] = start_positions(vectors, rows, 2, 0), "spectral"
    return {name: found[name] for name in names}


def quality(x: Array, classes: Array | None, embedding: Array, neighbors: rf.Result) -> dict[str, float]:
    near = rf.knn(embedding.astype(np.float32), K)
    some = np.random.default_rng(0).permutation(len(x))[:ROWS_BY_THEMSELVES]
    found = {"trustworthiness within a sample": float(rf.trustworthiness(x[some], embedding[some], K + 1))}
    if classes is not None:
        votes = classes[near.indices[:, :CLASS_NEIGHBORS]]
        counts = np.stack([(votes == each).sum(axis=1) for each in range(classes.max() + 1)], axis=1)
        found["classes"] = float((counts.argmax(axis=1) == classes).mean())
    return {
        **found,
        "trustworthiness": float(
            rf.trustworthiness(x, embedding, K + 1, sample_rows=min(len(x), SAMPLE_ROWS))
        ),
        "continuity": float(rf.continuity(x, embedding, K + 1, sample_rows=min(len(x), SAMPLE_ROWS))),
        "preservation": float(rf.neighborhood_preservation(neighbors, near)),
    }


def compare(
    x: Array, classes: Array | None, names: Sequence[str], threads_of: Sequence[int], seeds: int, folder: Path
) -> dict[str, Any]:
    neighbors = rf.knn(x, K, out=folder / "neighbors.zarr")
    graph = rf.fuzzy_graph(neighbors, out=folder / "graph.zarr")
    weights = graph.graph
    starts = starts_of(x, weights, names)
    for threads in threads_of:
        theirs(weights, start_positions(None, len(x), 2, 0), 0, threads, epochs=1)  # compiles
    rf.umap(graph, n_epochs=1)
    found: dict[str, Any] = {}
    turns = itertools.product(range(seeds), threads_of, starts.items())
    for seed, threads, (start, (positions, told)) in turns:
        sides = {
            "umap-learn": functools.partial(theirs, weights, positions),
            "rankfold": functools.partial(ours, graph, told, folder=folder),
        }
        clock = time.process_time if threads == 1 else time.perf_counter
        for name, layout in sides.items():
            began = clock()
            embedding = layout(seed=seed, threads=threads)
            run = {"seconds": clock() - began, **quality(x, classes, embedding, neighbors)}
            found.setdefault(_title(name, start, threads), []).append(run)
    ratios = {
        _title("", start, threads): _times_faster(found, start, threads)
        for start, threads in itertools.product(starts, threads_of)
    }
    return {**found, "times faster, median": ratios}


def _title(name: str, start: str, threads: int) -> str:
    return ", ".join(filter(None, (name, start, f"{threads} threads" * (threads > 1))))


def _times_faster(found: dict[str, Any], start: str, threads: int) -> float:
    peer, own = (found[_title(name, start, threads)] for name in ("umap-learn", "rankfold"))
    return statistics.median(a["seconds"] / b["seconds"] for a, b in zip(peer, own, strict=True))


def table(found: dict[str, Any]) -> str:
    """Medians of each measure over the seeds, a line for each layout."""
    lines = []
    for name, runs in found.items():
        if isinstance(runs, list):
            medians = (
                f"{measure} {statistics.median(run[measure] for run in runs):.4g}" for measure in runs[0]
            )
            lines.append(f"  {name:28} {', '.join(medians)}")
    return "\n".join(lines)


def main() -> None:
    """Compare, say, and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the sets, which are fetched into it")
    parser.add_argument("--sets", nargs="+", default=list(real_sets.SETS), choices=list(real_sets.SETS))
    parser.add_argument("--rows", type=int, help="as many of each set, drawn")
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=[COMPONENTS])
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    versions = {name: importlib.metadata.version(name) for name in ("umap-learn", "numba", "numpy")}
    facts = {"machine": platform.machine(), "cores": os.cpu_count(), "epochs": EPOCHS, "versions": versions}
    found: dict[str, Any] = {}
    for name in arguments.sets:
        x, classes = real_sets.load(arguments.folder, name)
        some = np.sort(np.random.default_rng(0).permutation(len(x))[: arguments.rows])
        x, classes = x[some], None if classes is None else classes[some].astype(np.int64)
        with tempfile.TemporaryDirectory() as folder:
            how = arguments.starts, arguments.threads, arguments.seeds, Path(folder)
            found[name] = {"rows": len(x), "columns": x.shape[1], **compare(x, classes, *how)}
        print(f"{name}, {x.shape[0]} x {x.shape[1]}\n{table(found[name])}", flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps({**facts, "sets": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
