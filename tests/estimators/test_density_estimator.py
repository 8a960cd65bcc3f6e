"""``KernelDensity`` is scikit-learn's, and takes samples on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import to_zarr
from sklearn import neighbors

from rankfold.estimators import KernelDensity


@pytest.mark.parametrize("kernel", ["gaussian", "exponential", "tophat"])
@pytest.mark.parametrize("weighted", [False, True])
def test_scores_and_samples_are_those_of_scikit_learn(kernel: str, weighted: bool) -> None:
    r = np.random.default_rng(0)
    x, t = r.standard_normal((500, 2)), r.standard_normal((100, 2))
    w = r.random(500) if weighted else None
    models = [
        each(bandwidth=0.8, kernel=kernel).fit(x, sample_weight=w)
        for each in (KernelDensity, neighbors.KernelDensity)
    ]
    ours, theirs = models
    np.testing.assert_allclose(ours.score_samples(t), theirs.score_samples(t), rtol=1e-9, atol=1e-9)
    assert ours.score(t) == pytest.approx(theirs.score(t), rel=1e-9)
    if kernel != "exponential":
        np.testing.assert_allclose(ours.sample(20, random_state=3), theirs.sample(20, random_state=3))


def test_samples_on_disk_stay_there(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((300, 3))
    store = to_zarr(tmp_path / "x.zarr", x, (70, 3))
    here, there = (KernelDensity(bandwidth="scott").fit(each) for each in (x, store))
    np.testing.assert_array_equal(here.score_samples(x[:50]), there.score_samples(x[:50]))
    np.testing.assert_array_equal(here.score_samples(store), here.score_samples(x))
    np.testing.assert_array_equal(here.sample(9, random_state=0), there.sample(9, random_state=0))
    assert there.n_features_in_ == 3 and there.bandwidth_ == 300 ** (-1 / 7)


@pytest.mark.parametrize(
    "how",
    [
        {"metric": "manhattan"},
        {"metric": "minkowski", "metric_params": {"p": 3}},
        {"metric": "p", "metric_params": {"p": 1}},
    ],
)
def test_other_metrics_are_left_to_scikit_learn(how: dict[str, Any], tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((200, 2))
    ours, theirs = (each(**how).fit(x) for each in (KernelDensity, neighbors.KernelDensity))
    np.testing.assert_array_equal(ours.score_samples(x), theirs.score_samples(x))
    with pytest.raises(ValueError, match="samples in memory"):
        KernelDensity(**how).fit(to_zarr(tmp_path / "x.zarr", x, (70, 2)))


@pytest.mark.parametrize("metric", ["l2", "minkowski", "p"])
def test_other_names_of_the_euclidean_metric_give_the_same(metric: str) -> None:
    x = np.random.default_rng(0).standard_normal((200, 2))
    one, other = (KernelDensity(metric=each).fit(x).score_samples(x) for each in ("euclidean", metric))
    np.testing.assert_array_equal(one, other)


def test_an_error_that_is_allowed_is_kept_to() -> None:
    x = np.random.default_rng(0).standard_normal((5000, 2))
    some, exact = (
        KernelDensity(bandwidth=0.3, rtol=rtol).fit(x).score_samples(x[:500]) for rtol in (1e-2, 0)
    )
    assert np.quantile(np.abs(np.expm1(some - exact)), 0.99) <= 1e-2
