"""Components of more samples: those of a fit to all rows, or within what the result says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from covers import cover
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from reference import decaying, same_bytes, to_zarr

import rankfold as rf
from rankfold.methods.model.update import UNTRUSTED_ERROR, Summary, merge_summaries

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


BATCHES = [(400, 3000), (3000, 400), (3000, 7), (20, 2000), (25, 1)]


@pytest.mark.parametrize(
    ("flags", "old", "new"),
    cover(
        [{}, {"scale": True}, {"center": False}, {"whiten": True}],
        [pytest.param(old, new) for old, new in BATCHES],
        strength=1,
    ),
)
def test_an_update_is_a_fit_to_all_rows(flags: dict[str, bool], old: int, new: int) -> None:
    x = decaying(old + new, 30, mean=50.0)
    x[old:] += 3.0  # a batch with another mean
    result = rf.pca(x[:old], min(old, 30), solver="gram" if old > 30 else "krylov", tol=1e-12, **flags)
    updated = rf.update(result, x[old:], rank=10)
    fit = rf.pca(x, solver="tsqr", **flags)
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
    result = rf.pca(x[:1000], 24, out=tmp_path / "0.zarr", with_rows=False)
    for i, (start, stop) in enumerate([(1000, 1010), (1010, 6000), (6000, 9000)], start=1):
        store = to_zarr(tmp_path / f"x{i}.zarr", x[start:stop], (500, 5))
        result = rf.update(tmp_path / f"{i - 1}.zarr", store, rank=24, out=tmp_path / f"{i}.zarr")
        again = rf.update(tmp_path / f"{i - 1}.zarr", store, rank=24, out=tmp_path / f"{i}.zarr")
        assert same_bytes(result) == same_bytes(again)
    assert_same(result, rf.pca(x, 24, solver="tsqr"), 8)


def test_a_result_that_was_cut_bounds_what_it_lacks() -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((2000, 40)) * np.linspace(3, 1, 40)
        turned = np.roll(x[1000:], 20, axis=1)  # what was cut off the first half leads in the second
        updated = rf.update(rf.pca(x[:1000], 5, tol=1e-10, with_rows=False), turned)
        both = np.vstack([x[:1000], turned])
        s = np.linalg.svd(both - both.mean(axis=0), compute_uv=False)[:5]
        error = np.abs(updated.singular_values - s) / s
        assert (error <= updated.error_estimates).all()
        assert error.max() > 0.01 and not updated.attrs["converged"]


def test_columns_that_begin_to_vary_are_scaled() -> None:
    x = decaying(500, 12)
    x[:300, 4] = 2.0
    x[:, 7] = 5.0
    result = rf.pca(x[:300], 12, solver="gram", scale=True, with_rows=False)
    assert_same(rf.update(result, x[300:]), rf.pca(x, 12, solver="gram", scale=True, with_rows=False), 8)


def test_what_is_constant_but_for_rounding_and_what_is_of_unit_variance_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    still = 1e6 * (1 + 1e-14 * rng.standard_normal((700, 1)))
    moving = np.vstack([still[:400], 1e6 + 0.01 * rng.standard_normal((300, 1))])
    for last in (still, moving):
        x = np.hstack([rng.standard_normal((700, 6)), last])
        updated = rf.update(rf.pca(x[:400], 7, solver="tsqr", scale=True, with_rows=False), x[400:])
        fit = rf.pca(x, 7, solver="tsqr", scale=True, with_rows=False)
        np.testing.assert_allclose(updated.singular_values[:6], fit.singular_values[:6], rtol=1e-6)
        np.testing.assert_allclose(updated.scale, fit.scale, rtol=1e-6)
        assert updated.attrs["unscaled"] == fit.attrs["unscaled"]
    design = np.array(np.meshgrid(*[[-1.0, 1.0]] * 5)).reshape(5, -1).T * (31 / 32) ** 0.5
    new = 2 * rng.standard_normal((40, 5))
    updated = rf.update(rf.pca(design, 1, scale=True, with_rows=False), new, rank=2)
    np.testing.assert_allclose(updated.scale, np.vstack([design, new]).std(axis=0, ddof=1), rtol=1e-10)


def test_nothing_is_said_to_be_known_of_what_was_never_kept() -> None:
    x = np.random.default_rng(1).standard_normal((200, 6))
    updated = rf.update(rf.pca(x, 1, center=False, with_rows=False), np.zeros((3, 6)), rank=3)
    assert (updated.error_estimates[1:] == 1).all() and not updated.attrs["converged"]
    full = rf.update(
        rf.pca(x[:, :2] @ x[:2, :2].T @ x[:2], 6, solver="gram", with_rows=False), x[:3] * 0, rank=6
    )
    assert full.attrs["largest_error_estimate"] < 1


@pytest.mark.parametrize("mean", [1e4, 1e8])
def test_a_large_mean_costs_what_is_said(mean: float) -> None:
    x = np.random.default_rng(2).standard_normal((900, 8)) + mean
    s = np.linalg.svd(x - x.mean(axis=0), compute_uv=False)
    updated = rf.update(rf.pca(x[:500], 8, solver="tsqr", with_rows=False), x[500:])
    assert (np.abs(updated.singular_values - s) <= (updated.error_estimates + 1e-14) * s).all()


def test_a_crude_result_has_crude_residuals() -> None:
    x = np.random.default_rng(3).standard_normal((480, 60))
    updated = rf.update(rf.pca(x[:400], 8, solver="sketch", with_rows=False), x[400:])
    y = x - x.mean(axis=0)
    v, s = updated.components.T, updated.singular_values
    left = y @ v
    left /= np.linalg.norm(left, axis=0)
    true = np.linalg.norm(y.T @ left - v * s, axis=0) / s[0]
    assert (true <= 1.5 * updated.residuals).all()


def test_values_of_which_one_is_crude_bound_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((600, 40)) * np.append([30.0] * 3, np.linspace(3, 1, 37))
    fit = rf.pca(x[:300], 6, solver="subspace", passes=2, tol=1e-9, with_rows=False)
    assert fit.error_estimates.min() <= UNTRUSTED_ERROR < fit.error_estimates.max()
    found = rf.update(fit, x[300:])
    monkeypatch.setattr("rankfold.methods.model.update.UNTRUSTED_ERROR", 0.0)
    np.testing.assert_array_equal(found.error_estimates, rf.update(fit, x[300:]).error_estimates)
    monkeypatch.setattr("rankfold.methods.model.update.UNTRUSTED_ERROR", 1.0)
    assert (found.error_estimates > rf.update(fit, x[300:]).error_estimates).any()


@pytest.mark.parametrize("shape", [(700, 800), (60, 20_000)], ids=str)
def test_rows_that_are_held_fit_the_plan(tmp_path: Path, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(4).standard_normal(shape)
    result = rf.pca(x[: shape[0] // 2], 5, with_rows=False)
    rf.update(result, x, out=tmp_path / "u.zarr")
    last = rf.open_result(tmp_path / "u.zarr").run["attempts"][-1]
    assert last["measured_bytes"] is None or last["measured_bytes"] <= last["planned_bytes"]


@examples(40)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=2, max_size=6),
    columns=st.integers(1, 15),
    mean=st.sampled_from([0.0, 1e4]),
    seed=st.integers(0, 99),
)
def test_summaries_merge_in_any_grouping(sizes: list[int], columns: int, mean: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [rng.standard_normal((m, columns)) + mean for m in sizes]
    of = [Summary.of_rows(part, center=True) for part in parts]
    left, right = of[0], of[-1]
    for each in of[1:]:
        left = merge_summaries(left, each)
    for each in of[-2::-1]:
        right = merge_summaries(each, right)
    x = np.vstack(parts)
    scatter = (x - x.mean(axis=0)).T @ (x - x.mean(axis=0))
    for made in (left, right):
        assert made.count == len(x) and len(made.factor) <= max(columns, len(x) + len(sizes))
        np.testing.assert_allclose(made.mean, x.mean(axis=0), atol=1e-12 * (1 + mean))
        np.testing.assert_allclose(
            made.factor.T @ made.factor, scatter, atol=1e-9 * (1 + np.abs(scatter).max())
        )
        np.testing.assert_allclose(made.squares, np.diag(scatter), atol=1e-9 * (1 + np.abs(scatter).max()))


@pytest.mark.parametrize("rows", [10, 200])
def test_triplets_of_an_svd_are_those_of_all_rows(rows: int) -> None:
    x = decaying(300 + rows, 20)
    updated, whole = rf.update(rf.svd(x[:300], 20), x[300:]), rf.svd(x, 20)
    assert (updated.attrs["kind"], updated.attrs["input"]["shape"]) == ("svd", [300 + rows, 20])
    np.testing.assert_allclose(updated.s, whole.s, atol=1e-13 * whole.s[0])
    np.testing.assert_allclose(np.abs(updated.Vt[:5] @ whole.Vt[:5].T), np.eye(5), atol=1e-10)
    assert "mean" not in set(updated)


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    x = decaying(300, 20)
    result = rf.pca(x, 5)
    with pytest.raises(rf.RankfoldError, match=r"fitted to 20 columns, but .* is 300 x 10"):
        rf.update(result, x[:, :10])
    with pytest.raises(rf.RankfoldError, match="rank 9 was asked for, but 5 components and 2 new rows"):
        rf.update(result, x[:2], rank=9)
    with pytest.raises(rf.RankfoldError, match="only results of svd and pca"):
        rf.update(rf.nmf(np.abs(x), 3), x)
    for rows in (10, 200):
        x[3, 5] = np.nan
        with pytest.raises(rf.RankfoldError, match="1 NaN or Inf, the first at row 3, column 5"):
            rf.update(result, x[:rows], out=tmp_path / "u.zarr")
        assert not (tmp_path / "u.zarr").exists()
    big = np.zeros((5000, 6000), np.float32)
    with pytest.raises(rf.RankfoldError, match="add fewer rows at a time"):
        rf.update(rf.pca(decaying(50, 6000), 3), big, memory="400MiB")
