"""Pictures of millions of points: seconds and peak memory, and the figures of the documents.

    python benchmarks/pictures.py --out benchmarks/results/pictures.json --figures docs/figures

Coordinates are made: groups that are bent, of many sizes. They lie in a result on disk, as umap writes
one, in the page cache. Seconds are wall time of the second call, with reading, drawing and writing; memory
is anonymous memory above what the process took before.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import matplotlib
import numpy as np

import rankfold as rf
from rankfold.pipeline.engine.memory import renew_baseline, watched_memory
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.result import create_array, write_group

GROUPS = 18
CHUNK_ROWS = 2**18

Array = np.ndarray[Any, Any]


def points(rows: int) -> tuple[Array, Array]:
    """Bent groups in a plane, rows in the order of their group; and the number of the group."""
    rng = np.random.default_rng(1)
    centers, widths = rng.normal(size=(GROUPS, 2)) * 7, rng.gamma(2, 0.5, size=(GROUPS, 2))
    angles, shares = rng.uniform(0, 2 * np.pi, GROUPS), rng.gamma(1, 1, GROUPS)
    groups = np.sort(rng.choice(GROUPS, rows, p=shares / shares.sum())).astype(np.int32)
    x = rng.standard_normal((rows, 2), dtype=np.float32) * widths[groups].astype(np.float32)
    cos, sin = (f(angles).astype(np.float32)[groups] for f in (np.cos, np.sin))
    x[:, 1] += 0.3 * x[:, 0] ** 2 * sin
    turned = np.stack([cos * x[:, 0] - sin * x[:, 1], sin * x[:, 0] + cos * x[:, 1]], axis=1)
    return turned + centers[groups].astype(np.float32), groups


def store(folder: Path, rows: int) -> tuple[rf.Result, Path]:
    """A result with such an embedding, and a file with the groups."""
    x, groups = points(rows)
    path = folder / "layout.zarr"
    path.mkdir()
    names = ("row", "component")
    array = create_array(path, "embedding", (rows, 2), np.float32, (CHUNK_ROWS, 2), names)
    for top in range(0, rows, CHUNK_ROWS):
        bottom = min(top + CHUNK_ROWS, rows)
        write_whole_chunks(array, x[top:bottom], (top, bottom), (0, 2))
    facts = {"kind": "umap", "method": "made", "passes": 1, "request": {"kind": "umap"}}
    write_group(path, facts | {"input": {"name": "points", "shape": [rows, 15], "dtype": "float32"}})
    np.save(folder / "group.npy", groups)
    return rf.open_result(path), folder / "group.npy"


def measure(result: rf.Result, out: Path, **options: Any) -> dict[str, Any]:
    result.plot(out=out, overwrite=True, **options)
    renew_baseline()
    with watched_memory() as memory:
        began = time.perf_counter()
        result.plot(out=out, overwrite=True, **options)
        seconds = time.perf_counter() - began
    peak = (memory.above_baseline or 0) / 2**20
    return {"seconds": round(seconds, 2), "peak_MiB": round(peak), "KiB": out.stat().st_size // 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--figures", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pictures-") as name:
        folder = Path(name)
        figures = arguments.figures or folder
        result, groups = store(folder, arguments.rows)
        values = np.load(groups, mmap_mode="r") / 3
        pictures = {
            "density": measure(result, figures / "density.png"),
            "labels": measure(result, figures / "labels.png", color=groups),
            "values": measure(result, folder / "values.png", color=values),
            "density, svg": measure(result, folder / "density.svg"),
        }
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    versions = {"numpy": np.__version__, "matplotlib": matplotlib.__version__, "rankfold": rf.__version__}
    report = {"rows": arguments.rows, "pictures": pictures, "machine": machine, "versions": versions}
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
