"""Real matrices, written in every format by the libraries of that format, come back as they were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import scipy.io
import scipy.sparse
import xarray
from real_data import real

import rankfold as rf

Dense = np.ndarray[Any, Any]


def csv(folder: Path, x: Dense) -> str:
    table = pa.table({f"c{i}": x[:, i] for i in range(x.shape[1])})
    pyarrow.csv.write_csv(table, folder / "x.csv")
    return str(folder / "x.csv")


def parquet(folder: Path, x: Dense) -> str:
    table = pa.table({f"c{i}": x[:, i] for i in range(x.shape[1])})
    pyarrow.parquet.write_table(table, folder / "x.parquet")
    return str(folder / "x.parquet")


def vectors(folder: Path, x: Dense) -> str:
    flat = pa.array(np.ascontiguousarray(x).reshape(-1))
    table = pa.table({"v": pa.FixedSizeListArray.from_arrays(flat, x.shape[1])})
    pyarrow.parquet.write_table(table, folder / "v.parquet")
    return str(folder / "v.parquet")


def npz(folder: Path, x: Dense) -> str:
    np.savez(folder / "x.npz", X=x)
    return f"{folder / 'x.npz'}::X"


def compressed(folder: Path, x: Dense) -> str:
    np.savez_compressed(folder / "z.npz", X=x)
    return f"{folder / 'z.npz'}::X"


def hdf5(folder: Path, x: Dense) -> str:
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("a/X", data=x, chunks=(64, x.shape[1]), compression="gzip", compression_opts=1)
    return f"{folder / 'x.h5'}::a/X"


def netcdf(folder: Path, x: Dense) -> str:
    pytest.importorskip("netCDF4")
    xarray.DataArray(x, dims=("sample", "feature"), name="X").to_netcdf(folder / "x.nc")
    return f"{folder / 'x.nc'}::X"


def fbin(folder: Path, x: Dense) -> str:
    name = folder / ("x.u8bin" if x.dtype == np.uint8 else "x.fbin")
    with open(name, "wb") as file:
        np.array(x.shape, "<i4").tofile(file)
        x.tofile(file)
    return str(name)


def sst(folder: Path) -> Dense:
    return np.ascontiguousarray(np.load(real("sst_ersst.npz"))["X"][:, :400])  # type: ignore[no-any-return]


def images(folder: Path) -> Dense:
    return np.load(real("fashion_mnist.npz"))["X"][:5000]  # type: ignore[no-any-return]


def quakes(folder: Path) -> Dense:
    return np.load(real("geo_points.npz"))["earthquakes"]  # type: ignore[no-any-return]


FORMATS = [csv, parquet, vectors, npz, compressed, hdf5, netcdf]


@pytest.mark.parametrize("data", [sst, images, quakes], ids=lambda f: f.__name__)
@pytest.mark.parametrize("write", [*FORMATS, fbin], ids=lambda f: f.__name__)
def test_dense_formats(
    tmp_path: Path, write: Callable[[Path, Dense], str], data: Callable[[Path], Dense]
) -> None:
    x = data(tmp_path)
    if write is fbin and x.dtype == np.float64:
        pytest.skip("there is no .fbin of float64")
    location = write(tmp_path, x)
    options = {"dtype": x.dtype.name} if write is csv else {}
    rf.import_array(location, tmp_path / "x.zarr", memory_bytes=2**26, **options)
    import zarr

    found = zarr.open_array(tmp_path / "x.zarr", mode="r")
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found[...], x)


def mtx(folder: Path, x: Any) -> str:
    scipy.io.mmwrite(folder / "x.mtx", x)
    return str(folder / "x.mtx")


def scipy_npz(folder: Path, x: Any) -> str:
    scipy.sparse.save_npz(folder / "x.npz", x)
    return str(folder / "x.npz")


def _h5ad(folder: Path, x: Any, encoding: str) -> str:
    with h5py.File(folder / "x.h5ad", "w") as file:
        group = file.create_group("X")
        group.attrs.update({"encoding-type": encoding, "encoding-version": "0.1.0", "shape": x.shape})
        for name in ("data", "indices", "indptr"):
            group.create_dataset(name, data=getattr(x, name))
    return str(folder / "x.h5ad")


def h5ad_csr(folder: Path, x: Any) -> str:
    return _h5ad(folder, x.tocsr(), "csr_matrix")


def h5ad_csc(folder: Path, x: Any) -> str:
    return _h5ad(folder, x.tocsc(), "csc_matrix")


@pytest.mark.parametrize("name", ["pbmc3k_counts.npz", "cora_words.npz"])
@pytest.mark.parametrize("write", [mtx, scipy_npz, h5ad_csr, h5ad_csc], ids=lambda f: f.__name__)
def test_sparse_formats(tmp_path: Path, write: Callable[[Path, Any], str], name: str) -> None:
    x = scipy.sparse.load_npz(real(name))[:1500]
    location = write(tmp_path, x)
    options = {"dtype": x.dtype.name} if write is mtx else {}
    report = rf.import_array(location, tmp_path / "x.zarr", memory_bytes=2**27, **options)
    assert report.layout == "csr" and report.nnz == x.nnz
    import zarr

    group = zarr.open_group(tmp_path / "x.zarr", mode="r")
    parts = [np.asarray(group[part]) for part in ("data", "indices", "indptr")]  # type: ignore[arg-type]
    found = scipy.sparse.csr_matrix(tuple(parts), shape=tuple(group.attrs["shape"]))  # type: ignore[arg-type]
    assert found.dtype == x.dtype and (found != x).nnz == 0
    again = rf.svd(tmp_path / "x.zarr", 3, memory="1GiB")
    np.testing.assert_allclose(again.s, scipy.sparse.linalg.svds(x.astype(float), 3)[1][::-1], rtol=1e-4)
