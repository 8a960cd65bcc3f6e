"""Stages put results into files of AnnData and netCDF, and tables: once, and anew when they have changed."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from command_line import rankfold

import rankfold as rf
from rankfold.workflows.library import example_text

anndata = pytest.importorskip("anndata", reason="pip install anndata")


def raw_counts(rows: int = 300, columns: int = 200) -> Any:
    rng = np.random.default_rng(0)
    kinds = rng.gamma(0.3, 1.0, (5, columns))
    x = rng.poisson(kinds[rng.integers(0, 5, rows)] * rng.gamma(3, 0.3, (rows, 1)))
    return scipy.sparse.csr_matrix(x.astype(np.float32))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    anndata.AnnData(raw_counts()).write_h5ad(tmp_path / "cells.h5ad")
    text = example_text("cells").replace("genes: 2000", "genes: 80").replace("rank: 50", "rank: 6")
    (tmp_path / "cells.yaml").write_text(text)
    return tmp_path


def test_the_shipped_workflow_of_cells_is_the_chain_of_scanpy(folder: Path) -> None:
    scanpy = pytest.importorskip("scanpy")
    run = rankfold("run", folder / "cells.yaml")
    assert run.exit_code == 0, run.output
    found = anndata.read_h5ad(folder / "cells.h5ad")
    adata = anndata.AnnData(raw_counts().astype("f8"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scanpy.pp.normalize_total(adata, target_sum=1e4)
        scanpy.pp.log1p(adata)
        scanpy.pp.highly_variable_genes(adata, n_top_genes=80)
        chosen = adata.var["highly_variable"].to_numpy()
        adata = adata[:, chosen].copy()
        scanpy.pp.scale(adata, max_value=10)
        scanpy.pp.pca(adata, n_comps=6, svd_solver="full")
        adata.obsm["X_pca"] = found.obsm["X_pca"]
        scanpy.pp.neighbors(adata, n_neighbors=15)
    np.testing.assert_allclose(found.uns["pca"]["variance"], adata.uns["pca"]["variance"], rtol=1e-4)
    assert not found.varm["PCs"][~chosen].any()
    assert abs(found.obsp["distances"] - adata.obsp["distances"]).max() < 1e-3
    assert abs(found.obsp["connectivities"] - adata.obsp["connectivities"]).max() < 1e-3
    assert (raw_counts() != found.X).nnz == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scanpy.tl.umap(found, maxiter=3)


def test_a_second_run_does_nothing_and_a_changed_one_puts_its_own_in_again(folder: Path) -> None:
    assert rankfold("run", folder / "cells.yaml").exit_code == 0
    before = os.stat(folder / "cells.h5ad").st_mtime_ns
    run = rankfold("run", folder / "cells.yaml")
    assert run.exit_code == 0 and "2 finished before" in run.stdout
    assert os.stat(folder / "cells.h5ad").st_mtime_ns == before
    text = (folder / "cells.yaml").read_text()
    (folder / "cells.yaml").write_text(text.replace("rank: 6", "rank: 5"))
    assert rankfold("run", folder / "cells.yaml").exit_code == 0
    assert anndata.read_h5ad(folder / "cells.h5ad").obsm["X_pca"].shape == (300, 5)


def test_what_others_have_put_there_stays(folder: Path) -> None:
    adata = anndata.read_h5ad(folder / "cells.h5ad")
    adata.obsm["X_pca"] = np.zeros((300, 2))
    adata.write_h5ad(folder / "cells.h5ad")
    run = rankfold("run", folder / "cells.yaml")
    assert run.exit_code == 2 and "holds obsm/X_pca, which this workflow did not write" in run.stderr
    assert not (folder / "cells-results").exists()
    assert anndata.read_h5ad(folder / "cells.h5ad").obsm["X_pca"].shape == (300, 2)
    text = (folder / "cells.yaml").read_text()
    named = "into: {file: cells.h5ad, key_added: ours}"
    (folder / "cells.yaml").write_text(text.replace("into: cells.h5ad", named, 1))
    assert rankfold("run", folder / "cells.yaml").exit_code == 0
    assert set(anndata.read_h5ad(folder / "cells.h5ad").obsm) == {"X_pca", "ours"}


def test_what_was_changed_or_taken_away_since_is_seen(folder: Path) -> None:
    assert rankfold("run", folder / "cells.yaml").exit_code == 0
    adata = anndata.read_h5ad(folder / "cells.h5ad")
    ours = adata.obsm["X_pca"].copy()
    del adata.obsm["X_pca"]
    adata.write_h5ad(folder / "cells.h5ad")
    assert rankfold("run", folder / "cells.yaml").exit_code == 0
    adata = anndata.read_h5ad(folder / "cells.h5ad")
    np.testing.assert_array_equal(adata.obsm["X_pca"], ours)
    adata.obsm["X_pca"] = ours + 1
    adata.write_h5ad(folder / "cells.h5ad")
    text = (folder / "cells.yaml").read_text()
    (folder / "cells.yaml").write_text(text.replace("rank: 6", "rank: 5"))
    run = rankfold("run", folder / "cells.yaml")
    assert run.exit_code == 2 and "holds obsm/X_pca, which this workflow did not write" in run.stderr
    np.testing.assert_array_equal(anndata.read_h5ad(folder / "cells.h5ad").obsm["X_pca"], ours + 1)


def test_two_results_do_not_go_into_one_place(folder: Path) -> None:
    text = (folder / "cells.yaml").read_text()
    more = "  again:\n    method: pca\n    input: counts\n    rank: 3\n    into: cells.h5ad\n"
    (folder / "cells.yaml").write_text(text + more)
    run = rankfold("run", folder / "cells.yaml")
    assert run.exit_code == 2 and "components and again both go into" in run.stderr
    assert not (folder / "cells-results").exists()


def test_mistakes_are_told_before_anything_runs(folder: Path) -> None:
    text = (folder / "cells.yaml").read_text()
    for there, wrong, message in (
        ("into: cells.h5ad", "into: other.h5ad", "other.h5ad does not exist"),
        ("into: cells.h5ad", "into: {file: cells.h5ad, like: a.nc::b}", "like is for .nc files"),
        ("into: cells.h5ad", "into: {file: cells.h5ad, physical: true}", "physical is for .nc files"),
        ("into: cells.h5ad", "into: {file: r.nc, key_added: k}", "key_added is for files of AnnData"),
        ("into: cells.h5ad", "into: {file: cells.h5ad, array: scores}", "array is for tables"),
        ("into: cells.h5ad", "into: {file: scores.csv, key_added: k}", "key_added is for files of AnnData"),
        ("into: cells.h5ad", "into: scores.xlsx", "a new .nc, .csv, .tsv or .parquet file"),
        ("into: cells.h5ad", "into: {path: cells.h5ad}", "path"),
    ):
        (folder / "cells.yaml").write_text(text.replace(there, wrong, 1))
        run = rankfold("run", folder / "cells.yaml")
        assert run.exit_code == 2 and message in run.stderr, run.stderr
        assert not (folder / "cells-results").exists()


def test_a_field_goes_into_a_file_of_netcdf(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    x = np.random.default_rng(0).standard_normal((40, 4, 5))
    x[[0, 7]] = np.nan
    data = xarray.DataArray(x, dims=("time", "lat", "lon"), coords={"lat": np.arange(4.0)}, name="sst")
    data.to_netcdf(tmp_path / "sst.nc")
    (tmp_path / "flow.yaml").write_text(
        "workflow: field\ninputs: {field: {store: 'sst.nc::sst', row_axes: time, drop_missing_rows: true}}\n"
        "outputs: results\n"
        "stages:\n  patterns:\n    method: pca\n    input: field\n    rank: 2\n"
        "    into: {file: eof.nc, like: 'sst.nc::sst'}\n"
    )
    assert rankfold("run", tmp_path / "flow.yaml").exit_code == 0
    with xarray.open_dataset(tmp_path / "eof.nc") as found:
        assert found["components"].dims == ("mode", "lat", "lon")
        np.testing.assert_array_equal(found["lat"], np.arange(4.0))
        expected = rf.open_result(tmp_path / "results" / "patterns.zarr").scores[:]
        np.testing.assert_array_equal(found["scores"].T, expected)
    before = os.stat(tmp_path / "eof.nc").st_mtime_ns
    assert rankfold("run", tmp_path / "flow.yaml").exit_code == 0
    assert os.stat(tmp_path / "eof.nc").st_mtime_ns == before
    text = (tmp_path / "flow.yaml").read_text()
    text = text.replace("sst.nc::sst'}\n", "sst.nc::sst', physical: true}\n")
    (tmp_path / "flow.yaml").write_text(text)
    assert rankfold("run", tmp_path / "flow.yaml").exit_code == 0
    assert os.stat(tmp_path / "eof.nc").st_mtime_ns != before
    (tmp_path / "flow.yaml").write_text(text.replace("rank: 2", "rank: 3"))
    assert rankfold("run", tmp_path / "flow.yaml").exit_code == 0
    with xarray.open_dataset(tmp_path / "eof.nc") as found:
        assert found.sizes["mode"] == 3


TABLE_FLOW = """\
workflow: people
inputs: {people: {store: people.csv, numeric: true}}
outputs: results
stages:
  components:
    method: pca
    input: people
    rank: 2
    into: [scores.csv, {file: loadings.parquet, array: components}]
"""


def test_results_go_into_tables_once_and_anew_when_they_have_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pandas = pytest.importorskip("pandas")
    x = np.random.default_rng(0).standard_normal((30, 4))
    pandas.DataFrame(x, columns=list("abcd")).assign(city="Rome").to_csv(tmp_path / "people.csv", index=False)
    flow, scores = tmp_path / "flow.yaml", tmp_path / "scores.csv"
    flow.write_text(TABLE_FLOW)
    assert rankfold("run", flow).exit_code == 0 and caplog.text.count("left out of") == 1
    result = rf.open_result(tmp_path / "results" / "components.zarr")
    written = pandas.read_csv(scores, float_precision="round_trip")
    np.testing.assert_array_equal(written, result.scores[:])
    loadings = pandas.read_parquet(tmp_path / "loadings.parquet")
    assert list(loadings["column"]) == list("abcd")
    np.testing.assert_array_equal(loadings[["PC1", "PC2"]].T, result.components)
    before = scores.stat().st_mtime_ns
    assert rankfold("run", flow).exit_code == 0 and scores.stat().st_mtime_ns == before
    flow.write_text(TABLE_FLOW.replace("rank: 2", "rank: 3"))
    assert rankfold("run", flow).exit_code == 0
    assert list(pandas.read_csv(scores)) == ["PC1", "PC2", "PC3"]
    scores.unlink()
    assert rankfold("run", flow).exit_code == 0 and scores.exists()


def test_a_table_that_others_wrote_or_changed_stays(tmp_path: Path) -> None:
    np.savetxt(tmp_path / "people.csv", np.random.default_rng(0).standard_normal((30, 4)), delimiter=",")
    (tmp_path / "scores.csv").write_text('"PC1","PC2"\n1,2\n')
    (tmp_path / "flow.yaml").write_text(TABLE_FLOW)
    for _ in range(2):
        text = (tmp_path / "scores.csv").read_text()
        run = rankfold("run", tmp_path / "flow.yaml")
        assert run.exit_code == 2 and "scores.csv exists and is not as this workflow wrote it" in run.stderr
        assert (tmp_path / "scores.csv").read_text() == text
        (tmp_path / "scores.csv").unlink()
        assert rankfold("run", tmp_path / "flow.yaml").exit_code == 0
        with (tmp_path / "scores.csv").open("a") as file:
            file.write("0,0\n")
        (tmp_path / "flow.yaml").write_text(TABLE_FLOW.replace("rank: 2", "rank: 3"))


def test_a_table_of_a_sweep_has_the_value_in_its_name(tmp_path: Path) -> None:
    np.savetxt(tmp_path / "people.csv", np.random.default_rng(0).standard_normal((30, 4)), delimiter=",")
    (tmp_path / "flow.yaml").write_text(TABLE_FLOW + "sweep: {stage: components, rank: [1, 3]}\n")
    run = rankfold("run", tmp_path / "flow.yaml")
    assert run.exit_code == 0, run.output
    assert {path.name for path in tmp_path.glob("*.csv")} == {"people.csv", "scores-1.csv", "scores-3.csv"}
