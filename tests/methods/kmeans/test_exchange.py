"""Centers that leave a local minimum."""

from __future__ import annotations

import numpy as np
import pytest

from rankfold.methods.kmeans.iteration import _two_nearest, exchange
from rankfold.methods.kmeans.start import Sample, refine


def blobs(dtype: type = np.float64) -> tuple[Sample, np.ndarray]:
    """Rows about a grid of 25 places, and these."""
    places = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), axis=-1).reshape(-1, 2) * 10
    rng = np.random.default_rng(0)
    rows = (np.repeat(places, 60, axis=0) + rng.standard_normal((1500, 2))).astype(dtype)
    return Sample(rows, np.ones(1500), rows.mean(axis=0)), places


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_centers_go_where_they_are_missed(dtype: type) -> None:
    sample, places = blobs(dtype)
    # All begin in five of the places, where steps of Lloyd's leave most of them.
    first = sample.rows[:300:12].astype(np.float64)
    stuck, cost = refine(sample, first, 1, 100)
    best = refine(sample, places, 1, 100)[1]
    assert cost > 2 * best
    centers, less = exchange(sample, stuck, cost, 1)
    assert centers.shape == (25, 2)
    assert less <= best * (1 + 1e-3)


def test_exchange_costs_no_more_and_is_the_same_again() -> None:
    sample, _ = blobs()
    for k in (1, 2, 7):
        centers, cost = refine(sample, sample.rows[:k].astype(float), 1, 100)
        one, two = (exchange(sample, centers, cost, 1) for _ in range(2))
        assert one[1] <= cost
        np.testing.assert_array_equal(one[0], two[0])


def test_rows_at_few_places_need_no_exchange() -> None:
    rows = np.repeat(np.arange(3.0)[:, None], 20, axis=0)
    sample = Sample(rows, np.ones(60), rows.mean(axis=0))
    centers, cost = exchange(sample, np.array([[0.0], [1.0], [2.0], [7.0]]), 0.0, 1)
    assert centers.shape == (4, 1)
    assert cost == 0
    centers, cost = exchange(sample, np.array([[0.5], [0.5], [0.5], [0.5]]), 47.5, 1)
    assert centers.shape == (4, 1)
    assert cost == 0


def test_two_nearest_centers_of_each_row() -> None:
    sample, places = blobs()
    labels, squares, others = _two_nearest(sample, places)
    far = ((sample.rows[:, None] - places[None]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(labels, far.argmin(axis=1))
    far.sort(axis=1)
    # Products of numbers of about 20 round by some units of their square.
    np.testing.assert_allclose(np.stack([squares, others], axis=1), far[:, :2], atol=1e-12)
