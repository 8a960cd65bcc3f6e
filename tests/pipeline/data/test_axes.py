"""Arrays of more axes are matrices, whichever axes are the rows and however they are stored."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask.array as da
import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import read
from zarr.codecs import BytesCodec, GzipCodec, ZstdCodec

import rankfold as rf
from rankfold.pipeline.chunks.geometry import Piece, requests, runs
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.source import Source, stack_grids
from rankfold.pipeline.errors import ChunkError, InputError
from rankfold.pipeline.formats import open_source

Array = np.ndarray[Any, Any]
NAMES = ("time", "level", "lat", "lon")


def field(shape: tuple[int, ...], dtype: str = "f4") -> Array:
    return np.random.default_rng(3).integers(0, 1000, shape).astype(dtype)


def store(path: Path, x: Array, chunks: tuple[int, ...], **options: Any) -> Path:
    options = {"compressors": None, **options}
    if options.get("zarr_format") != 2:
        options["dimension_names"] = NAMES[: x.ndim]
    array = zarr.create_array(
        path, shape=x.shape, chunks=chunks, dtype=options.pop("dtype", x.dtype), overwrite=True, **options
    )
    if options.get("zarr_format") == 2:
        array.attrs["_ARRAY_DIMENSIONS"] = list(NAMES[: x.ndim])
    array[...] = x
    return path


def matrix(x: Array, rows: tuple[int, ...]) -> Array:
    others = tuple(axis for axis in range(x.ndim) if axis not in rows)
    return x.transpose(rows + others).reshape(math.prod(x.shape[axis] for axis in rows), -1)


def save_npy(path: Path, x: Array, order: str, dtype: str) -> Path:
    np.save(path / "x.npy", np.asarray(x, dtype, order=order))  # type: ignore[call-overload]
    return path / "x.npy"


KINDS: dict[str, Callable[[Path, Array, tuple[int, ...]], Any]] = {
    "plain": lambda p, x, c: store(p, x, c),
    "big endian": lambda p, x, c: store(p, x, c, dtype="<f4", serializer=BytesCodec(endian="big")),
    "zstd": lambda p, x, c: store(p, x, c, compressors=ZstdCodec(level=1)),
    "gzip": lambda p, x, c: store(p, x, c, compressors=GzipCodec(level=1)),
    "shards": lambda p, x, c: store(p, x, c, shards=tuple(2 * n for n in c)),
    "shards of zstd": lambda p, x, c: store(
        p, x, c, shards=tuple(2 * n for n in c), compressors=ZstdCodec(level=1)
    ),
    "v2 blosc": lambda p, x, c: store(p, x, c, zarr_format=2, compressors=numcodecs.Blosc("lz4")),
    "v2 fortran": lambda p, x, c: store(p, x, c, zarr_format=2, order="F"),
    "npy": lambda p, x, c: save_npy(p, x, "C", "<f4"),
    "npy fortran big endian": lambda p, x, c: save_npy(p, x, "F", ">f4"),
    "numpy": lambda p, x, c: np.asfortranarray(x),
    "dask": lambda p, x, c: da.from_array(x, chunks=c),
}


@st.composite
def cubes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Shape, chunks and row axes of an array of 2 to 4 axes."""
    shape = draw(st.lists(st.integers(1, 9), min_size=2, max_size=4).map(tuple))
    chunks = tuple(draw(st.integers(1, length)) for length in shape)
    axes = draw(st.permutations(range(len(shape))))
    return shape, chunks, tuple(axes[: draw(st.integers(1, len(shape) - 1))])


def span(draw: Any, length: int) -> tuple[int, int]:
    start = draw(st.integers(0, length - 1))
    return start, draw(st.integers(start + 1, length))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, derandomize=True, deadline=None)
@given(cube=cubes(), data=st.data())
def test_any_rectangle_of_any_stacking(
    tmp_path_factory: pytest.TempPathFactory, kind: str, cube: Any, data: st.DataObject
) -> None:
    shape, chunks, rows = cube
    x = field(shape)
    source = open_source(KINDS[kind](tmp_path_factory.mktemp("cube"), x, chunks), row_axes=list(rows))
    expected = matrix(x, rows)
    assert source.shape == expected.shape and source.dtype == np.float32
    whole = tuple((0, length) for length in expected.shape)
    np.testing.assert_array_equal(read(source, *whole), expected)
    for apart in (0, 3):
        down, across = (span(data.draw, length) for length in expected.shape)
        np.testing.assert_array_equal(
            read(source, down, across, apart=apart), expected[slice(*down), slice(*across)]
        )


@pytest.mark.parametrize("kind", KINDS)
def test_every_stacked_source_keeps_the_protocol(tmp_path: Path, kind: str) -> None:
    x = field((7, 5, 6))
    source = open_source(KINDS[kind](tmp_path, x, (2, 3, 6)), row_axes=1)
    source.check()
    assert isinstance(source, Source) and source.shape == (5, 42)
    for grid, length in ((source.row_grid, 5), (source.column_grid, 42)):
        assert grid.length == length and (np.diff(grid.edges) > 0).all()
    assert source.read_bytes(5, 42) >= 0 and len(source.fingerprint()) == 32
    message = pickle.dumps(source)
    again = pickle.loads(message)
    assert again.fingerprint() == source.fingerprint()
    if kind not in ("numpy", "dask"):
        assert len(message) < 3000
    with ThreadPoolExecutor(4) as pool:
        pieces = list(pool.map(lambda left: read(again, (0, 5), (left, left + 13)), range(0, 28, 2)))
    for left, piece in zip(range(0, 28, 2), pieces, strict=True):
        np.testing.assert_array_equal(piece, matrix(x, (1,))[:, left : left + 13])


@settings(max_examples=100, derandomize=True, deadline=None)
@given(data=st.data())
def test_runs_are_few_boxes_that_cover_a_span_in_order(data: st.DataObject) -> None:
    lengths = tuple(data.draw(st.lists(st.integers(1, 5), max_size=4)))
    total = math.prod(lengths)
    start, stop = span(data.draw, total)
    found = list(runs(start, stop, lengths))
    assert len(found) <= max(1, 2 * len(lengths) - 1)
    places = np.arange(total).reshape(lengths)
    covered = [places[tuple(slice(*each) for each in box)].ravel() for box, _ in found]
    assert [part.tolist() for part in covered] == [list(range(*each)) for _, each in found]
    np.testing.assert_array_equal(np.concatenate(covered), np.arange(start, stop))


@settings(max_examples=100, derandomize=True, deadline=None)
@given(cube=cubes(), most=st.integers(1, 300))
def test_requests_stay_small_and_meet_no_chunk_twice(cube: Any, most: int) -> None:
    shape, chunks, _ = cube
    box = tuple((length // 3, length) for length in shape)
    out = np.zeros([stop - start for start, stop in box])
    met: set[tuple[int, ...]] = set()
    for spans, part in requests(Piece(box, out), chunks, most):
        cells = list(np.ndindex(*(-(-b // c) - a // c for (a, b), c in zip(spans, chunks, strict=True))))
        at = {tuple(i + a // c for i, (a, _), c in zip(cell, spans, chunks, strict=True)) for cell in cells}
        assert not at & met and (len(at) == 1 or len(at) * math.prod(chunks) <= most)
        met |= at
        part += 1
    assert (out == 1).all()


@settings(max_examples=40, derandomize=True, deadline=None)
@given(cube=cubes())
def test_edges_of_stacked_grids_are_where_no_chunk_goes_on(cube: Any) -> None:
    shape, chunks, _ = cube
    number = np.zeros(shape, int)
    for axis, chunk in enumerate(chunks):
        along = np.arange(shape[axis]) // chunk
        number = number * 10 + along.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    flat = number.ravel()
    grid = stack_grids([Grid.regular(n, c, splittable=False) for n, c in zip(shape, chunks, strict=True)])
    edges = {i for i in range(1, len(flat)) if not set(flat[:i]) & set(flat[i:])} | {0, len(flat)}
    assert set(grid.edges.tolist()) <= edges and (np.diff(grid.edges) > 0).all()
    if not any(length % chunk for length, chunk in zip(shape, chunks, strict=True)):
        assert len(grid.edges) == len(edges)


def test_axes_are_named_or_numbered(tmp_path: Path) -> None:
    x = field((4, 3, 5))
    path = store(tmp_path / "x.zarr", x, (1, 3, 5))
    for rows in ("time", "0", 0, ["time"], -3):
        np.testing.assert_array_equal(
            read(open_source(path, row_axes=rows), (0, 4), (0, 15)), matrix(x, (0,))
        )
    for array in (zarr.open_array(path, mode="r"), x):
        rows = "lat,time" if array is not x else "2,0"
        np.testing.assert_array_equal(
            read(open_source(array, row_axes=rows), (0, 20), (0, 3)), matrix(x, (2, 0))
        )
    assert "by lat,time" in open_source(path, row_axes="lat,time").name
    assert (
        open_source(path, row_axes="lat").fingerprint() != open_source(path, row_axes="level").fingerprint()
    )


def test_two_axes_the_other_way_round(tmp_path: Path) -> None:
    x = field((6, 9))
    path = store(tmp_path / "x.zarr", x, (4, 9))
    np.testing.assert_array_equal(read(open_source(path, row_axes="level"), (0, 9), (0, 6)), x.T)
    assert type(open_source(path, row_axes="time")) is type(open_source(path))


def test_what_axes_cannot_be_rows_is_said(tmp_path: Path) -> None:
    path = store(tmp_path / "sst.zarr", field((4, 3, 5)), (1, 3, 5))
    with pytest.raises(
        InputError,
        match=r"sst\.zarr has 3 axes, time \(4\), level \(3\), lat \(5\); .* row_axes='time'$",
    ):
        open_source(path)
    with pytest.raises(
        InputError, match=r"no axis 'tme'\. Did you mean 'time'\? Its axes are time \(4\), level"
    ):
        open_source(path, row_axes="tme")
    with pytest.raises(InputError, match=r"no axis '3'\. Its axes"):
        open_source(path, row_axes="3")
    with pytest.raises(InputError, match=r"names an axis of .* twice"):
        open_source(path, row_axes="time,0")
    with pytest.raises(InputError, match=r"takes every axis .*leave one out"):
        open_source(path, row_axes="time,lat,level")
    with pytest.raises(InputError, match="has 3 axes"):
        open_source(path, row_axes="")
    with pytest.raises(InputError, match="is a matrix already"):
        open_source(open_source(path, row_axes="time"), row_axes="time")
    with pytest.raises(InputError, match=r"array has 3 axes, 0 \(2\), 1 \(3\), 2 \(4\)"):
        open_source(np.zeros((2, 3, 4)))


@pytest.mark.parametrize("kind", ["plain", "zstd", "gzip", "shards", "v2 blosc"])
def test_missing_and_damaged_chunks_of_more_axes(tmp_path: Path, kind: str) -> None:
    path = KINDS[kind](tmp_path / "x.zarr", field((4, 6, 4)), (1, 6, 4))
    victim = sorted(p for p in path.rglob("*") if p.is_file() and p.name[0] not in ".z")[-1]
    victim.write_bytes(victim.read_bytes()[: victim.stat().st_size * 2 // 3])
    source = open_source(path, row_axes="time")
    with pytest.raises(ChunkError, match=r"chunk .* cannot be read .*Restore the store"):
        read(source, *((0, n) for n in source.shape))
    victim.unlink()
    strict = open_source(path, row_axes="time", missing_chunks="error")
    with pytest.raises(ChunkError, match="is missing"):
        read(strict, *((0, n) for n in source.shape))
    with pytest.raises(ChunkError, match="is missing"):
        strict.check()
    filled = open_source(path, row_axes="time")
    expected = zarr.open_array(path, mode="r")[...].reshape(filled.shape)
    np.testing.assert_array_equal(read(filled, *((0, n) for n in filled.shape)), expected)


def test_npy_of_more_axes_cut_short(tmp_path: Path) -> None:
    path = save_npy(tmp_path, field((4, 3, 5)), "C", "f4")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ChunkError, match="is truncated"):
        read(open_source(path, row_axes=1), (0, 3), (0, 20))


def test_a_chunk_that_several_boxes_meet_is_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rankfold.pipeline.formats.zarr import source as zarr

    x = field((6, 5, 7))
    source = open_source(store(tmp_path / "x.zarr", x, (3, 5, 7), compressors=ZstdCodec()), row_axes="time")
    calls, decode = [], zarr.decode_into
    monkeypatch.setattr(zarr, "decode_into", lambda *args: (calls.append(1), decode(*args)))
    np.testing.assert_array_equal(read(source, (1, 6), (3, 30)), matrix(x, (0,))[1:, 3:30])
    assert len(calls) == 2


@pytest.mark.parametrize("compressors", [None, ZstdCodec(level=1)])
@pytest.mark.parametrize("method", ["gram", "krylov"])
def test_a_stacked_matrix_reduces_to_the_same_bits(tmp_path: Path, compressors: Any, method: str) -> None:
    x = np.random.default_rng(1).standard_normal((600, 6, 8)).astype("f4")
    cube = store(tmp_path / "cube.zarr", x, (100, 6, 8), compressors=compressors)
    flat = store(tmp_path / "flat.zarr", x.reshape(600, 48), (100, 48), compressors=compressors)
    one = rf.svd(rf.open(cube, row_axes="time"), 5, solver=method)
    two = rf.svd(rf.open(flat), 5, solver=method)
    for name in ("s", "Vt", "U"):
        np.testing.assert_array_equal(np.asarray(getattr(one, name)), np.asarray(getattr(two, name)))


def test_another_cut_of_a_wide_cube_agrees(tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((20, 30, 40))
    path = store(tmp_path / "cube.zarr", x, (5, 7, 11), compressors=ZstdCodec(level=1))
    found = rf.svd(rf.open(path, row_axes="time"), 5, solver="gram")
    np.testing.assert_allclose(found.s, np.linalg.svd(x.reshape(20, -1), compute_uv=False)[:5], rtol=1e-12)


def test_a_gap_is_told_by_its_cell_and_its_coordinates() -> None:
    """In the array, not in what was selected of it, with what to do about it."""
    xr = pytest.importorskip("xarray")
    x = np.random.default_rng(1).standard_normal((12, 5, 6))
    x[:, 0, :3] = np.nan
    x[9, 3, 4] = np.nan
    cube = xr.DataArray(x, dims=("time", "lat", "lon"), name="sst")
    with pytest.raises(rf.RankfoldError, match=r"drop_missing_"):
        rf.pca(rf.open(cube, row_axes="time"), 2)
    with pytest.raises(rf.RankfoldError) as raised:
        rf.pca(rf.open(cube, row_axes="time", drop_missing_columns=True), 2)
    first = "1 NaN or Inf, the first at row 9, column 22 (from 0), which is time 9, lat 3, lon 4; "
    assert f"{first}row 9, column 19 of what is kept" in str(raised.value)
    assert "drop_missing_columns=True" not in str(raised.value) and "select_columns=" in str(raised.value)
    picked = rf.open(
        cube, row_axes="time", select_rows="1:11:2", select_columns="3:25", drop_missing_columns=True
    )
    with pytest.raises(
        rf.RankfoldError, match=r"row 9, column 22 \(from 0\), .*; row 4, column 19 of what is"
    ):
        rf.svd(picked, 2)
    negative = rf.open(np.nan_to_num(x), row_axes=[0, 2], select_columns=[4, 1])
    with pytest.raises(
        rf.RankfoldError, match=r"negative numbers, the first at row \d+, .* which is 0 \d+, 1 \d"
    ):
        rf.nmf(negative, 2)
    with pytest.raises(
        rf.RankfoldError, match=r"NaN or Inf: 1 in rows .* row 9, column 22 .* lat 3, lon 4; row"
    ):
        rf.knn(rf.open(cube, row_axes="time", drop_missing_columns=True), 2)
