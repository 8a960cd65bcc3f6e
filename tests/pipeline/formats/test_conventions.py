"""Numbers that mean something else than they say: every convention in every format that can carry it.

A table of conventions: what is stored, with which attributes, and the values that are meant. Files are
written by xarray and h5py, and where xarray decodes a convention it is asked too.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask.array as da
import h5py
import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from stores import read

import rankfold as rf
from rankfold.pipeline.data.cf_attributes import NAMES, OTHERS
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import ChunkError, DataError, InputError
from rankfold.pipeline.formats import open_source

Array = npt.NDArray[Any]

STORED = np.array([[1, 2, 3, 4], [5, -9, 7, 8], [9, 10, 11, 100], [13, 14, 15, 16], [17, 18, 19, 20]])


def meant(missing: tuple[int, ...] = (), scale: float = 1, offset: float = 0) -> Array:
    """The stored numbers, some of which stand for nothing."""
    values = STORED * float(scale) + offset
    values[np.isin(STORED, missing)] = np.nan
    return values


@dataclass(frozen=True)
class Convention:
    """What is stored, and what it means."""

    dtype: str
    attributes: dict[str, Any]
    values: Array
    of_xarray: bool = True
    """Whether xarray decodes it."""

    skip: tuple[str, ...] = ()
    """Formats that cannot carry it."""

    stored: Array = field(default_factory=lambda: STORED)


def numbers(dtype: str, *values: float) -> Any:
    """A number, or an array of some, of a type, as attributes have them."""
    return np.array(values, dtype) if len(values) > 1 else np.dtype(dtype).type(values[0])


SIGNED = np.array(STORED, "i2").astype("u1")
"""Of which -9 is 247."""

CONVENTIONS = {
    "fill of floats": Convention("f8", {"_FillValue": -9.0}, meant((-9,))),
    "fill of singles": Convention("f4", {"_FillValue": numbers("f4", -9)}, meant((-9,))),
    "fill of shorts": Convention("i2", {"_FillValue": numbers("i2", -9)}, meant((-9,))),
    "fill of integers": Convention("i4", {"_FillValue": numbers("i4", -9)}, meant((-9,))),
    "fill that is NaN": Convention("f8", {"_FillValue": np.nan}, meant()),
    "missing value": Convention("f8", {"missing_value": -9.0}, meant((-9,))),
    "missing value of shorts": Convention("i2", {"missing_value": numbers("i2", 100)}, meant((100,))),
    "fill and missing value": Convention(
        "i2", {"_FillValue": numbers("i2", -9), "missing_value": numbers("i2", -9)}, meant((-9,))
    ),
    "two marks": Convention(
        "i2",
        {"_FillValue": numbers("i2", -9), "missing_value": numbers("i2", 100)},
        meant((-9, 100)),
        of_xarray=False,  # it warns, and decodes both
    ),
    "missing value of more digits": Convention(
        "f4",
        {"missing_value": -999.9},
        meant((100,)),
        of_xarray=False,
        stored=np.where(STORED == 100, -999.9, STORED),
    ),
    "missing value in text": Convention("i2", {"missing_value": "-9"}, meant((-9,)), of_xarray=False),
    "several missing values": Convention(
        "f8", {"missing_value": numbers("f8", -9, 100)}, meant((-9, 100)), of_xarray=False
    ),
    "scale": Convention("i2", {"scale_factor": 0.25}, meant(scale=0.25)),
    "offset": Convention("i2", {"add_offset": 273.0}, meant(offset=273)),
    "scale, offset and fill": Convention(
        "i2",
        {"scale_factor": 0.25, "add_offset": 5.0, "_FillValue": numbers("i2", -9)},
        meant((-9,), 0.25, 5),
    ),
    "scale of bytes": Convention(
        "i1", {"scale_factor": 0.5, "_FillValue": numbers("i1", 100)}, meant((100,), 0.5)
    ),
    "scale of 0": Convention("i2", {"scale_factor": 0.0, "add_offset": 4.0}, meant(scale=0, offset=4)),
    "scale of floats": Convention("f8", {"scale_factor": 2.0, "_FillValue": -9.0}, meant((-9,), 2)),
    "without a sign": Convention(
        "i1",
        {"_Unsigned": "true", "_FillValue": numbers("i1", -9)},
        np.where(SIGNED == 247, np.nan, SIGNED),
    ),
    "without a sign, scaled": Convention(
        "i1", {"_Unsigned": "true", "scale_factor": 0.5}, SIGNED * 0.5, skip=("zarr 2",)
    ),
    "without a sign, valid range as stored": Convention(
        "i1",
        {"_Unsigned": "true", "valid_range": numbers("i1", 2, -100), "scale_factor": 0.5},
        np.where((SIGNED >= 2) & (SIGNED <= 156), SIGNED * 0.5, np.nan),
        of_xarray=False,
        skip=("zarr 2",),
    ),
    "without a sign, valid most as stored": Convention(
        "i1",
        {"_Unsigned": "true", "valid_max": numbers("i1", -100)},
        np.where(SIGNED <= 156, SIGNED, np.nan),
        of_xarray=False,
    ),
    "without a sign, a range without an end": Convention(
        "i1",
        {"_Unsigned": "true", "valid_range": numbers("i1", -9, 100)},
        np.where(SIGNED <= 100, SIGNED, np.nan),
        of_xarray=False,
    ),
    "valid range": Convention("f8", {"valid_range": numbers("f8", 0, 50)}, meant((-9, 100)), of_xarray=False),
    "valid range of shorts": Convention(
        "i2", {"valid_range": numbers("i2", 0, 50)}, meant((-9, 100)), of_xarray=False
    ),
    "valid least": Convention("f8", {"valid_min": 0.0}, meant((-9,)), of_xarray=False),
    "valid most": Convention("f8", {"valid_max": 50.0}, meant((100,)), of_xarray=False),
    "valid range, packed": Convention(
        "i2",
        {"valid_range": numbers("i2", 1, 20), "scale_factor": 0.1},
        meant((-9, 100), 0.1),
        of_xarray=False,
    ),
    "valid range of values, packed": Convention(
        "i2",
        {"valid_range": numbers("f8", 0.0, 5.5), "scale_factor": 0.25},
        meant((-9, 100), 0.25),
        of_xarray=False,
    ),
    "valid range and fill": Convention(
        "i2",
        {"valid_range": numbers("i2", 0, 50), "_FillValue": numbers("i2", 7)},
        meant((-9, 100, 7)),
        of_xarray=False,
    ),
    "valid bounds that all lie within": Convention(
        "i2", {"valid_min": numbers("i2", -100), "valid_max": numbers("i2", 100)}, meant(), of_xarray=False
    ),
    "HDF-EOS5": Convention("f4", {"MissingValue": numbers("f4", -9)}, meant((-9,)), of_xarray=False),
    "mark of other writers": Convention(
        "f4", {"FillValue": numbers("f4", -9)}, meant((-9,)), of_xarray=False
    ),
    "mark of GDAL": Convention("i2", {"nodata": numbers("i2", -9)}, meant((-9,)), of_xarray=False),
    "several marks of other writers": Convention(
        "f8", {"missing_values": numbers("f8", -9, 100), "fill_value": 0.0}, meant((-9, 100)), of_xarray=False
    ),
    "attributes that change nothing": Convention("i2", dict(OTHERS), meant(), of_xarray=False),
    "other attributes": Convention("i2", {"units": "K", "long_name": "valid_range"}, meant()),
}


def dataset(convention: Convention) -> xr.Dataset:
    """With the attributes as they will stand in the file."""
    return xr.Dataset({"v": (("t", "x"), convention.stored.astype(convention.dtype), convention.attributes)})


def netcdf(path: Path, convention: Convention, kind: str = "NETCDF4") -> Path:
    dataset(convention).to_netcdf(path, format=kind)  # type: ignore[call-overload]
    return path


def zarr(path: Path, convention: Convention, version: int) -> Path:
    said = dataset(convention)
    if np.asarray(convention.attributes.get("valid_range", 0)).size > 1 or "missing_value" in said["v"].attrs:
        said["v"].attrs = {name: np.asarray(value).tolist() for name, value in said["v"].attrs.items()}
    said.to_zarr(path, zarr_format=version, consolidated=False)  # type: ignore[call-overload]
    return path


def hdf5(path: Path, convention: Convention) -> Path:
    with h5py.File(path, "w") as file:
        made = file.create_dataset("v", data=convention.stored.astype(convention.dtype), chunks=(2, 4))
        made.attrs.update(convention.attributes)
    return path


FORMATS: dict[str, Callable[[Path, Convention], Any]] = {
    "netCDF-4": lambda folder, each: f"{netcdf(folder / 'x.nc', each)}::v",
    "netCDF-3": lambda folder, each: f"{netcdf(folder / 'x.nc', each, 'NETCDF3_CLASSIC')}::v",
    "netCDF-4 named .h5": lambda folder, each: f"{netcdf(folder / 'x.nc', each).rename(folder / 'x.h5')}::v",
    "HDF5": lambda folder, each: f"{hdf5(folder / 'x.h5', each)}::v",
    "zarr 2": lambda folder, each: f"{zarr(folder / 'x.zarr', each, 2)}::v",
    "zarr 3": lambda folder, each: f"{zarr(folder / 'x.zarr', each, 3)}::v",
    "xarray, opened": lambda folder, each: xr.open_dataset(netcdf(folder / "x.nc", each))["v"],
}


@pytest.mark.filterwarnings("ignore:variable 'v' has multiple fill values")
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", CONVENTIONS)
def test_numbers_are_what_is_meant(tmp_path: Path, kind: str, name: str) -> None:
    convention = CONVENTIONS[name]
    if kind in convention.skip:
        pytest.skip(f"{kind} as xarray writes it does not carry {name}")
    place = FORMATS[kind](tmp_path, convention)
    source = open_source(place)
    np.testing.assert_allclose(whole(source), convention.values, rtol=1e-6, atol=0)
    if convention.of_xarray and isinstance(place, str) and "::" in place and ".zarr" not in place:
        with xr.open_dataset(place.partition("::")[0], engine="netcdf4") as opened:
            np.testing.assert_allclose(opened["v"].values, convention.values, rtol=1e-6, atol=0)


def whole(source: Source) -> Array:
    rows, columns = source.shape
    return read(source, (0, rows), (0, columns))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", [name for name, each in CONVENTIONS.items() if each.of_xarray])
def test_zarr_is_read_as_xarray_reads_it(tmp_path: Path, version: int, name: str) -> None:
    path = zarr(tmp_path / "x.zarr", CONVENTIONS[name], version)
    with xr.open_zarr(path, consolidated=False) as opened:
        np.testing.assert_allclose(
            whole(open_source(f"{path}::v")), opened["v"].values.astype(float), rtol=1e-6, atol=0
        )


@pytest.mark.parametrize("fill", [0, 0.0, None])
@pytest.mark.parametrize("dtype", ["f4", "i2"])
def test_the_fill_value_that_zarr_takes_by_itself_marks_nothing(
    tmp_path: Path, fill: Any, dtype: str
) -> None:
    import zarr as library

    x = np.arange(12).reshape(4, 3).astype(dtype)
    made = library.create_array(tmp_path / "x.zarr", data=x, chunks=(2, 3), zarr_format=2, fill_value=fill)
    made.attrs["_ARRAY_DIMENSIONS"] = ["t", "x"]
    np.testing.assert_array_equal(whole(open_source(tmp_path / "x.zarr")), x)


def half_written(path: Path, kind: str, dtype: str, attributes: dict[str, Any]) -> Path:
    """A netCDF file of which the first two of four rows were written."""
    netcdf4 = pytest.importorskip("netCDF4")
    with netcdf4.Dataset(path, "w", format=kind) as file:
        file.createDimension("t", 4)
        file.createDimension("x", 3)
        made = file.createVariable("v", dtype, ("t", "x"))
        made.set_auto_maskandscale(False)
        made.setncatts(attributes)
        made[:2] = np.arange(6).reshape(2, 3)
    return path


@pytest.mark.parametrize("ending", [".nc", ".h5", "opened"])
@pytest.mark.parametrize("kind", ["NETCDF4", "NETCDF3_CLASSIC", "NETCDF3_64BIT_DATA"])
@pytest.mark.parametrize(
    ("dtype", "attributes"),
    [("f4", {}), ("f8", {}), ("i2", {"scale_factor": 0.5, "add_offset": 3.0}), ("i2", {}), ("i4", {})],
    ids=str,
)
def test_what_netcdf_never_wrote_is_missing(
    tmp_path: Path, ending: str, kind: str, dtype: str, attributes: dict[str, Any]
) -> None:
    if ending == ".h5" and kind != "NETCDF4":
        return
    path = half_written(tmp_path / f"x{'.nc' if ending == 'opened' else ending}", kind, dtype, attributes)
    source = open_source(xr.open_dataset(path)["v"] if ending == "opened" else f"{path}::v")
    if dtype[0] == "i" and not attributes:
        with pytest.raises(DataError, match=r"holds -[0-9]+, which netCDF puts where nothing was written"):
            whole(source)
        return
    rows = np.arange(6).reshape(2, 3) * attributes.get("scale_factor", 1) + attributes.get("add_offset", 0)
    np.testing.assert_array_equal(whole(source), np.vstack([rows, np.full((2, 3), np.nan)]))


@pytest.mark.parametrize("dtype", ["u1", "i1"])
def test_bytes_have_no_mark_of_what_was_never_written(tmp_path: Path, dtype: str) -> None:
    path = half_written(tmp_path / "x.nc", "NETCDF4", dtype, {})
    assert open_source(path).dtype == dtype and np.isfinite(whole(open_source(path))).all()


def of_zarr(version: int) -> Callable[[Path, Array, float], Any]:
    def make(folder: Path, x: Array, fill: float) -> Any:
        import zarr as library

        options: Any = {"zarr_format": version, "fill_value": fill}
        library.create_array(folder / "x.zarr", data=x, chunks=(2, 3), **options)
        return folder / "x.zarr"

    return make


def of_hdf5(folder: Path, x: Array, fill: float) -> Any:
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("v", data=x, fillvalue=fill)
    return folder / "x.h5"


@pytest.mark.parametrize("make", [of_zarr(2), of_zarr(3), of_hdf5], ids=["zarr 2", "zarr 3", "HDF5"])
@pytest.mark.parametrize("dtype", ["f4", "i2"])
def test_a_fill_value_of_which_nothing_is_said_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Any, dtype: str
) -> None:
    x = STORED.astype(dtype)
    path = make(tmp_path, x, -9)
    np.testing.assert_array_equal(whole(open_source(path)), x)
    assert "declares the fill value -9" in caplog.text and "--prepare 'mark_missing(-9" in caplog.text
    marked = whole(open_source(path, prepare="mark_missing(-9)"))
    np.testing.assert_array_equal(marked, meant((-9,)))


def test_a_mark_of_other_writers_in_an_array_in_hand_is_refused() -> None:
    x = xr.DataArray(STORED.astype("f4"), dims=("t", "x"), name="v", attrs={"nodata": -9.0})
    with pytest.raises(
        InputError, match=r"xarray v holds -9, which its nodata says is missing: pass x\.where"
    ):
        open_source(x)
    np.testing.assert_array_equal(whole(open_source(x.where(x != -9).assign_attrs(x.attrs))), meant((-9,)))


@pytest.mark.parametrize("mark", [-99999, 70000, 1.5])
def test_a_mark_that_the_type_cannot_hold_marks_nothing(tmp_path: Path, mark: float) -> None:
    x = np.arange(-6, 6, dtype="i2").reshape(4, 3)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("v", data=np.vstack([x, x + 31073])).attrs["missing_value"] = mark
    source = open_source(tmp_path / "x.h5")
    assert source.dtype == np.int16
    np.testing.assert_array_equal(whole(source)[:4], x)


@pytest.mark.parametrize("name", OTHERS)
def test_a_rule_that_is_not_known_is_refused_by_name(tmp_path: Path, name: str) -> None:
    for suffix, make in ((".h5", hdf5), (".nc", netcdf)):
        path = make(tmp_path / f"x{suffix}", Convention("f4", {name: 3.5}, meant()))
        with pytest.raises(InputError, match=f"attribute {name} = 3.5: its numbers mean something else"):
            open_source(path)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"scale_factor": "metres"}, "scale_factor that is no number: 'metres'"),
        ({"add_offset": np.inf}, "add_offset of inf"),
        ({"valid_range": 3.0}, "valid_range that is no pair of numbers: 3.0"),
        ({"valid_range": np.array([5.0, 1.0])}, "valid numbers are from 5 to 1, which none is"),
        ({"valid_min": "low"}, "bound of valid numbers that is no number: 'low'"),
    ],
)
def test_attributes_that_say_nothing_are_refused(
    tmp_path: Path, attributes: dict[str, Any], message: str
) -> None:
    path = hdf5(tmp_path / "x.h5", Convention("f4", attributes, meant()))
    with pytest.raises(InputError, match=message):
        open_source(path)


@pytest.mark.parametrize("chunks", [None, {"t": 2}])
def test_an_array_in_hand_that_was_not_decoded_is_refused(tmp_path: Path, chunks: Any) -> None:
    path = netcdf(tmp_path / "x.nc", CONVENTIONS["scale, offset and fill"])
    raw = xr.open_dataset(path, mask_and_scale=False, chunks=chunks)["v"]
    raw = raw.load() if chunks is None else raw
    with pytest.raises(InputError, match=r"was not decoded.*_FillValue, scale_factor, add_offset.*decode_cf"):
        open_source(raw)
    expected = CONVENTIONS["scale, offset and fill"].values
    lazy = xr.open_dataset(path, mask_and_scale=False)["v"]
    np.testing.assert_allclose(whole(open_source(lazy)), expected)


@pytest.mark.parametrize("chunks", [None, {"t": 2}])
@pytest.mark.parametrize("name", ["missing value of more digits", "missing value in text"])
def test_marks_that_xarray_does_not_see_are_missing_in_arrays_in_hand(
    tmp_path: Path, chunks: Any, name: str
) -> None:
    path = netcdf(tmp_path / "x.nc", CONVENTIONS[name])
    x = xr.open_dataset(path, chunks=chunks)["v"]
    x = x.load() if chunks is None else x
    assert not np.isnan(x).any()
    np.testing.assert_array_equal(whole(open_source(x)), CONVENTIONS[name].values)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"scale_factor": "2"}, "scale_factor that is text, '2', by which xarray does not decode it"),
        ({"scale_factor": 0.5, "missing_value": "-9"}, "its missing_value gives, '-9': make it a number of"),
    ],
)
def test_text_by_which_xarray_does_not_decode_is_refused(
    tmp_path: Path, attributes: dict[str, Any], message: str
) -> None:
    path = netcdf(tmp_path / "x.nc", Convention("i2", attributes, meant()))
    for place in (f"{path}::v", xr.open_dataset(path)["v"]):
        with pytest.raises(InputError, match=message):
            open_source(place)


def test_a_mean_is_that_of_what_is_there(tmp_path: Path) -> None:
    y = np.arange(24.0).reshape(8, 3)
    y[2, 1] = np.nan
    path = tmp_path / "a.zarr"
    xr.DataArray(y, dims=("t", "x"), name="v").to_dataset().to_zarr(
        path, zarr_format=2, encoding={"v": {"_FillValue": -9999.0}}
    )
    with pytest.raises(rf.RankfoldError, match="NaN"):
        rf.pca(f"{path}::v", 1)
    result = rf.pca(f"{path}::v", 1, missing="mean")
    np.testing.assert_allclose(np.asarray(result["mean"]), np.nanmean(y, axis=0))


@st.composite
def drawn(draw: st.DrawFn) -> Convention:
    """Any packing, marks and bounds that can stand together, with values by plain arithmetic."""
    dtype = draw(st.sampled_from(["i1", "i2", "i4", "f4", "f8"]))
    stored = draw(arrays(dtype, (5, 4), elements=st.integers(-100, 100)))
    attributes: dict[str, Any] = {}
    values, bad = stored.astype(np.float64), np.zeros(stored.shape, bool)
    if draw(st.booleans()):
        mark = int(stored[draw(st.integers(0, 4)), draw(st.integers(0, 3))])
        attributes["_FillValue"] = numbers(dtype, mark)
        bad |= stored == mark
    if draw(st.booleans()):
        marks = draw(st.lists(st.integers(-100, 100), min_size=1, max_size=3, unique=True))
        attributes["missing_value"] = numbers(dtype, *marks)
        bad |= np.isin(stored, marks)
    least, most = draw(st.sampled_from([(None, None), (-50, None), (None, 60), (-70, 80)]))
    if least is not None and most is not None and draw(st.booleans()):
        attributes["valid_range"] = numbers(dtype, least, most)
    else:
        attributes |= {} if least is None else {"valid_min": numbers(dtype, least)}
        attributes |= {} if most is None else {"valid_max": numbers(dtype, most)}
    bad |= stored < (-np.inf if least is None else least)
    bad |= stored > (np.inf if most is None else most)
    if dtype != "f4" and draw(st.booleans()):
        attributes["scale_factor"] = scale = draw(st.sampled_from([0.5, 0.1, -2.0, 1e-3]))
        values = values * scale
    if dtype != "f4" and draw(st.booleans()):
        attributes["add_offset"] = offset = draw(st.sampled_from([273.15, -5.0]))
        values = values + offset
    values[bad] = np.nan
    return Convention(dtype, attributes, values, stored=stored)


@given(convention=drawn(), kind=st.sampled_from(["zarr 2", "zarr 3", "HDF5", "netCDF-4"]))
@settings(max_examples=40)
def test_any_packing_in_any_format_is_what_is_meant(convention: Convention, kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # xarray knows one mark
        source = open_source(FORMATS[kind](Path(folder), convention))
        found = whole(source)
    np.testing.assert_allclose(found, convention.values, rtol=1e-6, atol=1e-6)


def page() -> str:
    """The table of formats and attributes in docs/data.md, of what is tested above."""
    attributes = sorted({name for each in CONVENTIONS.values() for name in each.attributes} & set(NAMES))
    lines = [f"| attribute | {' | '.join(FORMATS)} |", f"|---|{'---|' * len(FORMATS)}"]
    for name in attributes:
        told = [each for each in CONVENTIONS.values() if name in each.attributes and name not in OTHERS]
        cells = [f"{sum(kind not in each.skip for each in told)} tests" for kind in FORMATS]
        lines.append(
            f"| `{name}` | {' | '.join(cells if told else ['refused, unless idle'] * len(FORMATS))} |"
        )
    return "\n".join(lines)


def test_the_page_shows_what_is_tested() -> None:
    text = (Path(__file__).parents[3] / "docs" / "data.md").read_text()
    assert page() in text, page()


# Dask and NumPy -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["scale", "fill of shorts", "valid range"])
@pytest.mark.parametrize("kind", ["zarr 2", "zarr 3", "HDF5"])
def test_a_dask_array_of_numbers_as_they_are_stored_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    path, _, array = FORMATS[kind](tmp_path, CONVENTIONS[name]).partition("::")
    stored = h5py.File(path)[array] if kind == "HDF5" else f"{path}/{array}"
    x = da.from_array(stored, chunks=(2, 4)) if kind == "HDF5" else da.from_zarr(stored)
    for handed in (x, x[1:], x.rechunk((5, 2))):
        with pytest.raises(InputError, match=r"as they are stored, which mean something else by its"):
            open_source(handed)
    np.testing.assert_array_equal(whole(open_source(x * 2.0)), x.compute() * 2.0)  # whoever computes decodes
    options: Any = {"engine": "zarr", "consolidated": False} if "zarr" in kind else {"engine": "netcdf4"}
    decoded = xr.open_dataset(path, chunks={}, **options)["v"]
    expected = CONVENTIONS[name].values if CONVENTIONS[name].of_xarray else decoded.values
    np.testing.assert_allclose(whole(open_source(decoded.data)), expected)


def test_gaps_of_masked_arrays_are_nan_or_refused() -> None:
    x = np.ma.masked_equal(np.arange(12.0).reshape(4, 3), 7)
    np.testing.assert_array_equal(
        whole(open_source(da.from_array(x, chunks=(2, 3), asarray=False))), x.filled(np.nan)
    )
    with pytest.raises(InputError, match=r"masked array has gaps.*filled\(numpy.nan\)"):
        open_source(x)
    of_integers = da.from_array(x.astype(int), chunks=(2, 3), asarray=False)
    with pytest.raises(ChunkError, match="masked array of int64, which has no NaN"):
        whole(open_source(of_integers))


@pytest.mark.parametrize(
    ("declared", "held"), [("f4", "c8"), ("f4", "f8"), ("i4", "f8"), ("u1", "i8"), ("f8", "i8")]
)
def test_a_block_of_another_type_than_declared_is_named(declared: str, held: str) -> None:
    values = {"c8": 1 + 2j, "f8": 0.1, "i8": 2**60 + 1}[held]
    x = da.zeros((4, 3), chunks=(2, 3), dtype=declared)
    x = x.map_blocks(lambda block: np.full(block.shape, values, held), dtype=declared)
    source = open_source(x)
    with pytest.raises(
        ChunkError, match=rf"dask array .* holds {np.dtype(held)}, .* declared as {np.dtype(declared)}"
    ):
        whole(source)


def test_a_block_of_a_wider_type_whose_numbers_fit_is_read() -> None:
    x = da.zeros((4, 3), chunks=(2, 3), dtype="f4").map_blocks(
        lambda block: np.full(block.shape, 0.5), dtype="f4"
    )
    np.testing.assert_array_equal(whole(open_source(x)), np.full((4, 3), 0.5, np.float32))
