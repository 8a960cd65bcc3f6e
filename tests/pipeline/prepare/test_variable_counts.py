"""Columns that vary most by their counts are those of scanpy's ``flavor="seurat_v3"``, ties and all."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from real_data import real
from reference import to_group, to_zarr

import rankfold as rf
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.prepare import moments
from rankfold.pipeline.prepare.chosen_columns import smooth

Array = npt.NDArray[Any]


def cells(rows: int, genes: int, dtype: Any = np.float32, *, seed: int = 0) -> Array:
    """Counts of cells of some kinds; genes of one count each, which tie, and genes of none."""
    rng = np.random.default_rng(seed)
    kinds = rng.gamma(0.3, 2.0, (5, genes))
    x = rng.poisson(kinds[rng.integers(0, 5, rows)] * rng.gamma(2, 0.5, (rows, 1)))
    x[:, ::17] = 0
    x[:, 5::31] = 0
    x[rng.integers(0, rows, len(range(5, genes, 31))), np.arange(5, genes, 31)] = 1
    return x.astype(dtype)


def of_scanpy(x: Any, count: int, **options: Any) -> Array:
    scanpy, anndata = pytest.importorskip("scanpy"), pytest.importorskip("anndata")
    pytest.importorskip("skmisc.loess", reason="pip install scikit-misc")
    adata = anndata.AnnData(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scanpy.pp.highly_variable_genes(adata, flavor="seurat_v3", n_top_genes=count, **options)
    return np.flatnonzero(adata.var["highly_variable"])


def chosen(x: Any, count: int, words: str = "") -> Array:
    source: Any = rf.open(x, prepare=f"highly_variable({count}, flavor='seurat_v3'{words})")
    return np.asarray(source.fitted["prepare_1_highly_variable_columns"])


# The curve ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("span", [0.3, 0.75, 1.0])
@pytest.mark.parametrize("count", [40, 333, 3000])
@pytest.mark.parametrize("ties", [False, True])
def test_the_curve_is_that_of_scikit_misc(span: float, count: int, ties: bool) -> None:
    loess = pytest.importorskip("skmisc.loess", reason="pip install scikit-misc").loess
    rng = np.random.default_rng(count)
    x = rng.normal(size=count) if not ties else rng.integers(0, count // 3, count).astype(float)
    y = np.sin(x) + 0.1 * rng.normal(size=count)
    model = loess(x, y, span=span, degree=2)
    try:
        model.fit()
    except ValueError:  # "near singularities": a parabola through too few places
        with pytest.raises(DataError, match=r"a parabola is to go through the nearest 12 of 40 points"):
            smooth(x, y, span=span)
        return
    np.testing.assert_allclose(smooth(x, y, span=span), model.outputs.fitted_values, atol=1e-11)


def test_a_parabola_is_its_own_curve() -> None:
    x = np.random.default_rng(0).random(500)
    y = 3 - 2 * x + 5 * x**2
    # Cubics through values and slopes of a parabola are the parabola.
    np.testing.assert_allclose(smooth(x, y, span=0.3), y, atol=1e-12)


# The choice ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize("kind", ["array", "zarr", "csr", "csc", "csr group", "csc group"])
@pytest.mark.parametrize("panel_bytes", [3000, 100_000, 2**23])
def test_the_choice_is_that_of_scanpy(
    tmp_path: Path, dtype: str, kind: str, panel_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moments, "PANEL_BYTES", panel_bytes)
    x = cells(240, 400, dtype)
    stored: Any = {
        "array": lambda: x,
        "zarr": lambda: to_zarr(tmp_path / "x.zarr", x, (37, 90)),
        "csr": lambda: scipy.sparse.csr_array(x),
        "csc": lambda: scipy.sparse.csc_array(x),
        "csr group": lambda: to_group(tmp_path / "x.zarr", scipy.sparse.csr_array(x)),
        "csc group": lambda: to_group(tmp_path / "x.zarr", scipy.sparse.csc_array(x)),
    }[kind]()
    written = scipy.sparse.csr_matrix(x.astype(np.float64))
    for count, span in ((25, 0.3), (150, 0.5), (400, 0.3)):
        found = chosen(stored, count, f", span={span}")
        np.testing.assert_array_equal(found, of_scanpy(written, count, span=span))


@pytest.mark.parametrize("count", [100, 2000, 3000, 5000])
def test_the_choice_of_real_cells_is_that_of_scanpy(count: int) -> None:
    x = scipy.sparse.load_npz(real("pbmc3k_counts.npz")).tocsr()
    np.testing.assert_array_equal(chosen(x, count), of_scanpy(x.astype(np.float32), count))


@pytest.mark.parametrize("kind", ["array", "csr", "csr group"])
def test_genes_by_counts_then_the_chain_of_scanpy(tmp_path: Path, kind: str) -> None:
    scanpy, anndata = pytest.importorskip("scanpy"), pytest.importorskip("anndata")
    pytest.importorskip("skmisc.loess", reason="pip install scikit-misc")
    x = cells(300, 200, "float64")
    adata = anndata.AnnData(scipy.sparse.csr_matrix(x))
    adata.layers["counts"] = adata.X.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scanpy.pp.normalize_total(adata, target_sum=1e4)
        scanpy.pp.log1p(adata)
        scanpy.pp.highly_variable_genes(
            adata, n_top_genes=60, flavor="seurat_v3", layer="counts", subset=True
        )
        scanpy.pp.scale(adata, max_value=3)
    stored: Any = x if kind == "array" else scipy.sparse.csr_array(x)
    stored = to_group(tmp_path / "x.zarr", stored) if kind == "csr group" else stored
    by_counts = "highly_variable(60, flavor='seurat_v3', layer='counts')"
    steps = f"normalize_total(1e4), log1p, {by_counts}, scale(max_value=3)"
    source = rf.open(stored, prepare=steps)
    columns = source.fitted["prepare_3_highly_variable_columns"]
    for name in ("means", "variances", "variances_norm"):
        measures = source.fitted[f"prepare_3_highly_variable_{name}"]
        assert measures.shape == (200,)
        np.testing.assert_allclose(measures[columns], adata.var[name], rtol=1e-9)
    found = np.empty(source.shape)
    source.read_into(found, (0, 300), (0, 60))
    np.testing.assert_allclose(found, adata.X, atol=1e-10)
    result = rf.pca(source, 5, tol=1e-9)
    values = np.linalg.svd(adata.X - adata.X.mean(axis=0), compute_uv=False)[:5]
    np.testing.assert_allclose(result.singular_values[:], values, rtol=1e-8)
    # New rows go through the genes that the result keeps.
    np.testing.assert_allclose(rf.transform(result, x[:7]).scores[:], result.scores[:7], atol=1e-7)
    assert "flavor='seurat_v3', n_bins=20, layer='counts')" in result.attrs["input"]["prepare"]


def test_another_choice_is_another_request(tmp_path: Path) -> None:
    """As one of columns that tie, on a processor whose sort leaves others first."""
    source: Any = rf.open(cells(200, 90), prepare="highly_variable(30, flavor='seurat_v3')")
    mark = source.fingerprint()
    source.fitted["prepare_1_highly_variable_columns"] = np.arange(30)
    assert source.fingerprint() != mark


# What cannot be asked -----------------------------------------------------------------------------


def test_what_is_not_counts_is_said() -> None:
    x = cells(200, 90)
    with pytest.warns(
        UserWarning, match=r"expects counts, and \d+ numbers of .* are not whole. Say it before"
    ):
        rf.open(x, prepare="log1p, highly_variable(10, flavor='seurat_v3')")
    x[7, 3] = -1
    with pytest.raises(
        DataError, match=r"numbers below 0, in column 3 \(from 0\), and highly_variable of fl"
    ):
        rf.open(x, prepare="highly_variable(10, flavor='seurat_v3')")


def test_too_few_means_are_one_clear_message() -> None:
    x = np.zeros((50, 60), np.float32)
    x[np.arange(40), np.arange(40)] = 1
    with pytest.raises(
        DataError, match=r"too many of the 40 columns that vary .* Say a larger span \(it is 0.3"
    ):
        rf.open(x, prepare="highly_variable(10, flavor='seurat_v3')")


@pytest.mark.parametrize("stored", [np.array, scipy.sparse.csr_array, scipy.sparse.csc_array])
def test_a_number_that_is_none_is_refused_where_it_is_read(stored: Any) -> None:
    x = cells(200, 90)
    x[150, 7] = np.nan
    with pytest.raises(DataError, match="1 NaN or Inf, the first at row 150, column 7"):
        rf.pca(rf.open(stored(x), prepare="highly_variable(90, flavor='seurat_v3')"), 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("flavor='seurat_v3', span=0", "span must be a number above 0"),
        ("flavor='seurat_v3', span=2", "span must be a share of the columns up to 1"),
        ("flavor='seurat_v3', layer='raw'", "layer must be 'counts', the matrix before all steps, not 'raw'"),
        ("span=0.5", "span is for flavor='seurat_v3', not 'seurat'"),
        ("layer='counts'", "layer is for flavor='seurat_v3', not 'seurat'"),
    ],
)
def test_wrong_words_for_it_are_one_clear_message(words: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        rf.open(cells(60, 40), prepare=f"highly_variable(10, {words})")


def test_counts_of_other_columns_are_refused() -> None:
    x, counts_of = cells(100, 60), "highly_variable(10, flavor='seurat_v3', layer='counts')"
    for part in (
        {"select_rows": "10:"},
        {"select_columns": "0:40"},
        {"select_columns": list(range(60))[::-1]},
    ):
        with pytest.raises(InputError, match=r"layer='counts' where no rows or columns are left out before"):
            rf.open(rf.open(x, prepare="log1p"), **part, prepare=counts_of)
