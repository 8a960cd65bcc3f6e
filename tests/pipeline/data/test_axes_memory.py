"""Reading arrays of more axes takes no more memory than ``read_bytes`` says, with two threads at once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from covers import spread
from stores import LZ4
from zarr.codecs import GzipCodec

CODE = """
import sys, threading, numpy as np
from rankfold.pipeline.formats import open_source
source, peak, done = open_source(sys.argv[1], row_axes=0, **eval(sys.argv[2])), [0], threading.Event()
rows, columns = source.shape
buffers = [np.ones((50, columns), source.dtype) for _ in range(2)]
source.read_into(buffers[0][:1, :1], (0, 1), (0, 1))
def anonymous():
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("RssAnon")) * 1024
def watch():
    while not done.wait(0.0005):
        peak[0] = max(peak[0], anonymous())
def work(buffer):
    for top in range(0, rows, 50):
        source.read_into(buffer, (top, top + 50), (0, columns))
base, threads = anonymous(), [threading.Thread(target=work, args=[b]) for b in buffers]
watcher = threading.Thread(target=watch)
for thread in [watcher, *threads]:
    thread.start()
for thread in threads:
    thread.join()
done.set(); watcher.join(); print(peak[0] - base, 2 * source.read_bytes(50, columns))
"""
SHAPE = (200, 90, 360)


def cube() -> Any:
    x = np.random.default_rng(0).standard_normal(SHAPE, "f4")
    x[:, :, ::3] = np.nan
    return x


def in_zarr(chunks: tuple[int, ...], compressors: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / "x.zarr"
        zarr.create_array(path, shape=SHAPE, chunks=chunks, dtype="f4", compressors=compressors)[...] = cube()
        return path

    return make


def in_netcdf(folder: Path) -> Path:
    xarray = pytest.importorskip("xarray", reason="xarray is not installed: pip install xarray")
    pytest.importorskip("netCDF4", reason="netCDF4 is not installed: pip install netCDF4")
    data = xarray.Dataset({"x": (("a", "b", "c"), cube())})
    data.to_netcdf(
        folder / "x.nc", encoding={"x": {"zlib": True, "complevel": 1, "chunksizes": (10, 90, 360)}}
    )
    return folder / "x.nc"


@pytest.mark.memory
@pytest.mark.parametrize(
    ("make", "options"),
    spread(
        2,
        [
            pytest.param(in_zarr((1, 90, 360), LZ4), {}, id="thin"),
            pytest.param(in_zarr((100, 30, 90), LZ4), {}, id="tiles"),
            pytest.param(in_zarr((10, 90, 360), GzipCodec(level=1)), {}, id="gzip"),
            pytest.param(in_zarr((10, 90, 360), LZ4), {"drop_missing_columns": True}, id="missing"),
            pytest.param(in_zarr((10, 90, 360), LZ4), {"select_columns": "0:32400:2"}, id="every other"),
            pytest.param(in_netcdf, {}, id="netcdf"),
        ],
    ),
)
def test_reading_takes_no_more_than_read_bytes(
    tmp_path: Path, make: Callable[[Path], Path], options: dict[str, Any]
) -> None:
    if not os.path.exists("/proc/self/status"):
        pytest.skip("memory is measured through /proc, which this system does not have")
    command = [sys.executable, "-c", CODE, str(make(tmp_path)), repr(options)]
    taken, planned = map(int, subprocess.check_output(command, text=True).split())
    assert taken <= planned
