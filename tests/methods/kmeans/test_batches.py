"""Centers that move with every batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from reference import to_zarr
from scipy.spatial.distance import cdist

import rankfold as rf

pytestmark = pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")


def rows_of(m: int = 900, n: int = 24) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.standard_normal((m, n)) + 3 * rng.integers(0, 3, (m, 1))


def plain(x: np.ndarray, centers: np.ndarray, batch: int, passes: int) -> tuple[np.ndarray, list[float]]:
    """Centers and the cost of each pass, by the definition."""
    centers, given, costs = centers.copy(), np.zeros(len(centers)), []
    for _ in range(passes):
        cost = 0.0
        for start in range(0, len(x), batch):
            rows = x[start : start + batch]
            squares = cdist(rows, centers, "sqeuclidean")
            cost += squares.min(axis=1).sum()
            labels = squares.argmin(axis=1)
            for j in np.unique(labels):
                own = rows[labels == j]
                given[j] += len(own)
                centers[j] += (own.mean(axis=0) - centers[j]) * len(own) / given[j]
        costs.append(cost)
    return centers, costs


@pytest.mark.parametrize("batch", [1, 70, 256, 5000])
def test_every_batch_is_that_of_the_definition(batch: int) -> None:
    x = rows_of()
    made = rf.kmeans(x, init=x[:6], batch_rows=batch, passes=4, tol=0)
    centers, costs = plain(x, x[:6], batch, 3)
    np.testing.assert_allclose(made.centers, centers, rtol=1e-11)
    np.testing.assert_allclose(made.inertia[:3], costs, rtol=1e-11)
    squares = cdist(x, made.centers, "sqeuclidean")
    np.testing.assert_array_equal(made.labels[...], squares.argmin(axis=1))
    assert made.attrs["final_inertia"] == pytest.approx(squares.min(axis=1).sum())
    assert made.attrs["passes"] == 4
    assert made.attrs["stopped"] == "passes"


def test_bytes_do_not_depend_on_how_rows_are_cut(tmp_path: Path) -> None:
    x = rows_of(20_000, 30)
    one = rf.kmeans(x, init=x[:6], batch_rows=333)
    for rows in (100, 7000):
        other = rf.kmeans(to_zarr(tmp_path / f"{rows}.zarr", x, (rows, 30)), init=x[:6], batch_rows=333)
        for name in ("labels", "centers", "counts"):
            np.testing.assert_array_equal(getattr(other, name)[...], getattr(one, name)[...])


def test_a_center_without_rows_stays() -> None:
    x = rows_of()
    far = np.full((1, 24), 1e3)
    made = rf.kmeans(x, init=np.concatenate([x[:2], far]), batch_rows=100)
    np.testing.assert_array_equal(made.centers[2], far[0])
    assert made.attrs["empty_clusters"] == 1


def test_few_reads_come_near_to_rest_also_in_a_sorted_store() -> None:
    x = rows_of(6000)
    x = x[np.argsort(x.mean(axis=1))]
    rest = rf.kmeans(x, 9)
    made = rf.kmeans(x, 9, batch_rows=200)
    # One center of a thousand rows is off by their spread over the root of a few hundred.
    assert made.attrs["final_inertia"] <= 1.01 * rest.attrs["final_inertia"]


def test_the_plan_says_that_the_last_pass_labels() -> None:
    plan = rf.plan("kmeans", rows_of(), k=5, batch_rows=100, passes=9)
    names = [each.name for each in plan.passes]
    assert names[0] == "sample"
    assert names[1] == "batches-02"
    assert "iteration-09" in names
    assert plan.most_passes == 9


def test_numbers_that_are_none_are_refused_with_their_place() -> None:
    x = rows_of()
    x[500, 3] = np.nan
    with pytest.raises(rf.RankfoldError, match="500"):
        rf.kmeans(x, init=x[:5], batch_rows=64)
