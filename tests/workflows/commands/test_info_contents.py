"""``info`` of a file of several arrays or axes: what it holds, and a command that takes it further."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import rankfold

xarray = pytest.importorskip("xarray", reason="pip install xarray netCDF4")


def field() -> Any:
    """Two variables, one of three axes, with coordinates and units."""
    x = np.random.default_rng(0).standard_normal((24, 4, 6)).astype("f4")
    coordinates = {
        "time": np.arange("2000-01", "2002-01", dtype="M8[M]").astype("M8[ns]"),
        "lat": ("lat", np.linspace(-45, 45, 4), {"units": "degrees_north"}),
        "lon": 60.0 * np.arange(6),
    }
    sst = xarray.DataArray(x, coordinates, ("time", "lat", "lon"), attrs={"units": "degC"})
    return xarray.Dataset({"sst": sst, "zonal": sst.isel(lat=0, drop=True)})


def write_hdf5(dataset: Any, path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="pip install h5py")
    with h5py.File(path, "w") as file:
        for name in ("time", "lat", "lon"):
            file[name] = np.arange(dataset.sizes[name]) if name == "time" else dataset[name].values
            file[name].make_scale(name)
        for name, array in dataset.data_vars.items():
            file[name] = array.values
            for place, axis in enumerate(array.dims):
                file[name].dims[place].label = axis
                file[name].dims[place].attach_scale(file[axis])


WRITERS: dict[str, Callable[[Any, Path], object]] = {
    "f.nc": lambda dataset, path: dataset.to_netcdf(path),
    "f2.zarr": lambda dataset, path: dataset.to_zarr(path, zarr_format=2, consolidated=False),
    "f3.zarr": lambda dataset, path: dataset.to_zarr(path, zarr_format=3, consolidated=False),
    "f.h5": write_hdf5,
    "f.npz": lambda dataset, path: np.savez(path, sst=dataset.zonal.values, zonal=dataset.zonal.values),
}


@pytest.mark.parametrize("name", WRITERS)
def test_arrays_and_axes_are_shown_and_the_next_command_works(name: str, tmp_path: Path) -> None:
    WRITERS[name](field(), tmp_path / name)
    run = rankfold("info", tmp_path / name)
    assert run.exit_code == 0, run.stderr
    assert "2 arrays of two axes or more" in run.stdout
    assert {"sst", "zonal"} == set(re.findall(r"^array +(\w+):", run.stdout, re.MULTILINE))
    if name != "f.npz":
        assert "lat 4 (-45 to 45" in run.stdout and re.search("lon 6 .0 to 300", run.stdout)
    if "zarr" in name or name == "f.nc":
        assert "degC" in run.stdout and "time 24 (2000-01-01 to 2001-12-01)" in run.stdout
    (line,) = re.findall(r"^next +rankfold (.+)$", run.stdout, re.MULTILINE)
    words = line.replace(" K ", " 2 ").replace("RESULT", str(tmp_path / "r"))
    assert rankfold(*shlex.split(words)).exit_code == 0
    facts = json.loads(rankfold("info", tmp_path / name, "--json").stdout)
    assert [len(each["axes"]) for each in facts["arrays"]] == ([2, 2] if name == "f.npz" else [3, 2])


def test_one_array_of_several_axes_is_described_under_its_own_name(tmp_path: Path) -> None:
    field().sst.to_netcdf(tmp_path / "f.nc")
    for place in (f"{tmp_path}/f.nc", f"{tmp_path}/f.nc::sst"):
        run = rankfold("info", place)
        assert run.exit_code == 0 and f"rankfold pca {place} --row-axes time" in run.stdout
    assert rankfold("info", tmp_path / "f.nc", "--row-axes", "time").stdout.startswith(f"{tmp_path}/f.nc")


def test_arrays_that_are_not_read_say_why(tmp_path: Path) -> None:
    dataset = field().assign(word=(("time", "lat"), np.full((24, 4), "a")))
    dataset.to_netcdf(tmp_path / "f.nc")
    run = rankfold("info", tmp_path / "f.nc")
    assert run.exit_code == 0 and re.search(r"^array +word: .*word", run.stdout, re.MULTILINE)


@pytest.mark.parametrize("ending", ["h5ad", "zarr"])
def test_layers_and_names_of_cells_are_shown(ending: str, tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata", reason="pip install anndata")
    sparse = pytest.importorskip("scipy.sparse")
    cells = anndata.AnnData(sparse.csr_matrix(np.random.default_rng(0).poisson(1.0, (30, 8)).astype("f4")))
    cells.obs_names, cells.var_names = [f"c{i}" for i in range(30)], [f"g{i}" for i in range(8)]
    path = tmp_path / f"cells.{ending}"
    write = cells.write_h5ad if ending == "h5ad" else cells.write_zarr
    if ending == "h5ad":
        write(path)
        assert rankfold("info", path).stdout.startswith(f"{path}::X: 30 x 8 float32, CSR")
    cells.layers["counts"], cells.obsm["X_pca"] = cells.X.copy(), np.ones((30, 3))
    cells.raw = cells.copy()
    write(path)
    run = rankfold("info", path)
    assert run.exit_code == 0 and "4 arrays of two axes or more" in run.stdout
    names = re.findall(r"^array +([\w/]+):", run.stdout, re.MULTILINE)
    assert names[0] == "X" and set(names) == {"X", "layers/counts", "obsm/X_pca", "raw/X"}
    assert "obs 30 (c0 to c29), var 8 (g0 to g7)" in run.stdout
    assert run.stdout.strip().endswith(f"rankfold pca {path}::X --rank K --out RESULT.zarr")
