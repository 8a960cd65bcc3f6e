"""A result as an xarray dataset has the axes, coordinates and gaps of the data."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
import zarr

import rankfold as rf
from rankfold.methods.registry import METHODS
from rankfold.pipeline.errors import InputError, OutputError
from rankfold.pipeline.exporting import fields
from rankfold.pipeline.exporting.fields import dataset_of
from rankfold.pipeline.law import result_law

xarray = pytest.importorskip("xarray", reason="pip install xarray")

Array = npt.NDArray[Any]
TIME, LAT, LON = 40, 6, 5


def field(*, land: bool = True) -> Any:
    x = np.random.default_rng(0).standard_normal((TIME, LAT, LON)).cumsum(axis=0) + 20
    if land:
        x[:, 1:3, 2] = np.nan
    return xarray.DataArray(
        x,
        dims=("time", "lat", "lon"),
        coords={
            "time": (np.datetime64("2000-01-01") + 30 * np.arange(TIME)).astype("datetime64[ns]"),
            "lat": np.linspace(-60, 60, LAT),
            "lon": np.linspace(0, 288, LON),
            "month": ("time", np.arange(TIME) % 12 + 1),
            "cell": (("lat", "lon"), np.arange(LAT * LON).reshape(LAT, LON)),
            "depth": 10.0,
        },
        name="sst",
        attrs={"units": "degree_C", "long_name": "temperature"},
    )


KINDS = (
    "array",
    "dask",
    "lazy",
    "nc",
    "packed.nc",
    "zarr",
    "zarr2",
    "h5",
    "packed.h5",
    "years",
    "packed years",
)
"""Ways in which data have units and coordinates."""


def placed(folder: Path, kind: str, data: Any) -> Any:
    """The data in some kind of store, or in memory, as something that is opened."""
    packed = {"sst": {"dtype": "i4", "scale_factor": 1e-6, "add_offset": 20.0, "_FillValue": -(2**31)}}
    encoding = packed if kind.startswith("packed") else {}
    if kind in ("array", "dask"):
        return data if kind == "array" else data.chunk(time=7)
    if kind.startswith("zarr"):
        data.to_dataset().to_zarr(folder / "sst.zarr", zarr_format=2 if kind.endswith("2") else 3)
        return f"{folder / 'sst.zarr'}::sst"
    if kind.endswith("years"):
        for year, part in enumerate((data[:18], data[18:])):
            part.to_netcdf(folder / f"sst-{year}.{'h5' if encoding else 'nc'}", encoding=encoding)
        return f"{folder / 'sst-*'}::sst"
    path = folder / f"sst.{kind.rpartition('.')[2] if '.' in kind or kind == 'h5' else 'nc'}"
    data.to_netcdf(path, engine="netcdf4", encoding=encoding)
    return xarray.open_dataset(path)["sst"] if kind == "lazy" else f"{path}::sst"


@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
@pytest.mark.parametrize("kind", KINDS)
def test_what_the_data_are_called_and_measured_in_travels(tmp_path: Path, kind: str) -> None:
    data = field().drop_vars(["cell", "depth"])
    data["lat"].attrs = {"units": "degrees_north", "standard_name": "latitude", "comment": "stays"}
    data["time"].attrs = {"long_name": "middle of the month"}
    x = placed(tmp_path, kind, data)
    result = rf.pca(rf.open(x, row_axes="time", drop_missing_columns=True, prepare="coslat"), 3)
    weights = np.sqrt(np.cos(np.deg2rad(data["lat"])))
    by_path = isinstance(x, str) and ".h5" not in x and kind != "packed years"
    for like in [None, data, *([x] if by_path else [])]:
        found = result.to_xarray(like, physical=True)
        xarray.testing.assert_allclose(found["mean"], data.mean("time"), rtol=1e-5)
        assert found["mean"].attrs == {"units": "degree_C", "long_name": "temperature"}
        for name in ("time", "lat", "lon"):
            np.testing.assert_array_equal(found[name], data[name])
        assert found["lat"].attrs["units"] == "degrees_north"
        assert found["lat"].attrs["standard_name"] == "latitude"
        assert found["time"].attrs == {"long_name": "middle of the month"}
    plain = result.to_xarray()
    assert plain["mean"].attrs == {}
    xarray.testing.assert_allclose(plain["mean"].drop_attrs(), data.mean("time") * weights, rtol=1e-5)


def test_a_store_that_was_imported_has_its_axes_and_units(tmp_path: Path) -> None:
    data = field().drop_vars(["cell", "depth"])
    rf.import_array(data, tmp_path / "sst.zarr", row_axes="time", drop_missing_columns=True)
    result = rf.pca(tmp_path / "sst.zarr", 3, prepare="coslat")
    for like in (None, data):
        found = result.to_xarray(like, physical=True)
        assert found["mean"].dims == ("lat", "lon") and found["mean"].attrs == data.attrs
        xarray.testing.assert_allclose(found["mean"], data.mean("time"), rtol=1e-9)
        np.testing.assert_array_equal(found["time"], data["time"])


def parts(result: rf.Result, rows: str, columns: str) -> Array:
    return np.asarray(result[rows][:] @ result[columns][:])


def test_fields_come_back_with_their_axes_and_their_land() -> None:
    data = field()
    result = rf.pca(rf.open(data, row_axes="time", drop_missing_columns=True), 3)
    found = result.to_xarray(data)
    assert found["components"].dims == ("mode", "lat", "lon") and found["scores"].dims == ("mode", "time")
    assert found["mean"].dims == ("lat", "lon") and found["singular_values"].dims == ("mode",)
    np.testing.assert_array_equal(found.mode, [1, 2, 3])
    for name in ("time", "lat", "lon", "month", "cell", "depth"):
        xarray.testing.assert_equal(found[name].reset_coords(drop=True), data[name].reset_coords(drop=True))
    np.testing.assert_array_equal(np.isnan(found["components"][0]), np.isnan(data[0]))
    rebuilt = (found["scores"] * found["components"]).sum("mode", skipna=False) + found["mean"]
    left_out = float(((rebuilt - data) ** 2).sum()) / float(((data - data.mean("time")) ** 2).sum())
    assert left_out == pytest.approx(1 - float(found["explained_variance_ratio"].sum()), rel=1e-5)
    assert found["mean"].attrs == data.attrs and found["scores"].attrs == {"units": "degree_C"}
    assert found["components"].attrs == {}
    assert json.loads(found.attrs["rankfold"])["kind"] == "pca"


def test_what_was_cut_along_one_axis_has_its_coordinates() -> None:
    data = field(land=False)
    result = rf.svd(rf.open(data, row_axes="time", select_rows="5:30:5", select_columns="3:"), 2)
    found = result.to_xarray(data)
    np.testing.assert_array_equal(found["time"], data["time"][5:30:5])
    np.testing.assert_array_equal(found["month"], data["month"][5:30:5])
    assert found["U"].dims == ("mode", "time") and found["U"].shape == (2, 5)
    assert (
        np.isnan(found["Vt"].values[0].ravel()[:3]).all()
        and not np.isnan(found["Vt"].values[0].ravel()[3:]).any()
    )
    expected = data.values.reshape(TIME, -1)[5:30:5, 3:]
    u, s, vt = np.linalg.svd(expected, full_matrices=False)
    whole = np.einsum("mt,m,mp->tp", found["U"], found["s"], found["Vt"].values.reshape(2, -1)[:, 3:])
    np.testing.assert_allclose(whole, u[:, :2] * s[:2] @ vt[:2], atol=1e-3 * s[0])


def test_several_axes_make_the_rows() -> None:
    data = field(land=False)
    found = rf.nmf(rf.open(data, row_axes="lat,lon"), 2, seed=0).to_xarray(data)
    assert found["W"].dims == ("mode", "lat", "lon") and found["H"].dims == ("mode", "time")
    np.testing.assert_array_equal(found["lon"], data["lon"])


def test_without_the_data_axes_keep_their_names_and_coordinates_and_matrices_have_two() -> None:
    data = field()
    found = rf.pca(rf.open(data, row_axes="time", drop_missing_columns=True), 3).to_xarray()
    assert found["components"].dims == ("mode", "lat", "lon")
    for name in ("time", "lat", "lon"):
        np.testing.assert_array_equal(found[name], data[name])
    plain = rf.pca(field(land=False).values.reshape(TIME, -1), 3).to_xarray()
    assert plain["components"].dims == ("mode", "column") and plain["scores"].dims == ("mode", "row")
    two = xarray.DataArray(
        np.random.default_rng(0).random((30, 4)), dims=("when", "where"), coords={"where": list("abcd")}
    )
    found = rf.pca(two, 2).to_xarray(two)
    assert found["scores"].dims == ("mode", "when") and list(found["where"].values) == list("abcd")
    bare = rf.pca(rf.open(field().drop_vars(["lat", "time"]), row_axes="time", drop_missing_columns=True), 2)
    assert set(bare.to_xarray().coords) == {"mode", "lon"}


@pytest.mark.parametrize("kind", ["nc", "zarr"])
def test_a_dataset_is_written_and_read_without_a_warning(tmp_path: Path, kind: str) -> None:
    data = field()
    found = rf.pca(rf.open(data, row_axes="time", drop_missing_columns=True), 3).to_xarray(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="Consolidated metadata is currently not part")
        if kind == "nc":
            found.to_netcdf(tmp_path / "eof.nc")
            again = xarray.open_dataset(tmp_path / "eof.nc")
        else:
            found.to_zarr(tmp_path / "eof.zarr")
            again = xarray.open_zarr(tmp_path / "eof.zarr")
        xarray.testing.assert_equal(again.load(), found)
    again.close()


def test_data_on_disk_are_like_themselves_and_not_read(tmp_path: Path) -> None:
    field().to_dataset().to_netcdf(tmp_path / "sst.nc")
    result = rf.pca(rf.open(f"{tmp_path / 'sst.nc'}::sst", row_axes="time", drop_missing_columns=True), 3)
    with xarray.open_dataset(tmp_path / "sst.nc") as data:
        found = result.to_xarray(data["sst"])
        assert not data["sst"].variable._in_memory
    assert found["components"].dims == ("mode", "lat", "lon")


def test_other_data_are_refused() -> None:
    result = rf.pca(rf.open(field(), row_axes="time", drop_missing_columns=True), 3)
    with pytest.raises(InputError, match="axes time 40, lat 6, lon 5, but like has time 39, lat 6, lon 5"):
        result.to_xarray(field()[1:])
    with pytest.raises(InputError, match="but like has lat 6, lon 5"):
        result.to_xarray(field()[0])


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    field().to_dataset().to_netcdf(tmp_path / "sst.nc")
    place = f"{tmp_path / 'sst.nc'}::sst"
    result = rf.pca(rf.open(place, row_axes="time", drop_missing_columns=True), 3)
    assert result.to_netcdf(tmp_path / "eof.nc", like=place) == tmp_path / "eof.nc"
    with xarray.open_dataset(tmp_path / "eof.nc") as found:
        xarray.testing.assert_equal(found.load(), result.to_xarray(field()))
    with pytest.raises(OutputError, match=r"eof.nc exists. Say overwrite=True"):
        result.to_netcdf(tmp_path / "eof.nc")
    result.to_netcdf(tmp_path / "eof.nc", overwrite=True)
    alone = result.to_netcdf(tmp_path / "alone.nc", like=tmp_path / "sst.nc")  # it has one variable
    with xarray.open_dataset(alone) as found:
        xarray.testing.assert_equal(found.load(), result.to_xarray(field()))
    alone.unlink()
    with pytest.raises(InputError, match=r"eof.nc has not one variable; it has .*name one, as .*eof.nc::"):
        result.to_netcdf(tmp_path / "other.nc", like=tmp_path / "eof.nc")
    with pytest.raises(InputError, match="has no variable 'ssst'; it has sst"):
        result.to_netcdf(tmp_path / "other.nc", like=f"{tmp_path / 'sst.nc'}::ssst")
    with pytest.raises(OutputError, match="cannot be written"):
        result.to_netcdf(tmp_path / "no folder" / "eof.nc")
    assert {path.name for path in tmp_path.iterdir()} == {"sst.nc", "eof.nc"}


@pytest.mark.parametrize("of", ["pca", "reconstruct"])
def test_large_arrays_are_written_by_blocks_of_rows(
    of: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result: Any = rf.pca(rf.open(field(), row_axes="time", drop_missing_columns=True), 3)
    if of == "reconstruct":
        rf.reconstruct(result, out=tmp_path / "again.zarr")
        result = rf.open_result(tmp_path / "again.zarr")
    whole = result.to_netcdf(tmp_path / "whole.nc")
    most = []

    def arranged(values: Any, kinds: Any, *more: Any, real: Any = fields._arranged) -> Any:
        most.append(len(values) if kinds[0] == "row" else 0)
        return real(values, kinds, *more)

    monkeypatch.setattr(fields, "_arranged", arranged)
    monkeypatch.setattr(fields, "WHOLE_BYTES", 0)
    monkeypatch.setattr(fields, "BLOCK_BYTES", 800)
    blocks = result.to_netcdf(tmp_path / "blocks.nc")
    assert 0 < max(most) < 40
    with xarray.open_dataset(whole) as one, xarray.open_dataset(blocks) as other:
        xarray.testing.assert_identical(one.load(), other.load())


def test_units_are_those_of_what_the_numbers_are() -> None:
    data = field(land=False) ** 2
    data.attrs["units"] = "K"

    def with_units(prepare: str | None, **flags: bool) -> set[str]:
        result = rf.pca(rf.open(data, row_axes="time", prepare=prepare), 2, **flags)
        found = result.to_xarray(data)
        return {str(name) for name in found.data_vars if "units" in found[name].attrs}

    assert with_units(None) == {"mean", "scores", "singular_values"}
    assert with_units(None, whiten=True) == {"mean"}
    assert with_units(None, scale=True) == {"mean", "scale"}
    assert with_units("log1p") == set()


def test_neighbors_have_the_axes_of_the_rows() -> None:
    found = rf.knn(rf.open(field(land=False), row_axes="lat,lon"), 3).to_xarray()
    assert found["indices"].dims == found["distances"].dims == ("lat", "lon", "neighbor")


@pytest.mark.parametrize("kind", METHODS.ours)
def test_declared_arrays_of_every_method_are_on_the_axes_of_the_data(kind: str) -> None:
    data, rng = field(), np.random.default_rng(3)
    fit = rf.pca(rf.open(data, row_axes="time", drop_missing_columns=True), 2)
    lengths = {"row": TIME, "column": fit.components.shape[1], "component": 2, "neighbor": 3}
    arrays, axes = {}, {}
    for said in METHODS[kind].arrays:
        name = said.rstrip("?").partition(" if ")[0]
        declared = result_law(kind).of(name).axes
        if name != "graph" and declared is not None:  # a graph is a group
            axes[name] = declared
            numbers = [lengths.setdefault(axis, 4 + len(lengths)) for axis in declared]
            arrays[name] = rng.standard_normal(numbers)

    class Made(dict[str, Any]):
        attrs: ClassVar = {"request": {"kind": kind}, "input": fit.attrs["input"]}

        def dimensions(self, name: str) -> tuple[str, ...]:
            return axes[name]

    found = dataset_of(Made(arrays))
    sea = ~np.isnan(data.values[0])
    parts = {"row": ("time",), "column": ("lat", "lon"), "component": ("mode",)}
    for name, declared in axes.items():
        places = sorted(range(len(declared)), key=lambda place: declared[place] != "component")
        dims = [dim for place in places for dim in parts.get(declared[place], (declared[place],))]
        array = found[data.name if name == "X" else name]
        assert array.dims == tuple(dims), name
        values = array.transpose(..., *(("lat", "lon") if "column" in declared else ())).values
        if "column" in declared:
            assert np.isnan(values[..., ~sea]).all()
            values = values[..., sea]
        np.testing.assert_array_equal(values, arrays[name].transpose(places))


def test_centers_of_clusters_are_fields() -> None:
    data = field()
    result = rf.kmeans(rf.open(data, row_axes="time", drop_missing_columns=True), 3)
    found = result.to_xarray()
    assert found["centers"].dims == ("cluster", "lat", "lon") and found["labels"].dims == ("time",)
    expected = data.groupby(found["labels"].rename("cluster")).mean()
    np.testing.assert_allclose(found["centers"], expected, rtol=1e-6)


def test_rows_that_were_asked_about_are_no_rows_of_the_data() -> None:
    data = field()
    how: dict[str, Any] = {"row_axes": "time", "drop_missing_columns": True}
    found = rf.knn(data, 3, queries=rf.open(data[:7], **how), **how).to_xarray()
    assert found["indices"].dims == ("row", "neighbor") and "time" not in found.coords


@pytest.mark.parametrize("kind", ["array", "dask", "nc"])
@pytest.mark.parametrize("how", [{}, {"row_axes": "time"}, {"select_columns": "2:9"}])
def test_two_axes_keep_their_names(tmp_path: Path, kind: str, how: dict[str, Any]) -> None:
    data = field(land=False).isel(lat=2, drop=True).rename(lon="station").drop_vars(["station", "cell"])
    found = rf.pca(
        placed(tmp_path, kind, data.isel(station=[0, 1, 2, 3, 4, 0, 2, 1, 4])), 2, **how
    ).to_xarray()
    assert found["components"].dims == ("mode", "station") and found["scores"].dims == ("mode", "time")
    np.testing.assert_array_equal(found["time"], data["time"])


@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
@pytest.mark.parametrize("kind", ["nc", "h5", "zarr", "array"])
def test_times_that_are_not_decoded_stay_numbers_with_their_units(tmp_path: Path, kind: str) -> None:
    data = field(land=False).drop_vars(["month", "cell", "depth"]).assign_coords(time=np.arange(TIME) + 0.5)
    data["time"].attrs = {"units": "months since 2000-01-01", "calendar": "noleap", "long_name": "time"}
    x = placed(tmp_path, kind, data)
    result = rf.pca(x, 2, row_axes="time")
    for like in [None, data, *([x] if kind in ("nc", "zarr") else [])]:
        found = result.to_xarray(like)
        np.testing.assert_array_equal(found["time"], data["time"])
        assert found["time"].attrs == data["time"].attrs
    result.to_netcdf(tmp_path / "out.nc")
    with xarray.open_dataset(tmp_path / "out.nc", decode_times=False) as found:
        assert found["time"].attrs["units"] == "months since 2000-01-01"


@pytest.mark.parametrize("calendar", ["noleap", "360_day", "julian"])
@pytest.mark.parametrize("kind", ["array", "nc", "years", "imported"])
def test_times_of_other_calendars_come_back(tmp_path: Path, calendar: str, kind: str) -> None:
    cftime = pytest.importorskip("cftime")
    first = cftime.datetime(1850, 1, 30, 12, calendar=calendar)
    hours = [np.timedelta64(720 * number, "h").astype(object) for number in range(TIME)]
    data = field(land=False).drop_vars(["month", "cell", "depth"])
    data = data.assign_coords(time=[first + each for each in hours])
    if kind == "imported":
        rf.import_array(data, tmp_path / "x.zarr", row_axes="time")
        result = rf.pca(tmp_path / "x.zarr", 2)
    else:
        result = rf.pca(placed(tmp_path, kind, data), 2, row_axes="time")
    found = result.to_xarray()
    assert found.indexes["time"].calendar == calendar and "calendar" not in found["time"].attrs
    np.testing.assert_array_equal(found["time"], data["time"])
    result.to_netcdf(tmp_path / "out.nc")
    with xarray.open_dataset(tmp_path / "out.nc") as again:
        assert again["time"].encoding["calendar"] == calendar
        np.testing.assert_array_equal(again["time"], data["time"])


def test_what_is_no_array_of_xarray_is_refused() -> None:
    data = field(land=False)
    result = rf.pca(rf.open(data, row_axes="time"), 2)
    for wrong in (data.to_dataset(), data.values):
        with pytest.raises(InputError, match="give a DataArray"):
            result.to_xarray(wrong)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("array", ["", "t"])
def test_axes_without_labels_keep_their_names(tmp_path: Path, zarr_format: Any, array: str) -> None:
    """Those of a store of Zarr: a field of its metadata in version 3, an attribute in version 2."""
    x = np.random.default_rng(0).standard_normal((30, 7))
    for number, axes in enumerate(
        [("time", "x"), ("column", "row"), ("mode", "x"), ("x", "x"), ("time", None)]
    ):
        store, given = tmp_path / f"{number}.zarr", list(axes)
        made = zarr.create_array(
            store,
            name=array or None,
            data=x,
            zarr_format=zarr_format,
            **({"dimension_names": given} if zarr_format == 3 else {}),
        )
        if zarr_format == 2:
            made.attrs["_ARRAY_DIMENSIONS"] = given
        result = rf.pca(f"{store}::{array}" if array else store, 2)
        whole = None not in axes and len({*axes}) == 2
        rows, columns = axes if whole else ("row", "column")
        rows = "data_mode" if rows == "mode" else rows
        found = result.to_xarray()
        assert found.scores.dims == ("mode", rows) and found.components.dims == ("mode", columns)
        np.testing.assert_array_equal(found.scores, np.asarray(result.scores).T)
        np.testing.assert_array_equal(found.components, result.components)
        assert rf.transform(result, x).to_xarray().scores.dims == (
            "mode",
            "row",
        )  # without names of their own
        with pytest.raises(InputError, match="a matrix has two"):
            rf.transform(result, x[0])


def test_scores_of_a_result_keep_the_names_of_its_rows(tmp_path: Path) -> None:
    rf.pca(field()[:, 0, 0:3].drop_vars(["lat", "cell"]), 2, out=tmp_path / "r.zarr")
    assert rf.svd(f"{tmp_path}/r.zarr::scores", 1).to_xarray().U.dims == ("mode", "time")


def test_axes_of_two_dimensions_keep_their_names(tmp_path: Path) -> None:
    """In a store of Zarr, and in a layout of the neighbors of a DataArray."""
    xarray = pytest.importorskip("xarray")
    times = np.arange("2000-01", "2005-01", dtype="M8[M]").astype("M8[ns]")
    data = xarray.DataArray(
        np.random.default_rng(0).standard_normal((60, 4)),
        dims=("time", "station"),
        coords={"time": times, "station": list("abcd")},
        name="t",
    )
    data.to_dataset().to_zarr(tmp_path / "t.zarr")
    for found in (rf.pca(f"{tmp_path}/t.zarr::t", 2), rf.pca(data, 2)):
        field = found.to_xarray()
        assert field.scores.dims == ("mode", "time") and field.components.dims == ("mode", "station")
        np.testing.assert_array_equal(field.time, times)
    layout = rf.umap(rf.knn(data, 5), n_epochs=5, init="random").to_xarray()
    assert layout.embedding.dims == ("mode", "time")
    same = data.rename(time="station", station="time")[:, :4]
    assert rf.pca(same.to_dataset(name="s").s, 2).to_xarray().scores.dims == ("mode", "station")
