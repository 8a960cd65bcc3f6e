"""Steps that are measured first are what scanpy and scikit-learn write out, in every store and chunking."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
import sklearn.feature_extraction.text as text
import sklearn.impute
import sklearn.preprocessing
from reference import same_bytes, to_group, to_zarr
from test_prepared import counts

import rankfold as rf
from rankfold.pipeline.data import selection
from rankfold.pipeline.data.source import compressed
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.prepare import moments, prepared
from rankfold.pipeline.prepare.chosen_columns import most_variable
from rankfold.pipeline.prepare.prepared import without_shift

Array = npt.NDArray[Any]

STORES = ["array", "zarr", "csr", "csr group", "csc group"]


def stored_in(folder: Path, x: Array, kind: str) -> Any:
    if kind == "array":
        return x
    if kind == "zarr":
        return to_zarr(folder / "x.zarr", x, (37, 11))
    if kind == "csr":
        return scipy.sparse.csr_array(x)
    form = scipy.sparse.csr_array if kind == "csr group" else scipy.sparse.csc_array
    return to_group(folder / "x.zarr", form(x))


def dense(source: Any) -> Array:
    out = np.empty(source.shape, source.dtype)
    source.read_into(out, (0, source.shape[0]), (0, source.shape[1]))
    return out


def scale(x: Array, *, ddof: int = 1, zero_center: bool = True, max_value: float | None = None) -> Array:
    x = x.astype(np.float64)
    std = x.std(axis=0, ddof=ddof)
    found = (x - x.mean(axis=0) * zero_center) / np.where(std > 0, std, 1)
    return found if max_value is None else np.clip(found, -max_value if zero_center else None, max_value)


def median_total(x: Array) -> Array:
    sums = x.astype(np.float64).sum(axis=1, keepdims=True)
    return np.divide(x * np.median(sums[sums > 0]), sums, out=np.zeros(x.shape), where=sums > 0)


def tfidf(x: Array, **flags: Any) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return text.TfidfTransformer(**flags).fit_transform(scipy.sparse.csr_array(x.astype(float))).toarray()


CASES: dict[str, Any] = {
    "scale": scale,
    "scale(ddof=0)": lambda x: scale(x, ddof=0),
    "scale(max_value=2)": lambda x: scale(x, max_value=2),
    "scale(zero_center=False, max_value=2)": lambda x: scale(x, zero_center=False, max_value=2),
    "log1p, scale(max_value=1.5)": lambda x: scale(np.log1p(x.astype("f8")), max_value=1.5),
    "normalize_total": median_total,
    "normalize_total, log1p, scale": lambda x: scale(np.log1p(median_total(x))),
    "tfidf": tfidf,
    "tfidf(sublinear_tf=True, smooth_idf=False, norm=None)": lambda x: tfidf(
        x, sublinear_tf=True, smooth_idf=False, norm=None
    ),
    "tfidf(norm='l1')": lambda x: tfidf(x, norm="l1"),
}


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("steps", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
def test_a_step_is_what_writing_it_out_makes(
    tmp_path: Path, kind: str, steps: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moments, "PANEL_BYTES", 10_000)
    x = counts(300, 40, dtype)
    if kind == "csc group" and ("normalize" in steps or ("tfidf" in steps and "None" not in steps)):
        with pytest.raises(InputError, match="compressed by columns"):
            rf.open(stored_in(tmp_path, x, kind), prepare=steps)
        return
    source = rf.open(stored_in(tmp_path, x, kind), prepare=steps)
    expected = CASES[steps](x)
    close = {"rtol": 3e-6, "atol": 3e-6} if source.dtype == np.float32 else {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(dense(source), expected, **close)
    part = np.empty((50, 7), source.dtype)
    source.read_into(part, (20, 70), (5, 12))
    np.testing.assert_array_equal(part, dense(source)[20:70, 5:12])
    shifted = without_shift(source)
    stored = compressed(shifted)
    if stored is not None:
        lines = stored.read_sparse((0, len(x) if stored.by == "rows" else 40))
        form = scipy.sparse.csr_array if stored.by == "rows" else scipy.sparse.csc_array
        found = form((lines.data, lines.indices, lines.indptr), x.shape).toarray()
        shift = 0.0 if source.shift is None else source.shift
        np.testing.assert_allclose(found + shift, expected, **close)
        np.testing.assert_allclose(dense(shifted) + shift, expected, **close)


def test_the_same_bits_whatever_the_threads_and_the_chunks_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moments, "PANEL_BYTES", 10_000)
    x = scipy.sparse.csr_array(counts(900, 40))
    found = []
    for threads in (1, 2, 7):
        monkeypatch.setattr(moments, "MOST_THREADS", threads)
        found.append(rf.open(x, prepare="scale").fitted)
    for chunk in (100, 999):
        found.append(rf.open(to_group(tmp_path / f"x{chunk}.zarr", x, chunk), prepare="scale").fitted)
    for name in found[0]:
        for other in found[1:]:
            np.testing.assert_array_equal(found[0][name], other[name])


def test_means_far_from_zero_keep_their_deviations() -> None:
    x = np.random.default_rng(0).standard_normal((5000, 4)) + 1e7
    np.testing.assert_allclose(dense(rf.open(x, prepare="scale")), scale(x), atol=1e-6)


# scanpy ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flavor", ["seurat", "cell_ranger"])
@pytest.mark.parametrize("base", [None, 2])
def test_highly_variable_genes_are_those_of_scanpy(flavor: str, base: int | None) -> None:
    scanpy, anndata = pytest.importorskip("scanpy"), pytest.importorskip("anndata")
    x = counts(600, 300, seed=3)
    adata = anndata.AnnData(scipy.sparse.csr_matrix(x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scanpy.pp.normalize_total(adata, target_sum=1e4)
        scanpy.pp.log1p(adata, base=base)
        # A quarter of all would end among those a median deviation from their bin, which all tie.
        scanpy.pp.highly_variable_genes(adata, n_top_genes=50, flavor=flavor)
    log = "log1p" if base is None else f"log1p({base})"
    for raw in (x, scipy.sparse.csr_array(x)):
        source = rf.open(raw, prepare=f"normalize_total(1e4), {log}, highly_variable(50, flavor='{flavor}')")
        chosen = adata.var["highly_variable"].to_numpy()
        columns = source.fitted["prepare_3_highly_variable_columns"]
        np.testing.assert_array_equal(columns, np.flatnonzero(chosen))
        for name in ("means", "dispersions", "dispersions_norm"):
            found = source.fitted[f"prepare_3_highly_variable_{name}"]
            np.testing.assert_allclose(found, adata.var[name], rtol=2e-5, atol=1e-5)
        np.testing.assert_allclose(dense(source), adata.X.toarray()[:, chosen], rtol=1e-5)


def test_dispersions_of_few_and_of_constant_columns() -> None:
    for flavor in ("seurat", "cell_ranger"):
        all_alike = most_variable(np.ones(5), np.ones(5), 2, flavor=flavor, bins=20)
        assert all_alike.chosen.all() or all_alike.chosen.sum() >= 2
        nothing = most_variable(np.zeros(5), np.zeros(5), 2, flavor=flavor, bins=20)
        assert nothing.chosen.shape == (5,)
        some = most_variable(np.arange(1.0, 4), np.array([1.0, 9, 1]), 99, flavor=flavor, bins=2)
        assert some.chosen.sum() >= 1


@pytest.mark.parametrize("kind", ["csr", "csr group", "array"])
def test_the_chain_of_scanpy(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "BLOCK_BYTES", 2**14)  # a few rows
    monkeypatch.setattr(selection, "FETCH_BYTES", 2**14)
    scanpy, anndata = pytest.importorskip("scanpy"), pytest.importorskip("anndata")
    x = counts(600, 300, seed=3)
    adata = anndata.AnnData(scipy.sparse.csr_matrix(x.astype("f8")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scanpy.pp.normalize_total(adata, target_sum=1e4)
        scanpy.pp.log1p(adata)
        scanpy.pp.highly_variable_genes(adata, n_top_genes=100)
        adata = adata[:, adata.var["highly_variable"]].copy()
        scanpy.pp.scale(adata, max_value=10)
    s = np.linalg.svd(adata.X - adata.X.mean(axis=0), compute_uv=False)
    steps = "normalize_total(1e4), log1p, highly_variable(100), scale(max_value=10)"
    source = rf.open(stored_in(tmp_path, x.astype("f8"), kind), prepare=steps)
    np.testing.assert_allclose(dense(source), adata.X, atol=1e-10)
    for solver in ("gram", "auto", "krylov"):
        result = rf.pca(source, 8, solver=solver, tol=1e-9, passes=20, out=tmp_path / solver)
        np.testing.assert_allclose(result.singular_values[:], s[:8], rtol=1e-8)
        np.testing.assert_allclose(result.mean[:], adata.X.mean(axis=0), atol=1e-12)
        assert result.attrs["input"]["prepare"].startswith(
            "normalize_total(target_sum=10000), log1p, highly_"
        )
        # the same rows through what the result keeps
        scores = rf.transform(result, stored_in(tmp_path / "again", x.astype("f8"), kind)).scores[:]
        np.testing.assert_allclose(scores, result.scores[:], atol=1e-7)
        rf.check(result, source)
        rf.check(result, stored_in(tmp_path / "checked", x.astype("f8"), kind))
    few = rf.transform(result, stored_in(tmp_path / "few", x[:5].astype("f8"), kind))
    np.testing.assert_allclose(few.scores[:], result.scores[:5], atol=1e-7)


# In results -------------------------------------------------------------------------------------------


def test_a_result_keeps_what_was_measured_and_new_rows_go_through_it(tmp_path: Path) -> None:
    x = counts(400, 30)
    rf.pca(rf.open(x, prepare="log1p, scale"), 4, out=tmp_path / "r.zarr")
    again = rf.open_result(tmp_path / "r.zarr")
    np.testing.assert_allclose(again.prepare_2_scale_mean, np.log1p(x.astype("f8")).mean(axis=0), rtol=1e-6)
    new = counts(50, 30, seed=1)
    log = np.log1p(np.vstack([x, new]).astype("f8"))
    std = log[:400].std(axis=0, ddof=1)
    expected = (log[400:] - log[:400].mean(axis=0)) / np.where(std > 0, std, 1) @ again.components[:].T
    np.testing.assert_allclose(rf.transform(again, new).scores[:], expected, atol=1e-4)
    with pytest.raises(InputError, match=r"were measured anew on this one. Open it without prepare"):
        rf.transform(again, rf.open(new, prepare="log1p, scale"))
    rf.update(rf.pca(rf.open(x, prepare="log1p, scale"), 30, with_rows=False), new)


def test_they_are_part_of_what_was_asked(tmp_path: Path) -> None:
    x = counts(200, 30)
    out = tmp_path / "r.zarr"
    rf.pca(rf.open(x, prepare="scale"), 3, out=out)
    rf.pca(rf.open(x, prepare="scale(ddof=1)"), 3, out=out)
    with pytest.raises(rf.RankfoldError):
        rf.pca(rf.open(x, prepare="scale(ddof=0)"), 3, out=out)
    weights = np.linspace(1, 2, 30)
    rf.pca(rf.open(x, prepare=[{"weights": {"values": weights}}]), 3, out=tmp_path / "w.zarr")
    with pytest.raises(rf.RankfoldError):
        rf.pca(rf.open(x, prepare=[{"weights": {"values": weights + 1}}]), 3, out=tmp_path / "w.zarr")


@pytest.mark.parametrize("steps", ["log1p, highly_variable(40), sqrt", "scale, highly_variable(30), scale"])
def test_matrices_that_are_prepared_twice_are_read_dense_as_they_are_stored(
    steps: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "BLOCK_BYTES", 2**14)
    monkeypatch.setattr(selection, "FETCH_BYTES", 2**14)
    x = counts(900, 200)
    found, expected = (dense(rf.open(each, prepare=steps)) for each in (x, scipy.sparse.csr_array(x)))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    log = np.log1p(x.astype("f8")) if steps.startswith("log1p") else scale(x)
    (columns,) = (v for name, v in rf.open(x, prepare=steps).fitted.items() if name.endswith("columns"))
    chosen = log[:, columns]
    np.testing.assert_allclose(found, np.sqrt(chosen) if steps.endswith("sqrt") else scale(chosen), atol=1e-5)


@pytest.mark.parametrize("method", ["svd", "pca", "nmf", "knn"])
def test_other_methods_take_shifted_matrices_whole(tmp_path: Path, method: str) -> None:
    x = scipy.sparse.csr_array(counts(200, 30))
    steps = "scale(zero_center=False)" if method == "nmf" else "scale"
    found = getattr(rf, method)(rf.open(x, prepare=steps), 3, out=tmp_path / "a")
    expected = getattr(rf, method)(
        scale(x.toarray(), zero_center=method != "nmf").astype("f4"), 3, out=tmp_path / "b"
    )
    for name in {"s", "singular_values", "distances"} & set(found):
        np.testing.assert_allclose(found[name][...], expected[name][...], rtol=2e-4)


def test_processes_have_the_same_bytes(tmp_path: Path) -> None:
    store = to_group(tmp_path / "x.zarr", scipy.sparse.csr_array(counts(900, 40)))
    steps = "normalize_total, log1p, highly_variable(20), scale(max_value=3)"
    results = [
        rf.pca(
            rf.open(store, prepare=steps),
            4,
            out=tmp_path / f"r{threads}",
            threads=threads,
            solver="krylov",
            seed=0,
        )
        for threads in (1, 2)
    ]
    assert same_bytes(results[0]) == same_bytes(results[1])


# What is missing, weights, genotypes -----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["array", "zarr", "csr"])
def test_what_is_missing_becomes_the_mean(tmp_path: Path, kind: str) -> None:
    x = counts(300, 40)
    x[np.random.default_rng(1).random(x.shape) < 0.2] = np.nan
    source = rf.open(stored_in(tmp_path, x, kind), prepare="impute_mean")
    imputer = sklearn.impute.SimpleImputer().fit(x)
    np.testing.assert_allclose(dense(source), imputer.transform(x), rtol=1e-6)
    np.testing.assert_array_equal(source.fitted["prepare_1_impute_mean_count"], (~np.isnan(x)).sum(axis=0))
    result = rf.pca(source, 3, tol=1e-6)
    filled = imputer.transform(x).astype("f8")
    s = np.linalg.svd(filled - filled.mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(result.singular_values[:], s[:3], rtol=1e-5)


def test_a_column_without_a_number_is_named() -> None:
    x = counts(30, 5)
    x[:, 3] = np.nan
    with pytest.raises(DataError, match=r"column 3 \(from 0\) of array float32 .* holds no number"):
        rf.open(x, prepare="impute_mean")


@pytest.mark.parametrize("kind", ["array", "csr"])
@pytest.mark.parametrize("missing", [-1, 9])
def test_genotypes_are_those_of_patterson(tmp_path: Path, kind: str, missing: int) -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(0.05, 0.5, 60)
    p[:2] = 0
    g = rng.binomial(2, p, (200, 60)).astype(np.int8)
    g[rng.random(g.shape) < 0.05] = missing
    called = np.where(g == missing, np.nan, g).astype(float)
    frequency = np.nanmean(called, axis=0) / 2
    spread = np.sqrt(2 * frequency * (1 - frequency))
    expected = np.divide(called - 2 * frequency, spread, out=np.zeros(g.shape), where=spread > 0)
    expected = np.nan_to_num(expected)
    source = rf.open(stored_in(tmp_path, g, kind), prepare=f"patterson(missing={missing})")
    np.testing.assert_allclose(dense(source), expected, atol=3e-6)
    result = rf.pca(source, 4, tol=1e-6)
    s = np.linalg.svd(expected - expected.mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(result.singular_values[:], s[:4], rtol=1e-4)
    with pytest.raises(DataError, match=r"holds 9 \(30 times\), but genotypes are from 0 to 2"):
        rf.open(np.full((10, 3), 9, np.int8), prepare="patterson")


@pytest.mark.parametrize("mark", [9, 3, -9])
def test_marks_of_other_programs_are_no_genotypes(mark: int) -> None:
    """EIGENSTRAT's 9, PLINK's -9, and the 3 of those who count from 0."""
    rng = np.random.default_rng(0)
    g = rng.binomial(2, 0.3, (200, 60)).astype(np.int8)
    marked = np.where(rng.random(g.shape) < 0.03, mark, g).astype(np.int8)
    count = int((marked == mark).sum())
    with pytest.raises(DataError, match=rf"holds {mark} \({count} times\).*say patterson\(missing={mark}\)"):
        rf.open(marked, prepare="patterson")
    result = rf.pca(rf.open(marked, prepare=f"patterson(missing={mark})"), 3)
    assert np.isfinite(np.asarray(rf.transform(result, marked).scores)).all()
    fitted = rf.pca(rf.open(g, prepare="patterson"), 3)
    with pytest.raises(DataError, match=rf"holds {mark} \("):
        rf.transform(fitted, marked)
    expected = rng.uniform(0, 2, (50, 8)).astype(np.float32)  # dosages
    assert rf.open(expected, prepare="patterson").shape == (50, 8)


def test_weights_in_a_file_of_another_kind_are_refused_without_a_word_of_pickles(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("a,1\nb,2\n")
    np.save(tmp_path / "w.npy", np.array([1, None], object))
    for name in ("w.csv", "w.npy"):
        with pytest.raises(InputError, match=rf"{name} is no \.npy file of numbers; numpy\.save writes one"):
            rf.open(np.eye(2), prepare=[{"weights": {"values": str(tmp_path / name)}}])


def test_columns_are_weighted(tmp_path: Path) -> None:
    x, weights = counts(100, 20), np.linspace(0, 2, 20)
    np.save(tmp_path / "w.npy", weights)
    for said in ([{"weights": {"values": weights}}], f"weights('{tmp_path / 'w.npy'}')"):
        for raw in (x, scipy.sparse.csr_array(x), scipy.sparse.csc_array(x)):
            source = rf.open(raw, prepare=said)
            np.testing.assert_allclose(dense(source), x * weights, rtol=1e-6)
    result = rf.svd(source, 3)
    np.testing.assert_allclose(rf.transform(result, x).U[:], result.U[:], atol=1e-4)
    with pytest.raises(InputError, match="weights: 19 numbers for the 20 columns"):
        rf.open(x, prepare=[{"weights": {"values": weights[1:]}}])
    with pytest.raises(InputError, match="weights: 1 of 20 numbers for the columns"):
        rf.open(x, prepare=[{"weights": {"values": np.append(weights[1:], np.nan)}}])
    with pytest.raises(InputError, match="weights takes an array of 20 numbers"):
        rf.open(x, prepare="weights")


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("scale(ddof=2)", "ddof must be 0 or 1, not 2"),
        ("scale(max_value=-1)", "max_value must be a number above 0"),
        ("scale(zero_center=3)", "zero_center must be True or False"),
        ("tfidf(norm='max')", "norm must be 'l2', 'l1' or None"),
        ("highly_variable(0)", "n_top_genes must be a whole number of at least 1, not 0"),
        (
            "highly_variable(10, flavor='v3')",
            "flavor must be 'seurat', 'cell_ranger' or 'seurat_v3', not 'v3'",
        ),
        ("highly_variable", "say n_top_genes"),
    ],
)
def test_wrong_parameters_are_one_clear_message(said: str, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        rf.open(counts(20, 5), prepare=said)


def test_an_empty_matrix_has_no_median() -> None:
    with pytest.raises(DataError, match="no row with a sum above 0"):
        rf.open(np.zeros((5, 4)), prepare="normalize_total")


def test_words_say_all_of_it() -> None:
    source = rf.open(
        counts(100, 20), prepare="normalize_total, log1p, highly_variable(5), scale(max_value=10)"
    )
    words = rf.svd(source, 2).attrs["input"]["prepare"]
    assert words == (
        "normalize_total, log1p, highly_variable(n_top_genes=5, flavor='seurat', n_bins=20), "
        "scale(zero_center=True, max_value=10, ddof=1)"
    )
    assert json.dumps(words)


# Found by trying ------------------------------------------------------------------------------------


def test_parts_of_a_prepared_matrix_keep_its_steps() -> None:
    x = counts(300, 50)
    for said in ("log1p", "normalize_total(1e4), log1p", "scale"):
        part = rf.open(rf.open(x, prepare=said), select_columns="3:23", select_rows="10:")
        whole = dense(rf.open(x, prepare=said))
        np.testing.assert_array_equal(dense(part), whole[10:, 3:23])
        result = rf.pca(part, 3, tol=1e-8)
        assert result.attrs["input"]["prepare"].startswith(said.partition("(")[0])
        found = rf.transform(result, x[10:])
        np.testing.assert_allclose(found.scores[...], result.scores[...], atol=2e-4)
        assert rf.check(result, x[10:]).attrs["largest_residual"] < 1e-3
        with pytest.raises(InputError, match="has 20 columns, and take_columns chose among 50"):
            rf.transform(result, x[10:, 3:23])
        more = rf.open(part, prepare="scale")
        np.testing.assert_allclose(dense(more), scale(whole[10:, 3:23]), atol=1e-5)
    with pytest.raises(InputError, match="leave out columns of nothing before them"):
        rf.open(rf.open(x, prepare="log1p"), drop_missing_columns=True)


def test_rows_of_another_width_are_refused_after_a_choice_of_columns() -> None:
    x = counts(120, 50)
    for columns in (None, "0:40"):
        width = 50 if columns is None else 40
        result = rf.pca(rf.open(x, select_columns=columns, prepare="log1p, highly_variable(10)"), 3)
        rf.transform(result, x[:9, :width])
        for other in (counts(9, 80), counts(9, 30)):
            message = f"has {other.shape[1]} columns, and highly_variable chose among {width}"
            with pytest.raises(InputError, match=message):
                rf.transform(result, other)


@pytest.mark.parametrize("stored", [np.array, scipy.sparse.csr_array], ids=["dense", "csr"])
def test_a_column_that_varies_by_rounding_alone_is_constant(stored: Any) -> None:
    x = np.random.default_rng(0).normal(size=(300, 10))
    x[:, 0] = 0.1
    s = rf.svd(rf.open(stored(x), prepare="scale"), 10).s
    assert s[-1] < 1e-10 and s[0] < 25


def test_zeros_that_are_not_stored_cannot_be_missing() -> None:
    x = counts(100, 20)
    x[0] = 1
    for step in ("impute_mean", "patterson"):
        with pytest.raises(InputError, match=r"missing=0.* is sparse"):
            rf.open(scipy.sparse.csr_array(x), prepare=f"{step}(missing=0)")
    rf.open(x, prepare="impute_mean(missing=0)")


@pytest.mark.parametrize("stored", [np.array, scipy.sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("said", ["scale(max_value=3)", "scale(zero_center=False, max_value=3)", "binarize"])
def test_an_infinite_number_stays_one_and_is_refused(stored: Any, said: str) -> None:
    x = counts(100, 20)
    x[3, 4] = np.inf
    with pytest.raises(DataError, match="1 NaN or Inf, the first at row 3, column 4"):
        rf.svd(rf.open(stored(x), prepare=said), 2)


def test_places_that_come_twice_are_chosen_and_scaled(tmp_path: Path) -> None:
    x = scipy.sparse.csr_array(counts(300, 60))
    halves = (np.repeat(x.data / 2, 2), np.repeat(x.indices, 2), 2 * x.indptr)
    twice = scipy.sparse.csr_array(halves, shape=x.shape)
    steps = "log1p, highly_variable(20), scale"
    a, b = (
        rf.pca(rf.open(to_group(tmp_path / f"{i}.zarr", each), prepare=steps), 3, solver="krylov")
        for i, each in enumerate((x, twice))
    )
    np.testing.assert_allclose(a.singular_values[...], b.singular_values[...], rtol=1e-6)


def test_a_choice_of_columns_after_a_step_by_rows_reads_rows_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = counts(300, 1200)
    source = rf.open(
        to_zarr(tmp_path / "x.zarr", x, (100, 100)), prepare="normalize_total, log1p, highly_variable(100)"
    )
    read, kind = [], type(source.inner.inner.inner)
    read_into = kind.read_into

    def watched(self: Any, out: Array, rows: Any, columns: Any) -> None:
        read.append((rows[1] - rows[0]) * (columns[1] - columns[0]))
        read_into(self, out, rows, columns)

    monkeypatch.setattr(kind, "read_into", watched)
    out = np.empty(source.shape, source.dtype)
    source.read_into(out, (0, 300), (0, source.shape[1]))
    assert sum(read) <= 1.1 * x.size


def test_what_was_measured_before_a_choice_has_an_axis_of_its_own() -> None:
    pytest.importorskip("xarray")
    result = rf.pca(rf.open(counts(150, 70), prepare="scale, highly_variable(20)"), 5)
    assert result.to_xarray()["prepare_1_scale_mean"].shape == (70,)
    assert result.to_pandas("prepare_1_scale_mean").shape == (70, 1)


@pytest.mark.parametrize(
    "said",
    [
        "highly_variable(10, n_bins=None)",
        [{"highly_variable": {"n_top_genes": "abc"}}],
        [{"highly_variable": {"n_top_genes": float("nan")}}],
        [{"highly_variable": {"n_top_genes": float("inf")}}],
        "weights('nofile.npy')",
        [{"weights": {"values": ["a"] * 20}}],
        [{"weights": {"values": 1j * np.ones(20)}}],
        5,
    ],
    ids=str,
)
def test_nonsense_is_one_clear_message(said: Any) -> None:
    with pytest.raises(InputError):
        rf.open(counts(30, 20), prepare=said)
