"""From raw counts to neighbors of cells, beside scanpy: seconds, memory, and how far both agree.

Normalize, log1p, variable genes, scale, 50 components, 15 neighbors. Each contender runs in processes of its
own, which take turns; medians of wall and processor seconds of the second call, and peak memory above counts
and imports. Then singular values, and the projector onto the leading components up to a gap of one per cent.

python benchmarks/cells_chain.py --pbmc pbmc3k_counts.npz --out benchmarks/results/cells_chain.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
import scipy.sparse as sp

STEPS = "normalize_total(1e4), log1p, highly_variable(2000), scale(max_value=10)"
RANK, NEIGHBORS = 50, 15


def ours(counts: sp.csr_matrix) -> tuple[Any, Any]:
    """Singular values and components."""
    import rankfold as rf

    result = rf.pca(rf.open(counts, prepare=STEPS), RANK, tol=1e-6, threads=1)
    rf.knn(result.scores, NEIGHBORS - 1, threads=1)
    return result.singular_values, result.components


def theirs(counts: sp.csr_matrix) -> tuple[Any, Any]:
    """The same by scanpy."""
    import anndata
    import scanpy

    adata = anndata.AnnData(counts.copy())
    scanpy.pp.normalize_total(adata, target_sum=1e4)
    scanpy.pp.log1p(adata)
    scanpy.pp.highly_variable_genes(adata, n_top_genes=2000)
    adata = adata[:, adata.var["highly_variable"]].copy()
    scanpy.pp.scale(adata, max_value=10)
    scanpy.pp.pca(adata, n_comps=RANK, svd_solver="arpack")
    scanpy.pp.neighbors(adata, n_neighbors=NEIGHBORS)
    return np.sqrt(adata.uns["pca"]["variance"] * (adata.n_obs - 1)), adata.varm["PCs"].T


CONTENDERS = {"rankfold": ours, "scanpy": theirs}


def run_one(name: str, counts: Path, out: Path) -> None:
    """Two calls in this process; the second counts."""
    warnings.simplefilter("ignore")
    x = sp.csr_matrix(sp.load_npz(counts)).astype(np.float32)
    small = x[:200]
    CONTENDERS[name](small[:, np.asarray(small.sum(axis=0)).ravel() > 0])  # imports, compiled loops
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    values, components = CONTENDERS[name](x)
    began = time.perf_counter(), time.process_time()
    CONTENDERS[name](x)
    wall, processor = time.perf_counter() - began[0], time.process_time() - began[1]
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    np.savez(out, values=values, components=components, numbers=[wall, processor, peak])


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pbmc", type=Path, help="counts of genes, CSR in .npz, not those that are drawn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        name, counts, out = arguments.one
        run_one(name, Path(counts), Path(out))
        return
    with tempfile.TemporaryDirectory() as folder:
        counts = arguments.pbmc or Path(folder) / "counts.npz"
        if arguments.pbmc is None:
            from sparse_matrices import counts_of_cells

            sp.save_npz(counts, counts_of_cells())
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTENDERS}
        for turn in range(arguments.turns):
            for name in CONTENDERS:
                out = Path(folder) / f"{name}{turn}.npz"
                # -P: a module beside this one has the name of one that Dask looks for.
                subprocess.run([sys.executable, "-P", __file__, "--one", name, counts, out], check=True)
                found[name].append(dict(np.load(out)))
    a, b = (found[name][0] for name in CONTENDERS)
    gaps = a["values"][:-1] / a["values"][1:] > 1.01
    lead = int(np.flatnonzero(gaps)[-1]) + 1
    v, w = (each["components"][:lead].astype(np.float64) for each in (a, b))
    results: dict[str, Any] = {
        "values apart": float(np.abs(a["values"] / b["values"] - 1).max()),
        "leading components": lead,
        "projectors apart": float(np.linalg.norm(v.T @ v - w.T @ w, 2)),
    }
    for name, runs in found.items():
        numbers = [statistics.median(float(run["numbers"][i]) for run in runs) for i in range(3)]
        results[name] = dict(zip(("seconds", "processor seconds", "peak MiB"), numbers, strict=True))
    results["machine"] = platform.platform()
    print(json.dumps(results, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
