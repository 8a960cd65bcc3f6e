"""Products of sparse rows: right for any width and type, and the same bits for any ranges."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.kernels._dispatch import aligned_empty
from rankfold.kernels.sparse.products import (
    PIECE,
    add_columns,
    column_order,
    multiply_rows,
    order_columns,
    scatter_rows,
)
from rankfold.kernels.sparse.slabs import cut_block, join_slabs, slab_shape

Array = npt.NDArray[Any]
TYPES = [("float32", "float32"), ("float64", "float64"), ("float32", "float64"), ("float64", "float32")]


def sparse(
    shape: tuple[int, int], dtype: str = "float32", index: str = "int32", fill: float = 0.2
) -> list[Array]:
    """Rows with duplicates, in no order; every third row is empty, and every third column."""
    rng = np.random.default_rng([*shape, 3])
    counts = rng.poisson(fill * shape[1], shape[0]) * (np.arange(shape[0]) % 3 != 1)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(index)
    indices = rng.integers(0, max(1, shape[1] // 3), indptr[-1]) * 3 % shape[1]
    return [indptr, indices.astype(index), rng.standard_normal(indptr[-1]).astype(dtype)]


def dense(rows: list[Array], columns: int, magnitudes: bool = False) -> Array:
    indptr, indices, data = rows
    x = np.zeros((len(indptr) - 1, columns))
    values = np.abs(data) if magnitudes else data
    np.add.at(x, (np.repeat(np.arange(len(x)), np.diff(indptr)), indices), values.astype(float))
    return x


@pytest.mark.parametrize(("data", "block"), TYPES)
@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 16, 31, 33, 64, 65, 100, 128, 130])
def test_both_products_of_any_width(data: str, block: str, width: int) -> None:
    m, n = 37, 23
    rows = sparse((m, n), data, "int64" if width % 2 else "int32")
    rng = np.random.default_rng(width)
    q, y, z = rng.standard_normal((n, width)).astype(block), np.empty((m, width), block), np.ones((n, width))
    multiply_rows(*rows, q, y=y)
    add_columns(*column_order(*rows, n), y, z=z)
    # Sums of t numbers in the type of the block: t + 1 eps of magnitudes, where factors are rounded too.
    eps = float(np.finfo(block).eps)
    a, size = dense(rows, n), dense(rows, n, magnitudes=True)
    assert (np.abs(y - a @ q.astype(float)) <= (n + 20) * eps * (size @ np.abs(q))).all()
    bound = (m + 20) * eps * (size.T @ np.abs(y)) + 2 * np.finfo(float).eps
    assert (np.abs(z - 1 - a.T @ y.astype(float)) <= bound).all()


@pytest.mark.parametrize(("data", "block"), TYPES)
@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 16, 31, 32, 33, 70])
def test_scattered_products_of_any_width(data: str, block: str, width: int) -> None:
    m, n = 37, 23
    rows = sparse((m, n), data, "int64" if width % 2 else "int32")
    y, z = np.random.default_rng(width).standard_normal((m, width)).astype(block), np.ones((n, width + 1))
    scatter_rows(*rows, y, z=z[:, :width])
    exact, size = dense(rows, n).T @ y.astype(float), dense(rows, n, magnitudes=True).T @ np.abs(y)
    assert (np.abs(z[:, :width] - 1 - exact) <= 2 * m * np.finfo(float).eps * (1 + size)).all()
    assert (z[:, width] == 1).all()


def test_single_precision_under_double_sums_in_double() -> None:
    data = np.array([2.0**24, 1, -(2.0**24)], np.float32)
    indptr, indices, y, q = np.array([0, 3]), np.array([0, 1, 2]), np.empty((1, 2)), np.ones((3, 2))
    multiply_rows(indptr, indices, data, q, y=y)
    assert (y == 1).all()


def test_pieces_of_a_long_column_are_added_in_double() -> None:
    # In float32 alone 2^24 + 1 is 2^24 again.
    count = 4 * PIECE
    values, rows = np.ones(count, np.float32), np.arange(count)
    y, z = np.ones((count, 3), np.float32), np.zeros((1, 3))
    y[0] = 2.0**24
    add_columns(np.array([0, count]), rows, values, y, z=z)
    assert np.abs(z - (2.0**24 + count - 1)).max() <= PIECE
    assert (z > 2.0**24 + 3 * PIECE - 1).all()


@given(
    cuts=st.lists(st.integers(0, 60), max_size=6).map(sorted),
    width=st.sampled_from([1, 5, 16, 33, 64, 130]),
    types=st.sampled_from(TYPES[:3]),
)
def test_any_ranges_give_the_same_bits(cuts: list[int], width: int, types: tuple[str, str]) -> None:
    m = n = 60
    data, block = types
    indptr, *others = sparse((m, n), data, fill=0.8)
    q = np.random.default_rng(0).standard_normal((n, width)).astype(block)
    whole_y, whole_z, y, z = (
        np.empty((m, width), block),
        np.ones((n, width)),
        np.empty_like(q),
        np.ones((n, width)),
    )
    multiply_rows(indptr, *others, q, y=whole_y)
    pointers, *order = column_order(indptr, *others, n)
    add_columns(pointers, *order, whole_y, z=whole_z)
    ranges = list(pairwise([0, *cuts, m]))
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda r: multiply_rows(indptr[r[0] : r[1] + 1], *others, q, y=y[r[0] : r[1]]), ranges))
        list(pool.map(lambda r: add_columns(pointers[r[0] : r[1] + 1], *order, y, z=z[r[0] : r[1]]), ranges))
    assert y.tobytes() == whole_y.tobytes() and z.tobytes() == whole_z.tobytes()


@given(m=st.integers(1, 40), n=st.integers(1, 40), fill=st.sampled_from([0.0, 0.1, 2.0]), wide=st.booleans())
def test_the_order_of_columns_is_stable_and_whole(m: int, n: int, fill: float, wide: bool) -> None:
    indptr, indices, data = sparse((m, n), index="int64" if wide else "int32", fill=fill)
    positions = np.arange(len(data))
    pointers, rows, places = column_order(indptr, indices, positions, n)
    assert pointers[0] == 0 and pointers[-1] == len(data) and rows.dtype == np.int32
    assert (indices[places] == np.repeat(np.arange(n), np.diff(pointers))).all()
    assert (rows == np.repeat(np.arange(m), np.diff(indptr))[places]).all()
    for start, stop in pairwise(pointers):
        assert (np.diff(places[start:stop]) > 0).all()


@pytest.mark.parametrize("body", [order_columns, order_columns.reference])  # type: ignore[attr-defined]
@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"indices": (4, 7)},
            r"index 7 at position 4, in row 1 \(from 0\), is no column: there are 7, from 0 to 6",
        ),
        ({"indices": (2, -1)}, r"index -1 at position 2, in row 0 \(from 0\)"),
        ({"indptr": (1, 6)}, r"row 1 \(from 0\) would have the nonzeros from 6 to before 5"),
        ({"indptr": (2, 99)}, "rows begin at nonzero 1 and end at 99, and there are 9 indices and 9 values"),
        ({"rows": (slice(0), 0)}, "4 nonzeros do not fit into 3 rows and 4 values"),
    ],
)
def test_what_is_wrong_is_said(body: Any, index: str, change: dict[str, Any], message: str) -> None:
    arrays: dict[str, Array] = {
        "indptr": np.array([1, 3, 5], index),
        "indices": np.array([0, 6] * 4 + [99], index),
    }
    rows = np.empty(4, np.int32)
    ((name, (place, value)),) = change.items()
    if name == "rows":
        rows = rows[:3]
    else:
        arrays[name][place] = value
    room = {"pointers": np.empty(8, np.int64), "rows": rows, "values": np.empty(4)}
    with pytest.raises(ValueError, match=message):
        body(*arrays.values(), np.ones(9), **room)


def test_rows_that_have_no_number_are_refused() -> None:
    indptr = np.zeros(130, np.int64)
    room = {"pointers": np.empty(2, np.int64), "rows": np.empty(0, np.int8), "values": np.empty(0)}
    with pytest.raises(
        ValueError, match="129 rows have numbers that int8 does not hold: take fewer at a time"
    ):
        order_columns(indptr, np.empty(0, np.int32), np.empty(0), **room)


def test_a_million_columns_with_few_nonzeros() -> None:
    n = 10**6
    rng = np.random.default_rng(0)
    indptr, indices = np.arange(0, 3001, 3), rng.integers(0, n, 3000)
    data = rng.standard_normal(3000).astype(np.float32)
    q, y, z = np.ones((n, 2), np.float32), np.empty((1000, 2), np.float32), np.zeros((n, 2))
    multiply_rows(indptr, indices, data, q, y=y)
    np.testing.assert_allclose(y[:, 0], data.reshape(-1, 3).sum(axis=1), rtol=0, atol=1e-5)
    add_columns(*column_order(indptr, indices, data, n), y, z=z)
    assert set(np.flatnonzero(z[:, 0])) <= set(indices)


@pytest.mark.parametrize("shape", [(0, 5), (4, 0), (0, 0)])
def test_nothing_is_multiplied(shape: tuple[int, int]) -> None:
    m, n = shape
    rows = [np.zeros(m + 1, np.int32), np.empty(0, np.int32), np.empty(0, np.float32)]
    q, y, z = np.ones((n, 3), np.float32), np.full((m, 3), 7, np.float32), np.ones((n, 3))
    multiply_rows(*rows, q, y=y)
    add_columns(*column_order(*rows, n), y, z=z)
    assert (y == 0).all() and (z == 1).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [1, 3, 32, 64, 100, 128, 129])
def test_slabs_hold_the_block(width: int, dtype: str) -> None:
    m, n = 21, 19
    rows = sparse((m, n), dtype)
    q = np.random.default_rng(0).standard_normal((n, width)).astype(dtype)
    slabs, out = (aligned_empty(slab_shape(r, width, dtype), dtype) for r in (n, m))
    assert slabs.ctypes.data % 64 == 0 and slabs.flags.c_contiguous and slabs[0].nbytes <= 256 * n
    cut_block(q, slabs=slabs)
    back, y, expected = np.empty_like(q), np.empty((m, width), dtype), np.empty((m, width), dtype)
    join_slabs(slabs, block=back)
    assert (back == q).all()
    for slab, into in zip(slabs, out, strict=True):
        multiply_rows(*rows, slab, y=into)
    join_slabs(out, block=y)
    multiply_rows(*rows, q, y=expected)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-4 if dtype == "float32" else 1e-12)
