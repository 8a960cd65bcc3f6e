"""What plans say beside what runs take: seconds, and most memory of a process.

Stores of the same numbers, raw, in lz4 and in zstd, and a sparse one; of each every method is planned, then
run in a process of its own, from its start to its end. Run it on an idle machine, with two cores.

python benchmarks/predictions.py --folder /tmp/rankfold-data --out benchmarks/results/predictions.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
import zarr
from zarr.codecs import BloscCodec, ZstdCodec

import rankfold as rf
from rankfold.cluster.local.calibration import cached_rates

ROWS, COLUMNS, CHUNK_ROWS = 120_000, 1000, 4000
CELLS, GENES, SHARE = 60_000, 4000, 0.03
POINTS, AXES = 24_000, 200
RANK, THREADS, MEMORY = 40, 2, "2GiB"

CODECS = {"raw": None, "lz4": BloscCodec(cname="lz4"), "zstd": ZstdCodec(level=3)}

RUN = """
import json, sys
import rankfold as rf
options = json.loads(sys.argv[3])
result = getattr(rf, options.pop("kind"))(sys.argv[1], out=sys.argv[2], **options)
last = result.run["attempts"][-1]
print(json.dumps([last["planned_bytes"], last["measured_bytes"], last["passes"]]))
"""

METHODS: dict[str, dict[str, Any]] = {
    "svd": {"kind": "svd", "rank": RANK, "solver": "krylov", "passes": 3, "tol": 1e-9},
    "pca": {"kind": "pca", "rank": RANK, "solver": "gram"},
    "nmf": {"kind": "nmf", "rank": 20},
    "knn": {"kind": "knn", "k": 15},
}


def dense(folder: Path, codec: str, shape: tuple[int, int], name: str) -> Path:
    """Nonnegative float32 of falling spectrum in steps of 1/32: they compress about two to one."""
    path = folder / f"{name}-{codec}.zarr"
    chunks = (min(CHUNK_ROWS, shape[0]), shape[1])
    array = zarr.create_array(path, shape=shape, dtype="f4", chunks=chunks, compressors=CODECS[codec])
    rng = np.random.default_rng(0)
    right = rng.random((60, shape[1]), dtype=np.float32) * np.arange(1, 61, dtype=np.float32)[:, None] ** -0.8
    for start in range(0, shape[0], chunks[0]):
        rows = min(chunks[0], shape[0] - start)
        x = rng.random((rows, 60), dtype=np.float32) @ right + rng.random((rows, shape[1]), dtype=np.float32)
        array[start : start + rows] = np.round(x * 32) / 32
    return path


def sparse(folder: Path) -> Path:
    """Counts in AnnData's layout of compressed rows, in zstd."""
    path, rng = folder / "counts.zarr", np.random.default_rng(1)
    counts = rng.binomial(GENES, SHARE, CELLS)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    indices = np.concatenate([np.sort(rng.choice(GENES, n, replace=False, shuffle=False)) for n in counts])
    data = rng.geometric(0.4, len(indices)).astype(np.float32)
    group = zarr.open_group(path, mode="w")
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [CELLS, GENES]})
    parts = (("data", data), ("indices", indices.astype(np.int32)), ("indptr", indptr))
    for name, values in parts:
        array = group.create_array(name, shape=values.shape, dtype=values.dtype, chunks=(2**18,))
        array[...] = values
    return path


def compared(store: Path, method: dict[str, Any], rates: Any) -> dict[str, Any]:
    """One plan and one run."""
    options = {**method, "threads": THREADS, "memory": MEMORY}
    given = {name: value for name, value in options.items() if name != "kind"}
    began = time.perf_counter()
    plan = rf.plan(method["kind"], store, **given, rates=rates)
    planning = time.perf_counter() - began
    with tempfile.TemporaryDirectory(dir=store.parent) as folder:
        command = [sys.executable, "-W", "ignore", "-c", RUN, str(store), f"{folder}/out.zarr"]
        began = time.perf_counter()
        made = subprocess.run(
            [*command, json.dumps(options)], capture_output=True, text=True, check=True, timeout=1800
        )
        seconds = time.perf_counter() - began
    planned, measured, passes = json.loads(made.stdout)
    shares = plan.shares
    assert shares is not None and plan.seconds is not None
    return {
        "predicted_seconds": plan.seconds,
        "measured_seconds": seconds,
        "seconds_ratio": plan.seconds / seconds,
        "shares": {name: getattr(shares, name) for name in ("start", "read", "decode", "compute")},
        "planning_seconds": planning,
        "passes": [plan.likely_passes, passes],
        "planned_bytes": planned,
        "measured_bytes": measured,
        "bytes_ratio": planned / measured,
    }


def table(found: dict[str, dict[str, Any]]) -> str:
    """Predicted, measured, ratio."""
    lines = [
        f"{'':16s}{'predicted':>10s}{'measured':>10s}{'ratio':>7s}{'planned':>10s}{'peak':>10s}{'ratio':>7s}"
    ]
    for name, one in found.items():
        lines.append(
            f"{name:16s}{one['predicted_seconds']:8.1f} s{one['measured_seconds']:8.1f} s"
            f"{one['seconds_ratio']:7.2f}{one['planned_bytes'] / 2**20:6.0f} MiB"
            f"{one['measured_bytes'] / 2**20:6.0f} MiB{one['bytes_ratio']:7.2f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Make the stores, plan and run, and write down what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where stores are made, and removed again")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="cases with this in their name, as zstd or nmf")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    rates, found = cached_rates(), {}
    with tempfile.TemporaryDirectory(dir=asked.folder) as inner:
        folder = Path(inner)
        few = dense(folder, "raw", (2000, 50), "few")
        for method in METHODS.values():
            compared(few, {**method, **({"rank": 8} if "rank" in method else {})}, rates)  # compiles
        for codec in (*CODECS, "csr"):
            names = [name for name in METHODS if asked.only in f"{name} {codec}"]
            for name in names:
                if codec == "csr":
                    store = folder / "counts.zarr"
                    if name == "knn":
                        continue  # rows are made dense for it, as any others are
                    store = store if store.exists() else sparse(folder)
                else:
                    shape = (POINTS, AXES) if name == "knn" else (ROWS, COLUMNS)
                    kind = "points" if name == "knn" else "x"
                    store = folder / f"{kind}-{codec}.zarr"
                    store = store if store.exists() else dense(folder, codec, shape, kind)
                found[f"{name} {codec}"] = compared(store, METHODS[name], rates)
                print(table({f"{name} {codec}": found[f"{name} {codec}"]}).splitlines()[-1], flush=True)
    print(table(found))
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    rates_found = {name: getattr(rates, name) for name in type(rates).__slots__}
    asked.out.write_text(
        json.dumps({"machine": machine, "rates": rates_found, "runs": found}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
