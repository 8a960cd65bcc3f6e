"""R, and Q written, of a tall matrix on disk: ours beside Dask's and the limit, in one run.

    python benchmarks/qr.py --folder /tmp/rankfold-data --out benchmarks/results/qr.json

Every run is a fresh process on the same Zarr store in page cache, with two cores; contenders take turns and
medians count. The limit of R is reading every chunk and one product with its own transpose, m n^2 flops;
that of Q is that, reading again, and writing as many bytes.
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
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

COLUMNS, CHUNK, THREADS, BUDGET = 100, 20_000, 2, "512MiB"
WHO = ("rankfold R", "dask R", "limit R", "rankfold Q", "dask Q", "limit Q")


def made(folder: Path, rows: int) -> Path:
    """The store, made once."""
    import numpy as np
    import zarr

    store = folder / f"tall-{rows}.zarr"
    if not (store / "zarr.json").exists():
        rng = np.random.default_rng(0)
        array = zarr.create_array(
            store, shape=(rows, COLUMNS), chunks=(CHUNK, COLUMNS), dtype="f8", compressors=None
        )
        mix = rng.standard_normal((COLUMNS, COLUMNS))
        for start in range(0, rows, CHUNK):
            stop = min(start + CHUNK, rows)
            array[start:stop] = rng.standard_normal((stop - start, COLUMNS)) @ mix
    return store


def child(who: str, store: Path, out: Path) -> dict[str, Any]:
    """Run a contender once: seconds, memory above the imports, and how good its factors are."""
    from rankfold.pipeline.engine.memory import watched_memory

    name, what = who.split()
    run = {"rankfold": _ours, "dask": _dask, "limit": _limit}[name](store, out, what == "Q")
    with watched_memory() as memory:
        began = time.perf_counter()
        r = run()
        seconds = time.perf_counter() - began
    peak = (memory.above_baseline or 0) / 2**20
    return {
        "seconds": seconds,
        "peak_MiB": peak,
        **({} if r is None else _quality(store, out, r, what == "Q")),
    }


def _ours(store: Path, out: Path, form: bool) -> Any:
    import rankfold as rf
    from rankfold.methods.warm import MethodWarmup

    source = rf.open(store)
    MethodWarmup(source.dtype, {"kind": "qr", "method": "tsqr"}, source.shape).warm()

    def go() -> Any:
        result = rf.qr(source, with_rows=form, memory=BUDGET, threads=THREADS, out=out / "qr.zarr")
        return result.R

    return go


def _dask(store: Path, out: Path, form: bool) -> Any:
    import dask
    import dask.array as da
    import zarr

    dask.config.set(scheduler="threads", num_workers=THREADS)
    x = da.from_zarr(str(store))

    def go() -> Any:
        q, r = da.linalg.qr(x)
        if not form:
            return r.compute()
        target = zarr.create_array(
            out / "q.zarr", shape=q.shape, chunks=(CHUNK, COLUMNS), dtype="f8", compressors=None
        )
        _, r = dask.compute(da.store(q, target, compute=False, lock=False), r)
        return r

    return go


def _limit(store: Path, out: Path, form: bool) -> Any:
    import numpy as np

    chunks = sorted(path for path in (store / "c").rglob("*") if path.is_file())

    def work(mine: list[Path]) -> None:
        buffer = np.empty((CHUNK, COLUMNS))
        for path in mine:
            with open(path, "rb", buffering=0) as file:
                file.readinto(memoryview(buffer).cast("B"))
            for start in range(0, CHUNK, 1024):
                d = buffer[start : start + 1024]
                d.T @ d
        for path in mine if form else []:
            with open(path, "rb", buffering=0) as file:
                file.readinto(memoryview(buffer).cast("B"))
            (out / path.parent.name).write_bytes(memoryview(buffer).cast("B"))

    def go() -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(work, [chunks[i::THREADS] for i in range(THREADS)]))

    return go


def _quality(store: Path, out: Path, r: Any, form: bool) -> dict[str, float]:
    """How far R'R is from X'X, and Q from orthonormal, told by sums over the store."""
    import numpy as np
    import zarr

    x = zarr.open_array(store, mode="r")
    squares = sum(x[s : s + CHUNK].T @ x[s : s + CHUNK] for s in range(0, x.shape[0], CHUNK))
    told = {"backward": float(np.abs(r.T @ r - squares).max() / np.abs(squares).max())}
    if form:
        path = out / "qr.zarr" / "Q" if (out / "qr.zarr").exists() else out / "q.zarr"
        q = zarr.open_array(path, mode="r")
        product = sum(q[s : s + CHUNK].T @ q[s : s + CHUNK] for s in range(0, q.shape[0], CHUNK))
        told["orthogonality"] = float(np.abs(product - np.eye(COLUMNS)).max())
    return told


def main() -> None:
    """Run all in turn and keep the raw numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/rankfold-data"))
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/qr.json"))
    parser.add_argument("--child", nargs=3)
    arguments = parser.parse_args()
    if arguments.child:
        who, store, out = arguments.child
        print(json.dumps(child(who, Path(store), Path(out))))
        return
    store, out = made(arguments.folder, arguments.rows), arguments.folder / "qr-output"
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, "1")}
    runs: dict[str, list[dict[str, Any]]] = {who: [] for who in WHO}
    for _ in range(arguments.repeats):
        for who in WHO:
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir(parents=True)
            command = [sys.executable, __file__, "--child", who, str(store), str(out)]
            ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
            runs[who].append(json.loads(ran.stdout))
            print(who, runs[who][-1], flush=True)
    shutil.rmtree(out, ignore_errors=True)
    medians = {who: statistics.median(run["seconds"] for run in runs[who]) for who in WHO}
    ratios = {
        f"{name} over rankfold, {what}": medians[f"{name} {what}"] / medians[f"rankfold {what}"]
        for what in "RQ"
        for name in ("dask", "limit")
    }
    machine = {"system": platform.platform(), "python": platform.python_version()}
    matrix = {"rows": arguments.rows, "columns": COLUMNS, "dtype": "float64"}
    results = {"machine": machine, "matrix": matrix, "threads": THREADS, "seconds": medians} | {
        "ratios": ratios,
        "runs": runs,
    }
    print(json.dumps(ratios, indent=1))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
