"""Products of sparse rows beside SciPy's: both products with a block, the Gram matrix, and nearest neighbors.

    python benchmarks/sparse_products.py --folder /tmp/rankfold-data --out benchmarks/results/sparse.json
    python benchmarks/sparse_products.py --part gram --pbmc pbmc3k_counts.npz

Processor seconds of one thread. Contenders take turns, medians count, and what is compared is a ratio: the
machine may have other work. ``pass`` is Y = A Q and Z = A'Y, with both orders of the nonzeros kept, and with
the columns' order made from each panel as it would be read from disk; SciPy has CSR alone, as ``A @ Q`` and
``A.T @ Y``. Q, Y and Z lie as each side likes them: ours in slabs, SciPy's in one piece. ``gram`` is the
upper triangle of A'A in float64, beside a dense copy that BLAS multiplies, and beside ``A.T @ A``. ``knn`` is
the whole call ``rankfold.knn`` for some rows, by cosine, beside scikit-learn's search by all pairs, which
counts a row among its own neighbors and is asked for one more.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
import scipy
import scipy.sparse as sp
from scipy.linalg import blas
from sparse_matrices import KINDS, matrix, normalized

from rankfold.kernels._dispatch import aligned_empty
from rankfold.kernels.sparse.gram import add_gram
from rankfold.kernels.sparse.products import add_columns, column_order, multiply_rows, order_columns
from rankfold.kernels.sparse.slabs import cut_block, join_slabs, slab_shape

Call = Callable[[], Any]

WIDTHS = (64, 128)
PANEL_BYTES, PANEL_NONZEROS = 2**20, 2**21
"""A slab of Y of a panel, and the most nonzeros: it grows to two nonzeros a column, or to 4 MiB."""
NEIGHBOR_ROWS, NEIGHBORS = 5000, 15
MOST_PAIRS = 4e8
"""``A.T @ A`` is left out beyond."""


def timed(
    contenders: dict[str, Call], turns: int, clock: Callable[[], float] = time.thread_time
) -> dict[str, float]:
    """Median seconds of each."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for call in contenders.values():
        call()
    for _ in range(turns):
        for name, call in contenders.items():
            began = clock()
            call()
            seconds[name].append(clock() - began)
    return {name: statistics.median(each) for name, each in seconds.items()}


def panels(indptr: np.ndarray, columns: int) -> list[int]:
    """Edges of panels, from the pointers alone."""
    edges, rows, step = [0], len(indptr) - 1, PANEL_BYTES // 256
    while edges[-1] < rows:
        first = edges[-1]
        stop = min(rows, first + step)
        while stop < min(rows, first + 4 * step) and indptr[stop] - indptr[first] < 2 * columns:
            stop = min(rows, stop + step)
        most = int(np.searchsorted(indptr, indptr[first] + PANEL_NONZEROS, side="right")) - 1
        edges.append(max(first + 1, min(stop, most)))
    return edges


def measure_pass(a: sp.csr_array, width: int, turns: int) -> dict[str, float]:
    """Seconds of both products, and how far ours are from SciPy's."""
    rows, n = a.shape
    q = np.random.default_rng(0).standard_normal((n, width)).astype(a.dtype)
    slabs, y, z = (
        aligned_empty(slab_shape(count, width, a.dtype), kind)
        for count, kind in ((n, a.dtype), (rows, a.dtype), (n, np.float64))
    )
    cut_block(q, slabs=slabs)
    csr, order = (a.indptr, a.indices, a.data), column_order(a.indptr, a.indices, a.data, n)
    edges = panels(a.indptr, n)
    most = int(np.diff(a.indptr[edges]).max())
    room: dict[str, Any] = {"pointers": np.empty(n + 1, np.int64), "rows": np.empty(most, np.int32)}
    room["values"] = np.empty(most, a.dtype)

    def kept() -> None:
        z[:] = 0
        for s in range(len(slabs)):
            multiply_rows(*csr, slabs[s], y=y[s])
            add_columns(*order, y[s], z=z[s])

    def one_read() -> None:
        z[:] = 0
        for first, stop in pairwise(edges):
            pointers = a.indptr[first : stop + 1]
            order_columns(pointers, a.indices, a.data, **room)
            for s in range(len(slabs)):
                multiply_rows(pointers, a.indices, a.data, slabs[s], y=y[s, first:stop])
                add_columns(*room.values(), y[s, first:stop], z=z[s])

    def in_one_piece() -> None:
        block_z[:] = 0
        multiply_rows(*csr, q, y=block_y)
        add_columns(*order, block_y, z=block_z)

    def peer() -> np.ndarray:
        return a.T @ (a @ q)

    block_y, block_z, expected = np.empty((rows, width), a.dtype), np.zeros((n, width)), peer()
    differences = {}
    for name, call in (("kept", kept), ("one read", one_read)):
        call()
        join_slabs(z, block=block_z)
        differences[f"difference, {name}"] = float(np.abs(block_z - expected).max() / np.abs(expected).max())
    contenders = {"scipy": peer, "kept": kept, "one read": one_read, "kept, block in one piece": in_one_piece}
    return {**timed(contenders, turns), **differences}


def measure_gram(a: sp.csr_array, turns: int) -> dict[str, float]:
    """Seconds of the upper triangle, and how far ours is from that of BLAS."""
    n = a.shape[1]
    scatter = np.zeros((n, n))

    def ours() -> None:
        scatter[:] = 0
        add_gram(a.indptr, a.indices, a.data, scatter=scatter)

    def dense() -> np.ndarray:
        return blas.dsyrk(1.0, a.astype(np.float64).toarray().T, lower=1).T  # type: ignore[no-any-return]

    contenders: dict[str, Call] = {"ours": ours, "toarray and dsyrk": dense}
    if (np.diff(a.indptr).astype(float) ** 2).sum() < MOST_PAIRS:
        contenders["scipy"] = lambda: a.T @ a
    expected = dense()
    ours()
    difference = float(np.abs(scatter - np.triu(expected)).max() / np.abs(expected).max())
    return {**timed(contenders, turns), "difference": difference}


def measure_knn(a: sp.csr_array, turns: int) -> dict[str, float]:
    """Seconds of the nearest of rows among themselves, and the share of neighbors that both find."""
    from sklearn.neighbors import NearestNeighbors

    import rankfold as rf

    rows = np.sort(np.random.default_rng(0).permutation(a.shape[0])[:NEIGHBOR_ROWS])
    part = with_int32(sp.csr_array(a[rows]))

    def ours() -> np.ndarray:
        return np.asarray(rf.knn(part, NEIGHBORS, metric="cosine", threads=1).indices)

    def peer() -> np.ndarray:
        search = NearestNeighbors(n_neighbors=NEIGHBORS + 1, algorithm="brute", metric="cosine", n_jobs=1)
        return search.fit(part).kneighbors(part)[1]  # type: ignore[no-any-return]

    both = zip(ours(), peer(), strict=True)
    shares = [
        len({*one.tolist()} & {*other.tolist()} - {i}) / NEIGHBORS for i, (one, other) in enumerate(both)
    ]
    # Work is done in a thread of its own, so that all of the process is counted.
    seconds = timed({"ours": ours, "scikit-learn": peer}, turns, clock=time.process_time)
    return {**seconds, "same neighbors": float(np.mean(shares))}


def columns_of(a: sp.csr_array, count: int, *, variable: bool) -> sp.csr_array:
    """So many columns: of largest variance over mean, or with most nonzeros."""
    score = np.bincount(a.indices, minlength=a.shape[1]).astype(float)
    if variable:
        mean = np.asarray(a.mean(axis=0)).ravel()
        score = (np.asarray(a.power(2).mean(axis=0)).ravel() - mean**2) / np.maximum(mean, 1e-9)
    part = sp.csr_array(a[:, np.sort(np.argsort(-score)[:count])])
    part.sort_indices()
    return with_int32(part)


def with_int32(a: sp.csr_array) -> sp.csr_array:
    """As SciPy keeps indices where they fit."""
    return sp.csr_array((a.data, a.indices.astype(np.int32), a.indptr.astype(np.int32)), shape=a.shape)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/rankfold-data"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--part", choices=("pass", "gram", "knn"), help="one alone")
    parser.add_argument("--pbmc", type=Path, help="counts of genes, CSR in .npz, beside those that are drawn")
    arguments = parser.parse_args()
    matrices = {kind: with_int32(matrix(kind, arguments.folder)) for kind in KINDS}
    if arguments.pbmc:
        matrices["pbmc"] = with_int32(normalized(sp.csr_array(sp.load_npz(arguments.pbmc))))
    results: dict[str, Any] = {"machine": machine(), "matrices": {}, "pass": {}, "gram": {}, "knn": {}}
    for kind, a in matrices.items():
        results["matrices"][kind] = {"shape": a.shape, "nonzeros": a.nnz}
        if arguments.part in (None, "pass"):
            for dtype in (np.float32, np.float64):
                for width in WIDTHS:
                    found = measure_pass(a.astype(dtype), width, arguments.turns)
                    name = f"{kind}, {np.dtype(dtype)}, {width}"
                    results["pass"][name] = found
                    ratios = [found["scipy"] / found[key] for key in ("kept", "one read")]
                    print(
                        f"{name}: kept {ratios[0]:.2f}, one read {ratios[1]:.2f} times SciPy's speed",
                        flush=True,
                    )
        if arguments.part in (None, "gram") and kind != "graph":
            for variable in (True, False):
                found = measure_gram(columns_of(a, 2000, variable=variable), arguments.turns)
                name = f"{kind}, 2000 {'most variable' if variable else 'fullest'}"
                results["gram"][name] = found
                ratio = found["toarray and dsyrk"] / found["ours"]
                print(f"{name}: {ratio:.2f} times the speed of toarray and dsyrk", flush=True)
        # Most rows of the graph have no column in common: all are at distance 1, and every pair is measured.
        if arguments.part in (None, "knn") and kind != "graph":
            found = results["knn"][kind] = measure_knn(a, arguments.turns)
            ratio = found["scikit-learn"] / found["ours"]
            print(f"{kind}, neighbors: {ratio:.2f} times the speed of scikit-learn", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """What the numbers are of."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    processor = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    versions = {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}
    return {"processor": processor or platform.processor(), **versions}


if __name__ == "__main__":
    main()
