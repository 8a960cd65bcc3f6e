"""Rows without a number are left out where that is asked for, named, and everywhere the same."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from command_line import rankfold
from reference import to_zarr

import rankfold as rf
from rankfold.pipeline.data import missing_rows
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.formats import open_source

xarray = pytest.importorskip("xarray", reason="pip install xarray")

EMPTY, VIEW = [0, 5, 6], {"row_axes": "time", "drop_missing_columns": True, "drop_missing_rows": True}


def field(months: int = 24) -> Any:
    x = np.random.default_rng(0).standard_normal((months, 5, 4)) + 18
    x[:, 2, 1] = np.nan
    x[EMPTY] = np.nan
    coords = {"time": np.arange(months) * 30, "lat": np.linspace(-60, 60, 5), "lon": np.arange(4) * 90.0}
    return xarray.DataArray(x, coords, ("time", "lat", "lon"), name="sst")


@pytest.mark.parametrize("bytes_", [8, 200, 2**20])
@pytest.mark.parametrize("chunks", [(4, 3), (24, 20), (1, 20), (24, 1)], ids=str)
def test_rows_that_hold_a_number_are_kept(
    tmp_path: Path, monkeypatch: Any, chunks: tuple[int, int], bytes_: int
) -> None:
    monkeypatch.setattr(missing_rows, "READ_BYTES", bytes_)
    x = field().values.reshape(24, 20)
    x[5, -1] = 7.0
    kept = np.setdiff1d(np.arange(24), [0, 6])
    for each in (x, to_zarr(tmp_path / "x.zarr", x, chunks)):
        found = open_source(each, drop_missing_rows=True)
        np.testing.assert_array_equal(np.asarray(found), x[kept])
    assert open_source(x[kept], drop_missing_rows=True).shape == (22, 20)


def test_they_are_named_and_counted(caplog: Any) -> None:
    with caplog.at_level(logging.WARNING, logger="rankfold"):
        result = rf.pca(field(), 3, **VIEW, prepare="coslat")
    words = "3 of 24 rows of array float64 (24, 5, 4) by time hold no number and are left out: "
    assert caplog.messages == [words + "time 0, time 150, time 180"]
    assert result.attrs["input"]["layout"]["missing_rows"] == 3
    assert "[21 of 24 rows not missing]" in result.attrs["input"]["name"]
    caplog.clear()
    open_source(np.where(np.arange(6)[:, None] % 2, 1.0, np.full((6, 3), np.nan)), drop_missing_rows=True)
    assert caplog.messages == [
        "3 of 6 rows of array float64 (6, 3) hold no number and are left out: 0, 2, 4 (from 0)"
    ]


def test_results_are_those_of_the_months_that_are_there() -> None:
    data = field()
    there = data.dropna("time", how="all")
    result = rf.pca(data, 3, **VIEW, prepare="coslat", tol=1e-10)
    plain = rf.pca(there, 3, row_axes="time", drop_missing_columns=True, prepare="coslat", tol=1e-10)
    np.testing.assert_allclose(result.singular_values, plain.singular_values, rtol=1e-12)
    for like in (None, data):
        found = result.to_xarray(like, physical=True)
        np.testing.assert_array_equal(found["time"], there["time"])
        xarray.testing.assert_allclose(found["mean"], data.mean("time"), rtol=1e-10)
    np.testing.assert_array_equal(result.to_pandas().index, there["time"].astype(int))


def test_new_rows_are_taken_as_the_fit_took_them(tmp_path: Path) -> None:
    data = field()
    data.to_netcdf(tmp_path / "sst.nc")
    place = f"{tmp_path / 'sst.nc'}::sst"
    result = rf.pca(place, 3, **VIEW, prepare="coslat", tol=1e-10, out=tmp_path / "fit.zarr")
    for x in (data, place, rf.open(place, **VIEW)):
        np.testing.assert_allclose(rf.transform(result, x).scores, result.scores, atol=1e-9)
        assert rf.check(result, x).attrs["largest_residual"] < 1e-6
    for command in ("transform", "check"):
        words = [command, str(tmp_path / "fit.zarr"), place]
        words += ["--out", str(tmp_path / "new.zarr")] if command == "transform" else []
        assert rankfold(*words).exit_code == 0
    np.testing.assert_allclose(rf.open_result(tmp_path / "new.zarr").scores, result.scores, atol=1e-9)
    updated = rf.update(rf.pca(data[:12], **VIEW), data[12:])
    assert updated.attrs["input"]["shape"][0] == 21


def test_what_has_no_such_rows_is_refused_or_taken_as_it_is() -> None:
    counts = np.arange(12).reshape(4, 3)
    assert open_source(counts, drop_missing_rows=True).shape == (4, 3)
    sparse = scipy.sparse.csr_array(counts.astype(float))
    assert open_source(sparse, drop_missing_rows=True).shape == (4, 3)
    with pytest.raises(DataError, match="all 4 rows are NaN, so drop_missing_rows would leave nothing"):
        open_source(np.full((4, 3), np.nan), drop_missing_rows=True)
    with pytest.raises(InputError, match="leave out rows of nothing before them"):
        open_source(open_source(counts, prepare="log1p"), drop_missing_rows=True)
    columns = open_source(field(), **VIEW).shape[1]
    assert open_source(field(), row_axes="time", drop_missing_columns=True).shape[1] == columns
    with pytest.raises(DataError, match="drop_missing_rows=True"):
        open_source(np.full((4, 3), np.nan), drop_missing_columns=True)
    with pytest.raises(InputError, match="leave out grows, or drop_missing_rows"):
        open_source(field(), **VIEW).row_marks(3)
