"""Fields with areas: the patterns of xeofs, with weights of columns and of latitudes, and land left out."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rankfold as rf
from rankfold.pipeline.errors import InputError

xarray = pytest.importorskip("xarray", reason="pip install xarray")

TIME, LAT, LON = 60, 7, 9


def field() -> Any:
    rng = np.random.default_rng(0)
    x = np.einsum(
        "tk,kxy->txy", rng.standard_normal((TIME, 5)) * [5, 3, 2, 1, 0.5], rng.standard_normal((5, LAT, LON))
    )
    x += 0.05 * rng.standard_normal(x.shape) + 15
    x[:, 2, 3:6] = np.nan
    coords = {"time": np.arange(TIME), "lat": np.linspace(-80, 85, LAT), "lon": np.arange(0, 360, 40)}
    return xarray.DataArray(x, coords, ("time", "lat", "lon"), name="sst")


def xeofs_of(data: Any, **flags: Any) -> Any:
    xeofs = pytest.importorskip("xeofs", reason="pip install xeofs")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = xeofs.single.EOF(n_modes=4, **flags)
        return model.fit(data, dim="time")


def opened(data: Any, prepare: Any) -> Any:
    return rf.open(data, row_axes="time", drop_missing_columns=True, prepare=prepare)


def assert_patterns(found: Any, model: Any, rtol: float = 1e-6) -> None:
    values = np.asarray(model.explained_variance())
    np.testing.assert_allclose(found["explained_variance"], values, rtol=rtol)
    theirs = model.components().transpose("mode", "lat", "lon").sel(lat=found["lat"], lon=found["lon"]).values
    ours = found["components"].values
    assert (np.isnan(ours) == np.isnan(theirs)).all()
    np.testing.assert_allclose(
        found["explained_variance_ratio"], np.asarray(model.explained_variance_ratio()), rtol=rtol
    )
    scores = model.scores(normalized=False).transpose("mode", "time").values
    signs = np.sign((np.nan_to_num(ours) * np.nan_to_num(theirs)).sum(axis=(1, 2)))
    # Half the digits: where values are close, vectors turn by more than values change.
    np.testing.assert_allclose(ours * signs[:, None, None], theirs, atol=np.sqrt(rtol) * np.nanmax(theirs))
    np.testing.assert_allclose(
        found["scores"].values * signs[:, None], scores, atol=np.sqrt(rtol) * np.abs(scores).max()
    )


@pytest.mark.parametrize(
    ("prepare", "flags"),
    [
        (None, {}),
        ("coslat", {"use_coslat": True}),
        ("scale(ddof=0), coslat", {"standardize": True, "use_coslat": True}),
    ],
    ids=str,
)
def test_patterns_are_those_of_xeofs(tmp_path: Path, prepare: str | None, flags: dict[str, bool]) -> None:
    data = field()
    model = xeofs_of(data, **flags)
    data.to_netcdf(tmp_path / "sst.nc")
    for x in (data, f"{tmp_path / 'sst.nc'}::sst"):
        result = rf.pca(opened(x, prepare), 4, tol=1e-10)
        assert_patterns(result.to_xarray(data), model)
    np.testing.assert_allclose(
        rf.transform(result, opened(data, None)).scores[:], result.scores[:], atol=1e-8
    )


def test_weights_of_the_whole_grid_go_with_the_columns_that_are_kept() -> None:
    data = field()
    weights = np.random.default_rng(1).random((LAT, LON))
    result = rf.pca(opened(data, [{"weights": {"values": weights}}]), 3, tol=1e-10)
    x = (data - data.mean("time")).values.reshape(TIME, -1) * weights.ravel()
    s = np.linalg.svd(x[:, ~np.isnan(x[0])], compute_uv=False)
    np.testing.assert_allclose(result.singular_values[:], s[:3], rtol=1e-8)


def test_weights_along_some_axes_count_for_all_places_along_the_others() -> None:
    data = field()
    weights = np.sqrt(np.cos(np.deg2rad(data["lat"])))
    expected = rf.pca(opened(data, "coslat"), 3, tol=1e-10)
    for some in (weights, weights[::-1], weights.broadcast_like(data[0]).where(data[0].notnull())):
        found = rf.pca(opened(data, [{"weights": {"values": some}}]), 3, tol=1e-10)
        np.testing.assert_allclose(found.scores[:], expected.scores[:], atol=1e-8)
    with pytest.raises(InputError, match=r"no number for lat -?[\d.]+, lon"):
        opened(data, [{"weights": {"values": weights[1:]}}])
    with pytest.raises(InputError, match="are not finite"):
        opened(data, [{"weights": {"values": weights.where(weights["lat"] > 0)}}])
    with pytest.raises(InputError, match=r"lat2 .* are not lat"):
        opened(data, [{"weights": {"values": weights.rename(lat="lat2")}}])


def test_latitudes_that_are_none_are_refused() -> None:
    data = field()
    with pytest.raises(InputError, match=r"the data has no coordinate 'lat'; it has time, lon"):
        opened(data.drop_vars("lat"), "coslat")
    with pytest.raises(InputError, match="lat goes from -800 to 850, which are no degrees"):
        opened(data.assign_coords(lat=10 * data["lat"]), "coslat")
    with pytest.raises(InputError, match="coslat takes data with an axis 'latitude' among the columns"):
        opened(data, "coslat(latitude='latitude')")
    with pytest.raises(InputError, match="coslat takes data with an axis 'lat' among the columns"):
        rf.open(np.ones((4, 3)), prepare="coslat")


def curvilinear() -> Any:
    data = field().rename(lat="y", lon="x").drop_vars(["y", "x"])
    latitudes = np.linspace(-80, 70, LAT)[:, None] + np.linspace(0, 15, LON)
    return data.assign_coords(lat=(("y", "x"), latitudes))


@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
@pytest.mark.parametrize("kind", ["array", "nc", "h5", "zarr", "years"])
def test_latitudes_of_a_curvilinear_grid_are_weights(tmp_path: Path, kind: str) -> None:
    data = curvilinear()
    x = data
    if kind == "zarr":
        data.to_dataset().to_zarr(tmp_path / "sst.zarr")
        x = f"{tmp_path / 'sst.zarr'}::sst"
    elif kind != "array":
        for number, part in enumerate((data[:20], data[20:]) if kind == "years" else (data,)):
            part.to_netcdf(tmp_path / f"{number}.{'h5' if kind == 'h5' else 'nc'}", engine="netcdf4")
        x = f"{tmp_path}/*::sst" if kind == "years" else f"{tmp_path / '0.'}{kind}::sst"
    result = rf.pca(opened(x, "coslat"), 3, tol=1e-10)
    weighted = ((data - data.mean("time")) * np.sqrt(np.cos(np.deg2rad(data["lat"])))).values.reshape(
        TIME, -1
    )
    s = np.linalg.svd(weighted[:, ~np.isnan(weighted[0])], compute_uv=False)
    np.testing.assert_allclose(result.singular_values, s[:3], rtol=1e-8)


@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
@pytest.mark.parametrize("dims", [("time", "cell"), ("time", "level", "cell"), ("cell", "time", "level")])
@pytest.mark.parametrize("kind", ["array", "dask", "x.nc", "x.nc::sst", "lazy", "x.zarr::sst"])
def test_latitudes_of_an_unstructured_grid_are_weights(
    tmp_path: Path, dims: tuple[str, ...], kind: str
) -> None:
    lengths, latitudes = {"time": 20, "level": 2, "cell": 20}, np.linspace(-80, 70, 20)
    x = np.random.default_rng(2).standard_normal([lengths[dim] for dim in dims])
    data = xarray.DataArray(x, dims=dims, coords={"lat": ("cell", latitudes)}, name="sst")
    if kind.startswith("x.nc") or kind == "lazy":
        data.to_netcdf(tmp_path / "x.nc")
    if ".zarr" in kind:
        data.to_dataset().to_zarr(tmp_path / "x.zarr")
    placed = {"array": data, "dask": data.chunk(time=7)}
    if kind == "lazy":
        placed["lazy"] = xarray.open_dataset(tmp_path / "x.nc")["sst"]
    weights = np.sqrt(np.cos(np.deg2rad(data["lat"])))
    for cut in (slice(None), slice(3, 20, 4)):
        chosen = {} if cut == slice(None) else {"select_columns": cut}
        source = rf.open(placed.get(kind, str(tmp_path / kind)), row_axes="time", prepare="coslat", **chosen)
        expected = (data * weights).transpose("time", *(dim for dim in dims if dim != "time"))
        found = rf.pca(source, 2, tol=1e-10)
        np.testing.assert_allclose(found["mean"], expected.values.reshape(20, -1)[:, cut].mean(0), atol=1e-12)
    with pytest.raises(InputError, match="lat goes along cell, not all of which are columns"):
        rf.open(data, row_axes="cell", prepare="coslat")


@pytest.mark.parametrize("units", ["radians", "radian", "rad", "Degrees_North", "degree", ""])
@pytest.mark.parametrize("kind", ["array", "nc", "h5", "zarr"])
@pytest.mark.parametrize("grid", [field, curvilinear])
@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
def test_units_of_latitudes_are_heeded(tmp_path: Path, units: str, kind: str, grid: Any) -> None:
    data = field() if kind == "h5" else grid()  # HDF5 has coordinates of axes alone
    weights = np.sqrt(np.cos(np.deg2rad(data["lat"])))
    said = data.assign_coords(lat=np.deg2rad(data["lat"]) if units.startswith("rad") else data["lat"])
    said["lat"].attrs = {"units": units} if units else {}
    if kind == "zarr":
        said.to_dataset(name="sst").to_zarr(tmp_path / "x.zarr")
    elif kind != "array":
        said.rename("sst").to_netcdf(tmp_path / f"x.{kind}", engine="netcdf4")
    result = rf.pca(opened(said if kind == "array" else f"{tmp_path}/x.{kind}::sst", "coslat"), 2)
    expected = (data * weights).mean("time").values.ravel()
    np.testing.assert_allclose(result["mean"], expected[~np.isnan(expected)], rtol=1e-6)


@pytest.mark.parametrize("kind", ["array", "nc", "before", "imported"])
@pytest.mark.parametrize("grid", [field, curvilinear])
@pytest.mark.parametrize("name", ["latitude", "rlat", "nav"])
def test_latitudes_of_other_names_are_known(tmp_path: Path, kind: str, grid: Any, name: str) -> None:
    if kind in ("before", "imported") and grid is curvilinear:
        grid = field  # a matrix has coordinates of axes alone
    data = grid()
    weights = np.sqrt(np.cos(np.deg2rad(data["lat"])))
    said = data.rename(lat=name)
    said[name].attrs = {} if name == "latitude" else {"standard_name": "latitude"}
    if kind == "nc":
        said.rename("sst").to_netcdf(tmp_path / "x.nc")
    if kind == "imported":
        rf.import_array(said, tmp_path / "x.zarr", row_axes="time", drop_missing_columns=True)
    places = {"nc": f"{tmp_path}/x.nc::sst", "before": opened(said, None), "array": said}
    source = (
        rf.open(tmp_path / "x.zarr", prepare="coslat")
        if kind == "imported"
        else rf.open(places[kind], prepare="coslat")
        if kind == "before"
        else opened(places[kind], "coslat")
    )
    result = rf.pca(source, 2)
    assert f"coslat(latitude={name!r})" in result.attrs["input"]["prepare"]
    expected = (data * weights).mean("time").values.ravel()
    np.testing.assert_allclose(result["mean"], expected[~np.isnan(expected)], rtol=1e-6)


def test_several_latitudes_or_one_of_another_name_are_named() -> None:
    data = curvilinear().rename(lat="rlat")
    data["rlat"].attrs = {"standard_name": "latitude"}
    data = data.assign_coords(plat=data["rlat"] + 1)
    with pytest.raises(InputError, match=r"rlat and plat are latitudes .*coslat\(latitude='rlat'\)"):
        opened(data, "coslat")
    opened(data, "coslat(latitude='plat')")
    with pytest.raises(InputError, match=r"Did you mean coslat\(latitude='LAT'\)"):
        opened(field().rename(lat="LAT"), "coslat")


@pytest.mark.parametrize("grid", [field, curvilinear])
def test_units_that_are_no_angles_are_refused(grid: Any) -> None:
    data = grid()
    data["lat"].attrs = {"units": "km"}
    with pytest.raises(InputError, match="lat is in units of 'km', which are neither degrees nor radians"):
        opened(data, "coslat")


def test_latitudes_that_are_not_of_the_columns_or_not_known_are_refused() -> None:
    data = curvilinear()
    with pytest.raises(InputError, match="lat goes along y, x, not all of which are columns"):
        rf.open(data, row_axes="time,y", prepare="coslat")
    with pytest.raises(InputError, match="coslat: lat is not known of 1 of 60 columns"):
        opened(data.assign_coords(lat=data["lat"].where(data["lat"] > -79)), "coslat")


def test_latitudes_of_a_matrix_that_was_opened_before_are_known() -> None:
    before = rf.open(rf.open(field(), row_axes="time", drop_missing_columns=True), prepare="coslat")
    at_once = rf.open(field(), row_axes="time", drop_missing_columns=True, prepare="coslat")
    np.testing.assert_array_equal(rf.pca(before, 2).components, rf.pca(at_once, 2).components)


def test_sea_surface_temperature_as_xeofs_has_it() -> None:
    folder = os.environ.get("RANKFOLD_TEST_DATA")
    if not folder or not (Path(folder) / "sst_ersst.npz").exists():
        pytest.skip("set RANKFOLD_TEST_DATA to the folder that holds sst_ersst.npz")
    with np.load(Path(folder) / "sst_ersst.npz") as stored:
        x, lat, lon = (stored[name] for name in ("X", "lat", "lon"))
    # Which places are ocean is not kept: they stand in their order, and the places that are left are land.
    grid = np.full((len(x), len(lat) * len(lon)), np.nan)
    grid[:, : x.shape[1]] = x
    coords = {"time": np.arange(len(x)), "lat": lat, "lon": lon}
    data = xarray.DataArray(grid.reshape(len(x), len(lat), len(lon)), coords, ("time", "lat", "lon"))
    model = xeofs_of(data, use_coslat=True)
    result = rf.pca(opened(data, "coslat"), 4, tol=1e-9)
    found = result.to_xarray(data)
    assert_patterns(found, model)
    np.testing.assert_array_equal(found["lat"], lat)
