"""What it costs to trust nothing that is not whole: flushing to the disk, and checksums.

The same run, in a process of its own each time: as it is, with every flush left out, and with every checksum
left out, turn by turn. It keeps a wide product of every pass: in proportion it writes more than most runs do.

    python benchmarks/durability.py --folder /tmp/rankfold-data
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
import zarr

ROWS, COLUMNS, CHUNK_ROWS, RANK, PASSES = 1_000_000, 1000, 4000, 60, 7

RUN = """
import json, os, sys, time, warnings
how, store, out = sys.argv[1:4]
import rankfold as rf
from rankfold.pipeline.storage import checkpoint, ledger, manifest
if how == "without flushes":
    os.fsync = lambda file: None
if how == "without checksums":
    for module in (checkpoint, ledger, manifest):
        module.checksum = lambda data, value=0: 0
warnings.simplefilter("ignore")
began = time.perf_counter()
rf.svd(store, rank=RANK, solver="krylov", passes=PASSES, tol=1e-15, out=out, threads=2, memory="2GiB")
print(json.dumps(time.perf_counter() - began))
"""

WAYS = ("as it is", "without flushes", "without checksums")


def make_store(path: Path) -> None:
    if path.exists():
        return
    rng = np.random.default_rng(0)
    right = rng.standard_normal((200, COLUMNS)).astype(np.float32) * (np.arange(1, 201) ** -0.5)[:, None]
    array = zarr.create_array(
        path, shape=(ROWS, COLUMNS), dtype="f4", chunks=(CHUNK_ROWS, COLUMNS), compressors=None
    )
    for start in range(0, ROWS, CHUNK_ROWS):
        left = rng.standard_normal((CHUNK_ROWS, 200)).astype(np.float32)
        noise = 0.1 * rng.standard_normal((CHUNK_ROWS, COLUMNS)).astype(np.float32)
        array[start : start + CHUNK_ROWS] = left @ right.astype(np.float32) + noise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "rankfold-data")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "durability.json")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    store = asked.folder / "durability.zarr"
    make_store(store)
    script = RUN.replace("RANK", str(RANK)).replace("PASSES", str(PASSES))
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(asked.turns + 1):
        for way in WAYS:
            out = asked.folder / "durability-result.zarr"
            for old in (out, Path(f"{out}.run")):
                shutil.rmtree(old, ignore_errors=True)
            os.sync()
            run = [sys.executable, "-c", script, way, str(store), str(out)]
            told = subprocess.run(run, capture_output=True, text=True, check=True).stdout
            if turn:  # the first one compiles, and brings the store into memory
                seconds[way].append(json.loads(told))
                print(f"{way:20} {seconds[way][-1]:7.2f} s", flush=True)
    shutil.rmtree(asked.folder / "durability-result.zarr", ignore_errors=True)
    shutil.rmtree(asked.folder / "durability-result.zarr.run", ignore_errors=True)
    base = statistics.median(seconds["as it is"])
    shares = {way: 1 - statistics.median(seconds[way]) / base for way in WAYS[1:]}
    for way, share in shares.items():
        print(f"{way.removeprefix('without '):20} {100 * share:5.1f} % of a run of {base:.1f} s")
    facts = {
        "shape": [ROWS, COLUMNS],
        "rank": RANK,
        "passes": PASSES,
        "seconds": seconds,
        "share_of_flushes": shares["without flushes"],
        "share_of_checksums": shares["without checksums"],
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
    }
    asked.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
