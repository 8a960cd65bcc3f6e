"""Every step makes what the library that it is named after writes out, however the matrix lies and is cut."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
import sklearn.feature_extraction.text as text
import sklearn.impute
import sklearn.preprocessing
import zarr
from covers import cover
from reference import to_group, to_zarr

import rankfold as rf
from rankfold.pipeline.data import selection
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.prepare import moments, prepared
from rankfold.pipeline.prepare.parse import STEPS

Array = npt.NDArray[Any]

ROWS, COLUMNS = 240, 48
WEIGHTS = np.linspace(0.2, 2.0, COLUMNS)
TIMES = np.random.default_rng(9).integers(0, 4, ROWS).astype(float)
MASK = np.arange(COLUMNS) % 5 > 1


def counts() -> Array:
    rng = np.random.default_rng(0)
    kinds = rng.gamma(0.3, 2.0, (5, COLUMNS))
    x = rng.poisson(kinds[rng.integers(0, 5, ROWS)] * rng.gamma(2, 0.5, (ROWS, 1)))
    x[::29] = 0
    x[:, 7] = 0
    return x.astype(np.float64)


def many_counts() -> Array:
    """So many columns that few are alone in their bin of means, where deviations tie."""
    rng = np.random.default_rng(4)
    kinds = rng.gamma(0.5, 1.0, (5, 300))
    return rng.poisson(kinds[rng.integers(0, 5, ROWS)] * rng.gamma(2, 0.5, (ROWS, 1))).astype(np.float64)


def genotypes() -> Array:
    rng = np.random.default_rng(1)
    x = rng.binomial(2, rng.uniform(0.05, 0.5, COLUMNS), (ROWS, COLUMNS)).astype(np.float64)
    x[rng.random(x.shape) < 0.05] = np.nan
    x[:, 3] = 0
    return x


def gaps() -> Array:
    x = counts()
    x[np.random.default_rng(2).random(x.shape) < 0.1] = np.nan
    return x


# What the originals write out -----------------------------------------------------------------------


def by_scanpy(*calls: Callable[[Any, Any], Any], form: Any = scipy.sparse.csr_matrix) -> Any:
    """What functions of ``scanpy.pp`` make of an AnnData object."""

    def written(x: Array) -> Array:
        scanpy, anndata = pytest.importorskip("scanpy"), pytest.importorskip("anndata")
        adata = anndata.AnnData(form(x))
        adata.layers["counts"] = adata.X.copy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for call in calls:
                call(scanpy.pp, adata)
        return adata.X.toarray() if scipy.sparse.issparse(adata.X) else np.asarray(adata.X)

    return written


def variable(count: int, flavor: str, **options: Any) -> Callable[[Any, Any], Any]:
    if flavor == "seurat_v3":
        pytest.importorskip("skmisc.loess", reason="pip install scikit-misc")
    return lambda pp, adata: pp.highly_variable_genes(
        adata, n_top_genes=count, flavor=flavor, subset=True, **options
    )


def log(pp: Any, adata: Any) -> None:
    pp.log1p(adata)


def normalize(pp: Any, adata: Any) -> None:
    pp.normalize_total(adata, target_sum=1e4)


def tfidf(**options: Any) -> Callable[[Array], Array]:
    return lambda x: text.TfidfTransformer(**options).fit_transform(scipy.sparse.csr_array(x)).toarray()


def smartpca(x: Array) -> Array:
    """Patterson, Price, Reich 2006, equations 1 to 3."""
    p = np.nanmean(x, axis=0) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num((x - 2 * p) / np.sqrt(2 * p * (1 - p)), nan=0.0, posinf=0.0, neginf=0.0)


class Case(NamedTuple):
    said: Any
    written: Callable[[Array], Array]
    data: Callable[[], Array] = counts
    whole_rows: bool = False
    """Whether rows are needed, which a matrix compressed by columns has not."""


def _count_rows(x: Array) -> Array:
    return np.asarray(np.sqrt(TIMES)[:, None] * (x - np.average(x, axis=0, weights=TIMES)))


CASES: dict[str, Case] = {
    "normalize_total to the median": Case(
        # Of CSR alone scanpy 1.11 counts empty cells in the median too.
        "normalize_total",
        by_scanpy(lambda pp, adata: pp.normalize_total(adata), form=np.array),
        whole_rows=True,
    ),
    "normalize_total": Case("normalize_total(1e4)", by_scanpy(normalize), whole_rows=True),
    "log1p": Case("log1p", by_scanpy(log)),
    "log1p to a base": Case("log1p(2)", by_scanpy(lambda pp, adata: pp.log1p(adata, base=2))),
    "sqrt": Case("sqrt", np.sqrt),
    "arcsinh": Case("arcsinh(5)", lambda x: np.arcsinh(x / 5)),
    "binarize": Case("binarize(1)", lambda x: sklearn.preprocessing.Binarizer(threshold=1).fit_transform(x)),
    "tfidf": Case("tfidf", tfidf(), whole_rows=True),
    "tfidf of logarithms": Case(
        "tfidf(sublinear_tf=True, norm='l1')", tfidf(sublinear_tf=True, norm="l1"), whole_rows=True
    ),
    "scale": Case("scale(max_value=2)", by_scanpy(lambda pp, adata: pp.scale(adata, max_value=2))),
    "scale without centers": Case(
        "scale(zero_center=False)", by_scanpy(lambda pp, adata: pp.scale(adata, zero_center=False))
    ),
    "scale of scikit-learn": Case(
        "scale(ddof=0)", lambda x: sklearn.preprocessing.StandardScaler().fit_transform(x)
    ),
    "highly_variable of seurat": Case(
        "log1p, highly_variable(20)", by_scanpy(log, lambda pp, adata: variable(20, "seurat")(pp, adata))
    ),
    "highly_variable of cell_ranger": Case(
        "log1p, highly_variable(20, flavor='cell_ranger')",
        by_scanpy(log, lambda pp, adata: variable(20, "cell_ranger")(pp, adata)),
        data=many_counts,
    ),
    "highly_variable of seurat_v3": Case(
        "log1p, highly_variable(20, flavor='seurat_v3', layer='counts', span=0.8)",
        by_scanpy(log, lambda pp, adata: variable(20, "seurat_v3", layer="counts", span=0.8)(pp, adata)),
    ),
    "mark_missing": Case("mark_missing(2)", lambda x: np.where(x == 2, np.nan, x)),
    "impute_mean": Case("impute_mean", lambda x: sklearn.impute.SimpleImputer().fit_transform(x), data=gaps),
    "patterson": Case("patterson", smartpca, data=genotypes),
    "weights": Case([{"weights": {"values": WEIGHTS}}], lambda x: x * WEIGHTS),
    "sample_weight": Case([{"sample_weight": {"values": TIMES}}], _count_rows),
    "sample_weight without centers": Case(
        [{"sample_weight": {"values": TIMES, "center": False}}], lambda x: np.sqrt(TIMES)[:, None] * x
    ),
    "take_columns": Case("log1p", lambda x: np.log1p(x)[:, MASK]),
    "chain": Case(
        "normalize_total(1e4), log1p, scale(max_value=3)",
        by_scanpy(normalize, log, lambda pp, adata: pp.scale(adata, max_value=3)),
        whole_rows=True,
    ),
}


def test_every_step_has_a_case() -> None:
    said = " ".join(str(case.said) for case in CASES.values()) + " take_columns"
    elsewhere = {"coslat", "impute_low_rank"}  # of fields, below; of runs, which measure it
    assert {name for name in STEPS if name not in said} == elsewhere


# How they are stored ------------------------------------------------------------------------------


CHUNKINGS: list[tuple[int, int]] = [(37, 11), (100, COLUMNS), (ROWS, 5)]

DENSE: dict[str, Callable[[Path, Array], Any]] = {
    "array": lambda folder, x: x,
    "array by columns": lambda folder, x: np.asfortranarray(x),
    **{f"dask {cut}": lambda folder, x, cut=cut: da.from_array(x, chunks=cut) for cut in CHUNKINGS},
    **{f"zarr {cut}": lambda folder, x, cut=cut: to_zarr(folder / "x.zarr", x, cut) for cut in CHUNKINGS},
    "shards": lambda folder, x: to_zarr(
        folder / "x.zarr", x, (10, 6), shards=(40, 24), compressors=zarr.codecs.ZstdCodec()
    ),
}


def _blocks(x: Array, rows: int) -> Any:
    return da.from_array(x, chunks=(rows, x.shape[1])).map_blocks(scipy.sparse.csr_array, dtype=x.dtype)


SPARSE: dict[str, Callable[[Path, Array], Any]] = {
    "csr": lambda folder, x: scipy.sparse.csr_array(x),
    "csc": lambda folder, x: scipy.sparse.csc_array(x),
    **{f"dask {rows}": lambda folder, x, rows=rows: _blocks(x, rows) for rows in (37, 100, ROWS)},
    **{
        f"{form.__name__[:3]} group {chunk}": lambda folder, x, form=form, chunk=chunk: to_group(
            folder / "x.zarr", form(x), chunk
        )
        for form in (scipy.sparse.csr_array, scipy.sparse.csc_array)
        for chunk in (50, 997, 10**6)
    },
}


def read(source: Any) -> Array:
    out = np.empty(source.shape, source.dtype)
    source.read_into(out, (0, out.shape[0]), (0, out.shape[1]))
    return out


STORES = [*(f"dense {each}" for each in DENSE), *(f"sparse {each}" for each in SPARSE)]


@pytest.mark.parametrize(("case", "store", "dtype"), cover(CASES, STORES, ["float64", "float32"]))
def test_a_step_is_what_its_original_writes_out(
    tmp_path: Path, case: str, store: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read whole and in parts, measured in small panels."""
    monkeypatch.setattr(moments, "PANEL_BYTES", 5000)
    monkeypatch.setattr(prepared, "BLOCK_BYTES", 2**12)
    monkeypatch.setattr(selection, "FETCH_BYTES", 2**13)
    said, written, data, whole_rows = CASES[case]
    x = data()
    kind, _, how = store.partition(" ")
    where = (DENSE if kind == "dense" else SPARSE)[how](tmp_path, x.astype(dtype))
    if whole_rows and "csc group" in store:
        with pytest.raises(InputError, match="compressed by columns"):
            rf.open(where, prepare=said)
        return
    source = rf.open(where, prepare=said, mask_var=MASK if case == "take_columns" else None)
    expected = written(x)
    assert source.shape == expected.shape and source.dtype == dtype
    near = 1e-12 if dtype == "float64" else 5e-6
    found = read(source)
    np.testing.assert_allclose(found, expected, rtol=near, atol=near * np.nanmax(np.abs(expected)))
    part = np.empty((90, 6), source.dtype)
    source.read_into(part, (41, 131), (4, 10))
    np.testing.assert_array_equal(part, found[41:131, 4:10])


# Of fields ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [None, *[(9, 3, 8), (30, 6, 8), (60, 1, 2)]], ids=str)
@pytest.mark.parametrize("place", ["memory", "zarr", "netcdf"])
@pytest.mark.parametrize("said", ["coslat", "scale(ddof=0), coslat"])
def test_latitudes_weigh_as_xeofs_writes_out(tmp_path: Path, place: str, cut: Any, said: str) -> None:
    xarray, xeofs = pytest.importorskip("xarray"), pytest.importorskip("xeofs")
    coords = {"time": np.arange(60), "lat": np.linspace(-75, 80, 6), "lon": np.arange(0, 360, 45)}
    values = np.random.default_rng(3).standard_normal((60, 6, 8)) * np.arange(1, 9) + 4
    data = xarray.DataArray(values, coords, ("time", "lat", "lon"), name="sst")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = xeofs.single.EOF(n_modes=2, use_coslat=True, standardize="scale" in said).fit(
            data, dim="time"
        )
    weighted = model.data["input_data"].transpose("sample", "feature").values
    where: Any = data if cut is None else data.chunk(dict(zip(data.dims, cut, strict=True)))
    if place == "zarr":
        where.to_dataset().to_zarr(tmp_path / "x.zarr")
        where = f"{tmp_path / 'x.zarr'}::sst"
    elif place == "netcdf":
        pytest.importorskip("netCDF4")
        options = {} if cut is None else {"encoding": {"sst": {"chunksizes": cut}}}
        data.to_netcdf(tmp_path / "x.nc", **options)
        where = f"{tmp_path / 'x.nc'}::sst"
    found = read(rf.open(where, row_axes="time", prepare=said))
    np.testing.assert_allclose(found - found.mean(axis=0), weighted, atol=1e-12)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("case", ["sample_weight", "highly_variable of seurat_v3"])
def test_what_is_measured_has_the_same_bits_for_any_threads_and_chunks(
    tmp_path: Path, case: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moments, "PANEL_BYTES", 5000)
    said, _, data, _ = CASES[case]
    x, found = data(), []
    if kind == "sparse":
        stores = [to_group(tmp_path / f"{cut}.zarr", scipy.sparse.csr_array(x), cut) for cut in (50, 997)]
    else:
        stores = [to_zarr(tmp_path / f"{cut}.zarr", x, (ROWS, cut)) for cut in (5, 11)]
    for place in stores:
        for threads in (1, 2, 7):
            monkeypatch.setattr(moments, "MOST_THREADS", threads)
            found.append(rf.open(place, prepare=said))
    for source in found[1:]:
        for name in found[0].fitted:
            np.testing.assert_array_equal(source.fitted[name], found[0].fitted[name])
        np.testing.assert_array_equal(read(source), read(found[0]))
