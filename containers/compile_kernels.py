"""Compile kernels into ``NUMBA_CACHE_DIR``, by small runs of the methods: what an image is delivered with.

Prints how many loops were compiled; a second time there are none.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse

import rankfold as rf
from rankfold.kernels import _compiled


def run_methods(x: np.ndarray, folder: Path) -> None:
    """The methods on rows of one type, with whatever they need of each other."""
    small = {"memory": "256MiB", "threads": 1}
    rf.pca(x, rank=4, **small)
    rf.svd(x, rank=4, **small)
    rf.nmf(abs(x), 3, passes=4, **small)
    rf.kmeans(x, 3, n_init=1, passes=4, **small)
    lists = rf.knn(x, 8, out=folder / f"{x.dtype}-lists.zarr", **small)
    rf.knn(x, 4, metric="cosine", **small)
    graph = rf.fuzzy_graph(lists, out=folder / f"{x.dtype}-graph.zarr", **small)
    rf.umap(graph, n_epochs=11, **small)
    rf.tsne(lists, perplexity=2.0, n_iter=11, early_exaggeration_iter=5, **small)
    rf.spectral(lists, passes=50, **small)
    rf.svd(scipy.sparse.random(len(x), 40, 0.1, "csr", x.dtype, random_state=0), rank=3, **small)


def main() -> None:
    """Run them in both precisions."""
    rows = np.random.default_rng(0).standard_normal((600, 12))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", rf.RankfoldWarning)
        for dtype in (np.float64, np.float32):
            run_methods(rows.astype(dtype), Path(folder))
    print(f"{len(_compiled.SIGNATURES)} loops compiled")


if __name__ == "__main__":
    main()
