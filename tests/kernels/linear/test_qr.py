"""R factors of any cut of a panel hold the same products, whatever the scale of the columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.kernels.linear.qr import LEAST_EIGENVALUE, merge_r, panel_r, r_of_gram

Array = npt.NDArray[Any]
EPS = float(np.finfo(np.float64).eps)


def assert_r_factor(r: Array, y: Array, *, factorizations: int = 1) -> None:
    rows, columns = y.shape
    assert r.shape == (columns, columns)
    assert not np.tril(r, -1).any()
    assert (np.diag(r) >= 0).all()
    # Householder QR is backward stable column by column: R is that of columns changed by less than
    # c r b eps of their own norm, with c < 4, in each factorization that the rows take part in.
    norms = np.linalg.norm(y, axis=0)
    height = max(rows, 2 * columns)
    bound = 2 * 4 * height * columns * EPS * factorizations * np.outer(norms, norms)
    assert (np.abs(r.T @ r - y.T @ y) <= bound).all()


def panel(rows: int, columns: int, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((rows, columns))


SIZES = {"rows": st.integers(0, 60), "columns": st.integers(1, 8), "seed": st.integers(0, 99)}


@given(**SIZES, cuts=st.lists(st.integers(0, 60), max_size=6).map(sorted), graded=st.booleans())
def test_any_cut_holds_the_products_of_the_panel(
    rows: int, columns: int, seed: int, cuts: list[int], graded: bool
) -> None:
    y = panel(rows, columns, seed)
    if graded:
        y *= 10.0 ** np.linspace(12, -12, columns)
    parts = [panel_r(part) for part in np.split(y, [min(c, rows) for c in cuts])]
    folded = parts[0]
    for part in parts[1:]:
        folded = merge_r(folded, part)
    assert_r_factor(folded, y, factorizations=len(parts) + 1)
    while len(parts) > 1:  # in a tree instead
        parts = [merge_r(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)] + parts[
            len(parts) & ~1 :
        ]
    assert_r_factor(parts[0], y, factorizations=len(cuts) + 2)


@given(**SIZES)
def test_dependent_and_zero_columns_are_no_trouble(rows: int, columns: int, seed: int) -> None:
    y = panel(rows, columns, seed)
    y[:, ::3] = 0.0
    y[:, -1] = y[:, 0] + (y[:, 1] if columns > 1 else 0.0)
    assert_r_factor(panel_r(y), y)


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_a_panel_shorter_than_wide_leaves_rows_of_zeros(rows: int) -> None:
    r = panel_r(panel(rows, 5, 1))
    assert r.shape == (5, 5)
    assert not r[rows:].any()


def test_no_rows_change_nothing() -> None:
    y = panel(20, 4, 2)
    r = panel_r(y)
    none = panel_r(y[:0])
    for merged in (merge_r(r, none), merge_r(none, r)):
        assert_r_factor(merged, y, factorizations=2)


@pytest.mark.parametrize("lay", [np.asfortranarray, lambda y: y[::-1][::-1], lambda y: y.T.copy().T])
def test_the_panel_is_left_untouched_in_any_order(lay: Any) -> None:
    y = panel(20, 4, 3)
    laid = lay(y)
    laid.flags.writeable = False
    np.testing.assert_array_equal(panel_r(laid), panel_r(y))
    np.testing.assert_array_equal(laid, y)


# From inner products -------------------------------------------------------------------------------


@pytest.mark.parametrize("decades", [0, 6, 12, 100])
def test_graded_orthogonal_columns_have_an_accurate_r(decades: int) -> None:
    rng = np.random.default_rng(decades)
    q = np.linalg.qr(rng.standard_normal((300, 12)))[0]
    s = np.logspace(0, -decades, 12)
    r = r_of_gram((q * s).T @ (q * s))
    assert r is not None and np.array_equal(r, np.triu(r))
    # Singular values of a scaled orthonormal basis are its scales, to some eps each, however small.
    np.testing.assert_allclose(np.sort(np.abs(np.diag(r)))[::-1], s, rtol=1e-13)
    assert_r_factor(r / s, q)


def test_columns_that_are_nearly_dependent_are_left_to_reflections() -> None:
    y = np.linalg.qr(np.random.default_rng(0).standard_normal((50, 3)))[0]
    for cosine, refused in ((0.9 * (1 - LEAST_EIGENVALUE), False), (1 - 0.5 * LEAST_EIGENVALUE, True)):
        y[:, 1] = cosine * y[:, 0] + np.sqrt(1 - cosine**2) * y[:, 2]
        assert (r_of_gram(y[:, :2].T @ y[:, :2]) is None) == refused
    assert r_of_gram(np.zeros((2, 2))) is None
    assert r_of_gram(np.full((2, 2), np.inf)) is None
