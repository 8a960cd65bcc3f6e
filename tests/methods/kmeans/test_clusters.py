"""Clusters of rows: steps beside scikit-learn's, starts, and data that are odd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import to_zarr
from scipy.spatial.distance import cdist
from sklearn import cluster
from sklearn.datasets import make_blobs

import rankfold as rf
from rankfold.methods.kmeans.passes import KeptRows, Layout, exponentials
from rankfold.methods.kmeans.start import Sample, best_start, group_centers
from rankfold.pipeline.errors import DataError, InputError

pytestmark = pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")


def rows_of(m: int = 900, n: int = 24, seed: int = 0, dtype: Any = np.float64) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((m, n)) * np.linspace(3, 0.5, n) + rng.integers(0, 3, (m, 1))).astype(dtype)


def plain_lloyd(x: np.ndarray, centers: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Labels by the centers of the last step, these, and the inertia of all, by the definition."""
    x, inertia = x.astype(np.float64), []
    for _ in range(steps):
        squares = cdist(x, centers, "sqeuclidean")
        labels, held_centers = squares.argmin(axis=1), centers
        inertia.append(float(squares.min(axis=1).sum()))
        centers = np.array([x[labels == j].mean(axis=0) for j in range(len(centers))])
    return labels, held_centers, inertia


# Steps ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8, np.int32])
@pytest.mark.parametrize("k", [1, 6, 60])
def test_every_step_is_that_of_the_definition(k: int, dtype: Any) -> None:
    x = np.abs(8 * rows_of()).astype(dtype)
    first = x[:: len(x) // k][:k].astype(np.float64)
    steps = 24
    labels, centers, inertia = plain_lloyd(x, first, steps)
    made = rf.kmeans(x, init=first, tol=0, passes=steps, threads=1)
    done = len(made.inertia)
    assert done == steps or made.attrs["stopped"] == "labels"
    # Sums of all rows in float64, some steps apart: some units of what rows vary in all.
    total = float(((x - x.mean(axis=0, dtype=float)) ** 2).sum())
    np.testing.assert_allclose(made.inertia, inertia[:done], rtol=1e-12, atol=1e-13 * total)
    np.testing.assert_array_equal(made.labels[...], labels)
    np.testing.assert_allclose(made.centers, centers, rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(made.counts, np.bincount(labels, minlength=k))


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_steps_are_those_of_scikit_learn(steps: int) -> None:
    x = rows_of()
    theirs = cluster.KMeans(9, init=x[:9], n_init=1, max_iter=steps, tol=0).fit(x)
    ours = rf.kmeans(x, init=x[:9], tol=0, passes=steps + 1)
    np.testing.assert_array_equal(ours.labels[...], theirs.labels_)
    np.testing.assert_allclose(ours.centers, theirs.cluster_centers_, rtol=1e-10, atol=1e-12)
    assert ours.attrs["final_inertia"] == pytest.approx(theirs.inertia_, rel=1e-10)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_labels_are_exact_where_float32_tells_centers_apart_badly(offset: float) -> None:
    rng = np.random.default_rng(1)
    x = (offset + rng.standard_normal((2000, 40))).astype(np.float32)
    # Rows halfway between pairs of centers, but for the last bits.
    first = np.concatenate(
        [x[:20].astype(float), x[:20].astype(float) + 1e-5 * rng.standard_normal((20, 40))]
    )
    made = rf.kmeans(x, init=first, passes=1, threads=1)
    squares = ((x.astype(np.longdouble)[:, None, :] - first[None]) ** 2).sum(axis=2)
    nearest, labels = squares.min(axis=1), made.labels[...]
    own = squares[np.arange(len(x)), labels]
    # A square is measured in float64 to some units.
    assert (own <= nearest * (1 + 1e-14)).all()


def test_the_nearest_of_equal_centers_is_the_first() -> None:
    x = rows_of(300)
    first = np.concatenate([x[:5], x[:5], x[:5]])
    made = rf.kmeans(x, init=first, passes=1)
    assert made.labels[...].max() < 5
    np.testing.assert_array_equal(made.labels[...], rf.kmeans(x, init=x[:5], passes=1).labels[...])


def test_rows_that_are_sparse_give_the_labels_of_dense_ones() -> None:
    x = np.maximum(rows_of(), 0)
    dense, sparse = (rf.kmeans(each, 7, threads=1) for each in (x, scipy.sparse.csr_array(x)))
    np.testing.assert_array_equal(dense.labels[...], sparse.labels[...])


def test_halves_and_booleans_are_rows_too() -> None:
    x = rows_of()
    for odd in (x.astype(np.float16), x > 1):
        same = odd.astype(np.float32)
        np.testing.assert_array_equal(rf.kmeans(odd, 5).labels[...], rf.kmeans(same, 5).labels[...])


def test_new_rows_are_labeled_by_a_result(tmp_path: Path) -> None:
    x, new = rows_of(), rows_of(200, seed=5)
    made = rf.kmeans(x, 6, out=tmp_path / "r.zarr")
    labeled = rf.kmeans(new, init=tmp_path / "r.zarr", passes=1)
    np.testing.assert_array_equal(labeled.centers, made.centers)
    np.testing.assert_array_equal(labeled.labels[...], cdist(new, made.centers).argmin(axis=1))
    assert not labeled.attrs["warnings"]
    assert labeled.attrs["final_inertia"] == pytest.approx((cdist(new, made.centers).min(axis=1) ** 2).sum())
    few = rf.kmeans(new[:2], init=made, passes=1)
    np.testing.assert_array_equal(few.labels[...], labeled.labels[:2])


@pytest.mark.parametrize("size", [1e-30, 1e18, 1e150])
def test_numbers_beyond_single_precision_are_told_apart(size: float) -> None:
    x = rows_of()
    here, there = rf.kmeans(x, 5), rf.kmeans(x * size, 5)
    np.testing.assert_array_equal(here.labels[...], there.labels[...])
    if 1e-38 < size < 1e38:
        narrow = (x * size).astype(np.float32)
        first = narrow[:6].astype(float)
        labels = rf.kmeans(narrow, init=first, passes=1).labels[...]
        np.testing.assert_array_equal(labels, cdist(narrow / size, first / size).argmin(axis=1))


# Odd data ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("init", ["k-means||", "sample"])
def test_all_rows_equal(init: str) -> None:
    x = np.full((500, 3), 7.25)
    made = rf.kmeans(x, 4, init=init)
    assert made.attrs["final_inertia"] == 0
    assert made.attrs["empty_clusters"] == 3
    assert sorted(made.counts) == [0, 0, 0, 500]
    np.testing.assert_array_equal(made.centers, np.full((4, 3), 7.25))
    assert "Ask for fewer" in made.attrs["warnings"][0]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    different=st.integers(1, 6),
    copies=st.integers(1, 40),
    k=st.integers(1, 9),
    init=st.sampled_from(["k-means||", "sample"]),
)
def test_more_clusters_than_different_rows(different: int, copies: int, k: int, init: str) -> None:
    x = np.repeat(np.arange(different)[:, None] * [3.0, -2.0], copies, axis=0)
    k = min(k, len(x))
    made = rf.kmeans(x, k, init=init)
    occupied = made.counts > 0
    assert occupied.sum() == len(np.unique(made.labels[...])) <= min(k, different)
    assert made.counts.sum() == len(x)
    if k >= different:
        assert occupied.sum() == different
        assert made.attrs["final_inertia"] <= 1e-12 * float((x**2).sum() + 1)


def test_a_cluster_without_rows_takes_the_farthest_row() -> None:
    x = np.array([[0.0], [1.0], [2.0], [50.0], [90.0]])
    first = np.array([[1.0], [1e6], [2e6]])
    made = rf.kmeans(x, init=first, tol=0, passes=2)
    # The first step has no rows for two clusters, the second looks for far ones and still has none.
    np.testing.assert_array_equal(made.counts, [5, 0, 0])
    made = rf.kmeans(x, init=first, tol=0)
    assert made.attrs["empty_clusters"] == 0
    np.testing.assert_allclose(
        made.centers[:, 0], [50, 90, 1], rtol=1e-13
    )  # rows at 50 leave a cluster empty
    assert made.attrs["stopped"] == "labels"


def test_as_many_clusters_as_rows() -> None:
    x = rows_of(40)
    made = rf.kmeans(x, 40)
    assert sorted(made.counts) == [1] * 40
    assert made.attrs["final_inertia"] < 1e-12 * float((x**2).sum())


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "say how many, k="),
        ({"k": 0}, "k must be at least 1, not 0"),
        ({"k": 901}, "ask for 1 to 900"),
        ({"k": 3, "init": "k-means"}, "is not known .*take one of k-means"),
        ({"k": 3, "init": np.zeros((4, 24))}, r"shape \(4, 24\), but 3 clusters of 24 columns"),
        ({"init": np.zeros(3)}, r"\(k, n\)"),
        ({"init": np.full((2, 24), np.nan)}, "finite"),
        ({"k": 3, "passes": 1}, "takes 2 passes at least"),
        ({"k": 3, "tol": -1.0}, "tol must be"),
        ({"k": 3, "n_init": 0}, "n_init must be at least 1"),
        ({"k": 3, "seed": -1}, "seed must lie"),
        ({"k": 3, "batch_rows": 0}, "batch_rows must be at least 1"),
        ({"k": 3, "batch_rows": 9, "passes": 2}, "by batches, and one that labels rows, takes 3 passes"),
    ],
)
def test_what_cannot_be_asked_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(rf.RankfoldError, match=message):
        rf.kmeans(rows_of(), **asked)


def test_a_result_of_another_method_is_no_start() -> None:
    with pytest.raises(rf.RankfoldError, match="kmeans starts from one of kmeans"):
        rf.kmeans(rows_of(), 3, init=rf.pca(rows_of(), 3))


# Starts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["mixed", "sorted"])
def test_rare_far_clusters_are_found_in_any_order(order: str) -> None:
    """Of 30 clusters some have 40 of 60 000 rows; rows that lie at a few places see but some of them."""
    sizes = [40] * 10 + [2980] * 20
    x, labels = make_blobs(sizes, 8, center_box=(-60, 60), random_state=3)
    x = x[np.argsort(labels, kind="stable")] if order == "sorted" else x
    best = min(cluster.KMeans(30, n_init=1, random_state=seed).fit(x).inertia_ for seed in range(3))
    ours = [rf.kmeans(x, 30, seed=seed, threads=1).attrs["final_inertia"] for seed in range(3)]
    # Either may end in a local minimum; what a start never sees would cost many times as much.
    assert min(ours) <= 1.01 * best
    assert max(ours) <= 1.3 * best


def test_one_read_draws_rows_by_their_weights() -> None:
    weights = np.array([1.0, 2.0, 3.0, 14.0])
    draws = 40_000
    keys = exponentials(0, 12, 0, 4 * draws).reshape(draws, 4) / weights
    drawn = np.bincount(keys.argmin(axis=1), minlength=4)
    # A share is within three of its standard deviations.
    share = weights / weights.sum()
    assert (np.abs(drawn / draws - share) < 3 * np.sqrt(share * (1 - share) / draws)).all()


@settings(max_examples=30, deadline=None, derandomize=True)
@given(cuts=st.lists(st.integers(1, 99), unique=True).map(sorted), count=st.integers(1, 120))
def test_rows_kept_do_not_depend_on_cuts(cuts: list[int], count: int) -> None:
    x, keys = rows_of(100, 3), np.round(exponentials(1, 2, 0, 100), 1)  # some are equal
    kept = KeptRows(count, 3, np.dtype(np.float64))

    def state() -> dict[str, Any]:
        return {name: each.of_no_rows() for name, each in kept.sums().items()}

    whole, total = state(), state()
    kept.take(whole, keys, 0, x)
    for start, stop in zip([0, *cuts], [*cuts, 100], strict=True):
        part = state()
        kept.take(part, keys[start:stop], start, x[start:stop])
        kept.join(total, part)
    for name in total:
        np.testing.assert_array_equal(total[name], whole[name])
    order = np.lexsort((np.arange(100), keys))[:count]
    np.testing.assert_array_equal(kept.held(whole)[1], order)
    np.testing.assert_array_equal(kept.held(whole)[2], x[order])


def test_more_starts_cost_no_more_on_the_sample() -> None:
    x = rows_of(400)
    sample = Sample(x, np.ones(400), x.mean(axis=0))
    costs = [best_start(sample, 12, starts, 0, 1)[1] for starts in (1, 4, 8)]
    assert costs[0] >= costs[1] >= costs[2] > 0


@pytest.mark.parametrize(("k", "most"), [(1, 4), (3, 4), (50, 5), (200, 20)])
def test_groups_are_few_and_none_is_empty(k: int, most: int) -> None:
    groups = group_centers(rows_of(k), most)
    assert len(groups) == k and groups.max() < max(most, 1)
    assert np.bincount(groups).min() >= 1


def test_the_plan_says_what_is_read(tmp_path: Path) -> None:
    x = to_zarr(tmp_path / "x.zarr", rows_of(), (100, 24))
    plan = rf.plan("kmeans", x, k=5, passes=9)
    assert plan.most_passes == 9 and plan.passes[0].name == "sample"
    assert rf.plan("kmeans", x, k=5, init="sample", passes=9).passes[0].name == "iteration-01"
    with pytest.raises(rf.RankfoldError, match="memory="):
        rf.plan("kmeans", x, k=5, memory="1MiB")
    assert Layout(rf.open(x), 5).groups == 1


# Weights -------------------------------------------------------------------------------------------


def weights_of(m: int = 900) -> np.ndarray:
    weights = np.random.default_rng(3).uniform(0, 3, m)
    weights[::7] = 0
    return weights


def test_weighted_clusters_are_those_of_scikit_learn() -> None:
    x, weights = rows_of(), weights_of()
    theirs = cluster.KMeans(9, init=x[1:10], n_init=1, tol=0).fit(x, sample_weight=weights)
    ours = rf.kmeans(x, init=x[1:10], tol=0, weights=weights)
    np.testing.assert_array_equal(ours.labels[...], theirs.labels_)
    np.testing.assert_allclose(ours.centers, theirs.cluster_centers_, rtol=1e-10, atol=1e-12)
    assert ours.attrs["final_inertia"] == pytest.approx(theirs.inertia_, rel=1e-10)
    np.testing.assert_array_equal(ours.counts, np.bincount(theirs.labels_, minlength=9))
    np.testing.assert_allclose(ours.cluster_weights, np.bincount(theirs.labels_, weights, minlength=9))
    # From starts of our own, which know the weights too, it costs as little as of scikit-learn's.
    best = cluster.KMeans(9, n_init=10, random_state=0).fit(x, sample_weight=weights).inertia_
    for init in ("k-means||", "sample"):
        assert rf.kmeans(x, 9, init=init, weights=weights).attrs["final_inertia"] <= 1.01 * best
    assert rf.kmeans(x, 9, weights=weights, batch_rows=100).attrs["final_inertia"] <= 1.03 * best


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_whole_weights_are_rows_that_come_again(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, times = rows_of(200, 5, seed), rng.integers(0, 4, 200)
    first = rng.permutation(x)[:4]
    ours, again = (
        rf.kmeans(each, init=first, tol=0, passes=40, **how)
        for each, how in ((x, {"weights": times}), (np.repeat(x, times, axis=0), {}))
    )
    np.testing.assert_array_equal(np.repeat(ours.labels[...], times), again.labels[...])
    np.testing.assert_allclose(ours.centers, again.centers, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.inertia, again.inertia, rtol=1e-9)
    np.testing.assert_array_equal(ours.cluster_weights, again.counts)


def test_a_row_of_weight_zero_draws_no_center() -> None:
    x, weights = rows_of(), np.ones(900)
    x[::9] += 1e4
    weights[::9] = 0
    made = rf.kmeans(x, 6, weights=weights)
    assert np.abs(made.centers).max() < 1e3 and (made.labels[...] >= 0).all()
    # Centers that no row is nearest to go where rows count, not where they are farthest.
    far = np.concatenate([x[1:3], np.full((2, x.shape[1]), -1e6)])
    made = rf.kmeans(x, init=far, weights=weights)
    assert np.abs(made.centers).max() < 1e3 and made.attrs["empty_clusters"] == 0
    scaled = [rf.kmeans(x, init=x[1:4], weights=weights * 2.0**power) for power in (-60, 60)]
    np.testing.assert_array_equal(scaled[0].centers, scaled[1].centers)


@pytest.mark.parametrize("batch_rows", [None, 128])
def test_bytes_of_weighted_clusters_do_not_depend_on_cuts_and_threads(
    tmp_path: Path, batch_rows: int | None
) -> None:
    x, weights = rows_of(3000, 6, dtype=np.float32), weights_of(3000)
    np.save(tmp_path / "w.npy", weights)
    to_zarr(tmp_path / "w.zarr", weights[:, None], (256, 1))
    made = [
        rf.kmeans(place, 7, weights=own, batch_rows=batch_rows, threads=threads, memory=memory)
        for place, own, threads, memory in (
            (to_zarr(tmp_path / "x.zarr", x, (500, 6)), tmp_path / "w.npy", 1, "512MiB"),
            (tmp_path / "x.zarr", tmp_path / "w.zarr", 2, "128MiB"),
        )
    ]
    for name in ("labels", "centers", "counts", "inertia", "cluster_weights"):
        assert np.asarray(made[0][name][...]).tobytes() == np.asarray(made[1][name][...]).tobytes()


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (-np.ones(900), DataError, r"the weight of row 0 .from 0. is -1\.0"),
        (np.where(np.arange(900) == 700, np.nan, 1), DataError, r"the weight of row 700 .from 0. is nan"),
        (np.zeros(900), DataError, "all rows are of weight zero"),
        (np.full(900, 1e200), DataError, r"is 1e\+200, and weights are from 1e-100 to 1e\+100"),
        (np.ones(899), InputError, "weights are 899 x 1, but .* has 900 rows: give one number for each"),
        (np.ones((900, 2)), InputError, "weights are 900 x 2"),
        (np.ones(900) * 1j, InputError, "weights are complex128, and must be real"),
    ],
)
def test_weights_that_are_none_are_refused(weights: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        rf.kmeans(rows_of(), 3, weights=weights)


def test_weights_of_other_rows_are_refused() -> None:
    pandas = pytest.importorskip("pandas", reason="pip install pandas")
    names = [f"r{i}" for i in range(900)]
    frame = pandas.DataFrame(rows_of(), index=names)
    weights = pandas.Series(weights_of(), index=names)
    same = rf.kmeans(rows_of(), 3, weights=weights_of())
    np.testing.assert_array_equal(rf.kmeans(frame, 3, weights=weights).centers, same.centers)
    for method in (rf.kmeans, lambda x, k, weights: rf.nmf(np.abs(x), k, row_weights=weights)):
        with pytest.raises(InputError, match=r"rows of .* are not those of .*: row 0 .* is 'r899', not 'r0'"):
            method(frame, 3, weights=weights[::-1])
