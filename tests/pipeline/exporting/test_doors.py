"""Doors to other libraries where their own objects are odd: what is absent, cut, named or repeated."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
import zarr

import rankfold as rf
from rankfold.estimators import PCA, TruncatedSVD
from rankfold.pipeline.errors import DataError, InputError, OutputError

Array = npt.NDArray[Any]


def counts(rows: int = 120, columns: int = 30) -> Array:
    rng = np.random.default_rng(0)
    return rng.poisson(0.2 + rng.gamma(1, 1, (1, columns)), (rows, columns)).astype(np.float32)


# AnnData ------------------------------------------------------------------------------------------


def written(folder: Path, kind: str) -> Path:
    """A file that AnnData wrote, without the groups that it may do without."""
    anndata = pytest.importorskip("anndata")
    path = folder / f"cells.{kind}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata = anndata.AnnData(counts())
        adata.write_h5ad(path) if kind == "h5ad" else adata.write_zarr(path)
    if kind == "h5ad":
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "r+") as file:
            for name in {"obsm", "varm", "obsp", "uns"} & set(file):
                del file[name]
        return path
    root = zarr.open_group(path, mode="r+", use_consolidated=False)
    for name in {"obsm", "varm", "obsp", "uns"} & set(root):
        del root[name]
    (path / ".zmetadata").unlink(missing_ok=True)
    return path


def read_back(path: Path) -> Any:
    import anndata

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return anndata.read_h5ad(path) if path.suffix == ".h5ad" else anndata.read_zarr(path)


@pytest.mark.parametrize("kind", ["h5ad", "zarr"])
def test_groups_that_are_not_there_are_made(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, kind)
    result, near = rf.pca(counts(), 3), rf.knn(counts(), 4)
    for each in (result, near, rf.nmf(counts(), 2, passes=3)):
        each.to_anndata(path)
    adata = read_back(path)
    np.testing.assert_array_equal(adata.obsm["X_pca"], result.scores[:])
    np.testing.assert_array_equal(adata.varm["PCs"], result.components[:].T)
    assert set(adata.obsp) == {"distances", "connectivities"}
    assert adata.obsm["X_nmf"].shape == (120, 2) and adata.varm["NMF"].shape == (30, 2)
    assert set(adata.uns) == {"pca", "neighbors", "nmf", "rankfold"}
    np.testing.assert_array_equal(adata.X, counts())


@pytest.mark.parametrize("consolidated", [True, False])
def test_a_store_stays_consolidated_or_not(tmp_path: Path, consolidated: bool) -> None:
    path = written(tmp_path, "zarr")
    if consolidated:
        zarr.consolidate_metadata(path, zarr_format=2 if (path / ".zgroup").exists() else 3)
        write_elem = pytest.importorskip("anndata.io").write_elem
        with pytest.raises(ValueError, match="consolidated metadata"):  # what writing into it by hand meets
            write_elem(zarr.open_group(path, mode="r+", use_consolidated=True), "uns", {"a": 1})
    elif (path / "zarr.json").exists():  # AnnData 0.13 has it consolidated
        facts = json.loads((path / "zarr.json").read_text())
        (path / "zarr.json").write_text(json.dumps({**facts, "consolidated_metadata": None}))
    rf.pca(counts(), 3).to_anndata(path)
    assert read_back(path).obsm["X_pca"].shape == (120, 3)
    if consolidated:
        assert "X_pca" in zarr.open_group(path, mode="r", use_consolidated=True)["obsm"]
    else:
        with pytest.raises((ValueError, KeyError), match="metadata"):
            zarr.open_group(path, mode="r", use_consolidated=True)


def test_a_key_of_its_own_is_in_all_places() -> None:
    anndata = pytest.importorskip("anndata")
    adata = anndata.AnnData(counts())
    rf.pca(counts(), 3).to_anndata(adata, key_added="mine")
    rf.knn(counts(), 4).to_anndata(adata, key_added="near")
    assert set(adata.obsm) == set(adata.varm) == {"mine"}
    assert set(adata.obsp) == {"near_distances", "near_connectivities"}
    assert adata.uns["near"]["distances_key"] == "near_distances" and "mine" in adata.uns
    for result in (rf.pca(counts(), 2), rf.knn(counts(), 2)):
        key = "mine" if result.attrs["kind"] == "pca" else "near"
        with pytest.raises(OutputError, match=rf"{key}.* there already. Say overwrite=True"):
            result.to_anndata(adata, key_added=key)


def test_an_object_of_other_lengths_is_refused_and_stays() -> None:
    anndata = pytest.importorskip("anndata")
    result, near = rf.pca(counts(), 3), rf.knn(counts(), 4)
    fewer_cells, fewer_genes = anndata.AnnData(counts()[:50]), anndata.AnnData(counts()[:, :20])
    for each in (result, near):
        with pytest.raises(
            InputError, match=r"the AnnData object has 50 observations, but .* a matrix with 120"
        ):
            each.to_anndata(fewer_cells)
    with pytest.raises(InputError, match=r"the AnnData object has 20 variables, but .* a matrix with 30"):
        result.to_anndata(fewer_genes)
    for adata in (fewer_cells, fewer_genes):
        assert not adata.obsm and not adata.varm and not adata.obsp and not adata.uns


@pytest.mark.parametrize("part", ["layers/counts", "raw/X", "obsm/X_pca"])
def test_parts_are_read_by_their_place_and_others_are_named(tmp_path: Path, part: str) -> None:
    anndata = pytest.importorskip("anndata")
    adata = anndata.AnnData(scipy.sparse.csr_matrix(counts()))
    adata.layers["counts"], adata.obsm["X_pca"] = adata.X * 2, counts()[:, :6]
    adata.raw = adata.copy()
    adata.write_h5ad(tmp_path / "cells.h5ad")
    held = {"layers/counts": counts() * 2, "raw/X": counts(), "obsm/X_pca": counts()[:, :6]}[part]
    found = rf.svd(f"{tmp_path / 'cells.h5ad'}::{part}", 2, solver="tsqr").s[:]
    np.testing.assert_allclose(found, np.linalg.svd(held.astype("f8"), compute_uv=False)[:2], rtol=1e-5)
    with pytest.raises(InputError, match=f"has no dataset {part}s"):
        rf.open(f"{tmp_path / 'cells.h5ad'}::{part}s")


# xarray -------------------------------------------------------------------------------------------


def field() -> Any:
    xarray = pytest.importorskip("xarray")
    rng = np.random.default_rng(0)
    x = np.einsum("tk,kxy->txy", rng.standard_normal((50, 3)) * [5, 3, 1], rng.standard_normal((3, 5, 6)))
    x += 0.05 * rng.standard_normal(x.shape) + 2
    coords = {"time": np.arange(50), "lat": np.linspace(-60, 70, 5), "lon": np.arange(0, 360, 60)}
    return xarray.DataArray(x, coords, ("time", "lat", "lon"), name="sst", attrs={"units": "K"})


def test_scores_are_those_of_xeofs() -> None:
    xeofs, data = pytest.importorskip("xeofs"), field()
    data[:, 1, 2:4] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = xeofs.single.EOF(n_modes=3, use_coslat=True).fit(data, dim="time")
    view = {"row_axes": "time", "drop_missing_columns": True, "prepare": "coslat"}
    ours = rf.pca(rf.open(data, **view), 3, tol=1e-10).to_xarray(data)
    theirs = model.scores(normalized=False).transpose("mode", "time")
    signs = np.sign((ours["scores"].values * theirs.values).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(ours["scores"].values * signs, theirs.values, atol=1e-8)
    np.testing.assert_array_equal(ours["mode"], theirs["mode"])
    np.testing.assert_array_equal(ours["time"], data["time"])


def test_new_months_and_the_field_again_are_those_of_xeofs() -> None:
    xeofs, data = pytest.importorskip("xeofs"), field()
    data[:, 1, 2:4] = np.nan
    seen, new = data[:40], data[40:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = xeofs.single.EOF(n_modes=3, use_coslat=True).fit(seen, dim="time")
        theirs = model.transform(new, normalized=False).transpose("mode", "time")
        again = model.inverse_transform(model.scores(normalized=False), normalized=False)
    view: Any = {"row_axes": "time", "drop_missing_columns": True, "prepare": "coslat"}
    result = rf.pca(seen, 3, tol=1e-10, **view)
    ours = rf.transform(result, new[:, ::-1]).to_xarray()["scores"].transpose("mode", "time")
    signs = np.sign((ours.values * theirs.values).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(ours.values * signs, theirs.values, atol=1e-8)
    np.testing.assert_array_equal(ours["time"], new["time"])
    units = result.to_xarray(physical=True)
    whole = units["mean"] + (units["scores"] * units["components"]).sum("mode", skipna=False)
    np.testing.assert_allclose(whole.transpose(*data.dims), again.transpose(*data.dims), atol=1e-8)


def test_a_hole_in_a_field_is_refused_as_by_xeofs() -> None:
    xeofs, data = pytest.importorskip("xeofs"), field()
    data[7, 2, 3] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match="NaN"):
            xeofs.single.EOF(n_modes=3).fit(data, dim="time")
    with pytest.raises(DataError, match=r"which is time 7, lat 2 \(5.0\), lon 3 \(180\)"):
        rf.pca(rf.open(data, row_axes="time", drop_missing_columns=True), 3)


@pytest.mark.parametrize(
    "prepare",
    [
        *(None, "coslat", "scale", "scale(ddof=0), coslat", "coslat, scale", "scale(zero_center=False)"),
        *("weights", "coslat, highly_variable(n_top_genes=6)", "impute_mean, coslat"),
    ],
)
@pytest.mark.parametrize(
    "how", [{}, {"center": False}, {"scale": True}, {"whiten": True}, "svd"], ids=lambda how: str(how)
)
def test_mean_and_scores_times_components_are_the_field(prepare: Any, how: Any) -> None:
    """With all components; where columns were left out, NaN."""
    data = field() + 18
    data[:, 2, 1] = np.nan
    steps = [{"weights": {"values": np.linspace(0.5, 2, 30)}}] if prepare == "weights" else prepare
    x = rf.open(data, row_axes="time", drop_missing_columns=True, prepare=steps)
    most = min(x.shape)
    if how == "svd":
        found = rf.svd(x, most, solver="tsqr").to_xarray(data, physical=True)
        rebuilt = (found["U"] * found["s"] * found["Vt"]).sum("mode", skipna=False)
    else:
        found = rf.pca(x, most, solver="tsqr", **how).to_xarray(data, physical=True)
        rebuilt = (found["scores"] * found["components"]).sum("mode", skipna=False)
    rebuilt = (rebuilt + found.get("mean", 0.0)).transpose("time", "lat", "lon").values
    known = np.isfinite(rebuilt[0])
    np.testing.assert_allclose(rebuilt[:, known], data.values[:, known], rtol=1e-9)
    assert not known[2, 1] and known.sum() == most


def test_components_are_orthonormal_in_the_weighted_space() -> None:
    data = field()
    found = rf.pca(rf.open(data, row_axes="time", prepare="coslat"), 30, solver="tsqr").to_xarray(data)
    plain = found["components"].values.reshape(30, -1)
    np.testing.assert_allclose(plain @ plain.T, np.eye(30), atol=1e-9)


def test_physical_components_of_what_was_scaled_or_weighs_nothing() -> None:
    data = field()
    x = data.values.reshape(50, -1)
    scaled = rf.pca(x, 30, scale=True, solver="tsqr").to_xarray(physical=True)
    np.testing.assert_allclose(
        scaled["scores"].values.T @ scaled["components"].values, x - x.mean(axis=0), atol=1e-9
    )
    nothing = [{"weights": {"values": np.r_[0.0, np.ones(29)]}}]
    found = rf.svd(rf.open(x, prepare=nothing), 3).to_xarray(physical=True)["Vt"].values
    assert np.isnan(found[:, 0]).all() and np.isfinite(found[:, 1:]).all()
    for result, message in (
        (rf.pca(rf.open(counts(), prepare="log1p"), 3), "and log1p is none"),
        (rf.pca(rf.open(counts(), prepare="scale(max_value=3)"), 3), "and scale is none"),
        (rf.knn(counts(), 3), "is for components, and this result has none"),
    ):
        with pytest.raises(InputError, match=message):
            result.to_xarray(physical=True)


# Dask and scikit-learn ----------------------------------------------------------------------------


def test_rows_that_dask_has_not_counted_are_counted_or_asked_for() -> None:
    import dask.array as da

    x = da.from_array(counts().astype("f8"), chunks=(40, 30))
    some = x[x[:, 0] >= 0]
    assert np.isnan(some.shape[0])
    with pytest.raises(InputError, match="compute_chunk_sizes"):
        rf.open(some)
    found = rf.svd(some.compute_chunk_sizes(), 2, solver="tsqr").s[:]
    np.testing.assert_allclose(found, np.linalg.svd(counts().astype("f8"), compute_uv=False)[:2], rtol=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: rf.pca(x, 3).singular_values[:],
        lambda x: PCA(3).fit(x).components_,
        lambda x: TruncatedSVD(3).fit(x).singular_values_,
    ],
)
def test_wide_indices_are_taken_as_they_are(make: Any) -> None:
    x = scipy.sparse.csr_array(counts().astype("f8"))
    wide = scipy.sparse.csr_array((x.data, x.indices.astype(np.int64), x.indptr.astype(np.int64)), x.shape)
    np.testing.assert_allclose(np.abs(make(wide)), np.abs(make(x)), rtol=1e-6, atol=1e-6)
    assert wide.indices.dtype == np.int64


def test_physical_components_of_some_columns() -> None:
    x, weights = np.random.default_rng(0).standard_normal((50, 12)), np.linspace(1, 2, 12)
    kept = np.arange(12) % 2 == 0
    found = rf.pca(x, 3, prepare=[{"weights": {"values": weights}}], mask_var=kept)
    physical = found.to_xarray(physical=True)["components"].values
    np.testing.assert_allclose(physical, np.asarray(found.components) / weights[kept])


def test_poles_weigh_nothing() -> None:
    xarray = pytest.importorskip("xarray")
    latitudes = np.array([-90.0, -45, 0, 45, 90])
    values = np.random.default_rng(0).standard_normal((30, 5, 2))
    field = xarray.DataArray(values, dims=("time", "lat", "lon"), coords={"lat": latitudes})
    found = rf.svd(rf.open(field, row_axes="time", prepare="coslat"), 2).to_xarray(field, physical=True)["Vt"]
    assert np.isnan(found.sel(lat=[-90, 90]).values).all()
    assert np.isfinite(found.sel(lat=[-45, 0, 45]).values).all()


def test_complex_numbers_are_for_no_netcdf(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((30, 5)) * (1 + 1j)
    with pytest.raises(rf.RankfoldError, match="netCDF holds no complex numbers"):
        rf.svd(x, 2).to_netcdf(tmp_path / "x.nc")
    assert not (tmp_path / "x.nc").exists()
