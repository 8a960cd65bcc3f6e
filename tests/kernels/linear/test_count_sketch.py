"""A sketch of rows keeps lengths, sees every row, and depends on row numbers alone."""

from __future__ import annotations

import numpy as np
import pytest

from rankfold.kernels.linear.count_sketch import TILE_ROWS, add_to_buckets, draw_buckets

BUCKETS = 64


def test_buckets_and_signs_are_even() -> None:
    drawn = [draw_buckets(5, 6, tile, BUCKETS) for tile in range(64)]
    buckets, signs = (np.concatenate(part) for part in zip(*drawn, strict=True))
    rows = 64 * TILE_ROWS
    counts = np.bincount(buckets, minlength=BUCKETS)
    assert counts.shape == (BUCKETS,) and set(signs) == {-1, 1}
    # Five standard deviations of binomial counts.
    assert np.abs(counts - rows / BUCKETS).max() < 5 * np.sqrt(rows / BUCKETS)
    assert abs(signs.sum()) < 5 * np.sqrt(rows)
    assert abs(np.bincount(buckets, signs).sum()) < 5 * np.sqrt(rows)


def test_tiles_seeds_and_purposes_differ() -> None:
    draws = [draw_buckets(*key, BUCKETS)[0] for key in [(0, 6, 0), (1, 6, 0), (0, 5, 0), (0, 6, 1)]]
    assert all((a != b).mean() > 0.9 for i, a in enumerate(draws) for b in draws[:i])
    assert all(
        np.array_equal(a, b)
        for a, b in zip(draw_buckets(0, 6, 9, 50), draw_buckets(0, 6, 9, 50), strict=True)
    )


@pytest.mark.parametrize("order", ["C", "F"])
def test_lengths_are_kept(order: str) -> None:
    # The squared length of S v has mean |v|^2 and variance at most 2 |v|^4 / buckets.
    rng = np.random.default_rng(0)
    lengths = []
    for tile in range(40):
        d = np.asarray(rng.standard_normal((TILE_ROWS, 5)), order=order)  # type: ignore[call-overload]
        d /= np.linalg.norm(d, axis=0)
        buckets, signs = draw_buckets(0, 6, tile, BUCKETS)
        sums = np.zeros((BUCKETS, 5))
        add_to_buckets(d, buckets, signs.astype(float), sums=sums)
        lengths.append((sums**2).sum(axis=0))
    assert abs(np.mean(lengths) - 1) < 5 * np.sqrt(2 / BUCKETS / (40 * 5))


def test_a_single_row_is_kept_exactly() -> None:
    d = np.zeros((TILE_ROWS, 3))
    d[123] = [1, 2, 3]
    buckets, signs = draw_buckets(0, 6, 0, BUCKETS)
    sums = np.zeros((BUCKETS, 3))
    add_to_buckets(d, buckets, signs.astype(float), sums=sums)
    assert np.array_equal(sums[buckets[123]], signs[123] * d[123]) and (sums != 0).sum() == 3
