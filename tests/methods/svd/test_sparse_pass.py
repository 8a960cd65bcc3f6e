"""Passes over the stored numbers of a sparse matrix: what they find, and what they never allocate."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
import zarr
from covers import cover
from reference import factors, same_bytes, to_group

import rankfold as rf
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.strategy import Strategy, choose_strategy
from rankfold.pipeline.engine import blocks
from rankfold.pipeline.errors import ChunkError, NonFiniteError

Array = npt.NDArray[Any]

KRYLOV: dict[str, Any] = {"solver": "krylov", "tol": 1e-6, "passes": 12}


def counts(rows: int, columns: int, dtype: Any = np.float64, *, seed: int = 0) -> Any:
    """Counts in a tenth of the places, of six kinds of rows, with empty rows and columns."""
    rng = np.random.default_rng(seed)
    kinds = rng.gamma(0.3, 0.3, (6, columns))
    dense = rng.poisson(kinds[rng.integers(0, 6, rows)] * rng.random((rows, 1))).astype(float)
    dense[rng.random((rows, columns)) < 0.2] = 0
    dense[rng.random(rows) < 0.1] = 0
    dense[:, rng.random(columns) < 0.1] = 0
    return scipy.sparse.csr_array((dense * (1 + rng.random(dense.shape))).astype(dtype))


def seen(x: Any, kind: str, *, scale: bool = False) -> Array:
    wide = x.toarray().astype(np.float64)
    wide = wide - wide.mean(axis=0) if kind == "pca" else wide
    deviation = wide.std(axis=0, ddof=1)
    return wide / np.where(deviation > 0, deviation, 1) if scale else wide


def numbers(result: rf.Result) -> bytes:
    """What it holds, of whatever input."""
    return b"".join(np.ascontiguousarray(getattr(result, name)[...]).tobytes() for name in result)


def strategy(x: Any, **request: Any) -> Strategy:
    source = rf.open(x)
    asked = {"kind": "svd", "rank": 5, "method": "krylov", **request}
    return choose_strategy(Request(**asked), source)


@pytest.fixture
def small_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels of two thousand numbers, and streams of a few of them."""
    monkeypatch.setattr(blocks, "PANEL_NUMBERS", 2000)
    monkeypatch.setattr(blocks, "READS_PER_BYTE", 4)


def refuse_dense(monkeypatch: pytest.MonkeyPatch, source: Any, rows: int = 600) -> None:
    """Fail where more than a sample of rows is filled in."""
    read_into = source.read_into

    def read(self: Any, out: Array, lines: Any, places: Any) -> None:
        assert out.size <= rows * max(self.shape), "zeros are filled in"
        read_into(self, out, lines, places)

    monkeypatch.setattr(source, "read_into", read)


# What they find -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.* columns are constant")
@pytest.mark.parametrize(
    ("solver", "asked", "shape", "by", "dtype"),
    cover(
        ["krylov", "subspace", "gram"],
        ["svd", "pca", "pca, scaled"],
        [(900, 400), (400, 900)],
        ["csr", "csc"],
        [np.float32, np.float64],
    ),
)
def test_triplets_are_those_of_the_dense_svd(
    tmp_path: Path, small_panels: None, solver: str, asked: str, shape: tuple[int, int], by: str, dtype: Any
) -> None:
    x, kind, scale = counts(*shape, dtype), asked[:3], "scaled" in asked
    where = to_group(tmp_path / "x.zarr", x.asformat(by))
    chosen = strategy(where, kind=kind, method=solver, center=kind == "pca", scale=scale)
    assert 0 < chosen.fullest <= 2000
    assert len(chosen.cut.panels) > 5
    more = {"scale": True} if scale else {}
    result = getattr(rf, kind)(where, 5, **{**KRYLOV, "solver": solver}, **more)
    left, s, right = factors(result)
    y = seen(x, kind, scale=scale)
    true, eps = np.linalg.svd(y, compute_uv=False), float(np.finfo(dtype).eps)
    assert (np.abs(s - true[:5]) <= result.error_estimates * s + 20 * eps * true[0]).all()
    assert result.error_estimates.max() <= max(1e-6, 50 * eps)
    np.testing.assert_allclose(result.attrs["squared_norm"], (true**2).sum(), rtol=100 * eps)
    np.testing.assert_allclose(right @ right.T, np.eye(5), atol=200 * eps)
    np.testing.assert_allclose(left.T @ left, np.diag(s**2), atol=200 * eps * s[0] ** 2)
    rest = np.linalg.norm(y - left @ right) ** 2
    assert rest <= (true[5:] ** 2).sum() * (1 + 1e-4) + 1e3 * eps * true[0] ** 2
    if kind == "pca":
        wide = seen(x, "svd")
        np.testing.assert_allclose(result.mean, wide.mean(axis=0), rtol=1e-12, atol=1e-12)
    if scale:
        deviation = wide.std(axis=0, ddof=1)
        np.testing.assert_allclose(result.scale, np.where(deviation > 0, deviation, 1), rtol=1e-6)


def test_the_plan_counts_stored_numbers() -> None:
    huge = scipy.sparse.csr_array((2**21, 2**18), dtype=np.float32)
    huge.data, huge.indices = np.ones(2**24, np.float32), np.tile(np.arange(8, dtype=np.int32), 2**21)
    huge.indptr = 8 * np.arange(2**21 + 1)
    plan = rf.plan("svd", huge, rank=10, solver="krylov", memory="6GiB")
    assert plan.method == "krylov"
    one_pass = next(sweep for sweep in plan.passes if sweep.over == "matrix")
    assert one_pass.reads_bytes == huge.nnz * 8 + 8 * huge.shape[0]
    assert one_pass.flops == pytest.approx(4 * huge.nnz * plan.width)


def test_full_matrices_are_multiplied_dense() -> None:
    full = scipy.sparse.csr_array(np.ones((300, 200)))
    assert strategy(full).fullest == 0
    assert strategy(counts(300, 200)).fullest > 0
    assert strategy(counts(300, 200), method="tsqr").fullest == 0


@pytest.mark.filterwarnings("ignore:tol = ")
def test_a_flat_spectrum_converges_unasked() -> None:
    rng = np.random.default_rng(1)
    x = scipy.sparse.random_array((1500, 700), density=0.03, format="csr", rng=rng)
    x.data[:] = 1.0 + rng.poisson(2, x.nnz)
    x = (x @ scipy.sparse.diags_array((1.0 + np.arange(700)) ** -0.1)).tocsr()
    with pytest.warns(match="after 8 passes"):
        assert not rf.pca(x, 20, solver="krylov", passes=8).attrs["converged"]
    result = rf.pca(x, 20, solver="krylov")
    exact = np.linalg.svd(seen(x, "pca"), compute_uv=False)[:20]
    assert result.attrs["converged"]
    assert 8 < result.attrs["passes"] <= 14
    assert np.abs(result.singular_values[...] / exact - 1).max() <= 1e-4


def test_the_rank_is_found_too() -> None:
    x = counts(900, 400)
    result, dense = (rf.svd(each, tol=0.4, solver="krylov") for each in (x, x.toarray()))
    left, _, right = factors(result)
    rest = np.linalg.norm(x.toarray() - left @ right) / np.linalg.norm(x.toarray())
    assert rest <= result.attrs["approximation_error"] <= 0.4
    assert abs(len(result.s) - len(dense.s)) <= 0.05 * len(dense.s)


@pytest.mark.parametrize("by", ["csr", "csc"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64])
def test_numbers_of_any_type(tmp_path: Path, dtype: Any, by: str) -> None:
    x = counts(300, 200).astype(dtype)
    result = rf.pca(to_group(tmp_path / "x.zarr", x.asformat(by)), 4, **KRYLOV)
    true = np.linalg.svd(seen(x, "pca"), compute_uv=False)[:4]
    np.testing.assert_allclose(result.singular_values, true, rtol=1e-5)


@pytest.mark.parametrize("solver", ["krylov", "subspace", "gram"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_far_from_zero_keep_their_digits(dtype: Any, solver: str) -> None:
    """A column that is full and far from zero: nothing is subtracted from what is stored."""
    x = counts(3000, 200, dtype).tolil()
    x[:, 3] = 1e5 + np.arange(3000)[:, None] % 7
    result = rf.pca(scipy.sparse.csr_array(x), 5, **{**KRYLOV, "solver": solver})
    true = np.linalg.svd(seen(x, "pca"), compute_uv=False)[:5]
    np.testing.assert_allclose(result.singular_values, true, rtol=1e-5)


def test_duplicates_and_places_in_any_order_are_what_they_add_up_to(tmp_path: Path) -> None:
    x = counts(300, 200)
    halves = np.repeat(x.data / 2, 2)
    twice = scipy.sparse.csr_array((halves, np.repeat(x.indices, 2), 2 * x.indptr), shape=x.shape)
    back = x.copy()
    for i in range(x.shape[0]):
        part = slice(x.indptr[i], x.indptr[i + 1])
        back.indices[part], back.data[part] = x.indices[part][::-1], x.data[part][::-1]
    whole = numbers(rf.pca(to_group(tmp_path / "x.zarr", x), 4, **KRYLOV))
    for name, other in (("twice", twice), ("back", back)):
        assert numbers(rf.pca(to_group(tmp_path / name, other), 4, **KRYLOV)) == whole


def test_places_of_64_bits(tmp_path: Path) -> None:
    x = counts(300, 200)
    wide = x.copy()
    wide.indices, wide.indptr = x.indices.astype(np.int64), x.indptr.astype(np.int64)
    one, two = (rf.svd(to_group(tmp_path / f"{i}", each), 4, **KRYLOV) for i, each in enumerate((x, wide)))
    assert numbers(one) == numbers(two)


def test_a_matrix_without_numbers_is_zero() -> None:
    with pytest.warns(rf.RankfoldWarning, match="2 of the 2 singular values"):
        result = rf.svd(scipy.sparse.csr_array((50, 40)), 2, solver="krylov")
    assert not result.s.any()


# Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["csr", "csc"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_is_refused_with_its_place(tmp_path: Path, small_panels: None, bad: float, by: str) -> None:
    x = counts(300, 500).tolil()
    x[17, 33] = x[17, 40] = x[250, 2] = bad
    where = to_group(tmp_path / "x.zarr", x.asformat(by))
    with pytest.raises(NonFiniteError, match="3 NaN or Inf, the first at row 17, column 33"):
        rf.svd(where, 5, solver="krylov")


def test_damaged_stores_are_refused(tmp_path: Path) -> None:
    x = counts(300, 500)
    for name, at, value, message in (
        ("indices", 9, 10**6, r"indices\[9\] is 1000000"),
        ("indices", 9, -1, r"indices\[9\] is -1"),
        ("indptr", 3, 10**5, "is not increasing"),
    ):
        where = to_group(tmp_path / "x.zarr", x)
        zarr.open_group(where)[name][at] = value  # type: ignore[index]
        with pytest.raises(ChunkError, match=message):
            rf.svd(where, 5, solver="krylov")


# The same bytes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["krylov", "gram"])
@pytest.mark.parametrize("by", ["csr", "csc"])
def test_threads_and_memory_change_no_byte(tmp_path: Path, small_panels: None, by: str, solver: str) -> None:
    shape = (2000, 300)[:: 1 if by == "csr" else -1]
    where = to_group(tmp_path / "x.zarr", counts(*shape).asformat(by))
    assert strategy(where, kind="pca", center=True).cut.stream_count > 1
    how = {**KRYLOV, "solver": solver}
    whole = same_bytes(rf.pca(where, 5, **how, threads=1, memory="2GiB"))
    for threads, memory in ((2, "300MiB"), (7, "1GiB")):
        assert same_bytes(rf.pca(where, 5, **how, threads=threads, memory=memory)) == whole


def test_an_attempt_that_was_killed_changes_no_byte(tmp_path: Path, small_panels: None) -> None:
    where = to_group(tmp_path / "x.zarr", counts(2000, 300))
    whole = same_bytes(rf.pca(where, 5, **KRYLOV))
    calls = [0]

    def interrupt(*_: object) -> None:
        calls[0] += 1
        if calls[0] == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rf.pca(where, 5, **KRYLOV, out=tmp_path / "r.zarr", progress=interrupt)
    assert same_bytes(rf.pca(where, 5, **KRYLOV, out=tmp_path / "r.zarr")) == whole


def test_chunks_of_the_store_change_no_byte(tmp_path: Path, small_panels: None) -> None:
    x = counts(2000, 300)
    stores = [to_group(tmp_path / f"{n}", x, chunks=(n,)) for n in (100, 5000)]
    one, two, three = (numbers(rf.pca(each, 5, **KRYLOV)) for each in (*stores, x))
    assert one == two == three


# Memory -------------------------------------------------------------------------------------------

COMMAND = """
import json, sys
import rankfold as rf
asked = {"memory": sys.argv[4], "threads": 2, "out": sys.argv[3]}
r = getattr(rf, sys.argv[2])(sys.argv[1], **asked, **json.loads(sys.argv[5]))
last = r.run["attempts"][-1]
print(json.dumps([last["planned_bytes"], last["measured_bytes"]]))
"""


def measured(store: str, kind: str, out: Path, memory: str, **more: Any) -> tuple[int, int]:
    more = {"rank": 10, "solver": "krylov", **more}
    arguments = [store, kind, str(out), memory, json.dumps(more)]
    command = [sys.executable, "-W", "ignore", "-c", COMMAND, *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    planned, peak = json.loads(run.stdout)
    if peak is None:
        pytest.skip("this system does not report anonymous memory (RssAnon is Linux)")
    return planned, peak


def scattered(rows: int, columns: int, each: int, seed: int = 0) -> Any:
    """``each`` numbers in each row, at random places."""
    rng = np.random.default_rng(seed)
    places = (rng.random(rows * each) ** 3 * columns).astype(np.int32)
    values = rng.random(rows * each, dtype=np.float32)
    x = scipy.sparse.csr_array((values, places, each * np.arange(rows + 1)), shape=(rows, columns))
    x.sum_duplicates()
    return x


@pytest.mark.memory
@pytest.mark.slow
@pytest.mark.parametrize("solver", ["krylov", "gram"])
@pytest.mark.parametrize("kind", ["svd", "pca"])
@pytest.mark.parametrize("by", ["csr", "csc"])
def test_the_peak_is_planned(tmp_path: Path, kind: str, by: str, solver: str) -> None:
    x = scattered(400_000, 2000, 40).asformat(by)
    if by == "csc" and solver == "gram":  # which is of the shorter side
        x = scattered(4000, 20_000, 40).asformat(by)
    store = to_group(tmp_path / "x.zarr", x, chunks=(2**18,))
    planned, peak = measured(store, kind, tmp_path / "r.zarr", "2GiB", solver=solver)
    assert peak <= planned


@pytest.mark.memory
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["svd", "pca"])
def test_a_million_columns_are_never_filled_in(tmp_path: Path, kind: str) -> None:
    """A hundred thousand rows of them: 400 GB of zeros."""
    store = to_group(tmp_path / "x.zarr", scattered(100_000, 10**6, 30), chunks=(2**18,))
    planned, peak = measured(store, kind, tmp_path / "r.zarr", "4GiB", rank=2, passes=2)
    assert peak <= planned < 4 * 2**30


def test_no_panel_is_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_panels: None) -> None:
    where = to_group(tmp_path / "x.zarr", counts(3000, 300))
    refuse_dense(monkeypatch, type(rf.open(where)), rows=600)
    assert rf.pca(where, 5, **KRYLOV).attrs["method"] == "krylov"


def test_cuts_follow_stored_numbers_alone(small_panels: None) -> None:
    x = counts(3000, 300)
    cuts = [strategy(x, rank=rank).cut for rank in (5, 9)]
    assert cuts[0].panels.tolist() == cuts[1].panels.tolist()
    assert np.diff(x.indptr[cuts[0].panels]).max() <= 2000
    assert dataclasses.asdict(cuts[0])["grain_rows"] == np.diff(cuts[0].panels).max()
