"""``missing="em"``: rounds of a plain reference, errors close to what can be known, the same bytes always."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from reference import same_bytes, to_group, to_zarr

import rankfold as rf
from rankfold.kernels.linear.complete_rows import RowModel, held_out
from rankfold.methods.model.model import open_model
from rankfold.methods.svd.arguments import PCA
from rankfold.methods.svd.completion import completion
from rankfold.methods.svd.completion.completion import Completion
from rankfold.methods.svd.completion.first_model import first_model
from rankfold.methods.svd.request import Request
from rankfold.pipeline.errors import DataError, InputError

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

pytestmark = pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")


def with_gaps(
    m: int = 1500,
    n: int = 60,
    rank: int = 6,
    *,
    noise: float = 0.5,
    share: float = 0.3,
    dtype: str = "float64",
    seed: int = 0,
) -> tuple[Array, Array]:
    """A matrix of low rank about column means, with noise and gaps; and what there is without noise."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n)) / np.sqrt(rank)
    truth += 2 * rng.standard_normal(n)
    x = truth + noise * rng.standard_normal((m, n))
    x[rng.random((m, n)) < share] = np.nan
    return x.astype(dtype), truth


def dense(source: Any) -> Array:
    out = np.empty(source.shape, source.dtype)
    source.read_into(out, (0, source.shape[0]), (0, source.shape[1]))
    return out


def kept_model(result: Any) -> dict[str, Array]:
    """What a result keeps of the model, by the names that the model has for it."""
    names = [name for name in result if "impute_low_rank" in name]
    return {name.partition("low_rank_")[2]: np.asarray(getattr(result, name)[...]) for name in names}


def completed_by_hand(x: Array, model: dict[str, Array]) -> Float64:
    """Row by row: least squares of what is there, with the ridge of the model."""
    w, mean = model["loadings"], model["mean"]
    k, out = w.shape[1], x.astype(np.float64)
    for row in out:
        there = ~np.isnan(row)
        a = w[there].T @ w[there] + there.sum() * model["spread"].reshape(k, k)
        z = np.linalg.solve(a + model["noise"][0] * np.eye(k), w[there].T @ (row - mean)[there])
        row[~there] = (mean + w @ z)[~there]
    return out


# The iteration ------------------------------------------------------------------------------------


def reference_step(x: Array, held: Array, model: RowModel, *, exact: bool) -> RowModel:
    """One round of variational Bayesian PCA with whole arrays, as the papers write it."""
    there = ~np.isnan(x) & ~held
    mean, w, _, spread, noise = model
    (m, n), k, v = x.shape, w.shape[1], float(noise[0])
    d = np.where(there, x - mean, 0.0)
    pairs = np.einsum("ja,jb->jab", w, w)
    a = np.einsum("ij,jab->iab", there, pairs) + there.sum(1)[:, None, None] * spread + v * np.eye(k)
    c = v * np.linalg.inv(a)
    z = np.column_stack([np.einsum("iab,ib->ia", c / v, d @ w), np.ones(m)])
    t = np.einsum("ia,ib->iab", z, z)
    t[:, :k, :k] += c
    ridge = np.append(v / ((w**2).mean(0) + np.diag(spread)), 0.0)
    s, b, squares, count = np.einsum("ij,iab->jab", there, t), d.T @ z, float((d**2).sum()), there.sum()
    if not exact:
        gaps = np.einsum("ij,iab->jab", ~there, t)
        old = np.column_stack([w, np.zeros(n)])
        b += np.einsum("jab,jb->ja", gaps, old)
        squares += np.einsum("ja,jab,jb->", old, gaps, old) + v * (~there).sum()
        s, count = np.broadcast_to(t.sum(0), s.shape), m * n
    inverse = np.linalg.inv(s + np.diag(ridge))
    solution = np.einsum("jab,jb->ja", inverse, b)
    squares += np.einsum("ja,jab,jb->", solution, s, solution) - 2 * (solution * b).sum()
    squares += v * np.einsum("jab,jab->", inverse[:, :k, :k], s[:, :k, :k])
    moments = t.mean(0)
    center = moments[:k, k]
    root = np.linalg.cholesky(moments[:k, :k] - np.outer(center, center))
    mean = mean + solution[:, k] + solution[:, :k] @ center
    w, spread = solution[:, :k] @ root, root.T @ (v * inverse[:, :k, :k].mean(0)) @ root
    _, turn = np.linalg.eigh(w.T @ w + n * spread)
    w, spread = w @ turn, turn.T @ spread @ turn
    return RowModel(mean, w, w.T @ w, spread, np.array([squares / count]))


class Plain:
    """In place of the acceleration: what a pass makes of a model is the next one."""

    def following(self, model: RowModel, plain: RowModel) -> RowModel:
        return plain


@pytest.mark.parametrize("exact", [True, False])
def test_passes_are_rounds_of_the_reference(exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "Acceleration", Plain)
    monkeypatch.setattr(completion, "BELOW_UNCERTAINTY", 0.0)
    if not exact:
        monkeypatch.setattr(completion, "SQUARES_BYTES", 0)
    x, _ = with_gaps(400, 30)
    x[3] = np.nan
    request = Request("svd", 5, missing="em", completion_passes=4)
    plan = Completion.of(request, rf.open(x))
    assert plan.exact == exact
    key, period = plan.held_out
    held = np.zeros(x.shape, np.bool_)
    for i in range(len(x)):
        held[i] = held_out(i, key, period, np.isnan(x[i]))
    model = first_model(plan.sample, 5, 0, plan.held_out, exact=exact)
    for _ in range(4):
        model = reference_step(x, held, model, exact=exact)
    result = rf.svd(x, 5, missing="em", passes=4, tol=1e-15, threads=1, solver="gram")
    assert result.attrs["completion"]["passes"] == 4
    found = kept_model(result)
    expected = {**model._asdict(), "spread": model.spread.ravel()}
    np.testing.assert_allclose(completed_by_hand(x, found), completed_by_hand(x, expected), rtol=0, atol=1e-8)
    np.testing.assert_allclose(found["noise"], model.noise, rtol=1e-8)
    np.testing.assert_array_equal(found["missing"], np.isnan(x).sum(axis=0))


def test_both_ways_to_sum_and_the_acceleration_end_at_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    x, _ = with_gaps(300, 25, 3)
    ask: dict[str, Any] = {"missing": "em", "tol": 1e-12, "passes": 300, "threads": 1, "solver": "gram"}
    monkeypatch.setattr(completion, "BELOW_UNCERTAINTY", 0.0)
    quick = rf.svd(x, 3, **ask)
    monkeypatch.setattr(completion, "Acceleration", Plain)
    plain = rf.svd(x, 3, **ask)
    monkeypatch.setattr(completion, "SQUARES_BYTES", 0)
    shared = rf.svd(x, 3, **ask)
    passes = [each.attrs["completion"]["passes"] for each in (quick, plain, shared)]
    assert passes[0] < passes[1] < passes[2] < 300
    one = completed_by_hand(x, kept_model(quick))
    np.testing.assert_allclose(completed_by_hand(x, kept_model(plain)), one, atol=1e-8)
    # Of columns that share their squares, covariances of loadings are those of the mean column.
    np.testing.assert_allclose(completed_by_hand(x, kept_model(shared)), one, atol=0.02)


# What it is worth ---------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.3, 4.9])
def test_what_is_held_out_speaks_for_the_rows_that_miss(noise: float) -> None:
    """A quarter of the rows miss 95 % of their numbers, and their noise may be another."""
    rng = np.random.default_rng(3)
    m, n, rank = 4000, 80, 4
    hard = np.arange(m) % 4 == 0
    x = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    x += np.where(hard, noise, 0.3)[:, None] * rng.standard_normal((m, n))
    gaps = rng.random((m, n)) < np.where(hard, 0.95, 0.02)[:, None]
    seen = np.where(gaps, np.nan, x)
    result = rf.pca(seen, rank, missing="em", threads=1)
    facts = result.attrs["completion"]
    completed = completed_by_hand(seen, kept_model(result))
    error = float(np.sqrt(np.mean((completed - x)[gaps] ** 2)))
    assert facts["held_out_effective"] > 400
    assert abs(facts["held_out_error"] / error - 1) < 4 / np.sqrt(2 * facts["held_out_effective"])


def soft_impute(x: Array, held: Array) -> Float64:
    """Values at all places by soft-thresholding of singular values, of the best threshold on a grid."""
    there = ~np.isnan(x) & ~held
    mean = np.where(there, x, 0).sum(0) / there.sum(0)
    d = np.where(there, x - mean, 0.0)
    top, low, best = np.linalg.norm(d, 2), np.zeros_like(d), (np.inf, d)
    for threshold in top * np.geomspace(0.3, 0.03, 10):
        for _ in range(30):
            u, s, vt = np.linalg.svd(np.where(there, d, low), full_matrices=False)
            before, low = low, (u * np.maximum(s - threshold, 0)) @ vt
            if np.linalg.norm(low - before) <= 1e-4 * np.linalg.norm(before):
                break
        error = float(((low + mean - x)[held] ** 2).mean())
        best = min(best, (error, low + mean), key=lambda pair: pair[0])
    return best[1]


@pytest.fixture(scope="module")
def peer() -> tuple[Array, Float64, Array, Float64]:
    """A matrix with gaps, what is true, what is held out of it, and what soft-impute makes of the rest."""
    x, truth = with_gaps(700, 60, noise=0.5)
    plan = Completion.of(Request("svd", 6, missing="em", completion_passes=30), rf.open(x))
    held = np.zeros(x.shape, np.bool_)
    for i in range(len(x)):
        held[i] = held_out(i, *plan.held_out, np.isnan(x[i]))
    held &= ~np.isnan(x)
    return x, truth, held, soft_impute(x, held)


@pytest.mark.parametrize("rank", [6, 12])
def test_errors_are_near_the_noise_and_below_those_of_soft_impute(
    rank: int, peer: tuple[Array, Float64, Array, Float64]
) -> None:
    x, truth, held, low = peer
    result = rf.pca(x, rank, missing="em", threads=1)
    facts = result.attrs["completion"]
    peer_error = float(np.sqrt(((low - x)[held] ** 2).mean()))
    assert facts["held_out"] == held.sum()
    assert facts["held_out_error"] <= 1.02 * peer_error
    # What is held out has the noise of its own, and about rank / (columns that are there) of it besides.
    own = float(np.sqrt(((x - truth)[held] ** 2).mean()))
    assert own < facts["held_out_error"] < own * np.sqrt(1 + 2.5 * 6 / (0.7 * 60))
    assert facts["components"] == 6
    gaps = np.isnan(x)
    errors = (completed_by_hand(x, kept_model(result)) - truth)[gaps]
    assert np.sqrt((errors**2).mean()) < 1.02 * np.sqrt(((low - truth)[gaps] ** 2).mean())
    assert facts["converged"] and facts["passes"] <= 10


def test_the_solver_sees_the_completed_matrix() -> None:
    x, _ = with_gaps(800, 40)
    result = rf.pca(x, 4, missing="em", threads=1, tol=1e-10)
    whole = completed_by_hand(x, kept_model(result))
    np.testing.assert_allclose(result.mean, whole.mean(axis=0), atol=1e-10)
    s = np.linalg.svd(whole - whole.mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(result.singular_values, s[:4], rtol=1e-8)


@pytest.mark.parametrize("solver", ["gram", "krylov", "subspace", "sketch", "tsqr", "lanczos"])
def test_every_solver_takes_it(solver: str) -> None:
    x, _ = with_gaps(400, 30, dtype="float32")
    result = rf.svd(x, 3, missing="em", solver=solver, threads=1)
    s = np.linalg.svd(completed_by_hand(x, kept_model(result)), compute_uv=False)
    np.testing.assert_allclose(result.s, s[:3], rtol=0.1 if solver == "sketch" else 1e-4)
    assert result.attrs["passes"] > result.attrs["completion"]["passes"]


# The same bytes -----------------------------------------------------------------------------------


@pytest.fixture
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many tasks and checkpoints of little data."""
    for module in ("engine.sweep", "planning.passes"):
        monkeypatch.setattr(f"rankfold.pipeline.{module}.SEGMENT_SECONDS", 1e-5)


def stored(folder: Path, chunks: tuple[int, int] = (100, 60), dtype: str = "float64") -> str:
    return to_zarr(folder / f"x{chunks[0]}.zarr", with_gaps(dtype=dtype)[0], chunks)


@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_threads_and_memory_change_no_byte(tmp_path: Path, dtype: str) -> None:
    x = stored(tmp_path, dtype=dtype)
    how: dict[str, Any] = {"missing": "em", "tol": 1e-6}
    one = rf.pca(x, 5, **how, threads=1, memory="600MiB", out=tmp_path / "1.zarr")
    for threads in (2, 7):
        many = rf.pca(x, 5, **how, threads=threads, memory="2GiB", out=tmp_path / f"{threads}.zarr")
        assert same_bytes(one) == same_bytes(many)


@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize("share", [0.1, 0.4, 0.8])
def test_a_run_that_is_interrupted_goes_on_and_ends_with_the_same_bytes(tmp_path: Path, share: float) -> None:
    x, calls = stored(tmp_path), [0]

    def count(*_: Any) -> None:
        calls[0] += 1

    whole = rf.svd(x, 5, missing="em", threads=1, progress=count, out=tmp_path / "whole.zarr")
    left = [int(share * calls[0])]

    def interrupt(*_: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rf.svd(x, 5, missing="em", threads=1, progress=interrupt, out=tmp_path / "r.zarr")
    assert same_bytes(rf.svd(x, 5, missing="em", threads=2, out=tmp_path / "r.zarr")) == same_bytes(whole)


@pytest.mark.process
def test_worker_processes_change_no_byte(tmp_path: Path) -> None:
    x = stored(tmp_path)
    here = rf.svd(x, 5, missing="em", threads=1, out=tmp_path / "1.zarr")
    there = rf.svd(x, 5, missing="em", workers=1, threads=1, out=tmp_path / "2.zarr")
    assert same_bytes(here) == same_bytes(there)


def test_other_chunks_give_the_same_numbers(tmp_path: Path) -> None:
    one = rf.svd(stored(tmp_path), 5, missing="em", threads=1)
    two = rf.svd(stored(tmp_path, (370, 17)), 5, missing="em", threads=1)
    np.testing.assert_allclose(one.s, two.s, rtol=1e-9)
    x = with_gaps()[0]
    whole = completed_by_hand(x, kept_model(one))
    np.testing.assert_allclose(completed_by_hand(x, kept_model(two)), whole, atol=1e-8)


def test_cuts_of_rows_change_no_bit_of_what_is_completed() -> None:
    x, _ = with_gaps(200, 30)
    result = rf.svd(x, 4, missing="em", threads=1)
    prepared = open_model(result).source(x)
    whole, part = dense(prepared), np.empty((1, 30))
    for i in range(len(x)):
        prepared.read_into(part, (i, i + 1), (0, 30))
        np.testing.assert_array_equal(part[0], whole[i])
    narrow = np.empty((200, 7))
    prepared.read_into(narrow, (0, 200), (5, 12))
    np.testing.assert_array_equal(narrow, whole[:, 5:12])


# What comes after ---------------------------------------------------------------------------------


def test_new_rows_with_gaps_are_completed_by_the_model_of_the_result(tmp_path: Path) -> None:
    x, _ = with_gaps(600, 40)
    new = with_gaps(50, 40, seed=1)[0]
    new[7] = np.nan
    result = rf.pca(x, 5, missing="em", threads=1, out=tmp_path / "r.zarr")
    whole = completed_by_hand(new, kept_model(result))
    scores = rf.transform(tmp_path / "r.zarr", new, threads=1).scores
    np.testing.assert_allclose(scores, (whole - result.mean) @ result.components.T, atol=1e-9)
    checked = rf.check(tmp_path / "r.zarr", x, threads=1)
    assert checked.attrs["largest_residual"] < 1e-6 and not checked.attrs["warnings"]
    steps = rf.open(x, prepare="scale")
    scaled = rf.pca(steps, 5, missing="em", threads=1, out=tmp_path / "s.zarr")
    assert not rf.check(scaled, x, threads=1).attrs["warnings"]
    updated = rf.update(tmp_path / "r.zarr", new, threads=1, out=tmp_path / "u.zarr")
    assert set(kept_model(updated)) == set(kept_model(result))
    again = rf.transform(tmp_path / "u.zarr", new, threads=1).scores
    np.testing.assert_allclose(again, (whole - updated.mean) @ updated.components.T, atol=1e-9)
    rebuilt = rf.reconstruct(tmp_path / "r.zarr", out=tmp_path / "again.zarr", threads=1)
    assert rebuilt.shape == x.shape


def test_datasets_hold_the_model_by_columns_and_keep_units() -> None:
    xarray = pytest.importorskip("xarray")
    x, _ = with_gaps(200, 20)
    data = xarray.DataArray(x.reshape(200, 4, 5), dims=("time", "lat", "lon"), attrs={"units": "K"})
    result = rf.pca(rf.open(data, row_axes="time"), 3, missing="em", threads=1)
    dataset = result.to_xarray(data)
    loadings = dataset["prepare_1_impute_low_rank_loadings"]
    assert loadings.dims[:2] == ("lat", "lon") and loadings.shape == (4, 5, 3)
    assert dataset["mean"].attrs["units"] == "K"


@pytest.mark.parametrize("steps", ["patterson(keep_missing=True)", "mark_missing(-1), scale(ddof=0)"])
def test_genotypes_with_codes_for_what_is_missing(steps: str) -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(0.2, 0.8, (3, 80))[rng.integers(0, 3, 500)]
    calls = rng.binomial(2, p).astype(np.int8)
    gaps = rng.random(calls.shape) < 0.05
    coded = np.where(gaps, -1, calls).astype(np.int8)
    result = rf.pca(rf.open(coded, prepare=steps), 2, missing="em", threads=1)
    facts = result.attrs["completion"]
    assert facts["missing"] == gaps.sum() and facts["components"] == 2
    assert facts["held_out_error"] < 0.99 * facts["mean_error"]
    with_means = rf.pca(rf.open(coded, prepare="patterson"), 2, threads=1)
    full = rf.pca(rf.open(calls, prepare="patterson"), 2, threads=1)
    if steps.startswith("patterson"):
        errors = [abs(each.singular_values - full.singular_values).max() for each in (result, with_means)]
        assert errors[0] < errors[1]
    new = rf.transform(result, coded[:20], threads=1)
    np.testing.assert_allclose(new.scores, np.asarray(result.scores)[:20], atol=1e-4)


def test_mean_is_the_step(tmp_path: Path) -> None:
    x, _ = with_gaps(300, 20)
    one = rf.pca(x, 3, missing="mean", threads=1, out=tmp_path / "1.zarr")
    two = rf.pca(rf.open(x, prepare="impute_mean"), 3, threads=1, out=tmp_path / "2.zarr")
    assert same_bytes(one) == same_bytes(two)


# Edges --------------------------------------------------------------------------------------------


def test_nothing_missing_takes_one_pass_and_says_so() -> None:
    x = np.random.default_rng(0).standard_normal((200, 20))
    with pytest.warns(rf.RankfoldWarning, match="nothing is missing"):
        result = rf.svd(x, 3, missing="em", threads=1, solver="gram")
    assert result.attrs["completion"]["passes"] == 1
    np.testing.assert_allclose(result.s, rf.svd(x, 3, threads=1, solver="gram").s, rtol=1e-12)


def test_rows_without_a_number_are_the_mean_and_few_numbers_do_no_harm() -> None:
    x, _ = with_gaps(400, 40, 4)
    x[5] = np.nan
    x[6, 1:] = np.nan
    x[:, 3] = np.nan
    x[9, 3] = 1.5
    result = rf.pca(x, 8, missing="em", threads=1)
    assert result.attrs["completion"]["empty_rows"] == 1
    model = kept_model(result)
    whole = completed_by_hand(x, model)
    np.testing.assert_allclose(whole[5], model["mean"])
    assert np.isfinite(whole).all() and np.abs(whole).max() < 20
    assert whole[:, 3].std() < 1.0


@pytest.mark.parametrize(("rank", "n"), [(1, 1), (1, 2), (5, 5), (3, 3)])
def test_models_are_of_fewer_components_than_columns(rank: int, n: int) -> None:
    x, _ = with_gaps(100, n, 1)
    result = rf.svd(x, rank, missing="em", threads=1)
    assert kept_model(result)["loadings"].shape == (n, max(1, min(rank, n - 1)))


def test_wide_matrices_are_swept_along_their_rows() -> None:
    x, _ = with_gaps(60, 700, 3)
    result = rf.pca(x, 3, missing="em", threads=1)
    assert result.attrs["completion"]["held_out_error"] < 0.6


def test_a_column_without_numbers_is_refused_by_its_place() -> None:
    x, _ = with_gaps(100, 20)
    x[:, [4, 11]] = np.nan
    with pytest.raises(DataError, match=r"2 columns .* hold no number.*4, 11 \(from 0\).*select_columns"):
        rf.svd(x, 2, missing="em", threads=1)
    with pytest.raises(DataError, match="everything is missing"):
        rf.svd(np.full((30, 8), np.nan), 2, missing="em", threads=1)


def test_infinite_numbers_are_refused_by_their_place() -> None:
    x, _ = with_gaps(100, 20)
    x[71, 4] = np.inf
    with pytest.raises(DataError, match="1 infinite numbers, the first at row 71, column 4"):
        rf.svd(x, 2, missing="em", threads=1)


@pytest.mark.parametrize("size", [1e-160, 1e-40, 1e40, 1e170])
def test_sizes_of_numbers_do_not_matter_or_are_refused(size: float) -> None:
    x, _ = with_gaps(300, 20)
    if 1e-100 < size < 1e100:
        found, plain = (rf.svd(each, 3, missing="em", threads=1) for each in (x * size, x))
        np.testing.assert_allclose(found.s / size, plain.s, rtol=1e-9)
        return
    with pytest.raises(DataError, match="leave the range of float64"):
        rf.svd(x * size, 3, missing="em", threads=1)


def test_what_cannot_be_asked_is_refused() -> None:
    x, _ = with_gaps(100, 20)
    with pytest.raises(InputError, match="say rank="):
        rf.svd(x, tol=1e-2, missing="em")
    with pytest.raises(InputError, match="missing must be one of raise, mean, em"):
        rf.svd(x, 2, missing="drop")
    with pytest.raises(InputError, match="missing='em' of svd and pca"):
        rf.open(x, prepare="impute_low_rank(rank=3)")
    with pytest.raises(DataError, match="NaN"):
        rf.svd(x, 2, threads=1)
    with pytest.raises(TypeError, match="takes no missing"):
        rf.qr(x, missing="em")  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", ["csr", "csr group"])
def test_sparse_matrices_are_filled_in_panel_by_panel(tmp_path: Path, kind: str) -> None:
    x = np.where(np.random.default_rng(0).random((300, 20)) < 0.7, 0.0, with_gaps(300, 20, share=0.0)[0])
    x[np.random.default_rng(1).random(x.shape) < 0.05] = np.nan
    form = scipy.sparse.csr_array(x)
    found = rf.pca(to_group(tmp_path / "x.zarr", form) if kind == "csr group" else form, 2, missing="em")
    full = rf.pca(x, 2, missing="em")
    np.testing.assert_allclose(found.singular_values, full.singular_values, rtol=1e-10)
    np.testing.assert_array_equal(kept_model(found)["missing"], np.isnan(x).sum(0))


@pytest.mark.parametrize("dtype", ["uint8", "int64", "bool", "float16"])
def test_types_that_hold_no_nan_or_few_digits(dtype: str) -> None:
    x = (np.random.default_rng(0).random((300, 20)) * 9).astype(dtype)
    whole = rf.svd(x, 2, missing="em", threads=1)
    np.testing.assert_allclose(whole.s, rf.svd(x, 2, threads=1).s, rtol=1e-5)
    assert whole.attrs["completion"]["missing"] == 0


def test_precision_that_is_asked_for() -> None:
    x, _ = with_gaps(400, 30)
    wide, narrow = (rf.svd(x, 3, missing="em", precision=each) for each in ("float64", "float32"))
    np.testing.assert_allclose(narrow.s, wide.s, rtol=1e-4)


def test_outputs_are_those_that_a_task_names() -> None:
    x, _ = with_gaps(300, 20)
    made = rf.pca(x, 3, missing="em", threads=1)
    named = {each.name: each for each in PCA.task(x, rank=3, missing="em").outputs()}
    assert set(named) == set(made)
    for name, each in named.items():
        values = np.asarray(getattr(made, name)[...])
        assert (each.shape, each.dtype) == (values.shape, values.dtype), name


# A plan -------------------------------------------------------------------------------------------


def test_a_plan_tells_the_passes_that_complete() -> None:
    x, _ = with_gaps()
    plan = rf.plan("pca", x, 5, missing="em")
    names = [each.name for each in plan.passes]
    assert names[0] == "completion-01" and names.count("completion-30") == 1
    assert "up to 30 that complete it, typically 5" in str(plan)
    likely = [each.name for each in plan.likely_sweeps if each.name.startswith("completion")]
    assert len(likely) == 5 < plan.likely_passes < plan.most_passes
    few = rf.plan("pca", x, 5, missing="em", passes=3)
    assert sum(each.name.startswith("completion") for each in few.passes) == 3


SCRIPT = """
import json, sys
import rankfold as rf
r = rf.pca(sys.argv[1], 12, missing="em", passes=3, threads=2, memory=sys.argv[3], out=sys.argv[2])
last = r.run["attempts"][-1]
print(json.dumps([last["planned_bytes"], last["measured_bytes"]]))
"""


@pytest.mark.memory
def test_the_peak_is_below_the_plan(tmp_path: Path) -> None:
    x, _ = with_gaps(60_000, 300, dtype="float32")
    path = to_zarr(tmp_path / "x.zarr", x, (1000, 300))
    call = [sys.executable, "-W", "ignore", "-c", SCRIPT, path, str(tmp_path / "r.zarr"), "200MiB"]
    out = subprocess.run(call, check=True, capture_output=True, text=True).stdout
    planned, measured = json.loads(out.splitlines()[-1])
    assert measured is None or measured <= planned < x.nbytes * 4


def test_warnings_say_when_passes_were_too_few() -> None:
    x, _ = with_gaps(300, 30)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rf.svd(x, 6, missing="em", passes=2, tol=1e-9, threads=1)
    assert any("allow more with passes=" in str(each.message) for each in caught)
