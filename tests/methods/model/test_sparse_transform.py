"""Rows of sparse matrices in the components of a result: those of the dense ones, without their zeros."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from covers import cover
from reference import same_bytes, to_group

import rankfold as rf
from rankfold.methods.model.model import open_model
from rankfold.methods.model.transform import Projection
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import NonFiniteError
from rankfold.pipeline.formats import open_source

Array = npt.NDArray[Any]


def counts(rows: int, columns: int = 120, dtype: Any = np.float64, *, seed: int = 0) -> Any:
    """Counts in a tenth of the places, with empty rows and a column that is full."""
    rng = np.random.default_rng(seed)
    dense = rng.poisson(rng.gamma(0.3, 0.3, (5, columns))[rng.integers(0, 5, rows)]).astype(float)
    dense[rng.random(dense.shape) < 0.3] = 0
    dense[rng.random(rows) < 0.1] = 0
    dense[:, 7] = 3 + rng.random(rows)
    return scipy.sparse.csr_array(dense.astype(dtype))


FITS: dict[str, Any] = {
    "svd": lambda x: rf.svd(x, 4, solver="gram"),
    "pca": lambda x: rf.pca(x, 4, solver="gram"),
    "pca, scaled": lambda x: rf.pca(x, 4, solver="gram", scale=True),
    "pca, whitened": lambda x: rf.pca(x, 4, solver="gram", whiten=True),
    "nmf": lambda x: rf.nmf(x, 4, passes=4),
}


@pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")
@pytest.mark.parametrize(
    ("fit", "dtype", "kept"), cover(FITS, [np.float32, np.float64], ["memory", "store", "columns"])
)
def test_rows_are_those_of_the_dense_matrix(tmp_path: Path, fit: str, dtype: Any, kept: str) -> None:
    model, x = FITS[fit](counts(400, dtype=dtype).toarray()), counts(900, dtype=dtype, seed=1)
    given = x if kept == "memory" else to_group(tmp_path / "x.zarr", x.tocsc() if kept == "columns" else x)
    found, dense = rf.transform(model, given), rf.transform(model, x.toarray())
    (name,) = found
    one, other = (np.asarray(getattr(each, name)[...], float) for each in (found, dense))
    np.testing.assert_allclose(one, other, atol=200 * np.finfo(dtype).eps * np.abs(other).max())
    assert found.attrs["relative_error"] == pytest.approx(dense.attrs["relative_error"], rel=1e-5)


def test_zeros_are_not_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = counts(900, seed=1)
    model, where = rf.pca(counts(400), 4), to_group(tmp_path / "x.zarr", x)

    def refuse(*_: object) -> None:
        raise AssertionError("zeros are filled in")

    monkeypatch.setattr(type(rf.open(where)), "read_into", refuse)
    rf.transform(model, where)
    plan = Projection.of(open_model(model), open_source(where)).plan(Budget(2**30, 2))
    assert plan.passes[0].numbers == x.nnz
    assert plan.reads_bytes <= 12 * x.nnz + 9 * x.shape[0]


def test_threads_and_memory_change_no_byte(tmp_path: Path) -> None:
    model, where = rf.pca(counts(400), 4), to_group(tmp_path / "x.zarr", counts(5000, seed=1))
    whole = same_bytes(rf.transform(model, where, threads=1, memory="1GiB"))
    for threads, memory in ((2, "128MiB"), (7, "512MiB")):
        assert same_bytes(rf.transform(model, where, threads=threads, memory=memory)) == whole


def test_a_million_columns_are_never_filled_in() -> None:
    rng = np.random.default_rng(0)
    places = np.sort(rng.integers(0, 10**6, (300, 40)), axis=1).astype(np.int32)
    numbers = (rng.random(12_000), places.ravel(), 40 * np.arange(301))
    x = scipy.sparse.csr_array(numbers, shape=(300, 10**6))
    model = rf.svd(x, 2)
    plan = Projection.of(open_model(model), open_source(x)).plan(Budget(2**30, 1))
    assert plan.peak_bytes < 300 * 2**20
    found = rf.transform(model, x)
    (name,) = found
    np.testing.assert_allclose(getattr(found, name)[...], x @ model.Vt[...].T / model.s, atol=1e-6)


def test_nan_is_refused_with_its_place(tmp_path: Path) -> None:
    x = counts(900).tolil()
    x[17, 33] = x[600, 2] = np.nan
    with pytest.raises(NonFiniteError, match="2 NaN or Inf, the first at row 17, column 33"):
        rf.transform(rf.pca(counts(400), 4), to_group(tmp_path / "x.zarr", x.tocsr()))
