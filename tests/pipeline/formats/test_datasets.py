"""xarray objects, netCDF and HDF5 files: the numbers of the libraries, whole or refused."""

from __future__ import annotations

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import read

import rankfold as rf
from rankfold.pipeline.chunks.absence import Absence
from rankfold.pipeline.data.source import Source, absence_of
from rankfold.pipeline.errors import ChunkError, InputError, SourceNotFoundError
from rankfold.pipeline.formats import open_files as libraries
from rankfold.pipeline.formats import open_source

h5py = pytest.importorskip("h5py", reason="h5py is not installed: pip install h5py")
xarray = pytest.importorskip("xarray", reason="xarray is not installed: pip install xarray")
pytest.importorskip("netCDF4", reason="netCDF4 is not installed: pip install netCDF4")

Array = np.ndarray[Any, Any]
SHAPE = (20, 5, 6)
PACKED = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 5.0, "_FillValue": -999, "zlib": True}


def field(dtype: str = "f4") -> Array:
    return np.random.default_rng(4).integers(0, 100, SHAPE).astype(dtype)


def named(x: Array) -> Any:
    return xarray.DataArray(x, dims=("time", "lat", "lon"), name="sst")


def netcdf(path: Path, x: Array, **encoding: Any) -> Path:
    netcdf_format = encoding.pop("format", "NETCDF4")
    data = xarray.Dataset({"sst": named(x), "bounds": ("time", np.zeros(len(x)))})
    data.to_netcdf(path, encoding={"sst": encoding}, format=netcdf_format)
    return path


def hdf5(path: Path, x: Array, **options: Any) -> Path:
    with h5py.File(path, "w") as file:
        data = file.create_dataset("fields/sst", data=x, **options)
        for axis, name in enumerate(("time", "lat", "lon")[: x.ndim]):
            data.dims[axis].label = name
        file["x"] = np.arange(3)
    return path


def flat(x: Array) -> Array:
    return x.reshape(len(x), -1)


KINDS: dict[str, Any] = {
    "netcdf": lambda p, x: f"{netcdf(p / 'a.nc', x)}::sst",
    "netcdf chunks": lambda p, x: f"{netcdf(p / 'a.nc', x, zlib=True, chunksizes=(4, 5, 3))}::sst",
    "netcdf 3": lambda p, x: f"{netcdf(p / 'a.nc', x, format='NETCDF3_64BIT')}::sst",
    "hdf5": lambda p, x: f"{hdf5(p / 'a.h5', x)}::fields/sst",
    "hdf5 big endian": lambda p, x: f"{hdf5(p / 'a.h5', x.astype('>f4'))}::fields/sst",
    "hdf5 chunks": lambda p, x: f"{hdf5(p / 'a.hdf5', x, chunks=(4, 5, 3))}::fields/sst",
    "hdf5 gzip": lambda p, x: f"{hdf5(p / 'a.h5', x, chunks=(4, 2, 6), compression='gzip')}::fields/sst",
    "xarray memory": lambda p, x: named(x),
    "xarray dask": lambda p, x: named(x).chunk({"time": 6, "lat": 2}),
    "xarray opened": lambda p, x: xarray.open_dataset(netcdf(p / "a.nc", x))["sst"],
    "xarray zarr": lambda p, x: (
        named(x).to_dataset().to_zarr(p / "a.zarr", consolidated=False),
        xarray.open_zarr(p / "a.zarr", chunks=None, consolidated=False)["sst"],
    )[1],
}


@pytest.fixture(scope="module", params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return KINDS[request.param](tmp_path_factory.mktemp("file"), field())


@settings(max_examples=8, derandomize=True, deadline=None)
@given(data=st.data(), rows=st.sampled_from(["time", "lat", "lon,time", "2"]))
def test_any_rectangle_of_any_file(place: Any, data: st.DataObject, rows: str) -> None:
    axes = {"time": (0, 1, 2), "lat": (1, 0, 2), "lon,time": (2, 0, 1), "2": (2, 0, 1)}[rows]
    source = open_source(place, row_axes=rows)
    expected = field().transpose(axes).reshape(source.shape)
    spans = []
    for length in expected.shape:
        start = data.draw(st.integers(0, length - 1))
        spans.append((start, data.draw(st.integers(start + 1, length))))
    found = read(source, *spans, apart=data.draw(st.sampled_from([0, 3])))
    np.testing.assert_array_equal(found, expected[slice(*spans[0]), slice(*spans[1])])


def test_every_file_keeps_the_protocol(place: Any) -> None:
    source = open_source(place, row_axes="time")
    source.check()
    assert isinstance(source, Source) and source.shape == (20, 30) and source.dtype.isnative
    assert source.row_grid.length == 20 and source.column_grid.length == 30
    assert source.read_bytes(20, 30) >= 0
    again = pickle.loads(pickle.dumps(source))
    assert again.fingerprint() == source.fingerprint() == open_source(place, row_axes="time").fingerprint()
    with ThreadPoolExecutor(6) as pool:
        pieces = list(pool.map(lambda top: read(again, (top, top + 4), (2, 29)), range(16)))
    for top, piece in enumerate(pieces):
        np.testing.assert_array_equal(piece, flat(field())[top : top + 4, 2:29])
    with pytest.raises(InputError, match=r"time \(20\), lat \(5\), lon \(6\).*row_axes='time'"):
        open_source(place)
    with pytest.raises(InputError, match=r"no axis 'tme'\. Did you mean 'time'"):
        open_source(place, row_axes="tme")


def test_reductions_of_files_and_objects_agree(place: Any) -> None:
    s = np.linalg.svd(flat(field("f8")), compute_uv=False)[:3]
    np.testing.assert_allclose(rf.svd(rf.open(place, row_axes="time"), 3, solver="gram").s, s, rtol=1e-5)


def test_two_axes_need_no_rows(tmp_path: Path) -> None:
    x = flat(field())
    (tmp_path / "h").mkdir()
    opened = xarray.open_dataset(netcdf(tmp_path / "a.nc", field()))["sst"]
    for thing in (
        xarray.DataArray(x),
        xarray.DataArray(x).chunk(7),
        hdf5(tmp_path / "a.h5", x),
        opened.isel(lat=0),
    ):
        source = open_source(thing)
        expected = field()[:, 0] if thing is not x and source.shape[1] == 6 else x
        np.testing.assert_array_equal(read(source, (0, 20), (0, expected.shape[1])), expected)


def test_packed_values_are_decoded(tmp_path: Path) -> None:
    x = field("f8") / 100
    x[:, 2, 3] = np.nan
    path = netcdf(tmp_path / "a.nc", x, **PACKED)
    source = open_source(path, row_axes="time")  # the only variable of two axes or more
    np.testing.assert_allclose(read(source, (0, 20), (0, 30)), flat(x), atol=0.006)
    assert open_source(path, row_axes="time", drop_missing_columns=True).shape == (20, 29)
    assert source.codec == "zlib + shuffle"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("zarr_format", "encoding"),
    [
        (2, PACKED),
        (3, PACKED),
        # In version 2, xarray keeps these as the fill value, which alone does not mean that it is missing.
        (3, {"dtype": "i4", "_FillValue": -999}),
        (3, {"dtype": "i2", "_FillValue": -999}),
        (3, {"dtype": "f4", "_FillValue": 1e20}),
        (2, {"dtype": "f8"}),
        (3, {"dtype": "f8"}),
    ],
)
@pytest.mark.parametrize("axes", [2, 3])
def test_stores_that_xarray_writes_mean_what_xarray_reads(
    tmp_path: Path, zarr_format: int, encoding: Any, axes: int
) -> None:
    x = np.round(field("f8"))
    x[:, 2, 3] = np.nan
    x[4, 0, 0] = np.nan
    data = named(x) if axes == 3 else named(x).isel(lat=2)
    encoding = {key: value for key, value in encoding.items() if key != "zlib"}
    options = {"zarr_format": zarr_format, "consolidated": False}
    data.to_dataset().to_zarr(tmp_path / "a.zarr", encoding={"sst": encoding}, **options)
    expected = xarray.open_zarr(tmp_path / "a.zarr", **options)["sst"].values
    source = open_source(f"{tmp_path / 'a.zarr'}::sst", row_axes="time")
    found = read(source, *((0, length) for length in source.shape))
    np.testing.assert_array_equal(found, flat(expected))
    assert np.isnan(found).any() and source.dtype == expected.dtype
    assert (
        source.read_bytes(20, 30) > 0
        and source.fingerprint() == pickle.loads(pickle.dumps(source)).fingerprint()
    )


def test_what_is_opened_is_read_in_pieces_and_left_as_it_was(tmp_path: Path, monkeypatch: Any) -> None:
    from rankfold.pipeline.formats import netcdf as module

    opened = xarray.open_dataset(netcdf(tmp_path / "a.nc", field()))["sst"]
    source = open_source(opened, row_axes="time")
    monkeypatch.setattr(module, "REQUEST_BYTES", 500)
    sizes = []
    wrapped = module.LazyVariable.__getitem__
    monkeypatch.setattr(
        module.LazyVariable,
        "__getitem__",
        lambda self, key: sizes.append(wrapped(self, key).size) or wrapped(self, key),
    )
    np.testing.assert_array_equal(read(source, (0, 20), (0, 30)), flat(field()))
    assert max(sizes) <= 125 and not opened.variable._in_memory
    assert not open_source(opened, row_axes="lat").inner.variable.variable._in_memory  # type: ignore[attr-defined]


@pytest.mark.process
def test_the_fingerprint_of_a_slice_is_its_own_in_every_process(tmp_path: Path) -> None:
    path = netcdf(tmp_path / "a.nc", field())
    code = f"""
import xarray
from rankfold.pipeline.formats import open_source
sst = xarray.open_dataset({str(path)!r})["sst"]
print(*(open_source(part, row_axes="time").fingerprint() for part in (sst, sst[:5], sst[5:10], sst[5:10])))
"""
    first, again = (
        subprocess.check_output([sys.executable, "-c", code], text=True).split() for _ in range(2)
    )
    assert first == again and len(set(first)) == 3
    netcdf(path, field() + 1)
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split()[0] != first[0]


def test_grids_follow_the_chunks_of_the_file(tmp_path: Path) -> None:
    x = field()
    zipped = open_source(hdf5(tmp_path / "z.h5", x, chunks=(4, 5, 6), compression="gzip"), row_axes="time")
    assert zipped.row_grid.edges.tolist() == [0, 4, 8, 12, 16, 20] and not zipped.row_grid.splittable
    assert open_source(hdf5(tmp_path / "c.h5", x), row_axes="time").row_grid.splittable
    chunked = open_source(hdf5(tmp_path / "p.h5", x, chunks=(4, 5, 6)), row_axes="time").row_grid
    assert chunked.splittable and len(chunked.edges) == 6
    packed = open_source(netcdf(tmp_path / "a.nc", x, zlib=True, chunksizes=(4, 5, 6)), row_axes="time")
    assert packed.row_grid.edges.tolist() == [0, 4, 8, 12, 16, 20] and not packed.row_grid.splittable
    assert open_source(netcdf(tmp_path / "b.nc", x), row_axes="time").row_grid.splittable


def test_variables_in_groups_alone_are_found_and_named(tmp_path: Path) -> None:
    path, x = tmp_path / "a.nc", field()[:, 0]
    xarray.Dataset({"u": (("time", "place"), x)}).to_netcdf(path, group="model/run")
    np.testing.assert_array_equal(open_source(path)[...], x)
    xarray.Dataset({"v": (("time", "lat", "lon"), field())}).to_netcdf(path, group="data", mode="a")
    with pytest.raises(
        InputError, match=r"data/v \(20, 5, 6\), model/run/u \(20, 6\)\. Name one: .*::data/v"
    ):
        open_source(path)
    with pytest.raises(SourceNotFoundError, match=r"Did you mean .*a\.nc::model/run/u\?"):
        open_source(f"{path}::model/run/uu")


def test_a_variable_in_a_group_has_the_coordinates_of_the_groups_around(tmp_path: Path) -> None:
    path, axes = tmp_path / "a.nc", ("time", "place")
    xarray.Dataset(coords={"time": np.arange(20) * 10, "place": np.arange(6)}).to_netcdf(path)
    xarray.Dataset(coords={"place": list("abcdef")}).to_netcdf(path, group="model", mode="a")
    xarray.Dataset({"u": (axes, field()[:, 0])}).to_netcdf(path, group="model/run", mode="a")
    rows, columns = (open_source(f"{path}::model/run/u").names(axis) for axis in (0, 1))
    assert rows.labels.tolist() == (np.arange(20) * 10).tolist()
    assert columns.labels.tolist() == list("abcdef")


@pytest.mark.process
@pytest.mark.parametrize("group", ["", "model/run"])
def test_a_file_with_names_as_text_is_read_any_number_of_times(tmp_path: Path, group: str) -> None:
    path, names = tmp_path / "a.nc", {"time": [f"t{i}" for i in range(20)], "place": list("abcdef")}
    data, axes = field()[:, 0], ("time", "place")
    xarray.Dataset({"u": (axes, data), "v": (axes, data + 1)}, names).to_netcdf(path, group=group or None)
    place = f"{path}::{group}/u" if group else f"{path}::u"
    code = f"""
import rankfold as rf
from rankfold.pipeline.formats import open_source
kept = []
for place in [{place!r}, {place[:-1] + "v"!r}, {place!r}]:  # a second handle of the file ends the process
    for _ in range(3):
        source = open_source(place)
        print(source[0, 0], *source.names(0).labels[:2], *source.names(1).labels[:2])
        kept.append(source)
print(rf.pca({place!r}, 2).to_xarray(like={place!r})["scores"].time.values[0])
"""
    first, second = (f"{value} t0 t1 a b" for value in (data[0, 0], data[0, 0] + 1))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [first] * 3 + [second] * 3 + [first] * 3 + ["t0"]


def test_names_of_datasets(tmp_path: Path) -> None:
    path = hdf5(tmp_path / "a.h5", field())
    assert open_source(path, row_axes=0).name.startswith(f"{path}::fields/sst")
    with pytest.raises(
        SourceNotFoundError, match=r"has no dataset fields/ssd\. Did you mean .*::fields/sst\?"
    ):
        open_source(f"{path}::fields/ssd", row_axes=0)
    with h5py.File(path, "a") as file:
        file["wind"] = field()
        file["words"] = [b"a", b"b"]
    with pytest.raises(InputError, match=r"holds fields/sst \(20, 5, 6\), wind .* Name one: .*::fields/sst"):
        open_source(path, row_axes=0)
    with pytest.raises(InputError, match=r"words holds \|S1|words holds object"):
        open_source(f"{path}::words", row_axes=0)
    other = netcdf(tmp_path / "a.nc", field())
    with pytest.raises(SourceNotFoundError, match=r"no dataset sss\. Did you mean .*a\.nc::sst\?"):
        open_source(f"{other}::sss", row_axes="time")
    with pytest.raises(InputError, match=r"Dataset holds several arrays; .* x\['sst'\].*'time': 20"):
        open_source(xarray.open_dataset(other))
    with pytest.raises(InputError, match="cannot read an xarray Variable"):
        open_source(xarray.open_dataset(other)["sst"].variable)


@pytest.mark.parametrize("kind", ["netcdf", "netcdf 3", "netcdf chunks", "hdf5", "hdf5 gzip"])
@pytest.mark.parametrize("left", [0, 5, 0.3, 0.9])
def test_files_cut_short_are_refused(tmp_path: Path, kind: str, left: float) -> None:
    place = KINDS[kind](tmp_path, field())
    path = Path(place.partition("::")[0])
    before = open_source(place, row_axes="time")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(left if left == 5 else left * len(whole))])
    with pytest.raises(
        (InputError, ChunkError), match=r"is empty|does not begin|cut short|complete|promises"
    ):
        open_source(place, row_axes="time")
    with pytest.raises(ChunkError, match=r"cannot be read.*Restore the file"):
        before.check()


def test_damaged_chunks_are_errors(tmp_path: Path) -> None:
    path = hdf5(tmp_path / "a.h5", field(), chunks=(4, 5, 6), compression="gzip", fletcher32=True)
    with h5py.File(path) as file:
        chunk = file["fields/sst"].id.get_chunk_info(2)
    with open(path, "r+b") as raw:
        raw.seek(chunk.byte_offset + 10)
        raw.write(bytes(20))
    for place in (path, path.rename(tmp_path / "a.nc")):
        place = tmp_path / "a.nc" if not place.exists() else place
        source = open_source(f"{place}::fields/sst", row_axes=0)
        with pytest.raises(ChunkError, match=r"fields/sst cannot be read \(\w+ 8:12.*Restore the file"):
            for top in range(0, 20, 4):
                read(source, (top, top + 4), (0, 30))


def test_chunks_that_were_never_written(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", SHAPE, "f4", chunks=(4, 5, 6), fillvalue=3)[:8] = field()[:8]
        file.create_dataset("y", SHAPE, "f4")
    with pytest.raises(ChunkError, match=r"3 of 5 chunks were never written; .*missing_chunks='fill'"):
        open_source(f"{tmp_path / 'a.h5'}::x", row_axes=0, missing_chunks="error").check()
    with pytest.raises(ChunkError, match="y was never written"):
        open_source(f"{tmp_path / 'a.h5'}::y", row_axes=0, missing_chunks="error").check()
    filled = open_source(f"{tmp_path / 'a.h5'}::x", row_axes=0)
    filled.check()
    assert absence_of(filled) == Absence(3, 5, ("3.0",))
    assert (read(filled, (8, 20), (0, 30)) == 3).all()


def test_a_file_written_anew_is_opened_anew(tmp_path: Path) -> None:
    for factor in (1, 2):
        for place in (hdf5(tmp_path / "a.h5", factor * field()), netcdf(tmp_path / "a.nc", factor * field())):
            found = read(open_source(place, row_axes="time"), (0, 20), (0, 30))
            np.testing.assert_array_equal(found, factor * flat(field()))


def test_a_library_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(module: str) -> Any:
        raise ImportError(f"No module named {module!r}")

    path, other = hdf5(tmp_path / "a.h5", field()), netcdf(tmp_path / "a.nc", field())
    monkeypatch.setattr(libraries.importlib, "import_module", absent)
    with pytest.raises(InputError, match=r"needs h5py, which .*: pip install h5py"):
        open_source(path, row_axes=0)
    with pytest.raises(InputError, match=r"needs xarray, which .*: pip install xarray"):
        open_source(other, row_axes=0)


def test_import_makes_a_store_of_a_file(tmp_path: Path) -> None:
    from rankfold.pipeline.importing import import_array

    path = netcdf(tmp_path / "a.nc", field(), zlib=True, chunksizes=(4, 5, 3))
    report = import_array(rf.open(path, row_axes="time"), tmp_path / "x.zarr")
    assert report.shape == (20, 30)
    np.testing.assert_array_equal(read(open_source(tmp_path / "x.zarr"), (0, 20), (0, 30)), flat(field()))
