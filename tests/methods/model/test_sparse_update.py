"""More sparse samples: components of all of them, at the cost of what is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from reference import to_group
from test_sparse_transform import counts
from test_update import assert_same

import rankfold as rf
from rankfold.methods.model.model import open_model
from rankfold.methods.model.update import Update
from rankfold.pipeline.data.source import CompressedSource
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.formats.csr import CsrSource

Array = npt.NDArray[Any]


@pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")
@pytest.mark.parametrize("kept", ["memory", "store", "chosen"])
@pytest.mark.parametrize("flags", [{}, {"scale": True}, {"center": False}, {"whiten": True}], ids=str)
def test_an_update_is_a_fit_to_all_rows(
    tmp_path: Path, flags: dict[str, bool], kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: CompressedSource, out: Array, rows: Any, columns: Any) -> None:
        assert rows[1] - rows[0] <= 512, "a panel was filled in"
        return read_into(self, out, rows, columns)

    x = counts(4000, 60)
    new = to_group(tmp_path / "x.zarr", x[1500:]) if kept == "store" else x[1500:]
    if kept == "chosen":
        new = rf.open(to_group(tmp_path / "all.zarr", x), select_rows="1500:")
    before = rf.pca(x[:1500], 60, with_rows=False, **flags)
    read_into = CsrSource.read_into
    monkeypatch.setattr(CsrSource, "read_into", refuse)
    updated = rf.update(before, new, out=tmp_path / "u.zarr")
    fit = rf.pca(x.toarray(), 60, with_rows=False, **flags)
    assert_same(updated, fit, 20, 1e-8)
    true = np.linalg.svd(_prepared(x.toarray(), flags), compute_uv=False)
    wrong = np.abs(updated.singular_values[:] - true[:60]) / np.maximum(true[:60], 1e-300)
    assert (wrong <= updated.error_estimates[:] + 1e-12)[true[:60] > 1e-9 * true[0]].all()
    attempt = updated.run["attempts"][-1]
    assert attempt["measured_bytes"] is None or attempt["measured_bytes"] <= attempt["planned_bytes"]


def _prepared(x: Array, flags: dict[str, bool]) -> Array:
    if flags.get("center", True):
        x = x - x.mean(axis=0)
    if flags.get("scale"):
        deviation = x.std(axis=0, ddof=1)
        x = x / np.where(deviation > 0, deviation, 1)
    return x


def test_values_that_squares_cannot_tell_are_not_claimed() -> None:
    rng = np.random.default_rng(0)
    sizes = 10.0 ** -np.arange(0, 12, 0.5)
    x = scipy.sparse.csr_array((rng.random((3000, 24)) * (rng.random((3000, 24)) < 0.1)) * sizes)
    before = rf.pca(x[:1000], 24, with_rows=False, center=False)
    with pytest.warns(rf.RankfoldWarning, match="estimated error"):
        updated = rf.update(before, x[1000:])
    true = np.linalg.svd(x.toarray(), compute_uv=False)
    found = updated.singular_values[:]
    assert (np.abs(found - true) <= updated.error_estimates[:] * np.maximum(true, found) + 1e-15).all()
    assert updated.error_estimates[:10].max() < 1e-5 and updated.error_estimates[-1] > 0.1


def test_rows_are_filled_in_where_more_is_asked_than_squares_tell() -> None:
    rng = np.random.default_rng(0)
    sizes = 10.0 ** -np.arange(0, 12, 0.5)
    x = scipy.sparse.csr_array((rng.random((3000, 24)) * (rng.random((3000, 24)) < 0.1)) * sizes)
    before = rf.pca(x[:1000], 24, with_rows=False, center=False, tol=1e-9, solver="tsqr")
    updated = rf.update(before, x[1000:])
    true = np.linalg.svd(x.toarray(), compute_uv=False)
    np.testing.assert_allclose(updated.singular_values[:20], true[:20], rtol=1e-9)


def test_it_is_planned_by_what_is_stored(tmp_path: Path) -> None:
    x = counts(30_000, 400, np.float32)
    before = rf.pca(x[:1000], 5, with_rows=False)
    source = open_source(to_group(tmp_path / "x.zarr", x[1000:]))
    plan = Update.of(open_model(before), source, None).plan(Budget(2**30, 1))
    assert plan.passes[0].numbers == x[1000:].nnz
    assert plan.reads_bytes <= 12 * x.nnz + 9 * x.shape[0]
