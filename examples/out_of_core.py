"""A matrix of 1.2 GB in 128 MiB: what is planned, and what it took.

The matrix is written once as a Zarr store; the plan states the memory of a worker before anything is read.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import zarr

import rankfold as rf

ROWS, COLUMNS, RANK = 300_000, 1000, 10


def write(store: Path) -> None:
    """Ten directions that decay, and noise, some rows at a time."""
    rng = np.random.default_rng(0)
    right = np.linalg.qr(rng.standard_normal((COLUMNS, RANK)))[0] * 2.0 ** -np.arange(RANK)
    array = zarr.create_array(
        store, shape=(ROWS, COLUMNS), dtype="f4", chunks=(10_000, COLUMNS), compressors=None
    )
    for start in range(0, ROWS, 10_000):
        rows = rng.standard_normal((10_000, RANK)) @ right.T + 1e-4 * rng.standard_normal((10_000, COLUMNS))
        array[start : start + 10_000] = rows.astype("f4")


def main(picture: Path) -> None:
    """Draw singular values with their estimated errors, and memory beside the size of the matrix."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "x.zarr")
        plan = rf.plan("svd", f"{folder}/x.zarr", rank=RANK, memory="128 MiB")
        result = rf.svd(f"{folder}/x.zarr", rank=RANK, memory="128 MiB", out=f"{folder}/svd.zarr")
        s, errors, took = result.s, result.error_estimates, result.run["attempts"][-1]

    figure, (values, memory) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    values.semilogy(np.arange(1, RANK + 1), s, "o-")
    values.set_title(f"singular values, errors below {errors.max():.0e}, {took['passes']} passes")
    sizes = {"matrix": 4 * ROWS * COLUMNS, "planned": plan.peak_bytes, "measured": took["measured_bytes"]}
    bars = memory.barh(list(sizes), [size / 2**20 for size in sizes.values()])
    memory.bar_label(bars, fmt="%.0f MiB", padding=3)
    memory.set_xlim(0, 1.25 * sizes["matrix"] / 2**20)
    memory.set_title("bytes of the matrix, and of a worker")
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out_of_core.png"))
