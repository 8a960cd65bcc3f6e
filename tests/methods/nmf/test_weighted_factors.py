"""Nonnegative factors of a matrix with weights and gaps: the objective that is said, and only what counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from covers import cover
from reference import same_bytes, to_group, to_zarr

import rankfold as rf
from rankfold.methods.nmf.arguments import NMF
from rankfold.pipeline.engine.scheduler import Budget

Array = npt.NDArray[Any]

pytestmark = pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")

SHAPES = [(900, 60), (60, 900)]


def parts(shape: tuple[int, int], rank: int, noise: float = 0.05, seed: int = 0) -> Array:
    """Products of sparse parts, with noise of that share of their size."""
    rng = np.random.default_rng(seed)
    x = rng.gamma(0.5, size=(shape[0], rank)) @ rng.gamma(0.5, size=(rank, shape[1]))
    return np.asarray(x + noise * x.mean() * np.abs(rng.standard_normal(shape)))


def some_weights(shape: tuple[int, int], seed: int = 1) -> Array:
    """Numbers in 0 .. 2, a fifth of them 0."""
    rng = np.random.default_rng(seed)
    return np.asarray(2 * rng.random(shape) * (rng.random(shape) > 0.2))


def product(found: rf.Result) -> Array:
    w, h = np.asarray(found.W[...], np.float64), np.asarray(found.H[...], np.float64)
    assert w.min() >= 0 and h.min() >= 0
    return np.asarray(w @ h)


def error(x: Array, v: Array, found: rf.Result) -> float:
    """What is left, where it counts."""
    left = np.where(v > 0, v * (np.where(v > 0, x, 0) - product(found)) ** 2, 0).sum()
    return float(np.sqrt(left / (v * np.where(v > 0, x, 0) ** 2).sum()))


# The updates --------------------------------------------------------------------------------------


def improve(x: Array, v: Array, w: Array, h: Array, sweeps: int) -> None:
    """Coordinate descent of each row on the residual, from what is there."""
    for row in range(len(x)):
        for _ in range(sweeps):
            for j in range(len(h)):
                curvature = (v[row] * h[j] ** 2).sum()
                slope = (v[row] * (x[row] - w[row] @ h) * h[j]).sum()
                if curvature > 0:
                    w[row, j] = max(w[row, j] + slope / curvature, 0)


@pytest.mark.parametrize("shape", [(120, 14), (14, 120)], ids=str)
def test_iterates_are_those_of_plain_descent_on_residuals(shape: tuple[int, int]) -> None:
    x, v, rng = parts(shape, 3), some_weights(shape), np.random.default_rng(2)
    w, h = rng.random((shape[0], 3)), rng.random((3, shape[1]))
    found = rf.nmf(x, 3, weights=v, init=(w, h), tol=0, passes=3)
    turned = shape[0] < shape[1]
    a, b, short = (x.T, v.T, w.T.copy()) if turned else (x, v, h.copy())
    long = np.zeros((len(a), 3))
    for sweeps in (50, 10, 10):
        improve(a, b, long, short, sweeps)
        columns = np.ascontiguousarray(short.T)
        improve(a.T, b.T, columns, long.T, 10)
        short = columns.T
    mine = (long, short) if not turned else (short.T, long.T)
    for name, expected in zip("WH", mine, strict=True):
        bound = 1e-8 * np.abs(expected).max()
        np.testing.assert_allclose(np.asarray(getattr(found, name)[...]), expected, rtol=0, atol=bound)


@pytest.mark.parametrize(
    ("shape", "dtype", "how"),
    cover(
        SHAPES,
        [np.float64, np.float32],
        [{}, {"solver": "mu"}, {"loss": "kullback-leibler"}, {"alpha_W": 1e-3, "l1_ratio": 0.5}],
    ),
    ids=str,
)
def test_the_objective_never_rises(shape: tuple[int, int], dtype: Any, how: dict[str, Any]) -> None:
    x, v = parts(shape, 5).astype(dtype), some_weights(shape)
    for init in ("random", "compressed"):
        found = rf.nmf(x, 4, weights=v, tol=0, passes=12, init=init, **how)
        errors = np.array(found.attrs["errors"])
        slack = 1e-12 if dtype == np.float64 else 3e-6
        if "alpha_W" not in how:  # of which the penalty is part
            assert (np.diff(errors) <= slack * errors[0]).all()
        assert errors[-1] < errors[0]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_error_is_what_is_left(shape: tuple[int, int], dtype: Any) -> None:
    x, v = parts(shape, 4).astype(dtype), some_weights(shape)
    found = rf.nmf(x, 4, weights=v)
    assert found.attrs["relative_error"] == pytest.approx(error(x, v, found), rel=1e-5)
    assert found.attrs["squared_norm"] == pytest.approx((v * x.astype(float) ** 2).sum(), rel=1e-6)
    exact = parts(shape, 3, noise=0)
    left = rf.nmf(exact, 3, weights=v, tol=1e-6, passes=60)
    assert left.attrs["relative_error"] == pytest.approx(error(exact, v, left), rel=1e-6)
    assert error(exact, v, left) < 5e-3


def test_the_divergence_is_what_is_left() -> None:
    x, v = parts((600, 50), 4), some_weights((600, 50))
    found = rf.nmf(x, 4, weights=v, loss="kullback-leibler", passes=60, tol=1e-6)

    def divergence(y: Array) -> float:
        return float((v * (x * np.log(x / y) - x + y)).sum())

    rows, columns = ((v * x).sum(axis) / v.sum(axis) for axis in (1, 0))
    plain = np.outer(rows, columns) / ((v * x).sum() / v.sum())
    # What is told is from before the short factor moved, which passes have made little of by then.
    share = divergence(product(found)) / divergence(plain)
    assert share <= found.attrs["relative_error"] <= 1.001 * share


@pytest.mark.parametrize(
    "how", [{}, {"loss": "kullback-leibler"}, {"alpha_W": 1e-3}, {"alpha_H": 1e-2, "alpha_W": 0.0}], ids=str
)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_weights_of_one_are_no_weights(shape: tuple[int, int], how: dict[str, Any]) -> None:
    x = parts(shape, 5)
    init = np.random.default_rng(0).random((shape[0], 5)), np.random.default_rng(1).random((5, shape[1]))
    plain = rf.nmf(x, 5, tol=0, passes=10, init=init, **how)
    for value in (1.0, 0.25) if not any("alpha" in name for name in how) else (1.0,):
        weighted = rf.nmf(x, 5, tol=0, passes=10, init=init, weights=np.full(shape, value), **how)
        np.testing.assert_allclose(weighted.attrs["errors"], plain.attrs["errors"], rtol=1e-7)
        np.testing.assert_allclose(product(weighted), product(plain), rtol=0, atol=1e-6 * x.max())


# Gaps ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3000, 80), (80, 3000)], ids=str)
def test_what_is_missing_is_recovered(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    clean = parts(shape, 5, 0)
    spread = 0.02 * clean.mean()
    x, gaps = np.maximum(clean + spread * rng.standard_normal(shape), 0), rng.random(shape) < 0.3
    found = rf.nmf(np.where(gaps, np.nan, x), 5, missing="ignore")
    left = x - product(found)
    seen, held = (float(np.sqrt((left[part] ** 2).mean())) for part in (~gaps, gaps))
    # Of 80 numbers of a row some 56 are known, from which 5 of a factor are solved: twice their share.
    assert seen < spread and held < (1 + 2 * 5 / 56) * spread
    assert found.attrs["passes"] <= 6


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("how", [{}, {"solver": "mu"}, {"loss": "kullback-leibler"}], ids=str)
def test_what_counts_nothing_is_not_looked_at(shape: tuple[int, int], how: dict[str, Any]) -> None:
    x, v = parts(shape, 3), some_weights(shape)
    idle = v == 0
    results = [
        rf.nmf(np.where(idle, mark, x), 3, weights=v, passes=6, **how)
        for mark in (0.0, np.nan, -9999, 7, np.inf)
    ]
    for other in results[1:]:
        assert np.array_equal(other.W[...], results[0].W[...]) and np.array_equal(other.H, results[0].H)
    mask = (~idle).astype(np.uint8)
    gaps = rf.nmf(np.where(idle, np.nan, x), 3, missing="ignore", passes=6, **how)
    masked = rf.nmf(x, 3, weights=mask, passes=6, **how)
    assert np.array_equal(gaps.W[...], masked.W[...]) and np.array_equal(gaps.H, masked.H)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("how", [{}, {"solver": "mu"}, {"loss": "kullback-leibler"}], ids=str)
def test_rows_and_columns_of_which_nothing_counts_are_zero_and_said(
    shape: tuple[int, int], how: dict[str, Any]
) -> None:
    x, v = parts(shape, 3), some_weights(shape)
    v[[4, 9]], v[:, 7] = 0, 0
    for init in ("compressed", "random", (np.ones((shape[0], 3)), np.ones((3, shape[1])))):
        found = rf.nmf(x, 3, weights=v, passes=4, init=init, **how)
        w, h = np.asarray(found.W[...]), np.asarray(found.H[...])
        assert not w[[4, 9]].any() and not h[:, 7].any()
        assert w[5].any() and h[:, 8].any()
        said = " ".join(found.attrs["warnings"])
        assert "nothing counts in 2 of the rows" in said and "in 1 of the columns" in said


# Rows ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_weights_of_rows_are_a_matrix_of_rank_one(shape: tuple[int, int], loss: str) -> None:
    x, r = parts(shape, 4), np.random.default_rng(4).random(shape[0]) * 3
    r[3] = 0
    x[3, 2] = np.nan
    v = np.repeat(r[:, None], shape[1], 1)
    by_rows = rf.nmf(x, 4, row_weights=r, loss=loss, tol=1e-6, passes=80)
    whole = rf.nmf(x, 4, weights=v, loss=loss, tol=1e-6, passes=80)
    assert error(x, v, by_rows) == pytest.approx(error(x, v, whole), rel=0.03)
    assert not np.asarray(by_rows.W[3]).any() and "1 rows are of weight zero" in by_rows.attrs["warnings"][0]
    if loss == "frobenius":
        assert by_rows.attrs["relative_error"] == pytest.approx(error(x, v, by_rows), rel=1e-6)
    both = rf.nmf(x, 4, row_weights=r, weights=some_weights(shape), tol=1e-6, passes=80)
    assert both.attrs["relative_error"] == pytest.approx(error(x, v * some_weights(shape), both), rel=1e-5)


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_weights_of_rows_of_a_sparse_matrix(kind: str) -> None:
    x = scipy.sparse.random_array((2000, 80), density=0.05, rng=1, format=kind)
    r = np.random.default_rng(0).random(2000).astype(np.float32)
    sparse, dense = (rf.nmf(each, 4, row_weights=r, tol=1e-5, passes=40) for each in (x, x.toarray()))
    v = np.repeat(r[:, None].astype(float), 80, 1)
    assert sparse.attrs["relative_error"] == pytest.approx(error(x.toarray(), v, sparse), rel=1e-5)
    assert sparse.attrs["relative_error"] == pytest.approx(dense.attrs["relative_error"], rel=1e-2)


def test_steps_of_the_matrix_are_kept_beside_weights_of_rows(tmp_path: Path) -> None:
    counts = np.random.default_rng(0).poisson(20 * parts((500, 40), 3)).astype(np.int32)
    prepared, r = rf.open(counts, prepare="sqrt"), np.random.default_rng(1).random(500)
    found = rf.nmf(prepared, 3, row_weights=r, tol=1e-5)
    assert found.attrs["input"]["prepare"] and found.attrs["input"]["dtype"] == "float64"
    again = rf.transform(found, counts)
    np.testing.assert_allclose(again.W[...], rf.transform(found, prepared).W[...])
    v = np.repeat(r[:, None], 40, 1)
    assert error(np.sqrt(counts), v, found) == pytest.approx(found.attrs["relative_error"], rel=1e-6)


# Runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(40_000, 40), (40, 40_000)], ids=str)
def test_threads_and_memory_change_no_byte_of_weighted_factors(shape: tuple[int, int]) -> None:
    x, v = parts(shape, 3).astype(np.float32), some_weights(shape).astype(np.float32)
    runs = ((1, "1GiB"), (2, "1GiB"), (7, "300MiB"))
    for how in ({"weights": v}, {"weights": v, "solver": "mu"}, {"row_weights": v[:, 0]}):
        results = [
            rf.nmf(x, 3, threads=threads, memory=memory, passes=4, **how)  # type: ignore[arg-type]
            for threads, memory in runs
        ]
        assert len({same_bytes(result) for result in results}) == 1


@pytest.mark.parametrize("shape", [(3000, 60), (60, 3000)], ids=str)
def test_chunks_and_types_of_weights_change_rounding_alone(tmp_path: Path, shape: tuple[int, int]) -> None:
    x, v = parts(shape, 4), (16 * some_weights(shape)).astype(np.uint8)
    here = rf.nmf(x, 4, weights=v, passes=4)
    for i, (mine, theirs) in enumerate(
        (((100, 60), (300, 60)), ((333, 7), (100, 13)), ((500, 10), (701, 60)))
    ):
        paths = to_zarr(tmp_path / f"x{i}.zarr", x, mine), to_zarr(tmp_path / f"v{i}.zarr", v, theirs)
        for weights in (paths[1], v.astype(np.float64), v.astype(np.float32)):
            there = rf.nmf(paths[0], 4, weights=weights, passes=4)
            for name in "WH":
                mine_, other = (np.asarray(getattr(each, name)[...]) for each in (here, there))
                np.testing.assert_allclose(other, mine_, atol=1e-7 * np.abs(mine_).max())


@pytest.mark.parametrize(
    "make", [np.uint8, np.int16, np.bool_, np.float16, np.int64], ids=lambda m: m.__name__
)
def test_narrow_types_are_weighted_as_they_are(make: Any) -> None:
    x = np.minimum(20 * parts((600, 40), 3), 120)
    x = (x if make != np.bool_ else x > x.mean()).astype(make)
    v = some_weights(x.shape)
    wide = rf.nmf(x.astype(np.float64), 3, weights=v)
    assert error(x.astype(float), v, rf.nmf(x, 3, weights=v)) == pytest.approx(
        error(x.astype(float), v, wide), rel=1e-3
    )


@pytest.mark.parametrize("size", [2.0**-50, 2.0**50])
@pytest.mark.parametrize("how", [{}, {"solver": "mu"}, {"loss": "kullback-leibler"}], ids=str)
def test_units_change_no_weighted_error(size: float, how: dict[str, Any]) -> None:
    x, v = parts((900, 50), 4).astype(np.float32), some_weights((900, 50)).astype(np.float32)
    here, there = (rf.nmf(x * np.float32(unit), 4, weights=v, passes=6, **how) for unit in (1, size))
    assert there.attrs["relative_error"] == pytest.approx(here.attrs["relative_error"], rel=1e-6)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_weights_may_be_sparse(tmp_path: Path, shape: tuple[int, int]) -> None:
    x, v = parts(shape, 3), some_weights(shape) * (parts(shape, 3, seed=5) > 0.5)
    mine, other = ("csr", "csc") if shape[0] > shape[1] else ("csc", "csr")
    stored = {
        kind: to_group(tmp_path / kind, scipy.sparse.csr_array(v).asformat(kind)) for kind in (mine, other)
    }
    sparse = rf.nmf(x, 3, weights=stored[mine], passes=4)
    dense = rf.nmf(x, 3, weights=v, passes=4)
    assert np.array_equal(sparse.W[...], dense.W[...]) and np.array_equal(sparse.H, dense.H)
    with pytest.raises(rf.RankfoldError, match=f"store them as {mine.upper()}, or dense"):
        rf.nmf(x, 3, weights=stored[other])


def test_tall_chunks_are_told_where_they_do_not_fit(tmp_path: Path) -> None:
    x, v = np.ones((400_000, 50), np.float32), np.ones((400_000, 50), np.float32)
    store = to_zarr(tmp_path / "v.zarr", v, (400_000, 50), compressors="auto")
    with pytest.raises(rf.RankfoldError, match="panels of 400000 rows, and `rankfold import"):
        rf.plan("nmf", x, 4, weights=store, memory="120MiB")


def test_the_plan_of_weighted_factors_holds(tmp_path: Path) -> None:
    shape = (200_000, 100)
    x, v = parts(shape, 8).astype(np.float32), some_weights(shape).astype(np.float32)
    x_path = to_zarr(tmp_path / "x.zarr", x, (10_000, 100))
    v_path = to_zarr(tmp_path / "v.zarr", v, (5_000, 100))
    for how in ({"weights": v_path}, {"weights": v_path, "loss": "kullback-leibler"}, {"missing": "ignore"}):
        planned = rf.plan("nmf", x_path, 8, memory="256MiB", passes=4, **how)
        found = rf.nmf(
            x_path, 8, memory="256MiB", passes=4, out=tmp_path / f"{len(how)}r.zarr", overwrite=True, **how
        )  # type: ignore[arg-type]
        last = found.run["attempts"][-1]
        assert planned.peak_bytes <= 256 * 2**20 and found.attrs["passes"] <= planned.most_passes
        assert last["measured_bytes"] is None or last["measured_bytes"] <= last["planned_bytes"]
        reads = {each.reads_bytes for each in planned.passes if each.over == "matrix"}
        assert reads == {x.nbytes + ("weights" in how) * v.nbytes}
    with pytest.raises(rf.RankfoldError, match="solver='mu'"):
        rf.plan("nmf", np.zeros((20_000, 8000), np.float32), 100, missing="ignore", memory="400MiB")
    rf.plan("nmf", np.zeros((20_000, 8000), np.float32), 100, missing="ignore", solver="mu", memory="400MiB")


def test_another_request_is_told_from_it(tmp_path: Path) -> None:
    x, v = parts((300, 20), 3), some_weights((300, 20))
    where = {"out": tmp_path / "r.zarr"}
    first = rf.nmf(x, 3, weights=v, **where)
    assert rf.nmf(x, 3, weights=v, **where).attrs == first.attrs
    with pytest.raises(rf.RankfoldError, match="contents of weights"):
        rf.nmf(x, 3, weights=v + 1, **where)
    with pytest.raises(rf.RankfoldError, match=r"missing \(none there, ignore now\)"):
        rf.nmf(x, 3, weights=v, missing="ignore", **where)
    with pytest.raises(rf.RankfoldError, match="contents of row_weights"):
        rf.nmf(x, 3, weights=v, row_weights=v[:, 0], **where)


def test_weights_that_cannot_be_are_refused(tmp_path: Path) -> None:
    x, v = parts((300, 20), 3), some_weights((300, 20))
    sparse = scipy.sparse.csr_array(x)
    for options, message in (
        ({"weights": v[:, :5]}, r"weights .* are 300 x 5, but .* is 300 x 20"),
        ({"weights": v.T}, "give one weight for each entry"),
        ({"weights": v, "solver": "bpp"}, "solver bpp takes no weights: take hals or mu"),
        ({"weights": v, "constraint_W": "simplex"}, "constraints take no weights"),
        ({"missing": "ignore", "solver": "admm"}, "solver admm takes no missing='ignore'"),
        ({"missing": "mean"}, "missing must be one of raise, ignore, not 'mean'"),
        ({"weights": np.zeros_like(x)}, "no entry of .* counts"),
        ({"weights": v, "grad_tol": 0.1, "solver": "mu"}, "grad_tol with weights is for solver hals"),
        ({"weights": v, "sample_weight": v[:, 0]}, "say row_weights="),
        ({"row_weights": np.ones(300), "init": (np.ones((300, 3)), np.ones((3, 20)))}, "leave out init"),
        ({"row_weights": np.ones(20)}, "row_weights are 20 x 1, but .* has 300 rows"),
        ({"row_weights": np.ones(300), "alpha_W": 0.1}, "neither penalties nor constraints"),
        ({"row_weights": np.zeros(300)}, "all rows are of weight zero"),
    ):
        with pytest.raises(rf.RankfoldError, match=message):
            rf.nmf(x, 3, out=tmp_path / "n.zarr", **options)
    for options in ({"weights": v}, {"missing": "ignore"}):
        with pytest.raises(rf.RankfoldError, match="is sparse"):
            rf.nmf(sparse, 3, **options)
    for bad in (-1.0, np.nan, np.inf):
        wrong, rows = v.copy(), np.ones(300)
        wrong[7, 3], rows[9] = bad, bad
        with pytest.raises(rf.RankfoldError, match=r"1 weights in .* first at row 7, column 3"):
            rf.nmf(x, 3, weights=wrong, out=tmp_path / "n.zarr")
        with pytest.raises(rf.RankfoldError, match="the weight of row 9"):
            rf.nmf(x, 3, row_weights=rows, out=tmp_path / "n.zarr")
    v[7, 3] = 1
    for bad, message in ((-1.0, "1 negative numbers"), (np.inf, "1 NaN or Inf")):
        wrong = x.copy()
        wrong[7, 3] = bad
        for missing in ("raise", "ignore"):
            with pytest.raises(rf.RankfoldError, match=f"{message}, the first at row 7, column 3"):
                rf.nmf(wrong, 3, weights=v, missing=missing, out=tmp_path / "n.zarr")
    assert not (tmp_path / "n.zarr").exists()


def test_new_rows_are_solved_in_weighted_factors() -> None:
    x, v = parts((600, 40), 4, noise=0.01), some_weights((600, 40))
    for how in ({"weights": v}, {"missing": "ignore"}, {"row_weights": v[:, 0]}):
        found = rf.nmf(x[:500], 4, tol=1e-5, **{k: w if k == "missing" else w[:500] for k, w in how.items()})
        rows = rf.transform(found, x[500:])
        assert rows.attrs["relative_error"] < 0.02
    gaps = np.where(v == 0, np.nan, x)
    with pytest.raises(rf.RankfoldError, match="NaN or Inf, the first at"):
        rf.transform(found, gaps)


def test_a_device_is_refused() -> None:
    task = NMF.task(parts((300, 20), 3), rank=3, missing="ignore")
    with pytest.raises(rf.RankfoldError, match="no code for a GPU"):
        task.plan(Budget(2**30, 1, gpus=1))


# Other faces --------------------------------------------------------------------------------------


def test_the_command_line_takes_weights(tmp_path: Path) -> None:
    x, v = parts((300, 20), 3), some_weights((300, 20))
    x[v < 0.1] = np.nan
    for name, values in (("x", x), ("v", v), ("r", v[:, :1])):
        to_zarr(tmp_path / f"{name}.zarr", values, (100, values.shape[1]))
    options = ["--weights", "v.zarr", "--missing", "ignore", "--row-weights", "r.zarr", "--rank", "3"]
    call = [sys.executable, "-m", "rankfold"]
    done = subprocess.run(
        [*call, "nmf", "x.zarr", *options, "--out", "f.zarr", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    here = rf.nmf(x, 3, weights=v, missing="ignore", row_weights=v[:, 0])
    assert json.loads(done.stdout)["relative_error"] == pytest.approx(here.attrs["relative_error"], rel=1e-9)
    planned = subprocess.run(
        [*call, "plan", "nmf", "x.zarr", *options, "--json"], cwd=tmp_path, capture_output=True, text=True
    )
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["most_passes"] == 25


FLOW = """\
workflow: gaps
outputs: results
profile: local
inputs:
  x: {store: x.zarr}
  v: {store: v.zarr}
stages:
  factors:
    method: nmf
    input: x
    weights: v
    missing: ignore
    rank: 3
    seed: 5
"""


def test_a_workflow_takes_weights(tmp_path: Path) -> None:
    x, v = parts((300, 20), 3), some_weights((300, 20))
    for name, values in (("x", x), ("v", v)):
        to_zarr(tmp_path / f"{name}.zarr", values, (100, values.shape[1]))
    (tmp_path / "flow.yaml").write_text(FLOW)
    done = subprocess.run(
        [sys.executable, "-m", "rankfold", "run", "flow.yaml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (made,) = tmp_path.rglob("factors.zarr")
    here = rf.nmf(x, 3, weights=v, missing="ignore", seed=5)
    np.testing.assert_allclose(rf.open_result(made).H, here.H, atol=1e-9 * np.abs(here.H).max())


# Units and types ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")
@pytest.mark.parametrize("unit", [1e-100, 1e-60, 1e60, 1e100])
@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_factors_do_not_depend_on_the_unit_of_row_weights(unit: float, loss: str) -> None:
    rng = np.random.default_rng(0)
    x = (rng.random((200, 4)) @ rng.random((4, 30)) + 0.01).astype(np.float32)
    weights = rng.uniform(0.5, 2, 200)
    one, other = (rf.nmf(x, 4, loss=loss, row_weights=weights * each) for each in (1.0, unit))
    product = np.asarray(one.W) @ np.asarray(one.H)
    np.testing.assert_allclose(np.asarray(other.W) @ np.asarray(other.H), product, rtol=2e-2, atol=1e-3)


def test_rows_of_weights_that_no_number_holds_are_counted_as_zero() -> None:
    rng = np.random.default_rng(0)
    x, weights = (rng.random((200, 4)) @ rng.random((4, 30))).astype(np.float32), np.ones(200)
    weights[:5] = 1e-90
    with pytest.warns(rf.RankfoldWarning, match="5 rows are of weight zero, or of one too small"):
        found = rf.nmf(x, 4, row_weights=weights)
    w = np.asarray(found.W)
    assert not w[:5].any() and np.isfinite(w).all()


@pytest.mark.parametrize("unit", [1e-43, 1e50])
def test_weights_out_of_the_range_of_products_are_refused(unit: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.random((60, 20)).astype(np.float32)
    with pytest.raises(rf.RankfoldError, match="out of the range that products in float32 bear"):
        rf.nmf(x, 3, weights=np.ones(x.shape) * unit)


def test_complex_weights_and_starts_are_refused() -> None:
    x = np.random.default_rng(0).random((60, 20))
    start = np.ones((60, 3)) + 1j, np.ones((3, 20))
    asked: tuple[dict[str, Any], ...] = (
        {"weights": np.ones(x.shape) + 1j},
        {"row_weights": np.ones(60) + 1j},
        {"init": start},
    )
    for each in asked:
        with pytest.raises(rf.RankfoldError, match="must be real"):
            rf.nmf(x, 3, **each)
