"""Moments of any cut, merged in any tree, are those of all rows at once."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.kernels.linear.moments import Moments, add_rows, merge_moments

Array = npt.NDArray[Any]
EPS = float(np.finfo(np.float64).eps)


def rows(count: int, columns: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((count, columns)) * rng.uniform(0, 3, columns) + 10 * rng.standard_normal(
        columns
    )


def add(total: Moments, x: Array, pow2_scale: float = 1.0, mean: Array | None = None) -> Moments:
    """Add a block as a sweep does, in buffers of its own."""
    dtype = np.float64 if x.dtype == np.float64 else np.float32
    out, work = np.empty((len(x) + 1, x.shape[1]), dtype), np.empty((x.shape[1],) * 2, dtype)
    mean = x.mean(axis=0, dtype=np.float64) if mean is None else mean
    add_rows(total, x, mean, pow2_scale, out=out, work=work)
    return total


def directly(x: Array) -> Moments:
    """Two passes over all rows in extended precision."""
    wide = x.astype(np.longdouble)
    centered = wide - wide.mean(axis=0)
    return Moments(len(x), wide.mean(axis=0).astype(float), (centered.T @ centered).astype(float))


def assert_close(found: Moments, x: Array) -> None:
    expected, n = directly(x), len(x)
    # Means of blocks are within e = n eps max|x| of the true ones. A scatter of n rows about means that
    # are e off, with rows as far as c from their mean, is off by n (e c' + c e' + e e'); rounding of the
    # products, n eps c c', is less than that. Eight for the levels of blocks, merges and the final sum.
    e, c = n * EPS * np.abs(x).max(axis=0), np.abs(x - expected.mean).max(axis=0)
    assert found.count == n
    assert (np.abs(found.mean - expected.mean) <= 8 * e).all()
    bound = 8 * n * (np.outer(e, c) + np.outer(c, e) + np.outer(e, e))
    assert (np.abs(found.scatter - expected.scatter) <= bound).all()


def assert_same(a: Moments, b: Moments) -> None:
    assert a.count == b.count
    np.testing.assert_array_equal(a.mean, b.mean)
    np.testing.assert_array_equal(a.scatter, b.scatter)


@given(
    count=st.integers(1, 200),
    columns=st.integers(1, 6),
    seed=st.integers(0, 99),
    cuts=st.lists(st.integers(1, 199), unique=True, max_size=12).map(sorted),
    tree=st.lists(st.integers(0, 99), min_size=13, max_size=13),
    streams=st.integers(1, 4),
)
def test_any_cut_and_any_tree_give_the_moments_of_all_rows(
    count: int, columns: int, seed: int, cuts: list[int], tree: list[int], streams: int
) -> None:
    x = rows(count, columns, seed)
    blocks = [block for block in np.split(x, [c for c in cuts if c < count]) if len(block)]
    leaves: list[Moments] = []
    for i, block in enumerate(blocks):  # runs of blocks folded into one accumulator, as in a stream
        if i % streams == 0:
            leaves.append(Moments.empty(columns))
        add(leaves[-1], block)
    for choice in tree:
        if len(leaves) == 1:
            break
        i = choice % (len(leaves) - 1)
        merge_moments(leaves[i], leaves.pop(i + 1))
    assert_close(leaves[0], x)


@given(columns=st.integers(1, 5), count=st.integers(1, 50), seed=st.integers(0, 99))
def test_moments_about_zero_are_the_products_of_all_rows(columns: int, count: int, seed: int) -> None:
    x, zero = rows(count, columns, seed), np.zeros(columns)
    total, other = Moments.empty(columns), Moments.empty(columns)
    add(total, x[: count // 2 + 1], mean=zero)
    if count // 2 + 1 < count:
        add(other, x[count // 2 + 1 :], mean=zero)
    merge_moments(total, other)
    # Each entry is an inner product of length n: within n eps of the product of magnitudes, per order.
    bound = 2 * (count + 2) * EPS * (np.abs(x).T @ np.abs(x))
    assert (np.abs(total.scatter - x.T @ x) <= bound).all()
    assert not total.mean.any()


def test_float32_far_from_zero_keeps_its_variance() -> None:
    rng = np.random.default_rng(0)
    x = (1e4 + rng.standard_normal((20_000, 4))).astype(np.float32)
    halves = [Moments.empty(4), Moments.empty(4)]
    for i, block in enumerate(np.split(x, 20)):
        add(halves[i // 10], block)
    merge_moments(*halves)
    variance = np.diag(halves[0].scatter) / len(x)
    # Centered rows round to 6e-8 each; a sum of 1000 squares in float32 errs by less than sqrt(1000) times
    # that in one block, and 20 blocks average: 4e-7. E[x^2] - E[x]^2 in float32 would be off by 10.
    np.testing.assert_allclose(variance, x.astype(float).var(axis=0), rtol=1e-6)


@pytest.mark.parametrize("exponent", [-300, -3, 5, 200])
def test_a_unit_scales_moments_exactly(exponent: int) -> None:
    # A power of two changes no digit of anything, as long as squares stay in range.
    x, pow2_scale = rows(30, 3, 1), 2.0**exponent
    plain, scaled = Moments.empty(3), Moments.empty(3)
    for block in np.split(x, 3):
        add(plain, block)
        add(scaled, np.ldexp(block, -2 * exponent), pow2_scale=pow2_scale)
    expected = Moments(30, np.ldexp(plain.mean, -exponent), np.ldexp(plain.scatter, -2 * exponent))
    assert_same(scaled, expected)


def test_merging_with_no_rows_changes_nothing() -> None:
    full = add(Moments.empty(3), rows(20, 3, 2))
    for total, other in ((copy.deepcopy(full), Moments.empty(3)), (Moments.empty(3), copy.deepcopy(full))):
        merge_moments(total, other)
        assert_same(total, full)


def test_no_rows_merged_with_no_rows_are_no_rows() -> None:
    # Two streams that hold nothing but NaN leave this behind.
    total = Moments.empty(3)
    merge_moments(total, Moments.empty(3))
    assert_same(total, Moments.empty(3))


def test_merging_leaves_the_other_alone() -> None:
    total, other = add(Moments.empty(3), rows(20, 3, 2)), add(Moments.empty(3), rows(9, 3, 3))
    before = copy.deepcopy(other)
    merge_moments(total, other)
    assert_same(other, before)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_may_lie_in_the_buffer_that_they_are_centered_in(dtype: npt.DTypeLike) -> None:
    x = rows(20, 3, 2).astype(dtype)
    mean, out, work = x.mean(axis=0, dtype=np.float64), np.empty((21, 3), dtype), np.empty((3, 3), dtype)
    out[:20] = x
    total = Moments.empty(3)
    add_rows(total, out[:20], mean, 1.0, out=out, work=work)
    assert_same(total, add(Moments.empty(3), x, mean=mean))
