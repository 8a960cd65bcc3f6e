"""Every kind of store holds the same numbers, for any rectangle, thread and process."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import COLUMNS, KINDS, LZ4, ROWS, Matrix, npy, numbers, read, zarr_store
from zarr.codecs import GzipCodec

from rankfold.pipeline.chunks import reads as rectangle
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.formats import open_source


@pytest.fixture(scope="module", params=KINDS)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("store")
    if request.param == "in a group":
        zarr.create_group(folder / "g.zarr").create_group("a")
    return open_source(KINDS[request.param](folder, numbers()))


def spans(length: int) -> st.SearchStrategy[tuple[int, int]]:
    edge = st.integers(0, length)
    return (
        st.tuples(edge, edge).filter(lambda ends: ends[0] != ends[1]).map(lambda ends: (min(ends), max(ends)))
    )


@settings(max_examples=25, derandomize=True, deadline=None)
@given(rows=spans(ROWS), columns=spans(COLUMNS), apart=st.sampled_from([0, 0, 1, 40]))
def test_any_rectangle_of_any_store(
    source: Source, rows: tuple[int, int], columns: tuple[int, int], apart: int
) -> None:
    np.testing.assert_array_equal(
        read(source, rows, columns, apart=apart), numbers()[slice(*rows), slice(*columns)]
    )


def test_every_source_keeps_the_protocol(source: Source) -> None:
    source.check()
    assert isinstance(source, Source)
    assert source.shape == (ROWS, COLUMNS)
    assert source.dtype == np.float32 and source.dtype.isnative
    assert source.name
    for grid, length in ((source.row_grid, ROWS), (source.column_grid, COLUMNS)):
        assert grid.length == length and (np.diff(grid.edges) > 0).all()
    assert source.read_bytes(10, COLUMNS) >= 0
    assert open_source(source) is source


def test_a_pickled_source_reads_the_same_and_stays_small(source: Source) -> None:
    message = pickle.dumps(source)
    again = pickle.loads(message)
    np.testing.assert_array_equal(read(again, (3, 20), (1, 30)), numbers()[3:20, 1:30])
    assert again.fingerprint() == source.fingerprint()
    if source.name.endswith((".zarr", ".npy")):
        assert len(message) < 2000


def test_threads_read_at_once(source: Source) -> None:
    tops = list(range(0, ROWS - 12, 3)) * 2
    with ThreadPoolExecutor(8) as pool:
        pieces = pool.map(lambda top: read(source, (top, top + 12), (2, 35)), tops)
    for top, piece in zip(tops, pieces, strict=True):
        np.testing.assert_array_equal(piece, numbers()[top : top + 12, 2:35])


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
@pytest.mark.parametrize(
    "kind", ["v3 cells", "v3 blosc cells", "v3 big endian", "v2 cells with slashes", "npy", "numpy"]
)
def test_every_supported_type_comes_back_as_stored(tmp_path: Path, kind: str, dtype: str) -> None:
    x = numbers(dtype)
    make = npy(dtype=dtype) if kind == "npy" else KINDS[kind]
    source = open_source(make(tmp_path, x))
    assert source.dtype == x.dtype
    np.testing.assert_array_equal(read(source, (2, 50), (0, COLUMNS)), x[2:50])


def test_what_can_be_split_is_what_is_stored_plainly(tmp_path: Path) -> None:
    plain = {"v3 rows", "v3 big endian", "v3 shards", "npy fortran", "numpy"}
    for name in sorted(plain | {"v3 blosc rows", "v3 gzip", "v2 fortran", "dask"}):
        (folder := tmp_path / name).mkdir()
        source = open_source(KINDS[name](folder, numbers()))
        assert source.row_grid.splittable == source.column_grid.splittable == (name in plain), name


def test_long_rows_and_reads_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """System calls that stop in the middle, and more rows than one of them takes."""
    x = np.arange(3000 * 5, dtype="f8").reshape(3000, 5)
    source = open_source(KINDS["npy"](tmp_path, x.astype("f4")))
    preadv = os.preadv
    monkeypatch.setattr(
        rectangle.os, "preadv", lambda fd, buffers, at: preadv(fd, [memoryview(buffers[0]).cast("B")[:7]], at)
    )
    np.testing.assert_array_equal(read(source, (1, 3000), (0, 5)), x[1:])
    monkeypatch.undo()
    for skip in (0, 4096):
        monkeypatch.setattr(rectangle, "SKIP_BYTES", skip)
        np.testing.assert_array_equal(read(source, (1, 3000), (1, 4), apart=3), x[1:, 1:4])
    monkeypatch.setattr(rectangle, "RUN_BYTES", 64)
    np.testing.assert_array_equal(read(source, (1, 3000), (0, 5)), x[1:])


def test_reading_compressed_chunks_takes_no_more_than_read_bytes(tmp_path: Path) -> None:
    """RssAnon of a process with two reading threads, which Zarr's own reader exceeds threefold."""
    if not os.path.exists("/proc/self/status"):
        pytest.skip("memory is measured through /proc, which this system does not have")
    x = np.random.default_rng(6).standard_normal((8192, 1000), "f4")
    path = zarr_store(tmp_path / "x.zarr", x, chunks=(2048, 1000), compressors=LZ4)
    code = f"""
import threading, numpy as np
from rankfold.pipeline.formats import open_source
source, peak, done = open_source({str(path)!r}), [0], threading.Event()
buffers = [np.ones((1024, 1000), "f4") for _ in range(2)]
source.read_into(buffers[0][:0], (0, 0), (0, 1000))
def anonymous():
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("RssAnon")) * 1024
def watch():
    while not done.wait(0.0005):
        peak[0] = max(peak[0], anonymous())
def work(buffer):
    for top in range(0, 8192, 1024):
        source.read_into(buffer, (top, top + 1024), (0, 1000))
base, threads = anonymous(), [threading.Thread(target=work, args=[b]) for b in buffers]
watcher = threading.Thread(target=watch)
for thread in [watcher, *threads]:
    thread.start()
for thread in threads:
    thread.join()
done.set(); watcher.join(); print(peak[0] - base, 2 * source.read_bytes(1024, 1000))
"""
    taken, planned = map(int, subprocess.check_output([sys.executable, "-c", code], text=True).split())
    assert 2 * 8_000_000 < taken <= planned < 64 * 2**20


@pytest.mark.parametrize("kind", ["v3 cells", "v3 shards of blosc", "v2 rows", "npy"])
def test_the_fingerprint_follows_the_files(tmp_path: Path, kind: str) -> None:
    path = KINDS[kind](tmp_path, numbers())
    first = open_source(path).fingerprint()
    assert first == open_source(path).fingerprint()
    assert len(first) == 32
    file = (
        path
        if path.is_file()
        else sorted(p for p in path.rglob("*") if p.name[0] not in ".z" and p.is_file())[0]
    )
    os.utime(file, ns=(1, 1))
    assert open_source(path).fingerprint() != first


def test_the_fingerprint_of_an_array_is_its_content() -> None:
    x = numbers()
    same = open_source(np.asfortranarray(x.astype(">f4"))).fingerprint()
    assert open_source(x).fingerprint() == same
    x[40, 30] += 1
    assert open_source(x).fingerprint() != same


def test_a_store_written_anew_is_opened_anew(tmp_path: Path) -> None:
    for factor in (1, 2):
        path = zarr_store(
            tmp_path / "x.zarr", factor * numbers(), compressors=GzipCodec(level=factor), overwrite=True
        )
        np.testing.assert_array_equal(read(open_source(path), (0, ROWS), (0, COLUMNS)), factor * numbers())


def test_many_chunks_are_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rankfold.pipeline.chunks import files as chunk_files

    source = open_source(zarr_store(tmp_path / "x.zarr", numbers(), chunks=(1, COLUMNS)))
    monkeypatch.setattr(chunk_files, "LISTING_LIMIT", 7)
    keys = [state.key for state in source.files.listing()]  # type: ignore[attr-defined]
    assert keys == [f"c/{i}/0" for i in (0, 7, 15, 22, 30, 37, 45)]
    source.check()
    assert source.stored_bytes() == ROWS * COLUMNS * 4  # type: ignore[attr-defined]


def test_dask_computes_the_blocks_it_needs_and_no_others() -> None:
    seen: list[tuple[int, ...]] = []

    def note(block: Matrix, block_info: Any = None) -> Matrix:
        seen.append(block_info[0]["chunk-location"])
        return block

    x = da.from_array(numbers(), chunks=(10, 20)).map_blocks(note, dtype="f4", meta=np.empty((0, 0), "f4"))
    read(open_source(x), (15, 31), (25, 30))
    assert seen == [(1, 1), (2, 1), (3, 1)]


def test_importing_sources_loads_neither_zarr_nor_dask() -> None:
    code = "import sys, numpy as np; from rankfold.pipeline.formats import open_source;"
    code += "open_source(np.ones((2, 2))).fingerprint();"
    code += "print([m for m in ('zarr', 'dask', 'distributed', 'numcodecs') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
