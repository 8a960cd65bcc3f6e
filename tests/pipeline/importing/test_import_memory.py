"""Files larger than the memory an import is given: RssAnon of a process of its own stays below it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

pytestmark = [
    pytest.mark.memory,
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.path.exists("/proc/self/status"), reason="memory is measured through /proc, which is not here"
    ),
]

MEASURED = """
import json, sys, threading, numpy as np, scipy.io
import pyarrow.csv, pyarrow.parquet, h5py
from rankfold.pipeline.importing import import_array
source, target, memory, options = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
def anonymous():
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("RssAnon")) * 1024
import_array(np.ones((9, 9)), target + ".warm")
base, peak, done = anonymous(), [0], threading.Event()
def watch():
    while not done.wait(0.001):
        peak[0] = max(peak[0], anonymous())
thread = threading.Thread(target=watch)
thread.start()
report = import_array(source, target, memory_bytes=memory, **options)
done.set(); thread.join(); print(peak[0] - base)
"""


def csv(folder: Path) -> str:
    pa, text = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.csv")
    names, rng = [f"c{i}" for i in range(50)], np.random.default_rng(0)
    schema = pa.schema([(name, pa.float64()) for name in names])
    with text.CSVWriter(folder / "x.csv", schema) as file:
        for _ in range(30):
            columns = rng.standard_normal((50, 10_000))
            file.write_table(pa.table(dict(zip(names, columns, strict=True)), schema=schema))
    return str(folder / "x.csv")


def parquet(folder: Path) -> str:
    """One row group of 240 MB."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    x = np.random.default_rng(1).standard_normal((50, 600_000))
    table = pa.table({f"c{i}": column for i, column in enumerate(x)})
    pq.write_table(table, folder / "x.parquet", row_group_size=600_000)
    return str(folder / "x.parquet")


def vectors(folder: Path) -> str:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    x = np.random.default_rng(2).standard_normal((80_000, 768), dtype="f4")
    table = pa.table({"e": pa.FixedSizeListArray.from_arrays(x.ravel(), 768)})
    pq.write_table(table, folder / "x.parquet", row_group_size=80_000)
    return str(folder / "x.parquet")


def entries(folder: Path) -> str:
    """16 million triplets in no order, 256 MB as they are sorted."""
    rng = np.random.default_rng(3)
    count, shape = 16_000_000, (1_000_000, 2000)
    row, column = rng.integers(0, shape[0], count), rng.integers(0, shape[1], count)
    x = scipy.sparse.coo_matrix((rng.standard_normal(count), (row, column)), shape)
    scipy.sparse.save_npz(folder / "x.npz", x, compressed=False)
    return str(folder / "x.npz")


def text_entries(folder: Path) -> str:
    pa, text = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.csv")
    rng, count = np.random.default_rng(4), 8_000_000
    columns = {
        name: rng.integers(1, n + 1, count)
        for name, n in (("row", 100_000), ("column", 20_000), ("value", 999))
    }
    options = text.WriteOptions(include_header=False, delimiter=" ", quoting_style="none")
    with open(folder / "x.mtx", "wb") as file:
        file.write(f"%%MatrixMarket matrix coordinate real general\n100000 20000 {count}\n".encode())
        text.write_csv(pa.table(columns), file, options)
    return str(folder / "x.mtx")


def packed(folder: Path) -> str:
    x = np.random.default_rng(5).integers(0, 9, (20_000, 1000)).astype("f8")
    np.savez_compressed(folder / "x.npz", X=np.asfortranarray(x))
    return str(folder / "x.npz")


@pytest.mark.parametrize("mebibytes", [80, 128])
@pytest.mark.parametrize("make", [csv, parquet, vectors, entries, text_entries, packed])
def test_the_memory_stays_below_what_is_given(
    tmp_path: Path, make: Callable[[Path], str], mebibytes: int
) -> None:
    source = make(tmp_path)
    options: dict[str, Any] = {"chunk_bytes": 8 * 2**20} if make not in (entries, text_entries) else {}
    command = [sys.executable, "-c", MEASURED, source, str(tmp_path / "out.zarr"), str(mebibytes * 2**20)]
    taken = int(subprocess.check_output([*command, json.dumps(options)], text=True))
    assert taken <= mebibytes * 2**20, f"{taken / 2**20:.0f} MiB"
