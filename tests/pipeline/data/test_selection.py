"""Parts of a matrix are read as NumPy would cut them, and columns of nothing never take numbers along."""

from __future__ import annotations

import itertools
import math
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import LZ4, read, zarr_store

import rankfold as rf
from rankfold.pipeline.data import missing_columns, selection
from rankfold.pipeline.data.missing_columns import ColumnMask
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import DataError, InputError, NonFiniteError
from rankfold.pipeline.formats import open_source

Array = np.ndarray[Any, Any]
ROWS, COLUMNS = 60, 45


def x(dtype: str = "f4") -> Array:
    return np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS).astype(dtype)


@pytest.fixture(scope="module", params=["plain", "lz4", "numpy"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if request.param == "numpy":
        return x()
    path = tmp_path_factory.mktemp("store") / "x.zarr"
    return zarr_store(path, x(), chunks=(7, 10), compressors=LZ4 if request.param == "lz4" else None)


@st.composite
def selections(draw: st.DrawFn, length: int) -> list[Any]:
    """Distinct slices and numbers in any order."""
    cuts = sorted(draw(st.sets(st.integers(0, length), min_size=2, max_size=7)))
    items: list[Any] = []
    for start, stop in itertools.pairwise(cuts):
        kind = draw(st.sampled_from(["slice", "step", "one", "none"]))
        if kind in ("slice", "step"):
            items.append(slice(start, stop, draw(st.integers(2, 5)) if kind == "step" else None))
        elif kind == "one":
            items.append(draw(st.sampled_from([start, start - length])))
    return list(draw(st.permutations(items or [slice(*cuts[:2])])))


def places(items: list[Any], length: int) -> Array:
    return np.concatenate([np.atleast_1d(np.arange(length)[item]) for item in items])


@pytest.mark.parametrize("small", [False, True])
@settings(max_examples=25, derandomize=True, deadline=None)
@given(data=st.data(), rows=selections(ROWS), columns=selections(COLUMNS))
def test_any_selection_is_what_numpy_makes_of_it(
    place: Any, small: bool, data: st.DataObject, rows: list[Any], columns: list[Any]
) -> None:
    expected = x()[places(rows, ROWS)][:, places(columns, COLUMNS)]
    with pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr(selection, "FETCH_BYTES", 200)
            patch.setattr(selection, "SKIP_BYTES", 16)
        source = open_source(place, select_rows=rows, select_columns=columns)
        assert source.shape == expected.shape and isinstance(source, Source)
        np.testing.assert_array_equal(read(source, (0, expected.shape[0]), (0, expected.shape[1])), expected)
        top, left = (data.draw(st.integers(0, length - 1)) for length in expected.shape)
        bottom, right = (
            data.draw(st.integers(at + 1, length))
            for at, length in zip((top, left), expected.shape, strict=True)
        )
        found = read(source, (top, bottom), (left, right), apart=2)
        np.testing.assert_array_equal(found, expected[top:bottom, left:right])


@settings(max_examples=25, derandomize=True, deadline=None)
@given(rows=selections(ROWS))
def test_the_grid_of_a_selection_cuts_where_the_chunk_changes(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any]
) -> None:
    path = zarr_store(tmp_path_factory.mktemp("s") / "x.zarr", x(), chunks=(7, 10), compressors=LZ4)
    source = open_source(path, select_rows=rows)
    chunk = places(rows, ROWS) // 7
    edges = [0, *(np.flatnonzero(np.diff(chunk)) + 1).tolist(), len(chunk)]
    assert source.row_grid.edges.tolist() == edges and not source.row_grid.splittable


def test_ways_to_say_the_same(place: Any) -> None:
    mask = np.zeros(COLUMNS, bool)
    mask[[*range(5), 20, *range(30, 33)]] = True
    ways = [
        "0:5,20,30:33",
        [slice(0, 5), 20, slice(30, 33)],
        ["0:5", 20, "30:33"],
        np.flatnonzero(mask),
        mask,
    ]
    for way in [*ways, np.flatnonzero(mask).tolist()]:
        source = open_source(place, select_columns=way)
        np.testing.assert_array_equal(read(source, (0, ROWS), (0, 9)), x()[:, mask])
    assert open_source(place, select_columns=ways[0]).name.endswith(" [columns 0:5,20,30:33]")
    assert open_source(place, select_columns=mask, select_rows="3:").name.endswith(" [rows 3:, 9 columns]")
    assert open_source(place, select_rows=slice(-5, None)).shape == (5, COLUMNS)


def test_only_what_is_selected_is_read(tmp_path: Path) -> None:
    path = zarr_store(tmp_path / "x.zarr", x(), chunks=(7, 10), compressors=LZ4)
    source = open_source(path, select_rows="0:14", select_columns="0:10,40")
    for file in path.glob("c/*/*"):
        if int(file.parent.name) > 1 or int(file.name) not in (0, 4):
            file.unlink()
    np.testing.assert_array_equal(read(source, (0, 14), (0, 11)), x()[:14, [*range(10), 40]])


def test_fingerprint_and_pickle_of_a_selection(place: Any) -> None:
    asked = [None, "0:10", "0:11", "1:11"]
    prints = {open_source(place, select_rows=r, select_columns=c).fingerprint() for r in asked for c in asked}
    assert len(prints) == 16
    source = pickle.loads(pickle.dumps(open_source(place, select_rows="3:50:4")))
    np.testing.assert_array_equal(read(source, (0, 12), (0, COLUMNS)), x()[3:50:4])
    assert source.read_bytes(12, COLUMNS) > 0


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("0:1000", r"has 60 rows: select_rows=0:1000 goes beyond them: 1000\. Give numbers from 0 to 60"),
        ("60", "goes beyond them: 60. Give numbers from 0 to 59"),
        ([3, 99], "goes beyond them: 99"),
        ("5:5", "keeps none of them"),
        ([], "keeps none of them"),
        ("a:b", "'a:b', which is neither a number nor START:STOP"),
        ("1,,2", "'', which is neither"),
        ("1:2:3:4", "which is neither"),
        ("9:0:-1", "steps by -1"),
        ("0:10,4", "takes row 4 twice"),
        ("0:10:2,1:9:4,5", "takes row 5 twice"),
        ([1.5], "holds 1.5"),
        (np.zeros(3, bool), r"mask of shape \(3,\); it must have shape \(60,\)"),
        (np.zeros(3), "holds float64; give whole numbers or a mask"),
    ],
)
def test_selections_that_cannot_be(asked: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_source(x(), select_rows=asked)


def ocean(dtype: str = "f4") -> tuple[Array, Array]:
    """Numbers with columns of NaN, and which columns are not."""
    values = x(dtype) + 1
    sea = np.random.default_rng(2).random(COLUMNS) > 0.4
    sea[10:22] = False
    values[:, ~sea] = np.nan
    return values, sea


@settings(max_examples=25, derandomize=True, deadline=None)
@given(data=st.data(), fetch=st.sampled_from([64, 3000, 2**23]), copy=st.sampled_from([64, 2**20]))
@pytest.mark.parametrize("codec", [None, LZ4])
def test_missing_columns_leave_the_matrix(
    tmp_path_factory: pytest.TempPathFactory, codec: Any, data: st.DataObject, fetch: int, copy: int
) -> None:
    values, sea = ocean()
    path = zarr_store(tmp_path_factory.mktemp("s") / "x.zarr", values, chunks=(7, 10), compressors=codec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(missing_columns, "FETCH_BYTES", fetch)
        patch.setattr(missing_columns, "COPY_BYTES", copy)
        source = open_source(path, drop_missing_columns=True)
        assert source.shape == (ROWS, sea.sum()) and isinstance(source, Source)
        assert source.column_grid.length == sea.sum() and (np.diff(source.column_grid.edges) > 0).all()
        left = data.draw(st.integers(0, int(sea.sum()) - 1))
        right = data.draw(st.integers(left + 1, int(sea.sum())))
        found = read(source, (5, ROWS), (left, right), apart=1)
    np.testing.assert_array_equal(found, values[5:, sea][:, left:right])


def test_panels_along_the_grid_read_every_chunk_once(tmp_path: Path) -> None:
    values, _ = ocean()
    path = zarr_store(tmp_path / "x.zarr", values, chunks=(ROWS, 10), compressors=LZ4)
    source: Any = open_source(path, drop_missing_columns=True)
    spans = [source._edge(edge) for edge in source.column_grid.edges.tolist()]
    assert set(spans[1:-1]) <= set(range(10, COLUMNS, 10)) and len(spans) == len(set(spans))


@pytest.mark.parametrize("most", [2**26, 3 * 45 * 4, 1])
def test_columns_are_left_out_that_are_nan_in_all_rows_looked_at(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gaps of clouds beside land: the first row has both."""
    monkeypatch.setattr("rankfold.pipeline.data.missing_columns.LOOKED_BYTES", most)
    monkeypatch.setattr("rankfold.pipeline.data.missing_columns.FETCH_BYTES", 2 * 45 * 4)
    values, sea = ocean()
    values[:2, np.flatnonzero(sea)[::3]] = np.nan
    path = zarr_store(tmp_path / "x.zarr", values, chunks=(7, 10))
    rows = max(1, min(ROWS, most // (45 * 4)))
    expected = ~np.isnan(values[:rows]).all(axis=0)
    source: Any = open_source(path, drop_missing_columns=True)
    np.testing.assert_array_equal(source.chosen.mask(0, COLUMNS), expected)
    assert (expected == sea).all() == (rows > 2)
    if rows > 2:
        np.testing.assert_array_equal(read(source, (0, ROWS), (0, int(sea.sum()))), values[:, sea])


def test_land_beside_gaps_is_completed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 30))
    gaps = rng.random(values.shape) < 0.2
    gaps[0, :9] = True
    holes = np.where(gaps, np.nan, values)
    holes[:, 9:14] = np.nan
    sea = np.r_[0:9, 14:30]
    found = rf.pca(holes, 2, drop_missing_columns=True, missing="em", passes=60)
    expected = rf.pca(holes[:, sea], 2, missing="em", passes=60)
    np.testing.assert_allclose(found.scores[...], expected.scores[...], atol=1e-10)


def test_a_number_in_a_column_left_out_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankfold.pipeline.data.missing_columns.LOOKED_BYTES", 1)
    values, sea = ocean()
    column = int(np.flatnonzero(~sea)[-1])
    values[33, column] = 5
    path = zarr_store(tmp_path / "x.zarr", values)
    source = open_source(path, drop_missing_columns=True)
    with pytest.raises(
        DataError, match=rf"column {column} is NaN in row 0.* row 33 holds 5\.0 .*select_rows"
    ):
        rf.svd(source, 2)
    read(source, (0, 33), (0, source.shape[1]))
    # By pieces too, whichever kept column the one left out goes with.
    with pytest.raises(DataError, match="row 33"):
        for left in range(source.shape[1]):
            read(source, (0, ROWS), (left, left + 1))
    values[33, column] = np.inf
    with pytest.raises(DataError, match="holds inf"):
        read(open_source(values, drop_missing_columns=True), (0, ROWS), (0, source.shape[1]))


def test_gaps_in_columns_that_are_kept_are_refused_by_the_reduction() -> None:
    values, sea = ocean("f8")
    values[8, np.flatnonzero(sea)[3]] = np.nan
    with pytest.raises(NonFiniteError, match="NaN"):
        rf.svd(open_source(values, drop_missing_columns=True), 2)


def test_where_nothing_is_missing_nothing_changes() -> None:
    for dtype in ("f4", "i2"):
        plain = open_source(x(dtype))
        assert open_source(plain, drop_missing_columns=True) is plain
    with pytest.raises(DataError, match=r"all 45 columns are NaN in rows 0 to 2.*select_rows="):
        open_source(np.full((3, 45), np.nan), drop_missing_columns=True)


def test_dropping_comes_after_selecting() -> None:
    values, sea = ocean()
    values[0] = 1.0
    source = open_source(values, select_rows="1:40", select_columns="0:30", drop_missing_columns=True)
    np.testing.assert_array_equal(read(source, (0, 39), (0, source.shape[1])), values[1:40, :30][:, sea[:30]])
    other = open_source(values, select_rows="1:40", drop_missing_columns=True)
    assert other.fingerprint() != open_source(values, select_rows="1:40").fingerprint()
    assert open_source(pickle.loads(pickle.dumps(source))).fingerprint() == source.fingerprint()


@settings(max_examples=50, derandomize=True, deadline=None)
@given(seed=st.integers(0, 10**6), length=st.integers(1, 9000), density=st.sampled_from([0.001, 0.3, 0.99]))
def test_ranks_and_places_of_kept_columns(seed: int, length: int, density: float) -> None:
    mask = np.random.default_rng(seed).random(length) < density
    mask[seed % length] = True
    kept = ColumnMask.of(mask)
    places = np.flatnonzero(mask)
    assert kept.count == len(places)
    for index in {0, len(places) // 2, len(places) - 1}:
        assert kept.place(index) == places[index] and kept.rank(int(places[index])) == index
    assert kept.rank(length) == len(places)
    np.testing.assert_array_equal(kept.mask(length // 3, length), mask[length // 3 :])


def test_ten_million_columns_take_little_to_carry() -> None:
    mask = np.random.default_rng(0).random(10**7) > 0.3
    assert len(pickle.dumps(ColumnMask.of(mask))) < 2 * 2**20


def test_real_sea_surface_temperature_as_a_cube(tmp_path: Path) -> None:
    """Months by ocean cells, spread over a grid whose other cells are NaN, as land is."""
    folder = os.environ.get("RANKFOLD_TEST_DATA")
    if not folder or not (Path(folder) / "sst_ersst.npz").exists():
        pytest.skip("set RANKFOLD_TEST_DATA to the folder that holds sst_ersst.npz")
    import zarr

    with np.load(Path(folder) / "sst_ersst.npz") as stored:
        sst, shape = stored["X"], (len(stored["lat"]), len(stored["lon"]))
    sea = np.sort(np.random.default_rng(0).choice(math.prod(shape), sst.shape[1], replace=False))
    cube = np.full((len(sst), math.prod(shape)), np.nan, sst.dtype)
    cube[:, sea] = sst
    array = zarr.create_array(
        tmp_path / "sst.zarr",
        shape=(len(sst), *shape),
        chunks=(12, 30, 50),
        dtype=cube.dtype,
        dimension_names=["time", "lat", "lon"],
    )
    array[...] = cube.reshape(array.shape)
    source = rf.open(tmp_path / "sst.zarr", row_axes="time", drop_missing_columns=True)
    assert source.shape == sst.shape
    np.testing.assert_array_equal(read(source, (0, sst.shape[0]), (0, sst.shape[1])), sst)
    s = np.linalg.svd((sst - sst.mean(0)).astype("f8"), compute_uv=False)[:5]
    np.testing.assert_allclose(rf.pca(source, 5, tol=1e-5, passes=12).singular_values, s, rtol=1e-4)
