"""Gaussian rows are a function of (seed, purpose, row index), however they are asked for."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankfold.kernels.linear.gaussian import TILE_ROWS, gaussian_rows

LAST = 2**64 - 1


@settings(max_examples=40)
@given(
    start=st.integers(0, 3 * TILE_ROWS),
    count=st.integers(0, 2 * TILE_ROWS),
    cuts=st.lists(st.integers(0, 2 * TILE_ROWS), max_size=4).map(sorted),
    columns=st.integers(1, 3),
)
def test_rows_do_not_depend_on_how_they_are_cut(
    start: int, count: int, cuts: list[int], columns: int
) -> None:
    edges = [start, *(start + min(c, count) for c in cuts), start + count]
    pieces = [gaussian_rows(7, 1, span, columns) for span in pairwise(edges)]
    whole = gaussian_rows(7, 1, (start, start + count), columns)
    assert whole.shape == (count, columns) and whole.dtype == np.float64
    np.testing.assert_array_equal(np.vstack(pieces), whole)


def test_every_key_is_a_stream_of_its_own() -> None:
    keys = [(0, 0), (0, 1), (1, 0), (1, 1), (2**32, 0), (LAST, LAST), (0, LAST), (LAST, 0)]
    drawn = [gaussian_rows(seed, purpose, (0, 2000), 10).ravel() for seed, purpose in keys]
    # Independent streams of n numbers correlate by 1 / sqrt(n); 28 pairs stay within five of those.
    correlation = np.corrcoef(drawn) - np.eye(len(keys))
    assert np.abs(correlation).max() < 5 / np.sqrt(drawn[0].size)


def test_no_tile_repeats_another() -> None:
    x = gaussian_rows(3, 1, (0, 4 * TILE_ROWS), 1).ravel()
    assert len(np.unique(x)) == len(x)


@pytest.mark.parametrize(("power", "moment", "variance"), [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)])
def test_moments_are_those_of_the_standard_normal(power: int, moment: float, variance: float) -> None:
    x = gaussian_rows(11, 2, (0, 20_000), 8).ravel()
    # The mean of n powers has the standard deviation sqrt(variance / n): five of them.
    assert abs((x**power).mean() - moment) < 5 * np.sqrt(variance / x.size)


def test_columns_are_not_correlated() -> None:
    x = gaussian_rows(11, 2, (0, 20_000), 8)
    correlation = np.corrcoef(x.T) - np.eye(8)
    assert np.abs(correlation).max() < 5 / np.sqrt(len(x))
