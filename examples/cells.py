"""Kinds of cells from raw counts, and what the steps before components are for.

Counts of 2000 cells of four kinds, read to depths that differ tenfold. Components of raw counts follow the
deepest cells; after `normalize_total`, `log1p`, `highly_variable` and `scale`, which are applied as counts
are read and never written, shallow cells lie with the others of their kind.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
import scipy.sparse

import rankfold as rf

STEPS = "normalize_total(1e4), log1p, highly_variable(400), scale(max_value=10)"


def counts(cells: int = 2000, genes: int = 2000) -> tuple[scipy.sparse.csr_array, npt.NDArray[np.int64]]:
    """Counts, and the kind of each cell: 150 genes are more active in each kind."""
    rng = np.random.default_rng(0)
    kinds, active = rng.integers(0, 4, cells), np.tile(rng.gamma(0.5, 1.0, genes), (4, 1))
    for kind in range(4):
        active[kind, rng.permutation(genes)[:150]] *= rng.uniform(2, 4, 150)
    depth = np.exp(rng.normal(0, 0.8, cells))
    return scipy.sparse.csr_array(rng.poisson(active[kinds] * depth[:, None]).astype("f4")), kinds


def main(picture: Path) -> None:
    """Draw two components of raw counts, and of counts that went through the steps."""
    x, kinds = counts()
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for ax, steps, title in zip(axes, (None, STEPS), ("raw counts", "after the steps"), strict=True):
        scores = rf.pca(rf.open(x, prepare=steps), rank=3, tol=1e-3, passes=20).scores[:]
        ax.scatter(scores[:, 0], scores[:, 1], c=kinds, s=3, cmap="tab10")
        ax.set_title(title)
        ax.set_xticks([]), ax.set_yticks([])
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "cells.png"))
