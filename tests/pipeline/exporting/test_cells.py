"""What is put into AnnData objects and files is what scanpy puts there, and opens there."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
import zarr

import rankfold as rf
from rankfold.pipeline.errors import DiskSpaceError, InputError, OutputError, SourceNotFoundError
from rankfold.pipeline.exporting import cell_files
from rankfold.pipeline.exporting.cells import graph

anndata = pytest.importorskip("anndata", reason="pip install anndata")

Array = npt.NDArray[Any]


def cells(rows: int = 300, columns: int = 60, *, seed: int = 0, sparse: bool = True) -> Any:
    rng = np.random.default_rng(seed)
    x = rng.poisson(rng.gamma(0.5, 1.0, (4, columns))[rng.integers(0, 4, rows)]).astype(np.float32)
    adata = anndata.AnnData(scipy.sparse.csr_matrix(x) if sparse else x)
    adata.obs_names = [f"cell{i}" for i in range(rows)]
    adata.var_names = [f"gene{i}" for i in range(columns)]
    adata.var["chosen"] = rng.random(columns) < 0.5
    return adata


@pytest.fixture(params=["h5ad", "zarr"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"cells.{request.param}"
    _write(cells(), path)
    return path


def _write(adata: Any, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata.write_h5ad(path) if path.suffix == ".h5ad" else adata.write_zarr(path)


def _read(path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="Writing zarr v2 data")
        warnings.filterwarnings("ignore", message="The 'future.infer_string' option")  # AnnData asks pandas
        return anndata.read_h5ad(path) if path.suffix == ".h5ad" else anndata.read_zarr(path)


def test_principal_components_are_where_scanpy_has_them() -> None:
    scanpy = pytest.importorskip("scanpy")
    theirs, ours = cells(), cells()
    scanpy.pp.pca(theirs, n_comps=5, svd_solver="arpack")
    assert rf.pca(ours.X, 5).to_anndata(ours) is ours
    assert set(ours.uns) == {"pca", "rankfold"} and set(ours.uns["pca"]) == set(theirs.uns["pca"])
    assert ours.uns["pca"]["params"]["zero_center"] is True
    for part, name in (("obsm", "X_pca"), ("varm", "PCs")):
        a, b = getattr(theirs, part)[name], getattr(ours, part)[name]
        assert a.shape == b.shape and b.dtype == np.float32
        signs = np.sign((np.asarray(a) * np.asarray(b)).sum(axis=0))
        np.testing.assert_allclose(b * signs, a, atol=2e-4)
    for name in ("variance", "variance_ratio"):
        np.testing.assert_allclose(ours.uns["pca"][name], theirs.uns["pca"][name], rtol=1e-4)
    said = ours.uns["rankfold"]["pca"]
    assert said["what"].startswith("pca of 300 x 60, ") and "rank=5" in said["what"]
    assert max(map(len, said.values())) < 250


def test_neighbors_and_what_follows_from_them_are_those_of_scanpy() -> None:
    scanpy = pytest.importorskip("scanpy")
    theirs = cells(500, 20)
    theirs.obsm["X_pca"] = np.random.default_rng(0).standard_normal((500, 6)).astype(np.float32)
    ours = theirs.copy()
    scanpy.pp.neighbors(theirs, n_neighbors=12, use_rep="X_pca")
    rf.knn(ours.obsm["X_pca"], 11).to_anndata(ours)
    difference = abs(theirs.obsp["distances"] - ours.obsp["distances"])
    assert difference.max() < 1e-3 and ours.obsp["distances"].nnz == 500 * 11
    assert abs(theirs.obsp["connectivities"] - ours.obsp["connectivities"]).max() < 2e-4
    params = dict(theirs.uns["neighbors"]["params"])
    params.pop("use_rep")
    assert ours.uns["neighbors"]["params"] == {**params, "n_pcs": 6}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scanpy.tl.diffmap(theirs, n_comps=4)
        scanpy.tl.diffmap(ours, n_comps=4)
        scanpy.tl.umap(ours, maxiter=5)
    np.testing.assert_allclose(ours.uns["diffmap_evals"], theirs.uns["diffmap_evals"], atol=1e-3)
    assert ours.obsm["X_umap"].shape == (500, 2)


def test_a_layout_is_where_scanpy_draws_it(file: Path) -> None:
    x = _read(file).X
    result = rf.umap(rf.knn(x, 6), n_epochs=5, out=file.with_name("picture.zarr"))
    result.to_anndata(file)
    result.to_anndata(file, key_added="again")
    after = _read(file)
    assert set(after.obsm) == {"X_umap", "again"} and set(after.uns) == {"umap", "again", "rankfold"}
    np.testing.assert_array_equal(after.obsm["X_umap"], result.embedding[:])
    assert after.uns["umap"]["params"]["min_dist"] == 0.1
    for make in (rf.spectral, rf.diffusion_map, rf.isomap):
        other = make(rf.knn(x, 20))
        other.to_anndata(file)
        np.testing.assert_array_equal(_read(file).obsm[f"X_{make.__name__}"], other.embedding[:])
    with pytest.raises(InputError, match="has 300 observations, but the result is of a matrix with 299"):
        rf.umap(rf.knn(x[1:], 6), n_epochs=5).to_anndata(file)


def test_clusters_are_a_column_of_categories(file: Path) -> None:
    """As scanpy's clusters are: text, in the order of its numbers, of cells by their names."""
    adata = _read(file)
    result = rf.kmeans(adata[10:], 12, seed=0)
    result.to_anndata(file)
    with pytest.raises(OutputError, match="obs/kmeans, uns/kmeans are there already"):
        rf.kmeans(adata[10:], 11, seed=0).to_anndata(file)
    result.to_anndata(file)
    result.to_anndata(file, overwrite=True)
    result.to_anndata(adata, key_added="groups")
    after = _read(file)
    for labels in (after.obs["kmeans"], adata.obs["groups"]):
        assert list(labels.cat.categories) == [str(each) for each in range(12)]
        assert labels[:10].isna().all() and (labels[10:].astype(int) == result.labels[:]).all()
    assert after.uns["kmeans"]["params"]["k"] == 12 and "groups" in adata.uns["rankfold"]


def test_connectivities_of_duplicates_and_of_rows_all_alike() -> None:
    umap = pytest.importorskip("umap.umap_")
    rng = np.random.default_rng(0)
    x = np.round(rng.standard_normal((200, 2)), 1)
    x[:30] = x[0]
    result = rf.knn(x, 7)
    _, found = graph(np.asarray(result.indices), np.asarray(result.distances))
    rows = np.arange(200)[:, None]
    indices = np.hstack([rows, result.indices])
    distances = np.hstack([0.0 * rows, result.distances]).astype(np.float32)
    expected, _, _ = umap.fuzzy_simplicial_set(
        x, 8, None, "euclidean", knn_indices=indices, knn_dists=distances
    )
    assert abs(expected - found).max() < 1e-3


def test_a_file_takes_results_and_keeps_the_rest(file: Path) -> None:
    before = _read(file)
    x = before.X
    assert rf.pca(x, 4).to_anndata(file) == file
    rf.svd(x, 3).to_anndata(file)
    rf.nmf(x, 2, seed=0).to_anndata(str(file), key_added="parts")
    rf.knn(x, 6).to_anndata(file)
    after = _read(file)
    assert set(after.obsm) == {"X_pca", "X_svd", "parts"} and set(after.varm) == {"PCs", "SVD", "parts"}
    assert set(after.obsp) == {"distances", "connectivities"}
    assert set(after.uns["rankfold"]) == {"pca", "svd", "parts", "neighbors"}
    assert (after.X != before.X).nnz == 0 and after.obs.equals(before.obs) and after.var.equals(before.var)
    assert not list(file.parent.glob(".*")) and not (file.is_dir() and (file / ".rankfold-export").exists())
    svd = rf.svd(x, 3)
    np.testing.assert_allclose(after.obsm["X_svd"], svd.U[:] * svd.s, rtol=1e-4, atol=1e-4)
    if file.is_dir():
        assert zarr.open_group(file, mode="r", use_consolidated=True)["obsm/X_pca"].shape == (300, 4)


def test_scanpy_goes_on_with_a_file(file: Path) -> None:
    scanpy = pytest.importorskip("scanpy")
    result = rf.pca(_read(file).X, 4)
    result.to_anndata(file)
    lists = rf.knn(result.scores[:], 9)
    lists.to_anndata(file)
    rf.diffusion_map(lists, n_components=3).to_anndata(
        file
    )  # which must not stand where scanpy's is looked for
    adata = _read(file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scanpy.tl.diffmap(adata, n_comps=4)
        adata.uns["iroot"] = 0
        scanpy.tl.dpt(adata, n_dcs=3)
        scanpy.pp.neighbors(adata, n_pcs=3, key_added="again")
    assert adata.obsm["X_diffmap"].shape == (300, 4)


def test_large_coordinates_are_written_chunk_by_chunk(file: Path, tmp_path: Path) -> None:
    result = rf.pca(_read(file).X, 4, out=tmp_path / "r.zarr")
    assert isinstance(result.scores, zarr.Array)
    result.to_anndata(file)
    np.testing.assert_array_equal(_read(file).obsm["X_pca"], result.scores[:])
    rf.svd(_read(file).X, 4, out=tmp_path / "s.zarr").to_anndata(file)


def test_columns_that_were_left_out_are_zero_and_rows_nan(file: Path) -> None:
    adata = _read(file)
    chosen = adata.var["chosen"].to_numpy()
    source = rf.open(adata.X, select_columns=chosen, select_rows="10:")
    result = rf.pca(source, 3)
    result.to_anndata(file)
    after = _read(file)
    np.testing.assert_array_equal(after.varm["PCs"][chosen], result.components[:].T)
    assert not after.varm["PCs"][~chosen].any()
    assert np.isnan(after.obsm["X_pca"][:10]).all()
    np.testing.assert_array_equal(after.obsm["X_pca"][10:], result.scores[:])
    # scanpy looks for that mask where this says so, and has no name for one of somebody's choice.
    assert not after.uns["pca"]["params"]["use_highly_variable"] and "highly_variable" not in after.var
    rf.knn(source, 4).to_anndata(file)
    near = _read(file).obsp["distances"]
    assert near.shape == (300, 300) and near[:10].nnz == 0 and near[:, :10].nnz == 0
    assert near[10:].nnz == 290 * 4


STEPS = "normalize_total(1e4), log1p, highly_variable(30)"


def test_scanpy_maps_new_cells_and_draws_loadings(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``ingest`` asks for: genes that were chosen, what neighbors are of, the curve of the layout."""
    scanpy = pytest.importorskip("scanpy")
    from matplotlib import pyplot
    from scanpy.tools import _ingest

    reference = _read(file)
    scanpy.pp.normalize_total(reference, target_sum=1e4)
    scanpy.pp.log1p(reference)
    new = reference[::4].copy()
    scanpy.pp.highly_variable_genes(reference, n_top_genes=30)
    expected = reference.var.copy()
    reference.var = reference.var[["chosen"]]
    del reference.uns["hvg"]
    result = rf.pca(f"{file}::X", 4, prepare=STEPS, solver="gram")
    near = rf.knn(result.scores, 9)
    for each in (result, near, rf.umap(near, n_epochs=5)):
        each.to_anndata(reference)
        each.to_anndata(file)
    after = _read(file)
    for made in (reference, after):
        np.testing.assert_array_equal(made.var["highly_variable"], expected["highly_variable"])
        for name in ("means", "dispersions", "dispersions_norm"):
            np.testing.assert_allclose(made.var[name], expected[name], rtol=1e-4, atol=1e-5)
        assert made.uns["hvg"] == {"flavor": "seurat"}
        scanpy.pl.highly_variable_genes(made, show=False)
        assert made.uns["pca"]["params"] == {
            "zero_center": True,
            "use_highly_variable": True,
            "mask_var": "highly_variable",
        }
        assert made.uns["neighbors"]["params"]["n_pcs"] == 4
    assert list(after.var.columns)[-4:] == ["highly_variable", "means", "dispersions", "dispersions_norm"]
    # Its index of neighbors is of pynndescent, which compiles for minutes: see the slow test below.
    monkeypatch.setattr(
        _ingest.Ingest, "_init_pynndescent", lambda self, distances: setattr(self, "_nnd_idx", None)
    )
    mapping = _ingest.Ingest(reference)
    assert mapping._rep.shape == (300, 4) and mapping._n_pcs == 4
    assert mapping._umap._a == pytest.approx(1.577, abs=1e-3)
    mapping.fit(new)
    mapping.map_embedding("pca")
    mapped, scores = mapping.to_adata().obsm["X_pca"], reference.obsm["X_pca"][::4]
    np.testing.assert_allclose(mapped - mapped.mean(axis=0), scores - scores.mean(axis=0), atol=1e-3)
    scanpy.pl.pca_loadings(reference, components="1,2", show=False)
    pyplot.close("all")


def test_genes_by_counts_come_back_as_scanpy_writes_them() -> None:
    scanpy, anndata = pytest.importorskip("scanpy"), pytest.importorskip("anndata")
    pytest.importorskip("skmisc.loess", reason="pip install scikit-misc")
    rng = np.random.default_rng(3)
    counts = rng.poisson(rng.gamma(0.5, 2, 90), (200, 90)).astype(np.float32)
    made, theirs = (anndata.AnnData(scipy.sparse.csr_matrix(counts)) for _ in range(2))
    scanpy.pp.highly_variable_genes(theirs, n_top_genes=25, flavor="seurat_v3")
    rf.pca(made, 3, prepare="highly_variable(25, flavor='seurat_v3')").to_anndata(made)
    assert set(made.var) == set(theirs.var)
    for name in {*theirs.var} - {"highly_variable_rank"}:
        np.testing.assert_allclose(made.var[name], theirs.var[name], rtol=1e-6, err_msg=name)
    ranks = made.var["highly_variable_rank"]  # of variances that are equal scanpy's order is by chance
    np.testing.assert_array_equal(ranks.isna(), theirs.var["highly_variable_rank"].isna())
    by_rank = (each.var.sort_values("highly_variable_rank")["variances_norm"][:25] for each in (made, theirs))
    np.testing.assert_allclose(*by_rank, rtol=1e-6)
    assert sorted(ranks.dropna()) == list(range(25))
    assert made.uns["hvg"] == theirs.uns["hvg"]


@pytest.mark.slow
def test_ingest_maps_new_cells_as_onto_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """From beginning to end: components, labels by neighbors, places in a layout, beside scanpy's own."""
    scanpy = pytest.importorskip("scanpy")
    rp_trees = pytest.importorskip("pynndescent.rp_trees")
    # scanpy 1.11 passes on ``n_search_trees`` of pynndescent as a number of trees, which is None in 0.7.
    make = rp_trees.make_forest
    monkeypatch.setattr(rp_trees, "make_forest", lambda x, k, trees, *rest: make(x, k, trees or 1, *rest))
    raw = cells(300, 60)
    theirs, new = raw.copy(), raw[::4].copy()
    new.obs_names = [f"new{i}" for i in range(new.n_obs)]
    ours = raw.copy()
    for each in (theirs, ours, new):
        scanpy.pp.normalize_total(each, target_sum=1e4)
        scanpy.pp.log1p(each)
    scanpy.pp.highly_variable_genes(theirs, n_top_genes=30)
    scanpy.pp.pca(theirs, n_comps=4)
    scanpy.pp.neighbors(theirs, n_neighbors=10)
    scanpy.tl.umap(theirs)
    result = rf.pca(raw, 4, prepare=STEPS, tol=1e-6)
    near = rf.knn(result.scores, 9)
    for made in (result, near, rf.umap(near)):
        made.to_anndata(ours)
    labels = rf.kmeans(result.scores, 4, seed=0)
    for each in (theirs, ours):
        labels.to_anndata(each)
    mapped = [scanpy.tl.ingest(new, each, obs="kmeans", inplace=False) for each in (theirs, ours)]
    np.testing.assert_array_equal(mapped[0].obs["kmeans"], mapped[1].obs["kmeans"])
    scores = [np.asarray(each.obsm["X_pca"]) for each in mapped]
    signs = np.sign((scores[0] * scores[1]).sum(axis=0))
    np.testing.assert_allclose(scores[1] * signs, scores[0], atol=1e-3)
    # New cells are old ones, so they come to lie at these in either layout.
    for each, reference in zip(mapped, (theirs, ours), strict=True):
        layout = reference.obsm["X_umap"]
        apart = np.linalg.norm(each.obsm["X_umap"] - layout[::4], axis=1)
        assert np.median(apart) < 0.1 * np.ptp(layout, axis=0).max()


def test_a_mask_of_somebody_stays_and_ours_is_replaced_when_asked(file: Path) -> None:
    results = [rf.pca(f"{file}::X", 3, prepare=STEPS.replace("30", count)) for count in ("30", "20")]
    results[0].to_anndata(file)
    with pytest.raises(OutputError, match=r"var/highly_variable, .* are there already"):
        results[1].to_anndata(file)
    for _ in range(2):
        results[1].to_anndata(file, overwrite=True)
    results[0].to_anndata(file, overwrite=True)
    results[1].to_anndata(file, overwrite=True)
    assert _read(file).var["highly_variable"].sum() == 20
    adata = cells()
    adata.var["highly_variable"] = mask = adata.var["chosen"].to_numpy()
    results[0].to_anndata(adata)
    np.testing.assert_array_equal(adata.var["highly_variable"], mask)
    assert not adata.uns["pca"]["params"]["use_highly_variable"]
    chosen = rf.pca(adata, 3, mask_var="highly_variable")
    chosen.to_anndata(adata, overwrite=True)
    assert adata.uns["pca"]["params"]["use_highly_variable"]
    assert np.array_equal(adata.varm["PCs"].any(axis=1), mask)
    np.testing.assert_allclose(rf.transform(chosen, adata).scores, chosen.scores, atol=1e-4)
    for name, result in (("X_pca", results[0]), ("mine", rf.svd(adata.X, 3))):
        points = np.asarray(result["scores" if name == "X_pca" else "U"])
        adata.obsm[name] = points
        rf.knn(points, 4).to_anndata(adata, overwrite=True)
        params = adata.uns["neighbors"]["params"]
        assert (params.get("use_rep"), params.get("n_pcs")) in [("mine", None), (None, 3)]
        assert ("use_rep" in params) == (name == "mine")


def test_new_cells_take_coordinates_alone(file: Path) -> None:
    adata = _read(file)
    fit = rf.pca(cells(200, seed=1).X, 4, with_rows=False)
    rf.transform(fit, adata.X).to_anndata(file)
    after = _read(file)
    assert set(after.obsm) == {"X_pca"} and not set(after.varm)


def test_names_with_a_mask_are_counted(file: Path) -> None:
    """Since AnnData 0.13 names are a group of values and a mask where pandas keeps them as text."""
    h5py = pytest.importorskip("h5py")
    kind = {"encoding-type": "nullable-string-array", "encoding-version": "0.1.0"}
    with h5py.File(file, "r+") if file.suffix == ".h5ad" else contextlib.nullcontext(zarr.open(file)) as root:
        names = np.array([f"c{i}" for i in range(300)], object)
        del root["obs/_index"]
        index = root.create_group("obs/_index")
        index.attrs.update(kind)
        anndata.io.write_elem(index, "values", names)
        anndata.io.write_elem(index, "mask", np.zeros(300, bool))
    rf.pca(cells().X, 2).to_anndata(file)
    adata = _read(file)
    assert adata.obsm["X_pca"].shape == (300, 2) and list(adata.obs_names[:2]) == ["c0", "c1"]


def test_what_is_there_is_replaced_only_when_asked(file: Path) -> None:
    x = _read(file).X
    rf.pca(x, 4).to_anndata(file)
    with pytest.raises(OutputError, match=r"obsm/X_pca.* are there already. Say overwrite=True"):
        rf.pca(x, 5).to_anndata(file)
    assert _read(file).obsm["X_pca"].shape == (300, 4)
    rf.pca(x, 5).to_anndata(file, overwrite=True)
    assert _read(file).obsm["X_pca"].shape == (300, 5)
    adata = cells()
    rf.pca(x, 4).to_anndata(adata)
    with pytest.raises(OutputError, match="are there already"):
        rf.pca(x, 5).to_anndata(adata)
    assert adata.obsm["X_pca"].shape == (300, 4)


def test_the_same_result_is_there_already_unless_somebody_has_changed_it(file: Path) -> None:
    x = _read(file).X
    for make in (lambda: rf.pca(x, 4), lambda: rf.kmeans(x, 4), lambda: rf.knn(x, 5)):
        result = make()
        first = cell_files.write_into(file, result, None, overwrite=False, in_place=False)
        again = cell_files.write_into(file, result, None, overwrite=False, in_place=False)
        assert not first.already_there and again == (first.elements, True)
        assert result.to_anndata(file) == file
    result = rf.pca(x, 4)
    result.to_anndata(file, key_added="mine")
    h5py = pytest.importorskip("h5py")
    with h5py.File(file, "r+") if file.suffix == ".h5ad" else contextlib.nullcontext(zarr.open(file)) as root:
        root["obsm/mine"][0] = 7
    with pytest.raises(OutputError, match="obsm/mine, uns/mine are there already"):
        result.to_anndata(file, key_added="mine")


def test_wrong_uses_are_told_in_one_sentence(file: Path, tmp_path: Path) -> None:
    x = _read(file).X
    few = rf.pca(x[:, :50], 3)
    with pytest.raises(InputError, match=r"has 60 variables, but the result is of a matrix with 50"):
        few.to_anndata(file)
    with pytest.raises(InputError, match=r"has 300 observations, but the result is of a matrix with 299"):
        rf.pca(x[1:], 3).to_anndata(file)
    with pytest.raises(SourceNotFoundError, match="does not exist"):
        few.to_anndata(tmp_path / "nothing.h5ad")
    (tmp_path / "text.h5ad").write_text("no HDF5")
    with pytest.raises(InputError, match="is not an HDF5 file"):
        few.to_anndata(tmp_path / "text.h5ad")
    zarr.create_array(tmp_path / "x.zarr", shape=(3,), dtype="f4")
    with pytest.raises(InputError, match="no Zarr group"):
        few.to_anndata(tmp_path / "x.zarr")
    zarr.open_group(tmp_path / "g.zarr", mode="w")
    with pytest.raises(InputError, match="was not written by AnnData: it has no index of obs"):
        few.to_anndata(tmp_path / "g.zarr")
    with pytest.raises(InputError, match="has no place in an AnnData object"):
        rf.qr(x.toarray()).to_anndata(file)
    with pytest.raises(InputError, match="neighbors of other rows"):
        rf.knn(x, 3, queries=x[:10]).to_anndata(file)
    with pytest.raises(InputError, match="inner_product is no distance"):
        rf.knn(x, 3, metric="inner_product").to_anndata(file)


def test_a_file_that_is_open_to_write_elsewhere_is_refused(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    _write(cells(), tmp_path / "cells.h5ad")
    result = rf.pca(cells().X, 3)
    with h5py.File(tmp_path / "cells.h5ad", "r+"), pytest.raises(OutputError, match="is open elsewhere"):
        result.to_anndata(tmp_path / "cells.h5ad")
    result.to_anndata(tmp_path / "cells.h5ad", in_place=True)
    assert "X_pca" in _read(tmp_path / "cells.h5ad").obsm


def test_without_room_for_a_copy_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(cells(), tmp_path / "cells.h5ad")
    result = rf.pca(cells().X, 3)
    monkeypatch.setattr(cell_files.shutil, "disk_usage", lambda path: _Usage())
    with pytest.raises(DiskSpaceError, match=r"is copied before it is changed.*in_place=True"):
        result.to_anndata(tmp_path / "cells.h5ad")
    assert not list(tmp_path.glob(".*"))


class _Usage:
    free = 10


SCRIPT = """
import sys, rankfold as rf, rankfold.pipeline.exporting.cell_files as files
write = files._write_elements
def slowly(root, elements):
    for path, value in elements.items():
        write(root, {path: value})
        print(path, flush=True)
        import time; time.sleep(0.3)
files._write_elements = slowly
rf.open_result(sys.argv[1]).to_anndata(sys.argv[2])
"""


@pytest.mark.process
@pytest.mark.parametrize("kind", ["h5ad", "zarr"])
def test_a_kill_leaves_what_was_there(tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"cells.{kind}"
    _write(cells(), file)
    rf.pca(cells().X, 4, out=tmp_path / "r.zarr")
    for lines in (1, 3):
        child = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, tmp_path / "r.zarr", file], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        for _ in range(lines):
            child.stdout.readline()
        time.sleep(0.05)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        adata = _read(file)
        assert adata.shape == (300, 60) and not set(adata.obsm) and "pca" not in adata.uns
    rf.open_result(tmp_path / "r.zarr").to_anndata(file)
    assert _read(file).obsm["X_pca"].shape == (300, 4)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("in_place", [False, True])
def test_the_file_that_is_read_takes_the_result(tmp_path: Path, in_place: bool) -> None:
    _write(cells(), tmp_path / "cells.h5ad")
    source = rf.open(f"{tmp_path / 'cells.h5ad'}::X")
    result = rf.pca(source, 3)
    result.to_anndata(tmp_path / "cells.h5ad", in_place=in_place)
    np.testing.assert_array_equal(rf.pca(source, 3).scores[:], result.scores[:])


def _work_of(file: Path) -> Path:
    """What an export works on until it is complete."""
    return file / ".rankfold-export" if file.is_dir() else file.with_name(f".{file.name}.rankfold-export")


@pytest.mark.parametrize("what", ["a file", "a link", "a folder"])
def test_what_has_the_name_of_unfinished_elements_stays(file: Path, what: str, tmp_path: Path) -> None:
    work, mine = _work_of(file), tmp_path / "mine.txt"
    mine.write_text("precious")
    if what == "a file":
        work.write_text("precious")
    elif what == "a link":
        work.symlink_to(mine)
    else:
        work.mkdir()
        (work / "zarr.json").write_text("precious")
    result = rf.pca(_read(file).X, 2)
    with pytest.raises(OutputError, match=r"was not made by rankfold. Move it away"):
        result.to_anndata(file)
    assert (
        mine.read_text() == "precious" and os.path.lexists(work) and work.is_symlink() == (what == "a link")
    )
    shown = work / "zarr.json" if what == "a folder" else work
    assert shown.read_text() == "precious" and "X_pca" not in _read(file).obsm


def test_two_processes_do_not_add_to_one_store_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cells.zarr"
    _write(cells(), file)
    result = rf.pca(_read(file).X, 2)
    real, refused = cell_files.flush_tree, []

    def meanwhile(folder: Path) -> None:
        with pytest.raises(OutputError, match="another process adds to"):
            result.to_anndata(file, key_added="other")
        refused.append(folder)
        real(folder)

    with monkeypatch.context() as patched:
        patched.setattr(cell_files, "flush_tree", meanwhile)
        result.to_anndata(file)
    assert refused and "X_pca" in _read(file).obsm
    result.to_anndata(file, key_added="other")


def test_a_file_that_is_replaced_while_it_is_read_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, newer = tmp_path / "cells.h5ad", tmp_path / "newer.h5ad"
    for path in (file, newer):
        _write(cells(), path)
    result, content = rf.pca(_read(file).X, 2), newer.read_bytes()
    real = cell_files._require_room

    def meanwhile(path: Path) -> None:
        real(path)
        newer.rename(file)

    monkeypatch.setattr(cell_files, "_require_room", meanwhile)
    with pytest.raises(OutputError, match="was replaced while it was read"):
        result.to_anndata(file)
    assert file.read_bytes() == content and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("key", ["", "a/b", ".", "..", "../x", ".hidden", "rankfold", " a", "a" * 300])
def test_names_that_no_file_can_keep_are_refused(file: Path, key: str) -> None:
    result, adata = rf.pca(cells().X, 3), cells()
    for target in (file, adata):
        with pytest.raises(InputError, match="is no name for results"):
            result.to_anndata(target, key_added=key, overwrite=True)
    assert not adata.obsm and not _read(file).obsm


def test_what_a_link_leads_to_is_written(tmp_path: Path) -> None:
    _write(cells(), tmp_path / "real.h5ad")
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "link.h5ad"
    link.symlink_to(tmp_path / "real.h5ad")
    rf.pca(cells().X, 3).to_anndata(link)
    assert link.is_symlink() and "X_pca" in _read(tmp_path / "real.h5ad").obsm
