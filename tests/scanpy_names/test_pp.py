"""``rankfold.scanpy`` beside scanpy: same arguments, same keys, same numbers."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import rankfold
import rankfold.scanpy as ours
from rankfold.pipeline.errors import InputError

scanpy = pytest.importorskip("scanpy", reason="pip install scanpy")
anndata = pytest.importorskip("anndata", reason="pip install anndata")


def cells(rows: int = 300, columns: int = 80, *, sparse: bool = True) -> Any:
    rng = np.random.default_rng(0)
    kinds = rng.gamma(0.5, 1.0, (5, columns))
    x = rng.poisson(kinds[rng.integers(0, 5, rows)]).astype(np.float32)
    adata = anndata.AnnData(scipy.sparse.csr_matrix(np.log1p(x)) if sparse else np.log1p(x))
    adata.layers["other"] = adata.X.copy() * 2
    adata.var["highly_variable"] = rng.random(columns) < 0.6
    adata.var["some"] = rng.random(columns) < 0.6
    return adata


def assert_same(a: Any, b: Any, key: str | None = None) -> None:
    assert set(a.obsm) == set(b.obsm) and set(a.varm) == set(b.varm)
    assert set(a.uns) - {"rankfold"} == set(b.uns)
    uns = key or "pca"
    assert a.uns[uns]["params"] == b.uns[uns]["params"]
    np.testing.assert_allclose(a.uns[uns]["variance"], b.uns[uns]["variance"], rtol=1e-4)
    np.testing.assert_allclose(a.uns[uns]["variance_ratio"], b.uns[uns]["variance_ratio"], rtol=1e-4)
    x, y = a.obsm[key or "X_pca"], b.obsm[key or "X_pca"]
    assert x.dtype == y.dtype and x.shape == y.shape
    signs = np.sign((x * y).sum(axis=0))
    lead = np.s_[:, :4]  # what follows is noise, whose directions are close to each other
    np.testing.assert_allclose((x * signs)[lead], y[lead], atol=5e-3)
    v, w = a.varm[key or "PCs"], b.varm[key or "PCs"]
    np.testing.assert_allclose((v * signs)[lead], w[lead], atol=2e-3)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"mask_var": None},
        {"mask_var": "some", "key_added": "mine"},
        {"layer": "other", "n_comps": 7},
        {"zero_center": False, "svd_solver": "arpack", "n_comps": 5},
        {"dtype": "float64", "n_comps": 6, "svd_solver": "covariance_eigh"},
    ],
    ids=str,
)
@pytest.mark.parametrize("sparse", [True, False])
def test_components_are_those_of_scanpy(arguments: dict[str, Any], sparse: bool) -> None:
    a, b = cells(sparse=sparse), cells(sparse=sparse)
    assert ours.pp.pca(a, **arguments) is None
    scanpy.pp.pca(b, **arguments)
    assert_same(a, b, arguments.get("key_added"))


@pytest.mark.parametrize("sparse", [True, False])
def test_variances_of_what_is_not_centered_are_those_of_coordinates(sparse: bool) -> None:
    """As scanpy has them of TruncatedSVD: the first component, of the means, may have less than others."""
    adata = cells(sparse=sparse)
    ours.pp.pca(adata, 5, zero_center=False, mask_var=None)
    x = adata.X.toarray() if sparse else adata.X
    np.testing.assert_allclose(adata.uns["pca"]["variance"], adata.obsm["X_pca"].var(axis=0), rtol=1e-5)
    shares = adata.obsm["X_pca"].var(axis=0) / x.var(axis=0).sum()
    np.testing.assert_allclose(adata.uns["pca"]["variance_ratio"], shares, rtol=1e-5)
    info = ours.pp.pca(adata.X, 5, zero_center=False, return_info=True)
    np.testing.assert_allclose(info[2], shares, rtol=1e-5)
    np.testing.assert_allclose(info[3], adata.uns["pca"]["variance"], rtol=1e-5)


def test_copies_and_arrays_come_back() -> None:
    adata = cells()
    copy = ours.pp.pca(adata, 5, copy=True)
    assert "X_pca" in copy.obsm and not adata.obsm
    coordinates = ours.pp.pca(cells(sparse=False).X, 5)
    expected = ours.pp.pca(adata, 5, mask_var=None, copy=True).obsm["X_pca"]
    np.testing.assert_allclose(np.abs(coordinates), np.abs(expected), atol=1e-3)
    assert len(ours.pp.pca(cells(sparse=False).X, 5, return_info=True)) == 4


@pytest.mark.parametrize(
    "arguments",
    [{}, {"n_neighbors": 7, "n_pcs": 4}, {"use_rep": "X"}, {"key_added": "mine", "metric": "cosine"}],
    ids=str,
)
def test_graphs_are_those_of_scanpy(arguments: dict[str, Any]) -> None:
    a = cells()
    # Which of two neighbors at the same distance comes in is rounding, so no two are.
    a.X.data *= np.random.default_rng(1).uniform(0.99, 1.01, a.X.nnz).astype(np.float32)
    ours.pp.pca(a, 10)
    b = a.copy()
    assert ours.pp.neighbors(a, **arguments) is None
    scanpy.pp.neighbors(b, **arguments)
    key = arguments.get("key_added", "neighbors")
    assert a.uns[key] == b.uns[key]
    for name in set(b.obsp):
        assert abs(a.obsp[name] - b.obsp[name]).max() < 5e-3, name


def test_components_of_close_values_are_no_further_off_than_those_of_scanpy() -> None:
    rng = np.random.default_rng(0)
    means = rng.gamma(0.3, 1.0, (1500, 6)) @ rng.gamma(0.3, 1.0, (6, 1000))
    x = np.log1p(rng.poisson(0.06 * means)).astype(np.float32)
    stored = scipy.sparse.csr_matrix(x)
    found, theirs = ours.pp.pca(stored, 30), scanpy.pp.pca(stored, 30)
    u, s, _ = np.linalg.svd(x.astype(float) - x.mean(axis=0, dtype=float), full_matrices=False)
    ours_off, theirs_off = (np.abs(np.abs(each) - np.abs(u * s)[:, :30]).max() for each in (found, theirs))
    assert ours_off < max(theirs_off, 1e-5 * s[29])


def test_the_pipeline_goes_on_with_scanpy() -> None:
    adata = cells()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="there are no components yet")
        ours.pp.neighbors(adata)
    assert "X_pca" in adata.obsm
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scanpy.tl.diffmap(adata)
        scanpy.tl.umap(adata, maxiter=3)
    assert {"X_diffmap", "X_umap"} <= set(adata.obsm)


def test_backed_objects_are_read_where_they_lie(tmp_path: Path) -> None:
    cells().write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    ours.pp.pca(backed, 5)
    expected = ours.pp.pca(cells(), 5, copy=True)
    np.testing.assert_allclose(backed.obsm["X_pca"], expected.obsm["X_pca"], atol=1e-4)
    backed.file.close()


def test_rounding_of_singles_is_not_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can act on an error of 1e-6 that rounding hides; a larger one is told."""
    rng = np.random.default_rng(0)
    x = np.log1p(rng.poisson(rng.gamma(0.5, 1.0, (5, 800))[rng.integers(0, 5, 700)])).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours.pp.pca(anndata.AnnData(x))
    monkeypatch.setattr(ours.pp, "LEAST_SAID", 1e-7)
    with pytest.warns(rankfold.RankfoldWarning, match=ours.pp.ROUNDING):
        ours.pp.pca(anndata.AnnData(x))


def test_wrong_arguments_are_told() -> None:
    for count in (1, 0):
        with pytest.raises(InputError, match=f"n_neighbors={count} leaves no neighbor, .*: say at least 2"):
            ours.pp.neighbors(cells(), n_neighbors=count, use_rep="X")
    with pytest.raises(InputError, match="svd_solver='lobpcg' is not known"):
        ours.pp.pca(cells(), svd_solver="lobpcg")
    with pytest.raises(InputError, match=r"adata.var has no column 'nothing'"):
        ours.pp.pca(cells(), mask_var="nothing")
    with pytest.raises(InputError, match="layer= and mask_var= are for AnnData"):
        ours.pp.pca(cells().X, layer="other")
    with pytest.raises(InputError, match="method='gauss' is not there"):
        ours.pp.neighbors(cells(), method="gauss")
    with pytest.raises(InputError, match="has no 'X_scvi'; it has nothing"):
        ours.pp.neighbors(cells(), use_rep="X_scvi")
    with pytest.warns(FutureWarning, match="use_highly_variable is deprecated"):
        ours.pp.pca(cells(), 5, use_highly_variable=False)
