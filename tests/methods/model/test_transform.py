"""New samples in the components of a result: NumPy's answer, any way they lie, after any kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import zarr
from reference import decaying, factors, same_bytes, to_zarr
from typer.testing import CliRunner

import rankfold as rf
from rankfold.methods.model.model import open_model
from rankfold.methods.model.transform import Projection
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.formats import open_source
from rankfold.workflows.cli import app

SHAPES = [(1500, 40), (40, 1500)]
OPTIONS: list[dict[str, Any]] = [{}, {"scale": True}, {"whiten": True}, {"center": False, "whiten": True}]
pytestmark = pytest.mark.filterwarnings("ignore:the largest estimated error")


def apply(result: rf.Result, x: np.ndarray) -> np.ndarray:
    """Scores in float64, from the arrays of a result alone."""
    x, weights = x.astype(np.float64), 1.0
    if result.attrs["kind"] == "svd":
        return x @ np.asarray(result.Vt, np.float64).T / result.s
    if result.attrs["request"]["whiten"]:
        weights = np.sqrt(result.attrs["input"]["shape"][0] - 1) / result.singular_values
    x = (x - result.mean) / (result.scale if "scale" in list(result) else 1.0)
    return x @ np.asarray(result.components, np.float64).T * weights


def rounding(result: rf.Result, x: np.ndarray) -> np.ndarray:
    """Bound on the error of scores of ``x``: a product of n terms, each row of its own norm, then weights."""
    eps = float(np.finfo(np.promote_types(x.dtype, open_model(result).dtype)).eps)
    row = np.linalg.norm(exact_rows(result, x), axis=1)
    return 4 * eps * np.sqrt(x.shape[1]) * row[:, None] * np.abs(weights_of(result))


def exact_rows(result: rf.Result, x: np.ndarray) -> np.ndarray:
    if result.attrs["kind"] == "svd":
        return x.astype(np.float64)
    return (x.astype(np.float64) - result.mean) / (result.scale if "scale" in list(result) else 1.0)


def weights_of(result: rf.Result) -> np.ndarray:
    return open_model(result).score_weights()


def scores_of(result: rf.Result) -> np.ndarray:
    return np.asarray((result.U if "U" in list(result) else result.scores)[...])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_new_rows_get_the_scores_of_the_formula(shape: tuple[int, int], dtype: Any) -> None:
    x, new = decaying(*shape, dtype), decaying(shape[0] + 77, shape[1], dtype)
    results = [rf.pca(x, 5, tol=1e-3, **options) for options in OPTIONS] + [rf.svd(x, 5, tol=1e-3)]
    for result in results:
        made = rf.transform(result, new)
        assert scores_of(made).dtype == dtype and made.attrs["passes"] == 1
        assert np.all(np.abs(scores_of(made) - apply(result, new)) <= rounding(result, new))
        centered, right = exact_rows(result, new), factors(result)[2]
        left = np.linalg.norm(centered - centered @ right.T @ right) / np.linalg.norm(centered)
        # Of three sums of squares, each good to eps, over twice the root; and two norms in what is expected.
        assert abs(made.attrs["relative_error"] - left) <= (1.5 / left + 2) * np.finfo(dtype).eps
        assert "transform of" in repr(made) and "in 1 pass:" in repr(made)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_was_fitted_gets_its_own_scores(shape: tuple[int, int], dtype: Any) -> None:
    x = decaying(*shape, dtype)
    for method in ("gram", "krylov"):
        for options in OPTIONS:
            result = rf.pca(x, 5, solver=method, **options)
            made, s = scores_of(rf.transform(result, x)).astype(np.float64), result.singular_values
            # Right vectors are half a step better than the scores, A'u / s for s v: A v - s u is the residual
            # A'u - s v multiplied by A / s once more. Rounding is that of the transform, and what
            # test_reduction allows a fit, 100 eps of the largest value.
            step = result.residuals * s[0] ** 2 / s + 100 * np.finfo(dtype).eps * s[0]
            bound = np.abs(weights_of(result)) * step + np.linalg.norm(rounding(result, x), axis=0)
            assert np.all(np.linalg.norm(made - result.scores, axis=0) <= bound)


def test_scikit_learn_agrees() -> None:
    from sklearn.decomposition import PCA

    x, new = decaying(800, 30), decaying(100, 30)
    for whiten in (False, True):
        theirs = PCA(4, whiten=whiten, svd_solver="full").fit(x)
        ours = rf.pca(x, 4, tol=1e-13, passes=30, whiten=whiten)
        signs = np.sign((theirs.components_ * ours.components).sum(axis=1))
        np.testing.assert_allclose(rf.transform(ours, new).scores * signs, theirs.transform(new), atol=1e-6)


def test_float32_data_far_from_zero_lose_nothing() -> None:
    rng = np.random.default_rng(0)
    x = (1e4 + rng.standard_normal((6000, 30)) * np.linspace(3, 0.3, 30)).astype(np.float32)
    result = rf.pca(x, 6, tol=1e-6, passes=20)
    new = (1e4 + rng.standard_normal((500, 30))).astype(np.float32)
    made = rf.transform(result, new)
    assert np.all(np.abs(made.scores - apply(result, new)) <= rounding(result, new))
    assert np.abs(made.scores - apply(result, new)).max() < 1e-5  # not of 1e4


@pytest.mark.parametrize("dtype", ["u1", "i2", "i8", "?", "f2", ">f4"])
def test_other_types_are_transformed_too(dtype: str) -> None:
    result = rf.pca(decaying(300, 20), 3)
    new = np.random.default_rng(1).integers(0, 100, (50, 20)).astype(dtype)
    np.testing.assert_allclose(rf.transform(result, new).scores, apply(result, new), atol=1e-10)


def test_rows_within_the_components_leave_nothing_out() -> None:
    x = decaying(500, 40)
    for dtype in (np.float64, np.float32):
        result = rf.pca(x.astype(dtype), 5)
        inside = np.random.default_rng(2).standard_normal((60, 5)) @ result.components + result.mean
        facts = rf.transform(result, inside.astype(dtype)).attrs
        assert facts["relative_error"] == pytest.approx(facts["relative_error_floor"], rel=2)
        assert facts["relative_error_floor"] == np.sqrt(np.finfo(dtype).eps)
    across = np.linalg.svd(result.components)[2][-1:] + result.mean
    assert rf.transform(result, across).attrs["relative_error"] == pytest.approx(1.0)
    assert rf.transform(rf.svd(x, 2), np.zeros((3, 40))).attrs["relative_error"] == 0


CHUNKS = [(1100, 60), (100, 60), (333, 31), (3, 60), (1100, 7)]


@pytest.mark.parametrize("kind", ["svd", "pca"])
def test_another_chunking_agrees(tmp_path: Path, kind: str) -> None:
    x = decaying(1100, 60)
    result = getattr(rf, kind)(x, 6)
    for i, chunks in enumerate(CHUNKS):
        for compressors in (None, "auto"):
            store = to_zarr(tmp_path / f"{i}.zarr", x, chunks, compressors=compressors)
            made = scores_of(rf.transform(result, store))
            np.testing.assert_allclose(made, apply(result, x), atol=rounding(result, x).max())


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> tuple[rf.Result, str, np.ndarray]:
    """Rows of 1.2 MB in chunks of whole columns, which do not split: no panel of rows is small."""
    x = np.tile(decaying(200, 2000, np.float32), (1, 75)) + np.float32(0.1)
    x[:, ::7] *= 2
    store = to_zarr(tmp_path_factory.mktemp("wide") / "x.zarr", x, (200, 2000), compressors="auto")
    return rf.pca(store, 6, tol=1e-3), store, x


def test_long_rows_are_swept_by_columns(wide: tuple[rf.Result, str, np.ndarray]) -> None:
    result, store, x = wide
    made = rf.transform(result, store)
    assert made.run["attempts"][-1]["plan"]["orientation"] == "columns"
    assert np.all(np.abs(made.scores - apply(result, x)) <= rounding(result, x))
    assert made.attrs["relative_error"] == pytest.approx(np.sqrt(1 - result.attrs["captured"]), abs=1e-4)


def test_any_number_of_threads_gives_the_same_bytes(
    tmp_path: Path, wide: tuple[rf.Result, str, np.ndarray]
) -> None:
    x = decaying(5000, 60, np.float32)
    tall = rf.pca(x, 6), to_zarr(tmp_path / "x.zarr", np.tile(x, (160, 1)), (5000, 60))
    for result, store in (tall, wide[:2]):
        made = [same_bytes(rf.transform(result, store, threads=n)) for n in (1, 2, 4)]
        made.append(same_bytes(rf.transform(result, store, threads=4, memory="256MiB")))
        assert len(set(made)) == 1
    assert rf.transform(*tall).run["attempts"][-1]["plan"]["passes"][0]["streams"] > 1


def test_an_output_chunk_has_one_writer(tmp_path: Path) -> None:
    for rows, chunk, compressors in [(50_000, 700, None), (50_000, 700, "auto"), (50_000, 50_000, "auto")]:
        x = np.ones((rows, 100), np.float32)
        source = open_source(to_zarr(tmp_path / "x.zarr", x, (chunk, 100), compressors=compressors))
        task = Projection.of(open_model(rf.svd(decaying(200, 100), 50)), source)
        fold = task.fold(tmp_path, tmp_path, 1)
        assert np.all(fold.cut.panels[:-1] % task.row_chunk() == 0)
        if compressors:
            assert np.all(fold.cut.panels[:-1] % chunk == 0)  # no chunk is decoded twice


COMMAND = """
import sys
import rankfold as rf
told = lambda name, done, total: print(name, done, flush=True)
rf.transform(sys.argv[1], sys.argv[2], out=sys.argv[3], threads=2, memory="1GiB", progress=told)
"""


@pytest.mark.slow
def test_a_killed_transform_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    x = decaying(2000, 1000, np.float32)
    rf.pca(x, 50, tol=1e-2, out=tmp_path / "fit.zarr")
    store = to_zarr(tmp_path / "x.zarr", np.tile(x, (100, 1)), (2000, 1000))
    whole = rf.transform(tmp_path / "fit.zarr", store)
    for out in ("a.zarr", "b.zarr"):
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            COMMAND,
            tmp_path / "fit.zarr",
            store,
            tmp_path / out,
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            while "transform" in (line := child.stdout.readline()) and line.split()[1] == "0":
                pass
            child.send_signal(signal.SIGKILL)
        assert not (tmp_path / out).exists() and (tmp_path / f"{out}.run").exists()
        assert same_bytes(rf.transform(tmp_path / "fit.zarr", store, out=tmp_path / out)) == same_bytes(whole)


MEASURED = """
import json, sys
import rankfold as rf
r = rf.transform(sys.argv[1], sys.argv[2], out=sys.argv[3], threads=2, memory=sys.argv[4])
last = r.run["attempts"][-1]
print(json.dumps([last["planned_bytes"], last["measured_bytes"]]))
"""


def measured(*arguments: object) -> tuple[int, int]:
    command = [sys.executable, "-W", "ignore", "-c", MEASURED, *map(str, arguments)]
    planned, peak = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    if peak is None:
        pytest.skip("this system does not report anonymous memory (RssAnon is Linux)")
    return planned, peak


@pytest.mark.memory
@pytest.mark.slow
def test_the_peak_is_planned_and_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    rf.pca(decaying(2000, 200, np.float32), 20, tol=1e-2, out=tmp_path / "fit.zarr")
    peaks = []
    for rows in (200_000, 600_000):
        store = tmp_path / f"{rows}.zarr"
        array = zarr.create_array(store, shape=(rows, 200), chunks=(4000, 200), dtype="f4", compressors=None)
        block = np.random.default_rng(0).standard_normal((4000, 200), dtype=np.float32)
        for start in range(0, rows, 4000):
            array[start : start + 4000] = block
        peaks.append(measured(tmp_path / "fit.zarr", store, tmp_path / f"{rows}-scores.zarr", "512MiB"))
    assert all(peak <= planned for planned, peak in peaks)
    assert peaks[1][0] <= 1.1 * peaks[0][0]
    assert peaks[1][1] <= 1.1 * peaks[0][1] + 8 * 2**20


@pytest.mark.memory
def test_a_wide_peak_is_planned_too(tmp_path: Path, wide: tuple[rf.Result, str, np.ndarray]) -> None:
    planned, peak = measured(wide[0].path, wide[1], tmp_path / "z.zarr", "256MiB")
    assert peak <= planned


def test_a_plan_that_does_not_fit_is_refused_with_the_numbers(tmp_path: Path) -> None:
    x = np.zeros((200_000, 100), np.float32)
    store = to_zarr(tmp_path / "x.zarr", x, (200_000, 100), compressors="auto")
    result = rf.svd(decaying(300, 100), 4)
    for memory, said in (("64MiB", r"\."), ("120MiB", ", or cut the store")):
        with pytest.raises(rf.RankfoldError, match=rf"gives {memory[:-3]} MiB. Give memory='\d+MiB'{said}"):
            rf.transform(result, store, memory=memory)
    plan = Projection.of(open_model(result), open_source(store)).plan(Budget(2**30, 2))
    assert plan.most_passes == 1 and plan.reads_bytes == x.nbytes and "transform by projection" in str(plan)


def test_bad_numbers_are_counted_and_refused(tmp_path: Path) -> None:
    new = decaying(5000, 20)
    new[17, 3], new[4000, 11], new[17, 1] = np.nan, np.inf, -np.inf
    with pytest.raises(rf.RankfoldError, match="holds 3 NaN or Inf, the first at row 17, column 1 "):
        rf.transform(rf.pca(decaying(300, 20), 3), new, out=tmp_path / "z.zarr")
    assert not list(tmp_path.iterdir())
    new[:] = 1e200
    with pytest.raises(rf.RankfoldError, match="in the units of the fit"):
        rf.transform(rf.pca(decaying(300, 20), 3), new)


@pytest.mark.parametrize("size", [1e-100, 1e100])
def test_extreme_units_neither_overflow_nor_vanish(size: float) -> None:
    x = decaying(300, 20)
    far, near = (rf.pca(a, 3, tol=1e-9, passes=20) for a in (x * size, x))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        made = rf.transform(far, x * size)
    np.testing.assert_allclose(made.scores / size, rf.transform(near, x).scores, atol=1e-3)
    assert made.attrs["relative_error"] == pytest.approx(rf.transform(near, x).attrs["relative_error"])


@pytest.mark.filterwarnings("ignore:2 ")
def test_components_without_variance_give_zero_columns() -> None:
    x = np.outer(np.arange(1.0, 61), np.ones(8))
    for result in (rf.svd(x, 3), rf.pca(x, 3, whiten=True)):
        with pytest.warns(
            rf.RankfoldWarning, match="2 components were fitted with no variance beyond rounding"
        ):
            made = rf.transform(result, x)
        assert np.all(scores_of(made)[:, 1:] == 0) and np.all(scores_of(made)[:, 0] != 0)


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    x = decaying(300, 20)
    rf.pca(x, 3, out=tmp_path / "fit.zarr")
    with pytest.raises(
        rf.RankfoldError, match=r"pca of 300 x 20\) was fitted to 20 columns, but .* is 300 x 19"
    ):
        rf.transform(tmp_path / "fit.zarr", x[:, 1:])
    with pytest.raises(
        rf.RankfoldError,
        match="is the result of transform; only results of svd, pca, nmf, kernel_pca and nystroem",
    ):
        rf.transform(rf.transform(tmp_path / "fit.zarr", x), x)
    for out in (tmp_path / "fit.zarr", tmp_path / "fit.zarr" / "z", tmp_path):
        with pytest.raises(rf.RankfoldError, match="on or around the result"):
            rf.transform(tmp_path / "fit.zarr", x, out=out, overwrite=True)
    with pytest.raises(rf.RankfoldError, match="no result at"):
        rf.transform(tmp_path / "other.zarr", x)


def test_the_same_request_is_done_and_another_fit_is_another(tmp_path: Path) -> None:
    x, out = decaying(300, 20), tmp_path / "z.zarr"
    made = rf.transform(rf.pca(x, 3), x, out=out)
    again = rf.transform(rf.pca(x, 3), x, out=out)
    assert same_bytes(made) == same_bytes(again)
    with pytest.raises(rf.RankfoldError, match="overwrite=True"):
        rf.transform(rf.pca(x, 3, whiten=True), x, out=out)
    assert rf.transform(rf.pca(x, 4), x, out=out, overwrite=True).scores.shape == (300, 4)


def test_the_command_line_does_the_same(tmp_path: Path) -> None:
    def rankfold(*arguments: object) -> Any:
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    x = decaying(300, 20)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "few.npy", x[:, :5])
    fit, out = tmp_path / "fit.zarr", tmp_path / "z.zarr"
    assert rankfold("pca", tmp_path / "x.npy", "--rank", 3, "--out", fit).exit_code == 0
    run = rankfold("transform", fit, tmp_path / "x.npy", "--out", out)
    assert run.exit_code == 0, run.output
    assert "z.zarr: done" in run.stdout and "leave out 0." in run.stdout and "peak memory" in run.stdout
    np.testing.assert_array_equal(rf.open_result(out).scores[...], rf.transform(fit, x).scores)
    again = json.loads(rankfold("transform", fit, tmp_path / "x.npy", "--out", out, "--json").stdout)
    assert again["already_done"] and again["kind"] == "transform"
    refused = rankfold("transform", fit, tmp_path / "few.npy", "--out", tmp_path / "y.zarr")
    assert refused.exit_code == 2 and "was fitted to 20 columns" in refused.stderr
    refused = rankfold("transform", fit, tmp_path / "x.npy", "--out", tmp_path / "y.zarr", "--memory", "9MiB")
    assert refused.exit_code == 3 and "--memory gives 9 MiB" in refused.stderr


@pytest.mark.parametrize("shape", [(400, 30), (30, 400), (3, 50)], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_of_nonnegative_factors_are_exact_least_squares(shape: tuple[int, int], dtype: Any) -> None:
    rng = np.random.default_rng(0)
    h = rng.gamma(0.5, size=(3, shape[1]))
    x = (rng.gamma(0.5, size=(shape[0], 3)) @ h + 0.05 * rng.random(shape)).astype(dtype)
    result = rf.nmf(x, 3)
    made = rf.transform(result, x)
    w, h = np.asarray(made.W[...], np.float64), np.asarray(result.H[...], np.float64)
    exact = np.array([scipy.optimize.nnls(h.T, row.astype(np.float64))[0] for row in x])
    eps = 100 * np.linalg.cond(h @ h.T) * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(w, exact, atol=eps * exact.max())
    left = np.linalg.norm(x - w @ h) / np.linalg.norm(x)
    assert abs(made.attrs["relative_error"] - left) <= made.attrs["relative_error_floor"] ** 2 / left * 10
    np.testing.assert_allclose(rf.reconstruct(result), result.W[...] @ result.H[...], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bound", ["simplex", 0.5])
def test_rows_with_constraints_are_the_best_ones(bound: Any) -> None:
    """Of a component a hundred times as large as others, 500 sweeps missed them by half, without a word."""
    rng = np.random.default_rng(5)
    h = rng.random((4, 30)) * np.array([[100.0], [10.0], [1.0], [1.0]])
    x = rng.dirichlet(np.ones(4), 80) @ h + 0.02 * rng.random((80, 30))
    model = rf.nmf(x, 4, constraint_W=bound, passes=3)
    w, h = rf.transform(model, x).W[...], np.asarray(model.H)
    slopes, upper = (w @ h - x) @ h.T, bound
    if bound == "simplex":  # what is above zero has one slope, for each unit of the sum, and nothing has less
        slopes, upper = slopes - (w * slopes).sum(axis=1)[:, None], np.inf
    slopes /= np.linalg.norm(h) * np.linalg.norm(x, axis=1)[:, None]
    assert slopes[w == 0].min(initial=0) >= -1e-9
    assert slopes[w == upper].max(initial=-1) <= 1e-9
    assert np.abs(slopes[(w > 0) & (w < upper)]).max() <= 1e-9


def test_rows_keep_the_constraints_and_penalties_of_a_fit() -> None:
    rng = np.random.default_rng(0)
    x = rng.gamma(0.5, size=(300, 4)) @ rng.gamma(0.5, size=(4, 30)) + 0.05 * rng.random((300, 30))
    simplex = rf.transform(rf.nmf(x, 4, constraint_W="simplex"), x).W[...]
    np.testing.assert_allclose(simplex.sum(axis=1), 1, atol=1e-12)
    assert rf.transform(rf.nmf(x, 4, constraint_W=0.5), x).W[...].max() <= 0.5
    fit = rf.nmf(x, 4, alpha_W=1e-2, l1_ratio=0.5, tol=1e-9, passes=100)
    np.testing.assert_allclose(rf.transform(fit, x).W[...], fit.W[...], atol=1e-3 * fit.W[...].max())
    with pytest.raises(rf.RankfoldError, match="Kullback-Leibler"):
        rf.transform(rf.nmf(x, 4, loss="kullback-leibler"), x)
    with pytest.raises(rf.RankfoldError, match="in no order"):
        rf.reconstruct(fit, rank=2)
    with pytest.raises(rf.RankfoldError, match="only results of svd and pca"):
        rf.check(fit, x)


@pytest.mark.parametrize("kind", ["pca", "nmf"])
def test_a_model_is_read_block_by_block(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.abs(decaying(300, 50, np.float64))
    fit = rf.pca(x, 4) if kind == "pca" else rf.nmf(x, 4, alpha_W=0.01)
    whole = rf.transform(fit, x)
    monkeypatch.setattr("rankfold.methods.model.model.BLOCK_BYTES", 4 * 8 * 7)
    parts = rf.transform(fit, x)
    assert parts.attrs["relative_error"] == pytest.approx(whole.attrs["relative_error"], rel=1e-12)
    (name,) = whole
    np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-9, atol=1e-12)
