"""Two matrices that meet are compared by name: put in order where that is safe, else refused by name."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import rankfold as rf
from rankfold.pipeline.data.origin import names_of
from rankfold.pipeline.errors import RankfoldError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.importing import import_array

Array = npt.NDArray[Any]

ROWS, NAMES = 60, ["income", "age", "rent", "weeks", *(f"answer {number}" for number in range(12))]


def table() -> pd.DataFrame:
    x = np.random.default_rng(3).standard_normal((ROWS, len(NAMES))) * np.linspace(1.0, 3.0, len(NAMES))
    return pd.DataFrame(np.abs(x) + 0.5, columns=NAMES, index=[f"r{number}" for number in range(ROWS)])


def reversed_(x: pd.DataFrame) -> pd.DataFrame:
    return x[x.columns[::-1]]


def wider(x: pd.DataFrame) -> pd.DataFrame:
    return x.assign(other=1.0)[[*NAMES[5:], "other", *NAMES[4::-1]]]


def renamed(x: pd.DataFrame) -> pd.DataFrame:
    return x.rename(columns={"rent": "lease"})


GUISES = (reversed_, wider)


# Tables and cells, in every container that has names --------------------------------------------------------


def frame(x: pd.DataFrame, folder: Path) -> Any:
    return x


def polars_frame(x: pd.DataFrame, folder: Path) -> Any:
    return pytest.importorskip("polars").DataFrame({str(name): x[name].to_numpy() for name in x})


def data_array(x: pd.DataFrame, folder: Path) -> Any:
    return pytest.importorskip("xarray").DataArray(x.to_numpy(), {"sample": x.index, "feature": list(x)})


def netcdf(x: pd.DataFrame, folder: Path) -> Any:
    data_array(x, folder).to_netcdf(folder / f"{abs(hash(tuple(x)))}.nc")
    return folder / f"{abs(hash(tuple(x)))}.nc"


def cells(x: pd.DataFrame, folder: Path) -> Any:
    anndata = pytest.importorskip("anndata")
    return anndata.AnnData(x.to_numpy(), pd.DataFrame(index=x.index), pd.DataFrame(index=list(x)))


def sparse_cells(x: pd.DataFrame, folder: Path) -> Any:
    made = cells(x, folder)
    made.X = scipy.sparse.csr_matrix(made.X)
    return made


def written(make: Callable[[pd.DataFrame, Path], Any], ending: str) -> Callable[[pd.DataFrame, Path], Any]:
    def write(x: pd.DataFrame, folder: Path) -> Any:
        path = folder / f"{abs(hash(tuple(x)))}{ending}"
        made = make(x, folder)
        made.write_h5ad(path) if ending == ".h5ad" else made.write_zarr(path)
        return path if ending == ".h5ad" else f"{path}::X"

    return write


def imported(ending: str) -> Callable[[pd.DataFrame, Path], Any]:
    def write(x: pd.DataFrame, folder: Path) -> Any:
        path = folder / f"{abs(hash(tuple(x)))}{ending}"
        source: Any = path
        if ending == ".csv":
            x.to_csv(path, index=False)
        elif ending == ".parquet":
            x.reset_index(drop=True).to_parquet(path)
        else:
            source = written(sparse_cells, ".h5ad")(x, folder)
        import_array(source, path.with_suffix(".store"))
        return path.with_suffix(".store")

    return write


CONTAINERS: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "pandas": frame,
    "polars": polars_frame,
    "xarray": data_array,
    "netcdf": netcdf,
    "anndata": cells,
    "anndata, sparse": sparse_cells,
    "h5ad": written(cells, ".h5ad"),
    "h5ad, sparse": written(sparse_cells, ".h5ad"),
    "zarr": written(cells, ".zarr"),
    "zarr, sparse": written(sparse_cells, ".zarr"),
    "imported csv": imported(".csv"),
    "imported parquet": imported(".parquet"),
    "imported h5ad": imported(".h5ad"),
}


@pytest.mark.parametrize("guise", GUISES)
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_new_rows_come_in_the_order_of_the_fit(container: str, guise: Any, tmp_path: Path) -> None:
    make, x = CONTAINERS[container], table()
    result = rf.pca(make(x, tmp_path), 3)
    found = rf.transform(result, make(guise(x), tmp_path)).scores
    np.testing.assert_allclose(found, rf.transform(result, x.to_numpy()).scores, atol=1e-9)


@given(
    st.sampled_from(["pandas", "polars", "xarray", "anndata", "anndata, sparse", "h5ad"]),
    st.sampled_from(["pandas", "xarray", "anndata, sparse", "zarr"]),
    st.permutations(range(len(NAMES))),
    st.integers(0, 3),
    st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=8, unique=True),
)
@settings(max_examples=12)
def test_some_rows_in_any_container_with_columns_in_any_order(
    fitted: str, coming: str, order: list[int], more: int, rows: list[int]
) -> None:
    x = table()
    new = x.iloc[rows, order]
    for number in range(more):
        new.insert(3 * number, f"more {number}", -1.0)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = rf.pca(CONTAINERS[fitted](x, Path(folder)), 3)
        found = rf.transform(result, CONTAINERS[coming](new, Path(folder))).scores[...]
    np.testing.assert_allclose(found, np.asarray(result.scores)[rows], atol=1e-9)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_another_column_is_refused_by_its_name(container: str, tmp_path: Path) -> None:
    make, x = CONTAINERS[container], table()
    result = rf.pca(make(x, tmp_path), 3)
    with pytest.raises(RankfoldError, match=r"has no column 'rent', which is column 2 \(from 0\) of .*pca"):
        rf.transform(result, make(renamed(x), tmp_path))


# Every door through which a second matrix comes ------------------------------------------------------------


def by_transform(x: pd.DataFrame, other: pd.DataFrame) -> Array:
    return np.asarray(rf.transform(rf.pca(x, 3), other).scores)


def by_check(x: pd.DataFrame, other: pd.DataFrame) -> Array:
    return np.asarray(rf.check(rf.svd(x, 3), other).right_residuals)


def by_update(x: pd.DataFrame, other: pd.DataFrame) -> Array:
    return np.abs(rf.update(rf.pca(x, 3), other).components)


def by_kernels(x: pd.DataFrame, other: pd.DataFrame) -> Array:
    return np.asarray(rf.transform(rf.kernel_pca(x, 3), other).scores)


def by_landmarks(x: pd.DataFrame, other: pd.DataFrame) -> Array:
    return np.asarray(rf.transform(rf.nystroem(x, 9), other).features)


def by_nonnegative_factors(x: pd.DataFrame, other: pd.DataFrame) -> Array:
    return np.asarray(rf.transform(rf.nmf(x, 3), other).W)


def by_neighbors(x: pd.DataFrame, other: pd.DataFrame) -> Array:
    return np.asarray(rf.knn(x, 4, queries=other).distances)


def by_radius(x: pd.DataFrame, other: pd.DataFrame) -> Array:
    return rf.radius_neighbors(x, 6.0, queries=other).graph.toarray()


def by_index(x: pd.DataFrame, other: pd.DataFrame) -> Array:
    return np.asarray(rf.knn(other, 4, index=rf.index(x)).distances)


def by_weights(x: pd.DataFrame, other: pd.DataFrame) -> Array:
    return np.asarray(rf.nmf(x, 2, weights=other).H)


def by_given_centers(x: pd.DataFrame, other: pd.DataFrame) -> Array:
    return np.asarray(rf.kmeans(x, init=other.iloc[:3]).labels)


def by_centers(x: pd.DataFrame, other: pd.DataFrame) -> Array:
    return np.asarray(rf.kmeans(x, init=rf.kmeans(other, init=other.to_numpy()[:3])).labels)


DOORS = (
    by_transform,
    by_check,
    by_update,
    by_kernels,
    by_landmarks,
    by_nonnegative_factors,
    by_neighbors,
    by_radius,
    by_index,
    by_weights,
    by_centers,
    by_given_centers,
)


@pytest.mark.parametrize("guise", GUISES)
@pytest.mark.parametrize("door", DOORS)
def test_every_door_brings_columns_to_order(door: Callable[..., Array], guise: Any) -> None:
    x = table()
    np.testing.assert_allclose(door(x, guise(x)), door(x, x), atol=1e-9)


@pytest.mark.parametrize("door", DOORS)
def test_every_door_refuses_another_column(door: Callable[..., Array]) -> None:
    with pytest.raises(RankfoldError, match=r"no column '(rent|lease)'"):
        door(table(), renamed(table()))


@pytest.mark.parametrize("door", DOORS)
def test_every_door_refuses_numbers_of_places_in_another_order(door: Callable[..., Array]) -> None:
    x = table().set_axis(range(len(NAMES)), axis=1)
    for one, other in ((x, x[x.columns[::-1]]), (x[x.columns[::-1]], x)):
        with pytest.raises(
            RankfoldError, match=r"are called 15, 14, .* could be meant by number or by place"
        ):
            door(one, other)


@pytest.mark.parametrize(
    "columns", [[3, 1, 0, 2], [1.0, np.nan, 2.0, 3.0], ["a", None, "b", "c"], list("3102")]
)
def test_numbers_and_gaps_among_labels_are_names(columns: list[Any]) -> None:
    x = table().iloc[:, :4].set_axis(pd.Index(columns), axis=1)
    result = rf.pca(x, 2)
    np.testing.assert_allclose(rf.transform(result, x.iloc[:, ::-1]).scores, result.scores, atol=1e-9)
    counted = pd.Index(range(4)).to_list()  # in order: they say nothing
    result, numbered = rf.pca(x.to_numpy(), 2), x.set_axis(pd.Index(counted, dtype="int64"), axis=1)
    np.testing.assert_array_equal(
        rf.transform(result, numbered).scores, rf.transform(result, x.to_numpy()).scores
    )


def test_rows_in_another_order_are_refused_where_there_is_a_number_for_each() -> None:
    x = table()
    with pytest.raises(RankfoldError, match=r"rows of .* are not those of .*: .*'r59', not 'r0'"):
        rf.nmf(x, 2, weights=x[::-1])
    with pytest.raises(RankfoldError, match="rows of"):
        rf.trustworthiness(x, x[["age", "rent"]][::-1], 5)


MASK = pd.Series(np.arange(len(NAMES)) % 3 > 0, NAMES)
ROW_MASK = pd.Series(np.arange(ROWS) % 4 > 0, [f"r{number}" for number in range(ROWS)])


def as_data_array(mask: pd.Series[Any]) -> Any:
    return pytest.importorskip("xarray").DataArray(mask.to_numpy(), {"label": mask.index})


@pytest.mark.parametrize("name", ["mask_var", "select_columns", "mask_obs", "select_rows"])
@pytest.mark.parametrize("guise", [pd.Series, as_data_array, list])
def test_masks_follow_the_names_of_what_they_keep(name: str, guise: Any) -> None:
    x, of_rows = table(), name in ("mask_obs", "select_rows")
    mask = ROW_MASK if of_rows else MASK
    expected = x[mask.to_numpy()] if of_rows else x.loc[:, mask.to_numpy()]
    turned = guise(mask if guise is list else mask[::-1])
    np.testing.assert_array_equal(np.asarray(rf.open(x, **{name: turned})), expected)
    if guise is not list:
        lacking = guise(mask[1:])
        with pytest.raises(
            RankfoldError, match=rf"{name} has no (row 'r0'|column 'income'), which is (row|column) 0"
        ):
            rf.open(x, **{name: lacking})


@pytest.mark.parametrize("method", ["umap", "tsne"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_layouts_begin_where_the_rows_of_their_names_are(method: str) -> None:
    x = table()
    start = pd.DataFrame(np.asarray(rf.pca(x, 2).scores), x.index)
    lists, make = rf.knn(x, 5), getattr(rf, method)
    options = {"n_epochs": 2} if method == "umap" else {"perplexity": 1.5}
    there, turned, other = (
        np.asarray(make(lists, init=each, **options).embedding) for each in (start, start[::-1], rf.pca(x, 2))
    )
    np.testing.assert_array_equal(there, turned)
    np.testing.assert_array_equal(there, other)
    for init in (start.rename(index={"r0": "q"}), rf.pca(x.rename(index={"r0": "q"}), 2)):
        with pytest.raises(RankfoldError, match="init has no row 'r0', which is row 0"):
            make(lists, init=init, **options)


def test_distances_have_rows_and_columns_in_one_order() -> None:
    x = table()
    points = x.to_numpy()
    distances = pd.DataFrame(np.linalg.norm(points[:, None] - points, axis=2), x.index, x.index)
    np.testing.assert_allclose(rf.knn(distances, 4, metric="precomputed").distances, rf.knn(x, 4).distances)
    with pytest.raises(RankfoldError, match=r"is 'r0', and column 0 'r59'\. Put them in one order"):
        rf.knn(distances[distances.columns[::-1]], 4, metric="precomputed")


# Fields ----------------------------------------------------------------------------------------------------


def field() -> Any:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    values = np.random.default_rng(5).standard_normal((20, 4, 6))
    time = pd.date_range("2001-01-01", periods=20)
    lat, lon = [-45.0, -15.0, 15.0, 45.0], np.arange(0.0, 360.0, 60.0)
    return xarray.DataArray(values, {"time": time, "lat": lat, "lon": lon}, name="sst")


def in_memory(x: Any, path: Path) -> Any:
    return x


def in_dask(x: Any, path: Path) -> Any:
    return x.chunk({"time": 5})


def in_file(x: Any, path: Path) -> Any:
    x.to_netcdf(path.with_suffix(".nc"))
    return path.with_suffix(".nc")


def in_classic_file(x: Any, path: Path) -> Any:
    x.to_netcdf(path.with_suffix(".nc"), format="NETCDF3_64BIT")
    return path.with_suffix(".nc")


def as_opened(x: Any, path: Path) -> Any:
    return pytest.importorskip("xarray").open_dataarray(in_file(x, path))


def in_hdf5(x: Any, path: Path) -> Any:
    return in_file(x, path).rename(path.with_suffix(".h5")).as_posix() + "::sst"


def in_zarr(version: int) -> Callable[[Any, Path], Any]:
    def write(x: Any, path: Path) -> Any:
        x.to_dataset().to_zarr(path.with_suffix(".zarr"), zarr_format=version)
        return f"{path.with_suffix('.zarr')}::sst"

    return write


def as_imported(x: Any, path: Path) -> Any:
    import_array(in_file(x, path), path.with_suffix(".store"), row_axes="time")
    return path.with_suffix(".store")


FIELDS: dict[str, Callable[[Any, Path], Any]] = {
    "xarray": in_memory,
    "dask": in_dask,
    "netcdf": in_file,
    "classic": in_classic_file,
    "opened": as_opened,
    "hdf5": in_hdf5,
    "zarr 2": in_zarr(2),
    "zarr 3": in_zarr(3),
    "imported": as_imported,
}

MOST_TURNS: dict[str, Callable[[Any], Any]] = {
    "north first": lambda x: x[:, ::-1],
    "longitudes first": lambda x: x.transpose("time", "lon", "lat"),
    "rolled by half": lambda x: x.roll(lon=3, roll_coords=True),
    "single precision": lambda x: x.assign_coords(lat=x.lat.astype(np.float32)),
    "larger": lambda x: x.pad(lon=(0, 1), constant_values=0.0).assign_coords(lon=np.arange(0.0, 420.0, 60.0)),
}


@pytest.mark.parametrize("turn", MOST_TURNS)
@pytest.mark.parametrize("container", FIELDS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_new_months_lie_where_those_of_the_fit_did(container: str, turn: str, tmp_path: Path) -> None:
    make, x = FIELDS[container], field()
    fitted = make(x, tmp_path / "fit")
    result = rf.pca(rf.open(fitted, row_axes=None if container == "imported" else "time"), 3)
    found = rf.transform(result, make(MOST_TURNS[turn](x), tmp_path / "new")).scores
    np.testing.assert_allclose(found, result.scores, atol=1e-9)


@pytest.mark.parametrize("container", FIELDS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_places_of_another_grid_are_refused(container: str, tmp_path: Path) -> None:
    make, x = FIELDS[container], field()
    fitted = make(x, tmp_path / "fit")
    result = rf.pca(rf.open(fitted, row_axes=None if container == "imported" else "time"), 3)
    other = make(x.assign_coords(lon=x.lon - 180.5), tmp_path / "new")
    with pytest.raises(RankfoldError, match=r"has no column lat -45.0, lon 0.0, which is column 0"):
        rf.transform(result, other)


def test_places_that_the_fit_left_out_are_left_out_again(tmp_path: Path) -> None:
    x = field()
    x[:, 1, 2:4] = np.nan
    result = rf.pca(rf.open(x, row_axes="time", drop_missing_columns=True), 3)
    np.testing.assert_allclose(rf.transform(result, x).scores, result.scores, atol=1e-12)
    np.testing.assert_allclose(
        rf.transform(result, in_file(x, tmp_path / "new")).scores, result.scores, atol=1e-9
    )
    x[:, 0, 0] = np.nan  # sea that has become land
    with pytest.raises(RankfoldError, match=r"has no column lat -45.0, lon 0.0"):
        rf.transform(result, rf.open(x, row_axes="time", drop_missing_columns=True))


@pytest.mark.parametrize("turn", MOST_TURNS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_files_of_a_series_are_brought_to_the_first(turn: str, tmp_path: Path) -> None:
    x = field()
    first, second = in_file(x, tmp_path / "a"), in_file(MOST_TURNS[turn](x), tmp_path / "b")
    source = rf.open([first, second], row_axes="time")
    values = np.empty(source.shape)
    source.read_into(values, (0, 40), (0, 24))
    np.testing.assert_array_equal(values, np.vstack(2 * [x.values.reshape(20, -1)]))
    other = in_file(x.assign_coords(lat=x.lat + 1), tmp_path / "c")
    with pytest.raises(RankfoldError, match=r"has no column lat -45.0, lon 0.0"):
        rf.open([first, other], row_axes="time")


@pytest.mark.parametrize("container", FIELDS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_other_units_are_said(container: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make, x = FIELDS[container], field()
    rows = None if container == "imported" else "time"
    kelvin, celsius = (make(x.assign_attrs(units=unit), tmp_path / unit) for unit in ("K", "degC"))
    result = rf.pca(rf.open(kelvin, row_axes=rows), 3)
    rf.transform(result, kelvin)
    assert "units" not in caplog.text
    rf.transform(result, celsius)
    rf.knn(rf.open(kelvin, row_axes=rows), 2, queries=rf.open(celsius, row_axes=rows))
    said = [each.getMessage() for each in caplog.records]
    assert [
        "units of 'degC', but" in each and "in 'K': numbers are taken as they are" in each for each in said
    ] == [
        True,
        True,
    ]


@pytest.mark.parametrize(("unit", "is_said"), [("m  s^-1", False), ("km s**-1", True)])
def test_files_of_a_series_in_other_units_are_said(
    unit: str, is_said: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    x = field().assign_attrs(units="m s**-1")
    other = x.assign_attrs(units=unit)
    files = [in_file(each, tmp_path / name) for name, each in zip("abc", (x, other, other), strict=True)]
    rf.open(files, row_axes="time")
    assert [" and 1 more is in units of" in each for each in caplog.messages] == [True] * is_said


def test_files_of_a_series_in_another_order_are_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    x = field()
    files = [
        in_file(each, tmp_path / name) for name, each in zip("abc", (x, x[:, ::-1], x[:, ::-1]), strict=True)
    ]
    rf.open(files, row_axes="time")
    (said,) = caplog.messages
    assert " and 1 more are put in the order of " in said


def test_columns_in_the_order_of_a_result_are_not_said_to_be_in_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    x = field().copy()
    x[:, 1, 2] = np.nan
    result = rf.pca(x, 3, row_axes="time", drop_missing_columns=True)
    rf.transform(result, x)
    rf.check(result, x)
    assert caplog.messages == []
    rf.transform(result, x[:, ::-1])
    (said,) = caplog.messages
    assert " are put in the order of " in said and "and 1 left out" in said
    caplog.clear()
    wide = table()
    rf.transform(rf.pca(wide[NAMES[1:]], 3), wide)
    (said,) = caplog.messages
    assert f"1 of {len(NAMES)} columns of " in said and "does not have, are left out" in said


@pytest.mark.parametrize("named", ["lon", "longitude", "x"])
@pytest.mark.parametrize("order", ["sorted", "as they are"])
def test_longitudes_meet_modulo_360(named: str, order: str, caplog: pytest.LogCaptureFixture) -> None:
    x = field().rename(lon=named)
    units = {"units": "degrees_east"} if named == "x" else {}
    x[named].attrs = units
    x[:, 1, 2] = np.nan
    result = rf.pca(x, 3, row_axes="time", drop_missing_columns=True)
    west = x.assign_coords({named: ((x[named] + 180) % 360 - 180).assign_attrs(units)})
    west = west.sortby(named) if order == "sorted" else west
    found = rf.transform(result, west)
    np.testing.assert_allclose(found.scores[:], result.scores[:], atol=1e-10)
    (said,) = caplog.messages
    assert f", {named} modulo 360" in said
    back = result.to_xarray(west)["components"]
    np.testing.assert_array_equal(np.isnan(back[0]), np.isnan(x.values[0]))
    radians = west.assign_coords({named: west[named].assign_attrs(units="radians")})
    with pytest.raises(RankfoldError, match="has no column"):
        rf.transform(result, radians)


def at(*longitudes: float) -> Any:
    """The field at these longitudes, one of which may stand for the same meridian as another."""
    x = field()
    return x[:, :, [int(each % 360) // 60 for each in longitudes]].assign_coords(lon=list(longitudes))


@pytest.mark.parametrize(
    "longitudes",
    [
        (0, 60, 120, 180, 240, 300, 360),
        (-180, -120, -60, 0, 60, 120, 180),
        (-360, -300, -240, -180, -120, -60, 0),
    ],
)
def test_a_meridian_that_comes_twice_is_taken_once_or_refused(longitudes: tuple[float, ...]) -> None:
    once = rf.pca(at(*range(0, 360, 60)), 3, row_axes="time")
    found = rf.transform(once, at(*longitudes))
    np.testing.assert_allclose(found.scores[:], once.scores[:], atol=1e-10)
    twice = rf.pca(at(*longitudes), 3, row_axes="time")
    np.testing.assert_allclose(
        rf.transform(twice, at(*longitudes)[:, :, ::-1]).scores[:], twice.scores[:], atol=1e-10
    )
    with pytest.raises(RankfoldError, match=r"has one column, lat -45\.0, lon .*, for two of "):
        rf.transform(twice, at(*range(0, 360, 60)))


def test_the_coordinate_of_an_axis_is_refused_as_one(tmp_path: Path) -> None:
    place = str(in_file(field(), tmp_path / "x.nc")).partition("::")[0]
    with pytest.raises(RankfoldError, match=r"::lat is the coordinate of an axis, 4 values; .*::sst"):
        rf.open(f"{place}::lat")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_weights_of_columns_follow_their_names() -> None:
    x, weights = table(), pd.Series(np.arange(1.0, len(NAMES) + 1), NAMES)
    plain = rf.pca(rf.open(x, prepare=[{"weights": {"values": weights.to_numpy()}}]), 3)
    named = rf.pca(rf.open(x, prepare=[{"weights": {"values": weights[::-1]}}]), 3)
    np.testing.assert_array_equal(named.components, plain.components)
    for frame in (weights[::-1].to_frame(), weights[::-1].to_frame().T):
        by_frame = rf.pca(rf.open(x, prepare=[{"weights": {"values": frame}}]), 3)
        np.testing.assert_array_equal(by_frame.components, plain.components)
    with pytest.raises(RankfoldError, match="there is no number for 'rent'"):
        rf.open(x, prepare=[{"weights": {"values": weights.drop("rent")}}])
    with pytest.raises(
        RankfoldError, match=r"weights are called 15, 14, .* could be meant by number or by place"
    ):
        rf.open(x.to_numpy(), prepare=[{"weights": {"values": weights.reset_index(drop=True)[::-1]}}])
    data = field()
    area = np.cos(np.deg2rad(data.lat)) * (1 + 0 * data.lon)
    there, turned = (
        rf.pca(rf.open(data, row_axes="time", prepare=[{"weights": {"values": each}}]), 2)
        for each in (area, area.transpose("lon", "lat")[::-1])
    )
    np.testing.assert_array_equal(there.components, turned.components)


def test_latitudes_are_those_that_the_data_name(tmp_path: Path) -> None:
    x = field()
    expected = rf.pca(rf.open(x, row_axes="time", prepare="coslat"), 2).components
    store = as_imported(x, tmp_path / "one")
    for source in (store, str(in_file(x, tmp_path / "a").with_name("a*.nc"))):
        rows = None if source == store else "time"
        np.testing.assert_allclose(
            rf.pca(rf.open(source, row_axes=rows, prepare="coslat"), 2).components, expected
        )


# What goes back ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["", ".h5ad", ".zarr"])
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_results_go_to_the_cells_of_their_names(ending: str, tmp_path: Path) -> None:
    anndata, x = pytest.importorskip("anndata"), table()
    one, other = cells(x, tmp_path), cells(x.iloc[::-1, ::-1], tmp_path)
    result, lists = rf.pca(one, 3), rf.knn(one, 4)
    target: Any = other
    if ending:
        target = tmp_path / f"cells{ending}"
        other.write_h5ad(target) if ending == ".h5ad" else other.write_zarr(target)
    for each in (result, lists):
        each.to_anndata(one)
        each.to_anndata(target)
    if ending:
        other = anndata.read_h5ad(target) if ending == ".h5ad" else anndata.read_zarr(target)
    found = other[one.obs_names, one.var_names]
    np.testing.assert_array_equal(found.obsm["X_pca"], one.obsm["X_pca"])
    np.testing.assert_array_equal(found.varm["PCs"], one.varm["PCs"])
    for name in ("distances", "connectivities"):
        np.testing.assert_allclose(found.obsp[name].toarray(), one.obsp[name].toarray())
    with pytest.raises(RankfoldError, match=r"none of the observations that are called 'r0'"):
        result.to_anndata(cells(x.rename(index={"r0": "q"}), tmp_path), overwrite=True)


def test_coordinates_of_like_come_in_the_order_of_the_result() -> None:
    x = field()
    result = rf.pca(rf.open(x, row_axes="time"), 3)
    expected = result.to_xarray(x)
    for turn in ("north first", "longitudes first", "rolled by half"):
        found = result.to_xarray(MOST_TURNS[turn](x))
        np.testing.assert_array_equal(
            found.components.sel(lat=15.0, lon=60.0), expected.components.sel(lat=15.0, lon=60.0)
        )
    with pytest.raises(RankfoldError, match="like has no time 2001-01-01"):
        result.to_xarray(x.assign_coords(time=pd.date_range("2011-01-01", periods=20)))


def test_tables_and_pictures_use_the_names_of_the_data() -> None:
    x = table()
    result = rf.pca(x, 3)
    assert list(result.to_pandas("components").index) == NAMES
    assert list(result.to_pandas().index) == list(x.index)
    assert list(result.to_pandas(like=x[::-1]).index) == list(x.index)
    pytest.importorskip("matplotlib")
    labels = [each.get_text() for each in result.plot("loadings").axes[0].get_yticklabels()]
    assert labels == NAMES


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_colors_follow_the_names_of_rows(tmp_path: Path) -> None:
    from rankfold.pipeline.data.names import Names
    from rankfold.pipeline.exporting.outcome import names_in
    from rankfold.pipeline.exporting.plots.row_colors import Values, colors_of

    x = table()
    one = cells(x[::-1], tmp_path)
    one.obs["size"] = np.arange(ROWS, dtype=np.float64)
    one.write_h5ad(tmp_path / "a.h5ad")
    rows: Names | None = names_in(rf.pca(x, 2), "rows")
    for color in (one.obs["size"], tmp_path / "a.h5ad::size"):
        found = colors_of(color, ROWS, rows)
        assert isinstance(found, Values)
        np.testing.assert_array_equal(found.read(0, ROWS), np.arange(ROWS)[::-1])
    with pytest.raises(RankfoldError, match="has no row 'r0', which is row 0"):
        colors_of(one.obs["size"].rename({"r0": "q"}), ROWS, rows)


def test_numbers_that_are_none_are_told_by_name() -> None:
    x = table()
    x.iloc[3, 2] = np.nan
    with pytest.raises(RankfoldError, match=r"row 3, column 2 \(from 0\), which is row 'r3', column 'rent'"):
        rf.pca(x, 2)


# Paths that lead into a store --------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("path", ["X", "X/", "layers/dense", "raw/X", "obsm/frame", "obsm/scores"])
def test_a_path_into_a_store_has_the_names_around(tmp_path: Path, version: int, path: str) -> None:
    anndata, store = pytest.importorskip("anndata"), tmp_path / "in" / "x.zarr"
    store.parent.mkdir()
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.poisson(2.0, (6, 4)).astype("f4"), [*"pqrstu"], [*"abcd"])
    cells = anndata.AnnData(scipy.sparse.csr_matrix(x.values), pd.DataFrame(index=x.index), x.T[[]])
    cells.raw, cells.layers["dense"] = cells.copy(), x.values
    cells.obsm["frame"], cells.obsm["scores"] = x[["d", "a"]], x.values[:, 1:]
    with anndata.settings.override(zarr_write_format=version):
        cells.write_zarr(store)
    colons, slashes = open_source(f"{store}::{path}"), open_source(f"{store}/{path}")
    assert slashes.name == colons.name and slashes.fingerprint() == colons.fingerprint()
    np.testing.assert_array_equal(slashes[...], colons[...])
    for axis in (0, 1):
        said, found = names_of(colons, axis), names_of(slashes, axis)
        assert (said is None) == (found is None) == (axis == 1 and path == "obsm/scores")
        assert said is None or (said.is_like(found) and found.is_like(said))  # type: ignore[arg-type, union-attr]


def test_new_cells_meet_a_result_by_name_whatever_leads_to_them(tmp_path: Path) -> None:
    xr, zarr = pytest.importorskip("xarray"), pytest.importorskip("zarr")
    axes, names = ("time", "place"), {"time": np.arange(9), "place": [*"abc"]}
    x = xr.DataArray(np.random.default_rng(0).normal(size=(9, 3)), names, axes, "v")
    x.to_dataset().to_zarr(tmp_path / "x.zarr", zarr_format=2)
    x[:, ::-1].to_dataset().to_zarr(tmp_path / "y.zarr", zarr_format=2)
    result = rf.pca(tmp_path / "x.zarr" / "v", 2)
    kept = zarr.open_group(tmp_path / "y.zarr", mode="r")
    for rows in (f"{tmp_path}/y.zarr::v", tmp_path / "y.zarr" / "v", kept["v"]):
        np.testing.assert_allclose(rf.transform(result, rows).scores, result.scores, atol=1e-12)
    alone = zarr.open_array(tmp_path / "y.zarr" / "v", mode="r")
    np.testing.assert_allclose(rf.transform(result, alone).scores, result.scores, atol=1e-12)


def test_scores_of_a_result_have_their_names_by_a_path_with_a_slash(tmp_path: Path) -> None:
    x = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 3)), [*"abcdefghi"])
    rf.pca(x, 2, out=tmp_path / "r.zarr")
    assert names_of(open_source(tmp_path / "r.zarr" / "scores"), 0).labels.tolist() == [*"abcdefghi"]  # type: ignore[union-attr]


def test_a_sparse_group_in_hand_is_a_matrix(tmp_path: Path) -> None:
    anndata, zarr = pytest.importorskip("anndata"), pytest.importorskip("zarr")
    cells = anndata.AnnData(scipy.sparse.csr_matrix(np.eye(3, dtype="f4")), var=pd.DataFrame(index=[*"abc"]))
    cells.write_zarr(tmp_path / "x.zarr")
    group = zarr.open_group(tmp_path / "x.zarr", mode="r")
    np.testing.assert_array_equal(open_source(group["X"])[...], np.eye(3))
    assert names_of(open_source(group["X"]), 1).labels.tolist() == [*"abc"]  # type: ignore[union-attr]
    with pytest.raises(RankfoldError, match=r"Name one: .*::X"):
        open_source(group)
