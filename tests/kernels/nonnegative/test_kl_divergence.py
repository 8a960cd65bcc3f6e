"""Quotients are finite whatever is divided, and the divergence is that of SciPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

from rankfold.kernels.nonnegative.kl_divergence import quotients

Array = npt.NDArray[Any]


def divergence_by(body: Callable[..., None]) -> Callable[[Array, Array], float]:
    def divide(x: Array, product: Array) -> float:
        total = np.full(1, 0.0)
        body(x, product, total=total)
        return float(total[0])

    return divide


divergence = divergence_by(quotients)
REFERENCE = divergence_by(quotients.reference)  # type: ignore[attr-defined]
BODIES = pytest.mark.parametrize("body", [divergence, REFERENCE], ids=["tuned", "reference"])
TYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
EPS = float(np.finfo(np.float64).eps)


def pair(rows: int, columns: int, seed: int, dtype: Any, zeros: float = 0.0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.gamma(0.5, size=(rows, columns)) * (rng.random((rows, columns)) >= zeros)
    return x.astype(dtype), (rng.gamma(0.5, size=(rows, columns)) + 1e-3).astype(dtype)


@BODIES
@TYPES
@given(
    rows=st.integers(0, 12),
    columns=st.integers(0, 200),
    zeros=st.sampled_from([0.0, 0.9, 1.0]),
    seed=st.integers(0, 99),
)
def test_divergences_are_those_of_scipy(
    body: Callable[..., float], dtype: Any, rows: int, columns: int, zeros: float, seed: int
) -> None:
    x, model = pair(rows, columns, seed, dtype, zeros)
    product = model.copy()
    found = body(x, product)
    np.testing.assert_array_equal(product, x / model)
    wide, below = x.astype(float), model.astype(float)
    # Each body rounds a term some six times, relative to its parts, and adds up n of them.
    parts = np.abs(scipy.special.xlogy(wide, wide / below)) + wide + below
    assert abs(found - scipy.special.kl_div(wide, below).sum()) <= (12 + columns + rows) * EPS * parts.sum()


@BODIES
@TYPES
def test_a_perfect_model_has_no_divergence(body: Callable[..., float], dtype: Any) -> None:
    x, _ = pair(9, 130, 1, dtype, 0.5)
    x[x == 0] = 1
    product = x.copy()
    assert body(x, product) == 0.0
    assert (product == 1).all()


@BODIES
@TYPES
def test_whatever_is_divided_the_answer_is_finite(body: Callable[..., float], dtype: Any) -> None:
    limits = np.finfo(dtype)
    values = np.array(
        [0, limits.smallest_subnormal, limits.tiny, 1e-20, 1, 5, 1e20, np.sqrt(limits.max), limits.max / 1e4],
        dtype,
    )
    n = len(values)
    x, product = np.repeat(values, n).reshape(n, n), np.tile(values, (n, 1))
    model = np.maximum(product, limits.tiny).astype(np.longdouble)
    found = body(x, product)
    wide = x.astype(np.longdouble)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(wide > 0, wide * np.log(wide / model), 0) - wide + model
    assert np.isfinite(found) and found == pytest.approx(float(terms.sum()), rel=1e-13)
    assert np.isfinite(product).all() and (product[0] == 0).all()
    exact = np.minimum(wide / model, np.longdouble(limits.max))
    assert (np.abs(product - exact) <= limits.eps * exact + limits.smallest_subnormal).all()
    for i in range(n):
        one, two = values[i : i + 1].reshape(1, 1), np.zeros((1, 1), dtype)
        assert np.isfinite(body(one, two)) and np.isfinite(two).all()


@given(exponents=st.lists(st.floats(-700, 700), min_size=1, max_size=70))
def test_the_logarithm_is_right_over_the_whole_range(exponents: list[float]) -> None:
    model = np.exp(np.array(exponents))[:, None]
    x = np.ones_like(model)
    for row in range(len(model)):
        product = model[row : row + 1].copy()
        found, m = divergence(x[:1], product), model[row, 0]
        # A logarithm within two roundings, of a quotient that is rounded itself.
        assert abs(found - (m - 1 - np.log(m))) <= 4 * EPS * (1 + m + abs(np.log(m)))


@TYPES
@given(cut=st.integers(0, 40))
def test_rows_do_not_know_each_other(dtype: Any, cut: int) -> None:
    x, whole = pair(40, 77, 2, dtype, 0.3)
    parts = whole.copy()
    total = divergence(x, whole)
    above = divergence(x[:cut], parts[:cut])
    below = divergence(x[cut:], parts[cut:])
    np.testing.assert_array_equal(whole, parts)
    assert total == pytest.approx(above + below, rel=40 * EPS)


@BODIES
@TYPES
def test_panels_that_must_not_be_written_or_are_parts_of_wider_ones(
    body: Callable[..., float], dtype: Any
) -> None:
    x, model = pair(20, 90, 3, dtype, 0.3)
    expected_product = model.copy()
    expected = body(x, expected_product)
    wide = np.full((20, 100), np.nan, dtype)
    product = wide[:, 3:93]
    product[...] = model
    x = np.asfortranarray(x)
    x.flags.writeable = False
    assert body(x, product) == pytest.approx(expected, rel=100 * EPS)
    np.testing.assert_array_equal(product, expected_product)
    assert np.isnan(wide[:, :3]).all() and np.isnan(wide[:, 93:]).all()
