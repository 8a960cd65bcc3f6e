"""Searches on a device: ids and distances are those of the host to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conftest import missing_device
from covers import cover
from stand_in import COUNTS

import rankfold as rf
from rankfold.pipeline import gpu
from rankfold.pipeline.engine import pair_sweep, pairs

Array = npt.NDArray[Any]
GPU: dict[str, Any] = {"device": "gpu", "memory": "1GiB"}
METRICS = ("euclidean", "sqeuclidean", "cosine", "inner_product")


def data(kind: str, rows: int, columns: int, dtype: str) -> Array:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, columns))
    if kind == "far from the mean":
        x += 1e3
    if kind == "equal rows":
        x = x[rng.integers(0, 7, rows)]
    if kind == "of many scales":
        x *= 10 ** rng.uniform(-3, 3, (rows, 1))
    if kind == "beyond float32":
        x *= 1e30
    return (x * 20 + 100).clip(0, 255).astype("u1") if dtype == "u1" else x.astype(dtype)


def assert_same(found: rf.Result, expected: rf.Result) -> None:
    assert found.attrs["device"] == "gpu"
    for name in ("indices", "distances"):
        np.testing.assert_array_equal(found[name], expected[name])


KINDS = ["gaussian", "far from the mean", "equal rows", "of many scales", "beyond float32"]


@pytest.mark.gpu
@pytest.mark.parametrize("kind, dtype, metric, k", cover(KINDS, ["f4", "f8", "u1"], METRICS, [1, 11]))
def test_neighbors_are_those_of_the_host(kind: str, dtype: str, metric: str, k: int) -> None:
    if kind == "beyond float32" and dtype != "f8":
        pytest.skip("float64 alone goes that far")
    x = data(kind, 300, 20, dtype)
    expected = rf.knn(x, k=k, metric=metric, threads=1)
    assert_same(rf.knn(x, k=k, metric=metric, **GPU), expected)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six blocks of the rows below."""
    monkeypatch.setattr(pairs, "BLOCK_ROWS", (100, 150))


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("columns", [30, 400])
def test_blocks_meet_each_other(columns: int, small_blocks: None, tmp_path: Path) -> None:
    x = data("gaussian", 700, columns, "f4")
    np.save(tmp_path / "x.npy", x)
    assert_same(rf.knn(x, k=9, **GPU), rf.knn(x, k=9, threads=1))
    queries = data("gaussian", 250, columns, "f4") + np.float32(0.1)
    assert_same(rf.knn(x, queries=queries, k=40, **GPU), rf.knn(x, queries=queries, k=40, threads=1))


@pytest.mark.gpu
def test_a_search_goes_on_where_it_was_stopped(
    small_blocks: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = data("gaussian", 700, 30, "f4")
    np.save(tmp_path / "x.npy", x)
    expected = rf.knn(x, k=9, threads=1)
    met, meet = [], pair_sweep._Accumulators.note

    def stop(lists: Any, block: int, other: int) -> None:
        met.append((block, other))
        if len(met) == 12:
            raise KeyboardInterrupt
        meet(lists, block, other)

    with monkeypatch.context() as patch:
        patch.setattr(pair_sweep._Accumulators, "note", stop)
        with pytest.raises(KeyboardInterrupt):
            rf.knn(tmp_path / "x.npy", k=9, out=tmp_path / "r.zarr", **GPU)
    assert_same(rf.knn(tmp_path / "x.npy", k=9, out=tmp_path / "r.zarr", **GPU), expected)


@pytest.mark.gpu
def test_no_more_of_the_device_is_taken_than_was_planned(
    small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not missing_device():
        pytest.skip("a device does not count")
    x, limits = data("gaussian", 700, 30, "f8"), []
    limit = gpu.Cuda.limit

    def note(cuda: gpu.Cuda, nbytes: int, run: object) -> None:
        limits.append(nbytes)
        limit(cuda, nbytes, run)

    monkeypatch.setattr(gpu.Cuda, "limit", note)
    plan = rf.plan("knn", x, k=9, **GPU)
    COUNTS.up = 0
    rf.knn(x, k=9, **GPU)
    assert COUNTS.bytes_most <= max(limits) <= plan.device_bytes
    assert plan.device == "gpu"


@pytest.mark.gpu
def test_what_products_do_not_bound_is_refused() -> None:
    x = data("gaussian", 300, 20, "f4")
    for metric in ("manhattan", "chebyshev"):
        with pytest.raises(rf.RankfoldError, match="has no code for a GPU, which would stand idle"):
            rf.knn(x, k=3, metric=metric, **GPU)
    with pytest.raises(rf.RankfoldError, match="has no code for a GPU"):
        rf.knn(x[:, :5], k=3, **GPU)
