"""Workflows that come with rankfold, and those in the documents: valid, and they run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import yaml
from command_line import rankfold
from reference import to_zarr

import rankfold as rf
from rankfold.workflows.flows import flow_file as flow
from rankfold.workflows.flows import stage_models
from rankfold.workflows.library import example_names, example_text

PAGE = Path(__file__).parents[3] / "docs" / "workflows.md"
YAMLS = [text for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.S) if "workflow:" in text]


def months(folder: Path) -> None:
    """A field of 60 months on 8 x 12 places, some of them land."""
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    rng = np.random.default_rng(0)
    field = rng.standard_normal((60, 8, 12)).astype(np.float32)
    field[:, 2:4, 5:9] = np.nan
    coords = {"lat": np.linspace(-70, 70, 8), "lon": np.arange(0, 360, 30)}
    grid = xarray.DataArray(field, coords, ("time", "lat", "lon"))
    xarray.Dataset({"sst": grid}).to_netcdf(folder / "sst.nc", engine="netcdf4")


def cells(folder: Path, x: np.ndarray | None = None) -> None:
    """Counts of 400 cells, as a file of AnnData and as a sparse group."""
    import zarr

    anndata = pytest.importorskip("anndata", reason="pip install anndata")
    if x is None:
        x = np.random.default_rng(0).poisson(0.4, (400, 120)).astype(np.float32)
    anndata.AnnData(scipy.sparse.csr_matrix(x)).write_h5ad(folder / "cells.h5ad")
    group = zarr.create_group(folder / "cells.zarr").create_group("X")
    matrix = scipy.sparse.csr_array(x)
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": list(x.shape)})
    for name in ("data", "indices", "indptr"):
        group.create_array(name, data=getattr(matrix, name))


def images(folder: Path, x: np.ndarray | None = None) -> None:
    """Pictures of 8 x 8 pixels."""
    if x is None:
        rng = np.random.default_rng(0)
        x = (rng.random((500, 20)) @ rng.random((20, 64)) * 10).astype(np.uint8).reshape(500, 8, 8)
    np.save(folder / "images.npy", x)


DATA = {"climate": months, "cells": cells, "images": images}
DATA |= {"cell-map": cells, "image-map": images}


@pytest.mark.parametrize("name", DATA)
def test_an_example_is_copied_and_runs(name: str, tmp_path: Path) -> None:
    DATA[name](tmp_path)
    (tmp_path / f"{name}.yaml").write_text(rankfold("example", name).stdout)
    run = rankfold("run", tmp_path / f"{name}.yaml")
    assert run.exit_code == 0, run.output
    assert set(re.findall(r": (skip|run)", rankfold("run", tmp_path / f"{name}.yaml").stderr)) == {"skip"}
    results = tmp_path / f"{name}-results"
    found = {path.stem: rf.open_result(path) for path in results.glob("*.zarr")}
    if name == "climate":
        assert found["patterns"].components.shape == (20, 88)
        assert found["audit"].attrs["largest_residual"] < 1e-3
    elif name == "cells":
        assert found["near"].graph.shape == (400, 400)
    elif name.endswith("-map"):
        drawn = {path.stem for path in tmp_path.glob("*.png")}
        assert drawn == {"components", *(("cells",) if name == "cell-map" else ("groups", "images"))}
    else:
        assert found["parts"].W.shape == (500, 16)


def test_all_examples_are_tried() -> None:
    assert set(DATA) == set(example_names())
    listed = rankfold("example").stdout.splitlines()
    assert [line.split()[0] for line in listed] == example_names()
    assert all(len(line.split()) > 3 for line in listed)
    assert "no such example 'cels' (did you mean 'cells'?)" in rankfold("example", "cels").stderr


# Schema --------------------------------------------------------------------------------------------


def test_the_schema_takes_what_ships_and_refuses_what_is_wrong() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(rankfold("schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for text in [*(example_text(name) for name in example_names()), *YAMLS]:
        assert not list(validator.iter_errors(yaml.safe_load(text))), text
    good = yaml.safe_load(example_text("cells"))
    for key, value in [("outputs", 3), ("stages", {}), ("resources", {"memory": "2 gb"}), ("more", "x")]:
        assert list(validator.iter_errors({**good, key: value})), key
    good["stages"]["near"]["kay"] = 3
    assert list(validator.iter_errors(good))


# Documents -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", YAMLS, ids=lambda text: text.partition("workflow: ")[2].split()[0])
def test_workflows_in_the_documents_run(text: str, tmp_path: Path) -> None:
    cells(tmp_path)
    x = np.random.default_rng(0).standard_normal((300, 80)).astype(np.float32)
    to_zarr(tmp_path / "samples.zarr", x, (100, 80))
    np.savetxt(
        tmp_path / "table.csv", x[:, :60], delimiter=",", header=",".join(map(str, range(60))), comments=""
    )
    (tmp_path / "flow.yaml").write_text(text)
    run = rankfold("run", tmp_path / "flow.yaml")
    assert run.exit_code == 0, run.output


def test_every_key_is_documented() -> None:
    tables = "\n".join(line for line in PAGE.read_text().splitlines() if line.startswith("| `"))
    named = set(re.findall(r"`(\w+)`", tables))
    kinds = [
        *stage_models.STAGES.values(),
        flow.Flow,
        flow.MatrixInput,
        flow.ParameterGrid,
        stage_models.Resources,
        stage_models.StagePicture,
    ]
    missing = {name for kind in kinds for name in kind.model_fields} - named
    assert not missing
