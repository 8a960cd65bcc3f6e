"""``KMeans`` in scikit-learn's place: its checks, its attributes, samples on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from reference import to_zarr
from sklearn import cluster
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

import rankfold as rf
from rankfold.estimators import KMeans, MiniBatchKMeans


def samples(rows: int = 600, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, 20)) + 4 * rng.integers(0, 2, (rows, 20)) * (np.arange(20) < 3)


@pytest.mark.slow
@parametrize_with_checks([KMeans(n_clusters=3), MiniBatchKMeans(n_clusters=3, batch_size=10)])
def test_scikit_learn_finds_no_fault(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("sparse", "weighted"), [(False, False), (True, False), (True, True)])
def test_from_the_same_centers_clusters_are_those_of_scikit_learn(
    dtype: Any, sparse: bool, weighted: bool
) -> None:
    weights = np.random.default_rng(2).integers(0, 3, 600) if weighted else None
    x, new = samples().astype(dtype), samples(50, seed=1).astype(dtype)
    given: Any = scipy.sparse.csr_array(x) if sparse else x
    ours = KMeans(8, init=x[:8], tol=0).fit(given, sample_weight=weights)
    theirs = cluster.KMeans(8, init=x[:8], n_init=1, tol=0).fit(x, sample_weight=weights)
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, rtol=1e-4, atol=1e-5)
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-5)
    np.testing.assert_array_equal(ours.predict(new), theirs.predict(new))
    np.testing.assert_allclose(ours.transform(new), theirs.transform(new), rtol=1e-4)
    assert ours.score(new) == pytest.approx(theirs.score(new), rel=1e-5)
    assert ours.score(given, None, weights) == pytest.approx(theirs.score(x, None, weights), rel=1e-5)
    assert ours.transform(new).dtype == dtype


def test_samples_on_disk_give_what_samples_in_memory_give(tmp_path: Path) -> None:
    x = samples()
    path = to_zarr(tmp_path / "x.zarr", x, (100, 20))
    here, there = KMeans(8, random_state=0).fit(x), KMeans(8, random_state=0).fit(path)
    np.testing.assert_array_equal(here.labels_, there.labels_)
    np.testing.assert_array_equal(here.labels_, there.predict(path))
    assert KMeans(8, random_state=0).fit_predict(rf.open(path)).shape == (600,)
    with pytest.raises(ValueError, match="in memory"):
        there.transform(path)


def test_fewer_different_samples_than_clusters_are_told() -> None:
    with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(2\) found smaller"):
        fitted = KMeans(3).fit(np.repeat([[0.0], [1.0]], 5, axis=0))
    assert fitted.inertia_ == 0


def test_a_function_may_choose_the_first_centers() -> None:
    x = samples()
    fitted = KMeans(4, init=lambda x, k, random_state: x[:k]).fit(x)
    np.testing.assert_array_equal(fitted.labels_, KMeans(4, init=x[:4]).fit(x).labels_)


# Batches -------------------------------------------------------------------------------------------


def test_a_batch_moves_centers_as_in_scikit_learn() -> None:
    x, weights = samples(), np.random.default_rng(3).integers(0, 3, 600).astype(float)
    ours = MiniBatchKMeans(6, init=x[:6])
    theirs = cluster.MiniBatchKMeans(6, init=x[:6], n_init=1, reassignment_ratio=0)
    for start in range(0, 600, 120):
        here = slice(start, start + 120)
        for model in (ours, theirs):
            model.partial_fit(x[here], sample_weight=weights[here])
        np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, rtol=1e-12)
        np.testing.assert_array_equal(ours.labels_, theirs.labels_)
        assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-12)
    np.testing.assert_allclose(ours.counts_, theirs._counts)
    assert ours.n_steps_ == theirs.n_steps_ == 5


def test_batches_of_a_fit_cost_little_more_than_steps_to_rest() -> None:
    x, _ = make_blobs(3000, 10, centers=12, random_state=0)
    steps = KMeans(12, random_state=0).fit(x)
    batches = MiniBatchKMeans(12, random_state=0, batch_size=256).fit(x)
    assert steps.inertia_ <= batches.inertia_ <= 1.02 * steps.inertia_
    assert batches.n_steps_ == batches.n_iter_ * 12
    np.testing.assert_array_equal(batches.labels_, batches.predict(x))


def test_batches_on_disk_are_those_in_memory(tmp_path: Path) -> None:
    x = samples()
    path = to_zarr(tmp_path / "x.zarr", x, (100, 20))
    here, there = (MiniBatchKMeans(8, random_state=0, batch_size=70).fit(each) for each in (x, path))
    np.testing.assert_array_equal(here.labels_, there.labels_)
    np.testing.assert_array_equal(here.cluster_centers_, there.cluster_centers_)
    with pytest.raises(ValueError, match="a batch lies in memory"):
        there.partial_fit(path)


def test_batches_go_on_from_a_fit_and_a_fit_begins_anew() -> None:
    x, new = samples(), samples(40, seed=1)
    fitted = MiniBatchKMeans(4, random_state=0).fit(x)
    before, counts = fitted.cluster_centers_.copy(), fitted.counts_.copy()
    assert counts.sum() == 600
    fitted.partial_fit(new[:3])
    assert np.abs(fitted.cluster_centers_ - before).max() < 0.2
    assert fitted.counts_.sum() == 603
    again = MiniBatchKMeans(4, random_state=0).partial_fit(new).fit(x)
    np.testing.assert_array_equal(again.counts_, counts)
    np.testing.assert_array_equal(again.cluster_centers_, before)
