"""Where nmf starts, why it stops, how it goes on after a kill, and what it refuses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from covers import cover, spread
from reference import same_bytes, to_zarr
from test_nonnegative import parts

import rankfold as rf
from rankfold.methods.nmf import nmf as nonnegative
from rankfold.methods.nmf import start as nonnegative_start

Array = npt.NDArray[Any]

quiet = pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")
TALL_AND_WIDE = [pytest.param((300, 40), id="tall"), pytest.param((40, 300), id="wide")]
SHAPES = pytest.mark.parametrize("shape", TALL_AND_WIDE)
METHODS: dict[str, dict[str, Any]] = {
    "hals": {"solver": "hals"},
    "bpp": {"solver": "bpp"},
    "mu": {"solver": "mu"},
    "admm": {"solver": "admm"},
    "simplex": {"constraint_W": "simplex"},
    "box": {"constraint_H": 0.5},
    "divergence": {"loss": "kullback-leibler"},
}


def relative(x: Array, found: rf.Result) -> float:
    w, h = np.asarray(found.W[...], np.float64), np.asarray(found.H[...], np.float64)
    assert np.isfinite(w).all() and np.isfinite(h).all() and w.min() >= 0 and h.min() >= 0
    return float(np.linalg.norm(x - w @ h) / np.linalg.norm(x))


@pytest.fixture
def on_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed matrices that are swept on scratch, however small."""
    monkeypatch.setattr(nonnegative_start, "SMALL_BYTES", 0)
    monkeypatch.setattr(nonnegative, "SMALL_BYTES", 0)


@quiet
@SHAPES
def test_every_start_ends_near_the_same(shape: tuple[int, int]) -> None:
    x = parts(*shape, 3, noise=0.3)
    errors = [
        rf.nmf(x, 3, init=init, tol=0, passes=20).attrs["relative_error"]
        for init in ("compressed", "nndsvd", "rows", "random")
    ]
    assert max(errors) <= 1.01 * min(errors)


@quiet
@SHAPES
def test_singular_vectors_give_the_part_that_weighs_more(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a matrix that a block holds whole, the short factor is that of the dense decomposition."""
    starts: list[Array] = []

    def noted(*arguments: Any) -> Array:
        starts.append(nonnegative_start.singular_short(*arguments))
        return starts[-1]

    monkeypatch.setattr(nonnegative, "singular_short", noted)
    x = parts(*shape, 3, noise=0.0)
    rf.nmf(x, 3, init="nndsvd", passes=2)
    u, _, v = np.linalg.svd(x if shape[0] > shape[1] else x.T, full_matrices=False)
    for j, found in enumerate(starts[0]):
        sides = [(np.maximum(sign * u[:, j], 0), np.maximum(sign * v[j], 0)) for sign in (1, -1)]
        part = max(sides, key=lambda side: float(np.linalg.norm(side[0]) * np.linalg.norm(side[1])))[1]
        np.testing.assert_allclose(found / np.linalg.norm(found), part / np.linalg.norm(part), atol=1e-6)


@quiet
@pytest.mark.parametrize(
    ("method", "shape"), [("hals", (300, 40)), *((method, (40, 300)) for method in METHODS)]
)
def test_factors_given_are_gone_on_from(tmp_path: Path, method: str, shape: tuple[int, int]) -> None:
    x = parts(*shape, 3, noise=0.3)
    stored = rf.nmf(x, 3, init="random", passes=4, tol=0, out=tmp_path / "r.zarr", **METHODS[method])
    given = (np.asarray(stored.W[...]), np.asarray(stored.H[...]))
    stages = [rf.nmf(x, 3, init=init, passes=2, tol=0, **METHODS[method]) for init in (given, stored)]
    stages.append(rf.nmf(x, 3, init=str(tmp_path / "r.zarr"), passes=2, tol=0, **METHODS[method]))
    stages.append(rf.nmf(x, 3, init=tmp_path / "r.zarr", passes=2, tol=0, **METHODS[method]))
    assert len({same_bytes(found) for found in stages}) == 1
    # Multiplicative updates start from rows kept from zero: a step back of less than that.
    assert stages[0].attrs["relative_error"] <= 1.02 * stored.attrs["relative_error"]


@quiet
def test_lists_are_factors_too() -> None:
    x = parts(30, 10, 2)
    w, h = np.ones((30, 2)).tolist(), np.random.default_rng(0).random((2, 10)).tolist()
    found = rf.nmf(x, 2, init=(w, h))
    assert same_bytes(found) == same_bytes(rf.nmf(x, 2, init=(np.array(w), np.array(h))))


@quiet
@pytest.mark.parametrize("init", ["rows", "nndsvd"])
def test_components_that_a_start_leaves_empty_come_alive(init: str) -> None:
    rng = np.random.default_rng(4)
    x = np.zeros((2000, 30))
    kept = rng.choice(2000, 60, replace=False)
    x[kept] = rng.gamma(0.5, size=(60, 3)) @ rng.gamma(0.5, size=(3, 30))
    found = rf.nmf(x, 4, init=init, tol=0, passes=30)  # rank 3, and rows that a sample hardly sees
    assert relative(x, found) <= 0.02
    assert np.linalg.norm(found.H[...], axis=1).min() > 0


@quiet
@pytest.mark.parametrize(
    ("shape", "penalty", "dtype"),
    cover(
        TALL_AND_WIDE,
        [pytest.param({}, id="plain"), pytest.param({"alpha_W": 0.01, "l1_ratio": 0.5}, id="penalized")],
        [np.float64, np.float32],
    ),
)
def test_sweeps_over_scratch_find_what_memory_does(
    request: pytest.FixtureRequest, dtype: Any, penalty: dict[str, Any], shape: tuple[int, int]
) -> None:
    shape = (shape[0] * 8, shape[1]) if shape[0] > shape[1] else (shape[0], shape[1] * 8)
    x = parts(*shape, 3, dtype)
    here = rf.nmf(x, 3, **penalty)
    request.getfixturevalue("on_scratch")
    there = rf.nmf(x, 3, **penalty)
    assert there.attrs["compressed_iterations"] > 2
    assert there.attrs["cost"] == pytest.approx(here.attrs["cost"], rel=1e-3)
    assert relative(x, there) == pytest.approx(relative(x, here), rel=1e-3)


@quiet
@pytest.mark.parametrize(
    ("method", "moment"),
    [
        *(("hals", moment) for moment in ("compressed-002", "iteration-02", "iteration-03", "rows")),
        *((method, "iteration-03") for method in ("mu", "admm", "divergence")),
    ],
)
def test_a_run_over_scratch_that_is_killed_ends_the_same(
    on_scratch: None, tmp_path: Path, moment: str, method: str
) -> None:
    x = parts(2500, 30, 3, noise=0.3)
    asked = {"tol": 1e-6, "passes": 5, **METHODS[method]}
    whole = rf.nmf(x, 3, out=tmp_path / "whole.zarr", **asked)

    def stop(name: str, done: int, rows: int) -> None:
        if name == moment and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rf.nmf(x, 3, out=tmp_path / "cut.zarr", progress=stop, **asked)
    assert same_bytes(rf.nmf(x, 3, out=tmp_path / "cut.zarr", **asked)) == same_bytes(whole)
    assert not [file for _, _, files in os.walk(tmp_path) for file in files if file.endswith(".bin")]


@quiet
@pytest.mark.parametrize(
    ("method", "init"), [("hals", "nndsvd"), ("bpp", "rows"), *((method, "compressed") for method in METHODS)]
)
def test_a_run_that_is_killed_ends_the_same(tmp_path: Path, method: str, init: str) -> None:
    x = parts(40, 2500, 3, np.float32, noise=0.3)
    asked = {"tol": 1e-6, "passes": 5, "init": init, **METHODS[method]}
    whole = rf.nmf(x, 3, out=tmp_path / "whole.zarr", **asked)
    last = f"iteration-{whole.attrs['passes']:02d}"

    def stop(name: str, done: int, rows: int) -> None:
        if name == last and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rf.nmf(x, 3, out=tmp_path / "cut.zarr", progress=stop, **asked)
    assert same_bytes(rf.nmf(x, 3, out=tmp_path / "cut.zarr", **asked)) == same_bytes(whole)


@quiet
@pytest.mark.parametrize("method", spread(2, ["bpp", "mu", "simplex", "divergence"]))
def test_threads_change_no_byte(method: str) -> None:
    x = parts(60_000, 40, 3, np.float32)
    asked = {"passes": 4, **METHODS[method]}
    assert len({same_bytes(rf.nmf(x, 3, threads=threads, **asked)) for threads in (1, 2, 4)}) == 1


@quiet
def test_threads_change_no_byte_on_scratch(on_scratch: None) -> None:
    x = parts(60_000, 40, 3, np.float32)
    assert len({same_bytes(rf.nmf(x, 3, threads=threads)) for threads in (1, 2, 4)}) == 1


@quiet
@pytest.mark.slow
@pytest.mark.parametrize("method", ["mu", "box", "divergence"])
def test_processes_change_no_byte(tmp_path: Path, method: str) -> None:
    store = to_zarr(tmp_path / "x.zarr", parts(60_000, 40, 3, np.float32), (5000, 40))
    asked = {"passes": 4, **METHODS[method]}
    here = rf.nmf(store, 3, threads=1, out=tmp_path / "here.zarr", **asked)
    there = rf.nmf(store, 3, workers=2, threads=1, out=tmp_path / "there.zarr", **asked)
    assert same_bytes(here) == same_bytes(there)


def test_passes_end_for_the_reason_that_is_told() -> None:
    x = parts(300, 40, 3, noise=0.3)

    def told(x: Array, **options: Any) -> tuple[str, bool, int]:
        attrs = rf.nmf(x, 3, **options).attrs
        warned = any("may still fall" in w or "still fell" in w for w in attrs["warnings"])
        assert attrs["converged"] is not warned
        return attrs["stopped"], attrs["converged"], attrs["passes"]

    assert told(x)[:2] == ("tol", True)
    assert told(x, tol=0, grad_tol=0.01, init="random", passes=50)[:2] == ("grad_tol", True)
    assert told(np.zeros((20, 5)))[:2] == ("exact", True)
    with pytest.warns(rf.RankfoldWarning, match=r"still fell by .* after 4 passes.*passes="):
        assert told(x, tol=0, init="random", passes=4) == ("passes", False, 4)
    with pytest.warns(rf.RankfoldWarning, match=r"may still fall after 1 passes.*time_limit="):
        assert told(x, tol=0, init="random", time_limit=1e-9) == ("time_limit", False, 1)


@quiet
def test_a_gradient_that_is_reached_ends_passes() -> None:
    x = parts(300, 40, 3, noise=0.3)
    found = rf.nmf(x, 3, tol=0, grad_tol=0.01, init="random", passes=50)
    assert found.attrs["stationarity"] <= 0.01
    before = rf.nmf(x, 3, tol=0, init="random", passes=found.attrs["passes"] - 1)
    assert before.attrs["stationarity"] > 0.01


@quiet
@pytest.mark.parametrize(
    ("method", "init"),
    [*((method, "compressed") for method in METHODS), ("hals", "nndsvd"), ("bpp", "rows"), ("mu", "random")],
)
def test_the_least_matrices_are_defined(method: str, init: str) -> None:
    asked = {"init": init, "passes": 8, **METHODS[method]}
    nothing = rf.nmf(np.zeros((30, 8)), 3, **asked)
    w, h = nothing.W[...], nothing.H[...]
    assert nothing.attrs["relative_error"] == 0 or method == "simplex"
    assert np.abs(w @ h).max() <= 1e-12 and np.isfinite(w).all() and np.isfinite(h).all()
    if method in ("simplex", "box"):
        return
    rng = np.random.default_rng(0)
    for shape in ((1, 1), (20, 1), (1, 20)):
        x = rng.random(shape)
        assert relative(x, rf.nmf(x, 1, **asked)) <= 1e-10
    x = rng.random((6, 6))
    assert relative(x, rf.nmf(x, 6, **asked)) <= 0.15  # the rank is that of the matrix


def test_what_nobody_can_mean_is_refused() -> None:
    x, ones = parts(30, 8, 3), (np.ones((30, 3)), np.ones((3, 8)))
    for options, message in (
        ({"solver": "newton"}, "solver must be one of auto, hals, bpp, mu, admm, not 'newton'"),
        ({"init": "svd"}, "init 'svd' is not known"),
        ({"init": "custom"}, r"give the factors, init=\(W, H\)"),
        ({"loss": "itakura-saito"}, "loss must be one of frobenius"),
        ({"loss": "kullback-leibler", "solver": "hals"}, "solver hals is for the Frobenius loss: take mu"),
        ({"loss": "kullback-leibler", "grad_tol": 0.1}, "grad_tol is for the Frobenius loss"),
        ({"constraint_W": "simplex", "solver": "hals"}, "constraints are for solver admm"),
        ({"constraint_H": 1.0, "loss": "kullback-leibler"}, "constraints are for solver admm"),
        ({"constraint_H": "sphere"}, "constraint_H must be 'nonnegative', 'simplex', or the largest"),
        ({"constraint_W": -1.0}, "constraint_W must be"),
        ({"constraint_W": np.nan}, "constraint_W must be"),
        ({"l1_ratio": 1.5}, r"l1_ratio must lie in 0 \.\. 1"),
        ({"alpha_W": -0.1}, "alpha_W must be at least 0"),
        ({"alpha_H": np.inf}, "alpha_H must be a finite number"),
        ({"alpha_H": "other"}, "alpha_H must be a number"),
        ({"grad_tol": -1}, "grad_tol must be"),
        ({"time_limit": np.nan}, "time_limit must be"),
        ({"tol": 1.0}, "tol must be at least 0 and below 1"),
        ({"passes": 0}, "passes must be at least 1"),
        ({"passes": -3}, "passes must be at least 1"),
        ({"init": "nndsvd", "passes": 1}, "takes 2 passes at least"),
        ({"seed": -1}, "seed must lie in"),
        ({"init": 3}, "init must be a name, a pair of arrays"),
        ({"init": np.ones((30, 3))}, "init must be a name, a pair of arrays"),
        ({"init": (1, 2)}, r"W to start from has shape \(\), not \(30, 3\)"),
        ({"init": ("a", "b")}, "must be arrays of numbers"),
        ({"init": (ones[0][:, :2], ones[1])}, r"W to start from has shape \(30, 2\), not \(30, 3\)"),
        ({"init": (ones[0], ones[1].T)}, r"H to start from has shape \(8, 3\), not \(3, 8\)"),
        ({"init": (ones[0], ones[1] * np.nan)}, "must be finite and at least 0"),
        ({"init": (ones[0], -ones[1])}, "must be finite and at least 0"),
        ({"init": (ones[0], 0 * ones[1])}, "all zero: from there nothing moves"),
        ({"init": Path("nowhere.zarr")}, "there is no result at"),
        ({"init": rf.svd(x, 3)}, "is the result of svd: nmf starts from one of nmf"),
    ):
        with pytest.raises(rf.RankfoldError, match=message):
            rf.nmf(x, 3, **options)
    for rank in (0, -1):
        with pytest.raises(rf.RankfoldError, match="rank must be at least 1"):
            rf.nmf(x, rank)
    with pytest.raises(rf.RankfoldError, match="rank must be an integer"):
        rf.nmf(x, 2.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("init", "method"), cover(["compressed", "nndsvd", "rows", "random"], METHODS, strength=1)
)
def test_bad_numbers_are_counted(method: str, init: str) -> None:
    x = parts(300, 20, 3)
    x[7, 3] = x[9, 1] = -1
    with pytest.raises(rf.RankfoldError, match="2 negative numbers, the first at row 7, column 3"):
        rf.nmf(x, 3, init=init, **METHODS[method])
    x[5, 2] = np.nan
    with pytest.raises(rf.RankfoldError, match="1 NaN or Inf, the first at row 5, column 2"):
        rf.nmf(x, 3, init=init, **METHODS[method])


@quiet
@pytest.mark.memory
@pytest.mark.process
@pytest.mark.parametrize(
    ("method", "rank", "init"),
    [("divergence", 8, "compressed"), ("bpp", 30, "nndsvd"), ("hals", 60, "compressed"), ("mu", 8, "rows")],
)
def test_memory_stays_within_the_plan(tmp_path: Path, method: str, rank: int, init: str) -> None:
    x = parts(30_000, 64, 8, np.float32)
    store = to_zarr(tmp_path / "x.zarr", x, (10_000, 64))
    asked = {"init": init, "passes": 3, "tol": 0.05, **METHODS[method]}
    found = rf.nmf(store, rank, memory="400MiB", out=tmp_path / "r", **asked)
    last = found.run["attempts"][-1]
    assert last["planned_bytes"] <= 400 * 2**20
    assert last["measured_bytes"] is None or last["measured_bytes"] <= last["planned_bytes"]
    assert found.attrs["passes"] <= rf.plan("nmf", store, rank, passes=3).most_passes
