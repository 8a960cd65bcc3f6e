"""Steps and masks said to a reduction itself are those of ``rankfold.open``: the same bytes and identity."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from reference import same_bytes, to_group, to_zarr
from typer.testing import CliRunner

import rankfold as rf
from rankfold.pipeline.errors import InputError
from rankfold.workflows.cli import app

Array = npt.NDArray[Any]

STEPS = ["normalize_total(1e4)", "log1p"]


def counts(rows: int = 200, columns: int = 30) -> Array:
    rng = np.random.default_rng(0)
    return rng.poisson(0.2 + rng.gamma(2, 1, (1, columns)), (rows, columns)).astype(np.float32)


CALLS: dict[str, Any] = {
    "svd": lambda x, **said: rf.svd(x, 4, **said),
    "pca": lambda x, **said: rf.pca(x, 4, **said),
    "qr": lambda x, **said: rf.qr(x, **said),
    "nmf": lambda x, **said: rf.nmf(x, 3, passes=3, **said),
    "knn": lambda x, **said: rf.knn(x, 5, **said),
}

SEEN: dict[str, dict[str, Any]] = {
    "steps": {"prepare": STEPS},
    "measured steps": {"prepare": "normalize_total, log1p, scale(zero_center=False)"},
    "mask of columns": {"mask_var": np.arange(30) % 3 > 0},
    "mask of rows": {"mask_obs": np.arange(200) % 5 > 0},
    "all of it": {"prepare": STEPS, "mask_var": [True] * 20 + [False] * 10, "mask_obs": np.arange(200) > 20},
}


@pytest.mark.parametrize("method", CALLS)
@pytest.mark.parametrize("said", SEEN)
@pytest.mark.parametrize("kind", ["array", "csr", "zarr", "group"])
def test_a_call_with_steps_is_the_call_of_what_was_opened_with_them(
    tmp_path: Path, method: str, said: str, kind: str
) -> None:
    x = counts()
    where: Any = {
        "array": lambda: x,
        "csr": lambda: scipy.sparse.csr_array(x),
        "zarr": lambda: to_zarr(tmp_path / "x.zarr", x, (64, 30)),
        "group": lambda: to_group(tmp_path / "x.zarr", scipy.sparse.csr_array(x)),
    }[kind]()
    view = SEEN[said]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rf.RankfoldWarning)
        direct = CALLS[method](where, **view)
        opened = CALLS[method](rf.open(where, **view))
    assert same_bytes(direct) == same_bytes(opened)  # arrays, and attributes with request and fingerprint
    assert json.dumps(direct.attrs, sort_keys=True) == json.dumps(opened.attrs, sort_keys=True)


def test_either_finds_the_result_of_the_other(tmp_path: Path) -> None:
    x, out = counts(), tmp_path / "r.zarr"
    rf.pca(x, 3, prepare=STEPS, out=out)
    made = out.stat().st_mtime_ns
    rf.pca(rf.open(x, prepare="normalize_total(1e4), log1p"), 3, out=out)
    assert out.stat().st_mtime_ns == made
    with pytest.raises(rf.RankfoldError, match="exists and is the answer to another request"):
        rf.pca(x, 3, out=out)


@pytest.mark.parametrize("method", CALLS)
@pytest.mark.parametrize(
    "steps",
    ["log2p", "log1p(2, 3)", "normalize_total(-1)", "log1p(", 5, "highly_variable", ["scale(ddof=2)"]],
)
def test_wrong_steps_are_the_same_message(method: str, steps: Any) -> None:
    with pytest.raises(InputError) as opening:
        rf.open(counts(), prepare=steps)
    with pytest.raises(InputError) as calling:
        CALLS[method](counts(), prepare=steps)
    assert str(opening.value) == str(calling.value)


def test_a_plan_takes_them() -> None:
    x = counts()
    mask = np.arange(30) < 12
    direct = rf.plan("pca", x, 4, prepare=STEPS, mask_var=mask, memory="1GiB")
    opened = rf.plan("pca", rf.open(x, prepare=STEPS, mask_var=mask), 4, memory="1GiB")
    assert direct.as_dict() == opened.as_dict()


def test_queries_go_through_the_steps_of_what_they_are_compared_with() -> None:
    x, queries = counts(), counts(220)[200:]
    steps = "normalize_total, log1p, scale"
    source: Any = rf.open(x, prepare=steps)
    total, mean, std = (
        source.fitted[f"prepare_{name}"]
        for name in ("1_normalize_total_target_sum", "3_scale_mean", "3_scale_std")
    )

    def written(rows: Array) -> Array:
        return np.asarray((np.log1p(rows / rows.sum(axis=1, keepdims=True) * total) - mean) / std)

    expected = rf.knn(written(x.astype("f8")), 4, queries=written(queries.astype("f8")))
    for found in (rf.knn(x, 4, queries=queries, prepare=steps), rf.knn(source, 4, queries=queries)):
        np.testing.assert_array_equal(found.indices[:], expected.indices[:])
        np.testing.assert_allclose(found.distances[:], expected.distances[:], rtol=1e-5)


# Masks --------------------------------------------------------------------------------------------


def test_a_mask_leaves_sums_of_whole_rows_as_they_were() -> None:
    """As scanpy has it: counts are normalized, then genes are chosen."""
    x, mask = counts(), np.arange(30) % 3 == 0
    result = rf.pca(x, 3, prepare=[*STEPS, "scale"], mask_var=mask, tol=1e-8)
    log = np.log1p(1e4 * x.astype("f8") / x.sum(axis=1, keepdims=True))[:, mask]
    log = (log - log.mean(axis=0)) / log.std(axis=0, ddof=1)
    np.testing.assert_allclose(result.singular_values[:], np.linalg.svd(log, compute_uv=False)[:3], rtol=1e-5)
    assert "take_columns(digest='" in result.attrs["input"]["prepare"]
    assert "take_columns" not in repr(result)
    assert "prepare_2" not in repr(result) + result._repr_html_()
    assert "prepare_2_take_columns_of" in result
    # New rows come with all columns.
    np.testing.assert_allclose(rf.transform(result, x[:9]).scores[:], result.scores[:9], atol=1e-4)


@pytest.fixture(params=["object", "backed", "h5ad", "zarr", "raw"])
def cells(request: Any, tmp_path: Path) -> Any:
    """AnnData with masks in ``var`` and ``obs``, in all its forms."""
    anndata, pandas = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    adata = anndata.AnnData(scipy.sparse.csr_matrix(counts()))
    adata.var["mine"] = np.arange(30) % 3 == 0
    adata.var["perhaps"] = pandas.array([True, None, False] * 10, dtype="boolean")
    adata.var["mean"] = 1.5
    adata.obs["kept"] = np.arange(200) % 5 > 0
    adata.obs["type"] = pandas.Categorical(["B", "T"] * 100)
    if request.param == "object":
        return adata
    if request.param == "raw":
        adata.raw = adata.copy()
        adata.write_h5ad(tmp_path / "cells.h5ad")
        return f"{tmp_path / 'cells.h5ad'}::raw/X"
    if request.param == "zarr":
        adata.write_zarr(tmp_path / "cells.zarr")
        return f"{tmp_path / 'cells.zarr'}::X"
    adata.write_h5ad(tmp_path / "cells.h5ad")
    place = str(tmp_path / "cells.h5ad")
    return place if request.param == "h5ad" else anndata.read_h5ad(place, backed="r")


def test_masks_have_names_in_anndata(cells: Any) -> None:
    columns, rows = np.arange(30) % 3 == 0, np.arange(200) % 5 > 0
    expected = rf.pca(counts(), 3, prepare=STEPS, mask_var=columns, mask_obs=rows, tol=1e-8)
    found = rf.pca(cells, 3, prepare=STEPS, mask_var="mine", mask_obs="kept", tol=1e-8)
    np.testing.assert_allclose(found.singular_values[:], expected.singular_values[:], rtol=1e-6)
    assert found.attrs["input"]["prepare"] == expected.attrs["input"]["prepare"]
    # What may be missing is not kept.
    assert rf.open(cells, mask_var="perhaps").shape == (200, 10)


@pytest.mark.parametrize(
    ("view", "message"),
    [
        ({"mask_var": "mien"}, r"var of .* has no column 'mien'. Did you mean mine\?"),
        ({"mask_var": "xyz"}, r"var of .* has no column 'xyz'; it has mine, perhaps, mean"),
        ({"mask_obs": "mine"}, r"obs of .* has no column 'mine'; it has kept"),
        ({"mask_obs": "type"}, "mask_obs='type' is a column of category, not of True and False"),
        ({"mask_var": "mean"}, "mask_var='mean' is a column of float64, not of True and False"),
    ],
)
def test_names_that_are_none_are_one_clear_message(cells: Any, view: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        rf.open(cells, **view)


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (
            {"mask_var": "mine"},
            "'mine' names a column of var, and a ndarray has no var. Give an array of True",
        ),
        (
            {"mask_var": [1, 2]},
            "mask_var must be a name, or True or False for each of the columns, not int64",
        ),
        ({"mask_var": np.ones(29, bool)}, "mask_var says True or False 29 times, and there are 30 columns"),
        ({"mask_obs": np.ones(29, bool)}, "mask_obs says True or False 29 times, and there are 200 rows"),
        ({"mask_var": np.zeros(30, bool)}, "mask_var keeps none of the 30 columns"),
        ({"mask_obs": np.zeros(200, bool)}, "keeps none of them"),
        (
            {"mask_var": np.ones(30, bool), "select_columns": "0:3"},
            "select_columns= and mask_var= both choose columns: say one of them",
        ),
        (
            {"mask_obs": np.ones(200, bool), "select_rows": "0:3"},
            "select_rows= and mask_obs= both choose rows: say one of them",
        ),
        (
            {"mask_var": np.ones(30, bool), "prepare": "log1p, highly_variable(3)"},
            "mask_var= and highly_variable both choose columns: say one of them",
        ),
    ],
)
def test_wrong_masks_are_one_clear_message(view: dict[str, Any], message: str) -> None:
    for call in (rf.open, CALLS["pca"]):
        if call is rf.open or not any(name.startswith("select") for name in view):
            with pytest.raises(InputError, match=message):
                call(counts(), **view)


def test_a_store_without_annotations_is_one_clear_message(tmp_path: Path) -> None:
    store = to_zarr(tmp_path / "x.zarr", counts(), (64, 30))
    group = to_group(tmp_path / "g.zarr", scipy.sparse.csr_array(counts()))
    np.save(tmp_path / "x.npy", counts())
    for place, message in (
        (store, "is no group of AnnData"),
        (group, "has no var, in which 'mine' is to be"),
        (str(tmp_path / "x.npy"), "has no obs and var: it is not HDF5"),
    ):
        with pytest.raises(InputError, match=message):
            rf.open(place, mask_var="mine")


def test_the_command_and_a_workflow_take_them(tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    adata = anndata.AnnData(scipy.sparse.csr_matrix(counts()))
    adata.var["mine"], adata.obs["kept"] = np.arange(30) % 3 == 0, np.arange(200) % 5 > 0
    path, out = tmp_path / "cells.h5ad", tmp_path / "r.zarr"
    adata.write_h5ad(path)
    options = ["--prepare", "normalize_total(1e4), log1p", "--mask-var", "mine", "--mask-obs", "kept"]
    words = ["pca", f"{path}::X", "--rank", 3, "--out", out, *options]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    expected = rf.pca(f"{path}::X", 3, prepare=STEPS, mask_var="mine", mask_obs="kept")
    np.testing.assert_array_equal(rf.open_result(out).scores[:], expected.scores[:])
    flow = tmp_path / "flow.yaml"
    flow.write_text(
        "workflow: w\ninputs:\n"
        f"  counts: {{store: '{path}::X', prepare: [normalize_total: {{target_sum: 1e4}}, log1p],\n"
        "    mask_var: mine, mask_obs: kept}\noutputs: results\n"
        "stages:\n  c: {method: pca, input: counts, rank: 3}\n"
    )
    done = CliRunner().invoke(app, ["run", str(flow)])
    assert done.exit_code == 0, done.output
    np.testing.assert_array_equal(
        rf.open_result(tmp_path / "results" / "c.zarr").scores[:], expected.scores[:]
    )
