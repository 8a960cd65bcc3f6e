"""A stored result held against its matrix."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from covers import cover
from reference import decaying

import rankfold as rf


def residuals(
    x: Any, result: rf.Result, kind: str, options: dict[str, bool]
) -> tuple[Any, Any, float, float]:
    """The same by definition, in memory."""
    a = x.astype(np.float64)
    if kind == "svd":
        u, s, v = result.U[...], result.s, result.Vt.T
    else:
        a = a - result.mean
        a = a / result.scale if options.get("scale") else a
        s, v = result.singular_values, result.components.T
        u = result.scores[...] / (np.sqrt(len(x) - 1) if options.get("whiten") else s)
    u, v = u.astype(np.float64), v.astype(np.float64)
    left, right = np.linalg.norm(a @ v - u * s, axis=0) / s[0], np.linalg.norm(a.T @ u - v * s, axis=0) / s[0]
    eye = np.eye(len(s))
    return left, right, np.abs(u.T @ u - eye).max(), np.abs(v.T @ v - eye).max()


@pytest.mark.parametrize(
    ("shape", "dtype", "kind", "options"),
    cover(
        [(3000, 40), (40, 3000)],
        [np.float32, np.float64],
        [
            pytest.param("svd", {}),
            pytest.param("pca", {}),
            pytest.param("pca", {"scale": True}),
            pytest.param("pca", {"whiten": True}),
        ],
    ),
)
def test_residuals_are_those_of_the_definition(
    shape: tuple[int, int], dtype: Any, kind: str, options: dict[str, bool], tmp_path: Path
) -> None:
    x = (decaying(*shape) + 3 * (kind == "pca")).astype(dtype)
    result = getattr(rf, kind)(x, 6, solver="krylov", passes=3, tol=0.1, out=tmp_path / "r.zarr", **options)
    found = rf.check(tmp_path / "r.zarr", x)
    left, right, u, v = residuals(x, result, kind, options)
    eps = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(found.left_residuals, left, rtol=1e-6, atol=100 * eps)
    np.testing.assert_allclose(found.right_residuals, right, rtol=1e-6, atol=100 * eps)
    assert found.attrs["largest_residual"] == max(found.left_residuals.max(), found.right_residuals.max())
    assert found.attrs["left_orthogonality"] == pytest.approx(u, rel=1e-3, abs=20 * eps)
    assert found.attrs["right_orthogonality"] == pytest.approx(v, rel=1e-3, abs=20 * eps)
    assert found.attrs["passes"] == 1


def test_a_wrong_factor_is_seen(tmp_path: Path) -> None:
    x = decaying(2000, 30)
    result = rf.svd(x, 4, out=tmp_path / "r.zarr")
    assert rf.check(result, x).attrs["largest_residual"] < 1e-2
    u = zarr.open_array(tmp_path / "r.zarr" / "U", mode="r+")
    u[100:200, 2] = 1.0
    with pytest.raises(rf.RankfoldError, match="U/c/0/0 is not what was written"):
        rf.check(result, x)
    (tmp_path / "r.zarr" / "manifest.json").unlink()  # by which it is known that it was changed
    found = rf.check(result, x)
    assert found.left_residuals[2] > 0.1 > 1e-2 > found.left_residuals[1]
    assert found.attrs["left_orthogonality"] > 1


def test_another_matrix_is_named(tmp_path: Path) -> None:
    x = decaying(2000, 30)
    result = rf.svd(x, 4)
    with pytest.raises(rf.RankfoldError, match="Give the matrix that it was made from"):
        rf.check(result, x[:1000])
    with pytest.warns(rf.RankfoldWarning, match="has changed since"):
        assert rf.check(result, x[::-1].copy()).attrs["largest_residual"] > 0.01
    with pytest.raises(rf.RankfoldError, match="fitted without rows"):
        rf.check(rf.svd(x, 4, with_rows=False), x)


@pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")
def test_rank_that_is_not_there() -> None:
    x = np.outer(np.arange(500.0), np.ones(9))
    for kind in ("svd", "pca"):
        found = rf.check(getattr(rf, kind)(x, 3), x)
        assert found.attrs["largest_residual"] < 1e-12
        assert found.attrs["left_orthogonality"] < 1e-12 and found.attrs["right_orthogonality"] < 1e-12


def test_rows_that_were_weighed_are_to_be_given_with_their_weights() -> None:
    x, weights = np.random.default_rng(0).poisson(1.0, (200, 60)).astype(float), np.arange(1.0, 201)
    weighed = rf.open(x, prepare=[{"sample_weight": {"values": weights}}])
    found = rf.svd(weighed, 3, tol=1e-9, passes=30)
    assert rf.check(found, weighed).attrs["largest_residual"] < 1e-4
    with pytest.raises(rf.RankfoldError, match="a result keeps no weights"):
        rf.check(found, x)


def test_columns_that_are_brought_to_order_are_no_change() -> None:
    """Nor is land that is left out by name; numbers that changed are told in any order."""
    pd, xr = pytest.importorskip("pandas"), pytest.importorskip("xarray")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((60, 5)), columns=list("abcde"))
    x = rng.standard_normal((30, 4, 5))
    x[:, 1, 2] = np.nan
    cube = xr.DataArray(x, dims=("time", "lat", "lon"), coords={"lat": np.arange(4.0), "lon": np.arange(5.0)})
    field = rf.open(cube, row_axes="time", drop_missing_columns=True)
    for fitted, others in ((frame, [frame[list("edcba")]]), (field, [cube, cube[:, ::-1]])):
        result = rf.pca(fitted, 2)
        for other in others:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert rf.check(result, other).attrs["largest_residual"] < 1e-12
    with pytest.warns(rf.RankfoldWarning, match="has changed since"):
        rf.check(rf.pca(frame, 2), frame + 1.0)
    assert rf.check(rf.pca(frame, 2), frame[list("edcba")] ** 2).attrs["largest_residual"] > 0.1
