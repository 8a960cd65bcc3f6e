"""Panels are shifted and scaled with one rounding, and what is not finite cannot hide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.kernels.linear.center_scale import measure, subtract

Array = npt.NDArray[Any]
REFERENCE: Callable[..., Any] = measure.reference  # type: ignore[attr-defined]


@pytest.mark.parametrize("body", [measure, REFERENCE], ids=["tuned", "reference"])
@given(
    rows=st.integers(1, 11),
    columns=st.integers(1, 5),
    place=st.tuples(st.integers(0, 10), st.integers(0, 4)),
    bad=st.sampled_from([np.nan, np.inf, -np.inf]),
    pair=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_what_is_not_finite_reaches_the_squares_of_its_column(
    body: Callable[..., Any],
    rows: int,
    columns: int,
    place: tuple[int, int],
    bad: float,
    pair: bool,
    dtype: npt.DTypeLike,
) -> None:
    x = np.ones((rows, columns), dtype)
    i, j = place[0] % rows, place[1] % columns
    x[i, j] = bad
    if pair:
        x[(i + 1) % rows, j] = -bad  # infinities that cancel in the sum
    with np.errstate(invalid="ignore"):
        sums, squares = body(x, np.full(columns, 0.5), 0.5)
    others = np.arange(columns) != j
    assert not np.isfinite(squares[j])
    assert np.isfinite(squares[others]).all()
    np.testing.assert_array_equal(sums[others], rows * 0.25)


@pytest.mark.parametrize("extreme", [np.finfo(np.float32).max, np.finfo(np.float32).smallest_subnormal])
def test_every_finite_float32_is_measured_as_finite(extreme: np.float32) -> None:
    x = np.full((5, 2), extreme, np.float32)
    sums, squares = measure(x, np.zeros(2), 1.0)
    # Its square has 48 bits, and five of them are added: float64 holds all that with one rounding each.
    np.testing.assert_allclose(sums, 5 * float(extreme), rtol=1e-15)
    np.testing.assert_allclose(squares, 5 * float(extreme) ** 2, rtol=1e-15)


@pytest.mark.parametrize("exponent", [-400, -1, 300])
def test_a_unit_scales_sums_exactly(exponent: int) -> None:
    x, shift = np.random.default_rng(1).standard_normal((13, 4)), np.arange(4.0)
    sums, squares = measure(x, shift, 1.0)
    scaled = measure(np.ldexp(x, -exponent), np.ldexp(shift, -exponent), 2.0**exponent)
    np.testing.assert_array_equal(scaled[0], sums)
    np.testing.assert_array_equal(scaled[1], squares)


def test_constant_columns_measure_as_zero() -> None:
    for dtype in (np.uint8, np.int64, np.float32, np.float64):
        sums, squares = measure(np.full((9, 3), 117, dtype), np.full(3, 117.0), 1.0)
        assert not sums.any() and not squares.any()


def far_from_zero() -> tuple[Array, Array]:
    x = (1e4 + np.random.default_rng(0).standard_normal((4000, 3))).astype(np.float32)
    return x, x.mean(axis=0, dtype=np.float64)


def test_float32_far_from_zero_is_rounded_once() -> None:
    x, mean = far_from_zero()
    out = np.empty_like(x)
    subtract(x, mean, np.full(3, 0.75), out=out)
    np.testing.assert_array_equal(out, ((x.astype(np.float64) - mean) * 0.75).astype(np.float32))
    # Each element rounds by at most 2^-24 of at most 4 (0.75 of five deviations), so the mean is no further
    # from zero than that; a mean that was rounded to float32 first is off by up to 2^-11 in every row.
    bound = 4 * 2.0**-24
    assert np.abs(out.mean(axis=0, dtype=np.float64)).max() <= bound
    naive = x - mean.astype(np.float32)
    assert np.abs(naive.mean(axis=0, dtype=np.float64)).max() > 100 * bound


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_panel_may_be_conditioned_in_place(dtype: npt.DTypeLike) -> None:
    x, mean = far_from_zero()
    wide = np.zeros((len(x), 5), dtype)
    wide[:, 1:4] = x
    apart = wide[:, 1:4]
    expected = np.empty(x.shape, dtype)
    subtract(apart.copy(), mean, np.full(3, 2.0), out=expected)
    subtract(apart, mean, np.full(3, 2.0), out=apart)
    np.testing.assert_array_equal(apart, expected)
    assert not wide[:, [0, 4]].any()


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i4", "u4", "i8", "u8"])
def test_whole_numbers_are_taken_as_they_are(dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.array([[limits.min, 0, limits.max], [1, 2, 3]], dtype)
    out = np.empty(x.shape)
    subtract(x, np.ones(3), np.ones(3), out=out)
    np.testing.assert_array_equal(out, x.astype(np.float64) - 1.0)
