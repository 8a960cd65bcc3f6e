"""Matrices of known spectrum, written once to Zarr with the singular values of their float64 Gram matrix.

    spiked    G diag(100 i^-0.7, i <= 200) V' + 0.1 N
    slow      G diag(i^-0.5) V', all columns

with standard normal G and N and orthonormal V, so that singular values are those of the sample, not of the
formula: the reference is computed from the numbers that were written.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import zarr

COLUMNS = 2000
CHUNK_ROWS = 2096  # what `rankfold import` writes
SEED = 7


def matrix(folder: Path, kind: str, rows: int) -> tuple[Path, np.ndarray]:
    """Path of the store and its singular values; made on first use."""
    store, reference = folder / f"{kind}-{rows}.zarr", folder / f"{kind}-{rows}.sigma.npy"
    if not reference.exists():
        folder.mkdir(parents=True, exist_ok=True)
        np.save(reference, _write(store, kind, rows))
    return store, np.load(reference)


def _write(store: Path, kind: str, rows: int) -> np.ndarray:
    rng = np.random.default_rng(SEED)
    rank = 200 if kind == "spiked" else COLUMNS
    index = np.arange(1.0, rank + 1)
    weights = 100 * index**-0.7 if kind == "spiked" else index**-0.5
    basis = np.linalg.qr(rng.standard_normal((COLUMNS, rank)))[0]
    mixing = (basis * weights).T.astype(np.float32)
    array = zarr.create_array(
        store,
        shape=(rows, COLUMNS),
        chunks=(CHUNK_ROWS, COLUMNS),
        dtype="f4",
        compressors=None,
        overwrite=True,
    )
    gram = np.zeros((COLUMNS, COLUMNS))
    for start in range(0, rows, CHUNK_ROWS):
        count = min(CHUNK_ROWS, rows - start)
        x = rng.standard_normal((count, rank), dtype=np.float32) @ mixing
        if kind == "spiked":
            x += np.float32(0.1) * rng.standard_normal((count, COLUMNS), dtype=np.float32)
        array[start : start + count] = x
        wide = x.astype(np.float64)
        gram += wide.T @ wide
    return np.sqrt(np.linalg.eigvalsh(gram)[::-1])
