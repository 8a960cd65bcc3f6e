"""Seconds of an epoch of a layout, by threads of one process and by worker processes, on random graphs.

python benchmarks/layout_workers.py [ROWS [EPOCHS]]

Rows lie on a plane and have ten neighbors each. Workers have one thread: what their exchange takes is the
difference to a share of the time of one thread. Nothing is written but a temporary folder, in TMPDIR.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import rankfold as rf


def seconds_of_an_epoch(graph: Path, folder: Path, epochs: int, **where: int) -> tuple[float, int]:
    """Of the layout alone, without what starts workers; and most bytes of a process."""
    name = "-".join(f"{key}{value}" for key, value in where.items())
    out = folder / f"{name}.zarr"
    result = rf.umap(graph, n_epochs=epochs, out=out, memory="8GiB", **where)
    attempt = result.run["attempts"][-1]
    return attempt["sweep_seconds"]["layout"] / epochs, attempt["measured_bytes"]


if __name__ == "__main__":
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        x = np.random.default_rng(0).random((rows, 2))
        graph = rf.fuzzy_graph(rf.knn(x, 10, out=folder / "knn.zarr"), out=folder / "graph.zarr")
        print(f"{rows} rows, {graph.attrs['weights']} edges, {epochs} epochs")
        for where in (
            {"threads": 1},
            {"threads": 2},
            {"workers": 1, "threads": 1},
            {"workers": 2, "threads": 1},
        ):
            seconds, most = seconds_of_an_epoch(graph.path, folder, epochs, **where)
            print(f"{where}: {seconds:.3f} s an epoch, {most / 2**20:.0f} MiB")
