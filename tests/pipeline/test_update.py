"""Components of more samples: those of a fit to all rows, or within what the result says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import decaying, same_bytes, to_zarr

import rankfold as rf
from rankfold.pipeline.summary import Summary, merged

Array = npt.NDArray[Any]

pytestmark = pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")


def projector(result: rf.Result, rank: int) -> Array:
    """Onto the leading components."""
    return np.asarray(result.components[:rank].T @ result.components[:rank])


def assert_same(updated: rf.Result, fit: rf.Result, rank: int, tol: float = 1e-10) -> None:
    """Everything that both have."""
    assert np.abs(projector(updated, rank) - projector(fit, rank)).max() <= tol
    for name in ("mean", "singular_values", "explained_variance", "explained_variance_ratio"):
        ours, theirs = getattr(updated, name), getattr(fit, name)
        np.testing.assert_allclose(
            ours[:rank] if name != "mean" else ours,
            theirs[:rank] if name != "mean" else theirs,
            rtol=1e-9,
            atol=1e-10 * np.abs(theirs).max(),
        )
    if "scale" in set(fit):
        np.testing.assert_allclose(updated.scale, fit.scale, rtol=1e-12)
    assert updated.attrs["squared_norm"] == pytest.approx(fit.attrs["squared_norm"], rel=1e-10)


@pytest.mark.parametrize("flags", [{}, {"scale": True}, {"center": False}, {"whiten": True}], ids=str)
@pytest.mark.parametrize(("old", "new"), [(400, 3000), (3000, 400), (3000, 7), (20, 2000), (25, 1)], ids=str)
def test_an_update_is_a_fit_to_all_rows(flags: dict[str, bool], old: int, new: int) -> None:
    x = decaying(old + new, 30, mean=50.0)
    x[old:] += 3.0  # a batch with another mean
    result = rf.pca(x[:old], min(old, 30), method="gram" if old > 30 else "krylov", tol=1e-12, **flags)
    updated = rf.update(result, x[old:], rank=10)
    fit = rf.pca(x, method="tsqr", **flags)
    assert_same(updated, fit, 10)
    assert updated.attrs["passes"] == 1 and updated.attrs["largest_error_estimate"] <= 1e-9
    assert updated.attrs["input"]["shape"] == [old + new, 30]
    np.testing.assert_allclose(
        np.abs(rf.transform(updated, x).scores),
        np.abs(rf.transform(fit, x).scores[:, :10]),
        atol=1e-6 * np.abs(x).max(),
    )


def test_updates_follow_one_another_on_disk(tmp_path: Path) -> None:
    x = decaying(9000, 24)
    result = rf.pca(x[:1000], 24, out=tmp_path / "0.zarr", rows=False)
    for i, (start, stop) in enumerate([(1000, 1010), (1010, 6000), (6000, 9000)], start=1):
        store = to_zarr(tmp_path / f"x{i}.zarr", x[start:stop], (500, 5))
        result = rf.update(tmp_path / f"{i - 1}.zarr", store, rank=24, out=tmp_path / f"{i}.zarr")
        again = rf.update(tmp_path / f"{i - 1}.zarr", store, rank=24, out=tmp_path / f"{i}.zarr")
        assert same_bytes(result) == same_bytes(again)
    assert_same(result, rf.pca(x, 24, method="tsqr"), 8)


def test_a_result_that_was_cut_bounds_what_it_lacks() -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((2000, 40)) * np.linspace(3, 1, 40)
        turned = np.roll(x[1000:], 20, axis=1)  # what was cut off the first half leads in the second
        updated = rf.update(rf.pca(x[:1000], 5, tol=1e-10, rows=False), turned)
        both = np.vstack([x[:1000], turned])
        s = np.linalg.svd(both - both.mean(axis=0), compute_uv=False)[:5]
        error = np.abs(updated.singular_values - s) / s
        assert (error <= updated.error_estimates).all()
        assert error.max() > 0.01 and not updated.attrs["converged"]


def test_columns_that_begin_to_vary_are_scaled() -> None:
    x = decaying(500, 12)
    x[:300, 4] = 2.0
    x[:, 7] = 5.0
    result = rf.pca(x[:300], 12, method="gram", scale=True, rows=False)
    assert_same(rf.update(result, x[300:]), rf.pca(x, 12, method="gram", scale=True, rows=False), 8)


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=2, max_size=6),
    columns=st.integers(1, 15),
    mean=st.sampled_from([0.0, 1e4]),
    seed=st.integers(0, 99),
)
def test_summaries_merge_in_any_grouping(sizes: list[int], columns: int, mean: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [rng.standard_normal((m, columns)) + mean for m in sizes]
    of = [Summary.of_rows(part, centre=True) for part in parts]
    left, right = of[0], of[-1]
    for each in of[1:]:
        left = merged(left, each)
    for each in of[-2::-1]:
        right = merged(each, right)
    x = np.vstack(parts)
    scatter = (x - x.mean(axis=0)).T @ (x - x.mean(axis=0))
    for made in (left, right):
        assert made.count == len(x) and len(made.factor) <= max(columns, len(x) + len(sizes))
        np.testing.assert_allclose(made.mean, x.mean(axis=0), atol=1e-12 * (1 + mean))
        np.testing.assert_allclose(
            made.factor.T @ made.factor, scatter, atol=1e-9 * (1 + np.abs(scatter).max())
        )
        np.testing.assert_allclose(made.squares, np.diag(scatter), atol=1e-9 * (1 + np.abs(scatter).max()))


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    x = decaying(300, 20)
    result = rf.pca(x, 5)
    with pytest.raises(rf.RankfoldError, match=r"fitted to 20 columns, but .* is 300 x 10"):
        rf.update(result, x[:, :10])
    with pytest.raises(rf.RankfoldError, match="rank 9 was asked for, but 5 components and 2 new rows"):
        rf.update(result, x[:2], rank=9)
    with pytest.raises(rf.RankfoldError, match="is not a pca"):
        rf.update(rf.svd(x, 5), x)
    for rows in (10, 200):
        x[3, 5] = np.nan
        with pytest.raises(rf.RankfoldError, match="1 NaN or Inf, the first at row 3, column 5"):
            rf.update(result, x[:rows], out=tmp_path / "u.zarr")
        assert not (tmp_path / "u.zarr").exists()
    big = np.zeros((5000, 6000), np.float32)
    with pytest.raises(rf.RankfoldError, match="add fewer rows at a time"):
        rf.update(rf.pca(decaying(50, 6000), 3), big, memory="400MiB")
