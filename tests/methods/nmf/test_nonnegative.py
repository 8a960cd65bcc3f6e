"""Nonnegative factors: near the best there are, in few reads, the same however the matrix is cut or run."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
import zarr
from covers import cover
from reference import same_bytes, to_zarr
from sklearn import decomposition

import rankfold as rf
from rankfold.pipeline.formats.arrays import ArraySource

Array = npt.NDArray[Any]

pytestmark = pytest.mark.filterwarnings(
    "ignore::rankfold.RankfoldWarning", "ignore::sklearn.exceptions.ConvergenceWarning"
)


def parts(rows: int, columns: int, rank: int, dtype: Any = np.float64, noise: float = 0.1) -> Array:
    """Products of sparse parts, with some noise."""
    rng = np.random.default_rng(0)
    x = rng.gamma(0.5, size=(rows, rank)) @ rng.gamma(0.5, size=(rank, columns))
    return np.asarray((x + noise * x.mean() * np.abs(rng.standard_normal(x.shape))).astype(dtype))


def error(x: Any, found: rf.Result) -> float:
    dense = x.toarray() if scipy.sparse.issparse(x) else np.asarray(x)
    dense = dense.astype(np.float64)
    w, h = np.asarray(found.W[...], np.float64), np.asarray(found.H[...], np.float64)
    assert w.min() >= 0 and h.min() >= 0
    return float(np.linalg.norm(dense - w @ h) / np.linalg.norm(dense))


@pytest.mark.parametrize(
    ("shape", "dtype"), cover([(2000, 150), (150, 2000), (300, 300)], [np.float64, np.float32], strength=1)
)
def test_the_error_is_that_of_scikit_learn_after_hundreds_of_iterations(
    shape: tuple[int, int], dtype: Any
) -> None:
    x = parts(*shape, 8, dtype)
    best = min(
        decomposition.NMF(8, init="random", random_state=seed, max_iter=400, tol=1e-6)
        .fit(x.astype(np.float64))
        .reconstruction_err_
        for seed in range(3)
    ) / np.linalg.norm(x.astype(np.float64))
    found = min((rf.nmf(x, 8, seed=seed) for seed in range(3)), key=lambda r: r.attrs["relative_error"])
    assert found.attrs["passes"] <= 6
    assert error(x, found) <= 1.01 * best
    assert found.attrs["relative_error"] == pytest.approx(error(x, found), rel=1e-4)


def test_errors_fall_and_end_where_they_fall_no_more() -> None:
    x = parts(3000, 120, 10)
    found = rf.nmf(x, 10, tol=1e-9, passes=20)
    errors = found.attrs["errors"]
    assert (np.diff(errors) <= 1e-12).all() and len(errors) == found.attrs["passes"] - 1
    w, h = found.W[...], found.H
    slope = (w.T @ w) @ h - w.T @ x
    assert np.abs(np.minimum(h, slope / np.abs(slope).max())).max() <= 0.05
    assert rf.nmf(x, 10, passes=2).attrs["stopped"] == "passes"


def test_exact_factors_are_found() -> None:
    x = parts(900, 80, 5, noise=0.0)
    assert error(x, rf.nmf(x, 5, tol=1e-6, passes=40)) <= 5e-3


class Counted(ArraySource):
    """A matrix that counts how often each row is read."""

    def read_into(self, out: Any, rows: Any, columns: Any) -> None:
        seen.update(range(*rows))
        super().read_into(out, rows, columns)

    def lend(self, rows: Any, columns: Any) -> None:
        """Nothing: rows are counted as they are read."""


seen: Counter[int] = Counter()


def test_a_pass_reads_every_row_once() -> None:
    seen.clear()
    found = rf.nmf(Counted(parts(20_000, 40, 4)), 4)
    passes = found.attrs["passes"]
    assert min(seen.values()) == passes and max(seen.values()) <= passes + 1  # a few are sampled beforehand
    assert sum(count > passes for count in seen.values()) <= 20_000 / 16


@pytest.mark.parametrize("shape", [(60_000, 50), (50, 60_000)], ids=str)
def test_threads_and_memory_change_no_byte(tmp_path: Path, shape: tuple[int, int]) -> None:
    x = parts(*shape, 4, np.float32)
    results = [
        rf.nmf(x, 4, threads=threads, memory=memory, out=tmp_path / f"{threads}-{memory}.zarr")
        for threads, memory in ((1, "1GiB"), (2, "1GiB"), (4, "200MiB"))
    ]
    assert len({same_bytes(result) for result in results}) == 1


@pytest.mark.parametrize("chunks", [(100, 60), (333, 7), (3000, 60)], ids=str)
def test_chunks_change_rounding_alone(tmp_path: Path, chunks: tuple[int, int]) -> None:
    x = parts(3000, 60, 5)
    store = to_zarr(tmp_path / "x.zarr", x, chunks)
    here, there = rf.nmf(x, 5), rf.nmf(store, 5)
    np.testing.assert_allclose(there.H[...], here.H[...], atol=1e-8 * np.abs(here.H).max())
    np.testing.assert_allclose(there.W[...], here.W[...], atol=1e-8 * np.abs(here.W[...]).max())


@pytest.mark.parametrize("make", [np.uint8, np.int16, np.bool_, np.float16], ids=lambda m: m.__name__)
def test_narrow_types_are_taken_as_they_are(make: Any) -> None:
    x = np.minimum(20 * parts(600, 40, 3), 120).astype(make)
    wide = rf.nmf(x.astype(np.float32), 3)
    assert error(x, rf.nmf(x, 3)) == pytest.approx(error(x, wide), rel=1e-3)


def test_counts_in_a_sparse_array() -> None:
    x = scipy.sparse.random_array((2000, 80), density=0.1, rng=1, format="csr")
    assert error(x, rf.nmf(x, 4)) == pytest.approx(error(x, rf.nmf(x.toarray(), 4)), rel=1e-6)


@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_units_change_the_size_of_h_alone(size: float) -> None:
    x = parts(900, 50, 4, np.float32)
    here, there = rf.nmf(x, 4), rf.nmf(x * np.float32(size), 4)
    assert there.attrs["relative_error"] == pytest.approx(here.attrs["relative_error"], rel=1e-3)


@pytest.mark.parametrize("rank", [1, 3, 12])
def test_few_rows_zeros_and_ranks_beyond_the_matrix_are_defined(rank: int) -> None:
    x = parts(12, 30, 2, noise=0.0)
    x[3], x[:, 7] = 0, 0
    found = rf.nmf(x, rank)
    assert np.isfinite(found.H[...]).all() and error(x, found) <= (0.05 if rank > 1 else 1)
    nothing = rf.nmf(np.zeros((40, 9)), min(rank, 9))
    assert nothing.attrs["relative_error"] == 0 and not (nothing.W[...] @ nothing.H).any()


def test_a_finished_result_is_found_and_an_unfinished_one_goes_on(tmp_path: Path) -> None:
    x = parts(4000, 40, 3)
    whole = rf.nmf(x, 3, out=tmp_path / "whole.zarr")
    assert rf.nmf(x, 3, out=tmp_path / "whole.zarr").attrs == whole.attrs

    def stop(name: str, done: int, rows: int) -> None:
        if name == "iteration-03" and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rf.nmf(x, 3, out=tmp_path / "cut.zarr", progress=stop)
    assert same_bytes(rf.nmf(x, 3, out=tmp_path / "cut.zarr")) == same_bytes(whole)


KILLED = """
import sys
import rankfold as rf
told = lambda name, done, total: print(name, done, flush=True)
rf.nmf(sys.argv[1], 6, out=sys.argv[2], threads=2, tol=1e-7, progress=told)
"""


@pytest.mark.slow
def test_kills_at_random_moments_change_no_byte(tmp_path: Path) -> None:
    store = to_zarr(tmp_path / "x.zarr", parts(200_000, 60, 6, np.float32), (5000, 60))
    whole, chance = rf.nmf(store, 6, tol=1e-7, out=tmp_path / "whole.zarr"), random.Random(3)
    killed = 0
    while killed < 6:
        command = [sys.executable, "-W", "ignore", "-c", KILLED, store, str(tmp_path / "cut.zarr")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(chance.random())
            child.kill()
            killed += 1
        if (tmp_path / "cut.zarr").exists():
            break
    assert same_bytes(rf.nmf(store, 6, tol=1e-7, out=tmp_path / "cut.zarr")) == same_bytes(whole)


@pytest.mark.parametrize(
    "how",
    [{}, {"init": "nndsvd"}, {"loss": "kullback-leibler"}, {"weights": np.ones((60, 5))}],
    ids=["compressed", "by signs", "divergence", "weighted"],
)
def test_there_may_be_more_components_than_columns(how: dict[str, Any]) -> None:
    x = np.random.default_rng(1).random((60, 5))
    result = rf.nmf(x, 8, tol=0.0, passes=50, **how)
    w, h = np.asarray(result.W), np.asarray(result.H)
    assert w.shape == (60, 8) and h.shape == (8, 5) and min(w.min(), h.min()) >= 0
    assert np.linalg.norm(x - w @ h) < 0.01 * np.linalg.norm(x)
    if "loss" not in how:
        new = rf.transform(result, x[:7]).W @ h
        assert np.linalg.norm(x[:7] - new) < 0.02 * np.linalg.norm(x[:7])


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    x = parts(300, 20, 3)
    for options, message in (
        ({"rank": 0}, "rank must be at least 1, not 0"),
        ({"rank": 3, "passes": 1}, "takes 2 passes at least"),
        ({"rank": 3, "tol": -1.0}, "tol must be at least 0"),
        ({"rank": 3, "memory": "30MiB"}, "needs .* in one worker"),
    ):
        with pytest.raises(rf.RankfoldError, match=message):
            rf.nmf(x, **options)
    x[7, 3] = -1
    with pytest.raises(rf.RankfoldError, match="1 negative numbers, the first at row 7, column 3"):
        rf.nmf(x, 3, out=tmp_path / "n.zarr")
    x[5, 2] = np.nan
    with pytest.raises(rf.RankfoldError, match="1 NaN or Inf, the first at row 5, column 2"):
        rf.nmf(x, 3, out=tmp_path / "n.zarr")
    assert not (tmp_path / "n.zarr").exists()


def test_the_plan_holds(tmp_path: Path) -> None:
    x = parts(200_000, 100, 8, np.float32)
    store = to_zarr(tmp_path / "x.zarr", x, (10_000, 100))
    planned = rf.plan("nmf", store, 8, memory="256MiB")
    found = rf.nmf(store, 8, memory="256MiB", out=tmp_path / "r.zarr")
    last = found.run["attempts"][-1]
    assert planned.peak_bytes <= 256 * 2**20 and found.attrs["passes"] <= planned.most_passes
    assert last["measured_bytes"] is None or last["measured_bytes"] <= last["planned_bytes"]
    assert isinstance(found.W, zarr.Array)
