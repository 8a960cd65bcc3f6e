"""``rankfold export``: results into files of AnnData and netCDF, one message for each wrong use."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import rankfold, refused

import rankfold as rf
from rankfold.pipeline.exporting.fields import facts_in_dataset

anndata = pytest.importorskip("anndata", reason="pip install anndata")


@pytest.fixture
def result(tmp_path: Path) -> Path:
    x = np.random.default_rng(0).random((50, 8)).astype("f4")
    anndata.AnnData(x).write_h5ad(tmp_path / "cells.h5ad")
    rf.pca(x, 2, out=tmp_path / "r.zarr")
    return tmp_path / "r.zarr"


def test_a_result_goes_into_a_file(tmp_path: Path, result: Path) -> None:
    file = tmp_path / "cells.h5ad"
    run = rankfold("export", result, "--into", file)
    written = "varm['PCs'], obsm['X_pca'], uns['pca'], uns['rankfold']['pca']"
    assert run.exit_code == 0
    assert run.stdout == f"{file}: pca of array float32 (50, 8) added as {written}\n"
    before = file.stat().st_mtime_ns
    run = rankfold("export", result, "--into", file)
    assert run.exit_code == 0 and file.stat().st_mtime_ns == before
    assert run.stdout == f"{file}: pca of array float32 (50, 8) already there as {written}\n"
    run = rankfold("export", result, "--into", file, "--key-added", "mine", "--json")
    elements = ["varm/mine", "obsm/mine", "uns/mine", "uns/rankfold/mine"]
    facts = {"result": str(result), "into": str(file), "elements": elements}
    assert json.loads(run.stdout) == {**facts, "already_done": False}
    assert set(anndata.read_h5ad(file).obsm) == {"X_pca", "mine"}
    run = rankfold("export", result, "--into", tmp_path / "r.nc")
    assert run.exit_code == 0 and (tmp_path / "r.nc").exists()
    run = rankfold("export", result, "--into", tmp_path / "r.nc", "--physical", "--overwrite")
    assert run.exit_code == 0 and facts_in_dataset(tmp_path / "r.nc")["physical"]
    assert rankfold("export", result, "--into", file, "--overwrite", "--in-place").exit_code == 0


def test_wrong_uses_change_nothing(tmp_path: Path, result: Path) -> None:
    file = tmp_path / "cells.h5ad"
    refused(tmp_path, 2, "there is no result", "export", tmp_path / "no.zarr", "--into", file)
    refused(tmp_path, 2, "does not exist", "export", result, "--into", tmp_path / "other.h5ad")
    refused(tmp_path, 2, "--like is for .nc files", "export", result, "--into", file, "--like", "a.nc::b")
    refused(tmp_path, 2, "--physical is for .nc files", "export", result, "--into", file, "--physical")
    refused(tmp_path, 2, "are for files of AnnData", "export", result, "--into", "r.nc", "--key-added", "k")
    assert rankfold("export", result, "--into", file).exit_code == 0
    other = rf.pca(np.random.default_rng(1).random((50, 8)), 2, out=tmp_path / "other.zarr").path
    refused(tmp_path, 2, "obsm/X_pca, uns/pca are there already", "export", other, "--into", file)
