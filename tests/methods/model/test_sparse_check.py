"""Residuals against sparse matrices: those against the dense ones, without their zeros."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from covers import cover
from reference import same_bytes, to_group
from test_sparse_transform import counts

import rankfold as rf
from rankfold.pipeline.engine import blocks

FITS: dict[str, Any] = {
    "svd": lambda x: rf.svd(x, 4, solver="gram"),
    "pca": lambda x: rf.pca(x, 4, solver="gram"),
    "pca, scaled": lambda x: rf.pca(x, 4, solver="gram", scale=True),
    "pca, whitened": lambda x: rf.pca(x, 4, solver="gram", whiten=True),
}


@pytest.fixture
def small_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels of two thousand numbers, and streams of a few of them."""
    monkeypatch.setattr(blocks, "PANEL_NUMBERS", 2000)
    monkeypatch.setattr(blocks, "READS_PER_BYTE", 4)


@pytest.mark.parametrize(("fit", "dtype", "kept"), cover(FITS, [np.float32, np.float64], ["csr", "csc"]))
def test_residuals_are_those_of_the_dense_matrix(
    tmp_path: Path, small_panels: None, fit: str, dtype: Any, kept: str
) -> None:
    x = counts(2000, dtype=dtype)
    where = to_group(tmp_path / "x.zarr", x.asformat(kept))
    model = FITS[fit](where)
    found, dense = rf.check(model, where), rf.check(model, x.toarray())
    floor = 50 * np.finfo(dtype).eps
    for name in ("left_residuals", "right_residuals"):
        np.testing.assert_allclose(getattr(found, name), getattr(dense, name), rtol=1e-5, atol=1e-12)
        assert getattr(found, name).max() <= floor
    for name in ("left_orthogonality", "right_orthogonality", "largest_residual"):
        assert found.attrs[name] == pytest.approx(dense.attrs[name], rel=1e-5, abs=1e-12)


def test_a_wrong_factor_is_seen(tmp_path: Path) -> None:
    one, other = counts(900), counts(900, seed=5)
    model = rf.svd(one, 4)
    found, dense = rf.check(model, other), rf.check(model, other.toarray())
    assert "another matrix of that shape" in found.attrs["warnings"][0]
    assert found.attrs["largest_residual"] > 0.1
    np.testing.assert_allclose(found.left_residuals, dense.left_residuals, rtol=1e-8)
    np.testing.assert_allclose(found.right_residuals, dense.right_residuals, rtol=1e-8)


def test_no_zero_is_filled_in_and_threads_change_no_byte(
    tmp_path: Path, small_panels: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = to_group(tmp_path / "x.zarr", counts(3000))
    model = rf.pca(where, 4)

    def refuse(*_: object) -> None:
        raise AssertionError("zeros are filled in")

    monkeypatch.setattr(type(rf.open(where)), "read_into", refuse)
    whole = same_bytes(rf.check(model, where, threads=1))
    for threads, memory in ((2, "128MiB"), (7, "512MiB")):
        assert same_bytes(rf.check(model, where, threads=threads, memory=memory)) == whole
