"""The scatter of sparse rows: right whichever columns are made dense, and nothing below the diagonal."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.kernels.sparse.cpu import gram as body
from rankfold.kernels.sparse.gram import add_gram, mirror_upper

Array = npt.NDArray[Any]


def rows_of(x: Array, dtype: str, index: str, *, mixed: bool) -> list[Array]:
    """Sparse rows of a matrix; mixed ones have nonzeros in no order, every third of them in two halves."""
    rng = np.random.default_rng(0)
    rows, columns = np.nonzero(x)
    data = x[rows, columns].astype(dtype)
    if mixed:
        data[::3] /= 2
        rows, columns, data = (np.concatenate([a, a[::3]]) for a in (rows, columns, data))
        order = rng.permutation(len(rows))
        order = order[np.argsort(rows[order], kind="stable")]
        rows, columns, data = rows[order], columns[order], data[order]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(x)))])
    return [indptr.astype(index), columns.astype(index), data]


def matrix(m: int, n: int, power: float = 4) -> Array:
    """Columns from full to empty; numbers are halves, so that sums are exact in float32."""
    rng = np.random.default_rng([m, n])
    filled = rng.random((m, n)) < rng.random(n) ** power
    return filled * rng.integers(-8, 9, (m, n)) * 2.0  # type: ignore[no-any-return]


def assert_added(x: Array, rows: list[Array]) -> None:
    n = x.shape[1]
    before = np.random.default_rng(1).integers(-9, 9, (n, n)).astype(float)
    scatter = before.copy()
    add_gram(*rows, scatter=scatter)
    # Sums of small integers: exact in any order.
    np.testing.assert_array_equal(scatter, before + np.triu(x.T @ x))


@given(
    m=st.integers(1, 60),
    n=st.integers(1, 50),
    dtype=st.sampled_from(["float32", "float64"]),
    index=st.sampled_from(["int32", "int64"]),
    mixed=st.booleans(),
)
def test_products_of_columns(m: int, n: int, dtype: str, index: str, mixed: bool) -> None:
    x = matrix(m, n)
    assert_added(x, rows_of(x, dtype, index, mixed=mixed))


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("dense", ["none", "some", "many", "all"])
def test_whichever_columns_are_made_dense(dense: str, mixed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x = matrix(1500, 120)
    counts = {"none": 0, "some": 3, "many": 70, "all": 120}
    columns = np.sort(np.argsort(-(x != 0).sum(axis=0))[: counts[dense]])
    monkeypatch.setattr(body, "_dense_columns", lambda *_: columns)
    monkeypatch.setattr(body, "DENSE_NUMBERS", 1)  # several pieces
    assert_added(x, rows_of(x, "float32", "int32", mixed=mixed))


@pytest.mark.parametrize(("power", "expected"), [(0.0, "all"), (40.0, "few"), (300.0, "none")])
def test_the_fullest_columns_are_made_dense(power: float, expected: str) -> None:
    x = matrix(3000, 400, power)
    indptr, indices, _ = rows_of(x, "float32", "int64", mixed=False)
    counts = np.bincount(indices, minlength=400)
    count = len(body._dense_columns(indptr, indices, counts))
    assert {"all": count == 400, "few": 0 < count < 200, "none": count <= 5}[expected]


def test_a_range_of_rows() -> None:
    x = matrix(40, 12)
    indptr, indices, data = rows_of(x, "float64", "int32", mixed=False)
    assert_added(x[7:30], [indptr[7:31], indices, data])


@pytest.mark.parametrize("call", [add_gram, add_gram.reference])  # type: ignore[attr-defined]
def test_an_index_that_is_no_column(call: Any) -> None:
    scatter = np.ones((3, 3))
    with pytest.raises(ValueError, match=r"index 3 at position 1, in row 1 \(from 0\), is no column"):
        call(np.array([0, 1, 2]), np.array([0, 3]), np.ones(2), scatter=scatter)
    assert (scatter == 1).all()


@pytest.mark.parametrize("n", [0, 1, 511, 512, 1100])
def test_the_upper_triangle_is_copied_over_the_diagonal(n: int) -> None:
    a = np.random.default_rng(0).standard_normal((n, n))
    whole = a + a.T
    half = np.where(np.tri(n, k=-1) > 0, np.nan, whole)
    mirror_upper(half)
    np.testing.assert_array_equal(half, whole)
