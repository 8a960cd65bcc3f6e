"""Searches by projected rows: the bytes of searches by whole rows, whatever the rows are like."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rankfold as rf
from rankfold.kernels.neighbors.bounds import near
from rankfold.kernels.neighbors.lists import Metric
from rankfold.methods.knn import knn, projection
from rankfold.methods.knn.projection import Directions
from rankfold.pipeline.errors import MemoryBudgetError
from rankfold.pipeline.formats import open_source

Array = npt.NDArray[Any]

METRICS = ("euclidean", "sqeuclidean", "cosine", "inner_product")


def near_a_plane(rows: int, columns: int, rank: int = 6, noise: float = 0.05, seed: int = 0) -> Array:
    """Rows near few directions, in clusters, some of them equal and some zero."""
    rng = np.random.default_rng(seed)
    centers = 3 * rng.standard_normal((9, rank))
    x = (centers[rng.integers(9, size=rows)] + rng.standard_normal((rows, rank))) @ rng.standard_normal(
        (rank, columns)
    )
    x += noise * rng.standard_normal((rows, columns))
    x[5::37] = x[4]
    x[7::53] = 0
    return x


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Rows are projected however few and short they are."""
    monkeypatch.setattr(projection, "WORTH_FLOPS", 0.0)
    monkeypatch.setattr(projection, "FEWEST_COLUMNS", 2)
    monkeypatch.setattr(projection, "WORTH_IT", np.inf)
    return monkeypatch


def bytes_of(result: rf.Result) -> list[bytes]:
    return [np.asarray(result[name]).tobytes() for name in ("indices", "distances")]


def both_ways(always: pytest.MonkeyPatch, x: Any, **how: Any) -> tuple[list[bytes], list[bytes]]:
    used = []

    def spied(*args: Any) -> Any:
        used.append(projection.choose_directions(*args))
        return used[-1]

    with always.context() as patch:
        patch.setattr(knn, "choose_directions", spied)
        projected = bytes_of(rf.knn(x, **how))
    assert used == [] or used[0] is not None  # none is asked for where products are in float64
    with always.context() as patch:
        patch.setattr(knn, "choose_directions", lambda *_: None)
        return projected, bytes_of(rf.knn(x, **how))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "int16"])
def test_lists_are_those_of_whole_rows(always: pytest.MonkeyPatch, dtype: str, metric: str) -> None:
    x = near_a_plane(1100, 60)
    x = np.round(x - x.min()) if dtype == "uint8" else 20 * x if dtype == "int16" else x
    projected, whole = both_ways(always, x.astype(dtype), k=7, metric=metric)
    assert projected == whole


@pytest.mark.parametrize("metric", METRICS)
def test_queries_have_the_neighbors_of_whole_rows(always: pytest.MonkeyPatch, metric: str) -> None:
    x, queries = near_a_plane(1500, 40), near_a_plane(300, 40, seed=3)
    projected, whole = both_ways(always, x, k=5, metric=metric, queries=queries)
    assert projected == whole


@pytest.mark.parametrize("numbers", [(4,), (12,), (30,)])
def test_more_directions_change_no_byte(always: pytest.MonkeyPatch, numbers: tuple[int, ...]) -> None:
    """Bounded closer by three times as many, and by these alone."""
    always.setattr(projection, "NUMBERS", numbers)
    always.setattr(projection, "CLOSER_COST", -np.inf)
    projected, whole = both_ways(always, near_a_plane(1200, 90, noise=0.5).astype(np.float32), k=7)
    assert projected == whole


@pytest.mark.parametrize("offset", [1e2, 1e4, 1e6])
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "inner_product"])
def test_rows_far_from_zero_lose_nothing(always: pytest.MonkeyPatch, metric: str, offset: float) -> None:
    """Where rounding leaves nothing of the bounds, all pairs are measured, or multiplied in float64."""
    x = near_a_plane(700, 32) + offset * np.where(np.arange(700) % 2, 1.0, -1.0)[:, None]
    projected, whole = both_ways(always, x, k=6, metric=metric)
    assert projected == whole


@pytest.mark.parametrize("scale", [1e-200, 1e-25, 1e-12, 1e-3, 1e10, 1e25])
def test_rows_of_very_different_lengths_lose_nothing(always: pytest.MonkeyPatch, scale: float) -> None:
    x = near_a_plane(600, 32)
    x[1::3] *= scale
    projected, whole = both_ways(always, x, k=6)
    assert projected == whole


def test_equal_rows_take_the_first_ids(always: pytest.MonkeyPatch) -> None:
    x = np.repeat(near_a_plane(6, 20), 200, axis=0)
    projected, whole = both_ways(always, x, k=9)
    assert projected == whole


def test_threads_memory_and_chunks_change_no_byte(always: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import zarr

    x = near_a_plane(3000, 64).astype(np.float32)
    expected = bytes_of(rf.knn(x, 6, threads=1))
    zarr.create_array(tmp_path / "x.zarr", data=x, chunks=(171, 40))
    assert bytes_of(rf.knn(tmp_path / "x.zarr", 6, threads=3, memory="32MiB")) == expected


@given(st.integers(0, 10**6), st.integers(1, 6), st.floats(1e-3, 1e3), st.sampled_from(list(Metric)[:4]))
@settings(max_examples=60, deadline=None)
def test_a_projected_product_bounds_the_distance(seed: int, rank: int, offset: float, metric: Metric) -> None:
    """Half a squared distance, or the negative product, is never below its bound."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((40, 8)) * rng.choice([1e-4, 1.0, 30.0], 8) + offset * rng.standard_normal(8)
    if metric == Metric.COSINE:
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    directions = Directions(np.linalg.qr(rng.standard_normal((8, rank)))[0], int(rng.integers(1, rank + 1)))
    z = np.empty((40, directions.columns), np.float32)
    directions.project(x, z)
    norms = np.einsum("ij,ij->i", x, x)
    terms = near(norms, directions.columns, metric, np.dtype(np.float32))
    leading, rest = z[:, : directions.leading], np.delete(z, directions.leading - 1, axis=1)
    closer = rest if rank > directions.multiplied else leading
    bounds = np.stack([terms[:, None] + terms - each @ each.T for each in (leading, closer)])
    wide = x.astype(np.longdouble)
    if metric == Metric.INNER_PRODUCT:
        exact = -(wide @ wide.T)
    else:
        exact = ((wide[:, None] - wide) ** 2).sum(axis=2) / 2
    assert (bounds <= exact).all()
    if metric != Metric.INNER_PRODUCT:
        assert (bounds[1] >= bounds[0] - 1e-6 * (terms[:, None] + terms)).all(), "the second is closer"


def test_directions_are_taken_where_they_save_time_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "WORTH_FLOPS", 0.0)
    monkeypatch.setattr(projection, "WHOLE_LIST_COST", 0.0)
    monkeypatch.setattr(projection, "LIST_COST", 0.0)  # both are less the more rows there are
    flat = np.random.default_rng(0).standard_normal((3000, 100))
    low = near_a_plane(3000, 400)

    def chosen(x: Array, metric: Metric = Metric.EUCLIDEAN) -> Directions | None:
        return projection.choose_directions(open_source(x), metric, None, 10, len(x) ** 2 / 2)

    assert chosen(flat) is None
    found = chosen(low)
    assert found is not None and found.basis.shape[0] == 400 and found.multiplied <= 64
    np.testing.assert_allclose(found.basis.T @ found.basis, np.eye(found.basis.shape[1]), atol=1e-12)
    assert chosen(low, Metric.COSINE) is not None
    assert chosen(np.full((3000, 100), np.inf)) is None  # what is refused is refused elsewhere, by name
    monkeypatch.undo()
    assert chosen(low[:100]) is None, "too few pairs to read a sample for"


@pytest.mark.memory
@pytest.mark.process
def test_a_sample_takes_no_more_than_is_planned(tmp_path: Path) -> None:
    """In the least memory that a search takes, which whole rows and their copies would fill."""
    import zarr

    zarr.create_array(
        tmp_path / "x.zarr", data=near_a_plane(24_000, 600).astype(np.float32), chunks=(500, 600)
    )
    with pytest.raises(MemoryBudgetError) as refused:
        rf.plan("knn", tmp_path / "x.zarr", k=5, threads=1, memory="1MiB")
    program = (
        "import sys, rankfold as rf\n"
        "from rankfold.methods.knn import knn\n"
        "choose, chosen = knn.choose_directions, []\n"
        "knn.choose_directions = lambda *args: chosen.append(choose(*args)) or chosen[-1]\n"
        "r = rf.knn(sys.argv[1], 5, threads=1, memory=int(sys.argv[2]), out=sys.argv[3])\n"
        "last = r.run['attempts'][-1]\n"
        "assert chosen[0] is not None\n"
        "print(last['planned_bytes'], last['measured_bytes'])\n"
    )
    asked = [tmp_path / "x.zarr", refused.value.need_bytes, tmp_path / "r.zarr"]
    command = [sys.executable, "-W", "ignore", "-c", program, *map(str, asked)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    planned, measured = map(int, told.split())
    assert measured <= planned
