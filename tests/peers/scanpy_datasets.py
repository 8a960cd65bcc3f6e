"""Data sets of ``scanpy.datasets`` that its tests would download: drawn here, of the same kind."""

from __future__ import annotations

from typing import Any

import anndata
import numpy as np
import scipy.sparse

__all__ = ["pbmc3k"]

CELLS, GENES, TYPES = 2700, 1838, 8


def pbmc3k(**_: Any) -> Any:
    """Counts of genes in cells of some types, with few genes seen in a cell."""
    rng = np.random.default_rng(0)
    profiles = rng.gamma(0.2, 0.5, (TYPES, GENES))
    depths = rng.lognormal(0, 0.3, CELLS)
    means = profiles[rng.integers(0, TYPES, CELLS)] * depths[:, None]
    return anndata.AnnData(scipy.sparse.csr_matrix(rng.poisson(means).astype(np.float32)))
