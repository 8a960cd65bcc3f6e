"""Principal components of a sparse store that no one would fill in: 1 000 000 x 20 000, 600 million numbers.

The store is written once, some 5 GB without compression, and then reduced in a process of its own: rank 50,
under 2 GiB. Reported are planned and measured peak, passes, bytes that the process read from the store in
each of them beside those that are stored, and processor time for each stored number of a pass. The limit
beside it is the time that one core takes to read the store.

python benchmarks/sparse_store.py --folder /tmp/rankfold-data --out benchmarks/results/sparse_store.json
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import zarr

KINDS = 64
"""Kinds of rows, of sizes that fall geometrically, each with its own mean in every column."""

ROWS_AT_ONCE = 20_000


def write_store(path: Path, rows: int, columns: int, each: int) -> None:
    """Rows with ``each`` numbers at most, fuller in the first columns; values by kind, with noise."""
    rng = np.random.default_rng(5)
    kinds = rng.gamma(0.5, 2.0, (KINDS, columns)).astype(np.float32) + 0.5
    shares = 0.9 ** np.arange(KINDS)
    group = zarr.open_group(path, mode="w")
    attributes = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [rows, columns]}
    options = {"chunks": (2**20,), "compressors": None}
    data = group.create_array("data", shape=(rows * each,), dtype="f4", **options)
    indices = group.create_array("indices", shape=(rows * each,), dtype="i4", **options)
    pointers = [np.zeros(1, np.int64)]
    for first in range(0, rows, ROWS_AT_ONCE):
        count = min(ROWS_AT_ONCE, rows - first)
        kind = rng.choice(KINDS, count, p=shares / shares.sum())
        places = (np.arange(each) + rng.random((count, each), dtype=np.float32)) / each
        places = np.minimum((places**1.5 * columns).astype(np.int32), columns - 1)
        kept = np.diff(places, axis=1, prepend=-1) > 0
        values = kinds[kind[:, None], places] * (0.5 + rng.random((count, each), dtype=np.float32))
        ends = pointers[-1][-1] + np.cumsum(kept.sum(axis=1))
        there = slice(int(pointers[-1][-1]), int(ends[-1]))
        data[there], indices[there] = values[kept], places[kept]
        pointers.append(ends)
    ends = np.concatenate(pointers)
    data.resize((int(ends[-1]),))
    indices.resize((int(ends[-1]),))
    group.create_array("indptr", data=ends, chunks=(2**16,), compressors=None)
    group.attrs.update(attributes)


RUN = """
import json, sys, time
import rankfold as rf
from rankfold.pipeline.chunks import reads

fill, count = reads._fill, [0]

def counted(fd, buffers, offset):
    count[0] += sum(buffer.nbytes for buffer in buffers)
    fill(fd, buffers, offset)

reads._fill = counted
began, cpu = time.perf_counter(), time.process_time()
how = {"memory": sys.argv[3], "threads": int(sys.argv[4]), "out": sys.argv[2], "overwrite": True}
result = rf.pca(sys.argv[1], 50, **how)
seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
attempt = result.run["attempts"][-1]
print(json.dumps({
    "method": result.attrs["method"], "passes": result.attrs["passes"], "seconds": seconds,
    "processor_seconds": cpu, "largest_error_estimate": float(result.error_estimates.max()),
    "converged": bool(result.attrs["converged"]), "planned_bytes": attempt["planned_bytes"],
    "measured_bytes": attempt["measured_bytes"], "read_bytes": count[0],
}))
"""


def read_seconds(path: Path) -> float:
    """Time of reading all files once, in one thread, from the page cache if they fit."""
    began = time.perf_counter()
    for file in sorted(path.rglob("c/*")):
        if file.is_file():
            file.read_bytes()
    return time.perf_counter() - began


def main() -> None:
    """Write the store if it is not there, reduce it, and keep the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/rankfold-data"))
    parser.add_argument("--shape", type=int, nargs=2, default=(1_000_000, 20_000))
    parser.add_argument("--each", type=int, default=608, help="numbers of a row, before doubles are left out")
    parser.add_argument("--memory", default="2GiB")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows, columns = arguments.shape
    store = arguments.folder / f"sparse-{rows}x{columns}x{arguments.each}.zarr"
    if not (store / "zarr.json").exists() or "encoding-type" not in zarr.open_group(store, mode="r").attrs:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        write_store(store, rows, columns, arguments.each)
    numbers = int(zarr.open_group(store, mode="r")["data"].shape[0])  # type: ignore[union-attr]
    stored = sum(file.stat().st_size for file in store.rglob("c/*") if file.is_file())
    result = arguments.folder / "sparse-result.zarr"
    command = [sys.executable, "-W", "ignore", "-c", RUN, str(store), str(result)]
    command += [arguments.memory, arguments.threads]
    limit = read_seconds(store)
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    facts = {
        "machine": {"system": platform.platform(), "processor": platform.processor() or platform.machine()},
        "shape": [rows, columns],
        "numbers": numbers,
        "stored_bytes": stored,
        "memory": arguments.memory,
        "threads": int(arguments.threads),
        **found,
        "reads_of_the_store_per_pass": found["read_bytes"] / stored / found["passes"],
        "nanoseconds_per_number_and_pass": 1e9 * found["processor_seconds"] / numbers / found["passes"],
        "seconds_of_reading_once": limit,
    }
    print(json.dumps(facts, indent=1))
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
